"""Figures of runs and studies: one function per figure."""

from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from cadis._io import make_private_folder
from cadis.analysis import Results
from cadis.report.figures import clusters, curves, fairness, models, studies
from cadis.report.partition import draw_federation
from cadis.report.style import figure_style, save_figure
from cadis.rng import use_one_thread

_FIGURES: dict[str, Callable[[Results], Figure | None]] = {
    "accuracy": curves.draw_accuracy,
    "accuracy-time": curves.draw_accuracy_time,
    "accuracy-10-rounds": curves.draw_ten_rounds,
    "accuracy-rare": curves.draw_rare,
    "metrics": curves.draw_metrics,
    "loss": curves.draw_loss,
    "models": models.draw_models,
    "method-report": curves.draw_method_report,
    "federation": draw_federation,
    "similarity": clusters.draw_similarity,
    "clusters": clusters.draw_clusters,
    "flow": clusters.draw_flow,
    "cluster-weights": clusters.draw_cluster_weights,
    "confusion": fairness.draw_confusion,
    "clients": fairness.draw_clients,
    "clients-rounds": fairness.draw_client_rounds,
    "convergence": clusters.draw_convergence,
    "time": studies.draw_time,
    "sweep": studies.draw_sweep,
}
"""Functions by the file name of their figure; a function returns None if there are no data."""


@use_one_thread()
def draw_figures(results: Results, folder: Path, pdf: bool = True) -> list[Path]:
    """Draw all figures that have data.

    Args:
        results: runs to draw.
        folder: folder for the figures; it is created if needed.
        pdf: whether to write PDF files too, which takes longer than all the rest.

    Returns:
        Paths of the PNG files.

    Example:
        >>> results = read_results([Path("runs/compare-digits")])  # doctest: +SKIP
        >>> draw_figures(results, Path("figures"), pdf=False)  # doctest: +SKIP
    """
    make_private_folder(folder)
    paths = []
    for name, draw in _FIGURES.items():
        with figure_style():
            if (drawing := draw(results)) is not None:
                paths.append(save_figure(drawing, folder / name, pdf))
    return paths
