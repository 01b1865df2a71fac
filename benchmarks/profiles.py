"""A million clients: what CADIS's server does with their class profiles in a round."""

import json
import resource
import subprocess
import sys
import time
from statistics import median

import torch
from torch import Tensor

from benchmarks.measure import Measured
from cadis.algorithm import unit
from cadis.algorithm.methods.cadis import ClientProfiles
from cadis.algorithm.methods.cadis.cluster_participants import group_by_profiles
from cadis.algorithm.methods.cadis.profiles import Table
from cadis.rng import generator_for
from cadis.store import agreement
from cadis.types import TensorState

CLIENTS, PER_ROUND, CLUSTERS, ROUNDS = 1_000_000, 1_000, 5, 150


def profiles_of(clients: Tensor, classes: int, generator: torch.Generator) -> Tensor:
    """Profiles of clients whose number tells their cluster: each has a share of the classes."""
    owned = torch.arange(classes) * CLUSTERS // classes
    clean = torch.where(owned == clients[:, None] % CLUSTERS, 1.0, -1.0 / (CLUSTERS - 1))
    noisy = clean + 0.3 * torch.randn(clean.shape, generator=generator)
    return unit(noisy - noisy.mean(dim=1, keepdim=True))


def everybody(classes: int, generator: torch.Generator) -> ClientProfiles:
    """All clients known, each from one round."""
    mean = torch.empty(CLIENTS, classes, dtype=torch.float16)
    for start in range(0, CLIENTS, 10_000):
        some = torch.arange(start, start + 10_000)
        mean[start : start + 10_000] = profiles_of(some, classes, generator)
    keys, count = torch.arange(CLIENTS), torch.ones(CLIENTS, dtype=torch.int32)
    return ClientProfiles(Table(keys, mean, count))


def serve(classes: int) -> dict[str, float]:
    """Some rounds, and what they cost."""
    torch.set_num_threads(1)
    generator, taken, alike = generator_for(0), [], []
    memory: TensorState = everybody(classes, generator).to_tensors()
    for _ in range(ROUNDS):
        clients = torch.randperm(CLIENTS, generator=generator)[:PER_ROUND]
        profiles, names = profiles_of(clients, classes, generator), clients.tolist()
        started = time.process_time()  # of one thread: what else the machine does counts less
        grouping = group_by_profiles(profiles, names, memory, threshold=None)
        taken.append(time.process_time() - started)
        memory = grouping.memory
        alike.append(agreement((clients % CLUSTERS).tolist(), grouping.labels.tolist()))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    milliseconds = 1000 * median(taken), 1000 * max(taken)
    return dict(
        zip(
            ("ms", "most", "megabytes", "agreement"), (*milliseconds, peak, min(alike)), strict=True
        )
    )


def million_clients(classes: int) -> list[Measured]:
    """Time and memory, in a process of its own, and whether the clusters are right."""
    command = [sys.executable, "-m", "benchmarks.profiles", str(classes)]
    told = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    found: dict[str, float] = json.loads(told)
    name = f"1,000,000 clients, 1,000 a round, {classes} classes"
    note = (
        f"all that CADIS does with profiles; the slowest of {ROUNDS} rounds: {found['most']:.0f} ms"
    )
    return [
        Measured(f"server, {name}", found["ms"], 50, "ms", note),
        Measured(f"memory, {name}", found["megabytes"], 1000, "MB", "the whole process"),
        Measured(f"clusters, {name}", found["agreement"], 0.99, "", "adjusted Rand index", True),
    ]


if __name__ == "__main__":
    print(json.dumps(serve(int(sys.argv[1]))))
