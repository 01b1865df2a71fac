"""The examples of methods, against arithmetic by hand and loops as one would write them."""

from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import fedadam_on_cadis
import private_cadis
from cadis.algorithm import Algorithm, LocalResult, ServerRound, ServerState, Step
from cadis.algorithm.methods import CADIS, FedAvg
from cadis.algorithm.samplers import SampledRound, SamplerRound
from cadis.algorithm.server_optimizers import Adam
from cadis.algorithm.transforms import Clip
from cadis.engine import Engine
from cadis.models import FlatModel
from cadis.rng import generator_for
from cadis.types import Message
from fedcm import FedCM
from fesem import FeSEM
from round_robin import RoundRobin
from support import (
    check_goes_on,
    check_like_plain_loop,
    flat_model,
    gradients_of,
    model_after,
    plain_batches,
    planted,
    run_rounds,
    small_federation,
    small_model,
    small_settings,
    update_of,
)

EXAMPLES = Path(__file__).parents[2] / "examples" / "methods"


def test_each_is_short() -> None:
    files = sorted(EXAMPLES.glob("*.py"))
    assert len(files) == 5
    assert all(len(file.read_text().splitlines()) <= 80 for file in files)


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


def test_fedcm_by_hand() -> None:
    alpha, x, y = 0.25, torch.tensor([1.0, 1.0]), torch.tensor([0.4, 1.2])
    direction = {"direction": torch.tensor([0.5, -2.0])}
    none = torch.zeros(1)
    penalty = FedCM(alpha).penalty(Step(none, none, none, y, x, direction, {}, {}))
    assert penalty is not None
    assert penalty.item() == pytest.approx((1 - 0.25) / 0.25 * (0.5 * 0.4 - 2.0 * 1.2))
    training = LocalResult(
        flat_model(0.4, 1.2), y, x, steps=3, lr=0.1, loss=0.0, effective_steps=3.0
    )
    finished = FedCM(alpha).finish(training, Message({}, direction), {})
    assert finished.scalars["path"] == pytest.approx(3 * 0.1 / 0.25)


def test_fedcms_server_by_hand() -> None:
    updates = [
        update_of(0, 10, flat_model(2.0, 0.0), path=2.0),
        update_of(1, 30, flat_model(4.0, -1.0), path=4.0),
    ]
    state = ServerState({"model": flat_model(1.0, 1.0)}, {"direction": torch.tensor([9.0, 9.0])})
    result = FedCM().aggregate(ServerRound(1, (), 8, generator_for(0)), updates, state)
    assert result.models["model"].parameters.tolist() == [(2 + 4) / 2, (0 - 1) / 2]
    first, second = ((1 - 2) / 2 + (1 - 4) / 4) / 2, ((1 - 0) / 2 + (1 + 1) / 4) / 2
    assert result.memory["direction"].tolist() == pytest.approx([first, second])
    assert FedCM().broadcast(ServerRound(2, (), 8, generator_for(0)), state, 0).tensors.keys() == {
        "direction"
    }


def plain_fedcm(rounds: int, eta: float, alpha: float) -> nn.Module:
    """Everybody takes part; the paper's step and direction written out, with parameters by name."""
    model, clients = small_model(), small_federation().clients
    names = [name for name, _ in model.named_parameters()]
    direction = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for number in range(1, rounds + 1):
        x = {name: p.detach().clone() for name, p in model.named_parameters()}
        trained: list[dict[str, Tensor]] = []
        moved: list[dict[str, Tensor]] = []
        for client, own in enumerate(clients):
            model.load_state_dict(x)
            steps = 0
            for batch in plain_batches(own, number, client):
                loss = F.cross_entropy(model(own.inputs[batch]), own.labels[batch])
                for name, p, g in gradients_of(loss, model):
                    p.sub_(eta * (alpha * g + (1 - alpha) * direction[name]))
                steps += 1
            y = {name: p.detach().clone() for name, p in model.named_parameters()}
            moved.append({n: (x[n] - y[n]) / (steps * eta) for n in names})
            trained.append(y)
        model.load_state_dict({n: torch.stack([y[n] for y in trained]).mean(0) for n in names})
        direction = {n: torch.stack([each[n] for each in moved]).mean(0) for n in names}
    return model


@pytest.mark.parametrize("alpha", [0.4, 1.0])
def test_fedcm_is_what_a_plain_loop_does(tmp_path: Path, alpha: float) -> None:
    """The learning rate of ``small_settings``, 0.1, is alpha times that of the paper."""
    expected = plain_fedcm(rounds=3, eta=0.1 / alpha, alpha=alpha)
    check_like_plain_loop(FedCM(alpha), expected, tmp_path)


def test_fesems_server_by_hand() -> None:
    """In the first round those farthest apart are told from each other; then the nearest counts."""
    method, start = FeSEM(num_models=2), flat_model(0.0, 0.0)
    in_round = ServerRound(1, (), 8, generator_for(0))
    places = {5: (10, 1.0, 0.0), 6: (30, 9.0, 0.0), 7: (30, 5.0, 0.0), 8: (30, 3.0, 0.0)}
    updates = [update_of(c, n, flat_model(*w)) for c, (n, *w) in places.items()]
    first = method.aggregate(in_round, updates, method.init(start, generator_for(0)))
    models = {name: model.parameters.tolist() for name, model in first.models.items()}
    near = [(10 * 1 + 30 * 5 + 30 * 3) / 70, 0.0]  # 5 is as far from 1 as from 9: the first counts
    assert models == {"model-0": pytest.approx(near), "model-1": [9.0, 0.0]}
    assert first.report["clusters"].tolist() == [0, 1, 0, 0]
    state = ServerState(first.models, first.memory)
    assert [method.model_name_for(client, state) for client in (5, 6, 7, 99)] == [
        "model-0",
        "model-1",
        "model-0",
        "model-0",
    ]
    newcomer = method.broadcast(in_round, state, 99).model.parameters.tolist()
    assert newcomer == pytest.approx([(near[0] + 9) / 2, 0.0])
    assert method.broadcast(in_round, state, 6).model.parameters.tolist() == [9.0, 0.0]
    second = method.aggregate(in_round, [update_of(7, 30, flat_model(8.0, 0.0))], state)
    assert list(second.models) == ["model-1"]
    moved = ServerState({**state.models, **second.models}, second.memory)
    assert method.model_name_for(7, moved) == "model-1"
    assert method.model_name_for(8, moved) == "model-0"


@pytest.mark.parametrize("workers", [1, 2])
def test_fesem_finds_the_clusters(tmp_path: Path, workers: int) -> None:
    settings = small_settings(rounds=8, per_round=4, workers=workers)
    engine = Engine(small_model(), planted(), Algorithm(FeSEM()), settings, tmp_path)
    (*_, last) = engine.rounds(engine.start)
    used = [FeSEM().model_name_for(client, last.state.server) for client in range(6)]
    assert used[0] == used[2] == used[3] == used[5] != used[1] == used[4]


def test_everybody_takes_part_in_turn(tmp_path: Path) -> None:
    algorithm = Algorithm(FedAvg(), sampler=RoundRobin())
    results = run_rounds(algorithm, tmp_path, small_settings(rounds=10, per_round=3))
    told = [result.record.participants for result in results]
    assert told[:3] == [[0, 1, 2], [3, 4, 0], [1, 2, 3]]
    for start in (0, 5):  # five rounds of three seats, of five clients: everybody three times
        seats = Counter(client for chosen in told[start : start + 5] for client in chosen)
        assert set(seats.values()) == {3}


def test_whoever_did_not_answer_is_still_first() -> None:
    sampler = RoundRobin()
    memory = sampler.learn(SampledRound(1, [update_of("b", 9, flat_model(1.0))]), {})
    among = SamplerRound(2, ["b", "a", "new"], 2, generator_for(0))
    assert sampler.choose(among, memory) == ["a", "new"]


@pytest.mark.parametrize(
    "algorithm",
    [Algorithm(FedCM(0.5)), Algorithm(FeSEM()), Algorithm(FedAvg(), sampler=RoundRobin())],
    ids=["fedcm", "fesem", "round-robin"],
)
def test_what_parts_know_is_gone_on_with(tmp_path: Path, algorithm: Algorithm) -> None:
    check_goes_on(algorithm, tmp_path, workers=2)
