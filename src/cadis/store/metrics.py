"""Metrics of a run from its history: accuracy, rare classes, and the clusters that were found.

:class:`~cadis.store.RunWriter` writes them to ``summary.json``; analyses and trackers use them too.
"""

import platform
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from math import inf
from statistics import fmean, pstdev
from typing import Any, TypeVar

import torch

from cadis.algorithm.methods.cadis import SimilarityMatrix, estimate_all
from cadis.rng import use_one_thread
from cadis.server import RoundRecord
from cadis.store.observations import (
    MeanProfiles,
    RunningSimilarities,
    assign_clusters,
    get_clusters,
    get_gamma,
    get_threshold,
    has_profiles,
    list_compared_clients,
)
from cadis.training import Evaluation
from cadis.types import ClientId

_MAX_CLUSTERED = 1000
"""If a run has at most this number of clients, all of them are clustered at its end."""
_CLUSTER_SAMPLE = 300
"""Number of clients to cluster otherwise; all pairs of 10,000 clients would take minutes."""
_MAX_SHOWN = 300
"""If a run has at most this number of clients, figures show all of them."""
MAX_FIGURE_CLIENTS = 120
"""Number of clients in figures otherwise, since a figure has no space for more."""

Client = TypeVar("Client", int, ClientId)


def find_rare_classes(federation: dict[str, Any]) -> list[int]:
    """Return the labels of classes that only clients of the smallest clusters have.

    Args:
        federation: content of ``federation.json``.

    Returns:
        The labels; empty if clusters or samples are unknown, or all clusters have the same size.
    """
    clients = federation["clients"]
    sizes = Counter(client["cluster"] for client in clients)
    is_known = all(client["samples"] is not None for client in clients)
    if None in sizes or not is_known or len(set(sizes.values())) < 2:
        return []
    rare, common = set[int](), set[int]()
    for client in clients:
        labels = {label for label, count in enumerate(client["samples"]) if count}
        (rare if sizes[client["cluster"]] == min(sizes.values()) else common).update(labels)
    return sorted(rare - common)


def compute_mean_accuracy(record: RoundRecord, classes: Sequence[int]) -> float | None:
    """Return the mean of the accuracies on some classes; None if none of them was tested."""
    by_class = record.class_accuracy
    values = [a for label in classes if by_class and (a := by_class[label]) is not None]
    return sum(values) / len(values) if values else None


def find_last_tested(history: Sequence[RoundRecord]) -> RoundRecord:
    """Return the last round whose model was tested, or the last round if none was."""
    records = (record for record in reversed(history) if record.accuracy is not None)
    return next(records, history[-1])


def format_metric_name(name: str) -> str:
    """Return the name of a metric for readers, such as "balanced accuracy" or "AUC"."""
    return {"auc": "AUC", "f1": "F1"}.get(name, name.replace("_", " "))


def get_metric(record: RoundRecord, name: str) -> float | None:
    """Return the value of a metric after a round; None if it was not computed."""
    return record.accuracy if name == "accuracy" else record.metrics.get(name)


def find_best_round(history: Sequence[RoundRecord], main_metric: str = "accuracy") -> RoundRecord:
    """Return the first round with the largest value of the main metric."""
    metrics = [get_metric(record, main_metric) for record in history]
    values = [-inf if metric is None else metric for metric in metrics]
    return history[values.index(max(values))]


@use_one_thread()
def rebuild_similarity(
    history: Sequence[RoundRecord], clients: Collection[ClientId] | None = None
) -> SimilarityMatrix | None:
    """Return the similarity matrix after these rounds, computed from their records.

    Missing pairs are estimated once, at the end.

    Args:
        history: records of the rounds.
        clients: clients in the matrix, by default all. The similarities of the other clients are
            still used to estimate missing pairs.

    Returns:
        The matrix; None if the method reported no similarities.
    """
    if has_profiles(history):
        profiles = MeanProfiles()
        for record in history:
            profiles.add(record)
        return profiles.compute_matrix(clients)
    means = RunningSimilarities(history, clients)
    if not means.client_ids:
        return None
    for record in history:
        means.add(record)
    helpers, gamma = means.get_observed(), get_gamma(history[-1])
    rows, ids = means.find_rows_of_columns(), means.client_ids
    similarity = helpers[rows]
    if gamma is not None:
        missing = similarity.isnan()
        similarity[missing] = estimate_all(similarity, gamma, helpers)[missing]
    known, selected = ~similarity.isnan(), tuple(ids[row] for row in rows.tolist())
    return SimilarityMatrix(selected, similarity.nan_to_num(), means.count[rows], known)


def get_true_clusters(federation: dict[str, Any]) -> dict[ClientId, Any]:
    """Return the true cluster of each client in a ``federation.json``; None if unknown."""
    return {client["id"]: client["cluster"] for client in federation["clients"]}


def summarize(
    method_name: str,
    history: Sequence[RoundRecord],
    federation: dict[str, Any],
    evaluation: Evaluation | None,
    with_clusters: bool = True,
    main_metric: str = "accuracy",
) -> dict[str, Any]:
    """Return the content of ``summary.json``.

    Args:
        method_name: name of the method, as users type it.
        history: records of the rounds, at least one.
        federation: content of ``federation.json``.
        evaluation: last evaluation on the test set, for the confusion matrix, if there is one.
        with_clusters: whether to cluster all clients of the history (a sample if there are very
            many). This takes about a second, so it is not done for runs in progress.
        main_metric: the metric that decides which round is best.
    """
    last, best = find_last_tested(history), find_best_round(history, main_metric)
    rare = find_rare_classes(federation)
    seconds = [asdict(record.seconds) for record in history]
    best_value: dict[str, Any] = {}
    if main_metric != "accuracy":
        best_value = {"headline": main_metric, f"best_{main_metric}": get_metric(best, main_metric)}
    return {
        "method": method_name,
        "rounds": history[-1].round,
        "accuracy": last.accuracy,
        "loss": last.loss,
        "best_accuracy": best.accuracy,
        "best_round": best.round,
        **best_value,
        "measures": dict(last.metrics),
        **({"models": [asdict(model) for model in last.models]} if last.models else {}),
        "rare_classes": rare,
        "rare_accuracy": compute_mean_accuracy(last, rare),
        **_summarize_clients(history, federation),
        "rejected": sum(len(record.rejected) for record in history),
        **_summarize_clusters(history, federation, with_clusters),
        "confusion": None if evaluation is None else evaluation.confusion.tolist(),
        "seconds": {name: sum(times[name] for times in seconds) for name in seconds[0]},
        "versions": {
            "cadis": version("cadis"),
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }


def _summarize_clients(
    history: Sequence[RoundRecord], federation: dict[str, Any]
) -> dict[str, Any]:
    """Return the last accuracy on the clients' held-out data; empty if no data are held out."""
    if not any(client.get("test_samples") for client in federation["clients"]):
        return {}
    last = next((r.client_accuracy for r in reversed(history) if r.client_accuracy), [])
    return {f"client_{name}": value for name, value in compute_client_spread(last).items()}


def compute_client_spread(accuracies: Iterable[float | None]) -> dict[str, float]:
    """Return mean, standard deviation and minimum over the tested clients; empty if there are none.

    Args:
        accuracies: accuracy of each client; None if it was not tested.
    """
    values = [accuracy for accuracy in accuracies if accuracy is not None]
    if not values:
        return {}
    return {"mean": fmean(values), "deviation": pstdev(values), "worst": min(values)}


def _summarize_clusters(
    history: Sequence[RoundRecord], federation: dict[str, Any], with_clusters: bool
) -> dict[str, Any]:
    """Return the number of clusters found, and their agreement with the true clusters."""
    last, true_clusters = history[-1], get_true_clusters(federation)
    if get_clusters(last) is None and get_threshold(last) is None:
        return {}
    by_round = {"round_agreement": _compute_round_agreement(history, true_clusters)}
    if not with_clusters or not (clients := list_compared_clients(history)):
        return by_round
    ordered = sorted(clients, key=lambda client: true_clusters[client] or 0)
    selected = sample_clients(ordered, true_clusters, _MAX_CLUSTERED, _CLUSTER_SAMPLE)
    is_sample = len(selected) < len(clients)
    matrix = rebuild_similarity(history, selected if is_sample else None)
    assert matrix is not None
    labels = assign_clusters(matrix, history)
    truth = [true_clusters[client] for client in matrix.client_ids]
    is_known = None not in truth
    return {
        "clusters_found": len(labels.unique()),
        "cluster_agreement": adjusted_rand_index(truth, labels.tolist()) if is_known else None,
        **({"clusters_among": len(selected)} if is_sample else {}),
        **by_round,
    }


def _compute_round_agreement(
    history: Sequence[RoundRecord], true_clusters: Mapping[ClientId, Any]
) -> float | None:
    """Return the adjusted Rand index of the participants' clusters, averaged over rounds."""
    if None in true_clusters.values():
        return None
    scores = [
        adjusted_rand_index([true_clusters[client] for client in record.participants], labels)
        for record in history
        if (labels := get_clusters(record)) is not None
    ]
    return sum(scores) / len(scores) if scores else None


def adjusted_rand_index(true_clusters: Sequence[int], labels: Sequence[int]) -> float:
    """Return the adjusted Rand index of two clusterings of the same clients; 1 if they agree."""
    from sklearn.metrics import adjusted_rand_score  # noqa: PLC0415  # slow to import

    return float(adjusted_rand_score(true_clusters, labels))


def sample_clients(
    clients: Sequence[Client],
    true_clusters: Mapping[Client, int | None],
    max_all: int = _MAX_SHOWN,
    sample_size: int = MAX_FIGURE_CLIENTS,
) -> list[Client]:
    """Return all clients, or an evenly spaced sample if there are many.

    If the clients are sorted by cluster, the sample has clients of each cluster in proportion to
    its size, and at least one client of each cluster unless there are too many clusters.

    Args:
        clients: clients, in the order of the result.
        true_clusters: true cluster of each client; None if unknown.
        max_all: maximum number of clients to return without sampling.
        sample_size: size of the sample otherwise.
    """
    if len(clients) <= max_all:
        return list(clients)
    first = {true_clusters[client]: client for client in reversed(clients)}
    selected = set(first.values()) if 2 * len(first) <= sample_size else set()
    others = [client for client in clients if client not in selected]
    num_others = sample_size - len(selected)
    selected.update(others[index * len(others) // num_others] for index in range(num_others))
    return [client for client in clients if client in selected]
