"""Training steps relative to their arithmetic, to single clients, to FedAvg and to float32.

The engine trains and records the time (``seconds.train``), so that nothing here depends on how
clients are trained. Two engines alternate, round by round.
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

from benchmarks.measure import Measurement, seconds
from benchmarks.pictures import Pair, make_random_images
from cadis.algorithm import Algorithm, BaseMethod
from cadis.algorithm.methods import CADIS, FedAvg
from cadis.data import Samples
from cadis.engine import Engine, EngineSettings, Federation
from cadis.experiment import make_experiment, resolve
from cadis.models import cnn, resnet9, resnet18
from cadis.rng import use_one_thread
from cadis.training import LocalSettings, compute_batch_sizes

_SIDE = 1536
"""Side of the square matrices whose product measures the peak speed of a core."""


@dataclass(frozen=True)
class Case:
    """Model, clients and settings of a benchmark.

    Attributes:
        name: the name in the table.
        module: the model.
        clients: inputs and labels of each client.
        per_round: number of participants per round.
        local: settings of local training.
        workers: number of worker processes; with 1, this process trains.
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
        """Return the number of steps of these clients in a round."""
        sizes = [len(self.clients[int(client)][1]) for client in participants]
        batches = sum(len(compute_batch_sizes(size, self.local.batch_size)) for size in sizes)
        return self.local.epochs * batches


@dataclass(frozen=True)
class TimedRound:
    """Steps and seconds of a round."""

    steps: int
    seconds: float


def iterate_rounds(case: Case, method: BaseMethod) -> Generator[TimedRound, None, None]:
    """Yield rounds without end; the time of tests is not included."""
    samples = [Samples(*client) for client in case.clients]
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
        federation = Federation(samples, samples[-1])
        engine = Engine(case.module, federation, Algorithm(method), settings, Path(folder))
        with closing(engine.rounds(engine.start)) as results:
            for result in results:
                record = result.record
                yield TimedRound(case.steps(record.participants), record.seconds.train)


def make_digits_case(model: str) -> Case:
    """Return the default federation of ``cadis run``: 20 clients, 10 per round."""
    built = make_experiment(resolve({}, {"model": model}))
    settings = built.config.settings.to_engine_settings()
    clients = [(client.inputs, client.labels) for client in built.federation.clients]
    per_round = settings.per_round or len(clients)
    return Case(f"digits, {model}", built.model, clients, per_round, settings.local)


def make_tabular_case() -> Case:
    """Return a tabular federation: 20 features, 32 hidden units, ten clients of 60 samples."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(600, 20, generator=generator)
    labels = inputs[:, :4].argmax(dim=1)
    module = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4))
    clients = list(zip(inputs.split(60), labels.split(60), strict=True))
    return Case("tabular, 32 units", module, clients, len(clients), LocalSettings(5, 8, 0.05))


def make_single_core_case(name: str, module: nn.Module, pictures: Pair, epochs: int) -> Case:
    """Return a case with one client in a worker process.

    A single client would be trained without workers, so a second client with one batch takes part.
    """
    inputs, labels = pictures
    few = inputs[:8], labels[:8]
    return Case(name, module, [pictures, few], 2, LocalSettings(epochs, 8, 0.001), workers=2)


def make_cnn_case() -> Case:
    """Return the FedAvg CNN on images of 28 x 28; all batches are full."""
    return make_single_core_case(
        "FedAvg CNN", cnn(1, 28, 28, 10), make_random_images(288, 0), epochs=5
    )


def make_small_cases() -> list[Case]:
    """Return small models, whose steps are dominated by call overhead."""
    return [make_digits_case("mlp"), make_digits_case("small-cnn"), make_tabular_case()]


@use_one_thread()
def compare_with_arithmetic(rounds: int) -> Measurement:
    """Measure a step of the FedAvg CNN relative to its multiplications and additions.

    The speed of a core is measured by large matrix products after every round.
    """
    case, shape = make_cnn_case(), (1, 28, 28)
    flops = 8 * count_flops(case.module, shape)
    square = torch.randn(_SIDE, _SIDE)
    ratios, speeds, steps = list[float](), list[float](), list[float]()
    with closing(iterate_rounds(case, FedAvg())) as training:
        for _, trained in zip(range(rounds + 1), training, strict=False):
            products = [seconds(lambda: square @ square) for _ in range(7)]
            speeds.append(2 * _SIDE**3 / median(products))
            steps.append(trained.seconds / trained.steps)
            ratios.append(steps[-1] / (flops / speeds[-1]))
    note = (
        f"{1e3 * median(steps[1:]):.1f} ms a step of {flops / 1e6:.0f} MFLOP, "
        f"{median(speeds[1:]) / 1e9:.0f} GFLOP/s; {rounds} rounds"
    )
    return Measurement(
        "step of the FedAvg CNN / its arithmetic", median(ratios[1:]), 1.35, note=note
    )


def count_flops(module: nn.Module, shape: tuple[int, ...]) -> int:
    """Return the FLOPs of forward and backward passes of all convolutions and linear layers.

    Each layer has three products of the same size (outputs, gradient of the weights, gradient of
    the inputs), except for the first, whose inputs need no gradient.
    """
    counted = list[int]()

    def count(layer: nn.Module, _inputs: object, output: torch.Tensor) -> None:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            each_output = layer.weight[0].numel()  # inputs that an output is a sum of
            counted.append(2 * each_output * output[0].numel())

    hooks = [layer.register_forward_hook(count) for layer in module.modules()]
    with torch.no_grad():
        module(torch.zeros(2, *shape))
    for hook in hooks:
        hook.remove()
    return 3 * sum(counted) - counted[0]


def compare_stacking(case: Case, rounds: int) -> Measurement:
    """Measure the speed-up of training several clients at once, alternating."""
    alone = replace(case, stack=False)
    value, note = _alternate((alone, FedAvg()), (case, FedAvg()), rounds)
    name = f"steps a second, several clients at once / one by one, {case.name}"
    return Measurement(name, value, 3, note=f"one by one {note}", at_least=True)


def compare_distillation(case: Case, rounds: int) -> Measurement:
    """Measure local training with CADIS relative to FedAvg, alternating."""
    value, note = _alternate((case, CADIS()), (case, FedAvg()), rounds)
    return Measurement(f"CADIS / FedAvg, local training, {case.name}", value, 1.15, note=note)


def compare_bf16(rounds: int) -> list[Measurement]:
    """Measure steps in bfloat16 relative to float32, for the ResNets."""
    builders = {"ResNet-9": (resnet9, 64), "ResNet-18": (resnet18, 24)}
    rows = []
    for name, (build, number) in builders.items():
        pictures = make_random_images(number, 0, (3, 32, 32))
        case = make_single_core_case(name, build(3, 32, 32, 10), pictures, epochs=2)
        fast = replace(case, local=replace(case.local, precision="bf16"))
        value, note = _alternate((fast, FedAvg()), (case, FedAvg()), rounds)
        rows.append(Measurement(f"bf16 step / float32 step, {name}", value, 0.65, note=note))
    return rows


def _alternate(
    one: tuple[Case, BaseMethod], other: tuple[Case, BaseMethod], rounds: int
) -> tuple[float, str]:
    """Return the median ratio of seconds per step of two cases, and a note."""
    pairs = list[tuple[float, float]]()
    with closing(iterate_rounds(*one)) as ours, closing(iterate_rounds(*other)) as theirs:
        for _ in range(rounds + 1):
            first, second = next(ours), next(theirs)
            pairs.append((first.seconds / first.steps, second.seconds / second.steps))
    times = [1e3 * median(taken) for taken in zip(*pairs[1:], strict=True)]
    note = f"{times[0]:.3g} ms a step, {times[1]:.3g} ms; {rounds} rounds in turns"
    return median(first / second for first, second in pairs[1:]), note
