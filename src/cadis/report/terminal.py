"""The terminal: a bar while a run works, a table when it ends, and the results of several."""

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

from cadis._io import Callbacks
from cadis.algorithm.methods import label_of
from cadis.analysis import Comparison, answer, details
from cadis.report.formats import fits_a_terminal, listed, shown_number, to_rich
from cadis.report.notebook import NotebookBar
from cadis.report.tables import main_sheets, notes
from cadis.report.terminal_table import fitting_table
from cadis.server import OnRound, RoundRecord, RoundResult
from cadis.store import RunFolder, clusters_of, measured, metric_words

_Describe = Callable[[RoundResult], str]
_REFRESH_SECONDS = 0.1
_SHORTEST_BAR, _LONGEST_BAR = 10, 40
_NUMBERS = 66  # columns of a terminal that words and numbers take beside a bar


@contextmanager
def run_progress(
    console: Console, rounds: int, metric: str = "accuracy"
) -> Iterator[tuple[OnRound, Callbacks]]:
    """Show the rounds of a run, and the measure that decides, as they end.

    In a terminal, there is a live bar for loading and one for the rounds; in a notebook, a line
    that changes; elsewhere, a line for every tenth of the rounds.
    """
    describe = _describe_rounds(metric)
    if console.is_jupyter:
        bar = NotebookBar(rounds)

        def on_load(what: str, done: int, total: int) -> None:
            bar.draw(f"{what} {done / total:.0%}" if total else what)

        say = partial(tell, console)
        yield lambda r: bar.advance(r.record.round, describe(r)), Callbacks(on_load, say)
        return
    if not console.is_terminal:
        yield _round_lines(console, rounds, describe), plain_callbacks(console)
        return
    with _bars(console) as bars:
        yield _round_bar(bars, rounds, describe), bar_callbacks(bars)


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


def _round_bar(bars: Progress, rounds: int, describe: _Describe) -> OnRound:
    task = bars.add_task("round", total=rounds, amount=f"0/{rounds}", state="starting")
    bars.refresh()

    def on_round(result: RoundResult) -> None:
        number = result.record.round
        amount, state = f"{number}/{rounds}", describe(result)
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

    return Callbacks(progress, partial(tell, bars.console))


def plain_callbacks(console: Console) -> Callbacks:
    """A line for each thing that takes a while."""
    begun: set[str] = set()

    def progress(what: str, *_: int) -> None:
        if what not in begun:
            begun.add(what)
            console.print(f"{what} ...", soft_wrap=True)

    return Callbacks(progress, partial(tell, console))


def summary_table(summary: Mapping[str, Any], classes: Sequence[str]) -> RenderableType:
    """A finished run in a few lines, and its models if there are several.

    Args:
        summary: what ``summary.json`` holds.
        classes: names of the classes.
    """
    title = f"{escape(label_of(summary['method']))} after {summary['rounds']} round"
    rows = [*_accuracy_rows(summary, classes), *_cluster_rows(summary)]
    if summary["rejected"]:
        left_out = f"[red]{summary['rejected']}[/red]"
        rows.append(("[red]updates left out (see history.jsonl)[/red]", left_out))
    rows.append(("seconds", f"{summary['seconds']['total']:.1f}"))
    table = fitting_table(f"{title}{'s' * (summary['rounds'] != 1)}", ("measure", "value"), rows)
    if "models" not in summary:
        return table
    models = [
        (escape(m["name"]), str(m["clients"]), shown_number(m["accuracy"]), shown_number(m["loss"]))
        for m in summary["models"]
    ]
    columns = ("model", "clients", "accuracy", "loss")
    return Group(table, fitting_table("its models", columns, models))


def _accuracy_rows(summary: Mapping[str, Any], classes: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Accuracy, the task's further measures and the best round; rare classes and own data."""
    if summary["accuracy"] is not None:
        yield "accuracy", shown_number(summary["accuracy"])
        for measure, value in summary.get("measures", {}).items():
            if value is not None:
                yield escape(metric_words(measure)), shown_number(value)
        headline = escape(metric_words(summary.get("headline", "")))
        if (key := f"best_{summary.get('headline')}") in summary:
            yield f"best {headline}", shown_number(summary[key])
        if summary["best_accuracy"] is not None:
            best = f"accuracy where {headline} is best" if headline else "best accuracy"
            yield best, shown_number(summary["best_accuracy"])
            yield "  reached in round", str(summary["best_round"])
    if summary["rare_accuracy"] is not None:
        rare = escape(listed([classes[number] for number in summary["rare_classes"]]))
        yield f"accuracy on the rare classes ({rare})", shown_number(summary["rare_accuracy"])
    if "client_mean" in summary:
        yield "accuracy on clients' own test data", shown_number(summary["client_mean"])
        yield "  of the worst client", shown_number(summary["client_worst"])


def _cluster_rows(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """How many clusters were found, and how well, if anybody knows the true ones."""
    if "clusters_found" not in summary:
        return
    yield "clusters found", str(summary["clusters_found"])
    some = summary.get("clusters_among")
    everybody = "all clients seen" if some is None else f"{some} of the clients seen"
    agreements = {
        "among a round's participants, mean": summary["round_agreement"],
        f"among {everybody}, at the end": summary["cluster_agreement"],
    }
    told = {among: value for among, value in agreements.items() if value is not None}
    if told:
        yield "  like the true ones (adjusted Rand index)", ""
    for among, value in told.items():
        yield f"    {among}", shown_number(value)


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


def _round_lines(console: Console, rounds: int, describe: _Describe) -> OnRound:
    """A line for every tenth of the rounds."""

    def on_round(result: RoundResult) -> None:
        number, state = result.record.round, describe(result)
        if number % max(1, rounds // 10) == 0 or number == rounds:
            console.print(f"round {number}/{rounds}: {state}")

    return on_round


def measured_in_words(record: RoundRecord, metric: str) -> str:
    """What decides, after a round; nothing if it was not tested."""
    value = measured(record, metric)
    return "" if value is None else f"{metric_words(metric)} {value:.3f}"


def _describe_rounds(metric: str) -> _Describe:
    """Describe rounds by the last measure that is known, as not every round need be tested."""
    tested = "not tested"

    def describe(result: RoundResult) -> str:
        nonlocal tested
        number = len(set(clusters_of(result.record) or ()))
        found = f", {number} cluster{'s' * (number > 1)}" if number else ""
        if not (shown := measured_in_words(result.record, metric)):
            return f"{tested}{found}"
        tested = f"{shown} in round {result.record.round}"
        return f"{shown}{found}"

    return describe
