"""Transforms: they change a client's update before it is sent or before it is aggregated."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Annotated, ClassVar, Literal, Protocol

import torch
from annotated_types import Gt, Le
from torch import Tensor

from cadis._io import compute_squared_distance, map_chunks
from cadis.algorithm.about import About, Paper
from cadis.errors import CadisError
from cadis.types import Message

_TOP_K = Paper(
    title="Sparse Communication for Distributed Gradient Descent",
    authors="Alham Fikri Aji, Kenneth Heafield",
    venue="EMNLP",
    year=2017,
    link="https://arxiv.org/abs/1704.05021",
)
_DP_FEDAVG = Paper(
    title="Learning Differentially Private Recurrent Language Models",
    authors="H. Brendan McMahan, Daniel Ramage, Kunal Talwar, Li Zhang",
    venue="ICLR",
    year=2018,
    link="https://arxiv.org/abs/1710.06963",
)
_NORM_BOUND = Paper(
    title="Can You Really Backdoor Federated Learning?",
    authors="Ziteng Sun, Peter Kairouz, Ananda Theertha Suresh, H. Brendan McMahan",
    venue="arXiv",
    year=2019,
    link="https://arxiv.org/abs/1911.07963",
)


@dataclass(frozen=True)
class TransformRound:
    """Facts about a round, for the function ``apply`` of a transform.

    Attributes:
        received: message that the client received. The update of a model is the trained model minus
            the received model of the same name.
        participants: k, the number of participants that the server chose for this round.
        bound: maximum norm of the update after the previous transform; None if it is not limited.
        generator: random generator of this client, round and transform.
    """

    received: Message
    participants: int
    bound: float | None
    generator: torch.Generator


class Transform(Protocol):
    """Interface of a transform, which changes the update of a client.

    Transforms are applied in the order that the user gives. Derive a frozen dataclass and write
    ``apply``.

    Example:
        Send parameters in half precision:

        >>> from dataclasses import dataclass
        >>> import torch
        >>> import cadis
        >>> from cadis.algorithm.transforms import Transform, replace_vectors
        >>> @dataclass(frozen=True)
        ... class HalfPrecision(Transform):
        ...     name = "half-precision"
        ...
        ...     def apply(self, update, server_round):
        ...         floats = {path: v for path, v in update.vectors() if v.is_floating_point()}
        ...         return replace_vectors(update, {p: v.half().float() for p, v in floats.items()})
        >>>
        >>> x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> clients, test = [(x[:20], y[:20]), (x[20:40], y[20:40])], (x[40:], y[40:])
        >>> model, transforms = torch.nn.Linear(4, 2), [HalfPrecision()]
        >>> result = cadis.run(model, clients, test, rounds=2, transforms=transforms)
        >>> len(result.history)
        2

    Attributes:
        name: name of the transform in options and files.
        side: "client" to change updates before they are sent, "server" to change them before they
            are aggregated.
        needs_bound: True if the transform right before this one must limit the norm of updates.
    """

    name: ClassVar[str]
    side: ClassVar[Literal["client", "server"]] = "client"
    needs_bound: ClassVar[bool] = False

    @property
    def bound(self) -> float | None:
        """Maximum norm of an update after this transform; None if it is not limited."""
        return None

    @abstractmethod
    def apply(self, update: Message, server_round: TransformRound) -> Message:
        """Return the changed update. Called once per round and participant.

        Args:
            update: message of the client with its trained models, tensors and scalars; do not
                change it in place.
            server_round: received message, number of participants and random generator.
        """


@dataclass(frozen=True)
class TopK(Transform):
    """Top-k sparsification: keep the entries of an update with the largest magnitude.

    All other entries of the update become 0. The entries are chosen among all floating-point
    entries of the update together. Entries that become 0 are lost: clients do not add them to the
    next update (no error feedback). Integer counters and scalars do not change. Messages do not
    become smaller, because zeros are sent, too: the transform shows only the effect of sparse
    updates on the accuracy.

    Attributes:
        keep: fraction of the entries of an update to keep, the largest ones; the others become 0.
    """

    name: ClassVar[str] = "top-k"
    about: ClassVar[About] = About("update transform", _TOP_K)
    keep: Annotated[float, Gt(0), Le(1)] = 0.1

    def apply(self, update: Message, server_round: TransformRound) -> Message:
        """Set all entries of the update except the ceil(keep * n) largest ones to 0."""
        differences = compute_differences(update, server_round.received)
        if not differences:
            return update
        magnitudes = torch.cat([vector.abs() for vector in differences.values()])  # (n,)
        mask = torch.zeros_like(magnitudes, dtype=torch.bool)
        mask[magnitudes.topk(ceil(self.keep * len(magnitudes))).indices] = True
        masks = mask.split([len(vector) for vector in differences.values()])
        pairs = _pair_vectors(update, server_round.received)
        return replace_vectors(
            update,
            {
                path: torch.where(mask, vector, start.to(vector.dtype))
                for mask, (path, (vector, start)) in zip(masks, pairs.items(), strict=True)
            },
        )


@dataclass(frozen=True)
class Clip(Transform):
    """Clip the L2 norm of an update before it is sent.

    The update is regarded as one vector: the floating-point parameters and buffers of the trained
    models minus those of the received models, and the further tensors that the client sends.
    Integer counters, scalars and the number of samples are not clipped.

    Attributes:
        clip: maximum L2 norm of an update; a client scales a larger update down before sending it.
    """

    name: ClassVar[str] = "clip"
    about: ClassVar[About] = About("update transform", _DP_FEDAVG)
    clip: Annotated[float, Gt(0)] = 1.0

    @property
    def bound(self) -> float:
        """Maximum norm of an update after this transform."""
        return self.clip

    def apply(self, update: Message, server_round: TransformRound) -> Message:
        """Multiply the update by min(1, clip / norm)."""
        return _limit_norm(update, server_round.received, self.clip)


@dataclass(frozen=True)
class Noise(Transform):
    """Add Gaussian noise to clipped updates, as in DP-FedAvg; each participant adds a share.

    Each of the k participants adds noise of standard deviation noise * bound / sqrt(k) to each
    entry of its update, where bound is the maximum norm of an update. The sum of the updates of a
    round then has noise of standard deviation noise * bound.

    Limits: the parameter is a noise multiplier, not an epsilon, and the privacy budget is not
    computed. A single update has only 1 / sqrt(k) of the noise, so clients must trust the server.
    If participants fail, the sum has less noise. If clients have different weights, the noise
    protects the client with the largest weight less. Scalars, integer counters and the number of
    samples get no noise. Batch-norm statistics get noise, too, and a variance may become negative:
    choose a model without batch norm.

    Attributes:
        noise: noise multiplier: the sum of a round's updates gets Gaussian noise of standard
            deviation noise * clip.
    """

    name: ClassVar[str] = "noise"
    about: ClassVar[About] = About(
        "update transform", _DP_FEDAVG, batch_norm="no: a variance may become negative"
    )
    needs_bound: ClassVar[bool] = True
    noise: Annotated[float, Gt(0)] = 0.1

    def apply(self, update: Message, server_round: TransformRound) -> Message:
        """Add noise to all floating-point entries of the update."""
        if server_round.bound is None:
            raise CadisError("Noise needs updates of limited norm; put clip right before it.")
        deviation = self.noise * server_round.bound / server_round.participants**0.5
        generator, noisy = server_round.generator, {}
        for path, (vector, _) in _pair_vectors(update, server_round.received).items():
            noise = torch.randn(vector.shape, generator=generator, dtype=torch.float64)
            noisy[path] = noise.to(vector.device).mul_(deviation).add_(vector).to(vector.dtype)
        return replace_vectors(update, noisy)


@dataclass(frozen=True)
class NormBound(Transform):
    """Clip the L2 norm of updates on the server, for clients that cannot be trusted to do it.

    The update of a client can then change the model by at most the maximum norm times the weight of
    the client. A client can still choose the direction of its update, its scalars and its number of
    samples, on which its weight depends.

    Attributes:
        max_norm: maximum L2 norm of an update; the server scales a larger update down.
    """

    name: ClassVar[str] = "norm-bound"
    about: ClassVar[About] = About("update transform", _NORM_BOUND)
    side: ClassVar[Literal["client", "server"]] = "server"
    max_norm: Annotated[float, Gt(0)] = 1.0

    @property
    def bound(self) -> float:
        """Maximum norm of an update after this transform."""
        return self.max_norm

    def apply(self, update: Message, server_round: TransformRound) -> Message:
        """Multiply the update by min(1, max_norm / norm)."""
        return _limit_norm(update, server_round.received, self.max_norm)


_BUILT_IN: tuple[type[Transform], ...] = (TopK, Clip, Noise, NormBound)

TRANSFORMS: dict[str, type[Transform]] = {part.name: part for part in _BUILT_IN}
"""Built-in transforms by name.

If parameters such as ``--clip`` select transforms on the command line, this is their order.
"""


def apply_transforms(
    transforms: Sequence[Transform],
    update: Message,
    received: Message,
    participants: int,
    make_generator: Callable[[str], torch.Generator],
) -> Message:
    """Apply transforms to an update, one after the other.

    Args:
        transforms: transforms that run on the client, or those that run on the server.
        update: message of a client; it is not changed in place.
        received: message that this client received.
        participants: k, the number of participants that the server chose for this round.
        make_generator: function that returns the random generator of a transform, given its name.
    """
    bound = None
    for transform in transforms:
        generator = make_generator(transform.name)
        update = transform.apply(update, TransformRound(received, participants, bound, generator))
        bound = transform.bound
    return update


def check_transforms(transforms: Sequence[Transform]) -> None:
    """Raise an error if a transform needs updates of limited norm and no transform limits it."""
    for side in ("client", "server"):
        bound = None
        for transform in transforms:
            if transform.side != side:
                continue
            if transform.needs_bound and bound is None:
                raise CadisError(
                    f"The transform '{transform.name}' needs updates of limited norm; put a "
                    f"transform that limits them on the {side}, such as clip, right before it."
                )
            bound = transform.bound


def compute_differences(update: Message, received: Message) -> dict[str, Tensor]:
    """Return the vectors of an update in float64, by the paths of :meth:`Message.vectors`.

    For a model they are its floating-point parameters and buffers minus the parameters and buffers
    of the received model of the same name. For further floating-point tensors they are the tensors
    themselves. Integers, such as the counters of batch norm, and scalars are left out.
    """
    return {
        path: vector.double() - start.double()
        for path, (vector, start) in _pair_vectors(update, received).items()
    }


def replace_vectors(update: Message, vectors: Mapping[str, Tensor]) -> Message:
    """Return a copy of a message in which some vectors are replaced.

    Args:
        update: message to copy.
        vectors: new vectors by path, such as ``models/model/parameters``; see
            :meth:`Message.vectors`.
    """
    return Message.from_vectors({**dict(update.vectors()), **vectors}, update.scalars)


def _pair_vectors(update: Message, received: Message) -> dict[str, tuple[Tensor, Tensor]]:
    """Return each floating-point vector of an update with its received value, by path.

    The received value of a further tensor, which the server did not send, is 0.
    """
    starts = dict(received.vectors())
    pairs = {}
    for path, vector in update.vectors():
        if not vector.is_floating_point():
            continue
        if path.startswith("tensors/"):
            pairs[path] = (vector, vector.new_zeros(()).expand_as(vector))
        elif path in starts:
            pairs[path] = (vector, starts[path])
        else:
            name = path.split("/", 1)[1].rpartition("/")[0]
            raise CadisError(
                f"The update of the model '{name}' cannot be computed: the client did not receive "
                "a model of this name."
            )
    return pairs


def _limit_norm(update: Message, received: Message, max_norm: float) -> Message:
    """Scale an update down to a maximum norm; return an update of a smaller norm unchanged.

    Scaled values are rounded towards the received values, so that the rounded update also has at
    most this norm.
    """
    pairs = _pair_vectors(update, received)
    norm = sqrt(sum(compute_squared_distance(vector, start) for vector, start in pairs.values()))
    if not norm > max_norm:  # also if the norm is NaN: the server rejects such an update
        return update

    def scale(vector: Tensor, start: Tensor) -> tuple[Tensor]:
        change = (vector.double() - start.double()) * (max_norm / norm)
        start = start.to(vector)
        new = (start.double() + change).to(start.dtype)
        too_far = (new.double() - start.double()).abs() > change.abs()
        return (torch.where(too_far, torch.nextafter(new, start), new),)

    return replace_vectors(
        update,
        {
            path: map_chunks(scale, vector.flatten(), start.flatten())[0].view(vector.shape)
            for path, (vector, start) in pairs.items()
        },
    )
