"""Samples as tensors: training data of clients, test sets, and datasets."""

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

MAX_CLASSES = 100_000
"""Limit of class numbers: a model has one output for each number up to the highest number."""


@dataclass(frozen=True)
class Scaling:
    """Standardization of pixels from 0 to 255: (pixel / 255 - mean) / deviation.

    Attributes:
        mean: mean of each channel, for pixels between 0 and 1.
        deviation: standard deviation of each channel, for pixels between 0 and 1.

    Example:
        >>> import torch
        >>> from cadis.data import Scaling
        >>> scaling = Scaling(mean=(0.5,), deviation=(0.5,))
        >>> scaling(torch.tensor([[[[0, 255]]]], dtype=torch.uint8)).tolist()
        [[[[-1.0, 1.0]]]]
    """

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def __call__(self, pixels: Tensor) -> Tensor:
        """Return scaled pixels, float32, of the same shape (n, channels, height, width)."""
        factor, shift = _compute_factor_and_shift(self, pixels.device)
        return pixels.float().mul_(factor).sub_(shift)


@lru_cache
def _compute_factor_and_shift(scaling: Scaling, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the scaling as pixel * factor - shift, both (channels, 1, 1)."""
    deviation = torch.tensor(scaling.deviation, device=device)[:, None, None]
    mean = torch.tensor(scaling.mean, device=device)[:, None, None]
    return 1 / (255 * deviation), mean / deviation


@dataclass(frozen=True, repr=False)
class Samples:
    """Inputs and their labels.

    Attributes:
        inputs: inputs, (n, ...). Images may be uint8 if there is a scaling; they then take a
            quarter of the memory of float32.
        labels: class numbers from 0, (n,), int64.
        scaling: conversion of uint8 images to float32, applied batch by batch.

    Example:
        >>> import torch
        >>> from cadis.data import Samples
        >>> samples = Samples(torch.rand(5, 3), torch.tensor([0, 1, 0, 1, 1]))
        >>> len(samples)
        5
        >>> samples.take(samples.labels == 1).inputs.shape
        torch.Size([3, 3])
    """

    inputs: Tensor
    labels: Tensor
    scaling: Scaling | None = None

    __repr__ = short_repr

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def input_format(self) -> str:
        """Shape and data type of one input, as text for error messages."""
        return f"shape {tuple(self.inputs.shape[1:])} and type {self.inputs.dtype}"

    @property
    def scaled_inputs(self) -> Tensor:
        """Inputs for a model, scaled if there is a scaling, (n, ...)."""
        return self.inputs if self.scaling is None else self.scaling(self.inputs)

    def take(self, indices: Tensor | slice) -> "Samples":
        """Return some of the samples.

        Args:
            indices: indices in the wanted order, (m,), int64; a mask, (n,), bool; or a slice.
        """
        return Samples(self.inputs[indices], self.labels[indices], self.scaling)

    def to(self, device: torch.device) -> "Samples":
        """Return the samples on a device."""
        return Samples(self.inputs.to(device), self.labels.to(device), self.scaling)

    def check(self, subject: str) -> None:
        """Raise an error if a model cannot be trained or tested on these samples.

        Args:
            subject: subject of the error message, for example ``"Client 3"``.
        """
        self.check_format(subject)
        self.check_finite(subject)

    def check_finite(self, subject: str) -> None:
        """Raise an error if an input is NaN or infinite."""
        if len(samples := self.find_nonfinite()):
            first = int(samples[0])
            position = self.describe_nonfinite(first)
            raise CadisError(
                format_nonfinite_error(subject, len(samples), f"sample {first}", position)
            )

    def describe_nonfinite(self, sample: int) -> str:
        """Describe the first NaN or infinite input of a sample, such as "NaN at position 3"."""
        values = self.inputs[sample]
        index = tuple(values.isfinite().logical_not().nonzero()[0].tolist())
        problem = "NaN" if values[index].isnan() else "infinite"
        return f"{problem} at position {', '.join(map(str, index))}" if index else problem

    def find_nonfinite(self) -> Tensor:
        """Return the indices of samples with a NaN or infinite input, (m,)."""
        if not self.inputs.is_floating_point() or self.inputs.sum().isfinite():
            return torch.zeros(0, dtype=torch.int64)  # all terms of a finite sum are finite
        finite = self.inputs.isfinite().reshape(len(self.inputs), -1).all(dim=1)
        return finite.logical_not().nonzero()[:, 0]

    def check_format(self, subject: str) -> None:
        """Raise an error if shapes, types or labels cannot be used for training or testing."""
        if self.inputs.is_meta or self.labels.is_meta:
            raise CadisError(f"{subject} has tensors on the device meta, without data; move them.")
        if not self.inputs.dim():
            raise CadisError(f"{subject} has a single number as inputs; give one row per sample.")
        if self.labels.dim() and not len(self.labels):
            raise CadisError(f"{subject} has no samples; leave it out or give it some.")
        if self.labels.dim() != 1 or self.labels.dtype != torch.int64:
            raise CadisError(
                f"{subject} has labels of shape {tuple(self.labels.shape)} and type "
                f"{self.labels.dtype}; give class numbers as a vector of torch.int64."
            )
        if len(self.inputs) != len(self.labels):
            raise CadisError(
                f"{subject} has {len(self.inputs)} inputs but {len(self.labels)} labels; "
                "give one label for each input."
            )
        if self.labels.min() < 0:
            raise CadisError(f"{subject} has a negative label; number the classes from 0.")
        if (highest := int(self.labels.max())) >= MAX_CLASSES:
            raise CadisError(
                f"{subject} has the label {highest:,}, but class numbers must be below "
                f"{MAX_CLASSES:,}; number the classes from 0, without gaps."
            )


def format_nonfinite_error(subject: str, count: int, first: str, position: str) -> str:
    """Return the error message for samples with NaN or infinite inputs.

    Args:
        subject: subject of the sentence, for example ``"Client 3"``.
        count: number of samples.
        first: name of the first of these samples, for example ``"sample 17"``.
        position: description of its input, see :meth:`Samples.describe_nonfinite`.
    """
    if count == 1:
        return (
            f"{subject} has 1 sample with inputs that are NaN or infinite, {first} ({position}); "
            "repair it or leave it out."
        )
    return (
        f"{subject} has {count:,} samples with inputs that are NaN or infinite; the first is "
        f"{first} ({position}); repair them or leave them out."
    )


def concatenate(parts: Sequence[Samples]) -> Samples:
    """Concatenate samples that have the same scaling.

    Example:
        >>> import torch
        >>> from cadis.data import Samples, concatenate
        >>> samples = Samples(torch.rand(2, 3), torch.tensor([0, 1]))
        >>> len(concatenate([samples, samples]))
        4
    """
    if len(parts) == 1:
        return parts[0]
    inputs, labels = ([getattr(part, name) for part in parts] for name in ("inputs", "labels"))
    return Samples(torch.cat(inputs), torch.cat(labels), parts[0].scaling)


def group_indices_by_client(clients: Sequence[str | None]) -> dict[str, Tensor]:
    """Return the indices of each client's samples, in the order in which clients first occur.

    Args:
        clients: client of each sample; None for a sample without a client.
    """
    groups: dict[str, list[int]] = {}
    for index, client in enumerate(clients):
        if client is not None:
            groups.setdefault(client, []).append(index)
    return {client: torch.tensor(indices) for client, indices in groups.items()}


@dataclass(frozen=True, repr=False)
class Subsets(Sequence[Samples]):
    """The samples of all clients, as indices into one dataset that is in memory only once.

    Attributes:
        samples: samples of all clients.
        indices: indices of each client's samples, one tensor per client.

    Example:
        >>> import torch
        >>> from cadis.data import Samples, Subsets
        >>> samples = Samples(torch.rand(4, 3), torch.tensor([0, 1, 0, 1]))
        >>> clients = Subsets(samples, (torch.tensor([0, 1, 2]), torch.tensor([3])))
        >>> clients.sizes()
        [3, 1]
        >>> clients[1].labels.tolist()
        [1]
    """

    samples: Samples
    indices: tuple[Tensor, ...]

    __repr__ = short_repr

    def __len__(self) -> int:
        return len(self.indices)

    @overload
    def __getitem__(self, client: int) -> Samples: ...
    @overload
    def __getitem__(self, client: slice) -> "Subsets": ...
    def __getitem__(self, client: int | slice) -> "Samples | Subsets":
        """Return a copy of a client's samples, or the subsets of a slice of the clients."""
        if isinstance(client, slice):
            return Subsets(self.samples, self.indices[client])
        return self.samples.take(self.indices[client])

    def sizes(self) -> list[int]:
        """Return the number of samples of each client without copying them."""
        return [len(indices) for indices in self.indices]

    def labels(self) -> list[Tensor]:
        """Return the labels of each client without copying its inputs."""
        return [self.samples.labels[indices] for indices in self.indices]

    def pool(self) -> "Subsets":
        """Return subsets with a single client that has the samples of all clients."""
        return Subsets(self.samples, (torch.cat(self.indices),))


@dataclass(frozen=True, repr=False)
class Dataset:
    """Training samples, a test set and the names of the classes.

    Attributes:
        name: name of the dataset, as in the option ``--dataset``.
        train: training samples, which a partition splits among clients.
        test: test samples, which are not given to clients.
        classes: names of the classes; a label is an index into them.
        client_indices: indices of each client's training samples; empty if the data do not
            define clients.
        client_test_indices: indices of each client's test samples in ``test``; empty if the
            data do not define clients.
        preprocessing: conversion of raw inputs to inputs of a model; None if unknown.
        client_tests: test samples of each client, if they are not part of ``test``.

    Example:
        >>> import torch
        >>> from cadis.data import Dataset, Samples
        >>> samples = Samples(torch.rand(4, 3), torch.tensor([0, 1, 0, 1]))
        >>> dataset = Dataset("mine", samples, samples.take(slice(0, 2)), ("no", "yes"))
        >>> dataset.num_classes
        2
    """

    name: str
    train: Samples
    test: Samples
    classes: tuple[str, ...]
    client_indices: Mapping[str, Tensor] = field(default_factory=dict)
    client_test_indices: Mapping[str, Tensor] = field(default_factory=dict)
    preprocessing: "Preprocessing | None" = None
    client_tests: Mapping[str, Samples] = field(default_factory=dict)

    __repr__ = short_repr

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.classes)
