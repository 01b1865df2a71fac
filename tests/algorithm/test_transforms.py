"""Each transform by hand and by its properties, one table over all of them, and their chains."""

from copy import deepcopy
from dataclasses import dataclass
from math import ceil, hypot, sqrt
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

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
    differences,
    replaced,
)
from cadis.errors import CadisError
from cadis.models import FlatModel
from cadis.rng import generator_for
from cadis.types import Message, ModelState
from parts_support import message, plain_update, same_message, snapshot
from support import model_after, run_rounds, small_model

FLOATING = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
RECEIVED, UPDATE = message(seed=1), message(seed=2)

each = pytest.mark.parametrize("transform", [kind() for kind in TRANSFORMS.values()])
seeds = st.integers(0, 10**6)


def in_round(
    received: Message = RECEIVED, participants: int = 4, bound: float | None = 2.0, seed: int = 0
) -> TransformRound:
    return TransformRound(received, participants, bound, generator_for(seed))


def model(parameters: list[float], buffers: list[float], counter: int) -> ModelState:
    return ModelState(torch.tensor(parameters), torch.tensor(buffers), torch.tensor([counter]))


BEFORE = Message({"model": model([1.0, 2.0], [1.0], 3)}, {"control": torch.tensor([9.0])})
AFTER = Message(
    {"model": model([3.0, 2.0], [-1.0], 8)}, {"control": torch.tensor([1.0])}, {"accuracy": 0.5}
)
"""The update is 2, 0; -2; 1. Its norm is sqrt(4 + 0 + 4 + 1) = 3."""


@pytest.mark.parametrize(
    ("transform", "parameters", "buffers", "control"),
    [
        (Clip(clip=1.5), [1 + 2 / 2, 2.0], [1 - 2 / 2], [1 / 2]),
        (NormBound(max_norm=1.5), [1 + 2 / 2, 2.0], [1 - 2 / 2], [1 / 2]),
        (TopK(0.5), [3.0, 2.0], [-1.0], [0.0]),  # 2 and -2 of 2, 0, -2, 1
    ],
)
def test_by_hand(
    transform: Transform, parameters: list[float], buffers: list[float], control: list[float]
) -> None:
    changed = transform.apply(AFTER, in_round(BEFORE))
    assert changed.model.parameters.tolist() == parameters
    assert changed.model.buffers.tolist() == buffers
    assert changed.tensors["control"].tolist() == control
    assert changed.model.counters.tolist() == [8]
    assert changed.scalars == {"accuracy": 0.5}


@pytest.mark.parametrize("transform", [Clip(clip=3.0), NormBound(max_norm=3.0), TopK(1.0)])
def test_where_nothing_is_to_do_an_update_comes_back_bit_for_bit(transform: Transform) -> None:
    assert same_message(transform.apply(AFTER, in_round(BEFORE)), AFTER)


@given(seeds, st.floats(1e-6, 1e3), st.sampled_from(FLOATING), st.sampled_from([1e-3, 1.0, 30.0]))
def test_the_norm_holds_after_rounding(
    seed: int, clip: float, dtype: torch.dtype, scale: float
) -> None:
    received, update = message(seed, dtype, scale), message(seed + 1, dtype, scale)
    before = hypot(*plain_update(update, received))
    clipped = Clip(clip).apply(update, in_round(received))
    assert hypot(*plain_update(clipped, received)) <= min(clip, before) * (1 + 1e-6)
    if before <= clip:
        assert same_message(clipped, update)


@given(seeds, st.floats(0.01, 5.0))
def test_clipping_keeps_the_direction(seed: int, clip: float) -> None:
    received, update = message(seed, torch.float64), message(seed + 1, torch.float64)
    numbers = plain_update(update, received)
    scale = min(1.0, clip / hypot(*numbers))
    clipped = plain_update(Clip(clip).apply(update, in_round(received)), received)
    assert clipped == pytest.approx([scale * number for number in numbers], rel=1e-9, abs=1e-12)


def test_a_model_that_was_not_received_is_refused() -> None:
    update = Message({"other": UPDATE.model})
    with pytest.raises(CadisError, match="model 'other' cannot be told: no such model"):
        Clip().apply(update, in_round())


def test_several_models_have_one_norm_and_keep_their_names() -> None:
    received = Message({"a/b": model([0.0], [0.0], 1), "c": model([0.0], [0.0], 1)})
    update = Message({"a/b": model([3.0], [0.0], 1), "c": model([0.0], [4.0], 1)})
    clipped = Clip(2.5).apply(update, in_round(received))
    assert clipped.models["a/b"].parameters.tolist() == [3 / 2]
    assert clipped.models["c"].buffers.tolist() == [4 / 2]


def test_broken_numbers_stay_broken() -> None:
    """They are refused when they arrive; a clipped one must not pass for a good one."""
    for number in (torch.nan, torch.inf):
        update = Message({"model": model([number, 2.0], [1.0], 3)})
        for transform in (Clip(0.1), TopK(0.5)):
            assert not transform.apply(update, in_round(BEFORE)).model.is_finite()


def test_noise_has_the_deviation_that_is_asked_for() -> None:
    size, participants, z, bound = 100_000, 4, 1.5, 2.0
    state = ModelState(torch.zeros(size), torch.zeros(10), torch.tensor([1]))
    update = Message({"model": state}, {"control": torch.zeros(size)})
    noisy = [
        Noise(z).apply(update, in_round(update, participants, bound, seed=client))
        for client in range(participants)
    ]
    one = noisy[0].model.parameters.double()
    total = sum((sent.model.parameters.double() for sent in noisy), torch.zeros(size))
    assert one.std().item() == pytest.approx(z * bound / sqrt(participants), rel=0.02)
    assert total.std().item() == pytest.approx(z * bound, rel=0.02)
    assert total.mean().item() == pytest.approx(0, abs=5 * z * bound / sqrt(size))
    assert noisy[0].tensors["control"].std().item() == pytest.approx(1.5, rel=0.02)
    assert noisy[0].model.buffers.abs().min() > 0
    inside = (total.abs() < z * bound).double().mean().item()
    assert inside == pytest.approx(0.6827, abs=0.01)  # as of a normal distribution


def test_noise_is_added_to_the_update_as_it_is() -> None:
    nothing = Message({"model": ModelState(torch.zeros(7), torch.zeros(3), torch.tensor([7]))})
    shift = Noise(0.5).apply(nothing, in_round(nothing)).model.parameters
    noisy, again = (Noise(0.5).apply(UPDATE, in_round()) for _ in range(2))
    assert torch.allclose(noisy.model.parameters, UPDATE.model.parameters + shift, atol=1e-6)
    assert same_message(noisy, again)
    other = Noise(0.5).apply(UPDATE, in_round(seed=4))  # of another client
    assert not torch.equal(noisy.model.parameters, other.model.parameters)


def test_noise_without_a_bound_is_refused() -> None:
    with pytest.raises(CadisError, match="put clip right before it"):
        Noise().apply(UPDATE, in_round(bound=None))


@given(seeds, st.floats(0.001, 1.0), st.sampled_from(FLOATING))
def test_top_k_keeps_the_largest(seed: int, keep: float, dtype: torch.dtype) -> None:
    received, update = message(seed, dtype), message(seed + 1, dtype)
    numbers = plain_update(update, received)
    found = plain_update(TopK(keep).apply(update, in_round(received)), received)
    kept = {place for place, number in enumerate(found) if number}
    assert all(found[place] == numbers[place] for place in kept)
    count = ceil(keep * len(numbers))
    largest = sorted(map(abs, numbers), reverse=True)[:count]  # equal ones may be any of them
    assert sorted((abs(found[place]) for place in kept), reverse=True) == [
        number for number in largest if number
    ]


@each
@pytest.mark.parametrize("dtype", FLOATING)
def test_what_is_no_part_of_an_update_stays(transform: Transform, dtype: torch.dtype) -> None:
    """Types and shapes, names, integers and scalars; and the inputs themselves."""
    received, update = message(seed=1, dtype=dtype), message(seed=2, dtype=dtype)
    both = [dict(received.vectors()), dict(update.vectors())]
    copies = [snapshot(vectors) for vectors in both]
    changed = transform.apply(update, in_round(received))
    for vectors, before in zip(both, copies, strict=True):
        assert all(torch.equal(vectors[path], before[path]) for path in before)
    assert changed.scalars == update.scalars
    assert torch.equal(changed.model.counters, update.model.counters)
    after = dict(changed.vectors())
    assert both[1].keys() == after.keys()
    for path, vector in both[1].items():
        assert (after[path].dtype, after[path].shape) == (vector.dtype, vector.shape)


@each
def test_scalars_alone_pass_and_the_bound_that_is_told_holds(transform: Transform) -> None:
    update = Message(scalars={"accuracy": 0.5})
    assert transform.apply(update, in_round(Message())) == update
    if transform.bound is not None:
        changed = transform.apply(UPDATE, in_round())
        assert hypot(*plain_update(changed, RECEIVED)) <= transform.bound * (1 + 1e-6)


def generator_of(name: str) -> torch.Generator:
    return generator_for("chain", name)


def chained(*transforms: Transform, participants: int = 9) -> Message:
    return apply_chain(transforms, UPDATE, RECEIVED, participants, generator_of)


@dataclass(frozen=True)
class Doubled(Transform):
    """A user's own."""

    name: ClassVar[str] = "doubled"

    def apply(self, update: Message, server_round: TransformRound) -> Message:
        changes = differences(update, server_round.received)
        vectors = dict(update.vectors())
        return replaced(update, {p: (vectors[p] + c).float() for p, c in changes.items()})


def test_a_chain_is_one_transform_after_another() -> None:
    assert chained() is UPDATE
    bounds = {"clip": None, "noise": 0.5}
    step = UPDATE
    for transform in (Clip(0.5), Noise(0.3)):
        name = transform.name
        step = transform.apply(step, TransformRound(RECEIVED, 9, bounds[name], generator_of(name)))
    assert same_message(chained(Clip(0.5), Noise(0.3)), step)
    assert not same_message(chained(TopK(0.3), Clip(0.5)), chained(Clip(0.5), TopK(0.3)))


def test_the_bound_is_handed_on() -> None:
    """Noise after clip is that of the clip's own bound: deviation z * bound / sqrt(k)."""
    size = 50_000
    update = Message(tensors={"control": torch.ones(size)})
    transforms: list[Transform] = [Clip(3.0), Noise(2.0)]
    sent = apply_chain(transforms, update, Message(), 4, generator_of).tensors["control"]
    assert sent.std().item() == pytest.approx(2.0 * 3.0 / sqrt(4), rel=0.02)
    assert sent.mean().item() == pytest.approx(3.0 / sqrt(size), abs=0.07)


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
