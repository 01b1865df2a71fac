"""Server of CADIS with a million clients: time and memory of the class profiles."""

import json
import resource
import subprocess
import sys
import time
from statistics import median

import torch
from torch import Tensor

from benchmarks.measure import Measurement
from cadis.algorithm import normalize
from cadis.algorithm.methods.cadis import ClientProfiles
from cadis.algorithm.methods.cadis.cluster_participants import cluster_by_profiles
from cadis.algorithm.methods.cadis.profiles import ProfileTable
from cadis.rng import derive_generator
from cadis.store import adjusted_rand_index
from cadis.types import TensorState

CLIENTS, PER_ROUND, CLUSTERS, ROUNDS = 1_000_000, 1_000, 5, 150


def make_profiles(clients: Tensor, classes: int, generator: torch.Generator) -> Tensor:
    """Return profiles, (clients, classes); each cluster has its own classes."""
    cluster_of_class = torch.arange(classes) * CLUSTERS // classes
    clean = torch.where(cluster_of_class == clients[:, None] % CLUSTERS, 1.0, -1.0 / (CLUSTERS - 1))
    noisy = clean + 0.3 * torch.randn(clean.shape, generator=generator)
    return normalize(noisy - noisy.mean(dim=1, keepdim=True))


def make_all_profiles(classes: int, generator: torch.Generator) -> ClientProfiles:
    """Return profiles of all clients, each from one round."""
    mean = torch.empty(CLIENTS, classes, dtype=torch.float16)
    for start in range(0, CLIENTS, 10_000):
        some = torch.arange(start, start + 10_000)
        mean[start : start + 10_000] = make_profiles(some, classes, generator)
    keys, count = torch.arange(CLIENTS), torch.ones(CLIENTS, dtype=torch.int32)
    return ClientProfiles(ProfileTable(keys, mean, count))


def serve(classes: int) -> dict[str, float]:
    """Run some rounds; return time, memory and agreement with the true clusters."""
    torch.set_num_threads(1)
    generator, taken, agreements = derive_generator(0), [], []
    tensors: TensorState = make_all_profiles(classes, generator).to_tensors()
    for _ in range(ROUNDS):
        clients = torch.randperm(CLIENTS, generator=generator)[:PER_ROUND]
        profiles, names = make_profiles(clients, classes, generator), clients.tolist()
        started = time.process_time()  # CPU time depends less on the load of the machine
        grouping = cluster_by_profiles(profiles, names, tensors, threshold=None)
        taken.append(time.process_time() - started)
        tensors = grouping.tensors
        agreements.append(
            adjusted_rand_index((clients % CLUSTERS).tolist(), grouping.labels.tolist())
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    milliseconds = 1000 * median(taken), 1000 * max(taken)
    return dict(
        zip(
            ("ms", "most", "megabytes", "agreement"),
            (*milliseconds, peak, min(agreements)),
            strict=True,
        )
    )


def measure_million_clients(classes: int) -> list[Measurement]:
    """Measure time and memory in a separate process, and whether the clusters are correct."""
    command = [sys.executable, "-m", "benchmarks.profiles", str(classes)]
    output = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    found: dict[str, float] = json.loads(output)
    name = f"1,000,000 clients, 1,000 a round, {classes} classes"
    note = (
        f"all that CADIS does with profiles; the slowest of {ROUNDS} rounds: {found['most']:.0f} ms"
    )
    return [
        Measurement(f"server, {name}", found["ms"], 50, "ms", note),
        Measurement(f"memory, {name}", found["megabytes"], 1000, "MB", "the whole process"),
        Measurement(f"clusters, {name}", found["agreement"], 0.99, "", "adjusted Rand index", True),
    ]


if __name__ == "__main__":
    print(json.dumps(serve(int(sys.argv[1]))))
