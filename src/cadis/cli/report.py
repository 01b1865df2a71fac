"""``cadis report`` and ``cadis watch``: one page about runs, when they have ended or before."""

import re
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from cadis.algorithm import check_names
from cadis.analysis import Comparison, Results, is_result, read_folder, read_results, task_measure
from cadis.cli.run import short_name
from cadis.errors import CadisError
from cadis.report.exports import RESULT_FILES, write_results
from cadis.report.figures import draw_figures
from cadis.report.page.assembly import is_report, is_report_of_others, write_report
from cadis.report.page.watching import Watched, serving, wait_for_end
from cadis.report.terminal import show_answer, show_tables, tell
from cadis.store import RunFolder, StudyFolder, cell_name


def report(runs: Sequence[Path], out: Path | None = None, metric: str | None = None) -> int:
    """Show what there is in these folders; the metric, of which more must be better, decides."""
    console = Console()
    inside = len(runs) == 1 and runs[0].is_dir() and not is_result(runs[0])
    page = _page_of([runs[0] / "report"] if inside else runs, out)
    _check_place(page, runs)
    if inside:
        results = read_folder(runs[0], lambda sentence: tell(console, sentence))
    else:
        results = read_results(runs)
    if metric is not None:
        metric = metric.replace("-", "_")
        measures = results.measured
        choices = [name for name in measures if task_measure(name).higher_is_better is not False]
        check_names("measure in these runs", [metric], choices)
        results = results.judged_by(metric)
    show_results(results, page, console, of=runs)
    return 0


def show_results(
    results: Results,
    page: Path,
    console: Console,
    failures: Sequence[str] = (),
    of: Sequence[Path] = (),
) -> None:
    """Show tables and the answer in the terminal; write the page, and files and figures beside it.

    ``failures`` are sentences about runs that are missing, ``of`` the folders that are shown:
    unless told, that of the page.
    """
    comparison = Comparison(results)
    show_tables(console, comparison)
    for sentence in failures:
        tell(console, sentence)
    try:
        with console.status("Drawing ..."):
            write_report(results, page, of or [page.parent])
            write_results(comparison, page.parent)
            _draw(comparison, page.parent)
    except OSError as error:
        raise CadisError(f"{page.parent} cannot be written: {error.strerror}.") from None
    show_answer(console, comparison)
    tell(console, f"Open {page}; tables and pictures are beside it.")


def watch(run: Path, port: int, open_browser: bool) -> int:
    """Serve until the run has ended, or Ctrl-C."""
    console, watched = Console(), Watched(run)
    try:
        with serving(watched, port) as address:
            idle = "" if watched.is_running() else " Nobody is working on it at present."
            tell(console, f"{run} is shown at {address} until it ends, or Ctrl-C.{idle}")
            if open_browser:
                webbrowser.open(address)
            wait_for_end(watched)
    except KeyboardInterrupt:
        tell(console, "Stopped watching; what is watched goes on.")
        return 0
    tell(console, f"It has ended; look at it again by: cadis report {run}")
    return 0


def _draw(comparison: Comparison, folder: Path) -> None:
    """Figures; of several comparisons, a folder with a page, tables and figures for each."""
    if comparison.results.same_classes and not comparison.several_comparisons:
        draw_figures(comparison.results, folder / "figures")
        return
    for cell in comparison.cells:
        own = folder / "cells" / cell_name(list(cell.values), list(cell.values.values()))
        own.mkdir(parents=True, exist_ok=True)
        write_report(cell.results, own / "report.html", [own])
        write_results(Comparison(cell.results), own)
        draw_figures(cell.results, own / "figures")


def _check_place(page: Path, paths: Sequence[Path]) -> None:
    """Refuse to write over files that are not ours, and over the report of other runs."""
    folder = page.parent
    same = folder.resolve() in [path.resolve() for path in paths]
    if not same and any(is_report_of_others(old, paths) for old in folder.glob("*.html")):
        raise CadisError(f"{folder} holds the report of other runs; choose another by --out.")
    pages = any(map(is_report, folder.glob("*.html")))
    ours = RunFolder(folder).is_ours() or StudyFolder(folder).holds_study() or pages
    there = [path for path in (page, *(folder / n for n in RESULT_FILES)) if path.exists()]
    if there and not ours:
        raise CadisError(f"{there[0]} is there already; choose another folder by --out.")


def _page_of(paths: Sequence[Path], out: Path | None) -> Path:
    """In the folder asked for, or under that name; else in that of the only run, or a new one."""
    if out is not None and out.suffix == ".html":
        return out
    if out is not None and out.suffix and not out.is_dir():
        raise CadisError(f"The page is written as HTML; call it {out.stem}.html.")
    if out is None and len(paths) > 1:  # the name tells of which runs, so that no other has it
        names = (re.sub(r"[^\w.-]+", "-", str(path)).strip("-.") for path in paths)
        out = Path("runs") / short_name("-".join(["report", *names]))
    return (out or paths[0]) / "report.html"
