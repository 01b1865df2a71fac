"""Show runs in the terminal: progress bars, the summary of a run, tables of a comparison."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from io import StringIO
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from cadis._io import Callbacks, escape_controls
from cadis.algorithm.methods import get_method_label
from cadis.analysis import Comparison, explain_verdict, write_verdict
from cadis.report.console import SafeConsole
from cadis.report.formats import fits_terminal, format_number, join_names, to_rich
from cadis.report.notebook import NotebookBar
from cadis.report.notes import write_notes
from cadis.report.tables import make_main_tables
from cadis.report.terminal_table import make_terminal_table
from cadis.server import OnRound, RoundRecord, RoundResult
from cadis.store import RunFolder, format_metric_name, get_clusters, get_metric

_Describe = Callable[[RoundResult], str]
_REFRESH_SECONDS = 0.1
_MIN_BAR, _MAX_BAR = 10, 40  # characters
_TEXT_WIDTH = 66  # characters beside a bar


@contextmanager
def show_run_progress(
    console: Console, rounds: int, metric: str = "accuracy"
) -> Iterator[tuple[OnRound, Callbacks]]:
    """Show the rounds of a run and its main metric.

    A terminal shows live bars, and a notebook shows one line that is updated. In any other output,
    a line is printed after each tenth of the rounds.

    Args:
        console: where to print.
        rounds: number of rounds.
        metric: name of the main metric.

    Yields:
        The function to call after each round, and callbacks for other slow work.
    """
    describe = _describe_rounds(metric)
    if console.is_jupyter:
        bar = NotebookBar(rounds)

        def on_load(what: str, done: int, total: int) -> None:
            bar.draw(f"{what} {done / total:.0%}" if total else what)

        say = partial(print_line, console)
        yield lambda r: bar.advance(r.record.round, describe(r)), Callbacks(on_load, say)
        return
    if not console.is_terminal:
        yield _make_round_printer(console, rounds, describe), make_line_callbacks(console)
        return
    with _make_bars(console) as bars:
        yield _make_round_bar(bars, rounds, describe), make_bar_callbacks(bars)


@contextmanager
def show_loading(console: Console) -> Iterator[Callbacks]:
    """Show a live bar for each slow activity; without a terminal, print one line per activity."""
    if not console.is_terminal:
        yield make_line_callbacks(console)
        return
    with _make_bars(console) as bars:
        yield make_bar_callbacks(bars)


def _make_bars(console: Console) -> Progress:
    """Return bars without a refresh thread.

    It is unsafe to fork worker processes while another thread runs.
    """
    columns = make_bar_columns(console, TimeRemainingColumn())
    return Progress(*columns, console=console, auto_refresh=False)


def make_bar_columns(console: Console, time_left: TimeRemainingColumn) -> list[ProgressColumn]:
    """Return the columns of a row: name, amount, bar (if there is space), state and time left."""
    name = TextColumn("{task.description}", markup=False, table_column=Column(overflow="fold"))
    state = TextColumn("{task.fields[state]}", markup=False, table_column=Column(overflow="fold"))
    amount, width = TextColumn("{task.fields[amount]}", markup=False), console.width - _TEXT_WIDTH
    bars = [BarColumn(min(width, _MAX_BAR))] if width >= _MIN_BAR else []
    return [name, amount, *bars, state, time_left]


def _make_round_bar(bars: Progress, rounds: int, describe: _Describe) -> OnRound:
    task = bars.add_task("round", total=rounds, amount=f"0/{rounds}", state="starting")
    bars.refresh()

    def on_round(result: RoundResult) -> None:
        number = result.record.round
        amount, state = f"{number}/{rounds}", describe(result)
        bars.update(task, completed=number, amount=amount, state=state, refresh=True)

    return on_round


def make_bar_callbacks(bars: Progress) -> Callbacks:
    """Return callbacks that show one bar per activity; if it starts again, its bar is emptied."""
    tasks: dict[str, TaskID] = {}
    drawn = 0.0

    def progress(what: str, done: int, total: int) -> None:
        nonlocal drawn
        if what not in tasks:
            tasks[what] = bars.add_task(what, total=total or None, amount="", state="")
        if bars.tasks[tasks[what]].completed >= done:
            bars.reset(tasks[what])
        amount = f"{done / total:.0%}" if total else ""
        due = time.monotonic() > drawn + _REFRESH_SECONDS  # drawing is slow, too
        bars.update(tasks[what], completed=done, amount=amount, refresh=due)
        drawn = time.monotonic() if due else drawn

    return Callbacks(progress, partial(print_line, bars.console))


def make_line_callbacks(console: Console) -> Callbacks:
    """Return callbacks that print one line per activity."""
    printed: set[str] = set()

    def progress(what: str, *_: int) -> None:
        if what not in printed:
            printed.add(what)
            print_line(console, f"{what} ...")

    return Callbacks(progress, partial(print_line, console))


def make_summary_table(summary: Mapping[str, Any], classes: Sequence[str]) -> RenderableType:
    """Return a table of a finished run, and of its models if there are several.

    Args:
        summary: content of ``summary.json``.
        classes: names of the classes.
    """
    title = f"{escape(get_method_label(summary['method']))} after {summary['rounds']} round"
    rows = [*_make_accuracy_rows(summary, classes), *_make_cluster_rows(summary)]
    if summary["rejected"]:
        rejected = f"[red]{summary['rejected']}[/red]"
        rows.append(("[red]rejected updates (see history.jsonl)[/red]", rejected))
    rows.append(("seconds", f"{summary['seconds']['total']:.1f}"))
    table = make_terminal_table(
        f"{title}{'s' * (summary['rounds'] != 1)}", ("metric", "value"), rows
    )
    if "models" not in summary:
        return table
    models = [
        (
            escape(m["name"]),
            str(m["clients"]),
            format_number(m["accuracy"]),
            format_number(m["loss"]),
        )
        for m in summary["models"]
    ]
    columns = ("model", "clients", "accuracy", "loss")
    return Group(table, make_terminal_table("Models", columns, models))


def _make_accuracy_rows(
    summary: Mapping[str, Any], classes: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield rows for accuracy, metrics of the task, best round, rare classes and client data."""
    if summary["accuracy"] is not None:
        yield "accuracy", format_number(summary["accuracy"])
        for name, value in summary.get("measures", {}).items():
            if value is not None:
                yield escape(format_metric_name(name)), format_number(value)
        # The key "headline" has the name of the task's main metric, if that is not accuracy.
        main_metric = escape(format_metric_name(summary.get("headline", "")))
        if (key := f"best_{summary.get('headline')}") in summary:
            yield f"best {main_metric}", format_number(summary[key])
        if summary["best_accuracy"] is not None:
            best = f"accuracy in the round with the best {main_metric}"
            yield best if main_metric else "best accuracy", format_number(summary["best_accuracy"])
            yield "  in round", str(summary["best_round"])
    if summary["rare_accuracy"] is not None:
        rare = escape(join_names([classes[index] for index in summary["rare_classes"]]))
        yield f"accuracy on the rare classes ({rare})", format_number(summary["rare_accuracy"])
    if "client_mean" in summary:
        yield "accuracy on clients' own test data, mean", format_number(summary["client_mean"])
        yield "  worst client", format_number(summary["client_worst"])


def _make_cluster_rows(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield rows for the number of clusters and their agreement with the true ones, if known."""
    if "clusters_found" not in summary:
        return
    yield "clusters found", str(summary["clusters_found"])
    sample_size = summary.get("clusters_among")
    group = "all clients that took part"
    if sample_size is not None:
        group = f"a sample of {sample_size} of the clients that took part"
    agreements = {
        "among the participants of a round, mean over rounds": summary["round_agreement"],
        f"among {group}, after the last round": summary["cluster_agreement"],
    }
    known = {label: value for label, value in agreements.items() if value is not None}
    if known:
        yield "  agreement with true clusters (adjusted Rand index)", ""
    for label, value in known.items():
        yield f"    {label}", format_number(value)


def format_summary(folder: RunFolder) -> str:
    """Return the summary table of a finished run as text, for logs."""
    summary, classes = folder.read_json("summary.json"), folder.read_json("federation.json")
    console = SafeConsole(file=StringIO(), width=88)
    with console.capture() as printed:
        console.print(make_summary_table(summary, classes["classes"]))
    return printed.get()


def print_tables(console: Console, comparison: Comparison) -> None:
    """Print the tables that fit the terminal, each with its own note, then the common notes."""
    for table in make_main_tables(comparison):
        if fits_terminal(table):
            console.print(to_rich(table))
            if table.note:
                console.print(table.note, markup=False, highlight=False)
                console.print()
    for sentence in write_notes(comparison):
        print_line(console, sentence)


def print_verdict(console: Console, comparison: Comparison) -> None:
    """Print the verdict and its explanation."""
    console.print(write_verdict(comparison), style="bold", markup=False, highlight=False)
    for sentence in explain_verdict(comparison):
        print_line(console, sentence)


def print_line(console: Console, sentence: str) -> None:
    """Print a sentence without markup and without line breaks."""
    console.print(escape_controls(sentence), soft_wrap=True, markup=False)


def _make_round_printer(console: Console, rounds: int, describe: _Describe) -> OnRound:
    """Return a function that prints a line for every tenth of the rounds."""

    def on_round(result: RoundResult) -> None:
        number, state = result.record.round, describe(result)
        if number % max(1, rounds // 10) == 0 or number == rounds:
            print_line(console, f"round {number}/{rounds}: {state}")

    return on_round


def format_metric(record: RoundRecord, metric: str) -> str:
    """Return name and value of a metric after a round; empty if the round was not tested."""
    value = get_metric(record, metric)
    return "" if value is None else f"{format_metric_name(metric)} {value:.3f}"


def _describe_rounds(metric: str) -> _Describe:
    """Return a function that describes a round with the last known value of the metric."""
    last = "not tested"

    def describe(result: RoundResult) -> str:
        nonlocal last
        count = len(set(get_clusters(result.record) or ()))
        clusters = f", {count} cluster{'s' * (count > 1)}" if count else ""
        if not (text := format_metric(result.record, metric)):
            return f"{last}{clusters}"
        last = f"{text} in round {result.record.round}"
        return f"{text}{clusters}"

    return describe
