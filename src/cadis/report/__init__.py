"""Make tables, figures and the report page from stored records."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cadis.report.exports import write_results
    from cadis.report.figures import draw_figures
    from cadis.report.page.assembly import write_report
    from cadis.report.terminal import format_summary

_MODULES = {
    "draw_figures": "figures",
    "format_summary": "terminal",
    "write_report": "page.assembly",
    "write_results": "exports",
}


def __dir__() -> list[str]:
    return list(_MODULES)


def __getattr__(name: str) -> object:
    """Import on first use: matplotlib is slow to import, and training does not need it."""
    if name not in _MODULES:
        raise AttributeError(f"module 'cadis.report' has no attribute '{name}'")
    return getattr(import_module(f"cadis.report.{_MODULES[name]}"), name)
