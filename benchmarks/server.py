"""What the paper's CADIS does on the server between updates and weights, and what is kept."""

import json
import resource
import subprocess
import sys
import tempfile
import time
from math import log
from pathlib import Path
from statistics import median

import numpy as np
import torch

from benchmarks.measure import Measured, seconds
from cadis.algorithm import Aggregation, ServerRound, ServerState
from cadis.algorithm.methods import CADISPaper
from cadis.algorithm.methods.cadis import ObservedPairs
from cadis.rng import generator_for
from cadis.server import RoundRecord, RunState, Seconds, numbers
from cadis.store import Checkpoint, HistoryWriter
from cadis.types import ClientUpdate, Message, ModelState

PER_ROUND, CLUSTERS, HEAD, TIMES = 100, 5, 512 * 10 + 10, 25
NOTHING, ZERO = torch.zeros(0), torch.zeros(0).long()


def observed(num_clients: int, random: np.random.Generator) -> ObservedPairs:
    """What is known when about everybody has taken part, made at once: n / k * ln(n) rounds."""
    rounds = round(num_clients / PER_ROUND * log(num_clients))
    one, other = np.triu_indices(PER_ROUND, 1)
    met = []
    for _ in range(rounds):
        present = np.sort(random.choice(num_clients, PER_ROUND, replace=False))
        met.append(present[other] << 32 | present[one])
    pair, count = np.unique(np.concatenate(met), return_counts=True)
    alike = (pair >> 32) % CLUSTERS == (pair & (2**32 - 1)) % CLUSTERS
    mean = np.where(alike, 0.85, -0.05) + 0.1 * random.random(len(pair))
    tensors = torch.tensor(pair), torch.tensor(mean).float(), torch.tensor(count).int()
    return ObservedPairs(tuple(range(num_clients)), *tensors)


def updates_of(clients: list[int], random: np.random.Generator) -> list[ClientUpdate]:
    """Updates of the head alone, which are alike in a cluster."""
    centres = np.random.default_rng(0).standard_normal((CLUSTERS, HEAD), dtype=np.float32)
    noise = 0.5 * random.standard_normal((len(clients), HEAD), dtype=np.float32)
    vectors = torch.tensor(centres[np.array(clients) % CLUSTERS] + noise)
    models = (ModelState(vector.clone(), NOTHING, ZERO) for vector in vectors)
    pairs = zip(clients, models, strict=True)
    return [ClientUpdate(client, 290, Message({"model": model})) for client, model in pairs]


def serve(num_clients: int) -> dict[str, float]:
    """Some rounds with so many known clients, and what they cost."""
    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    pairs, method = observed(num_clients, random), CADISPaper()
    met = len(pairs.pair) / (num_clients * (num_clients - 1) / 2)
    sent = ModelState(torch.zeros(HEAD), NOTHING, ZERO)
    state, taken = ServerState({"model": sent}, pairs.to_tensors()), []
    del pairs
    present = [random.choice(num_clients, PER_ROUND, replace=False).tolist() for _ in range(TIMES)]
    received = [updates_of(clients, random) for clients in present]
    for number, updates in enumerate(received, start=1):
        server_round = ServerRound(number, (slice(0, HEAD),), num_clients, generator_for(0))
        started = time.process_time()  # of one thread: what else the machine does counts less
        result = method.aggregate(server_round, updates, state)
        taken.append(time.process_time() - started)
        state = ServerState({"model": sent}, result.memory)
    kept = keep(RunState(TIMES, state), present[-1], result)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    return {"ms": 1000 * median(taken), "met": met, "megabytes": peak, **kept}


def keep(state: RunState, clients: list[int], result: Aggregation) -> dict[str, float]:
    """What a round leaves on the disk, and how long that takes."""
    record = RoundRecord(
        round=state.round,
        accuracy=0.9,
        loss=0.1,
        class_accuracy=[0.9] * 10,
        participants=list(clients),
        weights=result.weights.tolist(),
        rejected=[],
        seconds=Seconds(1.0, 0.1, 0.1, 1.0),
        report={name: numbers(array) for name, array in result.report.items()},
        client_loss=[0.1] * len(clients),
    )
    with tempfile.TemporaryDirectory() as place:
        folder, history = Path(place), Path(place) / "history.jsonl"
        checkpoint, writer = Checkpoint(folder), HistoryWriter(history)
        checkpoint.client_folder.mkdir(parents=True)

        def store() -> None:
            checkpoint.save_state(state)
            writer.append(record)

        spent = seconds(store)
        stored = folder / f"round-{state.round}.safetensors"
        sizes = stored.stat().st_size, history.stat().st_size
    return {"keeping": 1000 * spent, "checkpoint": sizes[0] / 1e6, "line": sizes[1] / 1e3}


def measured(num_clients: int) -> dict[str, float]:
    """The same in a process of its own, whose memory is nothing but that."""
    command = [sys.executable, "-m", "benchmarks.server", str(num_clients)]
    told = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    found: dict[str, float] = json.loads(told)
    return found


def server(num_clients: int, limit: float) -> Measured:
    """Milliseconds of ``CADISPaper.aggregate`` on updates of the head alone."""
    found = measured(num_clients)
    name = f"server, n = {num_clients:,}, k = {PER_ROUND}"
    note = f"all clients known, {found['met']:.0%} of pairs met"
    return Measured(name, found["ms"], limit, "ms", note)


def large_server(limit: float) -> list[Measured]:
    """The same of 10,000 clients, with the memory that it takes and what it keeps of a round."""
    found, known = measured(10_000), f"n = 10,000, k = {PER_ROUND}"
    note = f"all clients known, {found['met']:.0%} of pairs met"
    return [
        Measured(f"server, {known}", found["ms"], limit, "ms", note),
        Measured("memory of that server", found["megabytes"], 1500, "MB", "the whole process"),
        Measured(
            "its checkpoint of a round",
            found["checkpoint"],
            100,
            "MB",
            f"16 bytes a pair that met; stored in {found['keeping']:.0f} ms",
        ),
        Measured("its line of history", found["line"], 40, "kB", "with k x k similarities"),
    ]


if __name__ == "__main__":
    print(json.dumps(serve(int(sys.argv[1]))))
