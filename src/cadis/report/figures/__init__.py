"""The pictures of runs and studies: one function a figure."""

from pathlib import Path

from cadis.analysis import Results
from cadis.report.figures.cluster_weights import draw_cluster_weights
from cadis.report.figures.clusters import (
    draw_clusters,
    draw_convergence,
    draw_flow,
    draw_similarity,
)
from cadis.report.figures.curves import (
    draw_accuracy,
    draw_accuracy_time,
    draw_loss,
    draw_measures,
    draw_method_report,
    draw_rare,
    draw_ten_rounds,
)
from cadis.report.figures.fairness import draw_client_rounds, draw_clients, draw_confusion
from cadis.report.figures.models import draw_models
from cadis.report.figures.studies import draw_sweep, draw_time
from cadis.report.partition import draw_federation
from cadis.rng import one_thread

_FIGURES = (
    draw_accuracy,
    draw_accuracy_time,
    draw_ten_rounds,
    draw_rare,
    draw_measures,
    draw_loss,
    draw_models,
    draw_method_report,
    draw_federation,
    draw_similarity,
    draw_clusters,
    draw_flow,
    draw_cluster_weights,
    draw_confusion,
    draw_clients,
    draw_client_rounds,
    draw_convergence,
    draw_time,
    draw_sweep,
)


@one_thread()
def draw_figures(results: Results, folder: Path, pdf: bool = True) -> list[Path]:
    """Draw all that there is to see.

    Args:
        results: what to draw.
        folder: where.
        pdf: as PDF too; that takes longer than all the rest.

    Returns:
        The PNGs.
    """
    folder.mkdir(parents=True, exist_ok=True)

    def place(name: str) -> Path:
        return folder / (name if pdf else f"{name}.png")

    return [path for draw in _FIGURES if (path := draw(results, place)) is not None]
