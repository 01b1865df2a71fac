"""How the classifier layer behaves: what its update betrays of the classes trained on."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cadis._io import short_repr
from cadis.algorithm.methods.cadis import instance_similarity


@dataclass(frozen=True, repr=False)
class Panel:
    """A model that was trained on some classes only.

    Attributes:
        title: who it is.
        trained: the classes it was trained on.
        samples: how many samples that was, all classes together.
        update: the classifier layer after training minus before, (classes, features), with the
            bias, if there is one, as a further column.
    """

    title: str
    trained: tuple[int, ...]
    samples: int
    update: Tensor

    __repr__ = short_repr

    @property
    def row_sums(self) -> Tensor:
        """By how much each class's row grew as a whole, (classes,)."""
        return self.update.sum(dim=1)

    @property
    def grown(self) -> tuple[int, ...]:
        """The classes whose row grew: those that the layer betrays."""
        return tuple((self.row_sums > 0).nonzero()[:, 0].tolist())


@dataclass(frozen=True, repr=False)
class HeadProbe:
    """The paper's figure of the classifier layer, in numbers.

    Attributes:
        dataset: its name, as the user types it.
        model: its name, likewise.
        training: how each model was trained, in a few words.
        classes: names of the classes.
        has_bias: whether the last column of the updates is the bias.
        examples: a model trained on one class, and one trained on two.
        clients: two with the same classes but different samples, and a stranger.
    """

    dataset: str
    model: str
    training: str
    classes: tuple[str, ...]
    has_bias: bool
    examples: tuple[Panel, ...]
    clients: tuple[Panel, ...]

    __repr__ = short_repr

    @property
    def panels(self) -> tuple[Panel, ...]:
        """The models of the examples, then those of the clients."""
        return self.examples + self.clients

    @property
    def cosines(self) -> Tensor:
        """How alike the clients are, as CADIS sees it (Eq. 11), (3, 3)."""
        return instance_similarity(torch.stack([panel.update.flatten() for panel in self.clients]))
