"""Stacked training gives the results of one-by-one training, for any model, method and sizes."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import cadis.algorithm.methods as m
from cadis.algorithm import (
    Algorithm,
    BaseMethod,
    ClientOutput,
    LocalClient,
    ServerRound,
    ServerState,
    Step,
)
from cadis.algorithm.local_optimizers import SGD
from cadis.algorithm.methods import CADIS, FedAvg, FedCav, FedDyn, FedProx
from cadis.algorithm.tasks import Binary
from cadis.data import Samples, Scaling
from cadis.models import FlatModel, mlp, small_cnn
from cadis.rng import derive_generator
from cadis.training import (
    Client,
    LocalSettings,
    StackedModel,
    can_stack,
    passes_stack_trial,
    split_into_stacks,
    train_clients_stacked,
)
from cadis.training.fast.stacked_batches import _compute_rows_and_weights
from cadis.types import ClientId, Message, TensorState
from support import blobs, get_model, run_rounds, small_model, small_settings

SIZES = (9, 21, 1, 13, 8)  # batches of 4: the last ones have 5, 5, 1, 5 and 4 samples
DATASETS = [blobs(size, [n % 5, (n + 1) % 5], seed=n) for n, size in enumerate(SIZES)]
SETTINGS = LocalSettings(epochs=2, batch_size=4, lr=0.05)


class Net(nn.Module):
    """A model as users write it: named layers, and functions between them."""

    def __init__(self, run: Callable[[Any, Tensor], Any], **layers: nn.Module) -> None:
        super().__init__()
        self.run = run
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.run(self, x)
        return out


def run_user_model(net: Any, x: Tensor) -> Any:
    x = F.relu(net.first(x)).tanh()
    return net.second(x.reshape(x.size(0), -1))


def run_unused(net: Any, x: Tensor) -> Any:
    return net.head(net.relu(net.first(net.relu(x.flatten(1)))))


BUILD: dict[str, Callable[[], nn.Module]] = {
    "sequential": small_model,
    "small-cnn": lambda: small_cnn(1, 4, 4, 5),
    "mlp": lambda: mlp(1, 4, 4, 5),
    "one output": lambda: mlp(1, 4, 4, 1),
    "classifier only": lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 5)),
    "random": lambda: nn.Sequential(nn.Flatten(), nn.RReLU(), nn.Linear(16, 5)),
    "user": lambda: Net(  # the layer that is called first is defined last, and has no bias
        run_user_model,
        second=nn.Linear(24, 5),
        first=nn.Conv2d(1, 6, 3, stride=2, padding=1, bias=False),
    ),
    "unused": lambda: Net(  # never calls one layer, and calls another twice
        run_unused,
        extra=nn.Linear(16, 4),
        first=nn.Linear(16, 8),
        head=nn.Linear(8, 5),
        relu=nn.ReLU(),
    ),
    "mixing": lambda: Net(  # the output of a row depends on other rows
        lambda net, x: net.head(x.flatten(1) - x.flatten(1).mean(dim=0)), head=nn.Linear(16, 5)
    ),
    "skipping": lambda: Net(  # a residual connection: not a chain of layers
        lambda net, x: net.head(x.flatten(1) + net.body(x.flatten(1))),
        body=nn.Linear(16, 16),
        head=nn.Linear(16, 5),
    ),
    "branching": lambda: Net(  # control flow depends on the data
        lambda net, x: net.head(x.flatten(1) if x.sum() > 0 else -x.flatten(1)),
        head=nn.Linear(16, 5),
    ),
}


@dataclass(frozen=True)
class Confident(BaseMethod):
    """A user's method whose penalty is written for one client."""

    name: ClassVar[str] = "confident"

    def penalty(self, step: Step) -> Tensor | None:
        rows = step.logits.log_softmax(dim=1)[torch.arange(len(step.labels)), step.labels]
        strength: Tensor = step.parameters.norm() / len(step.labels)
        return 0.1 * rows.mean() + strength


@dataclass(frozen=True)
class Nearer(CADIS):
    """A subclass of CADIS with another penalty, for which the closed form of CADIS is wrong."""

    name: ClassVar[str] = "nearer"

    def penalty(self, step: Step) -> Tensor | None:
        distance = (step.parameters - step.received).square().sum() / len(step.labels)
        distillation = super().penalty(step)
        return distance if distillation is None else distillation + distance


@dataclass(frozen=True)
class Pairs(BaseMethod):
    """A method without a penalty for batches of one sample."""

    name: ClassVar[str] = "pairs"

    def penalty(self, step: Step) -> Tensor | None:
        if len(step.labels) < 2:
            return None
        return (step.representation[0] - step.representation[1]).square().sum()


@dataclass(frozen=True)
class Doubling(BaseMethod):
    """A method whose control flow depends on values, in large batches."""

    name: ClassVar[str] = "doubling"

    def penalty(self, step: Step) -> Tensor | None:
        is_large = len(step.labels) >= 4 and step.logits.abs().max() > 0.01
        return step.logits.square().mean() * (2 if is_large else 1)


@dataclass(frozen=True)
class Sending(BaseMethod):
    """A method that sends a tensor to some clients only."""

    name: ClassVar[str] = "sending"

    def broadcast(self, server_round: ServerRound, state: ServerState, client: ClientId) -> Message:
        message = super().broadcast(server_round, state, client)
        tensors = {"shift": torch.full((5,), 0.5)} if client in (1, 3) else {}
        return replace(message, tensors=tensors)

    def penalty(self, step: Step) -> Tensor | None:
        shift = step.tensors.get("shift", torch.zeros(5))
        return (step.logits - shift).square().mean()


@dataclass(frozen=True)
class CustomLocal(BaseMethod):
    name: ClassVar[str] = "custom-local"

    def local(self, client: LocalClient) -> ClientOutput:
        return super().local(client)


def build(name: str) -> nn.Module:
    torch.manual_seed(0)
    return BUILD[name]()


def make_clients(
    module: nn.Module,
    algorithm: Algorithm,
    settings: LocalSettings,
    datasets: Sequence[Samples],
    client_states: Sequence[TensorState],
    one_model: bool = True,
) -> list[Client]:
    """Return clients that all received one model, or slightly different ones."""
    flat = FlatModel(deepcopy(module), None)
    state = flat.copy_state()
    tensors = {"control": torch.linspace(-0.1, 0.1, len(state.parameters))}  # for SCAFFOLD
    clients = []
    for index, (samples, client_state) in enumerate(zip(datasets, client_states, strict=True)):
        scale = 1.0 if one_model else 1 + index / 50
        model = state if one_model else replace(state, parameters=state.parameters * scale)
        parts = algorithm, settings, 1, Message({"model": model}, tensors), client_state
        clients.append(Client(flat, samples, *parts, derive_generator(3, "train", 1, index)))
    return clients


def find_head_name(module: nn.Module) -> str:
    head = FlatModel(deepcopy(module)).layout.head
    assert head is not None
    return head.layer


def make_stack(module: nn.Module, size: int) -> StackedModel:
    return StackedModel(deepcopy(module), find_head_name(module), size)


def check_close(actual: TensorState, expected: TensorState, tolerance: float = 1e-4) -> None:
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(actual[name], tensor, rtol=tolerance, atol=tolerance / 100)


def check_stacked_equals_one_by_one(
    module: nn.Module,
    algorithm: Algorithm,
    settings: LocalSettings = SETTINGS,
    datasets: Sequence[Samples] = DATASETS,
    one_model: bool = True,
) -> None:
    client_states: Sequence[TensorState] = [{}] * len(datasets)
    for _ in range(2):  # the second time with the client states of the first
        parts = module, algorithm, settings, datasets, client_states, one_model
        expected = [algorithm.method.local(client) for client in make_clients(*parts)]
        outputs = train_clients_stacked(make_clients(*parts), make_stack(module, len(datasets)))
        for one, other in zip(expected, outputs, strict=True):
            check_close(vars(other.message.model), vars(one.message.model))
            check_close(other.state, one.state)
            assert other.message.scalars == pytest.approx(dict(one.message.scalars), rel=1e-4)
        client_states = [output.state for output in expected]


METHODS = [
    *(FedAvg(), FedProx(0.3), FedDyn(), CADIS(), CADIS(bandwidth=2.0), m.FedFA(), Confident()),
    *(m.SCAFFOLD(), m.FedNova(), m.FedLC(), m.FedRS(), m.FedNTD(), m.BalanceFL(), FedCav()),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize("name", ["sequential", "user", "small-cnn", "mlp"])
def test_stacked_equals_one_by_one(name: str, method: BaseMethod) -> None:
    check_stacked_equals_one_by_one(build(name), Algorithm(method))


MOMENTUM = SGD(momentum=0.9, weight_decay=0.01, lr_decay=0.5)
DECAY = SGD(momentum=0.9, weight_decay=0.1)
AUGMENTED = replace(SETTINGS, augment=("flip", "crop"), lr=0.005)
BYTES = [
    Samples((e.inputs * 40).clamp(0, 255).to(torch.uint8), e.labels, Scaling((0.3,), (0.2,)))
    for e in DATASETS
]
TWO_CLASSES = {"datasets": [Samples(e.inputs, e.labels % 2) for e in DATASETS]}
SINGLE = replace(SETTINGS, batch_size=1)


@pytest.mark.parametrize(
    ("name", "method", "parts", "options"),
    [
        ("sequential", FedProx(0.3), {"local_optimizer": MOMENTUM}, {}),
        ("sequential", CADIS(), {"local_optimizer": MOMENTUM}, {}),
        ("sequential", CADIS(), {}, {"one_model": False}),
        ("sequential", CADIS(), {}, {"settings": AUGMENTED, "datasets": BYTES}),
        ("one output", CADIS(), {"task": Binary(positive_weight=3.0)}, TWO_CLASSES),
        ("one output", FedCav(), {"task": Binary(positive_weight=3.0)}, TWO_CLASSES),
        ("sequential", Nearer(), {}, {}),
        ("sequential", Nearer(), {}, {"settings": SINGLE}),
        ("sequential", Pairs(), {}, {}),
        ("sequential", Pairs(), {}, {"settings": SINGLE}),
        ("unused", FedAvg(), {"local_optimizer": DECAY}, {}),
        ("unused", FedDyn(), {"local_optimizer": DECAY}, {}),
        ("classifier only", CADIS(), {}, {}),
    ],
)
def test_stacked_equals_one_by_one_with_other_parts(
    name: str, method: BaseMethod, parts: dict[str, Any], options: dict[str, Any]
) -> None:
    check_stacked_equals_one_by_one(build(name), Algorithm(method, **parts), **options)


def test_a_client_that_diverges_does_not_affect_the_others() -> None:
    broken = Samples(DATASETS[1].inputs * torch.inf, DATASETS[1].labels)
    first, _, *others = DATASETS
    module, algorithm = build("sequential"), Algorithm(CADIS())
    for datasets in ([first, broken, *others], [broken, *others, first]):
        clients = make_clients(module, algorithm, SETTINGS, datasets, [{}] * len(datasets))
        outputs = train_clients_stacked(clients, make_stack(module, len(datasets)))
        is_finite = [output.message.model.is_finite() for output in outputs]
        assert is_finite == [samples is not broken for samples in datasets]


def test_models_and_methods_that_cannot_be_stacked_are_excluded() -> None:
    tied = nn.Sequential(nn.Flatten(), nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 5))
    tied[2].weight = tied[1].weight
    frozen, hooked = small_model(), small_model()
    next(frozen.parameters()).requires_grad_(False)
    hooked.get_submodule("5").register_forward_hook(lambda *call: call[2].clamp(-1, 1))
    unsupported = {
        "batch norm": small_model(batch_norm=True),
        "dropout": small_model(dropout=0.2),
        "tied": tied,
        "frozen": frozen,
        "hooked": hooked,
        "large": nn.Sequential(nn.Flatten(), nn.Linear(16, 20_000), nn.Linear(20_000, 5)),
        "layer norm": nn.Sequential(nn.Flatten(), nn.LayerNorm(16), nn.Linear(16, 5)),
    }
    assert can_stack(FlatModel(small_model()), Algorithm(FedAvg()), SETTINGS)
    for name, module in unsupported.items():
        assert not can_stack(FlatModel(module), Algorithm(FedAvg()), SETTINGS), name
    assert not can_stack(FlatModel(small_model()), Algorithm(CustomLocal()), SETTINGS)
    half = replace(SETTINGS, precision="bf16")
    assert not can_stack(FlatModel(small_model()), Algorithm(FedAvg()), half)


@pytest.mark.parametrize(
    ("name", "method", "expected"),
    [
        ("sequential", CADIS(), True),
        ("user", CADIS(), True),
        ("classifier only", CADIS(), True),
        ("mixing", CADIS(), False),
        ("skipping", CADIS(), False),
        ("branching", CADIS(), False),
        ("random", CADIS(), False),
        ("sequential", Doubling(), False),  # batches of the trial are as large as in training
        ("sequential", Confident(), True),
    ],
)
def test_the_trial_detects_what_the_rule_cannot(
    name: str, method: BaseMethod, expected: bool
) -> None:
    module = build(name)
    rng_state = torch.get_rng_state()
    parts = module, find_head_name(module), Algorithm(method), SETTINGS, DATASETS[0]
    assert passes_stack_trial(*parts) is expected
    assert torch.equal(rng_state, torch.get_rng_state())


def test_clients_are_split_evenly_into_stacks() -> None:
    assert split_into_stacks([5, 9, 7, 8]) == [[1, 2], [3, 0]]
    assert split_into_stacks([3]) == [[0]]
    for number in range(1, 60):
        stacks = split_into_stacks(list(range(number)))
        assert sorted(index for stack in stacks for index in stack) == list(range(number))
        lengths = [len(stack) for stack in stacks]
        assert max(lengths) - min(lengths) <= 1
        assert max(lengths) <= 10
        assert len(stacks) >= min(2, number)


@pytest.mark.parametrize(
    "method", [FedAvg(), CADIS(), FedDyn(), Sending()], ids=lambda method: method.name
)
def test_rounds_with_stacks_equal_rounds_without(method: BaseMethod, tmp_path: Path) -> None:
    """Clients that receive different tensors, as with Sending, are trained one by one."""
    settings = small_settings(rounds=3, per_round=5)
    stacked = run_rounds(method, tmp_path, settings)
    one_by_one = run_rounds(method, tmp_path, replace(settings, stack=False))
    for one, other in zip(stacked, one_by_one, strict=True):
        check_close(vars(get_model(one)), vars(get_model(other)), tolerance=1e-3)
        assert one.record.report.get("clusters") == other.record.report.get("clusters")


@pytest.mark.parametrize("method", [FedAvg(), CADIS(), FedDyn()], ids=lambda method: method.name)
def test_results_are_identical_for_any_number_of_workers(
    method: BaseMethod, tmp_path: Path
) -> None:
    first, *others = (
        run_rounds(method, tmp_path, small_settings(3, number, per_round=5)) for number in (1, 2, 3)
    )
    for other in others:
        for one, two in zip(first, other, strict=True):
            assert torch.equal(get_model(one).parameters, get_model(two).parameters)


def test_weights_of_rows_are_computed_in_double_precision() -> None:
    _, weights = _compute_rows_and_weights(torch.tensor([[3, 7]]))
    assert weights[0, :, 0].tolist() == [1 / 3, 1 / 7]
