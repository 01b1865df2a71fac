"""Memory of absent clusters: where whoever is there takes part, some clusters are not."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from cadis.algorithm.aggregation import example_weights
from cadis.algorithm.method import Aggregation, ServerState
from cadis.types import ClientUpdate, TensorState

_LEAST = 0.01  # a voice below it is not worth its memory


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
    heard = {
        "absent.centres": centres[present],  # by which a cluster is known again, (m, classes)
        "absent.updates": torch.stack([_mean_update(updates, labels == n, sent) for n in present]),
        "absent.ages": torch.zeros(len(present)),  # in how many rounds it was absent since, (m,)
    }
    if "absent.ages" in state.memory:
        gone = _still_absent({part: state.memory[part] for part in heard}, present, centres, kept)
        voices = kept ** gone["absent.ages"]
        total = len(present) + voices.sum()
        moved = len(present) * (model.parameters - sent) + voices @ gone["absent.updates"]
        model = replace(model, parameters=sent + (moved / total).to(sent.dtype))
        heard = {part: torch.cat([tensor, gone[part]]) for part, tensor in heard.items()}
    return replace(made, models={name: model}, memory={**made.memory, **heard})


def _still_absent(
    before: TensorState, present: Tensor, centres: Tensor, kept: float
) -> dict[str, Tensor]:
    """Those of whom nobody came, once each, a round older; the youngest first."""
    labels = (before["absent.centres"] @ centres.T).argmax(dim=1).tolist()
    ages = before["absent.ages"] + 1
    taken, places = set(present.tolist()), []
    for place in ages.argsort(stable=True).tolist():
        if labels[place] not in taken and kept ** float(ages[place]) >= _LEAST:
            taken.add(labels[place])
            places.append(place)
    return {part: tensor[places] for part, tensor in {**before, "absent.ages": ages}.items()}


def _mean_update(updates: Sequence[ClientUpdate], chosen: Tensor, sent: Tensor) -> Tensor:
    """The mean update of some of the participants, by number of samples, (P,)."""
    own = [update for update, taken in zip(updates, chosen.tolist(), strict=True) if taken]
    weights = example_weights([update.num_examples for update in own])
    mean = torch.zeros_like(sent)
    for update, weight in zip(own, weights.tolist(), strict=True):
        mean += weight * (update.model.parameters - sent)
    return mean
