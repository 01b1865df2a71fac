"""Compare signatures of clients and cuts of the dendrogram by the clusters that they find.

FedAvg trains; its updates of the classifier layer are stored, and all combinations are computed
from the same updates.
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

from cadis.algorithm import Algorithm, normalize
from cadis.algorithm.methods.cadis import (
    average_linkage,
    cluster_by_threshold,
    compute_class_profiles,
    compute_q_matrix,
)
from cadis.algorithm.methods.cadis.clustering import (
    Cut,
    compute_repeatability,
    find_contrast_cut,
)
from cadis.engine import Engine
from cadis.experiment import HeadRecorder, make_experiment, resolve
from cadis.rng import use_one_thread
from cadis.store import adjusted_rand_index
from experiments.running import RESULTS

FILE = RESULTS / "signatures.jsonl"
_HUNDRED = {"clients": 100, "per_round": 10, "test_clients": 0, "workers": 2}


def federations() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield names and options of federations: model, partition and learning rate."""
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
    """Return the signed norm of each row."""
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
    "class profile": compute_class_profiles,
}


def _cut_threshold(mean: Tensor, _count: Tensor) -> Tensor:
    """Cut the Q-matrix at 0.7, as in the paper."""
    similarity = _compute_similarity(mean)
    return cluster_by_threshold(
        compute_q_matrix(similarity, torch.ones_like(similarity, dtype=torch.bool)), 0.7
    )


def _cut_contrast(mean: Tensor, count: Tensor) -> Tensor:
    """Cut where the contrast is highest; one cluster if profiles of a client hardly agree."""
    similarity = _compute_similarity(mean)
    cut = find_contrast_cut(similarity, float(count.double().mean()))
    repeatability = compute_repeatability(mean, count)
    confidence = cut.confidence if repeatability is None else min(cut.confidence, repeatability)
    return average_linkage(similarity, Cut(cut.level, confidence).merge_all_if_uncertain().level)


def _cut_largest_gap(mean: Tensor, _count: Tensor) -> Tensor:
    """Cut average linkage in the middle of the largest gap between merges above 0."""
    similarity = _compute_similarity(mean)
    distances = squareform((1 - similarity).clamp(min=0).numpy(), checks=False)
    joins = np.sort(1 - linkage(distances, "average")[:, 2])[::-1]
    levels = np.concatenate([[1.0], joins[joins > 0], [0.0]])
    widest = int((levels[:-1] - levels[1:]).argmax())
    return average_linkage(similarity, float(levels[widest] + levels[widest + 1]) / 2)


def _cut_mixture(mean: Tensor, _count: Tensor) -> Tensor:
    """Cut average linkage where two normal distributions of similarities are equally likely."""
    similarity = _compute_similarity(mean)
    rows, columns = np.triu_indices(len(mean), 1)
    values = similarity.numpy()[rows, columns][:, None]
    if len(values) < 3:
        return torch.zeros(len(mean), dtype=torch.long)
    mixture = GaussianMixture(2, random_state=0).fit(values)
    grid = np.linspace(-1, 1, 401)[:, None]
    upper = mixture.predict(grid) == mixture.means_[:, 0].argmax()
    lowest = grid[upper & (grid[:, 0] > mixture.means_.min()), 0]
    return average_linkage(similarity, float(lowest.min()) if len(lowest) else 1.0)


def _cut_silhouette(mean: Tensor, _count: Tensor) -> Tensor:
    """Cut average linkage at the largest mean silhouette."""
    similarity, best = _compute_similarity(mean), (0.0, torch.zeros(len(mean), dtype=torch.long))
    distances = (1 - similarity).clamp(min=0).fill_diagonal_(0).numpy()
    for cut in np.linspace(0.2, 0.9, 15):
        labels = average_linkage(similarity, float(cut))
        if 1 < len(labels.unique()) < len(labels):
            score = float(silhouette_score(distances, labels.numpy(), metric="precomputed"))
            best = max(best, (score, labels), key=lambda found: found[0])
    return best[1]


def _cut_hdbscan(mean: Tensor, _count: Tensor) -> Tensor:
    """Run HDBSCAN with clusters of at least two; clients that are noise are single clusters."""
    distances = (1 - _compute_similarity(mean)).clamp(min=0).fill_diagonal_(0).double().numpy()
    labels = HDBSCAN(min_cluster_size=2, metric="precomputed", copy=True).fit_predict(distances)
    own_labels = labels.max() + 1 + np.arange(len(labels))
    return torch.tensor(np.where(labels < 0, own_labels, labels))


CUTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "threshold 0.7": _cut_threshold,
    "largest gap": _cut_largest_gap,
    "mixture": _cut_mixture,
    "silhouette": _cut_silhouette,
    "HDBSCAN": _cut_hdbscan,
    "contrast": _cut_contrast,
}


def _compute_similarity(mean: Tensor) -> Tensor:
    profiles = normalize(mean.double())
    cosines = profiles @ profiles.T
    return ((cosines + cosines.T) / 2).clamp(-1, 1).fill_diagonal_(1)


def run(data_dir: str = "") -> None:
    """Compute the missing results and store them."""
    done = {json.loads(line)["federation"] for line in _read_lines()}
    for name, options in federations():
        if name not in done:
            found = {"federation": name, **_evaluate({**_HUNDRED, **options}, data_dir)}
            with FILE.open("a") as file:
                file.write(json.dumps(found) + "\n")
            print(f"signatures: {name}: {found['contrast']['class profile']}", flush=True)


def _read_lines() -> list[str]:
    return FILE.read_text().splitlines() if FILE.exists() else []


@use_one_thread()
def _evaluate(options: Mapping[str, Any], data_dir: str) -> dict[str, Any]:
    """Return the mean agreement over rounds, by cut and signature."""
    all_options = {**options, "method": "fedavg", **({"data_dir": data_dir} if data_dir else {})}
    experiment = make_experiment(resolve({}, all_options))
    true_clusters = experiment.federation.true_clusters
    assert true_clusters is not None
    classes = len(experiment.federation.classes)
    rounds_data: list[tuple[list[int], list[Tensor]]] = []
    with TemporaryDirectory() as folder:
        settings = experiment.config.settings.to_engine_settings()
        parts = (
            experiment.model,
            experiment.federation,
            Algorithm(HeadRecorder()),
            settings,
            Path(folder),
        )
        engine = Engine(*parts)
        with closing(engine.rounds(engine.start)) as rounds:
            for result in rounds:
                tensors = list(result.state.server.tensors.values())
                rounds_data.append(
                    ([int(client) for client in result.record.participants], tensors)
                )
    pairs = [("class profile", cut) for cut in CUTS]
    pairs += [(signature, "contrast") for signature in SIGNATURES if signature != "class profile"]
    pairs += [("whole head", "threshold 0.7")]
    found: dict[str, dict[str, list[float]]] = {cut: {} for cut in CUTS}
    for signature, cut in pairs:
        scores = _compute_scores(
            rounds_data, classes, SIGNATURES[signature], CUTS[cut], true_clusters
        )
        found[cut][signature] = [round(float(np.mean(s)), 3) for s in zip(*scores, strict=True)]
    return found


def _compute_scores(
    rounds_data: Sequence[tuple[list[int], list[Tensor]]],
    classes: int,
    signature: Signature,
    cut: Callable[[Tensor, Tensor], Tensor],
    true_clusters: Tensor,
) -> list[tuple[float, float]]:
    """Return agreement and number of clusters of each round, from the fifth if there are many."""
    sums: Tensor | None = None
    count, scores = torch.zeros(len(true_clusters), dtype=torch.int32), []
    for number, (clients, (weight, *bias)) in enumerate(rounds_data):
        found = normalize(
            signature(weight.view(len(clients), classes, -1), bias[0] if bias else None)
        )
        sums = torch.zeros(len(true_clusters), found.shape[1]) if sums is None else sums
        sums[clients] += found
        count[clients] += 1
        if number >= 4 or len(rounds_data) < 5:
            seen = count.nonzero()[:, 0]
            labels = cut(sums[seen] / count[seen, None], count[seen])
            agreement = adjusted_rand_index(true_clusters[seen].tolist(), labels.tolist())
            scores.append((agreement, float(len(labels.unique()))))
    return scores


def table() -> list[str]:
    """Return a Markdown table of the agreements, one row per federation."""
    combinations = [("whole head", "threshold 0.7"), *((s, "contrast") for s in SIGNATURES)]
    combinations += [("class profile", cut) for cut in CUTS if cut != "contrast"]
    header = ["federation", *(f"{signature}, {cut}" for signature, cut in combinations)]
    rows = []
    for line in _read_lines():
        found = json.loads(line)
        cells = [found[cut][signature] for signature, cut in combinations]
        iid = ", iid," in found["federation"]
        cells_text = [
            _format_clusters(clusters) if iid else f"{agreement:.2f}"
            for agreement, clusters in cells
        ]
        rows.append([found["federation"], *cells_text])
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def _format_clusters(clusters: float) -> str:
    return "none" if clusters == 1 else f"{clusters:.1f}"
