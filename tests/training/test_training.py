"""Local training compared with a plain loop and torch's own optimizer; evaluation by hand."""

import pickle
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from cadis.algorithm import BaseMethod
from cadis.algorithm.methods import CADIS, FedAvg, FedDyn, FedFA, FedProx
from cadis.data import Samples, Scaling
from cadis.models import FlatModel
from cadis.rng import derive_generator
from cadis.training import Evaluation, LocalSettings, compute_batch_sizes
from cadis.types import TensorState
from support import blobs, evaluate, small_model, train_locally

SETTINGS = LocalSettings(epochs=3, batch_size=4, lr=0.05)


def train_plainly(method: BaseMethod, client_state: TensorState) -> nn.Module:
    """Train a model with a loop that is written from the formulas of the papers."""
    samples, model = blobs(13, [0, 3], seed=1), small_model()
    start = torch.cat([p.detach().flatten() for p in model.parameters()])
    optimizer = torch.optim.SGD(model.parameters(), lr=SETTINGS.lr)
    generator = derive_generator(5)
    torch.randint(2**62, (), generator=generator)
    for _ in range(SETTINGS.epochs):
        order = torch.randperm(13, generator=generator)
        for batch in (order[:4], order[4:8], order[8:13]):  # the last batch of 1 is merged
            loss = F.cross_entropy(model(samples.inputs[batch]), samples.labels[batch])
            w = torch.cat([p.flatten() for p in model.parameters()])
            if isinstance(method, FedProx):
                loss = loss + method.mu / 2 * ((w - start) ** 2).sum()
            if isinstance(method, FedDyn):
                loss = (
                    loss
                    - client_state["gradient"] @ w
                    + method.alpha / 2 * ((w - start) ** 2).sum()
                )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model


def to_flat_order(vector: torch.Tensor, model: FlatModel) -> torch.Tensor:
    """Reorder a vector from the order of ``parameters()`` to that of the flat vector."""
    other = FlatModel(small_model())
    with torch.no_grad():
        sizes = [p.numel() for p in other.parameters]
        for parameter, part in zip(other.parameters, vector.split(sizes), strict=True):
            parameter.copy_(part.view(parameter.shape))
    assert other.layout == model.layout
    return other.vector.detach()


@pytest.mark.parametrize("method", [FedAvg(), FedProx(mu=0.7), FedDyn(alpha=0.3)])
def test_training_matches_a_plain_loop(method: BaseMethod) -> None:
    model = FlatModel(small_model())
    size = model.vector.numel()
    gradient = torch.randn(size, generator=torch.Generator().manual_seed(2)) / 10
    plain = train_plainly(method, {"gradient": gradient})
    state, samples = {"gradient": to_flat_order(gradient, model)}, blobs(13, [0, 3], seed=1)
    train_locally(model, method, samples, model.copy_state(), state, SETTINGS, derive_generator(5))
    for ours, theirs in zip(model.module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_training_increases_the_accuracy() -> None:
    model = FlatModel(small_model())
    settings = LocalSettings(epochs=20, batch_size=8, lr=0.1)
    samples = blobs(80, [0, 1, 2, 3, 4], seed=0)
    before = evaluate(model, samples).accuracy
    train_locally(model, FedAvg(), samples, model.copy_state(), {}, settings, derive_generator(0))
    assert before < 0.5
    assert evaluate(model, samples).accuracy > 0.95


def test_training_does_not_change_the_global_random_state() -> None:
    model = FlatModel(small_model(dropout=0.5))
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    train_locally(
        model, FedAvg(), blobs(8, [0], 0), model.copy_state(), {}, SETTINGS, derive_generator(0)
    )
    assert torch.equal(torch.rand(3), expected)


def test_batch_norm_trains_if_one_example_remains() -> None:
    layers = nn.Flatten(), nn.Linear(16, 3), nn.BatchNorm1d(3), nn.Linear(3, 5)
    model, samples = FlatModel(nn.Sequential(*layers)), blobs(9, [0, 1], 0)
    train_locally(model, FedAvg(), samples, model.copy_state(), {}, SETTINGS, derive_generator(0))
    assert model.copy_state().is_finite()


def test_a_last_batch_of_one_is_merged_with_the_one_before() -> None:
    expected = {8: [4, 4], 9: [4, 5], 10: [4, 4, 2], 5: [5], 3: [3], 1: [1], 4: [4]}
    assert {samples: compute_batch_sizes(samples, 4) for samples in expected} == expected
    assert compute_batch_sizes(3, 1) == [1, 1, 1]


class Fixed(nn.Module):
    """A model whose outputs are its inputs times a factor."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.factor, self.head = factor, nn.Linear(3, 3, bias=False)
        nn.init.eye_(self.head.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(x) * self.factor
        return logits


def test_nan_outputs_count_as_wrong_predictions() -> None:
    """They are also wrong for class 0, which argmax returns for NaN."""
    labels = torch.tensor([0, 1, 2, 0])
    result = evaluate(FlatModel(Fixed(torch.nan)), Samples(torch.zeros(4, 3), labels))
    assert result.accuracy == 0
    assert result.confusion.sum() == 4
    logits = torch.tensor(
        [[9.0, 0.0, 0.0], [0.0, 9.0, 0.0], [torch.nan] * 3, [0.0, torch.nan, 0.0]]
    )
    assert evaluate(FlatModel(Fixed()), Samples(logits, labels)).accuracy == 2 / 4


def test_evaluation_equals_hand_computed_values() -> None:
    logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [5.0, 0.0, 0.0], [0.0, 3.0, 0.0]])
    labels = torch.tensor([0, 1, 1, 1])
    result = evaluate(FlatModel(Fixed()), Samples(logits, labels))
    assert result.confusion.tolist() == [[1, 0, 0], [1, 2, 0], [0, 0, 0]]
    assert result.accuracy == 3 / 4
    assert result.class_accuracy[:2].tolist() == pytest.approx([1, 2 / 3])
    assert result.class_accuracy[2].isnan()
    log_p = torch.log_softmax(logits, dim=1)
    assert result.loss == pytest.approx(-sum(log_p[i, labels[i]].item() for i in range(4)) / 4)


def test_bytes_are_scaled_batch_by_batch() -> None:
    """Images stored as bytes give the results of images that are scaled beforehand."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (13, 1, 4, 4), generator=generator, dtype=torch.uint8)
    labels, scaling = torch.arange(13) % 5, Scaling((0.4,), (0.3,))
    states, confusions = [], []
    scaled = Samples((pixels / 255 - 0.4) / 0.3, labels)
    for samples in (Samples(pixels, labels, scaling), scaled):
        model, received = FlatModel(small_model()), FlatModel(small_model()).copy_state()
        train_locally(model, CADIS(), samples, received, {}, SETTINGS, derive_generator(5))
        states.append(model.copy_state().parameters)
        confusions.append(evaluate(model, samples).confusion)
    torch.testing.assert_close(*states, rtol=1e-4, atol=1e-5)
    assert torch.equal(*confusions)


@pytest.mark.parametrize("method", [FedAvg(), FedProx(0.1), CADIS(), FedFA()], ids=str)
def test_half_precision_keeps_weights_in_float32(method: BaseMethod) -> None:
    """The updates in half and in single precision are similar, but not equal."""
    samples = blobs(24, [0, 1, 2], seed=0)
    updates = {}
    for precision in ("float32", "bf16"):
        model = FlatModel(small_model(batch_norm=True))
        start, settings = model.copy_state(), LocalSettings(2, 4, 0.05, precision=precision)
        generator = torch.Generator().manual_seed(0)
        output = train_locally(model, method, samples, start, {}, settings, generator)
        result = output.message.model
        assert result.parameters.dtype == result.buffers.dtype == torch.float32
        updates[precision] = result.parameters - start.parameters
    assert not torch.equal(updates["float32"], updates["bf16"])
    assert F.cosine_similarity(updates["float32"], updates["bf16"], dim=0) > 0.98


def test_a_pickled_evaluation_is_equal_and_shares_no_memory() -> None:
    short = Evaluation(torch.tensor([[3, 1], [0, 2]]), 0.75)
    full = Evaluation(short.confusion, 0.5, torch.randn(6, 1), torch.tensor([0, 0, 0, 0, 1, 1]))
    for evaluation in (short, full):
        copy = pickle.loads(ForkingPickler.dumps(evaluation))
        assert vars(copy).keys() == vars(evaluation).keys()
        assert copy.total_loss == evaluation.total_loss
        for name in ("confusion", "outputs", "labels"):
            assert torch.equal(getattr(copy, name), getattr(evaluation, name))
            assert not getattr(copy, name).is_shared()
