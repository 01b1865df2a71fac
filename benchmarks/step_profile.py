"""Where the time of a step goes: ``python -m benchmarks.step_profile`` (two minutes).

Milliseconds a step at batch 8 on one core, each kind in a process of its own, in turns; and what
torch's profiler says of a step of the FedAvg CNN as workers take it.
"""

import subprocess
import sys
from collections.abc import Callable
from statistics import median

import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.profiler import ProfilerActivity, profile

from benchmarks.floor import Work, bare_steps
from benchmarks.measure import seconds
from benchmarks.pictures import random_pictures
from benchmarks.steps import flops_per_example
from cadis.algorithm import Algorithm, BaseMethod
from cadis.algorithm.methods import CADIS, FedAvg
from cadis.data import Examples
from cadis.engine.allocator import keep_freed_memory
from cadis.models import FlatModel, cnn, resnet9
from cadis.options import Precision
from cadis.training import LocalSettings, reply_to
from cadis.types import Message

MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, int, int], int]] = {
    "FedAvg CNN": (lambda: cnn(1, 28, 28, 10), (1, 28, 28), 160),
    "ResNet-9": (lambda: resnet9(3, 32, 32, 10), (3, 32, 32), 48),
}
"""How each is made, its pictures, and how many of them are trained on."""

KINDS = {
    "plain": "a plain loop of torch",
    "returned": "ours, memory given back after every step",
    "kept": "ours, as workers do it",
    "cadis": "the same with CADIS (a fifth of its teacher's pass a step)",
    "bf16": "the same in bf16",
    "arithmetic": "its arithmetic, as fast as a large matrix product",
}

GROUPS = {
    "convolution": "convolutions, forward and backward",
    "mkldnn": "convolutions, forward and backward",
    "mm": "linear layers, forward, backward and update",
    "pool": "pooling",
    "threshold": "rectifiers",
    "relu": "rectifiers",
    "clamp": "rectifiers",
    "add_": "updates of the other parameters",
}
"""Parts of the names of torch's operations, and what they belong to."""


def training(kind: str, model: str) -> tuple[Callable[[], None], int]:
    """What trains, and how many steps that is."""
    make, shape, number = MODELS[model]
    module, pictures = make(), random_pictures(number, 0, shape)
    steps = number // 8
    if kind == "plain":
        work = Work(module, *pictures, batch_size=8, learning_rate=0.001)
        return lambda: bare_steps(work, steps), steps
    flat, examples = FlatModel(module), Examples(*pictures)
    precision: Precision = "bf16" if kind == "bf16" else "float32"
    epochs = 5 if kind == "cadis" else 1
    method: BaseMethod = CADIS() if kind == "cadis" else FedAvg()
    received, local = (
        Message({"model": flat.state()}),
        LocalSettings(epochs, 8, 0.001, (), precision),
    )
    if kind != "returned":
        keep_freed_memory()

    def train() -> None:
        reply_to(received, flat, examples, {}, Algorithm(method), local, 0, 1, 0, 1)

    return train, steps * epochs


def arithmetic(model: str) -> float:
    """Milliseconds of a step's products at the speed of a large one."""
    make, shape, _ = MODELS[model]
    square = torch.randn(1536, 1536)
    fastest = min(seconds(lambda: square @ square) for _ in range(10))
    return 1e3 * 8 * flops_per_example(make(), shape) * fastest / (2 * 1536**3)


def milliseconds(kind: str, model: str) -> float:
    """A step of this kind."""
    torch.set_num_threads(1)
    if kind == "arithmetic":
        return arithmetic(model)
    train, steps = training(kind, model)
    return 1e3 * min(seconds(train) for _ in range(6)) / steps


def measured(kind: str, model: str) -> float:
    """The same in a process of its own: what a process is told of its memory, it keeps."""
    command = [sys.executable, "-m", "benchmarks.step_profile", kind, model]
    return float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def shares() -> dict[str, float]:
    """Milliseconds of a CNN step by what they are spent on."""
    torch.set_num_threads(1)
    train, steps = training("kept", "FedAvg CNN")
    train()
    taken = seconds(train)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        train()
    found: dict[str, float] = {}
    for event in profiled.key_averages():
        names = (group for part, group in GROUPS.items() if part in event.key)
        if event.key.startswith("aten::") and (group := next(names, None)) is not None:
            found[group] = found.get(group, 0) + event.self_cpu_time_total / 1e3 / steps
    found["everything else, Python included"] = 1e3 * taken / steps - sum(found.values())
    return found


def main() -> None:
    """Measure and print."""
    console = Console(width=100)
    table = Table("ms a step", *MODELS, title="Batch 8, one core", title_justify="left")
    for kind, what in KINDS.items():
        values = [median(measured(kind, model) for _ in range(3)) for model in MODELS]
        table.add_row(what, *(f"{value:.1f}" for value in values))
    console.print(table)
    parts = Table("a step of the FedAvg CNN", "ms", title_justify="left")
    for group, value in sorted(shares().items(), key=lambda pair: -pair[1]):
        parts.add_row(group, f"{value:.2f}")
    console.print(parts)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(milliseconds(*sys.argv[1:]))
    else:
        main()
