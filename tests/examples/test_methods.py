"""The examples of methods, against arithmetic by hand and loops as one would write them."""

from itertools import pairwise
from math import inf
from pathlib import Path

import pytest
import torch

import cadis
import fedadam_on_cadis
import private_cadis
from cadis.algorithm import Algorithm
from cadis.core import ModelState
from cadis.engine import Engine, Federation
from cadis.methods import CADIS, FedAvg
from cadis.models import FlatModel
from cadis.runs import RunFolder
from cadis.server_optimizers import Adam
from cadis.transforms import Clip
from ifca import IFCA
from power_of_choice import PowerOfChoice
from support import (
    blobs,
    model_after,
    run_rounds,
    same,
    small_model,
    small_settings,
)

EXAMPLES = Path(__file__).parents[2] / "examples" / "methods"


def test_each_is_short() -> None:
    files = sorted(EXAMPLES.glob("*.py"))
    assert len(files) == 4
    assert all(len(file.read_text().splitlines()) <= 80 for file in files)


def model_of(*parameters: float) -> ModelState:
    return ModelState(torch.tensor(parameters), torch.zeros(0), torch.zeros(0).long())


def planted() -> Federation:
    """Four clients have the classes 0 and 1; two, who share a model with nobody, have 2 and 3."""
    owned = [[0, 1], [2, 3], [0, 1], [0, 1], [2, 3], [0, 1]]
    clients = [blobs(24, labels, seed=n) for n, labels in enumerate(owned)]
    return Federation(clients, blobs(20, [0, 1, 2, 3], seed=99))


def test_ifca_finds_the_clusters(tmp_path: Path) -> None:
    settings = small_settings(rounds=8, per_round=4)
    for workers in (1, 2):
        engine = Engine(
            small_model(), planted(), Algorithm(IFCA(num_models=2)), settings, tmp_path / "a"
        )
        results = list(engine.rounds(engine.start))
        state = results[-1].state.server
        used = [IFCA().model_of(client, state) for client in range(6)]
        assert used[0] == used[2] == used[3] == used[5] != used[1] == used[4], workers


def test_several_models_in_the_record(tmp_path: Path) -> None:
    engine = Engine(
        small_model(), planted(), Algorithm(IFCA()), small_settings(6, per_round=4), tmp_path
    )
    (*_, last) = engine.rounds(engine.start)
    record, models = last.record, last.state.server.models
    assert [model.name for model in record.models] == ["model-0", "model-1"]
    assert sum(model.clients for model in record.models) == 6
    tested = []
    for told in record.models:
        flat = FlatModel(small_model())
        flat.load(models[told.name])
        flat.module.eval()
        test = planted().test
        right = (flat.module(test.inputs).argmax(dim=1) == test.labels).double().mean()
        assert told.accuracy == pytest.approx(float(right))
        tested.append(float(right) * told.clients)
    assert record.accuracy == pytest.approx(sum(tested) / 6)
    assert len(record.client_models) == len(record.participants)
    assert record.client_accuracy is not None
    assert len(record.client_accuracy) == 6


def test_several_models_are_kept_and_gone_on_with(tmp_path: Path) -> None:
    federation = planted()

    def run(rounds: int, out: str, resume: bool = False) -> cadis.RunResult:
        return cadis.run(
            small_model(),
            federation.clients,
            federation.test,
            rounds=rounds,
            method=IFCA(num_models=12),
            per_round=4,
            lr=0.1,
            out=tmp_path / out,
            resume=resume,
        )

    whole = run(5, "whole")
    run(2, "part")
    resumed = run(5, "part", resume=True)
    assert list(whole.models) == list(resumed.models) == [f"model-{n}" for n in range(12)]
    for name, model in whole.models.items():
        tensors = resumed.models[name].state_dict()
        assert all(same(tensors[key], tensor) for key, tensor in model.state_dict().items())
    for name in ("model.safetensors", "best.safetensors"):
        stored = (tmp_path / "whole" / name).read_bytes()
        assert stored == (tmp_path / "part" / name).read_bytes()
        assert b"model-1/7.weight" in stored
    told = [
        [
            {k: v for k, v in record.to_json().items() if k not in ("seconds", "client_accuracy")}
            for record in run.history
        ]
        for run in (whole, resumed)
    ]
    assert told[0] == told[1]
    assert len(RunFolder(tmp_path / "part").read_history()) == 5


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
