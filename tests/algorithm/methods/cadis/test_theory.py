from fractions import Fraction
from math import comb

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from cadis.algorithm.methods import FedAvg
from cadis.algorithm.methods.cadis import SimilarityMatrix, instance_similarity
from cadis.data import Samples, digits
from cadis.errors import CadisError
from cadis.models import FlatModel, small_cnn
from cadis.rng import derive_generator
from cadis.training import LocalSettings
from method_support import make_similarity
from support import train_locally
from theory import (
    compute_balanced_loss,
    compute_cadis_limit,
    compute_cosine_bounds,
    compute_expected_rounds_bound,
    compute_fedavg_limit,
    find_trained_classes,
)


def compute_expected_rounds(n: int, k: int) -> Fraction:
    """Return the expected rounds until all clients took part, by the Markov chain of the proof."""
    expected = {n: Fraction(0)}
    for i in range(n - 1, -1, -1):
        stay = Fraction(comb(i, k), comb(n, k))
        leave = Fraction(0)
        for new in range(1, min(k, n - i) + 1):
            ways = comb(n - i, new) * comb(i, k - new) if k - new <= i else 0
            leave += Fraction(ways, comb(n, k)) * expected[i + new]
        expected[i] = (1 + leave) / (1 - stay)
    return expected[0]


@given(st.integers(1, 14), st.data())
def test_bound_of_theorem_2_holds_for_one_participation(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, n))
    exact = compute_expected_rounds(n, k)
    assert compute_expected_rounds_bound(n, k) >= float(exact) - 1e-9
    if k == 1:  # the coupon collector: the bound is exact
        assert compute_expected_rounds_bound(n, 1) == pytest.approx(float(exact))


def test_bound_by_hand_and_for_big_numbers() -> None:
    assert compute_expected_rounds_bound(3, 3) == 1
    assert compute_expected_rounds_bound(3, 2) == pytest.approx(1 + 3 / (3 - 1))
    ways = comb(100, 10)
    exact = 1 + sum(Fraction(ways, ways - comb(i, 10)) for i in range(10, 100))
    assert compute_expected_rounds_bound(100, 10) == pytest.approx(float(exact), rel=1e-12)
    assert compute_expected_rounds_bound(5000, 50) < float("inf")
    with pytest.raises(CadisError, match="k = 4, n = 3"):
        compute_expected_rounds_bound(3, 4)


def test_participation_alone_does_not_allow_estimates() -> None:
    """Theorem 2 claims more than its proof: all clients took part, but pairs are unknown."""
    matrix = (
        SimilarityMatrix()
        .observe([1, 2], make_similarity(0.9))
        .observe([3, 4], make_similarity(0.9))
    )
    assert not matrix.estimate_missing(1.0, "mean").known.all()


@given(st.integers(0, 10**6))
def test_cosine_triangle(seed: int) -> None:
    vectors = torch.randn(3, 4, generator=torch.Generator().manual_seed(seed)).double()
    s = instance_similarity(vectors)
    low, high = compute_cosine_bounds(s[0, 1], s[1, 2])
    assert low - 1e-12 <= s[0, 2] <= high + 1e-12


def simulate(a: list[float], b: list[float], weights: list[float], eta: float, steps: int) -> float:
    """Simulate federated gradient descent on quadratic losses."""
    z = 0.7
    for _ in range(20_000 // steps):
        trained = []
        for curvature, gradient in zip(a, b, strict=True):
            local = z
            for _ in range(steps):
                local -= eta * (2 * curvature * local + gradient)
            trained.append(local)
        z = sum(w * local for w, local in zip(weights, trained, strict=True)) / sum(weights)
    return z


def test_limits_match_the_simulation() -> None:
    a, b, eta, steps = [0.5, 1.5], [1.0, -2.0], 0.1, 5
    tensors = torch.tensor(a).double(), torch.tensor(b).double()
    sizes = torch.tensor([2.0, 1.0]).double()
    fedavg = compute_fedavg_limit(*tensors, sizes, eta, steps)
    cadis = compute_cadis_limit(*tensors, eta, steps)
    assert fedavg.item() == pytest.approx(simulate(a, b, [2, 1], eta, steps))
    assert cadis.item() == pytest.approx(simulate(a, b, [1, 1], eta, steps))
    phi = [(1 - 2 * c * eta) ** steps for c in a]  # the paper's formula with the correct sign
    printed = (b[0] / a[0] * (1 - phi[0]) + b[1] / a[1] * (1 - phi[1]) / 2) / (
        3 - (2 * phi[0] + phi[1])
    )
    assert fedavg.item() == pytest.approx(-printed)


def compute_losses(a: Tensor, b: Tensor, eta: float, steps: int) -> tuple[float, float]:
    sizes = torch.tensor([2.0, 1.0]).double()
    fedavg = compute_balanced_loss(a, b, compute_fedavg_limit(a, b, sizes, eta, steps))
    cadis = compute_balanced_loss(a, b, compute_cadis_limit(a, b, eta, steps))
    return fedavg.item(), cadis.item()


curvatures = st.floats(0.05, 1.0)
gradients = st.floats(-3, 3)


@given(curvatures, curvatures, gradients, gradients, st.floats(0.01, 0.45), st.integers(1, 40))
def test_proposition_2_holds_under_its_exact_condition(
    a1: float, a3: float, b1: float, b3: float, share: float, steps: int
) -> None:
    a, b = torch.tensor([a1, a3]).double(), torch.tensor([b1, b3]).double()
    eta = share / max(a1, a3)
    phi1, phi3 = ((1 - 2 * c * eta) ** steps for c in (a1, a3))
    p = (1 - phi1) / (2 - phi1 - phi3)
    q = 2 * (1 - phi1) / (3 - 2 * phi1 - phi3)
    fedavg, cadis = compute_losses(a, b, eta, steps)
    if steps == 1 or a1 <= a3:
        assert p + q >= 2 * a1 / (a1 + a3) - 1e-9
    if p + q >= 2 * a1 / (a1 + a3):
        assert fedavg >= cadis - 1e-9
    else:
        assert fedavg <= cadis + 1e-9


@given(curvatures, curvatures, gradients, st.floats(0.01, 0.45), st.integers(1, 40))
def test_printed_difference_holds_for_opposite_gradients(
    a1: float, a3: float, b1: float, share: float, steps: int
) -> None:
    eta = share / max(a1, a3)
    phi1, phi3 = ((1 - 2 * c * eta) ** steps for c in (a1, a3))
    p = (phi1 - 1) / (phi1 + phi3 - 2)
    q = (2 * phi1 - 2) / (2 * phi1 + phi3 - 3)
    v1, v2 = q - p, (1 / a1 + 1 / a3) * (q + p) - 2 / a3
    printed = b1**2 / (8 * a1 * a3) * (a1 + a3) ** 2 * v1 * v2
    fedavg, cadis = compute_losses(
        torch.tensor([a1, a3]).double(), torch.tensor([b1, -b1]).double(), eta, steps
    )
    assert fedavg - cadis == pytest.approx(printed, rel=1e-6, abs=1e-9)


def test_counterexample_to_proposition_2() -> None:
    a, b = torch.tensor([1.0, 0.01]).double(), torch.tensor([1.0, -1.0]).double()
    fedavg, cadis = compute_losses(a, b, eta=0.4, steps=50)
    assert fedavg < cadis


def train_head_update(classes: list[int], seed: int) -> Tensor:
    """Return the head update of the digits CNN after training on some classes."""
    torch.manual_seed(seed)
    model = FlatModel(small_cnn(1, 8, 8, 10))
    train = digits().train
    chosen = torch.isin(train.labels, torch.tensor(classes)).nonzero()[:48, 0]
    before, samples = model.copy_state(), Samples(train.inputs[chosen], train.labels[chosen])
    settings = LocalSettings(epochs=3, batch_size=8, lr=0.05)
    train_locally(model, FedAvg(), samples, before, {}, settings, derive_generator(seed))
    weight, bias = model.layout.head_slices
    update = model.copy_state().parameters - before.parameters
    return torch.cat([update[weight].view(10, 64), update[bias].view(10, 1)], dim=1)


@pytest.mark.parametrize("classes", [[8], [3], [5, 7], [0, 9]])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_head_update_reveals_the_trained_classes(classes: list[int], seed: int) -> None:
    update = train_head_update(classes, seed)
    assert find_trained_classes(update).nonzero()[:, 0].tolist() == classes
    without_bias = find_trained_classes(update[:, :-1])
    assert without_bias.nonzero()[:, 0].tolist() == classes


@given(st.integers(0, 10**6))
def test_absent_rows_never_grow(seed: int) -> None:
    """Proposition 1 for one step of softmax regression on non-negative features."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(4, 3, generator=generator)
    features = torch.rand(3, generator=generator)
    assume(bool((features > 0).all()))
    probabilities = torch.softmax(weight @ features, dim=0)
    target = torch.tensor([0.0, 0.0, 1.0, 0.0])
    update = -0.1 * torch.outer(probabilities - target, features)
    assert find_trained_classes(update).tolist() == [False, False, True, False]
