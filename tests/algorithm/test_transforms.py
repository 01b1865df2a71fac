"""Transforms: by hand, by their properties, common properties of all, and chains."""

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
    apply_transforms,
    compute_differences,
    replace_vectors,
)
from cadis.errors import CadisError
from cadis.models import FlatModel
from cadis.rng import derive_generator
from cadis.types import Message, ModelState
from parts_support import compute_plain_changes, copy_tensors, is_same_message, make_message
from support import get_model, run_rounds, small_model

FLOATING = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
RECEIVED, UPDATE = make_message(seed=1), make_message(seed=2)

each = pytest.mark.parametrize("transform", [kind() for kind in TRANSFORMS.values()])
seeds = st.integers(0, 10**6)


def in_round(
    received: Message = RECEIVED, participants: int = 4, bound: float | None = 2.0, seed: int = 0
) -> TransformRound:
    return TransformRound(received, participants, bound, derive_generator(seed))


def make_model(parameters: list[float], buffers: list[float], counter: int) -> ModelState:
    return ModelState(torch.tensor(parameters), torch.tensor(buffers), torch.tensor([counter]))


BEFORE = Message({"model": make_model([1.0, 2.0], [1.0], 3)}, {"control": torch.tensor([9.0])})
AFTER = Message(
    {"model": make_model([3.0, 2.0], [-1.0], 8)},
    {"control": torch.tensor([1.0])},
    {"accuracy": 0.5},
)
"""The changes are 2, 0; -2; 1. Their norm is sqrt(4 + 0 + 4 + 1) = 3."""


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
def test_update_within_the_limit_is_bitwise_unchanged(transform: Transform) -> None:
    assert is_same_message(transform.apply(AFTER, in_round(BEFORE)), AFTER)


@given(seeds, st.floats(1e-6, 1e3), st.sampled_from(FLOATING), st.sampled_from([1e-3, 1.0, 30.0]))
def test_norm_is_limited_after_rounding(
    seed: int, clip: float, dtype: torch.dtype, scale: float
) -> None:
    received, update = make_message(seed, dtype, scale), make_message(seed + 1, dtype, scale)
    before = hypot(*compute_plain_changes(update, received))
    clipped = Clip(clip).apply(update, in_round(received))
    assert hypot(*compute_plain_changes(clipped, received)) <= min(clip, before) * (1 + 1e-6)
    if before <= clip:
        assert is_same_message(clipped, update)


@given(seeds, st.floats(0.01, 5.0))
def test_clipping_keeps_the_direction(seed: int, clip: float) -> None:
    received, update = make_message(seed, torch.float64), make_message(seed + 1, torch.float64)
    numbers = compute_plain_changes(update, received)
    scale = min(1.0, clip / hypot(*numbers))
    clipped = compute_plain_changes(Clip(clip).apply(update, in_round(received)), received)
    assert clipped == pytest.approx([scale * number for number in numbers], rel=1e-9, abs=1e-12)


def test_model_that_was_not_received_is_rejected() -> None:
    update = Message({"other": UPDATE.model})
    with pytest.raises(CadisError, match="model 'other' cannot be computed: the client"):
        Clip().apply(update, in_round())


def test_several_models_have_one_norm() -> None:
    received = Message({"a/b": make_model([0.0], [0.0], 1), "c": make_model([0.0], [0.0], 1)})
    update = Message({"a/b": make_model([3.0], [0.0], 1), "c": make_model([0.0], [4.0], 1)})
    clipped = Clip(2.5).apply(update, in_round(received))
    assert clipped.models["a/b"].parameters.tolist() == [3 / 2]
    assert clipped.models["c"].buffers.tolist() == [4 / 2]


def test_update_with_nan_stays_invalid() -> None:
    """The server rejects such an update; clipping must not make it look valid."""
    for number in (torch.nan, torch.inf):
        update = Message({"model": make_model([number, 2.0], [1.0], 3)})
        for transform in (Clip(0.1), TopK(0.5)):
            assert not transform.apply(update, in_round(BEFORE)).model.is_finite()


def test_noise_has_the_expected_standard_deviation() -> None:
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
    assert inside == pytest.approx(0.6827, abs=0.01)  # of a normal distribution


def test_noise_is_added_to_the_update() -> None:
    zero = Message({"model": ModelState(torch.zeros(7), torch.zeros(3), torch.tensor([7]))})
    shift = Noise(0.5).apply(zero, in_round(zero)).model.parameters
    noisy, again = (Noise(0.5).apply(UPDATE, in_round()) for _ in range(2))
    assert torch.allclose(noisy.model.parameters, UPDATE.model.parameters + shift, atol=1e-6)
    assert is_same_message(noisy, again)
    other = Noise(0.5).apply(UPDATE, in_round(seed=4))  # another client
    assert not torch.equal(noisy.model.parameters, other.model.parameters)


def test_noise_without_a_bound_is_rejected() -> None:
    with pytest.raises(CadisError, match="put clip right before it"):
        Noise().apply(UPDATE, in_round(bound=None))


@given(seeds, st.floats(0.001, 1.0), st.sampled_from(FLOATING))
def test_top_k_keeps_the_largest(seed: int, keep: float, dtype: torch.dtype) -> None:
    received, update = make_message(seed, dtype), make_message(seed + 1, dtype)
    numbers = compute_plain_changes(update, received)
    result = compute_plain_changes(TopK(keep).apply(update, in_round(received)), received)
    kept = [index for index, number in enumerate(result) if number]
    assert all(result[index] == numbers[index] for index in kept)
    count = ceil(keep * len(numbers))
    largest = sorted(map(abs, numbers), reverse=True)[:count]
    assert sorted((abs(result[index]) for index in kept), reverse=True) == [
        number for number in largest if number
    ]


@each
@pytest.mark.parametrize("dtype", FLOATING)
def test_dtypes_counters_and_scalars_do_not_change(
    transform: Transform, dtype: torch.dtype
) -> None:
    received, update = make_message(seed=1, dtype=dtype), make_message(seed=2, dtype=dtype)
    both = [dict(received.vectors()), dict(update.vectors())]
    copies = [copy_tensors(vectors) for vectors in both]
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
def test_scalars_do_not_change_and_the_bound_holds(transform: Transform) -> None:
    update = Message(scalars={"accuracy": 0.5})
    assert transform.apply(update, in_round(Message())) == update
    if transform.bound is not None:
        changed = transform.apply(UPDATE, in_round())
        assert hypot(*compute_plain_changes(changed, RECEIVED)) <= transform.bound * (1 + 1e-6)


def make_generator(name: str) -> torch.Generator:
    return derive_generator("chain", name)


def apply_chain(*transforms: Transform, participants: int = 9) -> Message:
    return apply_transforms(transforms, UPDATE, RECEIVED, participants, make_generator)


@dataclass(frozen=True)
class Doubled(Transform):
    """A transform without a bound."""

    name: ClassVar[str] = "doubled"

    def apply(self, update: Message, server_round: TransformRound) -> Message:
        changes = compute_differences(update, server_round.received)
        vectors = dict(update.vectors())
        return replace_vectors(update, {p: (vectors[p] + c).float() for p, c in changes.items()})


def test_transforms_are_applied_in_order() -> None:
    assert apply_chain() is UPDATE
    bounds = {"clip": None, "noise": 0.5}
    step = UPDATE
    for transform in (Clip(0.5), Noise(0.3)):
        name = transform.name
        step = transform.apply(
            step, TransformRound(RECEIVED, 9, bounds[name], make_generator(name))
        )
    assert is_same_message(apply_chain(Clip(0.5), Noise(0.3)), step)
    assert not is_same_message(apply_chain(TopK(0.3), Clip(0.5)), apply_chain(Clip(0.5), TopK(0.3)))


def test_noise_uses_the_bound_of_clip() -> None:
    """The standard deviation is z * bound / sqrt(k)."""
    size = 50_000
    update = Message(tensors={"control": torch.ones(size)})
    transforms: list[Transform] = [Clip(3.0), Noise(2.0)]
    sent = apply_transforms(transforms, update, Message(), 4, make_generator).tensors["control"]
    assert sent.std().item() == pytest.approx(2.0 * 3.0 / sqrt(4), rel=0.02)
    assert sent.mean().item() == pytest.approx(3.0 / sqrt(size), abs=0.07)


def test_all_built_in_transforms_can_be_combined() -> None:
    transforms = tuple(kind() for kind in TRANSFORMS.values())
    assert [transform.name for transform in transforms] == ["top-k", "clip", "noise", "norm-bound"]
    algorithm = Algorithm(transforms=transforms)
    assert algorithm.get_transforms("server") == (NormBound(),)
    assert algorithm.get_transforms("client") == transforms[:3]


@pytest.mark.parametrize(
    "transforms",
    [
        (Noise(),),
        (Noise(), Clip()),
        (TopK(), Noise()),
        (Clip(), Doubled(), Noise()),  # Doubled may increase the norm
        (NormBound(), Noise()),  # NormBound is on the other side
    ],
)
def test_algorithm_rejects_noise_without_a_bound(transforms: tuple[Transform, ...]) -> None:
    with pytest.raises(CadisError, match="'noise' needs updates of limited norm"):
        Algorithm(transforms=transforms)


@pytest.mark.parametrize(
    "transforms",
    [(), (Clip(), Noise()), (Clip(), NormBound(), Noise()), (Doubled(), TopK(), Clip(), Noise())],
)
def test_valid_chains_are_accepted(transforms: tuple[Transform, ...]) -> None:
    assert Algorithm(transforms=transforms).transforms == transforms


def test_frozen_weights_do_not_change(tmp_path: Path) -> None:
    model = small_model(batch_norm=True)
    model.get_submodule("0").requires_grad_(False)
    start, layout = deepcopy(model.state_dict()), FlatModel(deepcopy(model)).layout
    algorithm = Algorithm(FedAvg(), transforms=(Clip(), Noise()))
    end = layout.unpack(get_model(run_rounds(algorithm, tmp_path, model=model)[-1]))
    frozen = {name for name in start if torch.equal(start[name], end[name])}
    assert frozen == {"0.weight", "0.bias"}
