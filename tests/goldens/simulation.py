"""Federations in Flower's simulation; ``python -m goldens.simulation FOLDER`` writes their runs."""

import sys
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.server.superlink.fleet.vce.backend.backend import BackendConfig
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from cadis import flower
from goldens.inputs import build_model, make_clients, make_test_set

STRATEGIES = {"cadis": "CADIS", "feddyn": "FedDyn", "scaffold": "SCAFFOLD"}
"""Class of the strategy in ``cadis.flower``, by the name of the run."""

_CLIENTS = 6


def main(folder: Path) -> None:
    """Run one simulation, and in it one federation for each strategy."""
    server = ServerApp()

    @server.main()
    def serve(grid: Grid, _context: Context) -> None:
        for name, strategy_class in STRATEGIES.items():
            strategy = getattr(flower, strategy_class)(
                per_round=4, num_clients=_CLIENTS, seed=7, out=folder / name, fraction_evaluate=1.0
            )
            strategy.start(
                grid,
                ArrayRecord(build_model().state_dict()),
                3,
                train_config=ConfigRecord({"epochs": 1, "batch-size": 8, "lr": 0.05}),
                evaluate_fn=flower.server_test(build_model(), make_test_set()),
            )

    resources: BackendConfig = {"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": 2}}
    run_simulation(server, client_app(), _CLIENTS, backend_config=resources)


def client_app() -> ClientApp:
    """Return the clients, each of which has the data of its partition id."""
    app = ClientApp()
    app.query()(flower.introduce)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        data = make_clients(_CLIENTS)[int(context.node_config["partition-id"])]
        content = flower.local_train(build_model(), data, message.content)
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        data = make_clients(_CLIENTS)[int(context.node_config["partition-id"])]
        content = flower.local_evaluate(build_model(), data, message.content)
        return Message(content, reply_to=message)

    return app


if __name__ == "__main__":
    main(Path(sys.argv[1]))
