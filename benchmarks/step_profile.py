"""Profile of a training step: ``python -m benchmarks.step_profile`` (two minutes).

Prints milliseconds per step with batch size 8 on one core, each kind in a separate process,
alternating; and the profile of a step of the FedAvg CNN by the torch profiler.
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

from benchmarks.floor import Work, run_plain_steps
from benchmarks.measure import seconds
from benchmarks.pictures import make_random_images
from benchmarks.steps import count_flops
from cadis.algorithm import Algorithm, BaseMethod
from cadis.algorithm.methods import CADIS, FedAvg
from cadis.data import Samples
from cadis.engine.allocator import keep_freed_memory
from cadis.models import FlatModel, cnn, resnet9
from cadis.options import Precision
from cadis.training import LocalSettings, train_client
from cadis.types import Message

MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, int, int], int]] = {
    "FedAvg CNN": (lambda: cnn(1, 28, 28, 10), (1, 28, 28), 160),
    "ResNet-9": (lambda: resnet9(3, 32, 32, 10), (3, 32, 32), 48),
}
"""Function that builds each model, shape of its images, and number of images."""

KINDS = {
    "plain": "a plain loop of torch",
    "returned": "cadis, memory returned after every step",
    "kept": "cadis, as in workers",
    "cadis": "the same with CADIS (a fifth of the teacher's pass per step)",
    "bf16": "the same in bf16",
    "arithmetic": "its arithmetic at the speed of a large matrix product",
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
"""Group of a torch operation, by a part of its name."""


def make_training(kind: str, model: str) -> tuple[Callable[[], None], int]:
    """Return a function that trains, and its number of steps."""
    make, shape, number = MODELS[model]
    module, pictures = make(), make_random_images(number, 0, shape)
    steps = number // 8
    if kind == "plain":
        work = Work(module, *pictures, batch_size=8, learning_rate=0.001)
        return lambda: run_plain_steps(work, steps), steps
    flat, samples = FlatModel(module), Samples(*pictures)
    precision: Precision = "bf16" if kind == "bf16" else "float32"
    epochs = 5 if kind == "cadis" else 1
    method: BaseMethod = CADIS() if kind == "cadis" else FedAvg()
    received, local = (
        Message({"model": flat.copy_state()}),
        LocalSettings(epochs, 8, 0.001, (), precision),
    )
    if kind != "returned":
        keep_freed_memory()

    def train() -> None:
        train_client(received, flat, samples, {}, Algorithm(method), local, 0, 1, 0, 1)

    return train, steps * epochs


def measure_arithmetic(model: str) -> float:
    """Return the milliseconds of the matrix products of a step at the speed of a large product."""
    make, shape, _ = MODELS[model]
    square = torch.randn(1536, 1536)
    fastest = min(seconds(lambda: square @ square) for _ in range(10))
    return 1e3 * 8 * count_flops(make(), shape) * fastest / (2 * 1536**3)


def measure_milliseconds(kind: str, model: str) -> float:
    """Measure the milliseconds of a step in this process."""
    torch.set_num_threads(1)
    if kind == "arithmetic":
        return measure_arithmetic(model)
    train, steps = make_training(kind, model)
    return 1e3 * min(seconds(train) for _ in range(6)) / steps


def measure_in_process(kind: str, model: str) -> float:
    """Measure a step in a new process, since memory settings last for a process."""
    command = [sys.executable, "-m", "benchmarks.step_profile", kind, model]
    return float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def profile_step() -> dict[str, float]:
    """Return the milliseconds of a CNN step by group of operations."""
    torch.set_num_threads(1)
    train, steps = make_training("kept", "FedAvg CNN")
    train()
    elapsed = seconds(train)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        train()
    groups: dict[str, float] = {}
    for event in profiler.key_averages():
        names = (group for part, group in GROUPS.items() if part in event.key)
        if event.key.startswith("aten::") and (group := next(names, None)) is not None:
            groups[group] = groups.get(group, 0) + event.self_cpu_time_total / 1e3 / steps
    groups["everything else, including Python"] = 1e3 * elapsed / steps - sum(groups.values())
    return groups


def main() -> None:
    """Measure all kinds and print the tables."""
    console = Console(width=100)
    table = Table("ms a step", *MODELS, title="Batch 8, one core", title_justify="left")
    for kind, title in KINDS.items():
        values = [median(measure_in_process(kind, model) for _ in range(3)) for model in MODELS]
        table.add_row(title, *(f"{value:.1f}" for value in values))
    console.print(table)
    parts = Table("a step of the FedAvg CNN", "ms", title_justify="left")
    for group, value in sorted(profile_step().items(), key=lambda pair: -pair[1]):
        parts.add_row(group, f"{value:.2f}")
    console.print(parts)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(measure_milliseconds(*sys.argv[1:]))
    else:
        main()
