"""What CADIS does between the last update and the new weights."""

import time
from statistics import median

import torch

from benchmarks.measure import Measured
from cadis.core import (
    ClientUpdate,
    Message,
    ModelState,
    SimilarityMatrix,
    generator_for,
    instance_similarity,
)
from cadis.methods import CADIS, ServerRound, ServerState

PER_ROUND, CLUSTERS, HEAD = 10, 5, 512 * 10 + 10


def server(num_clients: int, rounds: int, limit: float, times: int) -> Measured:
    """Milliseconds of ``CADIS.aggregate`` on updates of the head alone, after so many rounds."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(CLUSTERS, HEAD, generator=generator)
    nothing, zero = torch.zeros(0), torch.zeros(0).long()

    def update(client: int) -> ClientUpdate:
        noise = 0.5 * torch.randn(HEAD, generator=generator)
        model = ModelState(centres[client % CLUSTERS] + noise, nothing, zero)
        return ClientUpdate(client, 290, Message({"model": model}))

    def present() -> list[int]:
        return torch.randperm(num_clients, generator=generator)[:PER_ROUND].tolist()

    matrix = SimilarityMatrix()
    for _ in range(rounds):
        clients = present()
        updates = torch.stack([update(client).model.parameters for client in clients])
        matrix = matrix.observe(clients, instance_similarity(updates))
    method = CADIS()
    memory = matrix.estimate_missing(method.gamma, method.transitive).to_tensors()
    sent = ModelState(torch.zeros(HEAD), nothing, zero)
    taken = []
    for number in range(times):
        server_round = ServerRound(number + 1, (slice(0, HEAD),), num_clients, generator_for(0))
        state = ServerState({"model": sent}, memory)
        updates_now = [update(client) for client in present()]
        started = time.perf_counter()
        result = method.aggregate(server_round, updates_now, state)
        taken.append(time.perf_counter() - started)
        memory = dict(result.memory)
    met = (matrix.count > 0).float().mean()
    known = f"{len(matrix.client_ids)} known clients, {met:.0%} of pairs met"
    name = f"server, n = {num_clients:,}, k = {PER_ROUND}"
    return Measured(name, 1000 * median(taken), limit, "ms", known)
