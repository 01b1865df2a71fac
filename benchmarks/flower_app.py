"""The work of ``benchmarks.peers`` in the style of Flower's quickstart for PyTorch.

A model is built for each message, ``torch.optim.SGD`` trains it, Flower's FedAvg aggregates, and
Ray gives one CPU to each of two actors. To be fair, avoidable costs are left out: data are created
once per actor and split into batches without a ``DataLoader``, torch has one thread, clients are
not evaluated, and the test of the global model is not counted.
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
    build_initial_model,
    make_client_images,
)

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train a client in a round."""
    torch.set_num_threads(1)
    model = build_cnn()
    model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    inputs, labels = make_client_images(int(context.node_config["partition-id"]))
    loss = train_locally(model, inputs, labels)
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(labels)})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)


def build_cnn() -> nn.Module:
    """Return the FedAvg CNN as tutorials write it, with the same parameters as that of cadis."""
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


def train_locally(model: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    """Train with a plain loop; return the mean loss of a batch."""
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


def build_server_app(pipe: Connection, rounds: int) -> ServerApp:
    """Return a server that runs one round per request and sends back its time and loss."""
    server, started = ServerApp(), 0.0

    def after_round(number: int, arrays: ArrayRecord) -> MetricRecord:
        nonlocal started
        taken = time.perf_counter() - started
        loss = compute_global_loss(arrays)
        pipe.send((taken, loss))
        if number < rounds:
            pipe.recv()
        started = time.perf_counter()
        return MetricRecord({"loss": loss})

    @server.main()
    def serve(grid: Grid, _context: Context) -> None:
        fraction = PER_ROUND / CLIENTS
        strategy = FedAvg(fraction, fraction_evaluate=0.0, min_available_nodes=CLIENTS)
        arrays = ArrayRecord(build_initial_model().state_dict())
        strategy.start(grid, arrays, num_rounds=rounds, evaluate_fn=after_round)

    return server


def compute_global_loss(arrays: ArrayRecord) -> float:
    """Return the loss of the global model on the test set."""
    model, (inputs, labels) = build_initial_model(), make_client_images(TEST)
    model.load_state_dict(arrays.to_torch_state_dict())
    with torch.no_grad():
        return float(F.cross_entropy(model(inputs), labels))


def simulate(pipe: Connection, rounds: int) -> None:
    """Run all rounds."""
    resources: BackendConfig = {
        "client_resources": {"num_cpus": 1},
        "init_args": {"num_cpus": WORKERS},
    }
    run_simulation(build_server_app(pipe, rounds), app, CLIENTS, backend_config=resources)
