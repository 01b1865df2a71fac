"""Tables, figures and the page. They read stored records only."""

from cadis.report.exports import RESULT_FILES, write_results
from cadis.report.figures import draw_figures
from cadis.report.layer import draw_layer, layer_table
from cadis.report.page import (
    Watched,
    is_report,
    page_data,
    serving,
    wait_for_end,
    write_report,
)
from cadis.report.partition import census_table, draw_partition, group_table
from cadis.report.study_display import study_progress
from cadis.report.terminal import (
    loading,
    run_progress,
    show_answer,
    show_tables,
    summary_table,
    summary_text,
    tell,
)

__all__ = [
    "RESULT_FILES",
    "Watched",
    "census_table",
    "draw_figures",
    "draw_layer",
    "draw_partition",
    "group_table",
    "is_report",
    "layer_table",
    "loading",
    "page_data",
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
