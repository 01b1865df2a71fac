"""Examples as tensors: what a client owns, and what a model is tested on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import torch
from torch import Tensor

from cadis.core import CadisError


@dataclass(frozen=True)
class Examples:
    """Inputs and their labels.

    Attributes:
        inputs: (n, ...).
        labels: class numbers, (n,), int64.
    """

    inputs: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def kind(self) -> str:
        """Shape of one input, and type."""
        return f"shape {tuple(self.inputs.shape[1:])} and type {self.inputs.dtype}"

    def take(self, indices: Tensor | slice) -> "Examples":
        """Some of the examples, in that order."""
        return Examples(self.inputs[indices], self.labels[indices])

    def check(self, owner: str) -> None:
        """Refuse what no model can be trained or tested on; ``owner`` says whose it is."""
        if not len(self.labels):
            raise CadisError(f"{owner} has no samples; leave it out or give it some.")
        if len(self.inputs) != len(self.labels):
            raise CadisError(
                f"{owner} has {len(self.inputs)} inputs but {len(self.labels)} labels; "
                "give one label for each input."
            )
        if self.labels.dim() != 1 or self.labels.dtype != torch.int64:
            raise CadisError(
                f"{owner} has labels of shape {tuple(self.labels.shape)} and type "
                f"{self.labels.dtype}; give class numbers as a vector of torch.int64."
            )
        if self.labels.min() < 0:
            raise CadisError(f"{owner} has a negative label; classes are numbered from 0.")


@dataclass(frozen=True)
class Subsets(Sequence[Examples]):
    """Clients as index lists into one dataset: the data are in memory once.

    Attributes:
        examples: the whole dataset.
        indices: which examples each client owns.
    """

    examples: Examples
    indices: tuple[Tensor, ...]

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


@dataclass(frozen=True)
class Dataset:
    """A dataset with its usual split.

    Attributes:
        name: as the user types it.
        train: examples to be given to clients.
        test: examples that no client sees.
        num_classes: classes are numbered from 0.
    """

    name: str
    train: Examples
    test: Examples
    num_classes: int
