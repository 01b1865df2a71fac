"""Example methods, by hand and against plain loops."""

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
from cadis.algorithm.samplers import SamplerFeedback, SamplerRound
from cadis.algorithm.server_optimizers import Adam
from cadis.algorithm.transforms import Clip
from cadis.engine import Engine
from cadis.models import FlatModel
from cadis.rng import derive_generator
from cadis.types import Message
from fedcm import FedCM
from fesem import FeSEM
from round_robin import RoundRobin
from support import (
    check_matches_plain_loop,
    check_resume,
    flat_model,
    get_model,
    iter_plain_batches,
    list_gradients,
    make_update,
    planted_federation,
    run_rounds,
    small_federation,
    small_model,
    small_settings,
)

EXAMPLES = Path(__file__).parents[2] / "examples" / "methods"


def test_examples_are_short() -> None:
    files = sorted(EXAMPLES.glob("*.py"))
    assert len(files) == 5
    assert all(len(file.read_text().splitlines()) <= 80 for file in files)


def test_adam_with_the_weights_of_cadis(tmp_path: Path) -> None:
    """The first step starts from the aggregated model of CADIS."""
    adam = Adam(server_lr=0.05)
    settings = small_settings(rounds=1)
    before = FlatModel(small_model()).copy_state().parameters.double()
    plain = get_model(run_rounds(CADIS(), tmp_path, settings)[-1]).parameters.double()
    found = run_rounds(Algorithm(CADIS(), server_optimizer=adam), tmp_path, settings)[-1]
    change = plain - before
    m = (1 - adam.beta1) * change
    v = adam.beta2 * adam.tau**2 + (1 - adam.beta2) * change**2
    expected = before + adam.server_lr * m / (v.sqrt() + adam.tau)
    torch.testing.assert_close(get_model(found).parameters, expected.float())
    assert found.record.report["clusters"] is not None


def test_clipped_updates_limit_the_change_of_the_model(tmp_path: Path) -> None:
    before = FlatModel(small_model()).copy_state().parameters
    clipped = Algorithm(CADIS(), transforms=(Clip(clip=0.1),))
    for method, longer in ((clipped, False), (CADIS(), True)):
        result = run_rounds(method, tmp_path, small_settings(rounds=1))[-1]
        moved = float((get_model(result).parameters - before).norm())
        assert (moved > 0.1 + 1e-6) is longer


def test_combined_parts_run() -> None:
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
    result = LocalResult(flat_model(0.4, 1.2), y, x, steps=3, lr=0.1, loss=0.0, effective_steps=3.0)
    output = FedCM(alpha).finish(result, Message({}, direction), {})
    assert output.scalars["path"] == pytest.approx(3 * 0.1 / 0.25)


def test_fedcm_server_by_hand() -> None:
    updates = [
        make_update(0, 10, flat_model(2.0, 0.0), path=2.0),
        make_update(1, 30, flat_model(4.0, -1.0), path=4.0),
    ]
    state = ServerState({"model": flat_model(1.0, 1.0)}, {"direction": torch.tensor([9.0, 9.0])})
    result = FedCM().aggregate(ServerRound(1, (), 8, derive_generator(0)), updates, state)
    assert result.models["model"].parameters.tolist() == [(2 + 4) / 2, (0 - 1) / 2]
    first, second = ((1 - 2) / 2 + (1 - 4) / 4) / 2, ((1 - 0) / 2 + (1 + 1) / 4) / 2
    assert result.tensors["direction"].tolist() == pytest.approx([first, second])
    assert FedCM().broadcast(
        ServerRound(2, (), 8, derive_generator(0)), state, 0
    ).tensors.keys() == {"direction"}


def run_plain_fedcm(rounds: int, eta: float, alpha: float) -> nn.Module:
    """Run FedCM with all clients: step and direction of the paper, with parameters by name."""
    model, clients = small_model(), small_federation().clients
    names = [name for name, _ in model.named_parameters()]
    direction = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for number in range(1, rounds + 1):
        x = {name: p.detach().clone() for name, p in model.named_parameters()}
        trained: list[dict[str, Tensor]] = []
        directions: list[dict[str, Tensor]] = []
        for client, own in enumerate(clients):
            model.load_state_dict(x)
            steps = 0
            for batch in iter_plain_batches(own, number, client):
                loss = F.cross_entropy(model(own.inputs[batch]), own.labels[batch])
                for name, p, g in list_gradients(loss, model):
                    p.sub_(eta * (alpha * g + (1 - alpha) * direction[name]))
                steps += 1
            y = {name: p.detach().clone() for name, p in model.named_parameters()}
            directions.append({n: (x[n] - y[n]) / (steps * eta) for n in names})
            trained.append(y)
        model.load_state_dict({n: torch.stack([y[n] for y in trained]).mean(0) for n in names})
        direction = {n: torch.stack([d[n] for d in directions]).mean(0) for n in names}
    return model


@pytest.mark.parametrize("alpha", [0.4, 1.0])
def test_fedcm_equals_a_plain_loop(tmp_path: Path, alpha: float) -> None:
    """The learning rate of ``small_settings``, 0.1, is alpha times that of the paper."""
    expected = run_plain_fedcm(rounds=3, eta=0.1 / alpha, alpha=alpha)
    check_matches_plain_loop(FedCM(alpha), expected, tmp_path)


def test_fesem_server_by_hand() -> None:
    """The models farthest apart become centers in the first round; then the nearest counts."""
    method, start = FeSEM(num_models=2), flat_model(0.0, 0.0)
    in_round = ServerRound(1, (), 8, derive_generator(0))
    clients = {5: (10, 1.0, 0.0), 6: (30, 9.0, 0.0), 7: (30, 5.0, 0.0), 8: (30, 3.0, 0.0)}
    updates = [make_update(c, n, flat_model(*w)) for c, (n, *w) in clients.items()]
    first = method.aggregate(in_round, updates, method.init(start, derive_generator(0)))
    models = {name: model.parameters.tolist() for name, model in first.models.items()}
    near = [(10 * 1 + 30 * 5 + 30 * 3) / 70, 0.0]  # 5 is equally far from 1 and 9: the first counts
    assert models == {"model-0": pytest.approx(near), "model-1": [9.0, 0.0]}
    assert first.report["clusters"].tolist() == [0, 1, 0, 0]
    state = ServerState(first.models, first.tensors)
    assert [method.model_name_for(client, state) for client in (5, 6, 7, 99)] == [
        "model-0",
        "model-1",
        "model-0",
        "model-0",
    ]
    newcomer = method.broadcast(in_round, state, 99).model.parameters.tolist()
    assert newcomer == pytest.approx([(near[0] + 9) / 2, 0.0])
    assert method.broadcast(in_round, state, 6).model.parameters.tolist() == [9.0, 0.0]
    second = method.aggregate(in_round, [make_update(7, 30, flat_model(8.0, 0.0))], state)
    assert list(second.models) == ["model-1"]
    moved = ServerState({**state.models, **second.models}, second.tensors)
    assert method.model_name_for(7, moved) == "model-1"
    assert method.model_name_for(8, moved) == "model-0"


@pytest.mark.parametrize("workers", [1, 2])
def test_fesem_finds_the_clusters(tmp_path: Path, workers: int) -> None:
    settings = small_settings(rounds=8, per_round=4, workers=workers)
    engine = Engine(small_model(), planted_federation(), Algorithm(FeSEM()), settings, tmp_path)
    (*_, last) = engine.rounds(engine.start)
    used = [FeSEM().model_name_for(client, last.state.server) for client in range(6)]
    assert used[0] == used[2] == used[3] == used[5] != used[1] == used[4]


def test_round_robin_chooses_clients_in_turn(tmp_path: Path) -> None:
    algorithm = Algorithm(FedAvg(), sampler=RoundRobin())
    results = run_rounds(algorithm, tmp_path, small_settings(rounds=10, per_round=3))
    participants = [result.record.participants for result in results]
    assert participants[:3] == [[0, 1, 2], [3, 4, 0], [1, 2, 3]]
    for start in (0, 5):  # in five rounds each of the five clients takes part three times
        counts = Counter(client for chosen in participants[start : start + 5] for client in chosen)
        assert set(counts.values()) == {3}


def test_client_that_did_not_reply_stays_first() -> None:
    sampler = RoundRobin()
    tensors = sampler.learn(SamplerFeedback(1, [make_update("b", 9, flat_model(1.0))]), {})
    server_round = SamplerRound(2, ["b", "a", "new"], 2, derive_generator(0))
    assert sampler.choose(server_round, tensors) == ["a", "new"]


@pytest.mark.parametrize(
    "algorithm",
    [Algorithm(FedCM(0.5)), Algorithm(FeSEM()), Algorithm(FedAvg(), sampler=RoundRobin())],
    ids=["fedcm", "fesem", "round-robin"],
)
def test_state_of_parts_is_resumed(tmp_path: Path, algorithm: Algorithm) -> None:
    check_resume(algorithm, tmp_path, workers=2)
