"""What a run looks like in the terminal: a bar while it works, a table when it ends."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from cadis.engine import RoundResult
from cadis.experiment import OnRound
from cadis.report.style import METHOD_NAMES


@contextmanager
def progress(console: Console, rounds: int) -> Iterator[OnRound]:
    """A live bar; where there is no terminal, a line for every tenth of the rounds."""
    if not console.is_terminal:
        yield lambda result: _say(console, result, rounds)
        return
    columns = (
        TextColumn("round"),
        MofNCompleteColumn(),
        BarColumn(),
        TextColumn("{task.description}"),
        TimeRemainingColumn(),
    )
    # Drawn once a round, without a thread of its own: worker processes are forked meanwhile.
    with Progress(*columns, console=console, auto_refresh=False) as bar:
        task = bar.add_task("starting", total=rounds)
        bar.refresh()
        yield lambda result: bar.update(
            task, completed=result.record.round, description=_state(result), refresh=True
        )


def summary_table(summary: dict[str, Any]) -> Table:
    """A finished run in a few lines."""
    name = METHOD_NAMES.get(summary["method"], summary["method"])
    table = Table(title=f"{name} after {summary['rounds']} rounds", title_justify="left")
    table.add_column("measure")
    table.add_column("value", justify="right")
    table.add_row("accuracy", f"{summary['accuracy']:.3f}")
    table.add_row("best accuracy", f"{summary['best_accuracy']:.3f}")
    table.add_row("  reached in round", str(summary["best_round"]))
    if summary["rare_accuracy"] is not None:
        classes = ", ".join(map(str, summary["rare_classes"]))
        label = f"accuracy on the rare classes ({classes})"
        table.add_row(label, f"{summary['rare_accuracy']:.3f}")
    if "clusters_found" in summary:
        table.add_row("clusters found", str(summary["clusters_found"]))
        if summary["cluster_agreement"] is not None:
            agreement = f"{summary['cluster_agreement']:.3f}"
            table.add_row("  agreement with the true ones (adjusted Rand)", agreement)
    if summary["rejected"]:
        label = "[red]updates left out, infinite or not a number (see history.jsonl)[/red]"
        table.add_row(label, f"[red]{summary['rejected']}[/red]")
    table.add_row("seconds", f"{summary['seconds']['total']:.1f}")
    return table


def _say(console: Console, result: RoundResult, rounds: int) -> None:
    number = result.record.round
    if number % max(1, rounds // 10) == 0 or number == rounds:
        console.print(f"round {number}/{rounds}: {_state(result)}")


def _state(result: RoundResult) -> str:
    clusters = result.record.clusters
    found = "" if clusters is None else f", {len(set(clusters))} clusters"
    return f"accuracy {result.record.accuracy:.3f}{found}"
