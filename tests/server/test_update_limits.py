"""Limits on the sizes of updates, for any number of participants and in float64."""

from dataclasses import replace
from math import inf, nan

import pytest
import torch

from cadis.algorithm.methods import SCAFFOLD, FedAvg, FedNova
from cadis.algorithm.weight_limits import limit_weights
from cadis.server import Rejection
from cadis.server.update_limits import TOO_LONG, check_sizes
from cadis.server.validation import find_defect
from cadis.types import ClientUpdate, Message, ModelState
from method_support import make_server_round
from support import flat_model, make_server_state, make_update

BUFFERS = {"1.running_mean": slice(0, 2), "1.running_var": slice(2, 4)}


def make_buffers(*buffers: float, steps: int = 0) -> ModelState:
    return ModelState(torch.zeros(2), torch.tensor(buffers), torch.tensor([steps]))


def reject(models: list[ModelState], start: ModelState) -> dict[object, str]:
    """Return the reason for each rejected client."""
    updates = [make_update(client, 5, model) for client, model in enumerate(models)]
    buffers = BUFFERS if len(start.buffers) else {}
    checked = check_sizes(updates, make_server_state(start), buffers)
    assert len(checked.accepted) + len(checked.rejected) == len(models)
    return {rejection.client: rejection.reason for rejection in checked.rejected}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("lie", [1e19, -1e30, 3e38])
@pytest.mark.parametrize(("honest", "liars"), [(0, 1), (1, 1), (1, 2), (2, 1), (0, 3), (9, 1)])
def test_long_updates_are_rejected_even_if_most_clients_send_them(
    honest: int, liars: int, lie: float, dtype: torch.dtype
) -> None:
    def make(value: float) -> ModelState:
        return replace(flat_model(), parameters=torch.tensor([value, 0.2], dtype=dtype))

    models = [make(0.1)] * honest + [make(lie)] * liars
    reasons = reject(models, make(0.0))
    assert reasons == dict.fromkeys(range(honest, honest + liars), TOO_LONG)


def test_update_whose_square_overflows_in_double_precision_is_rejected() -> None:
    start, honest = (
        replace(flat_model(), parameters=torch.tensor([value, 0.2]).double()) for value in (0, 0.1)
    )
    lie = replace(start, parameters=torch.tensor([1e308, -1e308]).double())
    assert reject([honest, lie], start) == {1: TOO_LONG}


def test_limit_of_an_update_follows_the_other_updates_and_the_model() -> None:
    """The others have length 0.1, so 1,000 times is 100; the norm of a small model counts as 10."""
    short = [flat_model(0.1, 0.0)] * 3
    assert reject([*short, flat_model(99.0, 0.0)], flat_model(0.0, 0.0)) == {}
    assert reject([*short, flat_model(101.0, 0.0)], flat_model(0.0, 0.0)) == {3: TOO_LONG}
    unchanged = [flat_model(0.0, 0.0)] * 3
    assert reject([*unchanged, flat_model(9.9, 0.0)], flat_model(0.0, 0.0)) == {}
    diverged = [flat_model(9e3, 0.0)] * 4  # all clients: as long as 900 times the model
    assert reject(diverged, flat_model(0.0, 0.0)) == {}


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (make_buffers(1.0, -19.0, 1.0, 1.0), None),
        (make_buffers(1.0, -1e3, 1.0, 1.0), "its 1.running_mean is far from"),
        (make_buffers(1.0, 100.0, 1.0, 1.0), "its 1.running_mean is far from"),
        (make_buffers(0.0, 0.0, 300.0, 1.0), None),
        (make_buffers(0.0, 0.0, 1.0, 1e3), "its 1.running_var is far from"),
        (make_buffers(0.0, 0.0, 1.0, -1e-3), "its 1.running_var is negative"),
        (make_buffers(0.0, 0.0, 1.0, 1.0, steps=2**62), "its integer buffers have grown"),
        (make_buffers(0.0, 0.0, 1.0, 1.0, steps=-(2**63)), "its integer buffers have grown"),
        (make_buffers(0.0, 0.0, 1.0, 1.0, steps=10**8), None),
    ],
)
@pytest.mark.parametrize("others", [1, 2, 9])
def test_buffers_are_near_those_of_the_others(
    model: ModelState, reason: str | None, others: int
) -> None:
    honest = [make_buffers(0.5, -0.5, 0.8, 1.2, steps=12)] * others
    reasons = reject([*honest, model], make_buffers(0.0, 0.0, 1.0, 1.0, steps=10))
    assert list(reasons) == ([] if reason is None else [others])
    assert reason is None or reasons[others].startswith(reason)


def test_large_buffers_of_all_clients_are_accepted() -> None:
    """In the first round, statistics of pixels from 0 to 255 are far from 0 and 1."""
    models = [make_buffers(90.0 + n, 100.0, 5e3, 6e3 + n, steps=9) for n in range(4)]
    assert reject(models, make_buffers(0.0, 0.0, 1.0, 1.0)) == {}


@pytest.mark.parametrize("lie", [1e19, 3e38, 1e6])
@pytest.mark.parametrize("others", [0, 1, 2, 9])
def test_further_tensors_are_limited(others: int, lie: float) -> None:
    def make(client: int, value: float) -> ClientUpdate:
        message = Message(
            {"model": flat_model(0.1, 0.0)}, {"control_change": torch.tensor([value, 0.0])}
        )
        return ClientUpdate(client, 5, message)

    updates = [make(client, 0.3) for client in range(others)] + [make(others, lie)]
    state = make_server_state(flat_model(0.0, 0.0))
    checked = check_sizes(updates, state, {})
    assert [rejection.client for rejection in checked.rejected] == [others]
    assert checked.rejected[0].reason.startswith("its control_change is more than 1,000 times")
    assert find_defect(updates[-1], SCAFFOLD(), state) is None


@pytest.mark.parametrize("count", [True, 1.5, "9", -3, 0, 2**63, 10**400])
def test_count_is_a_whole_number(count: object) -> None:
    model = flat_model(0.0)
    update = make_update(1, count, model)  # type: ignore[arg-type]
    defect = find_defect(update, FedAvg(), make_server_state(model))
    assert str(defect).startswith("it reports ")
    assert len(str(defect)) < 100


@pytest.mark.parametrize(
    ("weights", "samples", "expected"),
    [
        ([1, 0, 0, 0], [1, 1, 1, 1], [1 / 2, 1 / 6, 1 / 6, 1 / 6]),
        ([0.7, 0.1, 0.1, 0.1], [0.6, 0.1, 0.1, 0.2], [0.6, 0.4 / 3, 0.4 / 3, 0.4 / 3]),
        ([0.5, 0.45, 0.05, 0, 0], [1, 1, 1, 1, 1], [0.4, 0.4, 0.2, 0, 0]),
        ([0.9, 0.1], [0.5, 0.5], [2 / 3, 1 / 3]),
        ([1], [1], [1]),
    ],
)
def test_weights_are_limited(
    weights: list[float], samples: list[float], expected: list[float]
) -> None:
    before = torch.tensor(weights, dtype=torch.float64)
    shares = torch.tensor(samples, dtype=torch.float64)
    after = limit_weights(before, shares / shares.sum(), largest_share=2)
    assert after.tolist() == pytest.approx(expected)
    assert limit_weights(before, shares / shares.sum(), inf) is before


@pytest.mark.parametrize("steps", [0.0, 1e-3, 1e9])
def test_wrong_number_of_steps_does_not_scale_the_round_of_fednova(steps: float) -> None:
    """All clients move by 1, so the mean moves by about 1; without limits, by 2.5 to 10^7."""
    updates = [
        make_update(n, 10, flat_model(1.0), effective_steps=steps if n == 3 else 8.0)
        for n in range(10)
    ]
    result = FedNova().aggregate(make_server_round(), updates, make_server_state(flat_model(0.0)))
    assert float(result.weights.max()) <= 0.2 + 1e-9
    assert 0.7 <= float(result.models["model"].parameters) <= 1.4


def test_reason_that_quotes_a_long_name_is_cut() -> None:
    update = make_update(1, 5, flat_model(), **{"x" * 3_000_000: nan})
    reason = find_defect(update, FedAvg(), make_server_state(flat_model()))
    assert reason is not None
    assert Rejection(1, reason).reason == f"its {'x' * 496}..."
