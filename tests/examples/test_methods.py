"""The examples of methods, against arithmetic by hand and loops as one would write them."""

from itertools import pairwise
from math import inf
from pathlib import Path

import torch

import fedadam_on_cadis
import private_cadis
from cadis.algorithm import Algorithm
from cadis.core import ModelState
from cadis.methods import CADIS, FedAvg
from cadis.models import FlatModel
from cadis.server_optimizers import Adam
from cadis.transforms import Clip
from power_of_choice import PowerOfChoice
from support import (
    model_after,
    run_rounds,
    same,
    small_model,
    small_settings,
)

EXAMPLES = Path(__file__).parents[2] / "examples" / "methods"


def test_each_is_short() -> None:
    files = sorted(EXAMPLES.glob("*.py"))
    assert len(files) == 3
    assert all(len(file.read_text().splitlines()) <= 80 for file in files)


def model_of(*parameters: float) -> ModelState:
    return ModelState(torch.tensor(parameters), torch.zeros(0), torch.zeros(0).long())


def test_adam_on_the_weights_of_cadis(tmp_path: Path) -> None:
    """The first step, from what CADIS alone would have made of the round."""
    adam = Adam(server_lr=0.05)
    settings = small_settings(rounds=1)
    before = FlatModel(small_model()).state().parameters.double()
    plain = model_after(run_rounds(CADIS(), tmp_path, settings)[-1]).parameters.double()
    found = run_rounds(Algorithm(CADIS(), server_optimizer=adam), tmp_path, settings)[-1]
    change = plain - before
    m = (1 - adam.beta1) * change
    v = adam.beta2 * adam.tau**2 + (1 - adam.beta2) * change**2
    expected = before + adam.server_lr * m / (v.sqrt() + adam.tau)
    torch.testing.assert_close(model_after(found).parameters, expected.float())
    assert found.record.report["clusters"] is not None


def test_clipped_updates_move_the_model_by_no_more(tmp_path: Path) -> None:
    before = FlatModel(small_model()).state().parameters
    clipped = Algorithm(CADIS(), transforms=(Clip(clip=0.1),))
    for method, longer in ((clipped, False), (CADIS(), True)):
        result = run_rounds(method, tmp_path, small_settings(rounds=1))[-1]
        moved = float((model_after(result).parameters - before).norm())
        assert (moved > 0.1 + 1e-6) is longer


def test_the_compositions_run() -> None:
    for example in (fedadam_on_cadis, private_cadis):
        result = example.main(rounds=1)
        assert len(result.history) == 1
        assert result.history[0].report["clusters"]


def test_those_with_the_highest_last_loss_take_part(tmp_path: Path) -> None:
    algorithm = Algorithm(FedAvg(), sampler=PowerOfChoice(candidates=5))
    results = run_rounds(algorithm, tmp_path, small_settings(rounds=8, per_round=2))
    records, losses = [result.record for result in results], dict[int, float]()
    for before, after in pairwise(records):
        for client, loss in zip(before.participants, before.client_loss, strict=True):
            assert loss is not None
            losses[int(client)] = loss
        known = {client: losses.get(client, inf) for client in range(5)}
        lowest_chosen = min(known[int(client)] for client in after.participants)
        others = [known[client] for client in range(5) if client not in after.participants]
        assert lowest_chosen >= max(others)


def test_what_the_sampler_knows_is_gone_on_with(tmp_path: Path) -> None:
    algorithm = Algorithm(FedAvg(), sampler=PowerOfChoice(candidates=4))
    whole = run_rounds(algorithm, tmp_path, small_settings(rounds=6, per_round=2))
    first = run_rounds(algorithm, tmp_path, small_settings(rounds=3, per_round=2))
    rest = run_rounds(
        algorithm, tmp_path, small_settings(rounds=6, per_round=2), start=first[-1].state
    )
    assert same(model_after(whole[-1]).parameters, model_after(rest[-1]).parameters)
    told = [result.record.participants for result in first + rest]
    assert told == [result.record.participants for result in whole]
