"""Record how training changes the classifier layer, which reveals the classes of the data."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cadis._io import short_repr
from cadis.algorithm.methods.cadis import instance_similarity


@dataclass(frozen=True, repr=False)
class ProbedModel:
    """A model that was trained only on some of the classes.

    Attributes:
        title: name of the model in tables and figures.
        trained: indices of the classes it was trained on.
        samples: number of training samples of all classes together.
        update: classifier layer after training minus the layer before, (classes, features). The
            bias, if there is one, is a further column.
    """

    title: str
    trained: tuple[int, ...]
    samples: int
    update: Tensor

    __repr__ = short_repr

    @property
    def row_sums(self) -> Tensor:
        """Sum of the update over the features, (classes,)."""
        return self.update.sum(dim=1)

    @property
    def grown_classes(self) -> tuple[int, ...]:
        """Indices of the classes with a positive row sum, which the update reveals."""
        return tuple((self.row_sums > 0).nonzero()[:, 0].tolist())


@dataclass(frozen=True, repr=False)
class HeadProbe:
    """Data of the paper's figure that shows updates of the classifier layer.

    Attributes:
        dataset: name of the dataset, as users type it.
        model: name of the model, as users type it.
        training: training settings in a few words.
        classes: names of the classes.
        has_bias: whether the last column of the updates is the bias.
        examples: a model trained on one class, and a model trained on two classes.
        clients: the models of two clients with the same classes but different samples, and of a
            client with other classes.
    """

    dataset: str
    model: str
    training: str
    classes: tuple[str, ...]
    has_bias: bool
    examples: tuple[ProbedModel, ...]
    clients: tuple[ProbedModel, ...]

    __repr__ = short_repr

    @property
    def models(self) -> tuple[ProbedModel, ...]:
        """Example models, followed by the models of the clients."""
        return self.examples + self.clients

    @property
    def cosines(self) -> Tensor:
        """Similarity of each pair of clients (Eq. 11 of the paper), (3, 3)."""
        return instance_similarity(torch.stack([model.update.flatten() for model in self.clients]))
