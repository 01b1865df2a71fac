"""Tables, figures and the page. They read stored records only."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cadis.report.exports import RESULT_FILES, write_results
    from cadis.report.figures import draw_figures
    from cadis.report.page.assembly import is_report, is_report_of_others, write_report
    from cadis.report.terminal import summary_text

_MODULES = {
    "RESULT_FILES": "exports",
    "draw_figures": "figures",
    "is_report": "page.assembly",
    "is_report_of_others": "page.assembly",
    "summary_text": "terminal",
    "write_report": "page.assembly",
    "write_results": "exports",
}

__all__ = [
    "RESULT_FILES",
    "draw_figures",
    "is_report",
    "is_report_of_others",
    "summary_text",
    "write_report",
    "write_results",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    """Import on first use: a run need not wait for what draws its figures."""
    if name not in _MODULES:
        raise AttributeError(f"module 'cadis.report' has no attribute '{name}'")
    return getattr(import_module(f"cadis.report.{_MODULES[name]}"), name)
