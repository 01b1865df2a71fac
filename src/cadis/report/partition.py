"""Tables and a figure of the samples of each client and class."""

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

from cadis._io import natural_key
from cadis.analysis import PartitionSummary, Results, RunData, format_sample_size
from cadis.report.formats import join_names
from cadis.report.style import (
    ALONE,
    add_title,
    figure_style,
    get_cluster_color,
    new_axes,
    save_figure,
    shorten,
)
from cadis.report.terminal_table import TerminalTable, make_terminal_table
from cadis.store import sample_clients

_MAX_ROWS = 12
_MAX_NAMES = 40  # clients that are named along the axis; if there are more, every tenth or fewer
_POINT_SIZE = 0.9  # diameter of the largest point relative to the distance between points


def make_cluster_table(summary: PartitionSummary) -> TerminalTable:
    """Return a table with a row per cluster, largest first; without clusters, a row per client."""
    has_clusters, groups = summary.true_clusters is not None, summary.group_clients()
    columns = ["cluster", "clients", "samples/client"] if has_clusters else ["client", "samples"]
    columns += ["test samples"] if summary.own_tests else []
    columns += ["classes"] if has_clusters else ["classes", "largest class"]
    rows = []
    for number, group in enumerate(groups[:_MAX_ROWS]):
        counts, sizes = summary.counts[group].sum(dim=0), summary.sizes[group]
        client = str(summary.client_ids[group[0]])
        names = [name for name, count in zip(summary.classes, counts, strict=True) if count]
        tests = [_format_range(torch.tensor(summary.own_tests)[group])] if summary.own_tests else []
        cells = [str(number), str(len(group))] if has_clusters else [client]
        cells += [_format_range(sizes), *tests, join_names(names, limit=5)]
        if not has_clusters:
            largest = int(counts.argmax())
            cells.append(f"{summary.classes[largest]} {counts[largest] / counts.sum():.0%}")
        rows.append(list(map(escape, cells)))
    if len(groups) > _MAX_ROWS:
        rows.append([f"and {len(groups) - _MAX_ROWS} more"])
    return make_terminal_table(escape(summary.title), columns, rows, ("clients", "classes"))


def make_partition_table(summary: PartitionSummary) -> TerminalTable:
    """Return a table of sizes and skew of a partition."""
    sizes = summary.sizes
    table = Table(show_header=False)
    table.add_row("clients", f"{len(sizes):,}")
    if summary.true_clusters is not None:
        table.add_row("clusters", f"{len(summary.group_clients()):,}")
        largest = len(summary.group_clients()[0]) / len(sizes)
        table.add_row("  clients in the largest cluster", f"{largest:.0%}")
    table.add_row("training samples of clients", f"{sizes.sum():,} of {summary.available:,}")
    table.add_row("  per client", f"{_format_range(sizes)}, mean {sizes.double().mean():,.1f}")
    table.add_row("  standard deviation / mean", f"{summary.size_skew:.2f}")
    table.add_row("test samples", f"{summary.tested:,}")
    table.add_row("label skew (0: same classes, 1: no common class)", f"{summary.label_skew:.2f}")
    if missing := summary.find_missing_classes():
        table.add_row("[yellow]classes that no client has[/yellow]", escape(join_names(missing)))
    return TerminalTable(table)


def draw_partition(summary: PartitionSummary, path: Path) -> Path:
    """Draw the samples of each client and class; the area of a point shows their number."""
    with figure_style():
        return save_figure(_draw_counts(summary), path)


def draw_federation(results: Results) -> Figure | None:
    """Draw the samples of each client and class in the first run; None if they are unknown."""
    summary = summarize_partition(results.runs[0])
    return None if summary is None else _draw_counts(summary)


def _draw_counts(summary: PartitionSummary) -> Figure:
    order = _order_clients(summary)
    counts = summary.counts[order].numpy()  # (clients, classes)
    clients, classes = counts.shape
    names = [shorten(summary.client_ids[n]) for n in order]
    longest = max(map(len, names))
    width = min(12.0, max(6.0, 3.2 + 0.28 * clients))
    height = min(9.0, 1.5 + 0.26 * classes + (0.07 * longest if longest > 2 else 0))
    drawing, axes = new_axes(width, height)
    axes.set(xlim=(-0.7, clients - 0.3), ylim=(classes - 0.3, -0.7))
    step = 1 if clients <= _MAX_NAMES else 10 * -(-clients // (10 * _MAX_NAMES))
    ticks = range(0, clients, step)
    rotation = 90 if max(len(names[n]) for n in ticks) > 2 and step == 1 else 0
    axes.set_xticks(ticks, [names[n] for n in ticks], size=8, rotation=rotation)
    step = -(-classes // 30)
    axes.set_yticks(range(0, classes, step), list(map(shorten, summary.classes[::step])), size=8)
    sample_size = format_sample_size(clients, len(summary.client_ids))
    shown = f"; {sample_size} are shown" if sample_size else ""
    label = f"client{_describe_order(summary)}{shown}"
    axes.set(xlabel=fill(label, int(11 * width)), ylabel="class")
    held_out = f" and {summary.held_out:,} held-out test samples" if summary.held_out else ""
    title = f"Training samples of each client and class: {shorten(summary.title, 60)}"
    amount = f"{summary.sizes.sum():,} training samples{held_out}"
    add_title(drawing, f"{title}\n{amount}; the largest point stands for {counts.max():,} samples")
    axes.grid(alpha=0.15)
    axes.set_axisbelow(True)
    drawing.draw_without_rendering()  # the size of a cell is known only now
    extent = axes.get_window_extent()
    cell = 72 / drawing.dpi * min(extent.width / clients, extent.height / classes)  # points
    x, y = np.nonzero(counts)
    area = (_POINT_SIZE * max(cell, 1.5)) ** 2 * counts[x, y] / counts.max()
    axes.scatter(x, y, s=area, c=_get_colors(summary, order)[x], linewidths=0)
    return drawing


def _format_range(sizes: Tensor) -> str:
    low, high = int(sizes.min()), int(sizes.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _describe_order(summary: PartitionSummary) -> str:
    if summary.true_clusters is None or len(summary.group_clients()) == 1:
        return ""
    gray = "; gray: cluster of one client" if len(summary.group_clients()[-1]) == 1 else ""
    return f", sorted by true cluster (one color each{gray})"


def _get_colors(summary: PartitionSummary, order: Sequence[int]) -> NDArray[np.str_]:
    """Return the color of each client's cluster; gray for clusters of one client."""
    labels = summary.true_clusters
    if labels is None:
        return np.array([get_cluster_color(0)] * len(order))
    color_of = {
        client: get_cluster_color(int(labels[client])) if len(group) > 1 else ALONE
        for group in summary.group_clients()
        for client in group
    }
    return np.array([color_of[client] for client in order])


def _order_clients(summary: PartitionSummary) -> list[int]:
    """Return client indices sorted by cluster and name; an even sample if there are very many."""
    ids, truth = summary.client_ids, summary.true_clusters
    groups = [list(range(len(ids)))] if truth is None else summary.group_clients()
    order = [n for group in groups for n in sorted(group, key=lambda n: natural_key(ids[n]))]
    return sample_clients(
        order, dict.fromkeys(order) if truth is None else dict(enumerate(truth.tolist()))
    )


def summarize_partition(run_data: RunData) -> PartitionSummary | None:
    """Return the sample counts of a run; None if the server does not know them for all clients."""
    clients = run_data.federation["clients"]
    if any(client["samples"] is None for client in clients):
        return None
    true_clusters = list(run_data.true_clusters.values())
    seed = f", seed {run_data.seed}" if "seed" in run_data.options else ""
    return PartitionSummary(
        title=f"{run_data.options.get('dataset', 'user data')}{seed}",
        classes=tuple(run_data.classes),
        client_ids=tuple(client["id"] for client in clients),
        counts=torch.tensor([client["samples"] for client in clients]),
        true_clusters=None if None in true_clusters else torch.tensor(true_clusters),
        available=0,
        tested=0,
        held_out=sum(sum(client.get("test_samples") or ()) for client in clients),
    )
