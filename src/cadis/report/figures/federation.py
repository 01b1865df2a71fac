"""Which client has how many samples of which class."""

from pathlib import Path

import torch

from cadis.analysis import Results, RunData
from cadis.experiment import Census
from cadis.report.partition import draw_partition
from cadis.report.style import Place


def draw_federation(results: Results, place: Place) -> Path | None:
    """Clients by classes of the first run; the area of a point is the number of samples."""
    census = census_of(results.runs[0])
    return None if census is None else draw_partition(census, place("federation"))


def census_of(run_data: RunData) -> Census | None:
    """The numbers in ``federation.json``, if the server knows them."""
    clients = run_data.federation["clients"]
    if any(client["samples"] is None for client in clients):
        return None
    true_clusters = list(run_data.true_clusters.values())
    seed = f", seed {run_data.seed}" if "seed" in run_data.options else ""
    return Census(
        title=f"{run_data.options.get('dataset', 'own data')}{seed}",
        classes=tuple(run_data.classes),
        client_ids=tuple(client["id"] for client in clients),
        counts=torch.tensor([client["samples"] for client in clients]),
        true_clusters=None if None in true_clusters else torch.tensor(true_clusters),
        available=0,
        tested=0,
    )
