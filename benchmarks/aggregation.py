"""Aggregation of ten models relative to reading them and to Flower's FedAvg.

Times are CPU times. torch has one thread, like numpy, which Flower uses.
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

from benchmarks.measure import Measurement
from cadis.algorithm import average_models
from cadis.flower.strategy import MethodStrategy
from cadis.types import ModelState

MODELS, NUMBERS = 10, 25_000_000
WIDTHS = {100: 518, 10: 164}
"""Width of the layers, by the size of the model in megabytes."""


def measure_cpu_ratio(
    action: Callable[[], object], reference: Callable[[], object], times: int
) -> float:
    """Return the median ratio of CPU seconds of two actions, alternating."""

    def seconds(work: Callable[[], object]) -> float:
        started = time.process_time()
        work()
        return time.process_time() - started

    pairs = [(seconds(action), seconds(reference)) for _ in range(times + 1)][1:]
    return median(one / other for one, other in pairs)


def measure_mean_of_models(times: int) -> Measurement:
    """Measure the mean of ten models of 100 MB relative to summing the parameters of each."""
    torch.set_num_threads(1)
    nothing = torch.zeros(0)
    models = [ModelState(torch.randn(NUMBERS), nothing, nothing.long()) for _ in range(MODELS)]
    weights = torch.full((MODELS,), 1 / MODELS, dtype=torch.float64)
    value = measure_cpu_ratio(
        lambda: average_models(models, weights),
        lambda: [model.parameters.sum() for model in models],
        times,
    )
    name = "mean of 10 models of 100 MB / reading them"
    return Measurement(name, value, 1.2, note="a sum over each; new memory for the mean included")


def network(width: int) -> nn.Module:
    """Return a network of convolutions with batch norm and linear layers."""
    convolutions = [
        layer
        for _ in range(5)
        for layer in (nn.Conv2d(width, width, 3), nn.BatchNorm2d(width), nn.ReLU())
    ]
    linear = [layer for _ in range(3) for layer in (nn.Linear(4 * width, 4 * width), nn.ReLU())]
    return nn.Sequential(*convolutions, nn.Flatten(), *linear, nn.Linear(4 * width, 10))


class Nodes:
    """Stand-in for Flower's grid with ten named nodes."""

    def get_nodes(self) -> list[NodeInfo]:
        """Return all nodes."""
        return [NodeInfo(node_id=n + 1, name=f"site-{n}") for n in range(MODELS)]


def make_strategy_and_replies(method: str, megabytes: int) -> tuple[Strategy, list[Message]]:
    """Return a strategy after ``configure_train``, and ten replies with different models."""
    torch.set_num_threads(1)
    logging.getLogger("flwr").setLevel(logging.ERROR)
    TaskIdentity.task_id, TaskIdentity.run_id = 1, 1  # identity of the sender of messages
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


def measure_flower_time(method: str, megabytes: int, times: int) -> Measurement:
    """Measure ``aggregate_train`` of cadis relative to Flower's FedAvg, on the same replies."""
    ours, replies = make_strategy_and_replies(method, megabytes)
    theirs = FedAvg()
    value = measure_cpu_ratio(
        lambda: ours.aggregate_train(1, replies),
        lambda: theirs.aggregate_train(1, replies),
        times,
    )
    name = f"10 replies of {megabytes} MB, {method} / Flower's FedAvg"
    return Measurement(name, value, 1.5, note="time of the processor")


def measure_flower_memory(method: str) -> Measurement:
    """Measure the peak memory of ``aggregate_train`` relative to the size of the model."""

    def measure_in_process(side: str) -> float:
        command = [sys.executable, "-m", "benchmarks.aggregation", method, side]
        return float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)

    name = f"10 replies of 100 MB, {method}: memory / model"
    note = f"besides the replies; Flower's FedAvg: {measure_in_process('theirs'):.2f}"
    return Measurement(name, measure_in_process("ours"), 3, note=note)


def measure_peak_in_models(method: str, side: str) -> float:
    """Return the peak memory of aggregating ten replies, in models of 100 MB; Linux only."""
    ours, replies = make_strategy_and_replies(method, 100)
    strategy = FedAvg() if side == "theirs" else ours
    size = replies[0].content.array_records["arrays"].count_bytes()
    gc.collect()
    before = _kilobytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    strategy.aggregate_train(1, replies)
    return (_kilobytes("VmHWM") - before) * 2**10 / size


def _kilobytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    print(measure_peak_in_models(*sys.argv[1:]))
