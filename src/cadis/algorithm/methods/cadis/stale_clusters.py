"""Stale clusters: the last updates of clusters that have no participant in a round.

Not in the paper. If only few clients are available in a round, whole clusters can be absent. The
last mean update of an absent cluster is then used again, with a weight that decays every round.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import compress

import torch
from torch import Tensor

from cadis.algorithm.aggregation import compute_sample_weights
from cadis.algorithm.method import Aggregation, ServerState
from cadis.types import ClientUpdate, TensorState

_MIN_WEIGHT = 0.01  # the update of a cluster with a smaller weight is dropped


def add_absent_clusters(
    aggregation: Aggregation, updates: Sequence[ClientUpdate], state: ServerState, decay: float
) -> Aggregation:
    """Add the last updates of absent clusters to the aggregated model of a round.

    ``w <- w_t + (m * d + sum_c decay^a_c * d_c) / (m + sum_c decay^a_c)``, where m clusters are
    present, d is the mean update of the round, and d_c is the last mean update of cluster c, which
    has been absent for a_c rounds.

    Args:
        aggregation: aggregation of the participants, whose report contains their clusters.
        updates: updates of the participants.
        state: server state before the round.
        decay: factor by which the weight of an absent cluster is multiplied per round.
    """
    ((name, model),) = aggregation.models.items()
    received = state.models[name].parameters
    labels, centers = aggregation.report["clusters"], aggregation.tensors["centres"]
    present = labels.unique()
    means = [_compute_mean_update(updates, labels == label, received) for label in present]
    stored = {
        "absent.centres": centers[present],  # to recognize clusters in later rounds, (m, classes)
        "absent.updates": torch.stack(means),  # (m, P)
        "absent.ages": torch.zeros(len(present)),  # rounds of absence, (m,)
    }
    if "absent.ages" in state.tensors:
        before = {part: state.tensors[part] for part in stored}
        absent = _select_absent(before, present, centers, decay)
        weights = decay ** absent["absent.ages"]
        total = len(present) + weights.sum()
        update = len(present) * (model.parameters - received) + weights @ absent["absent.updates"]
        model = replace(model, parameters=received + (update / total).to(received.dtype))
        stored = {part: torch.cat([tensor, absent[part]]) for part, tensor in stored.items()}
    return replace(aggregation, models={name: model}, tensors={**aggregation.tensors, **stored})


def _select_absent(
    before: TensorState, present: Tensor, centers: Tensor, decay: float
) -> dict[str, Tensor]:
    """Select the latest update of each absent cluster, newest first, and increment its age."""
    labels = (before["absent.centres"] @ centers.T).argmax(dim=1).tolist()
    ages = before["absent.ages"] + 1
    seen, rows = set(present.tolist()), []
    for row in ages.argsort(stable=True).tolist():
        if labels[row] not in seen and decay ** float(ages[row]) >= _MIN_WEIGHT:
            seen.add(labels[row])
            rows.append(row)
    return {part: tensor[rows] for part, tensor in {**before, "absent.ages": ages}.items()}


def _compute_mean_update(updates: Sequence[ClientUpdate], mask: Tensor, received: Tensor) -> Tensor:
    """Return the mean update of the masked participants, weighted by numbers of samples, (P,)."""
    members = list(compress(updates, mask.tolist()))
    weights = compute_sample_weights([update.num_samples for update in members])
    mean = torch.zeros_like(received)
    for update, weight in zip(members, weights.tolist(), strict=True):
        mean += weight * (update.model.parameters - received)
    return mean
