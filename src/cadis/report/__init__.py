"""Tables and figures. They read stored records only."""

from cadis.report.figures import draw_figures
from cadis.report.partition import census_table, draw_partition, group_table
from cadis.report.style import METHOD_NAMES
from cadis.report.terminal import loading, run_progress, summary_table, summary_text

__all__ = [
    "METHOD_NAMES",
    "census_table",
    "draw_figures",
    "draw_partition",
    "group_table",
    "loading",
    "run_progress",
    "summary_table",
    "summary_text",
]
