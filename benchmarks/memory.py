"""Does memory grow with clients times model size? It must not."""

import resource
import subprocess
import sys

import torch

import cadis
from benchmarks.measure import Measured
from cadis.algorithm.methods import METHODS
from cadis.models import cnn

FEW, MANY, ROUNDS = 50, 250, 25
"""In so many rounds everybody of the many takes part about once."""

MODEL_MEGABYTES = 4 * 1_663_370 / 2**20


def peak(num_clients: int, method: str) -> float:
    """Peak megabytes of this process and its largest worker, after a few rounds."""
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
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(resource.getrusage(who).ru_maxrss for who in whose) / 2**10


def memory(method: str) -> Measured:
    """Memory for a further client / size of the model."""

    def measured(number: int) -> float:
        command = [sys.executable, "-m", "benchmarks.memory", str(number), method]
        return float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)

    value = (measured(MANY) - measured(FEW)) / (MANY - FEW) / MODEL_MEGABYTES
    note = f"{FEW} against {MANY} clients, {ROUNDS} rounds"
    return Measured(f"memory a client / model, {method}", value, 0.05, note=note)


if __name__ == "__main__":
    print(peak(int(sys.argv[1]), sys.argv[2]))
