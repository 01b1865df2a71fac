"""The steps themselves: against the arithmetic, one by one, FedAvg's and float32's.

Training is the engine's own, and its time is what the engine records (``seconds.train``), so that
nothing here depends on how clients are trained. Two engines can work in turns, round by round.
"""

import tempfile
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn

from benchmarks.measure import Measured, seconds
from benchmarks.pictures import Pair, random_pictures
from cadis.algorithm import Algorithm, BaseMethod
from cadis.algorithm.methods import CADIS, FedAvg
from cadis.data import Examples
from cadis.engine import Engine, EngineSettings, Federation
from cadis.experiment import build_experiment, resolve
from cadis.models import cnn, resnet9, resnet18
from cadis.rng import one_thread
from cadis.training import LocalSettings, batch_sizes

_SIDE = 1536
"""Of the square matrices whose product tells how fast a core can be."""


@dataclass(frozen=True)
class Case:
    """What is trained.

    Attributes:
        name: for the table.
        module: the model.
        clients: everybody's inputs and labels.
        per_round: how many of them train in a round.
        local: how they train.
        workers: processes that train; a single one is this very process.
        stack: whether several clients may be trained at once.
    """

    name: str
    module: nn.Module
    clients: Sequence[Pair]
    per_round: int
    local: LocalSettings
    workers: int = 1
    stack: bool = True

    def steps(self, participants: Sequence[Any]) -> int:
        """How many steps these clients make in a round."""
        sizes = [len(self.clients[int(client)][1]) for client in participants]
        batches = sum(len(batch_sizes(size, self.local.batch_size)) for size in sizes)
        return self.local.epochs * batches


@dataclass(frozen=True)
class Trained:
    """A round: so many steps in so many seconds."""

    steps: int
    seconds: float


def rounds_of(case: Case, method: BaseMethod) -> Generator[Trained, None, None]:
    """Rounds without end, one whenever it is asked for; testing does not count."""
    examples = [Examples(*client) for client in case.clients]
    settings = EngineSettings(
        rounds=10**6,
        per_round=case.per_round,
        workers=case.workers,
        device="cpu",
        local=case.local,
        test_clients=0,
        stack=case.stack,
    )
    with tempfile.TemporaryDirectory() as folder:
        federation = Federation(examples, examples[-1])
        engine = Engine(case.module, federation, Algorithm(method), settings, Path(folder))
        with closing(engine.rounds(engine.start)) as results:
            for result in results:
                record = result.record
                yield Trained(case.steps(record.participants), record.seconds.train)


def digits_with(model: str) -> Case:
    """The federation that ``cadis run`` runs by default: 20 clients, 10 a round."""
    built = build_experiment(resolve({}, {"model": model}))
    settings = built.config.settings.for_engine()
    clients = [(client.inputs, client.labels) for client in built.federation.clients]
    per_round = settings.per_round or len(clients)
    return Case(f"digits, {model}", built.model, clients, per_round, settings.local)


def tabular() -> Case:
    """A federation as in the README: 20 numbers, 32 hidden units, ten clients of 60 samples."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(600, 20, generator=generator)
    labels = inputs[:, :4].argmax(dim=1)
    module = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4))
    clients = list(zip(inputs.split(60), labels.split(60), strict=True))
    return Case("tabular, 32 units", module, clients, len(clients), LocalSettings(5, 8, 0.05))


def on_one_core(name: str, module: nn.Module, pictures: Pair, epochs: int) -> Case:
    """A client alone in a worker process, on a core of its own.

    Workers may set themselves up to be fast, and there are none for a single client, so a second
    one takes part; it has a single batch.
    """
    inputs, labels = pictures
    few = inputs[:8], labels[:8]
    return Case(name, module, [pictures, few], 2, LocalSettings(epochs, 8, 0.001), workers=2)


def fedavg_cnn() -> Case:
    """The FedAvg CNN on pictures of 28 x 28; all batches are full."""
    return on_one_core("FedAvg CNN", cnn(1, 28, 28, 10), random_pictures(288, 0), epochs=5)


def small_cases() -> list[Case]:
    """Models whose steps are so small that calling them is what they cost."""
    return [digits_with("mlp"), digits_with("small-cnn"), tabular()]


@one_thread()
def arithmetic(rounds: int) -> Measured:
    """A step of the FedAvg CNN / the time of its multiplications and additions alone.

    How fast a core computes is measured by large matrix products, after every round.
    """
    case, shape = fedavg_cnn(), (1, 28, 28)
    flops = 8 * flops_per_example(case.module, shape)
    square = torch.randn(_SIDE, _SIDE)
    ratios, speeds, steps = list[float](), list[float](), list[float]()
    with closing(rounds_of(case, FedAvg())) as training:
        for _, trained in zip(range(rounds + 1), training, strict=False):
            products = [seconds(lambda: square @ square) for _ in range(7)]
            speeds.append(2 * _SIDE**3 / median(products))
            steps.append(trained.seconds / trained.steps)
            ratios.append(steps[-1] / (flops / speeds[-1]))
    note = (
        f"{1e3 * median(steps[1:]):.1f} ms a step of {flops / 1e6:.0f} MFLOP, "
        f"{median(speeds[1:]) / 1e9:.0f} GFLOP/s; {rounds} rounds"
    )
    return Measured("step of the FedAvg CNN / its arithmetic", median(ratios[1:]), 1.35, note=note)


def flops_per_example(module: nn.Module, shape: tuple[int, ...]) -> int:
    """Of forward and backward products of all convolutions and linear layers.

    Each has three of the same size (outputs, gradient of the weights, gradient of the inputs), but
    for the first, whose inputs are data and need no gradient.
    """
    counted = list[int]()

    def count(layer: nn.Module, _given: object, output: torch.Tensor) -> None:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            each_output = layer.weight[0].numel()  # inputs that an output is a sum of
            counted.append(2 * each_output * output[0].numel())

    hooks = [layer.register_forward_hook(count) for layer in module.modules()]
    with torch.no_grad():
        module(torch.zeros(2, *shape))
    for hook in hooks:
        hook.remove()
    return 3 * sum(counted) - counted[0]


def at_once(case: Case, rounds: int) -> Measured:
    """Steps a second of clients trained several at once / one by one, in turns."""
    alone = replace(case, stack=False)
    value, note = _in_turns((alone, FedAvg()), (case, FedAvg()), rounds)
    name = f"steps a second, several clients at once / one by one, {case.name}"
    return Measured(name, value, 3, note=f"one by one {note}", at_least=True)


def distillation(case: Case, rounds: int) -> Measured:
    """Local training with CADIS / with FedAvg, of the same clients in turns."""
    value, note = _in_turns((case, CADIS()), (case, FedAvg()), rounds)
    return Measured(f"CADIS / FedAvg, local training, {case.name}", value, 1.15, note=note)


def half_precision(rounds: int) -> list[Measured]:
    """A step in bfloat16 / a step in float32, on the ResNets."""
    builders = {"ResNet-9": (resnet9, 64), "ResNet-18": (resnet18, 24)}
    rows = []
    for name, (build, number) in builders.items():
        pictures = random_pictures(number, 0, (3, 32, 32))
        case = on_one_core(name, build(3, 32, 32, 10), pictures, epochs=2)
        fast = replace(case, local=replace(case.local, precision="bf16"))
        value, note = _in_turns((fast, FedAvg()), (case, FedAvg()), rounds)
        rows.append(Measured(f"bf16 step / float32 step, {name}", value, 0.65, note=note))
    return rows


def _in_turns(
    one: tuple[Case, BaseMethod], other: tuple[Case, BaseMethod], rounds: int
) -> tuple[float, str]:
    """Median of seconds a step of the one / of the other, round by round, and how it came about."""
    pairs = list[tuple[float, float]]()
    with closing(rounds_of(*one)) as ours, closing(rounds_of(*other)) as theirs:
        for _ in range(rounds + 1):
            first, second = next(ours), next(theirs)
            pairs.append((first.seconds / first.steps, second.seconds / second.steps))
    times = [1e3 * median(taken) for taken in zip(*pairs[1:], strict=True)]
    note = f"{times[0]:.3g} ms a step, {times[1]:.3g} ms; {rounds} rounds in turns"
    return median(first / second for first, second in pairs[1:]), note
