"""What becoming one costs ten models: time against reading them, and against Flower's FedAvg.

Times are those of the processor, and torch has one thread, as numpy has, by which Flower averages.
"""

import gc
import logging
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import cast

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Strategy
from flwr.supercore.task_identity import TaskIdentity
from torch import nn

from benchmarks.measure import Measured
from cadis.algorithm import mean_state
from cadis.flower.strategy import MethodStrategy
from cadis.types import ModelState

MODELS, NUMBERS = 10, 25_000_000
WIDTHS = {100: 518, 10: 164}
"""By megabytes, how wide the layers of a model of this size are."""


def processor_ratio(
    action: Callable[[], object], reference: Callable[[], object], times: int
) -> float:
    """Seconds of the processor, one / the other: the median of pairs one after the other."""

    def seconds(work: Callable[[], object]) -> float:
        started = time.process_time()
        work()
        return time.process_time() - started

    pairs = [(seconds(action), seconds(reference)) for _ in range(times + 1)][1:]
    return median(one / other for one, other in pairs)


def mean_of_models(times: int) -> Measured:
    """The mean of ten models of 100 MB / summing the numbers of each."""
    torch.set_num_threads(1)
    nothing = torch.zeros(0)
    models = [ModelState(torch.randn(NUMBERS), nothing, nothing.long()) for _ in range(MODELS)]
    weights = torch.full((MODELS,), 1 / MODELS, dtype=torch.float64)
    value = processor_ratio(
        lambda: mean_state(models, weights),
        lambda: [model.parameters.sum() for model in models],
        times,
    )
    name = "mean of 10 models of 100 MB / reading them"
    return Measured(name, value, 1.2, note="a sum over each; new memory for the mean included")


def network(width: int) -> nn.Module:
    """Convolutions with batch norm and linear layers, of about as many numbers each."""
    convolutions = [
        layer
        for _ in range(5)
        for layer in (nn.Conv2d(width, width, 3), nn.BatchNorm2d(width), nn.ReLU())
    ]
    linear = [layer for _ in range(3) for layer in (nn.Linear(4 * width, 4 * width), nn.ReLU())]
    return nn.Sequential(*convolutions, nn.Flatten(), *linear, nn.Linear(4 * width, 10))


class Nodes:
    """What a strategy asks of Flower's grid when all of ten nodes have names."""

    def get_nodes(self) -> list[NodeInfo]:
        """All nodes."""
        return [NodeInfo(node_id=n + 1, name=f"site-{n}") for n in range(MODELS)]


def asked(method: str, megabytes: int) -> tuple[Strategy, list[Message]]:
    """A strategy that has asked ten nodes, and their replies, each a model of its own."""
    torch.set_num_threads(1)
    logging.getLogger("flwr").setLevel(logging.ERROR)
    TaskIdentity.task_id, TaskIdentity.run_id = 1, 1  # messages are written in its name
    TaskIdentity.node_id = SUPERLINK_NODE_ID
    model = network(WIDTHS[megabytes])
    strategy = MethodStrategy(method, seed=1)
    arrays = ArrayRecord(model.state_dict())
    messages = list(strategy.configure_train(1, arrays, ConfigRecord(), cast(Grid, Nodes())))
    replies = []
    for number, message in enumerate(messages):
        message.metadata.__dict__["_message_id"] = f"message-{number}"
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.uniform_(-0.1, 0.1)
        metrics = MetricRecord({"num-examples": 100 + number, "train_loss": 1.0})
        content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
        replies.append(Message(content, reply_to=message))
    return strategy, replies


def flower_time(method: str, megabytes: int, times: int) -> Measured:
    """Our strategy's ``aggregate_train`` / Flower's FedAvg's, on the same replies."""
    ours, replies = asked(method, megabytes)
    theirs = FedAvg()
    value = processor_ratio(
        lambda: ours.aggregate_train(1, replies),
        lambda: theirs.aggregate_train(1, replies),
        times,
    )
    name = f"10 replies of {megabytes} MB, {method} / Flower's FedAvg"
    return Measured(name, value, 1.5, note="time of the processor")


def flower_memory(method: str) -> Measured:
    """What our strategy's ``aggregate_train`` takes at its peak / size of the model."""

    def measured(whose: str) -> float:
        command = [sys.executable, "-m", "benchmarks.aggregation", method, whose]
        return float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)

    name = f"10 replies of 100 MB, {method}: memory / model"
    note = f"besides the replies; Flower's FedAvg: {measured('theirs'):.2f}"
    return Measured(name, measured("ours"), 3, note=note)


def peak_in_models(method: str, whose: str) -> float:
    """The peak of memory while ten replies of 100 MB are aggregated, in models, Linux only."""
    ours, replies = asked(method, 100)
    strategy = FedAvg() if whose == "theirs" else ours
    size = replies[0].content.array_records["arrays"].count_bytes()
    gc.collect()
    before = _kilobytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from now on
    strategy.aggregate_train(1, replies)
    return (_kilobytes("VmHWM") - before) * 2**10 / size


def _kilobytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    print(peak_in_models(*sys.argv[1:]))
