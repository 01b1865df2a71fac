"""Tables, figures and the page. They read stored records only."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cadis.report.exports import RESULT_FILES, write_results
    from cadis.report.figures import draw_figures
    from cadis.report.layer import draw_layer, layer_table
    from cadis.report.page.assembly import is_report, is_report_of_others, write_report
    from cadis.report.page.content import page_data
    from cadis.report.page.serving import serving, wait_for_end
    from cadis.report.page.watching import Watched
    from cadis.report.partition import draw_partition, group_table, partition_table
    from cadis.report.study_display import study_progress
    from cadis.report.style import is_picture
    from cadis.report.terminal import (
        loading,
        run_progress,
        show_answer,
        show_tables,
        summary_table,
        summary_text,
        tell,
    )
    from cadis.report.terminal_table import Fitting

_HOMES = {
    "partition_table": "partition",
    "draw_figures": "figures",
    "draw_layer": "layer",
    "draw_partition": "partition",
    "group_table": "partition",
    "Fitting": "terminal_table",
    "is_picture": "style",
    "is_report": "page",
    "is_report_of_others": "page",
    "layer_table": "layer",
    "loading": "terminal",
    "page_data": "page",
    "RESULT_FILES": "exports",
    "run_progress": "terminal",
    "serving": "page",
    "show_answer": "terminal",
    "show_tables": "terminal",
    "study_progress": "study_display",
    "summary_table": "terminal",
    "summary_text": "terminal",
    "tell": "terminal",
    "wait_for_end": "page",
    "Watched": "page",
    "write_report": "page",
    "write_results": "exports",
}

__all__ = [
    "RESULT_FILES",
    "Fitting",
    "Watched",
    "draw_figures",
    "draw_layer",
    "draw_partition",
    "group_table",
    "is_picture",
    "is_report",
    "is_report_of_others",
    "layer_table",
    "loading",
    "page_data",
    "partition_table",
    "run_progress",
    "serving",
    "show_answer",
    "show_tables",
    "study_progress",
    "summary_table",
    "summary_text",
    "tell",
    "wait_for_end",
    "write_report",
    "write_results",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    """Import on first use: a run need not wait for what draws its figures."""
    if name not in _HOMES:
        raise AttributeError(f"module 'cadis.report' has no attribute '{name}'")
    return getattr(import_module(f"cadis.report.{_HOMES[name]}"), name)
