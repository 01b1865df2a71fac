"""Server of the paper's CADIS: time from updates to weights, memory and files."""

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

from benchmarks.measure import Measurement, seconds
from cadis.algorithm import Aggregation, ServerRound, ServerState
from cadis.algorithm.methods import CADISPaper
from cadis.algorithm.methods.cadis import ObservedPairs
from cadis.rng import derive_generator
from cadis.server import RoundRecord, RunState, Seconds, to_json_array
from cadis.store import Checkpoint, HistoryWriter
from cadis.types import ClientUpdate, Message, ModelState

PER_ROUND, CLUSTERS, HEAD, TIMES = 100, 5, 512 * 10 + 10, 25
NOTHING, ZERO = torch.zeros(0), torch.zeros(0).long()


def make_observed_pairs(num_clients: int, random: np.random.Generator) -> ObservedPairs:
    """Return artificial observations after n / k * ln(n) rounds, when most clients took part."""
    rounds = round(num_clients / PER_ROUND * log(num_clients))
    one, other = np.triu_indices(PER_ROUND, 1)
    met = []
    for _ in range(rounds):
        participants = np.sort(random.choice(num_clients, PER_ROUND, replace=False))
        met.append(participants[other] << 32 | participants[one])
    pair, count = np.unique(np.concatenate(met), return_counts=True)
    same_cluster = (pair >> 32) % CLUSTERS == (pair & (2**32 - 1)) % CLUSTERS
    mean = np.where(same_cluster, 0.85, -0.05) + 0.1 * random.random(len(pair))
    tensors = torch.tensor(pair), torch.tensor(mean).float(), torch.tensor(count).int()
    return ObservedPairs(tuple(range(num_clients)), *tensors)


def make_updates(clients: list[int], random: np.random.Generator) -> list[ClientUpdate]:
    """Return updates of the head that are similar within a cluster."""
    centres = np.random.default_rng(0).standard_normal((CLUSTERS, HEAD), dtype=np.float32)
    noise = 0.5 * random.standard_normal((len(clients), HEAD), dtype=np.float32)
    vectors = torch.tensor(centres[np.array(clients) % CLUSTERS] + noise)
    models = (ModelState(vector.clone(), NOTHING, ZERO) for vector in vectors)
    pairs = zip(clients, models, strict=True)
    return [ClientUpdate(client, 290, Message({"model": model})) for client, model in pairs]


def serve(num_clients: int) -> dict[str, float]:
    """Run some rounds with this number of known clients; return their costs."""
    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    pairs, method = make_observed_pairs(num_clients, random), CADISPaper()
    met = len(pairs.pair) / (num_clients * (num_clients - 1) / 2)
    model = ModelState(torch.zeros(HEAD), NOTHING, ZERO)
    state, cpu_seconds = ServerState({"model": model}, pairs.to_tensors()), []
    del pairs
    participants = [
        random.choice(num_clients, PER_ROUND, replace=False).tolist() for _ in range(TIMES)
    ]
    rounds = [make_updates(clients, random) for clients in participants]
    for number, updates in enumerate(rounds, start=1):
        server_round = ServerRound(number, (slice(0, HEAD),), num_clients, derive_generator(0))
        started = time.process_time()  # CPU time depends less on the load of the machine
        result = method.aggregate(server_round, updates, state)
        cpu_seconds.append(time.process_time() - started)
        state = ServerState({"model": model}, result.tensors)
    files = save_round(RunState(TIMES, state), participants[-1], result)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    return {"ms": 1000 * median(cpu_seconds), "met": met, "megabytes": peak, **files}


def save_round(state: RunState, clients: list[int], result: Aggregation) -> dict[str, float]:
    """Save a round; return the milliseconds and the sizes of its files."""
    record = RoundRecord(
        round=state.round,
        accuracy=0.9,
        loss=0.1,
        class_accuracy=[0.9] * 10,
        participants=list(clients),
        weights=result.weights.tolist(),
        rejected=[],
        seconds=Seconds(1.0, 0.1, 0.1, 1.0),
        report={name: to_json_array(array) for name, array in result.report.items()},
        client_loss=[0.1] * len(clients),
    )
    with tempfile.TemporaryDirectory() as temporary:
        folder, history = Path(temporary), Path(temporary) / "history.jsonl"
        checkpoint, writer = Checkpoint(folder), HistoryWriter(history)
        checkpoint.client_folder.mkdir(parents=True)

        def store() -> None:
            checkpoint.save_state(state)
            writer.append(record)

        spent = seconds(store)
        stored = folder / f"round-{state.round}.safetensors"
        sizes = stored.stat().st_size, history.stat().st_size
    return {"keeping": 1000 * spent, "checkpoint": sizes[0] / 1e6, "line": sizes[1] / 1e3}


def measure_in_process(num_clients: int) -> dict[str, float]:
    """Measure the server in a separate process, to get its memory."""
    command = [sys.executable, "-m", "benchmarks.server", str(num_clients)]
    output = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    result: dict[str, float] = json.loads(output)
    return result


def measure_server(num_clients: int, limit: float) -> Measurement:
    """Measure the milliseconds of ``CADISPaper.aggregate`` on updates of the head."""
    result = measure_in_process(num_clients)
    name = f"server, n = {num_clients:,}, k = {PER_ROUND}"
    note = f"all clients known, {result['met']:.0%} of pairs met"
    return Measurement(name, result["ms"], limit, "ms", note)


def measure_large_server(limit: float) -> list[Measurement]:
    """Measure the server with 10,000 clients: time, memory and files of a round."""
    result, known = measure_in_process(10_000), f"n = 10,000, k = {PER_ROUND}"
    note = f"all clients known, {result['met']:.0%} of pairs met"
    return [
        Measurement(f"server, {known}", result["ms"], limit, "ms", note),
        Measurement("memory of that server", result["megabytes"], 1500, "MB", "the whole process"),
        Measurement(
            "its checkpoint of a round",
            result["checkpoint"],
            100,
            "MB",
            f"16 bytes a pair that met; stored in {result['keeping']:.0f} ms",
        ),
        Measurement("its line of history", result["line"], 40, "kB", "with k x k similarities"),
    ]


if __name__ == "__main__":
    print(json.dumps(serve(int(sys.argv[1]))))
