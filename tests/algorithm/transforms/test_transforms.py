"""Goldens and properties of each transform, and one table over all of them."""

from math import ceil, hypot, sqrt

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cadis.algorithm.transforms import (
    TRANSFORMS,
    Clip,
    Noise,
    NormBound,
    TopK,
    Transform,
    TransformRound,
)
from cadis.errors import CadisError
from cadis.rng import generator_for
from cadis.types import Message, ModelState
from parts_support import message, plain_update, same_message, snapshot

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


@pytest.mark.parametrize("transform", [Clip(clip=1.5), NormBound(max_norm=1.5)])
def test_clipping_by_hand(transform: Transform) -> None:
    clipped = transform.apply(AFTER, in_round(BEFORE))
    assert clipped.model.parameters.tolist() == [1 + 2 / 2, 2.0]
    assert clipped.model.buffers.tolist() == [1 - 2 / 2]
    assert clipped.tensors["control"].tolist() == [1 / 2]
    assert clipped.model.counters.tolist() == [8]
    assert clipped.scalars == {"accuracy": 0.5}


@pytest.mark.parametrize("transform", [Clip(clip=3.0), NormBound(max_norm=3.0)])
def test_an_update_within_the_bound_comes_back_bit_for_bit(transform: Transform) -> None:
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
    noisy = Noise(0.5).apply(UPDATE, in_round()).model.parameters
    assert torch.allclose(noisy, UPDATE.model.parameters + shift, atol=1e-6)


def test_noise_differs_between_clients_and_not_between_repetitions() -> None:
    first, again = (Noise().apply(UPDATE, in_round(seed=3)) for _ in range(2))
    other = Noise().apply(UPDATE, in_round(seed=4))
    assert same_message(first, again)
    assert not torch.equal(first.model.parameters, other.model.parameters)


def test_noise_without_a_bound_is_refused() -> None:
    with pytest.raises(CadisError, match="put clip right before it"):
        Noise().apply(UPDATE, in_round(bound=None))


def test_top_k_by_hand() -> None:
    kept = TopK(0.5).apply(AFTER, in_round(BEFORE))  # 2 and -2 of 2, 0, -2, 1
    assert kept.model.parameters.tolist() == [3.0, 2.0]
    assert kept.model.buffers.tolist() == [-1.0]
    assert kept.tensors["control"].tolist() == [0.0]
    assert kept.model.counters.tolist() == [8]
    assert kept.scalars == {"accuracy": 0.5}


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


def test_keeping_everything_changes_nothing() -> None:
    assert same_message(TopK(1.0).apply(UPDATE, in_round()), UPDATE)


@each
def test_inputs_are_not_changed(transform: Transform) -> None:
    received, update = message(seed=5), message(seed=6)
    both = [dict(received.vectors()), dict(update.vectors())]
    before = [snapshot(vectors) for vectors in both]
    transform.apply(update, in_round(received))
    for vectors, copies in zip(both, before, strict=True):
        assert all(torch.equal(vectors[path], copies[path]) for path in copies)


@each
@pytest.mark.parametrize("dtype", FLOATING)
def test_what_is_no_part_of_an_update_stays(transform: Transform, dtype: torch.dtype) -> None:
    """Types and shapes, names, integers and scalars."""
    received, update = message(seed=1, dtype=dtype), message(seed=2, dtype=dtype)
    changed = transform.apply(update, in_round(received))
    assert changed.scalars == update.scalars
    assert torch.equal(changed.model.counters, update.model.counters)
    before, after = dict(update.vectors()), dict(changed.vectors())
    assert before.keys() == after.keys()
    for path, vector in before.items():
        assert (after[path].dtype, after[path].shape) == (vector.dtype, vector.shape)


@each
def test_a_message_of_scalars_alone_passes(transform: Transform) -> None:
    update = Message(scalars={"accuracy": 0.5})
    assert transform.apply(update, in_round(Message())) == update


@each
def test_the_bound_that_is_told_holds(transform: Transform) -> None:
    if transform.bound is not None:
        changed = transform.apply(UPDATE, in_round())
        assert hypot(*plain_update(changed, RECEIVED)) <= transform.bound * (1 + 1e-6)
