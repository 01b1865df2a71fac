"""What a partition looks like: tables and a picture, of one to be made or of a run."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.markup import escape
from rich.table import Table
from torch import Tensor

from cadis._io import natural
from cadis.analysis import PartitionSummary, Results, RunData, some_of
from cadis.report.formats import listed
from cadis.report.style import (
    ALONE,
    cluster_colour,
    figure_style,
    head,
    new_axes,
    save_figure,
    shown,
)
from cadis.report.terminal_table import Fitting, fitting_table
from cadis.store import sample

_ROWS = 12
_NAMES = 40  # so many clients are named; of more, every tenth is, or fewer
_MARGIN = 0.9  # the widest point, as a part of the distance to the next


def group_table(summary: PartitionSummary) -> Fitting:
    """A row for each cluster, the largest first; or for each client, if there are no clusters."""
    clustered, groups = summary.true_clusters is not None, summary.groups()
    columns = ["cluster", "clients", "samples of each"] if clustered else ["client", "samples"]
    columns += ["to test on"] if summary.own_tests else []
    columns += ["classes"] if clustered else ["classes", "most of"]
    rows = []
    for number, group in enumerate(groups[:_ROWS]):
        counts, sizes = summary.counts[group].sum(dim=0), summary.sizes[group]
        who = [str(number), str(len(group))] if clustered else [str(summary.client_ids[group[0]])]
        names = [name for name, count in zip(summary.classes, counts, strict=True) if count]
        tests = [_range(torch.tensor(summary.own_tests)[group])] if summary.own_tests else []
        cells = [*who, _range(sizes), *tests, listed(names, limit=5)]
        if not clustered:
            most = int(counts.argmax())
            cells.append(f"{summary.classes[most]} {counts[most] / counts.sum():.0%}")
        rows.append(list(map(escape, cells)))
    if len(groups) > _ROWS:
        rows.append([f"and {len(groups) - _ROWS} more"])
    return fitting_table(escape(summary.title), columns, rows, ("clients", "classes"))


def partition_table(summary: PartitionSummary) -> Fitting:
    """The partition in a few numbers."""
    sizes = summary.sizes
    table = Table(show_header=False)
    table.add_row("clients", f"{len(sizes):,}")
    if summary.true_clusters is not None:
        table.add_row("clusters", f"{len(summary.groups()):,}")
        largest = len(summary.groups()[0]) / len(sizes)
        table.add_row("  clients in the largest", f"{largest:.0%}")
    table.add_row("samples", f"{sizes.sum():,} of {summary.available:,}")
    table.add_row("  of a client", f"{_range(sizes)}, mean {sizes.double().mean():,.1f}")
    table.add_row("  deviation / mean", f"{summary.size_skew:.2f}")
    table.add_row("samples for testing", f"{summary.tested:,}")
    table.add_row("label skew (0: all alike, 1: all strangers)", f"{summary.label_skew:.2f}")
    if unheld := summary.unheld_classes():
        table.add_row("[yellow]classes that no client has[/yellow]", escape(listed(unheld)))
    return Fitting(table)


def draw_partition(summary: PartitionSummary, path: Path) -> Path:
    """Draw clients by classes into a file; the area of a point is the number of samples."""
    with figure_style():
        return save_figure(_draw_counts(summary), path)


def draw_federation(results: Results) -> Figure | None:
    """Draw clients by classes of the first run, if the server knows the numbers."""
    summary = summarise_partition(results.runs[0])
    return None if summary is None else _draw_counts(summary)


def _draw_counts(summary: PartitionSummary) -> Figure:
    order = _shown(summary)
    counts = summary.counts[order].numpy()  # (clients, classes)
    clients, classes = counts.shape
    names = [shown(summary.client_ids[n]) for n in order]
    longest = max(map(len, names))
    width = min(12.0, max(6.0, 3.2 + 0.28 * clients))
    height = min(9.0, 1.5 + 0.26 * classes + (0.07 * longest if longest > 2 else 0))
    drawing, axes = new_axes(width, height)
    axes.set(xlim=(-0.7, clients - 0.3), ylim=(classes - 0.3, -0.7))
    step = 1 if clients <= _NAMES else 10 * -(-clients // (10 * _NAMES))
    places = range(0, clients, step)
    turned = 90 if max(len(names[n]) for n in places) > 2 and step == 1 else 0
    axes.set_xticks(places, [names[n] for n in places], size=8, rotation=turned)
    step = -(-classes // 30)
    axes.set_yticks(range(0, classes, step), list(map(shown, summary.classes[::step])), size=8)
    some = some_of(clients, len(summary.client_ids))
    who = f"client{_order_note(summary)}{some and f'; {some} are shown'}"
    axes.set(xlabel=fill(who, int(11 * width)), ylabel="class")
    largest = f"largest point: {counts.max():,} of one class"
    held_out = f" to train on, and {summary.held_out:,} held out" if summary.held_out else ""
    amount = f"{summary.sizes.sum():,} samples{held_out}"
    head(drawing, f"{shown(summary.title, 60)}\n{amount}; {largest}")
    axes.grid(alpha=0.15)
    axes.set_axisbelow(True)
    drawing.draw_without_rendering()  # only now it is known how large a cell is
    frame = axes.get_window_extent()
    cell = 72 / drawing.dpi * min(frame.width / clients, frame.height / classes)  # points
    x, y = np.nonzero(counts)
    area = (_MARGIN * max(cell, 1.5)) ** 2 * counts[x, y] / counts.max()
    axes.scatter(x, y, s=area, c=_colours(summary, order)[x], linewidths=0)
    return drawing


def _range(sizes: Tensor) -> str:
    low, high = int(sizes.min()), int(sizes.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _order_note(summary: PartitionSummary) -> str:
    if summary.true_clusters is None or len(summary.groups()) == 1:
        return ""
    alone = ", grey: alone" if len(summary.groups()[-1]) == 1 else ""
    return f", ordered by cluster (colours{alone})"


def _colours(summary: PartitionSummary, order: Sequence[int]) -> NDArray[np.str_]:
    """A colour for each client in the picture's order: that of its cluster; grey if alone in it."""
    labels = summary.true_clusters
    if labels is None:
        return np.array([cluster_colour(0)] * len(order))
    colour_of = {
        client: cluster_colour(int(labels[client])) if len(group) > 1 else ALONE
        for group in summary.groups()
        for client in group
    }
    return np.array([colour_of[client] for client in order])


def _shown(summary: PartitionSummary) -> list[int]:
    """Positions of the clients in the picture's order; of very many, an even choice."""
    ids, truth = summary.client_ids, summary.true_clusters
    groups = [list(range(len(ids)))] if truth is None else summary.groups()
    order = [n for group in groups for n in sorted(group, key=lambda n: natural(ids[n]))]
    return sample(order, dict.fromkeys(order) if truth is None else dict(enumerate(truth.tolist())))


def summarise_partition(run_data: RunData) -> PartitionSummary | None:
    """The numbers in ``federation.json``, if the server knows them."""
    clients = run_data.federation["clients"]
    if any(client["samples"] is None for client in clients):
        return None
    true_clusters = list(run_data.true_clusters.values())
    seed = f", seed {run_data.seed}" if "seed" in run_data.options else ""
    return PartitionSummary(
        title=f"{run_data.options.get('dataset', 'own data')}{seed}",
        classes=tuple(run_data.classes),
        client_ids=tuple(client["id"] for client in clients),
        counts=torch.tensor([client["samples"] for client in clients]),
        true_clusters=None if None in true_clusters else torch.tensor(true_clusters),
        available=0,
        tested=0,
        held_out=sum(sum(client.get("test_samples") or ()) for client in clients),
    )
