"""``cadis report`` and ``cadis watch``: write or serve a page about runs."""

import re
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from cadis._io import check_output, has_name, make_private_folder
from cadis.algorithm import check_names
from cadis.analysis import (
    Comparison,
    Results,
    is_result_folder,
    make_task_metric,
    read_folder,
    read_results,
)
from cadis.cli.run import shorten_name
from cadis.errors import CadisError
from cadis.report.console import SafeConsole
from cadis.report.exports import RESULT_FILES, write_results
from cadis.report.figures import draw_figures
from cadis.report.page.assembly import is_report, is_report_of_other_runs, write_report
from cadis.report.page.watching import WatchedFolder, serve_page, wait_for_end
from cadis.report.terminal import print_line, print_tables, print_verdict
from cadis.store import RunFolder, StudyFolder, check_user_output, format_cell_name


def report(runs: Sequence[Path], out: Path | None = None, metric: str | None = None) -> int:
    """Show the results in these folders, ranked by the metric."""
    console = SafeConsole()
    is_parent = len(runs) == 1 and runs[0].is_dir() and not is_result_folder(runs[0])
    page = _choose_page([runs[0] / "report"] if is_parent else runs, out)
    _check_page(page, runs)
    if is_parent:
        results = read_folder(runs[0], lambda sentence: print_line(console, sentence))
    else:
        results = read_results(runs)
    if metric is not None:
        metric = metric.replace("-", "_")
        choices = [
            name
            for name in results.metric_names
            if make_task_metric(name).higher_is_better is not False
        ]
        check_names("metric in these runs", [metric], choices)
        results = results.with_metric(metric)
    show_results(results, page, console, folders=runs)
    return 0


def show_results(
    results: Results,
    page: Path,
    console: Console,
    failures: Sequence[str] = (),
    folders: Sequence[Path] = (),
) -> None:
    """Print tables and the verdict; write the page, and tables and figures next to it.

    Args:
        results: the data of the runs.
        page: the HTML file to write.
        console: the terminal.
        failures: one sentence per failed run.
        folders: the folders of the runs; by default, the folder of the page.
    """
    comparison = Comparison(results)
    print_tables(console, comparison)
    for sentence in failures:
        print_line(console, sentence)
    try:
        with console.status("Drawing figures ..."):
            write_report(results, page, folders or [page.parent])
            write_results(comparison, page.parent)
            _draw(comparison, page.parent)
    except OSError as error:
        raise CadisError(f"The folder {page.parent} cannot be written: {error.strerror}.") from None
    print_verdict(console, comparison)
    print_line(console, f"Report: {page}    Tables and figures: {page.parent}")


def watch(run: Path, port: int, open_browser: bool) -> int:
    """Serve the page until the run ends, or until Ctrl-C."""
    console, watched = SafeConsole(), WatchedFolder(run)
    try:
        with serve_page(watched, port) as address:
            idle = "" if watched.is_running() else " No process is running it now."
            print_line(
                console, f"Open {address} in a browser to see {run}. Stop with Ctrl-C.{idle}"
            )
            if open_browser:
                webbrowser.open(address)
            wait_for_end(watched)
    except KeyboardInterrupt:
        print_line(console, "Stopped; the run itself continues.")
        return 0
    print_line(console, f"The run has ended. Show it again: cadis report {run}")
    return 0


def _draw(comparison: Comparison, folder: Path) -> None:
    """Draw figures; if not all runs can be compared, write a folder for each comparable set.

    Each of these folders has its own page.
    """
    if comparison.results.same_classes and not comparison.has_several_comparisons:
        draw_figures(comparison.results, folder / "figures")
        return
    for comparable in comparison.comparable_sets:
        keys, values = list(comparable.values), list(comparable.values.values())
        path = folder / "cells" / format_cell_name(keys, values)
        make_private_folder(path, folder)
        write_report(comparable.results, path / "report.html", [path])
        write_results(Comparison(comparable.results), path)
        draw_figures(comparable.results, path / "figures")


def _check_page(page: Path, paths: Sequence[Path]) -> None:
    """Raise an error if the page would replace files of other programs or other runs."""
    folder = page.parent
    check_user_output(folder)
    for path in (page, *(folder / name for name in RESULT_FILES)):
        check_output(path, folder)
    is_run_folder = folder.resolve() in [path.resolve() for path in paths]
    pages = folder.glob("*.html")
    if not is_run_folder and any(is_report_of_other_runs(old, paths) for old in pages):
        raise CadisError(
            f"{folder} has the report of other runs; choose another folder with --out."
        )
    has_report = any(map(is_report, folder.glob("*.html")))
    is_ours = RunFolder(folder).has_marker() or StudyFolder(folder).has_study() or has_report
    existing = [path for path in (page, *(folder / n for n in RESULT_FILES)) if has_name(path)]
    if existing and not is_ours:
        raise CadisError(f"{existing[0]} exists already; choose another folder with --out.")


def _choose_page(paths: Sequence[Path], out: Path | None) -> Path:
    """Return the path of the page.

    By default it is in the folder of the run or, for several runs, in a new folder in ``runs/``.
    """
    if out is not None and out.suffix == ".html":
        return out
    if out is not None and out.suffix and not out.is_dir():
        raise CadisError(f"The page is an HTML file; name it {out.stem}.html.")
    if out is None and len(paths) > 1:  # one folder per combination of runs
        names = (re.sub(r"[^\w.-]+", "-", str(path)).strip("-.") for path in paths)
        out = Path("runs") / shorten_name("-".join(["report", *names]))
    return (out or paths[0]) / "report.html"
