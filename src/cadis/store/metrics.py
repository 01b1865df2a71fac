"""What a finished run says: accuracy, the rare classes, the clusters that were found."""

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
from cadis.rng import one_thread
from cadis.server import RoundRecord
from cadis.store.observations import (
    Observations,
    SeenProfiles,
    clusters_of,
    gamma_of,
    grouped,
    joined,
    tells_profiles,
    threshold_of,
)
from cadis.training import Evaluation
from cadis.types import ClientId

_EXACT = 1000
"""Up to so many clients, the clusters at the end are looked for among all of them."""
_LOOKED_AT = 300
"""Of more, among so many: all pairs of 2,000 clients take 8 seconds, of 10,000 some minutes."""
_FEW = 300
"""Up to so many clients, figures show all of them."""
SHOWN = 120
"""Of more, so many: a picture has room for no more, and pairs cost the same for any number."""

Client = TypeVar("Client", int, ClientId)


def rare_classes(described: dict[str, Any]) -> list[int]:
    """The classes that only the clusters with the fewest clients have; none if nobody knows."""
    clients = described["clients"]
    sizes = Counter(client["cluster"] for client in clients)
    told = all(client["samples"] is not None for client in clients)
    if None in sizes or not told or len(set(sizes.values())) < 2:
        return []
    rare, common = set[int](), set[int]()
    for client in clients:
        held = {number for number, count in enumerate(client["samples"]) if count}
        (rare if sizes[client["cluster"]] == min(sizes.values()) else common).update(held)
    return sorted(rare - common)


def mean_accuracy(record: RoundRecord, classes: Sequence[int]) -> float | None:
    """Mean of the accuracies on some classes; None if there are none, or nobody tested."""
    found = record.class_accuracy
    tested = [a for label in classes if found and (a := found[label]) is not None]
    return sum(tested) / len(tested) if tested else None


def last_tested(history: Sequence[RoundRecord]) -> RoundRecord:
    """The last round whose model was tested; if there is none, the last."""
    tested = (record for record in reversed(history) if record.accuracy is not None)
    return next(tested, history[-1])


def metric_words(name: str) -> str:
    """A measure as people write it."""
    return {"auc": "AUC", "f1": "F1"}.get(name, name.replace("_", " "))


def measured(record: RoundRecord, name: str) -> float | None:
    """A measure after a round: accuracy, or a further one; None if nobody measured it."""
    return record.accuracy if name == "accuracy" else record.measures.get(name)


def best_round(history: Sequence[RoundRecord], headline: str = "accuracy") -> RoundRecord:
    """The first round in which a measure is largest, accuracy or a further one."""
    values = [measured(record, headline) for record in history]
    known = [-inf if value is None else value for value in values]
    return history[known.index(max(known))]


@one_thread()
def replay(
    history: Sequence[RoundRecord], clients: Collection[ClientId] | None = None
) -> SimilarityMatrix | None:
    """The similarity matrix after these rounds, from their records; None if nobody measured any.

    All pairs of clients are estimated, but only once, at the end. If only some clients are asked
    for, all others help to estimate even so.
    """
    if tells_profiles(history):
        seen = SeenProfiles()
        for record in history:
            seen.add(record)
        return seen.matrix(clients)
    observations = Observations(history, clients)
    if not observations.client_ids:
        return None
    for record in history:
        observations.add(record)
    helping, gamma = observations.direct(), gamma_of(history[-1])
    rows, ids = observations.chosen_rows(), observations.client_ids
    direct = helping[rows]
    if gamma is not None:
        missing = direct.isnan()
        direct[missing] = estimate_all(direct, gamma, helping)[missing]
    known, chosen = ~direct.isnan(), tuple(ids[row] for row in rows.tolist())
    return SimilarityMatrix(chosen, direct.nan_to_num(), observations.count[rows], known)


def true_clusters_of(described: dict[str, Any]) -> dict[ClientId, Any]:
    """The true cluster of each client, None if it is not known, from a ``federation.json``."""
    return {client["id"]: client["cluster"] for client in described["clients"]}


def summarise(
    method_name: str,
    history: Sequence[RoundRecord],
    described: dict[str, Any],
    evaluation: Evaluation | None,
    among_all: bool = True,
    headline: str = "accuracy",
) -> dict[str, Any]:
    """What ``summary.json`` holds: the run in a few numbers, and the last confusion matrix.

    Args:
        method_name: the method's name, as users type it.
        history: its rounds, at least one.
        described: its ``federation.json``.
        evaluation: the last test by class, if there was any.
        among_all: whether to find the clusters among all clients seen, too, or of very many among
            a choice of them; that takes a second, and a run that goes on makes it out of date.
        headline: the measure that tells which round is best: accuracy, or one of the task's.
    """
    last, best, rare = last_tested(history), best_round(history, headline), rare_classes(described)
    seconds = [asdict(record.seconds) for record in history]
    by_headline = {"headline": headline, f"best_{headline}": measured(best, headline)}
    if headline == "accuracy":
        by_headline = {}
    return {
        "method": method_name,
        "rounds": history[-1].round,
        "accuracy": last.accuracy,
        "loss": last.loss,
        "best_accuracy": best.accuracy,
        "best_round": best.round,
        **by_headline,
        "measures": dict(last.measures),
        **({"models": [asdict(model) for model in last.models]} if last.models else {}),
        "rare_classes": rare,
        "rare_accuracy": mean_accuracy(last, rare),
        **_summarise_clients(history, described),
        "rejected": sum(len(record.rejected) for record in history),
        **_summarise_clusters(history, described, among_all),
        "confusion": None if evaluation is None else evaluation.confusion.tolist(),
        "seconds": {name: sum(each[name] for each in seconds) for name in seconds[0]},
        "versions": {
            "cadis": version("cadis"),
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }


def _summarise_clients(history: Sequence[RoundRecord], described: dict[str, Any]) -> dict[str, Any]:
    """The last accuracy on the data that clients hold out; nothing if they do not."""
    if not any(client.get("test_samples") for client in described["clients"]):
        return {}
    told = next((r.client_accuracy for r in reversed(history) if r.client_accuracy), [])
    return {f"client_{name}": value for name, value in client_spread(told).items()}


def client_spread(accuracies: Iterable[float | None]) -> dict[str, float]:
    """Return mean, deviation and minimum over the clients that were tested; empty if none was."""
    tested = [accuracy for accuracy in accuracies if accuracy is not None]
    if not tested:
        return {}
    return {"mean": fmean(tested), "deviation": pstdev(tested), "worst": min(tested)}


def _summarise_clusters(
    history: Sequence[RoundRecord], described: dict[str, Any], among_all: bool
) -> dict[str, Any]:
    """How many clusters were found among all clients seen, and how they agree with the truth."""
    last, true_clusters = history[-1], true_clusters_of(described)
    if clusters_of(last) is None and threshold_of(last) is None:
        return {}
    by_round = {"round_agreement": _round_agreement(history, true_clusters)}
    if not among_all or not (seen := joined(history)):
        return by_round
    ordered = sorted(seen, key=lambda client: true_clusters[client] or 0)
    looked_at = sample(ordered, true_clusters, _EXACT, _LOOKED_AT)
    matrix = replay(history, looked_at if len(looked_at) < len(seen) else None)
    assert matrix is not None
    found = grouped(matrix, history)
    expected = [true_clusters[client] for client in matrix.client_ids]
    known = None not in expected
    return {
        "clusters_found": len(found.unique()),
        "cluster_agreement": agreement(expected, found.tolist()) if known else None,
        **({"clusters_among": len(looked_at)} if len(looked_at) < len(seen) else {}),
        **by_round,
    }


def _round_agreement(
    history: Sequence[RoundRecord], true_clusters: Mapping[ClientId, Any]
) -> float | None:
    """The agreement of each round's participants; the mean over the rounds."""
    if None in true_clusters.values():
        return None
    scores = [
        agreement([true_clusters[client] for client in record.participants], found)
        for record in history
        if (found := clusters_of(record)) is not None
    ]
    return sum(scores) / len(scores) if scores else None


def agreement(true_clusters: Sequence[int], found: Sequence[int]) -> float:
    """Return the adjusted Rand index of two clusterings of the same clients; 1 if they agree."""
    from sklearn.metrics import adjusted_rand_score  # noqa: PLC0415  # slow to import

    return float(adjusted_rand_score(true_clusters, found))


def sample(
    clients: Sequence[Client],
    true_clusters: Mapping[Client, int | None],
    exact: int = _FEW,
    shown: int = SHOWN,
) -> list[Client]:
    """All clients, or of very many an even choice; their order is kept.

    Every cluster has its share, and one client at least if there are not too many clusters. Those
    of a cluster are side by side, if clusters are known.
    """
    if len(clients) <= exact:
        return list(clients)
    first = {true_clusters[client]: client for client in reversed(clients)}
    chosen = set(first.values()) if 2 * len(first) <= shown else set()
    others = [client for client in clients if client not in chosen]
    room = shown - len(chosen)
    chosen.update(others[place * len(others) // room] for place in range(room))
    return [client for client in clients if client in chosen]
