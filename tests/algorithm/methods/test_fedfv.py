import pytest
import torch
from torch import Tensor

from cadis.algorithm import Aggregation, mean_state
from cadis.algorithm.methods import FedFV
from cadis.algorithm.methods.fedfv import inner_products
from cadis.types import ModelState, TensorState
from method_support import server_round
from support import same, state_of, update_of


def model(parameters: Tensor) -> ModelState:
    return ModelState(parameters, parameters[:2].clone(), torch.zeros(0).long())


def aggregate(
    method: FedFV,
    moved: dict[int, Tensor],
    losses: list[float],
    sent: Tensor | None = None,
    memory: TensorState | None = None,
    number: int = 1,
) -> Aggregation:
    """Of clients whose models moved so far from the sent one."""
    start = torch.zeros_like(next(iter(moved.values()))) if sent is None else sent
    updates = [
        update_of(client, 10 + client, model(start + own), received_loss=loss)
        for (client, own), loss in zip(moved.items(), losses, strict=True)
    ]
    return method.aggregate(server_round(number), updates, state_of(model(start), memory))


def step_of(result: Aggregation) -> list[float]:
    return [float(number) for number in result.models["model"].parameters]


def vector(*numbers: float) -> Tensor:
    return torch.tensor(numbers)


def draw(seed: int, rows: int, columns: int = 50) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def plain_fedfv(
    moved: list[Tensor], losses: list[float], kept: int, absent: list[list[Tensor]]
) -> Tensor:
    """Algorithms 2 and 3 as one would write them, vector by vector; absent: the oldest first."""
    order = sorted(range(len(moved)), key=lambda place: losses[place])
    projected = []
    for place, own in enumerate(moved):
        g = own.clone()
        if place not in order[len(order) - kept :]:
            for other in order:
                if other != place and g @ moved[other] < 0:
                    g = g - (g @ moved[other]) / (moved[other] @ moved[other]) * moved[other]
        projected.append(g)
    step = torch.stack(projected).mean(dim=0)
    for group in absent:
        against = [g for g in group if step @ g < 0]
        if against:
            total = torch.stack(against).sum(dim=0)
            step = step - (step @ total) / (total @ total) * total
    length: Tensor = torch.stack(moved).mean(dim=0).norm() / step.norm()
    return length * step


def test_internal_conflicts_by_hand() -> None:
    """The one with the lower loss gives way to the other, which stays as it is."""
    found = aggregate(FedFV(0.5, 0), {0: vector(3.0, 0.0), 1: vector(-1.0, 1.0)}, [0.1, 0.9])
    # (3, 0) . (-1, 1) = -3 and ||(-1, 1)||^2 = 2, so (3, 0) becomes (3 - 3 / 2, 3 / 2)
    mean = [(1.5 - 1) / 2, (1.5 + 1) / 2]
    length = ((3 - 1) / 2) ** 2 + (1 / 2) ** 2
    scale = (length / (mean[0] ** 2 + mean[1] ** 2)) ** 0.5
    assert step_of(found) == pytest.approx([scale * mean[0], scale * mean[1]])
    assert found.weights.tolist() == [0.5, 0.5]
    assert found.models["model"].buffers.tolist() == pytest.approx([1.0, 0.5])


def test_external_conflicts_by_hand() -> None:
    method = FedFV(alpha=1.0, tau=1)
    first = aggregate(method, {0: vector(-1.0, 1.0), 1: vector(0.0, 1.0)}, [1.0, 1.0])
    found = aggregate(method, {2: vector(2.0, 0.0)}, [1.0], memory=first.memory, number=2)
    # only (-1, 1) is against (2, 0): 2 - 2 / 2 * 1 and 0 + 2 / 2 * 1, of length 2 again
    assert step_of(found) == pytest.approx([2**0.5, 2**0.5])


def test_who_is_here_again_is_not_absent() -> None:
    method = FedFV(alpha=1.0, tau=2)
    first = aggregate(method, {0: vector(-1.0, 1.0)}, [1.0])
    found = aggregate(method, {0: vector(2.0, 0.0)}, [1.0], memory=first.memory, number=2)
    assert step_of(found) == [2, 0]
    assert found.memory["updates"].tolist() == [[2, 0]]


def test_updates_are_forgotten_after_tau_rounds() -> None:
    for tau, step in ((1, [0.0, 2.0]), (2, [2**0.5, 2**0.5])):
        method, memory = FedFV(alpha=1.0, tau=tau), dict[str, Tensor]()
        rounds = [vector(1.0, -1.0), vector(1.0, 0.0), vector(0.0, 2.0)]
        for number, own in enumerate(rounds, start=1):
            found = aggregate(method, {number: own}, [1.0], memory=memory, number=number)
            memory = dict(found.memory)
        assert step_of(found) == pytest.approx(step)
        assert len(memory["rounds"]) == tau


def test_without_projections_it_is_the_plain_mean() -> None:
    sent, *others = draw(0, 5)
    moved = dict(enumerate(others))
    losses, method, memory = [0.1, 0.2, 0.3, 0.4], FedFV(alpha=1.0, tau=0), dict[str, Tensor]()
    for number in (1, 2):
        found = aggregate(method, moved, losses, sent, memory, number)
        memory = dict(found.memory)
        expected = mean_state([model(sent + own) for own in moved.values()], [0.25] * 4)
        assert same(found.models["model"].parameters, expected.parameters)
    assert not memory
    projected = aggregate(FedFV(alpha=0.0, tau=0), moved, losses, sent).models["model"]
    assert not same(projected.parameters, expected.parameters)


def test_without_conflicts_it_is_the_plain_mean() -> None:
    sent, *others = draw(0, 4)
    moved = {n: own.abs() for n, own in enumerate(others)}
    first = aggregate(FedFV(), moved, [0.1, 0.2, 0.3], sent)
    later = {n + 3: own for n, own in moved.items()}
    second = aggregate(FedFV(), later, [0.1, 0.2, 0.3], sent, first.memory, 2)
    expected = mean_state([model(sent + own) for own in moved.values()], [1 / 3] * 3)
    for found in (first, second):
        assert same(found.models["model"].parameters, expected.parameters)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("alpha", "kept"), [(0.0, 0), (0.1, 1), (0.4, 2), (0.7, 4)])
def test_is_as_a_plain_loop(alpha: float, kept: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    method, memory = FedFV(alpha=alpha, tau=2), dict[str, Tensor]()
    rounds = []
    for number in (1, 2, 3):
        moved = {5 * number + n: torch.randn(30, generator=generator) for n in range(5)}
        losses = torch.rand(5, generator=generator).tolist()
        rounds.append([own.double() for own in moved.values()])
        found = aggregate(method, moved, losses, torch.zeros(30), memory, number)
        memory = dict(found.memory)
        expected = plain_fedfv(rounds[-1], losses, kept, rounds[:-1])
        step = found.models["model"].parameters.double()
        torch.testing.assert_close(step, expected, rtol=1e-5, atol=1e-6)
        assert step.norm().item() == pytest.approx(torch.stack(rounds[-1]).mean(dim=0).norm())


def test_opposite_updates_cancel_and_nobody_moves() -> None:
    found = aggregate(FedFV(0.0, 0), {0: vector(1.0, 0.0), 1: vector(-1.0, 0.0)}, [1.0, 2.0])
    assert step_of(found) == [0, 0]
    sent = vector(1.0, 2.0)
    found = aggregate(FedFV(), {0: 0 * sent, 1: 0 * sent}, [1.0, 2.0], sent)
    assert step_of(found) == [1, 2]


def test_inner_products_of_many_columns() -> None:
    rows = draw(0, 5, 70_000)
    torch.testing.assert_close(inner_products(rows[:3], rows[3:]), rows.double() @ rows.double().T)
