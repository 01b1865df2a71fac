"""Which signature of a client, and which cut, find the clusters: replayed from the same updates.

FedAvg trains; the updates of the classifier layer that it gets are kept, and every way to compare
and to cut is tried on them, so that all see the same.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform
from sklearn.cluster import HDBSCAN
from sklearn.metrics import silhouette_score
from sklearn.mixture import GaussianMixture
from torch import Tensor

from cadis.algorithm import Algorithm, unit
from cadis.algorithm.methods.cadis import (
    average_linkage,
    class_profiles,
    cluster,
    found_clusters,
    rescale,
)
from cadis.engine import Engine
from cadis.experiment import HeadKeeping, build_experiment, resolve
from cadis.rng import one_thread
from cadis.store import agreement
from experiments.running import RESULTS

FILE = RESULTS / "signatures.jsonl"
_HUNDRED = {"clients": 100, "per_round": 10, "test_clients": 0, "workers": 2}


def federations() -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and options: model, partition and learning rate."""
    for partition in ("mc", "bc", "uc", "iid"):
        for lr in (0.1, 0.01):
            yield f"digits, {partition}, lr {lr}", {"partition": partition, "lr": lr, "rounds": 40}
    for dataset in ("mnist", "fashion-mnist"):
        for partition in ("mc", "bc", "iid"):
            for lr in (0.1, 0.01):
                options = {"dataset": dataset, "model": "mlp", "partition": partition, "lr": lr}
                yield f"{dataset} MLP, {partition}, lr {lr}", {**options, "rounds": 15}
    for lr in (0.01, 0.001):
        for dataset in ("cifar10", "cifar100"):
            options = {"dataset": dataset, "model": "resnet9", "partition": "mc", "lr": lr}
            yield f"{dataset} ResNet-9, mc, lr {lr}", {**options, "epochs": 1, "rounds": 2}
    for lr in (0.01, 0.001):
        options = {"dataset": "mnist", "model": "cnn", "partition": "mc", "lr": lr, "rounds": 3}
        yield f"mnist CNN, mc, lr {lr}", options


Signature = Callable[[Tensor, Tensor | None], Tensor]


def _head(weight: Tensor, bias: Tensor | None) -> Tensor:
    parts = [weight.flatten(1)] + ([] if bias is None else [bias])
    return torch.cat(parts, dim=1)


def _row_norms(weight: Tensor, bias: Tensor | None) -> Tensor:
    """The signed norm of each row, as it is."""
    squares = weight.square().sum(dim=2) + (0 if bias is None else bias.square())
    return _row_sums(weight, bias).sign() * squares.sqrt()


def _row_sums(weight: Tensor, bias: Tensor | None) -> Tensor:
    return weight.sum(dim=2) + (0 if bias is None else bias)


def _bias(weight: Tensor, bias: Tensor | None) -> Tensor:
    return _row_sums(weight, None) if bias is None else bias


SIGNATURES: dict[str, Signature] = {
    "whole head": _head,
    "bias": _bias,
    "row sums": _row_sums,
    "signed row norms": _row_norms,
    "class profile": class_profiles,
}


def _threshold(mean: Tensor, _count: Tensor) -> Tensor:
    """The paper's: the Q-matrix at 0.7."""
    similarity = _similarity(mean)
    return cluster(rescale(similarity, torch.ones_like(similarity, dtype=torch.bool)), 0.7)


def _contrast(mean: Tensor, count: Tensor) -> Tensor:
    """Ours."""
    return found_clusters(mean, count).of(mean)


def _largest_gap(mean: Tensor, _count: Tensor) -> Tensor:
    """Average linkage, cut in the middle of the largest gap between joins above 0."""
    similarity = _similarity(mean)
    distances = squareform((1 - similarity).clamp(min=0).numpy(), checks=False)
    joins = np.sort(1 - linkage(distances, "average")[:, 2])[::-1]
    levels = np.concatenate([[1.0], joins[joins > 0], [0.0]])
    widest = int((levels[:-1] - levels[1:]).argmax())
    return average_linkage(similarity, float(levels[widest] + levels[widest + 1]) / 2)


def _mixture(mean: Tensor, _count: Tensor) -> Tensor:
    """Average linkage, cut where a pair is as likely of one normal distribution as of another."""
    similarity = _similarity(mean)
    rows, columns = np.triu_indices(len(mean), 1)
    values = similarity.numpy()[rows, columns][:, None]
    if len(values) < 3:
        return torch.zeros(len(mean), dtype=torch.long)
    mixture = GaussianMixture(2, random_state=0).fit(values)
    grid = np.linspace(-1, 1, 401)[:, None]
    upper = mixture.predict(grid) == mixture.means_[:, 0].argmax()
    lowest = grid[upper & (grid[:, 0] > mixture.means_.min()), 0]
    return average_linkage(similarity, float(lowest.min()) if len(lowest) else 1.0)


def _silhouette(mean: Tensor, _count: Tensor) -> Tensor:
    """Average linkage, cut where the mean silhouette is largest."""
    similarity, best = _similarity(mean), (0.0, torch.zeros(len(mean), dtype=torch.long))
    distances = (1 - similarity).clamp(min=0).fill_diagonal_(0).numpy()
    for cut in np.linspace(0.2, 0.9, 15):
        labels = average_linkage(similarity, float(cut))
        if 1 < len(labels.unique()) < len(labels):
            score = float(silhouette_score(distances, labels.numpy(), metric="precomputed"))
            best = max(best, (score, labels), key=lambda found: found[0])
    return best[1]


def _hdbscan(mean: Tensor, _count: Tensor) -> Tensor:
    """HDBSCAN with its defaults, clusters of two at least; whoever is noise is alone."""
    distances = (1 - _similarity(mean)).clamp(min=0).fill_diagonal_(0).double().numpy()
    labels = HDBSCAN(min_cluster_size=2, metric="precomputed", copy=True).fit_predict(distances)
    alone = labels.max() + 1 + np.arange(len(labels))
    return torch.tensor(np.where(labels < 0, alone, labels))


CUTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "threshold 0.7": _threshold,
    "largest gap": _largest_gap,
    "mixture": _mixture,
    "silhouette": _silhouette,
    "HDBSCAN": _hdbscan,
    "contrast": _contrast,
}


def _similarity(mean: Tensor) -> Tensor:
    profiles = unit(mean.double())
    cosines = profiles @ profiles.T
    return ((cosines + cosines.T) / 2).clamp(-1, 1).fill_diagonal_(1)


def run(data_dir: str = "") -> None:
    """Try what is missing, and keep it."""
    done = {json.loads(line)["federation"] for line in _lines()}
    for name, options in federations():
        if name not in done:
            found = {"federation": name, **_tried({**_HUNDRED, **options}, data_dir)}
            with FILE.open("a") as file:
                file.write(json.dumps(found) + "\n")
            print(f"signatures: {name}: {found['contrast']['class profile']}", flush=True)


def _lines() -> list[str]:
    return FILE.read_text().splitlines() if FILE.exists() else []


@one_thread()
def _tried(options: Mapping[str, Any], data_dir: str) -> dict[str, Any]:
    """By cut and signature, the mean agreement over rounds, of all clients seen."""
    given = {**options, "method": "fedavg", **({"data_dir": data_dir} if data_dir else {})}
    built = build_experiment(resolve({}, given))
    truth = built.federation.true_clusters
    assert truth is not None
    classes = len(built.federation.classes)
    kept: list[tuple[list[int], list[Tensor]]] = []
    with TemporaryDirectory() as folder:
        settings = built.config.settings.for_engine()
        parts = built.model, built.federation, Algorithm(HeadKeeping()), settings, Path(folder)
        engine = Engine(*parts)
        with closing(engine.rounds(engine.start)) as rounds:
            for result in rounds:
                memory = list(result.state.server.memory.values())
                kept.append(([int(client) for client in result.record.participants], memory))
    pairs = [("class profile", cut) for cut in CUTS]
    pairs += [(signature, "contrast") for signature in SIGNATURES if signature != "class profile"]
    pairs += [("whole head", "threshold 0.7")]
    found: dict[str, dict[str, list[float]]] = {cut: {} for cut in CUTS}
    for signature, cut in pairs:
        scores = _scores(kept, classes, SIGNATURES[signature], CUTS[cut], truth)
        found[cut][signature] = [round(float(np.mean(s)), 3) for s in zip(*scores, strict=True)]
    return found


def _scores(
    kept: Sequence[tuple[list[int], list[Tensor]]],
    classes: int,
    signature: Signature,
    cut: Callable[[Tensor, Tensor], Tensor],
    truth: Tensor,
) -> list[tuple[float, float]]:
    """After every round from the fifth on, or all of few: agreement, and number of clusters."""
    sums: Tensor | None = None
    count, scores = torch.zeros(len(truth), dtype=torch.int32), []
    for number, (clients, (weight, *bias)) in enumerate(kept):
        found = unit(signature(weight.view(len(clients), classes, -1), bias[0] if bias else None))
        sums = torch.zeros(len(truth), found.shape[1]) if sums is None else sums
        sums[clients] += found
        count[clients] += 1
        if number >= 4 or len(kept) < 5:
            seen = count.nonzero()[:, 0]
            labels = cut(sums[seen] / count[seen, None], count[seen])
            agreed = agreement(truth[seen].tolist(), labels.tolist())
            scores.append((agreed, float(len(labels.unique()))))
    return scores


def table() -> list[str]:
    """The agreement of each way, a row for each federation."""
    ways = [("whole head", "threshold 0.7"), *((s, "contrast") for s in SIGNATURES)]
    ways += [("class profile", cut) for cut in CUTS if cut != "contrast"]
    header = ["federation", *(f"{signature}, {cut}" for signature, cut in ways)]
    rows = []
    for line in _lines():
        found = json.loads(line)
        cells = [found[cut][signature] for signature, cut in ways]
        iid = ", iid," in found["federation"]
        shown = [_shown_iid(clusters) if iid else f"{agreed:.2f}" for agreed, clusters in cells]
        rows.append([found["federation"], *shown])
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def _shown_iid(clusters: float) -> str:
    return "none" if clusters == 1 else f"{clusters:.1f}"
