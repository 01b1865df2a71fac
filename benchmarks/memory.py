"""Growth of memory with the number of clients, relative to the size of the model."""

import resource
import subprocess
import sys

import torch

import cadis
from benchmarks.measure import Measurement
from cadis.algorithm.methods import METHODS
from cadis.models import cnn

FEW, MANY, ROUNDS = 50, 250, 25
"""Numbers of clients, and of rounds in which each of the many takes part about once."""

MODEL_MEGABYTES = 4 * 1_663_370 / 2**20


def compute_peak(num_clients: int, method: str) -> float:
    """Return the peak megabytes of this process and its largest worker."""
    generator = torch.Generator().manual_seed(0)
    clients = [
        (torch.randn(2, 1, 28, 28, generator=generator), torch.tensor([0, 1]))
        for _ in range(num_clients)
    ]
    cadis.run(
        cnn(1, 28, 28, 10),
        clients,
        clients[0],
        rounds=ROUNDS,
        per_round=10,
        method=METHODS[method](),
        epochs=1,
        lr=0.001,
        workers=2,
        device="cpu",
    )
    processes = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(resource.getrusage(which).ru_maxrss for which in processes) / 2**10


def measure_memory(method: str) -> Measurement:
    """Measure the memory per additional client relative to the size of the model."""

    def measure_peak(number: int) -> float:
        command = [sys.executable, "-m", "benchmarks.memory", str(number), method]
        return float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)

    value = (measure_peak(MANY) - measure_peak(FEW)) / (MANY - FEW) / MODEL_MEGABYTES
    note = f"{FEW} against {MANY} clients, {ROUNDS} rounds"
    return Measurement(f"memory a client / model, {method}", value, 0.05, note=note)


if __name__ == "__main__":
    print(compute_peak(int(sys.argv[1]), sys.argv[2]))
