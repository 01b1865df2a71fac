"""A trained model that predicts on raw inputs."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cadis._io import Callbacks, is_user_code, load_user_code
from cadis.algorithm.tasks import TASKS
from cadis.data import PicturePreprocessing
from cadis.errors import CadisError
from cadis.inference.inputs import raw_batches
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


class Pipeline(nn.Module):
    """Scaling, the model, and what makes probabilities of its outputs.

    It holds nothing but tensors and checks nothing, so that it can be exported.
    """

    factor: Tensor | None
    shift: Tensor | None

    def __init__(self, module: nn.Module, description: ModelDescription, task: str) -> None:
        """Put a model between what its inputs and outputs need; ``task`` says what outputs mean."""
        super().__init__()
        how = None if description.inputs is None else description.inputs.preprocessing
        factor, shift = None, None
        if isinstance(how, PicturePreprocessing):
            scaling = torch.tensor([how.scaling.mean, how.scaling.deviation])
            mean, deviation = scaling[..., None, None]  # (channels, 1, 1) each
            factor, shift = 1 / (255 * deviation), mean / deviation
        self.register_buffer("factor", factor, persistent=False)
        self.register_buffer("shift", shift, persistent=False)
        self.module = module
        kind: Any = load_user_code(task) if is_user_code(task) else TASKS.get(task)
        if kind is None or not hasattr(kind, "probabilities"):
            raise CadisError(
                f"The task {task} does not say what is probable; give it a function "
                "probabilities(outputs) that makes (n, classes) of (n, outputs)."
            )
        self._task = kind()

    def forward(self, raw: Tensor) -> Tensor:
        """Return probabilities, (n, classes), of raw inputs, (n, ...)."""
        if self.factor is not None and self.shift is not None:  # what is given stays as it is
            raw = raw.to(self.factor.dtype) * self.factor - self.shift
        probabilities: Tensor = self._task.probabilities(self.module(raw))
        return probabilities


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
        """Return probabilities, (n, classes), of raw inputs.

        Args:
            raw: pictures as pixels of 0 to 255, (n, channels, height, width), of any type; rows of
                a table as :meth:`cadis.data.TablePreprocessing.encode` makes them; of a model that
                was given to ``cadis.run``, what it was trained on there.
        """
        inputs = self.description.inputs
        if not isinstance(raw, Tensor):
            raise CadisError(f"Give a tensor of raw inputs, not a {type(raw).__name__}.")
        if inputs is not None and inputs.preprocessing and raw.shape[1:] != inputs.shape:
            wanted = ", ".join(map(str, inputs.shape))
            raise CadisError(
                f"The model takes {inputs.preprocessing.kind} of shape (n, {wanted}), not "
                f"{tuple(raw.shape)}."
            )
        probabilities: Tensor = self.pipeline(raw)
        return probabilities

    def predict(
        self, inputs: Path | str | Tensor | Sequence[Path | str] | Mapping[str, Sequence[Any]]
    ) -> list[Prediction]:
        """Predict each input; one that cannot be read is left out with a warning.

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
        """Yield predictions one by one, as they are made.

        Args:
            inputs: as :meth:`predict` takes them.
            callbacks: called as it goes on, and with a sentence about each that is left out.
            label: the column of a table that has the true classes, if any has.
        """
        for batch in raw_batches(inputs, self.description, callbacks, label):
            with torch.no_grad():
                probabilities = self(batch.raw)  # (n, classes)
            chosen = probabilities.argmax(dim=1).tolist()
            rows = zip(batch.names, probabilities.tolist(), chosen, batch.truths, strict=True)
            for name, row, best, truth in rows:
                yield Prediction(name, self.classes[best], row[best], tuple(row), truth)

    def __repr__(self) -> str:
        """Return what it is, in one line."""
        told, takes = self.description, "inputs as they are"
        if told.inputs is not None:
            how = told.inputs.preprocessing
            kind = "tensors" if how is None else how.kind
            takes = f"{kind} of {' x '.join(map(str, told.inputs.shape))}"
        size = sum(parameter.numel() for parameter in self.parameters())
        return (
            f"Predictor({told.architecture or type(self.module).__name__}, {size:,} parameters: "
            f"{takes} -> {len(self.classes)} classes; {told.training.get('method', 'trained')}, "
            f"{told.rounds} round{'' if told.rounds == 1 else 's'})"
        )
