"""Tables and figures. They read stored records only."""

from cadis.report.figures import draw_figures
from cadis.report.terminal import progress, summary_table

__all__ = ["draw_figures", "progress", "summary_table"]
