"""One file that needs no other: style, scripts and data in one page."""

import json
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from cadis.analysis import Results
from cadis.report.page.content import page_data
from cadis.store import replace_text

_ASSETS = files("cadis.report.page") / "assets"
SCRIPTS = (
    "echarts.min.js", "tools.js", "numbers.js", "theme.js", "charts.js", "legend.js", "lines.js",
    "answer.js", "sweep.js", "accuracy.js", "federation.js", "matrix.js", "weights.js",
    "grouping.js", "flow.js", "confusion.js", "fairness.js", "convergence.js", "time.js",
    "setup.js", "main.js",
)  # fmt: skip
"""In the order in which they need each other; the last one draws."""

_MARK, _HEAD = "<title>cadis report</title>", 2000
"""What tells our pages from others, and within how many letters of them."""


def write_report(results: Results, path: Path, of: Sequence[Path] = ()) -> Path:
    """Write the page of runs, whole or not at all.

    Args:
        results: what it shows.
        path: where.
        of: the folders that these were read from, by which the page is known again.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    data = json.dumps(page_data(results), allow_nan=False, separators=(",", ":"))
    safe = data.replace("<", "\\u003c")  # so that no name can end the script
    text = assemble_page(f'<script type="application/json" id="data">{safe}</script>')
    replace_text(path, text.replace(_MARK, f"{_MARK}{_of(of)}", 1) if of else text)
    return path


def _of(folders: Sequence[Path]) -> str:
    """A mark that pages of the same folders have in common, whatever runs these hold by then."""
    names = "\n".join(sorted(str(folder.resolve()) for folder in folders))
    return f'\n<meta name="cadis-of" content="{sha256(names.encode()).hexdigest()}">'


def is_report_of_others(path: Path, folders: Sequence[Path]) -> bool:
    """Whether there is a page that tells that it is of other folders than these."""
    head = _head_of(path)
    return _MARK in head and 'name="cadis-of"' in head and _of(folders).strip() not in head


def _head_of(path: Path) -> str:
    """The beginning of a page; nothing if it cannot be read."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_HEAD)
    except OSError:
        return ""


def is_report(path: Path) -> bool:
    """Whether there is a page that was written here before."""
    return _MARK in _head_of(path)


def assemble_page(data: str = "") -> str:
    """Return the page with an element that holds its data; without, it polls the server."""
    scripts = "\n".join(f"<script>\n{_asset(name)}\n</script>" for name in SCRIPTS)
    parts = {
        "<!--STYLE-->": f"<style>\n{_asset('style.css')}\n</style>",
        "<!--SCRIPTS-->": scripts,
        "<!--DATA-->": data,
    }
    text = _asset("page.html")
    for place, content in parts.items():
        text = text.replace(place, content, 1)
    return text


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")
