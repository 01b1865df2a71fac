"""Assemble the page: one HTML file with style, scripts and data."""

import json
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from cadis._io import make_private_folder, open_regular, replace_text
from cadis.analysis import Results
from cadis.report.page.content import make_page_data

_ASSETS = files("cadis.report.page") / "assets"
SCRIPTS = (
    "echarts.min.js", "tools.js", "numbers.js", "theme.js", "charts.js", "legend.js", "lines.js",
    "verdict.js", "sweep.js", "accuracy.js", "federation.js", "matrix.js", "weights.js",
    "clusters.js", "flow.js", "confusion.js", "fairness.js", "convergence.js", "time.js",
    "setup.js", "main.js",
)  # fmt: skip
"""Scripts in the order of their dependencies; the last one draws."""

_MARK = "<title>cadis report</title>"
"""Text that identifies our pages."""
_HEAD_CHARS = 2000  # characters at the beginning of a page that are searched for the mark


def write_report(results: Results, path: Path, run_folders: Sequence[Path] = ()) -> Path:
    """Write the report page atomically.

    Args:
        results: runs to show.
        path: path of the page.
        run_folders: folders of the runs. The page stores a hash of their paths; with it, the
            command line recognizes a report of other runs and does not overwrite it.

    Returns:
        The path of the page.

    Example:
        >>> results = read_results([Path("runs/compare-digits")])  # doctest: +SKIP
        >>> write_report(results, Path("report.html"))  # doctest: +SKIP
    """
    make_private_folder(path.parent)
    data = json.dumps(make_page_data(results), allow_nan=False, separators=(",", ":"))
    safe = data.replace("<", "\\u003c")  # a name with </script> must not end the element
    text = assemble_page(f'<script type="application/json" id="data">{safe}</script>')
    if run_folders:
        text = text.replace(_MARK, f"{_MARK}{_make_source_tag(run_folders)}", 1)
    replace_text(path, text)
    return path


def _make_source_tag(run_folders: Sequence[Path]) -> str:
    """Return a meta element with a hash of the paths, which is different for other folders."""
    names = "\n".join(sorted(str(folder.resolve()) for folder in run_folders))
    return f'\n<meta name="cadis-of" content="{sha256(names.encode()).hexdigest()}">'


def is_report_of_other_runs(path: Path, run_folders: Sequence[Path]) -> bool:
    """Return whether a file is a report page of other runs than those in these folders."""
    head = _read_head(path)
    is_tagged = _MARK in head and 'name="cadis-of"' in head
    return is_tagged and _make_source_tag(run_folders).strip() not in head


def _read_head(path: Path) -> str:
    """Read the beginning of a page; empty if it cannot be read."""
    try:
        with open_regular(path, "r", encoding="utf-8", errors="replace") as file:
            return str(file.read(_HEAD_CHARS))
    except OSError:
        return ""


def is_report(path: Path) -> bool:
    """Return whether a file is a report page."""
    return _MARK in _read_head(path)


def assemble_page(data: str = "") -> str:
    """Return the page.

    Args:
        data: HTML element with the data to show; without it, the page asks the server for its data
            again and again.
    """
    scripts = "\n".join(f"<script>\n{_read_asset(name)}\n</script>" for name in SCRIPTS)
    content_by_placeholder = {
        "<!--STYLE-->": f"<style>\n{_read_asset('style.css')}\n</style>",
        "<!--SCRIPTS-->": scripts,
        "<!--DATA-->": data,
    }
    text = _read_asset("page.html")
    for placeholder, content in content_by_placeholder.items():
        text = text.replace(placeholder, content, 1)
    return text


def _read_asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")
