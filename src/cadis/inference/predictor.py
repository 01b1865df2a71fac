"""A trained model that predicts on raw inputs."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cadis._io import Callbacks
from cadis.errors import CadisError
from cadis.inference.inputs import RawBatch, raw_batches
from cadis.inference.pipeline import Pipeline
from cadis.store import ModelDescription


@dataclass(frozen=True)
class Prediction:
    """What a model says of one input.

    Attributes:
        name: of the input: a picture's file, or a row's number, from 1.
        label: the most probable class.
        probability: that it is this class, as far as the model knows.
        probabilities: of all classes, in the order of :attr:`Predictor.classes`.
        truth: the class that it has, where the input says so.
    """

    name: str
    label: str
    probability: float
    probabilities: tuple[float, ...]
    truth: str | None = None


class Predictor(nn.Module):
    """A trained model with its preprocessing; ``predictor(raw)`` are probabilities.

    Attributes:
        description: what the model's file says of it.
        pipeline: the same without any check of what it is given.
    """

    def __init__(
        self, module: nn.Module, description: ModelDescription, task: str | None = None
    ) -> None:
        """Take a trained model.

        Args:
            module: the model, which is set to evaluation.
            description: what it says of itself.
            task: where to find a task of a user's own, if not by the name in the description.
        """
        super().__init__()
        self.description = description
        self.pipeline = Pipeline(module, description, task or description.task)
        self.eval().requires_grad_(False)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the probabilities."""
        return self.description.classes

    @property
    def module(self) -> nn.Module:
        """The model itself, which takes scaled inputs and makes logits."""
        return self.pipeline.module

    def forward(self, raw: Tensor) -> Tensor:
        """Probabilities, (n, classes), of raw inputs.

        Args:
            raw: pictures as pixels of 0 to 255, (n, channels, height, width), of any type; rows of
                a table as :meth:`cadis.data.TablePreprocessing.encode` makes them; of a model that
                was given to ``cadis.run``, what it was trained on there.
        """
        self._check(raw)
        probabilities: Tensor = self.pipeline(raw)
        return probabilities

    def predict(
        self, inputs: Path | str | Tensor | Sequence[Path | str] | Mapping[str, Sequence[Any]]
    ) -> list[Prediction]:
        """What the model says of each input; one that cannot be read is left out with a warning.

        Args:
            inputs: a picture, a folder of pictures, or a list of pictures; a table as a CSV or
                Parquet file, or as columns by title, such as a data frame; or a tensor as
                :meth:`forward` takes it.
        """
        callbacks = Callbacks(say=lambda sentence: warnings.warn(sentence, stacklevel=3))
        return list(self.predictions(inputs, callbacks))

    def predictions(
        self, inputs: Any, callbacks: Callbacks, label: str | None = None
    ) -> Iterator[Prediction]:
        """The same one by one, as they are made.

        Args:
            inputs: as :meth:`predict` takes them.
            callbacks: called as it goes on, and with a sentence about each that is left out.
            label: the column of a table that has the true classes, if any has.
        """
        for batch in raw_batches(inputs, self.description, callbacks, label):
            yield from self._of(batch)

    def __repr__(self) -> str:
        """What it is, in one line."""
        told = self.description
        takes = "inputs as they are" if told.inputs is None else _shown(told)
        size = sum(parameter.numel() for parameter in self.parameters())
        return (
            f"Predictor({told.architecture or type(self.module).__name__}, {size:,} parameters: "
            f"{takes} -> {len(self.classes)} classes; {told.training.get('method', 'trained')}, "
            f"{told.rounds} round{'' if told.rounds == 1 else 's'})"
        )

    @torch.no_grad()
    def _of(self, batch: RawBatch) -> Iterator[Prediction]:
        """One for each input of a batch."""
        probabilities = self(batch.raw)  # (n, classes)
        chosen = probabilities.argmax(dim=1).tolist()
        rows = zip(batch.names, probabilities.tolist(), chosen, batch.truths, strict=True)
        for name, row, best, truth in rows:
            yield Prediction(name, self.classes[best], row[best], tuple(row), truth)

    def _check(self, raw: Tensor) -> None:
        """Refuse what the model was not made for, where it is known what that is."""
        told = self.description.inputs
        if not isinstance(raw, Tensor):
            raise CadisError(f"Give a tensor of raw inputs, not a {type(raw).__name__}.")
        if told is None or told.preprocessing is None or raw.shape[1:] == told.shape:
            return
        wanted = ", ".join(map(str, told.shape))
        raise CadisError(
            f"The model takes {told.preprocessing.kind} of shape (n, {wanted}), not "
            f"{tuple(raw.shape)}."
        )


def _shown(description: ModelDescription) -> str:
    """What is put in, in short."""
    told = description.inputs
    assert told is not None
    kind = "tensors" if told.preprocessing is None else told.preprocessing.kind
    return f"{kind} of {' x '.join(map(str, told.shape))}"
