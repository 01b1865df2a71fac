"""Similarities and clusters of clients, read from the records of a run.

Summaries, analyses and reports use them. Any method can report arrays with these names; k is the
number of participants of the round:

- ``clusters``: cluster label of each participant, (k,). If a method reports only this array, a
  label must mean the same cluster in all rounds.
- ``similarity``: similarities of the participants, (k, k); or ``profile``: class profile of each
  participant, (k, classes). A class profile is a vector of norm at most 1 with one number per
  class. The similarity of two clients is the dot product of their profiles.
- ``centres``: for a method that reports profiles, the center of each cluster, in the order of the
  labels, (clusters, classes). A client belongs to the cluster whose center has the largest dot
  product with its mean profile.
- ``threshold``: smallest entry of the Q-matrix (the similarities rescaled to [0, 1]) at which two
  clients are in the same cluster; or ``cut``: smallest mean similarity at which two clusters are
  merged, and ``confidence``: confidence that there are clusters.
- ``gamma``: largest standard deviation allowed for a similarity that is estimated from other pairs
  (transitive estimate).

Arrays with one of these names but a wrong shape or type are ignored.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cadis.algorithm import compute_cosines, normalize
from cadis.algorithm.methods.cadis import (
    ClientProfiles,
    SimilarityMatrix,
    average_linkage,
    cluster_by_threshold,
    compute_q_matrix,
    cumulative_similarity,
    find_nearest_center,
    update_profiles,
)
from cadis.server import PackedMatrix, RoundRecord
from cadis.types import ClientId, compute_client_keys

_MAX_LABEL = 2**53
"""Largest integer that every JSON reader represents exactly."""
_MAX_COSINE = 1.001
"""Largest similarity, with a tolerance for rounding."""
_KNOWN_SCALARS = ("threshold", "cut", "confidence", "gamma")
"""Names of the scalars that this module reads."""
_DEFAULT_THRESHOLD = 0.501
"""Threshold for a method that reports similarities without a threshold."""


def get_clusters(record: RoundRecord) -> list[int] | None:
    """Return the cluster label of each participant, (k,); None if the method reported none."""
    labels = record.report.get("clusters")
    if not isinstance(labels, list) or _find_label_errors(labels, len(record.participants)):
        return None
    return [int(label) for label in labels]  # type: ignore[arg-type]


def get_similarity(record: RoundRecord) -> Tensor | None:
    """Return the similarities of the participants, (k, k); None if the method reported none."""
    matrix = _parse_similarity(record)
    return None if isinstance(matrix, str) else torch.tensor(matrix, dtype=torch.float32)


def get_threshold(record: RoundRecord) -> float | None:
    """Return the threshold for the Q-matrix; None if the method reported none."""
    return get_scalar(record, "threshold")


def get_profiles(record: RoundRecord) -> Tensor | None:
    """Return the class profile of each participant, (k, classes); None if none were reported."""
    profiles = _read_rows(record, "profile")
    return None if profiles is None or len(profiles) != len(record.participants) else profiles


def get_centers(record: RoundRecord) -> Tensor | None:
    """Return the center of each cluster, (clusters, classes); None if none were reported."""
    centers = _read_rows(record, "centres")
    return None if centers is None or not len(centers) else centers


def _read_rows(record: RoundRecord, name: str) -> Tensor | None:
    """Return a matrix of the report whose rows have a norm of at most 1; None if it has another."""
    if not isinstance(record.report.get(name), list | PackedMatrix):
        return None
    try:
        rows = record.array(name)
    except (OverflowError, ValueError, TypeError):
        return None
    if rows is None or rows.ndim != 2:
        return None
    is_valid = (np.linalg.norm(rows, axis=1) <= _MAX_COSINE).all()  # False for NaN
    return torch.tensor(rows, dtype=torch.float32) if is_valid else None


def get_confidence(record: RoundRecord) -> float | None:
    """Return the confidence that there are clusters; None if the method reported none."""
    return get_scalar(record, "confidence")


def get_gamma(record: RoundRecord) -> float | None:
    """Return the largest standard deviation allowed for a transitive estimate of a similarity.

    None if the method does not estimate similarities.
    """
    return get_scalar(record, "gamma")


def get_scalar(record: RoundRecord, name: str) -> float | None:
    """Return a scalar of the method's report; None if the report does not have it."""
    value = record.report.get(name)
    return float(value) if isinstance(value, int | float) else None


def list_other_scalars(record: RoundRecord) -> list[str]:
    """Return the names of scalars in the report that this module does not read itself."""
    array_types = (list, PackedMatrix)
    names = (name for name, value in record.report.items() if not isinstance(value, array_types))
    return [name for name in names if name not in _KNOWN_SCALARS]


def find_report_errors(record: RoundRecord) -> list[str]:
    """Return a description of each error in the arrays and scalars that this module reads."""
    report, errors = record.report, list[str]()
    if "clusters" in report:
        errors += _find_label_errors(report["clusters"], len(record.participants))
    if "similarity" in report and isinstance(problem := _parse_similarity(record), str):
        errors.append(problem)
    if "profile" in report and get_profiles(record) is None:
        errors.append(
            "profile must have one row per participant, and each row must have a norm of at most 1"
        )
    if "centres" in report and get_centers(record) is None:
        errors.append("centres must be a matrix, and each row must have a norm of at most 1")
    scalars = [n for n in _KNOWN_SCALARS if n in report and get_scalar(record, n) is None]
    return errors + [f"{name} is not a number" for name in scalars]


def _find_label_errors(labels: Any, size: int) -> list[str]:
    """Return a description of each error in cluster labels; empty if they are valid."""
    if not isinstance(labels, list):
        return ["clusters is not a list"]
    if len(labels) != size:
        return [f"clusters has {len(labels)} entries, not {size}"]
    is_valid = all(isinstance(label, int) and 0 <= label <= _MAX_LABEL for label in labels)
    return [] if is_valid else [f"a cluster label is not an integer from 0 to {_MAX_LABEL}"]


def _parse_similarity(record: RoundRecord) -> NDArray[Any] | str:
    """Return the similarities of the participants, (k, k), or the description of an error."""
    value, size = record.report.get("similarity"), len(record.participants)
    if isinstance(value, PackedMatrix):
        lengths = [value.shape[1]] * value.shape[0]
    elif isinstance(value, list) and all(isinstance(row, list) for row in value):
        lengths = [len(row) for row in value]  # type: ignore[arg-type]
    else:
        return "similarity is not a matrix"
    if len(lengths) != size:
        return f"similarity has {len(lengths)} rows, not {size}"
    if wrong := [length for length in lengths if length != size]:
        return f"a row of similarity has {wrong[0]} entries, not {size}"
    try:
        matrix = record.array("similarity")
    except OverflowError:
        matrix = None
    if matrix is None or not (np.abs(matrix) <= _MAX_COSINE).all():  # False for NaN
        return "a similarity is not between -1 and 1"
    return matrix


SimilarityReader = Callable[[RoundRecord], Tensor | None]
"""A function that returns the similarities of a round's participants, (k, k), if known."""


def has_profiles(history: Sequence[RoundRecord]) -> bool:
    """Return whether the method reports class profiles instead of similarities of pairs."""
    return any(get_profiles(record) is not None for record in history)


def choose_similarity_reader(history: Sequence[RoundRecord]) -> SimilarityReader:
    """Return the function that reads similarities from the records of these rounds.

    It reads similarities that the method reported, or computes them from class profiles. If a
    method reports only clusters, the similarity of two clients is 1 if they are in the same
    cluster, else 0. The mean over the rounds in which both took part is then the fraction of these
    rounds in which they are in the same cluster.
    """
    for reader in (get_similarity, _compute_profile_similarity):
        if any(reader(record) is not None for record in history):
            return reader
    return _compute_comembership


def _compute_profile_similarity(record: RoundRecord) -> Tensor | None:
    """Return the cosines of the participants' profiles, (k, k)."""
    profiles = get_profiles(record)
    return None if profiles is None else compute_cosines(profiles)


def _compute_comembership(record: RoundRecord) -> Tensor | None:
    """Return 1 for two participants in the same cluster, else 0, (k, k)."""
    clusters = get_clusters(record)
    if clusters is None:
        return None
    labels = torch.tensor(clusters)
    return (labels[:, None] == labels).float()


def assign_clusters(matrix: SimilarityMatrix, history: Sequence[RoundRecord]) -> Tensor:
    """Return cluster labels of all clients after the last round, (n,).

    If a method reports the centers of its clusters, each client gets the cluster with the nearest
    center, as on the server. Otherwise, the similarities are clustered with the method's last
    ``cut`` or ``threshold``. If a method reports only clusters, a client gets the label of the last
    round in which it took part, since a method such as CFL may have split older clusters.

    Args:
        matrix: similarities of the clients; n is their number.
        history: records of the rounds.
    """
    record = history[-1]
    if choose_similarity_reader(history) is _compute_comembership:
        return _get_last_labels(matrix.client_ids, history)
    centers = next((c for r in reversed(history) if (c := get_centers(r)) is not None), None)
    profiles = matrix.profiles
    if centers is not None and profiles is not None and profiles.shape[1] == centers.shape[1]:
        return find_nearest_center(profiles, centers)
    cut = get_scalar(record, "cut")
    if cut is not None:
        return average_linkage(torch.where(matrix.known, matrix.mean, -1), cut)
    threshold = get_threshold(record)
    threshold = _DEFAULT_THRESHOLD if threshold is None else threshold
    return cluster_by_threshold(compute_q_matrix(matrix.mean, matrix.known), threshold)


def _get_last_labels(clients: Sequence[ClientId], history: Sequence[RoundRecord]) -> Tensor:
    """Return the label of each client from its last round, renumbered from 0, (n,)."""
    last: dict[ClientId, int] = {}
    for record in history:
        labels = get_clusters(record)
        last.update(zip(record.participants, labels or (), strict=labels is not None))
    index = {label: i for i, label in enumerate(sorted(set(last.values())))}
    return torch.tensor([index[last[client]] for client in clients], dtype=torch.long)


class MeanProfiles:
    """Mean class profile of each client over its rounds so far, as on the server."""

    def __init__(self) -> None:
        self._profiles = ClientProfiles()
        self._clients: dict[ClientId, None] = {}  # in the order of first participation

    def add(self, record: RoundRecord) -> None:
        """Add a round, if it has profiles."""
        profiles = get_profiles(record)
        if profiles is not None:
            keys = compute_client_keys(record.participants)
            self._profiles = update_profiles(self._profiles, keys, profiles)
            self._clients.update(dict.fromkeys(record.participants))

    def compute_matrix(self, clients: Collection[ClientId] | None = None) -> SimilarityMatrix:
        """Return the similarities of ``clients`` (by default all), in order of participation."""
        selected = tuple(c for c in self._clients if clients is None or c in clients)
        keys = compute_client_keys(selected)
        classes = max(self._profiles.old.mean.shape[1], self._profiles.new.mean.shape[1])
        mean, count = self._profiles.get(keys, classes)
        similarity = compute_cosines(normalize(mean))
        pair_count = torch.minimum(count[:, None], count)
        known = torch.ones_like(pair_count, dtype=torch.bool)
        return SimilarityMatrix(selected, similarity, pair_count, known, profiles=mean)


class RunningSimilarities:
    """Running means of similarities (Eq. 12 of the paper).

    Rows are all clients; columns are all or selected clients. Both are in the order of first
    participation. The means are updated in place, so the time of a round depends only on the number
    of its participants. :class:`~cadis.algorithm.methods.cadis.SimilarityMatrix` is immutable and
    copies all pairs in every round; its values are the same, bit for bit.

    Attributes:
        client_ids: clients of the rows.
        mean: mean similarity of each pair, (rows, columns).
        count: number of observations of each pair, (rows, columns).
    """

    def __init__(
        self, history: Sequence[RoundRecord], clients: Collection[ClientId] | None = None
    ) -> None:
        """Allocate the means.

        Args:
            history: records of all rounds; their participants are the rows.
            clients: clients of the columns; by default all.
        """
        self.client_ids = list_compared_clients(history)
        selected = [c for c in self.client_ids if clients is None or c in clients]
        self._read_similarity = choose_similarity_reader(history)
        self._row = {client: row for row, client in enumerate(self.client_ids)}
        self._column = {client: column for column, client in enumerate(selected)}
        self._seen: set[ClientId] = set()
        self.mean = torch.zeros(len(self._row), len(selected))
        self.count = torch.zeros(len(self._row), len(selected), dtype=torch.int32)

    def add(self, record: RoundRecord) -> None:
        """Add a round, if it has similarities."""
        similarity = self._read_similarity(record)
        if similarity is None:
            return
        clients = record.participants
        self._seen.update(clients)
        indices = [index for index, client in enumerate(clients) if client in self._column]
        rows = torch.tensor([self._row[client] for client in clients], dtype=torch.long)
        columns = torch.tensor([self._column[clients[i]] for i in indices], dtype=torch.long)
        block = (rows[:, None], columns)
        new = similarity[:, indices]
        self.mean[block] = cumulative_similarity(self.mean[block], self.count[block], new)
        self.count[block] += 1

    def find_rows_of_columns(self) -> Tensor:
        """Return, for each column, the row of the same client, (columns,)."""
        return torch.tensor([self._row[client] for client in self._column], dtype=torch.long)

    def get_observed(self) -> Tensor:
        """Return the means of all clients seen so far, NaN for pairs without an observation.

        ``SimilarityMatrix.estimate_missing`` takes this matrix as ``helpers``.
        """
        columns = sum(client in self._seen for client in self._column)
        seen = slice(len(self._seen)), slice(columns)
        return torch.where(self.count[seen] > 0, self.mean[seen], torch.nan)


def list_compared_clients(history: Sequence[RoundRecord]) -> tuple[ClientId, ...]:
    """Return all clients with known similarities, in the order of first participation."""
    read_similarity = choose_similarity_reader(history)
    records = (record for record in history if read_similarity(record) is not None)
    return tuple(dict.fromkeys(client for record in records for client in record.participants))
