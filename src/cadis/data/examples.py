"""Examples as tensors: what a client owns, and what a model is tested on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, overload

import torch
from torch import Tensor

from cadis._io import short_repr
from cadis.errors import CadisError

if TYPE_CHECKING:
    from cadis.data.preprocessing import Preprocessing


@dataclass(frozen=True)
class Scaling:
    """How pixels of 0 to 255 become numbers around 0: (pixel / 255 - mean) / deviation.

    Attributes:
        mean: of each channel, of pixels between 0 and 1.
        deviation: of each channel.
    """

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def __call__(self, pixels: Tensor) -> Tensor:
        """Scaled pixels, (n, channels, height, width), float32."""
        factor, shift = _factor_and_shift(self, pixels.device)
        return pixels.float().mul_(factor).sub_(shift)


@lru_cache
def _factor_and_shift(scaling: Scaling, device: torch.device) -> tuple[Tensor, Tensor]:
    """The same scaling as pixel * factor - shift, (channels, 1, 1) each."""
    deviation = torch.tensor(scaling.deviation, device=device)[:, None, None]
    mean = torch.tensor(scaling.mean, device=device)[:, None, None]
    return 1 / (255 * deviation), mean / deviation


@dataclass(frozen=True, repr=False)
class Examples:
    """Inputs and their labels.

    Attributes:
        inputs: (n, ...); pictures may stay bytes, a quarter of the memory, if there is a scaling.
        labels: class numbers, (n,), int64.
        scaling: what makes floating numbers of bytes, batch by batch.
    """

    inputs: Tensor
    labels: Tensor
    scaling: Scaling | None = None

    __repr__ = short_repr

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def kind(self) -> str:
        """Shape of one input, and type."""
        return f"shape {tuple(self.inputs.shape[1:])} and type {self.inputs.dtype}"

    @property
    def scaled(self) -> Tensor:
        """The inputs as a model wants them."""
        return self.inputs if self.scaling is None else self.scaling(self.inputs)

    def take(self, indices: Tensor | slice) -> "Examples":
        """Some of the examples, in that order."""
        return Examples(self.inputs[indices], self.labels[indices], self.scaling)

    def to(self, device: torch.device) -> "Examples":
        """The same examples on a device."""
        return Examples(self.inputs.to(device), self.labels.to(device), self.scaling)

    def check(self, owner: str) -> None:
        """Refuse what no model can be trained or tested on; ``owner`` says whose it is."""
        self.check_form(owner)
        self.check_finite(owner)

    def check_finite(self, owner: str) -> None:
        """Refuse inputs that are infinite or not a number."""
        if len(broken := self.broken()):
            first = int(broken[0])
            told = f"sample {first}", self.first_broken(first)
            raise CadisError(broken_sentence(owner, len(broken), *told))

    def first_broken(self, sample: int) -> str:
        """Where in a sample, and what, the first input is that is infinite or not a number."""
        numbers = self.inputs[sample]
        place = tuple(numbers.isfinite().logical_not().nonzero()[0].tolist())
        what = "not a number" if numbers[place].isnan() else "infinite"
        return f"{what} at position {', '.join(map(str, place))}" if place else what

    def broken(self) -> Tensor:
        """Positions of samples with an input that is infinite or not a number, (m,)."""
        if not self.inputs.is_floating_point() or self.inputs.sum().isfinite():
            return torch.zeros(0, dtype=torch.int64)  # a sum is finite only if all numbers are
        finite = self.inputs.isfinite().reshape(len(self.inputs), -1).all(dim=1)
        return finite.logical_not().nonzero()[:, 0]

    def check_form(self, owner: str) -> None:
        """Refuse shapes, types and labels that no model can be trained or tested on."""
        if not self.inputs.dim():
            raise CadisError(f"{owner} has a single number for inputs; give one row for each.")
        if self.labels.dim() and not len(self.labels):
            raise CadisError(f"{owner} has no samples; leave it out or give it some.")
        if self.labels.dim() != 1 or self.labels.dtype != torch.int64:
            raise CadisError(
                f"{owner} has labels of shape {tuple(self.labels.shape)} and type "
                f"{self.labels.dtype}; give class numbers as a vector of torch.int64."
            )
        if len(self.inputs) != len(self.labels):
            raise CadisError(
                f"{owner} has {len(self.inputs)} inputs but {len(self.labels)} labels; "
                "give one label for each input."
            )
        if self.labels.min() < 0:
            raise CadisError(f"{owner} has a negative label; classes are numbered from 0.")


def broken_sentence(owner: str, number: int, first: str, where: str) -> str:
    """What to tell of samples that are infinite or not a number."""
    if number == 1:
        return (
            f"{owner} has 1 sample with inputs that are infinite or not a number, {first} "
            f"({where}); repair it or leave it out."
        )
    return (
        f"{owner} has {number:,} samples with inputs that are infinite or not a number, {first} "
        f"being the first ({where}); repair them or leave them out."
    )


def joined(parts: Sequence[Examples]) -> Examples:
    """Examples of several owners, one after the other; all are scaled alike."""
    if len(parts) == 1:
        return parts[0]
    inputs, labels = ([getattr(part, name) for part in parts] for name in ("inputs", "labels"))
    return Examples(torch.cat(inputs), torch.cat(labels), parts[0].scaling)


def positions_by_owner(owners: Sequence[str | None]) -> dict[str, Tensor]:
    """Where each owner's examples are, in the order of the owners' first; nobody's are nowhere."""
    found: dict[str, list[int]] = {}
    for position, owner in enumerate(owners):
        if owner is not None:
            found.setdefault(owner, []).append(position)
    return {owner: torch.tensor(positions) for owner, positions in found.items()}


@dataclass(frozen=True, repr=False)
class Subsets(Sequence[Examples]):
    """Clients as index lists into one dataset: the data are in memory once.

    Attributes:
        examples: the whole dataset.
        indices: which examples each client owns.
    """

    examples: Examples
    indices: tuple[Tensor, ...]

    __repr__ = short_repr

    def __len__(self) -> int:
        return len(self.indices)

    @overload
    def __getitem__(self, client: int) -> Examples: ...
    @overload
    def __getitem__(self, client: slice) -> "Subsets": ...
    def __getitem__(self, client: int | slice) -> "Examples | Subsets":
        """A client's examples, gathered on demand; or some of the clients."""
        if isinstance(client, slice):
            return Subsets(self.examples, self.indices[client])
        return self.examples.take(self.indices[client])

    def sizes(self) -> list[int]:
        """How many examples each client owns, without gathering them."""
        return [len(indices) for indices in self.indices]

    def labels(self) -> list[Tensor]:
        """Each client's labels, without gathering its inputs."""
        return [self.examples.labels[indices] for indices in self.indices]

    def pooled(self) -> "Subsets":
        """Everything in the hands of a single client."""
        return Subsets(self.examples, (torch.cat(self.indices),))


@dataclass(frozen=True, repr=False)
class Dataset:
    """A dataset with its usual split.

    Attributes:
        name: as the user types it.
        train: examples to be given to clients.
        test: examples that no client sees.
        classes: names of the classes, in the order of their numbers.
        owners: who owns which training examples, where the data say so.
        test_owners: from whom which test examples are, where the data say so.
        preprocessing: what makes a model's inputs of a raw one, where that is known.
        client_tests: clients' test examples that are not in the test set, by client.
    """

    name: str
    train: Examples
    test: Examples
    classes: tuple[str, ...]
    owners: Mapping[str, Tensor] = field(default_factory=dict)
    test_owners: Mapping[str, Tensor] = field(default_factory=dict)
    preprocessing: "Preprocessing | None" = None
    client_tests: Mapping[str, Examples] = field(default_factory=dict)

    __repr__ = short_repr

    @property
    def num_classes(self) -> int:
        """Classes are numbered from 0."""
        return len(self.classes)
