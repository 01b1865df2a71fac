"""The pictures of runs and studies: one function a figure."""

from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from cadis.analysis import Results
from cadis.report.figures import clusters, curves, fairness, studies
from cadis.report.partition import draw_federation
from cadis.report.style import figure_style, save_figure
from cadis.rng import one_thread

_FIGURES: dict[str, Callable[[Results], Figure | None]] = {
    "accuracy": curves.draw_accuracy,
    "accuracy-time": curves.draw_accuracy_time,
    "accuracy-10-rounds": curves.draw_ten_rounds,
    "accuracy-rare": curves.draw_rare,
    "measures": curves.draw_measures,
    "loss": curves.draw_loss,
    "models": curves.draw_models,
    "method-report": curves.draw_method_report,
    "federation": draw_federation,
    "similarity": clusters.draw_similarity,
    "clusters": clusters.draw_clusters,
    "flow": clusters.draw_flow,
    "voice": clusters.draw_cluster_weights,
    "confusion": fairness.draw_confusion,
    "clients": fairness.draw_clients,
    "clients-rounds": fairness.draw_client_rounds,
    "convergence": clusters.draw_convergence,
    "time": studies.draw_time,
    "sweep": studies.draw_sweep,
}
"""By the names of their files; a function returns None where there is nothing to see."""


@one_thread()
def draw_figures(results: Results, folder: Path, pdf: bool = True) -> list[Path]:
    """Draw all that there is to see into a folder, and return the PNGs.

    Drawing them as PDF too takes longer than all the rest.
    """
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for name, draw in _FIGURES.items():
        with figure_style():
            if (drawing := draw(results)) is not None:
                drawn.append(save_figure(drawing, folder / name, pdf))
    return drawn
