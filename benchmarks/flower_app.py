"""The work of ``benchmarks.peers`` as Flower's quickstart for PyTorch would do it.

A model is made for each message, ``torch.optim.SGD`` steps, Flower's own FedAvg averages, and Ray
gives a CPU to each of two actors. What would only slow it down is left out: data are made once in
each actor and cut into batches without a ``DataLoader``, there is one torch thread, nobody
evaluates on clients, and testing the global model is not counted.
"""

import time
from multiprocessing.connection import Connection

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.server.superlink.fleet.vce.backend.backend import BackendConfig
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.peers import (
    BATCH,
    CLIENTS,
    EPOCHS,
    LR,
    PER_ROUND,
    TEST,
    WORKERS,
    first_model,
    pictures_of,
)

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """A client in a round."""
    torch.set_num_threads(1)
    model = usual_cnn()
    model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    inputs, labels = pictures_of(int(context.node_config["partition-id"]))
    loss = train_plainly(model, inputs, labels)
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(labels)})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)


def usual_cnn() -> nn.Module:
    """The FedAvg CNN as tutorials write it: rectified, then pooled. The same numbers as ours."""
    return nn.Sequential(
        nn.Conv2d(1, 32, kernel_size=5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, kernel_size=5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 7 * 7, 512),
        nn.ReLU(),
        nn.Linear(512, 10),
    )


def train_plainly(model: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    """The loop of every tutorial; the mean loss of a batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    model.train()
    total, steps = torch.zeros(()), 0
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(labels)).split(BATCH):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            total += loss.detach()
            steps += 1
    return float(total) / steps


def server_app(pipe: Connection, rounds: int) -> ServerApp:
    """A server that begins a round whenever it is asked to, and tells how it went."""
    server, started = ServerApp(), 0.0

    def after_round(number: int, arrays: ArrayRecord) -> MetricRecord:
        nonlocal started
        taken = time.perf_counter() - started
        loss = global_loss(arrays)
        pipe.send((taken, loss))
        if number < rounds:
            pipe.recv()
        started = time.perf_counter()
        return MetricRecord({"loss": loss})

    @server.main()
    def serve(grid: Grid, _context: Context) -> None:
        fraction = PER_ROUND / CLIENTS
        strategy = FedAvg(fraction, fraction_evaluate=0.0, min_available_nodes=CLIENTS)
        arrays = ArrayRecord(first_model().state_dict())
        strategy.start(grid, arrays, num_rounds=rounds, evaluate_fn=after_round)

    return server


def global_loss(arrays: ArrayRecord) -> float:
    """Of the global model on the test set."""
    model, (inputs, labels) = first_model(), pictures_of(TEST)
    model.load_state_dict(arrays.to_torch_state_dict())
    with torch.no_grad():
        return float(F.cross_entropy(model(inputs), labels))


def simulate(pipe: Connection, rounds: int) -> None:
    """All rounds, from the beginning to the end."""
    resources: BackendConfig = {
        "client_resources": {"num_cpus": 1},
        "init_args": {"num_cpus": WORKERS},
    }
    run_simulation(server_app(pipe, rounds), app, CLIENTS, backend_config=resources)
