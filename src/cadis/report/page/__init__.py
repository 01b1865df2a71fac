"""The page: data made here, drawn by the scripts in ``assets``."""

from cadis.report.page.assembly import is_report, is_report_of_others, live_page, write_report
from cadis.report.page.content import page_data
from cadis.report.page.serving import serving, wait_for_end
from cadis.report.page.watching import Watched

__all__ = [
    "Watched",
    "is_report",
    "is_report_of_others",
    "live_page",
    "page_data",
    "serving",
    "wait_for_end",
    "write_report",
]
