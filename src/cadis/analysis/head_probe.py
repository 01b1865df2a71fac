"""Record how training changes the classifier layer, which reveals the classes trained on."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cadis._io import short_repr
from cadis.algorithm.methods.cadis import instance_similarity


@dataclass(frozen=True, repr=False)
class ProbedModel:
    """A model that was trained on some of the classes only.

    Attributes:
        title: name of the model in tables and figures.
        trained: indices of the classes it was trained on.
        samples: number of training samples, over all classes.
        update: classifier layer after training minus before, (classes, features). The bias, if
            there is one, is a further column.
    """

    title: str
    trained: tuple[int, ...]
    samples: int
    update: Tensor

    __repr__ = short_repr

    @property
    def row_sums(self) -> Tensor:
        """Sum of the update over the features, one number per class, (classes,)."""
        return self.update.sum(dim=1)

    @property
    def grown_classes(self) -> tuple[int, ...]:
        """Indices of the classes with a positive row sum: those that the update reveals."""
        return tuple((self.row_sums > 0).nonzero()[:, 0].tolist())


@dataclass(frozen=True, repr=False)
class HeadProbe:
    """Data of the figure of the paper that shows updates of the classifier layer.

    Attributes:
        dataset: name of the dataset, as users type it.
        model: name of the model, as users type it.
        training: training settings in a few words.
        classes: names of the classes.
        has_bias: whether the last column of the updates is the bias.
        samples: a model trained on one class, and one trained on two.
        clients: two clients with the same classes but different samples, and one with others.
    """

    dataset: str
    model: str
    training: str
    classes: tuple[str, ...]
    has_bias: bool
    samples: tuple[ProbedModel, ...]
    clients: tuple[ProbedModel, ...]

    __repr__ = short_repr

    @property
    def models(self) -> tuple[ProbedModel, ...]:
        """Example models, followed by the models of the clients."""
        return self.samples + self.clients

    @property
    def cosines(self) -> Tensor:
        """Pairwise similarity of the clients as CADIS computes it (Eq. 11), (3, 3)."""
        return instance_similarity(torch.stack([model.update.flatten() for model in self.clients]))
