"""Memory of absent clusters: where whoever is there takes part, some clusters are not."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cadis.algorithm.aggregation import example_weights
from cadis.algorithm.method import Aggregation, ServerState
from cadis.types import ClientUpdate, TensorState

_LEAST = 0.01  # a voice below it is not worth its memory


@dataclass(frozen=True)
class AbsentClusters:
    """The last update of each cluster, and how long ago it was."""

    centres: Tensor  # by which a cluster is known again, (m, classes)
    updates: Tensor  # the mean update of its participants, (m, P)
    ages: Tensor  # in how many rounds it was absent since, (m,)

    @classmethod
    def from_tensors(cls, memory: TensorState) -> "AbsentClusters | None":
        """What a checkpoint holds; None if there is nothing yet."""
        if "absent.ages" not in memory:
            return None
        return cls(*(memory[f"absent.{name}"] for name in ("centres", "updates", "ages")))

    def to_tensors(self) -> dict[str, Tensor]:
        """Plain tensors, for a checkpoint."""
        return {f"absent.{name}": tensor for name, tensor in vars(self).items()}


def with_absent(
    made: Aggregation, updates: Sequence[ClientUpdate], state: ServerState, kept: float
) -> Aggregation:
    """Add the voices of clusters that nobody came of to a round's mean model.

    Each of the m clusters that are present has a voice of 1; one that was absent for a rounds has
    ``kept`` to the power of a: w <- w_t + (m * mean update + sum of kept^a * its last update) / sum
    of all voices.
    """
    ((name, model),) = made.models.items()
    sent = state.models[name].parameters
    labels, centres = made.report["clusters"], made.memory["centres"]
    present = labels.unique()
    means = [_mean_update(updates, labels == label, sent) for label in present]
    heard = AbsentClusters(centres[present], torch.stack(means), torch.zeros(len(present)))
    before = AbsentClusters.from_tensors(state.memory)
    if before is not None:
        gone = _still_absent(before, present, centres, kept)
        voices = kept**gone.ages
        total = len(present) + voices.sum()
        moved = (len(present) * (model.parameters - sent) + voices @ gone.updates) / total
        model = replace(model, parameters=sent + moved.to(sent.dtype))
        both = zip(vars(heard).values(), vars(gone).values(), strict=True)
        heard = AbsentClusters(*(torch.cat(pair) for pair in both))
    return replace(made, models={name: model}, memory={**made.memory, **heard.to_tensors()})


def _still_absent(
    before: AbsentClusters, present: Tensor, centres: Tensor, kept: float
) -> AbsentClusters:
    """Those of whom nobody came, once each, a round older; the youngest first."""
    labels = (before.centres @ centres.T).argmax(dim=1).tolist()
    taken, places = set(present.tolist()), []
    for place in before.ages.argsort(stable=True).tolist():
        if labels[place] not in taken and kept ** (float(before.ages[place]) + 1) >= _LEAST:
            taken.add(labels[place])
            places.append(place)
    return AbsentClusters(before.centres[places], before.updates[places], before.ages[places] + 1)


def _mean_update(updates: Sequence[ClientUpdate], chosen: Tensor, sent: Tensor) -> Tensor:
    """The mean update of some of the participants, by number of samples, (P,)."""
    own = [update for update, taken in zip(updates, chosen.tolist(), strict=True) if taken]
    weights = example_weights([update.num_examples for update in own])
    mean = torch.zeros_like(sent)
    for update, weight in zip(own, weights.tolist(), strict=True):
        mean += weight * (update.model.parameters - sent)
    return mean
