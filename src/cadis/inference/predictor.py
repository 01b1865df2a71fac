"""A trained model that predicts on raw inputs; ``cadis.load`` makes it of a run or a file."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from cadis._io import Callbacks, at_home, is_file, is_user_code, load_user_code, shown
from cadis.algorithm.tasks import TASKS
from cadis.data import PicturePreprocessing
from cadis.errors import CadisError
from cadis.inference.inputs import raw_batches
from cadis.models import MODELS, build_network
from cadis.store import ModelDescription, RunFolder, parse_model, read_file


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


def load(
    run: Path | str,
    which: Literal["last", "best"] = "last",
    model: nn.Module | str | None = None,
    name: str | None = None,
) -> Predictor:
    """Return a trained model with its preprocessing, which predicts on raw inputs.

    Args:
        run: the folder of a run, or a model's file, such as ``model.safetensors``.
        which: the model after the last round, or the best of all rounds.
        model: a module to load the numbers into, or ``file.py:function`` for what makes one; only
            needed if the model is one of your own that cannot be made again by its name. A module
            is copied.
        name: which of the models, if the method has several.
    """
    if which not in ("last", "best"):
        raise CadisError(f"which is 'last' or 'best', not {which!r}.")
    path = at_home(run)
    place = shown(path)
    if is_file(path):
        tensors, description = parse_model(read_file(path), place)
        architecture, task = description.architecture, description.task
    else:  # a run's options have the names as the user typed them
        folder = RunFolder(path)
        content, config = folder.read_model(best=which == "best"), folder.read_config()
        tensors, description = parse_model(content, f"the {which} model of {place}")
        architecture = str(config.get("model", ""))
        task = str(config.get("task", description.task))
    chosen = _choose(tensors, description.models, name, place)
    if isinstance(model, nn.Module):
        module = deepcopy(model)
    else:
        module = _build(model or architecture, description, place)
    try:
        module.load_state_dict(chosen)
    except RuntimeError as error:
        problem = str(error).splitlines()[1:2] or [str(error)]
        raise CadisError(f"The model does not fit that in {place}: {problem[0].strip()}") from None
    return Predictor(module, description, task)


def _choose(
    tensors: Mapping[str, Tensor], names: Sequence[str], name: str | None, place: str
) -> dict[str, Tensor]:
    if name is None and not names:
        return dict(tensors)
    if name not in names:
        there = f"there are: {', '.join(names)}; say which by name" if names else "there is but one"
        which = f"no model '{name}'" if name else "several models"
        raise CadisError(f"{place} has {which}; {there}.")
    start = f"{name}/"
    return {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}


def _build(architecture: str, description: ModelDescription, place: str) -> nn.Module:
    shape = () if description.inputs is None else description.inputs.shape
    if not (is_user_code(architecture) or (architecture in MODELS and shape)):
        kind = f"a {architecture}" if architecture else "of unknown architecture"
        raise CadisError(
            f"The model in {place} is {kind}, which cannot be made again by its name; give it to "
            "load the numbers into: cadis.load(RUN, model=MODULE), or --model FILE.py:FUNCTION."
        )
    try:
        return build_network(architecture, shape, description.num_outputs)
    except CadisError as error:
        raise CadisError(
            f"The model in {place} cannot be made again: {str(error).removesuffix('.')}; or give "
            "it: cadis.load(RUN, model=MODULE), or --model FILE.py:FUNCTION."
        ) from error
