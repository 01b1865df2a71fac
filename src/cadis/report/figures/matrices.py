"""Who is like whom, and who was grouped with whom."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from cadis.analysis import Results, Story
from cadis.core import ClientId, rescale
from cadis.report.style import UNKNOWN, Place, figure, shown


def draw_similarity(results: Results, place: Place) -> Path | None:
    """The Q-matrix at the end of a run, clients of one cluster side by side."""
    story, path = clustering_story(results), place("similarity")
    if story is None or story.matrix is None:
        return None
    order = story.matrix.index_of(story.ordered_clients)
    q = rescale(story.matrix.mean, story.matrix.known)[order[:, None], order]
    with figure(path, 6.0, 5.2) as drawing:
        axes = drawing.subplots()
        image = heat_map(axes, q.numpy())
        drawing.colorbar(image, ax=axes, label="Q: 1 is alike, 0 is least alike", shrink=0.85)
        _mark_clients(axes, story.ordered_clients, story)
        never = " (grey: unknown)" if q.isnan().any() else ""
        title = f"How alike the clients are{some_shown(story)}{never}"
        axes.set_title(f"{title};\nframes: {_frames(story)}")
    return path.with_suffix(".png")


def draw_clusters(results: Results, place: Place) -> Path | None:
    """Who was grouped with whom in a run: found below the diagonal, true above it."""
    story, path = clustering_story(results), place("clusters")
    if story is None:
        return None
    clients = story.ordered_clients
    found = story.grouped_together()
    has_truth = all(story.true_cluster[client] is not None for client in clients)
    if has_truth:
        truth = torch.tensor([story.true_cluster[client] for client in clients])
        found = torch.where(torch.ones_like(found).triu(1) > 0, truth[:, None] == truth, found)
    with figure(path, 6.0, 5.2) as drawing:
        axes = drawing.subplots()
        image = heat_map(axes, found.numpy())
        drawing.colorbar(image, ax=axes, label="part of their common rounds", shrink=0.85)
        _mark_clients(axes, clients, story)
        axes.set_title(_clusters_title(story, has_truth, bool(found.isnan().any())))
    return path.with_suffix(".png")


def _clusters_title(story: Story, has_truth: bool, has_strangers: bool) -> str:
    side = "Below the diagonal: g" if has_truth else "G"
    above = f";{chr(10) if story.choice else ' '}above it: the truth" if has_truth else ""
    never = "\n(grey: never took part together)" if has_strangers else ""
    some = f"; {story.choice}" if story.choice else ""
    return f"{side}rouped together by CADIS{above}{some}{never}"


def heat_map(axes: Axes, values: NDArray[np.float64]) -> AxesImage:
    """Shares from 0 to 1; grey is unknown."""
    colours = colormaps["viridis"].with_extremes(bad=UNKNOWN)
    axes.spines[:].set_visible(False)
    return axes.imshow(values, cmap=colours, vmin=0, vmax=1, interpolation="nearest")


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


def some_shown(story: Story) -> str:
    """What to add to a title if not all clients are shown."""
    return f": {story.choice}" if story.choice else ""


def clustering_story(results: Results) -> Story | None:
    """The first run that tells of clusters, if any does."""
    telling = (story for story in results.stories if story.history[-1].clusters is not None)
    return next(telling, None)


def _cluster_of(client: ClientId, story: Story) -> int:
    truth = story.true_cluster[client]
    return story.found_cluster[client] if truth is None else truth


def _frames(story: Story) -> str:
    return "found clusters" if None in story.true_cluster.values() else "true clusters"
