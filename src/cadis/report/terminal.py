"""The terminal: a bar while a run works, a table when it ends, and the results of several."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from rich.table import Column, Table

from cadis._io import Callbacks
from cadis.algorithm.methods import label_of
from cadis.analysis import Comparison, answer, details
from cadis.report.formats import fits_a_terminal, listed, to_rich
from cadis.report.notebook import NotebookBar
from cadis.report.tables import main_sheets, notes
from cadis.report.terminal_table import Fitting
from cadis.server import OnRound, RoundRecord, RoundResult
from cadis.store import RunFolder, clusters_of, measured, metric_words

_REFRESH_SECONDS = 0.1
_SHORTEST_BAR, _LONGEST_BAR = 10, 40
_NUMBERS = 66
"""Columns of a terminal that words and numbers take beside a bar."""


@contextmanager
def run_progress(
    console: Console, rounds: int, metric: str = "accuracy"
) -> Iterator[tuple[OnRound, Callbacks]]:
    """A live bar for loading and one for the rounds; without a terminal, a line now and then.

    Args:
        console: where to show it.
        rounds: how many there will be.
        metric: the measure that decides, which is shown.
    """
    latest = _Latest(metric)
    if console.is_jupyter:
        yield _notebook(console, rounds, latest)
        return
    if not console.is_terminal:
        yield _round_lines(console, rounds, latest), plain_callbacks(console)
        return
    with _bars(console) as bars:
        yield _round_bar(bars, rounds, latest), bar_callbacks(bars)


def _notebook(console: Console, rounds: int, latest: "_Latest") -> tuple[OnRound, Callbacks]:
    bar = NotebookBar(rounds)

    def on_round(result: RoundResult) -> None:
        bar.advance(result.record.round, latest.state(result))

    def progress(what: str, done: int, total: int) -> None:
        bar.draw(f"{what} {done / total:.0%}" if total else what)

    return on_round, Callbacks(progress, lambda sentence: tell(console, sentence))


@contextmanager
def loading(console: Console) -> Iterator[Callbacks]:
    """A live bar for what takes a while; without a terminal, a line for each thing."""
    if not console.is_terminal:
        yield plain_callbacks(console)
        return
    with _bars(console) as bars:
        yield bar_callbacks(bars)


def _bars(console: Console) -> Progress:
    """Bars drawn on demand, without a thread: worker processes are forked meanwhile."""
    columns = bar_columns(console, TimeRemainingColumn())
    return Progress(*columns, console=console, auto_refresh=False)


def bar_columns(console: Console, time_left: TimeRemainingColumn) -> list[ProgressColumn]:
    """What, how much of it, a bar, how good it is, the time; a narrow terminal has no bar."""
    what = TextColumn("{task.description}", markup=False, table_column=Column(overflow="fold"))
    state = TextColumn("{task.fields[state]}", table_column=Column(overflow="fold"))
    amount, room = TextColumn("{task.fields[amount]}"), console.width - _NUMBERS
    bars = [BarColumn(min(room, _LONGEST_BAR))] if room >= _SHORTEST_BAR else []
    return [what, amount, *bars, state, time_left]


def _round_bar(bars: Progress, rounds: int, latest: "_Latest") -> OnRound:
    task = bars.add_task("round", total=rounds, amount=f"0/{rounds}", state="starting")
    bars.refresh()

    def on_round(result: RoundResult) -> None:
        number = result.record.round
        amount, state = f"{number}/{rounds}", latest.state(result)
        bars.update(task, completed=number, amount=amount, state=state, refresh=True)

    return on_round


def bar_callbacks(bars: Progress) -> Callbacks:
    """A bar for each thing that takes a while; what begins again has its bar emptied."""
    tasks: dict[str, TaskID] = {}
    drawn = 0.0

    def progress(what: str, done: int, total: int) -> None:
        nonlocal drawn
        if what not in tasks:
            tasks[what] = bars.add_task(what, total=total or None, amount="", state="")
        if bars.tasks[tasks[what]].completed >= done:
            bars.reset(tasks[what])
        amount = f"{done / total:.0%}" if total else ""
        due = time.monotonic() > drawn + _REFRESH_SECONDS  # drawing takes a while, too
        bars.update(tasks[what], completed=done, amount=amount, refresh=due)
        drawn = time.monotonic() if due else drawn

    return Callbacks(progress, lambda sentence: tell(bars.console, sentence))


def plain_callbacks(console: Console) -> Callbacks:
    """A line for each thing that takes a while."""
    begun: set[str] = set()

    def progress(what: str, *_: int) -> None:
        if what not in begun:
            begun.add(what)
            console.print(f"{what} ...", soft_wrap=True)

    return Callbacks(progress, lambda sentence: tell(console, sentence))


def summary_table(summary: dict[str, Any], classes: Sequence[str]) -> RenderableType:
    """A finished run in a few lines, and its models if there are several.

    Args:
        summary: what ``summary.json`` holds.
        classes: names of the classes.
    """
    table = _measures_table(summary, classes)
    return Group(table, _models_table(summary["models"])) if "models" in summary else table


def _models_table(models: Sequence[Mapping[str, Any]]) -> Fitting:
    """A row for each of several global models."""
    table = Table(title="its models", title_justify="left")
    for number, title in enumerate(("model", "clients", "accuracy", "loss")):
        table.add_column(title, justify="right" if number else "left")
    for model in models:
        told = ["" if v is None else f"{v:.3f}" for v in (model["accuracy"], model["loss"])]
        table.add_row(escape(model["name"]), str(model["clients"]), *told)
    return Fitting(table)


def _measures_table(summary: dict[str, Any], classes: Sequence[str]) -> Fitting:
    name = escape(label_of(summary["method"]))
    ending = "" if summary["rounds"] == 1 else "s"
    title = f"{name} after {summary['rounds']} round{ending}"
    table = Table(title=title, title_justify="left")
    table.add_column("measure")
    table.add_column("value", justify="right")
    if summary["accuracy"] is not None:
        table.add_row("accuracy", f"{summary['accuracy']:.3f}")
        _add_measures(table, summary)
    if summary["rare_accuracy"] is not None:
        rare = escape(listed([classes[number] for number in summary["rare_classes"]]))
        label = f"accuracy on the rare classes ({rare})"
        table.add_row(label, f"{summary['rare_accuracy']:.3f}")
    if "client_mean" in summary:
        table.add_row("accuracy on clients' own test data", f"{summary['client_mean']:.3f}")
        table.add_row("  of the worst client", f"{summary['client_worst']:.3f}")
    if "clusters_found" in summary:
        table.add_row("clusters found", str(summary["clusters_found"]))
        _add_agreement(table, summary)
    if summary["rejected"]:
        label = "[red]updates left out (see history.jsonl)[/red]"
        table.add_row(label, f"[red]{summary['rejected']}[/red]")
    table.add_row("seconds", f"{summary['seconds']['total']:.1f}")
    return Fitting(table)


def _add_agreement(table: Table, summary: dict[str, Any]) -> None:
    """How well clusters were found, if anybody knows the true ones."""
    some = summary.get("clusters_among")
    everybody = "all clients seen" if some is None else f"{some} of the clients seen"
    told = {
        "among a round's participants, mean": summary["round_agreement"],
        f"among {everybody}, at the end": summary["cluster_agreement"],
    }
    if any(value is not None for value in told.values()):
        table.add_row("  like the true ones (adjusted Rand index)", "")
    for among, value in told.items():
        if value is not None:
            table.add_row(f"    {among}", f"{value:.3f}")


def _add_measures(table: Table, summary: dict[str, Any]) -> None:
    """The task's further measures, and the best round."""
    for measure, value in summary.get("measures", {}).items():
        if value is not None:
            table.add_row(escape(metric_words(measure)), f"{value:.3f}")
    if f"best_{summary.get('headline')}" in summary:
        told = summary[f"best_{summary['headline']}"]
        name = escape(f"best {metric_words(summary['headline'])}")
        table.add_row(name, "" if told is None else f"{told:.3f}")
    if summary["best_accuracy"] is not None:
        headline = metric_words(summary.get("headline", ""))
        best = f"accuracy where {escape(headline)} is best" if headline else "best accuracy"
        table.add_row(best, f"{summary['best_accuracy']:.3f}")
        table.add_row("  reached in round", str(summary["best_round"]))


def summary_text(folder: RunFolder) -> str:
    """The table of a finished run as text, for logs."""
    summary, classes = folder.read_json("summary.json"), folder.read_json("federation.json")
    paper = Console(file=StringIO(), width=88)
    with paper.capture() as printed:
        paper.print(summary_table(summary, classes["classes"]))
    return printed.get()


def show_tables(console: Console, comparison: Comparison) -> None:
    """The tables that fit, and what to know about them."""
    for sheet in main_sheets(comparison):
        if fits_a_terminal(sheet):
            console.print(to_rich(sheet))
    for sentence in notes(comparison):
        tell(console, sentence)


def show_answer(console: Console, comparison: Comparison) -> None:
    """Say who wins, and what that rests on."""
    console.print(answer(comparison), style="bold", markup=False, highlight=False)
    for sentence in details(comparison):
        tell(console, sentence)


def tell(console: Console, sentence: str) -> None:
    """A sentence, just as it is."""
    console.print(sentence, soft_wrap=True, markup=False)


def _round_lines(console: Console, rounds: int, latest: "_Latest") -> OnRound:
    """A line for every tenth of the rounds."""

    def on_round(result: RoundResult) -> None:
        number, state = result.record.round, latest.state(result)
        if number % max(1, rounds // 10) == 0 or number == rounds:
            console.print(f"round {number}/{rounds}: {state}")

    return on_round


def measured_in_words(record: RoundRecord, metric: str) -> str:
    """What decides, after a round; nothing if it was not tested."""
    value = measured(record, metric)
    return "" if value is None else f"{metric_words(metric)} {value:.3f}"


class _Latest:
    """How good a run is, as its last test says: not every round need have one."""

    def __init__(self, metric: str) -> None:
        self._metric, self._tested = metric, "not tested"

    def state(self, result: RoundResult) -> str:
        """The last measure that is known, and this round's clusters."""
        record, clusters = result.record, clusters_of(result.record)
        number = 0 if clusters is None else len(set(clusters))
        found = f", {number} cluster{'s' * (number > 1)}" if number else ""
        if not (shown := measured_in_words(record, self._metric)):
            return f"{self._tested}{found}"
        self._tested = f"{shown} in round {record.round}"
        return f"{shown}{found}"
