import pytest
import torch
from torch import Tensor

from cadis.algorithm import Aggregation, average_models
from cadis.algorithm.methods import FedFV
from cadis.algorithm.methods.fedfv import compute_inner_products
from cadis.types import ModelState, TensorState
from method_support import make_server_round
from support import is_identical, make_server_state, make_update


def make_model(parameters: Tensor) -> ModelState:
    return ModelState(parameters, parameters[:2].clone(), torch.zeros(0).long())


def aggregate(
    method: FedFV,
    changes: dict[int, Tensor],
    losses: list[float],
    sent: Tensor | None = None,
    tensors: TensorState | None = None,
    number: int = 1,
) -> Aggregation:
    """Aggregate clients with these changes of the sent model."""
    start = torch.zeros_like(next(iter(changes.values()))) if sent is None else sent
    updates = [
        make_update(client, 10 + client, make_model(start + change), received_loss=loss)
        for (client, change), loss in zip(changes.items(), losses, strict=True)
    ]
    return method.aggregate(
        make_server_round(number), updates, make_server_state(make_model(start), tensors)
    )


def get_step(result: Aggregation) -> list[float]:
    return [float(number) for number in result.models["model"].parameters]


def vector(*numbers: float) -> Tensor:
    return torch.tensor(numbers)


def draw_normal(seed: int, rows: int, columns: int = 50) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def run_plain_fedfv(
    changes: list[Tensor], losses: list[float], kept: int, absent: list[list[Tensor]]
) -> Tensor:
    """Run Algorithms 1 to 3 on vectors; ``absent`` has the oldest round first."""
    order = sorted(range(len(changes)), key=lambda index: losses[index])
    projected = []
    for index, change in enumerate(changes):
        g = change.clone()
        if index not in order[len(order) - kept :]:
            for other in order:
                if other != index and g @ changes[other] < 0:
                    g_j = changes[other]
                    g = g - (g @ g_j) / (g_j @ g_j) * g_j
        projected.append(g)
    step = torch.stack(projected).mean(dim=0)
    for group in absent:
        conflicts = [g for g in group if step @ g < 0]
        if conflicts:
            total = torch.stack(conflicts).sum(dim=0)
            step = step - (step @ total) / (total @ total) * total
    length: Tensor = torch.stack(changes).mean(dim=0).norm() / step.norm()
    return length * step


def test_internal_conflicts_by_hand() -> None:
    """The update with the lower loss is projected; the other one is kept."""
    result = aggregate(FedFV(0.5, 0), {0: vector(3.0, 0.0), 1: vector(-1.0, 1.0)}, [0.1, 0.9])
    # (3, 0) . (-1, 1) = -3 and ||(-1, 1)||^2 = 2, so (3, 0) becomes (3 - 3 / 2, 3 / 2)
    mean = [(1.5 - 1) / 2, (1.5 + 1) / 2]
    length = ((3 - 1) / 2) ** 2 + (1 / 2) ** 2
    scale = (length / (mean[0] ** 2 + mean[1] ** 2)) ** 0.5
    assert get_step(result) == pytest.approx([scale * mean[0], scale * mean[1]])
    assert result.weights.tolist() == [0.5, 0.5]
    assert result.models["model"].buffers.tolist() == pytest.approx([1.0, 0.5])


def test_external_conflicts_by_hand() -> None:
    method = FedFV(alpha=1.0, tau=1)
    first = aggregate(method, {0: vector(-1.0, 1.0), 1: vector(0.0, 1.0)}, [1.0, 1.0])
    result = aggregate(method, {2: vector(2.0, 0.0)}, [1.0], tensors=first.tensors, number=2)
    # only (-1, 1) is in conflict with (2, 0): 2 - 2 / 2 * 1 and 0 + 2 / 2 * 1, scaled to norm 2
    assert get_step(result) == pytest.approx([2**0.5, 2**0.5])


def test_a_participant_is_not_absent() -> None:
    method = FedFV(alpha=1.0, tau=2)
    first = aggregate(method, {0: vector(-1.0, 1.0)}, [1.0])
    result = aggregate(method, {0: vector(2.0, 0.0)}, [1.0], tensors=first.tensors, number=2)
    assert get_step(result) == [2, 0]
    assert result.tensors["updates"].tolist() == [[2, 0]]


def test_updates_are_dropped_after_tau_rounds() -> None:
    for tau, step in ((1, [0.0, 2.0]), (2, [2**0.5, 2**0.5])):
        method, tensors = FedFV(alpha=1.0, tau=tau), dict[str, Tensor]()
        rounds = [vector(1.0, -1.0), vector(1.0, 0.0), vector(0.0, 2.0)]
        for number, change in enumerate(rounds, start=1):
            result = aggregate(method, {number: change}, [1.0], tensors=tensors, number=number)
            tensors = dict(result.tensors)
        assert get_step(result) == pytest.approx(step)
        assert len(tensors["rounds"]) == tau


def test_fedfv_without_projections_equals_the_mean() -> None:
    sent, *others = draw_normal(0, 5)
    changes = dict(enumerate(others))
    losses, method, tensors = [0.1, 0.2, 0.3, 0.4], FedFV(alpha=1.0, tau=0), dict[str, Tensor]()
    for number in (1, 2):
        result = aggregate(method, changes, losses, sent, tensors, number)
        tensors = dict(result.tensors)
        expected = average_models(
            [make_model(sent + change) for change in changes.values()], [0.25] * 4
        )
        assert is_identical(result.models["model"].parameters, expected.parameters)
    assert not tensors
    projected = aggregate(FedFV(alpha=0.0, tau=0), changes, losses, sent).models["model"]
    assert not is_identical(projected.parameters, expected.parameters)


def test_fedfv_without_conflicts_equals_the_mean() -> None:
    sent, *others = draw_normal(0, 4)
    changes = {n: change.abs() for n, change in enumerate(others)}
    first = aggregate(FedFV(), changes, [0.1, 0.2, 0.3], sent)
    later = {n + 3: change for n, change in changes.items()}
    second = aggregate(FedFV(), later, [0.1, 0.2, 0.3], sent, first.tensors, 2)
    expected = average_models(
        [make_model(sent + change) for change in changes.values()], [1 / 3] * 3
    )
    for result in (first, second):
        assert is_identical(result.models["model"].parameters, expected.parameters)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("alpha", "kept"), [(0.0, 0), (0.1, 1), (0.4, 2), (0.7, 4)])
def test_fedfv_matches_a_plain_loop(alpha: float, kept: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    method, tensors = FedFV(alpha=alpha, tau=2), dict[str, Tensor]()
    rounds = []
    for number in (1, 2, 3):
        changes = {5 * number + n: torch.randn(30, generator=generator) for n in range(5)}
        losses = torch.rand(5, generator=generator).tolist()
        rounds.append([change.double() for change in changes.values()])
        result = aggregate(method, changes, losses, torch.zeros(30), tensors, number)
        tensors = dict(result.tensors)
        expected = run_plain_fedfv(rounds[-1], losses, kept, rounds[:-1])
        step = result.models["model"].parameters.double()
        torch.testing.assert_close(step, expected, rtol=1e-5, atol=1e-6)
        assert step.norm().item() == pytest.approx(torch.stack(rounds[-1]).mean(dim=0).norm())


def test_opposite_updates_and_zero_updates() -> None:
    result = aggregate(FedFV(0.0, 0), {0: vector(1.0, 0.0), 1: vector(-1.0, 0.0)}, [1.0, 2.0])
    assert get_step(result) == [0, 0]
    sent = vector(1.0, 2.0)
    result = aggregate(FedFV(), {0: 0 * sent, 1: 0 * sent}, [1.0, 2.0], sent)
    assert get_step(result) == [1, 2]


def test_inner_products_of_many_columns() -> None:
    rows = draw_normal(0, 5, 70_000)
    products = compute_inner_products(rows[:3], rows[3:])
    torch.testing.assert_close(products, rows.double() @ rows.double().T)
