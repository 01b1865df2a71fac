from copy import deepcopy
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import ClassVar, Literal

import pytest
import torch

from cadis.algorithm import Algorithm
from cadis.algorithm.methods import FedAvg
from cadis.algorithm.transforms import (
    TRANSFORMS,
    Clip,
    Noise,
    NormBound,
    TopK,
    Transform,
    TransformRound,
    apply_chain,
    check_chain,
    differences,
    replaced,
)
from cadis.errors import CadisError
from cadis.models import FlatModel
from cadis.rng import generator_for
from cadis.types import Message
from parts_support import message, same_message
from support import model_after, run_rounds, small_model

RECEIVED, UPDATE = message(seed=1), message(seed=2)


def generator_of(name: str) -> torch.Generator:
    return generator_for("chain", name)


def chained(*transforms: Transform, participants: int = 9) -> Message:
    return apply_chain(transforms, UPDATE, RECEIVED, participants, generator_of)


@dataclass(frozen=True)
class Doubled:
    """A user's own."""

    name: ClassVar[str] = "doubled"
    side: ClassVar[Literal["client", "server"]] = "client"
    needs_bound: ClassVar[bool] = False

    @property
    def bound(self) -> float | None:
        return None

    def apply(self, update: Message, server_round: TransformRound) -> Message:
        changes = differences(update, server_round.received)
        vectors = dict(update.vectors())
        return replaced(update, {p: (vectors[p] + c).float() for p, c in changes.items()})


def test_an_empty_chain_is_the_update_itself() -> None:
    assert chained() is UPDATE


def test_a_chain_is_one_transform_after_another() -> None:
    bounds = {"clip": None, "noise": 0.5}
    step = UPDATE
    for transform in (Clip(0.5), Noise(0.3)):
        name = transform.name
        step = transform.apply(step, TransformRound(RECEIVED, 9, bounds[name], generator_of(name)))
    assert same_message(chained(Clip(0.5), Noise(0.3)), step)


def test_the_bound_is_handed_on() -> None:
    """Noise after clip is that of the clip's own bound: deviation z * bound / sqrt(k)."""
    size = 50_000
    update = Message(tensors={"control": torch.ones(size)})
    transforms: list[Transform] = [Clip(3.0), Noise(2.0)]
    sent = apply_chain(transforms, update, Message(), 4, generator_of).tensors["control"]
    assert sent.std().item() == pytest.approx(2.0 * 3.0 / sqrt(4), rel=0.02)
    assert sent.mean().item() == pytest.approx(3.0 / sqrt(size), abs=0.07)


def test_the_order_counts() -> None:
    assert not same_message(chained(TopK(0.3), Clip(0.5)), chained(Clip(0.5), TopK(0.3)))


def test_all_of_ours_in_their_order_are_a_chain() -> None:
    transforms = tuple(kind() for kind in TRANSFORMS.values())
    assert [transform.name for transform in transforms] == ["top-k", "clip", "noise", "norm-bound"]
    algorithm = Algorithm(transforms=transforms)
    assert algorithm.transforms_of("server") == (NormBound(),)
    assert algorithm.transforms_of("client") == transforms[:3]


@pytest.mark.parametrize(
    "transforms",
    [
        (Noise(),),
        (Noise(), Clip()),
        (TopK(), Noise()),
        (Clip(), Doubled(), Noise()),  # which may have made the update longer
        (NormBound(), Noise()),  # which is on the other side
    ],
)
def test_noise_without_a_bound_is_refused_early(transforms: tuple[Transform, ...]) -> None:
    with pytest.raises(CadisError, match="'noise' needs updates of limited norm"):
        check_chain(transforms)
    with pytest.raises(CadisError, match="'noise' needs updates of limited norm"):
        Algorithm(transforms=transforms)


@pytest.mark.parametrize(
    "transforms",
    [(), (Clip(), Noise()), (Clip(), NormBound(), Noise()), (Doubled(), TopK(), Clip(), Noise())],
)
def test_chains_that_are_fine(transforms: tuple[Transform, ...]) -> None:
    assert Algorithm(transforms=transforms).transforms == transforms


def test_frozen_weights_stay_as_they_were(tmp_path: Path) -> None:
    model = small_model(batch_norm=True)
    model.get_submodule("0").requires_grad_(False)
    start, layout = deepcopy(model.state_dict()), FlatModel(deepcopy(model)).layout
    algorithm = Algorithm(FedAvg(), transforms=(Clip(), Noise()))
    end = layout.unpack(model_after(run_rounds(algorithm, tmp_path, model=model)[-1]))
    frozen = {name for name in start if torch.equal(start[name], end[name])}
    assert frozen == {"0.weight", "0.bias"}
