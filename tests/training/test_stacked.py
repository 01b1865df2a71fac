"""Clients trained at once: the results of one by one, whatever the model, method and sizes."""

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
from cadis.data import Examples, Scaling
from cadis.models import FlatModel, mlp, small_cnn
from cadis.rng import generator_for
from cadis.training import (
    Client,
    LocalSettings,
    StackedModel,
    dealt_into_stacks,
    may_stack,
    replies_together,
    stacks_in_trial,
)
from cadis.training.fast.stacked import _rows_and_weights
from cadis.types import ClientId, Message, TensorState
from support import blobs, model_after, run_rounds, small_model, small_settings

SIZES = (9, 21, 1, 13, 8)  # batches of 4: with a rest, with a last one of 5, a single example, even
OWNED = [blobs(size, [n % 5, (n + 1) % 5], seed=n) for n, size in enumerate(SIZES)]
SETTINGS = LocalSettings(epochs=2, batch_size=4, lr=0.05)


class Net(nn.Module):
    """A model as users write them: named layers, and functions between them."""

    def __init__(self, run: Callable[[Any, Tensor], Any], **layers: nn.Module) -> None:
        super().__init__()
        self.run = run
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.run(self, x)
        return out


def run_own(net: Any, x: Tensor) -> Any:
    x = F.relu(net.first(x)).tanh()
    return net.second(x.reshape(x.size(0), -1))


def run_unused(net: Any, x: Tensor) -> Any:
    return net.head(net.relu(net.first(net.relu(x.flatten(1)))))


BUILD: dict[str, Callable[[], nn.Module]] = {
    "sequential": small_model,
    "small-cnn": lambda: small_cnn(1, 4, 4, 5),
    "mlp": lambda: mlp(1, 4, 4, 5),
    "one output": lambda: mlp(1, 4, 4, 1),
    "classifier alone": lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 5)),
    "random": lambda: nn.Sequential(nn.Flatten(), nn.RReLU(), nn.Linear(16, 5)),
    "own": lambda: Net(  # the layer that comes first is defined last, and has no bias
        run_own,
        second=nn.Linear(24, 5),
        first=nn.Conv2d(1, 6, 3, stride=2, padding=1, bias=False),
    ),
    "unused": lambda: Net(  # has a layer that it never calls, and calls another twice
        run_unused,
        extra=nn.Linear(16, 4),
        first=nn.Linear(16, 8),
        head=nn.Linear(8, 5),
        relu=nn.ReLU(),
    ),
    "mixing": lambda: Net(  # rows see each other
        lambda net, x: net.head(x.flatten(1) - x.flatten(1).mean(dim=0)), head=nn.Linear(16, 5)
    ),
    "skipping": lambda: Net(  # no chain of layers
        lambda net, x: net.head(x.flatten(1) + net.body(x.flatten(1))),
        body=nn.Linear(16, 16),
        head=nn.Linear(16, 5),
    ),
    "branching": lambda: Net(  # looks at the data to find its way
        lambda net, x: net.head(x.flatten(1) if x.sum() > 0 else -x.flatten(1)),
        head=nn.Linear(16, 5),
    ),
}


@dataclass(frozen=True)
class Confident(BaseMethod):
    """A method of one's own, which knows nothing of several clients at once."""

    name: ClassVar[str] = "confident"

    def penalty(self, step: Step) -> Tensor | None:
        rows = step.logits.log_softmax(dim=1)[torch.arange(len(step.labels)), step.labels]
        strength: Tensor = step.parameters.norm() / len(step.labels)
        return 0.1 * rows.mean() + strength


@dataclass(frozen=True)
class Nearer(CADIS):
    """Says nothing of its own penalty; what CADIS says of its own does not hold."""

    name: ClassVar[str] = "nearer"

    def penalty(self, step: Step) -> Tensor | None:
        far = (step.parameters - step.received).square().sum()
        distilled = super().penalty(step)
        return far / len(step.labels) if distilled is None else distilled + far / len(step.labels)


@dataclass(frozen=True)
class Pairs(BaseMethod):
    """Has no penalty for a single sample."""

    name: ClassVar[str] = "pairs"

    def penalty(self, step: Step) -> Tensor | None:
        if len(step.labels) < 2:
            return None
        return (step.representation[0] - step.representation[1]).square().sum()


@dataclass(frozen=True)
class Doubling(BaseMethod):
    """Looks at values, in large batches."""

    name: ClassVar[str] = "doubling"

    def penalty(self, step: Step) -> Tensor | None:
        large = len(step.labels) >= 4 and step.logits.abs().max() > 0.01
        return step.logits.square().mean() * (2 if large else 1)


@dataclass(frozen=True)
class Sending(BaseMethod):
    """Sends a tensor to some clients only."""

    name: ClassVar[str] = "sending"

    def broadcast(self, server_round: ServerRound, state: ServerState, client: ClientId) -> Message:
        message = super().broadcast(server_round, state, client)
        tensors = {"shift": torch.full((5,), 0.5)} if client in (1, 3) else {}
        return replace(message, tensors=tensors)

    def penalty(self, step: Step) -> Tensor | None:
        shift = step.tensors.get("shift", torch.zeros(5))
        return (step.logits - shift).square().mean()


@dataclass(frozen=True)
class OwnLocal(BaseMethod):
    name: ClassVar[str] = "own-local"

    def local(self, client: LocalClient) -> ClientOutput:
        return super().local(client)


def made(name: str) -> nn.Module:
    torch.manual_seed(0)
    return BUILD[name]()


def clients_of(
    module: nn.Module,
    algorithm: Algorithm,
    settings: LocalSettings,
    owned: Sequence[Examples],
    memories: Sequence[TensorState],
    shared: bool = True,
) -> list[Client]:
    flat = FlatModel(deepcopy(module), None)
    state = flat.state()
    number = len(state.parameters)
    further = {"control": torch.linspace(-0.1, 0.1, number)}  # what SCAFFOLD's clients are sent
    found = []
    for place, (examples, memory) in enumerate(zip(owned, memories, strict=True)):
        moved = state if shared else replace(state, parameters=state.parameters * (1 + place / 50))
        parts = algorithm, settings, 1, Message({"model": moved}, further), memory
        found.append(Client(flat, examples, *parts, generator_for(3, "train", 1, place)))
    return found


def head_of(module: nn.Module) -> str:
    head = FlatModel(deepcopy(module)).layout.head
    assert head is not None
    return head.layer


def stacked(module: nn.Module, number: int) -> StackedModel:
    return StackedModel(deepcopy(module), head_of(module), number)


def check_close(found: TensorState, expected: TensorState, tolerance: float = 1e-4) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=tolerance, atol=tolerance / 100)


def check_alike(
    module: nn.Module,
    algorithm: Algorithm,
    settings: LocalSettings = SETTINGS,
    owned: Sequence[Examples] = OWNED,
    shared: bool = True,
) -> None:
    memories: Sequence[TensorState] = [{}] * len(owned)
    for _ in range(2):  # the second time with what was remembered
        parts = module, algorithm, settings, owned, memories, shared
        alone = [algorithm.method.local(client) for client in clients_of(*parts)]
        together = replies_together(clients_of(*parts), stacked(module, len(owned)))
        for one, other in zip(alone, together, strict=True):
            check_close(vars(other.message.model), vars(one.message.model))
            check_close(other.state, one.state)
            assert other.message.scalars == pytest.approx(dict(one.message.scalars), rel=1e-4)
        memories = [output.state for output in alone]


METHODS = [
    *(FedAvg(), FedProx(0.3), FedDyn(), CADIS(), CADIS(bandwidth=2.0), m.FedFA(), Confident()),
    *(m.SCAFFOLD(), m.FedNova(), m.FedLC(), m.FedRS(), m.FedNTD(), m.BalanceFL(), FedCav()),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize("name", ["sequential", "own", "small-cnn", "mlp"])
def test_at_once_is_as_one_by_one(name: str, method: BaseMethod) -> None:
    check_alike(made(name), Algorithm(method))


MOMENTUM = SGD(momentum=0.9, weight_decay=0.01, lr_decay=0.5)
DECAY = SGD(momentum=0.9, weight_decay=0.1)
AUGMENTED = replace(SETTINGS, augment=("flip", "crop"), lr=0.005)
BYTES = [
    Examples((e.inputs * 40).clamp(0, 255).to(torch.uint8), e.labels, Scaling((0.3,), (0.2,)))
    for e in OWNED
]
TWO_CLASSES = {"owned": [Examples(e.inputs, e.labels % 2) for e in OWNED]}
ONES = replace(SETTINGS, batch_size=1)


@pytest.mark.parametrize(
    ("name", "method", "parts", "options"),
    [
        ("sequential", FedProx(0.3), {"local_optimizer": MOMENTUM}, {}),
        ("sequential", CADIS(), {"local_optimizer": MOMENTUM}, {}),
        ("sequential", CADIS(), {}, {"shared": False}),
        ("sequential", CADIS(), {}, {"settings": AUGMENTED, "owned": BYTES}),
        ("one output", CADIS(), {"task": Binary(positive_weight=3.0)}, TWO_CLASSES),
        ("one output", FedCav(), {"task": Binary(positive_weight=3.0)}, TWO_CLASSES),
        ("sequential", Nearer(), {}, {}),
        ("sequential", Nearer(), {}, {"settings": ONES}),
        ("sequential", Pairs(), {}, {}),
        ("sequential", Pairs(), {}, {"settings": ONES}),
        ("unused", FedAvg(), {"local_optimizer": DECAY}, {}),
        ("unused", FedDyn(), {"local_optimizer": DECAY}, {}),
        ("classifier alone", CADIS(), {}, {}),
    ],
)
def test_at_once_is_as_one_by_one_with_other_parts(
    name: str, method: BaseMethod, parts: dict[str, Any], options: dict[str, Any]
) -> None:
    check_alike(made(name), Algorithm(method, **parts), **options)


def test_one_that_diverges_leaves_the_others_alone() -> None:
    broken = Examples(OWNED[1].inputs * torch.inf, OWNED[1].labels)
    module, algorithm = made("sequential"), Algorithm(CADIS())
    for owned in ([OWNED[0], broken, *OWNED[2:]], [broken, *OWNED[2:], OWNED[0]]):
        clients = clients_of(module, algorithm, SETTINGS, owned, [{}] * len(owned))
        replies = replies_together(clients, stacked(module, len(owned)))
        finite = [reply.message.model.is_finite() for reply in replies]
        assert finite == [examples is not broken for examples in owned]


def test_rules_of_the_model_and_the_method() -> None:
    tied = nn.Sequential(nn.Flatten(), nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 5))
    tied[2].weight = tied[1].weight
    frozen, hooked = small_model(), small_model()
    next(frozen.parameters()).requires_grad_(False)
    hooked.get_submodule("5").register_forward_hook(lambda *call: call[2].clamp(-1, 1))
    refused = {
        "batch norm": small_model(batch_norm=True),
        "dropout": small_model(dropout=0.2),
        "tied": tied,
        "frozen": frozen,
        "hooked": hooked,
        "large": nn.Sequential(nn.Flatten(), nn.Linear(16, 20_000), nn.Linear(20_000, 5)),
        "layer norm": nn.Sequential(nn.Flatten(), nn.LayerNorm(16), nn.Linear(16, 5)),
    }
    assert may_stack(FlatModel(small_model()), Algorithm(FedAvg()), SETTINGS)
    for what, module in refused.items():
        assert not may_stack(FlatModel(module), Algorithm(FedAvg()), SETTINGS), what
    assert not may_stack(FlatModel(small_model()), Algorithm(OwnLocal()), SETTINGS)
    fast = replace(SETTINGS, precision="bf16")
    assert not may_stack(FlatModel(small_model()), Algorithm(FedAvg()), fast)


@pytest.mark.parametrize(
    ("name", "method", "expected"),
    [
        ("sequential", CADIS(), True),
        ("own", CADIS(), True),
        ("classifier alone", CADIS(), True),
        ("mixing", CADIS(), False),
        ("skipping", CADIS(), False),
        ("branching", CADIS(), False),
        ("random", CADIS(), False),
        ("sequential", Doubling(), False),  # its batches are as large as those of training
        ("sequential", Confident(), True),
    ],
)
def test_a_trial_tells_what_no_rule_can(name: str, method: BaseMethod, expected: bool) -> None:
    module = made(name)
    chance = torch.get_rng_state()
    found = stacks_in_trial(module, head_of(module), Algorithm(method), SETTINGS, OWNED[0])
    assert found is expected
    assert torch.equal(chance, torch.get_rng_state())


def test_stacks_are_dealt_evenly() -> None:
    assert dealt_into_stacks([5, 9, 7, 8]) == [[1, 2], [3, 0]]
    assert dealt_into_stacks([3]) == [[0]]
    for number in range(1, 60):
        stacks = dealt_into_stacks(list(range(number)))
        assert sorted(place for stack in stacks for place in stack) == list(range(number))
        lengths = [len(stack) for stack in stacks]
        assert max(lengths) - min(lengths) <= 1
        assert max(lengths) <= 10
        assert len(stacks) >= min(2, number)


@pytest.mark.parametrize(
    "method", [FedAvg(), CADIS(), FedDyn(), Sending()], ids=lambda method: method.name
)
def test_rounds_are_those_of_one_by_one(method: BaseMethod, tmp_path: Path) -> None:
    """Clients that are sent other tensors than others, as by Sending, are no stack."""
    settings = small_settings(rounds=3, per_round=5)
    together = run_rounds(method, tmp_path, settings)
    alone = run_rounds(method, tmp_path, replace(settings, stack=False))
    for one, other in zip(together, alone, strict=True):
        check_close(vars(model_after(one)), vars(model_after(other)), tolerance=1e-3)
        assert one.record.report.get("clusters") == other.record.report.get("clusters")


@pytest.mark.parametrize("method", [FedAvg(), CADIS(), FedDyn()], ids=lambda method: method.name)
def test_any_number_of_workers_gives_the_same_bits(method: BaseMethod, tmp_path: Path) -> None:
    first, *others = (
        run_rounds(method, tmp_path, small_settings(3, number, per_round=5)) for number in (1, 2, 3)
    )
    for other in others:
        for one, two in zip(first, other, strict=True):
            assert torch.equal(model_after(one).parameters, model_after(two).parameters)


def test_batches_are_divided_by_their_size_in_double_precision() -> None:
    _, weights = _rows_and_weights(torch.tensor([[3, 7]]))
    assert weights[0, :, 0].tolist() == [1 / 3, 1 / 7]
