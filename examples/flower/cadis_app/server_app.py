"""ServerApp: run any method of cadis, and save each round on disk."""

import logging
import time
from datetime import datetime
from pathlib import Path

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from cadis.analysis import describe_federation, read_results
from cadis.flower.evaluation import server_test
from cadis.flower.strategy import MethodStrategy
from cadis.flower.train_config import make_local_config
from cadis.report import draw_figures, format_summary
from cadis.store import RunFolder
from cadis_app.task import load_run_setup, load_server_data

LOGGER = logging.getLogger("flwr")

FIXED_OPTIONS = ("dataset", "classes", "shape", "image-size")
"""Options that must be the same when a run is resumed."""

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run all rounds, or resume an interrupted run."""
    run_config = context.run_config
    min_nodes = int(run_config["min-available-nodes"])
    while run_config["clients"] == "auto" and len(list(grid.get_node_ids())) < min_nodes:
        LOGGER.info("Waiting for %d nodes to connect", min_nodes)
        time.sleep(5)
    setup = load_run_setup(run_config, len(list(grid.get_node_ids())))
    settings, federation = setup.config.settings, setup.federation
    test = load_server_data(setup, run_config)
    name = f"{datetime.now():%Y-%m-%d-%H%M%S}-{setup.config.method.name}"
    out = Path(str(run_config["out"] or f"runs/{name}")).expanduser().resolve()
    description = {"classes": list(setup.classes), "clients": []}
    # If sites are registered with names, the server does not know the data of each site.
    if federation is not None and not any(node.name for node in grid.get_nodes()):
        description = describe_federation(federation, len(setup.classes))
    strategy = MethodStrategy(
        **vars(setup.config.algorithm),
        per_round=settings.per_round,
        num_clients=settings.clients,
        min_available_nodes=min(min_nodes, int(settings.clients)),
        min_replies=run_config["min-replies"],
        count_limit=run_config["count-limit"],
        fraction_evaluate=run_config["fraction-evaluate"],
        patience=run_config["patience"],
        seed=settings.seed,
        head=settings.head or None,
        out=out,
        resume=run_config["resume"],
        profiles=settings.profiles,
        notes={name.replace("-", "_"): run_config[name] for name in FIXED_OPTIONS}
        | {name: getattr(settings, name) for name in ("model", "partition", "client_test")},
        federation=description,
        inputs=setup.inputs,
    )
    strategy.start(
        grid,
        ArrayRecord(setup.model.state_dict()),
        settings.rounds,
        timeout=float(run_config["timeout"]),
        train_config=make_local_config(settings.to_engine_settings().local),
        evaluate_fn=server_test(setup.model, test, setup.config.algorithm.task) if test else None,
    )
    draw_figures(read_results([out]), out / "figures", pdf=False)
    LOGGER.info("\n%s\nResults are in %s", format_summary(RunFolder(out)), out)
