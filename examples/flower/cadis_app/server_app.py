"""The server: any method, kept on disk round by round."""

import logging
import time
from datetime import datetime
from pathlib import Path

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from cadis.analysis import describe_federation, read_results
from cadis.flower.evaluation import server_test
from cadis.flower.strategy import MethodStrategy
from cadis.flower.train_config import local_config
from cadis.report import draw_figures, summary_text
from cadis.store import RunFolder
from cadis_app.task import read_task, server_data

LOGGER = logging.getLogger("flwr")

KEPT = ("dataset", "classes", "shape", "image-size")
"""What must not change when a run is resumed."""

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run a federation from its first round, or from where it stopped."""
    run = context.run_config
    enough = int(run["min-available-nodes"])
    while run["clients"] == "auto" and len(list(grid.get_node_ids())) < enough:
        LOGGER.info("Waiting for %d clients.", enough)
        time.sleep(5)
    task = read_task(run, len(list(grid.get_node_ids())))
    settings, federation = task.config.settings, task.federation
    test = server_data(task, run)
    name = f"{datetime.now():%Y-%m-%d-%H%M%S}-{task.config.method.name}"
    out = Path(str(run["out"] or f"runs/{name}")).expanduser().resolve()
    described = {"classes": list(task.classes), "clients": []}
    if federation is not None and not any(node.name for node in grid.get_nodes()):
        described = describe_federation(federation, len(task.classes))  # named sites may be anyone
    strategy = MethodStrategy(
        **task.config.algorithm.parts(),
        per_round=settings.per_round,
        num_clients=settings.clients,
        min_available_nodes=min(enough, int(settings.clients)),
        min_replies=run["min-replies"],
        fraction_evaluate=run["fraction-evaluate"],
        patience=run["patience"],
        seed=settings.seed,
        head=settings.head or None,
        out=out,
        resume=run["resume"],
        notes={name.replace("-", "_"): run[name] for name in KEPT}
        | {name: getattr(settings, name) for name in ("model", "partition", "client_test")},
        federation=described,
        inputs=task.inputs,
    )
    strategy.start(
        grid,
        ArrayRecord(task.model.state_dict()),
        settings.rounds,
        timeout=float(run["timeout"]),
        train_config=local_config(settings.for_engine().local),
        evaluate_fn=server_test(task.model, test, task.config.algorithm.task) if test else None,
    )
    draw_figures(read_results([out]), out / "figures", pdf=False)
    LOGGER.info("\n%s\nEverything is in %s", summary_text(RunFolder(out)), out)
