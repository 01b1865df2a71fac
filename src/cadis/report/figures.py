"""The pictures of one run, one function a figure."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from cadis.core import ClientId, rescale
from cadis.report.story import Story
from cadis.report.style import METHOD_NAMES, UNKNOWN, colour_of, figure, listed, shown
from cadis.runs import RunFolder, mean_accuracy


def draw_figures(folder: RunFolder) -> list[Path]:
    """Draw all figures of a finished run into its folder."""
    story = Story.read(folder)
    folder.figures.mkdir(exist_ok=True)
    drawn = []
    if story.summary["accuracy"] is not None:
        drawn.append(draw_accuracy(story, folder.figures / "accuracy.png"))
    if story.summary["confusion"] is not None:
        drawn.append(draw_confusion(story, folder.figures / "confusion.png"))
    if story.matrix is not None:
        drawn += [
            draw_similarity(story, folder.figures / "similarity.png"),
            draw_clusters(story, folder.figures / "clusters.png"),
        ]
    return drawn


def draw_accuracy(story: Story, path: Path) -> Path:
    """Accuracy over rounds, on all classes and on those of the smallest clusters."""
    rounds = [record.round for record in story.history]
    colour = colour_of(story.method.name)
    with figure(path, 6.4, 3.8) as drawing:
        axes = drawing.subplots()
        everything = np.array([record.accuracy for record in story.history], float)
        marker = "." if len(rounds) < 10 else None  # a single round is no line
        axes.plot(rounds, everything, color=colour, marker=marker, label="all classes")
        if story.rare:
            rare = [mean_accuracy(record, story.rare) for record in story.history]
            label = f"classes of the smallest clusters ({listed(story.names(story.rare))})"
            axes.plot(
                rounds, np.array(rare, float), color=colour, ls=(0, (2, 1)), lw=1, label=label
            )
        axes.set(
            xlabel="round", ylabel="test accuracy", ylim=(0, 1.02), xlim=(1, max(2, rounds[-1]))
        )
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        axes.legend(loc="lower right")
        name = METHOD_NAMES.get(story.method.name, story.method.name)
        axes.set_title(f"{name}: accuracy of the global model after each round")
    return path


def draw_confusion(story: Story, path: Path) -> Path:
    """The last model's predictions: of each true class, the share that went where."""
    counts = np.array(story.summary["confusion"], dtype=float)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    size = len(shares)
    with figure(path, 5.6, 4.8) as drawing:
        axes = drawing.subplots()
        _heat_map(drawing, axes, shares, "share of the true class")
        if size <= 20:
            for row, column in np.argwhere(counts > 0):
                share = shares[row, column]
                shade = "white" if share < 0.6 else "black"
                axes.text(
                    column, row, f"{share:.2f}", ha="center", va="center", size=7, color=shade
                )
        step = -(-size // 20)
        places = range(0, size, step)
        names = [
            f"{name} *" if place in story.rare else name
            for place, name in zip(places, story.names(places), strict=True)
        ]
        turned = 90 if max(map(len, names)) > 4 else 0
        axes.set_xticks(places, names, rotation=turned)
        axes.set_yticks(places, names)
        axes.set(xlabel="predicted class", ylabel="true class")
        note = "\n* class of a smallest cluster" if story.rare else ""
        axes.set_title(f"Predictions after round {story.summary['rounds']}{note}")
    return path


def draw_similarity(story: Story, path: Path) -> Path:
    """The Q-matrix at the end, clients of one cluster side by side."""
    assert story.matrix is not None
    order = story.matrix.index_of(story.ordered_clients)
    q = rescale(story.matrix.mean, story.matrix.known)[order[:, None], order]
    with figure(path, 6.0, 5.2) as drawing:
        axes = drawing.subplots()
        _heat_map(drawing, axes, q.numpy(), "Q: 1 is alike, 0 is least alike")
        _mark_clients(axes, story.ordered_clients, story)
        never = " (grey: unknown)" if q.isnan().any() else ""
        axes.set_title(f"How alike the clients are{never};\nframes: {_frames(story)}")
    return path


def draw_clusters(story: Story, path: Path) -> Path:
    """Who was grouped with whom: found below the diagonal, true above it."""
    clients = story.ordered_clients
    found = story.grouped_together()
    has_truth = all(story.true_cluster[client] is not None for client in clients)
    if has_truth:
        truth = torch.tensor([story.true_cluster[client] for client in clients])
        found = torch.where(torch.ones_like(found).triu(1) > 0, truth[:, None] == truth, found)
    with figure(path, 6.0, 5.2) as drawing:
        axes = drawing.subplots()
        _heat_map(drawing, axes, found.numpy(), "part of their common rounds")
        _mark_clients(axes, clients, story)
        side = "Below the diagonal: g" if has_truth else "G"
        above = "; above it: the truth" if has_truth else ""
        never = "\n(grey: never took part together)" if found.isnan().any() else ""
        axes.set_title(f"{side}rouped together by CADIS{above}{never}")
    return path


def _heat_map(drawing: Figure, axes: Axes, values: NDArray[np.float64], label: str) -> None:
    colours = colormaps["viridis"].with_extremes(bad=UNKNOWN)
    image = axes.imshow(values, cmap=colours, vmin=0, vmax=1, interpolation="nearest")
    drawing.colorbar(image, ax=axes, label=label, shrink=0.85)
    axes.spines[:].set_visible(False)


def _mark_clients(axes: Axes, clients: Sequence[ClientId], story: Story) -> None:
    """Names of the clients (not too many), and a frame around each cluster."""
    step = -(-len(clients) // 25)
    places = range(0, len(clients), step)
    names = [shown(clients[place]) for place in places]
    long = max(map(len, names)) > 3
    axes.set_xticks(places, names, rotation=90 if long else 0, size=8)
    axes.set_yticks(places, names, size=8)
    axes.set(xlabel="client", ylabel="client")
    labels = [_cluster_of(client, story) for client in clients]
    borders = [n for n in range(len(labels)) if n == 0 or labels[n] != labels[n - 1]]
    for start, stop in zip(borders, [*borders[1:], len(labels)], strict=True):
        corner, side = start - 0.5, stop - start
        axes.add_patch(Rectangle((corner, corner), side, side, fill=False, color="white", lw=1.5))


def _cluster_of(client: ClientId, story: Story) -> int:
    truth = story.true_cluster[client]
    return story.found_cluster[client] if truth is None else truth


def _frames(story: Story) -> str:
    return "found clusters" if None in story.true_cluster.values() else "true clusters"
