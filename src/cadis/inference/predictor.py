"""Prediction with a trained model, which ``cadis.load`` loads from a run or a file."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from cadis._io import (
    Callbacks,
    escape_controls,
    expand_home,
    is_file,
    is_user_code,
    load_user_code,
    to_printable,
)
from cadis.algorithm.tasks import TASKS
from cadis.data import ImagePreprocessing
from cadis.errors import CadisError
from cadis.inference.inputs import read_batches
from cadis.models import MODELS, build_network
from cadis.store import ModelDescription, RunFolder, parse_model, read_file


@dataclass(frozen=True)
class Prediction:
    """Prediction for one input.

    Attributes:
        name: name of the input: the file of an image, or the number of a row, from 1.
        label: the most probable class.
        probability: probability of this class.
        probabilities: probabilities of all classes, in the order of :attr:`Predictor.classes`.
        truth: the true class, if the input contains it.
    """

    name: str
    label: str
    probability: float
    probabilities: tuple[float, ...]
    truth: str | None = None


class Pipeline(nn.Module):
    """Scale inputs, apply the model, and convert its outputs to probabilities.

    It consists of tensor operations without checks, so that it can be exported.
    """

    factor: Tensor | None
    shift: Tensor | None

    def __init__(self, module: nn.Module, description: ModelDescription, task: str) -> None:
        """Wrap a model.

        Scale its inputs, and convert its outputs with the method ``probabilities`` of the task.
        """
        super().__init__()
        preprocessing = None if description.inputs is None else description.inputs.preprocessing
        factor, shift = None, None
        if isinstance(preprocessing, ImagePreprocessing):
            scaling = preprocessing.scaling
            statistics = torch.tensor([scaling.mean, scaling.deviation])
            mean, deviation = statistics[..., None, None]  # (channels, 1, 1) each
            factor, shift = 1 / (255 * deviation), mean / deviation
        self.register_buffer("factor", factor, persistent=False)
        self.register_buffer("shift", shift, persistent=False)
        self.module = module
        task_class: Any = load_user_code(task) if is_user_code(task) else TASKS.get(task)
        if task_class is None or not hasattr(task_class, "probabilities"):
            raise CadisError(
                f"The task {task} has no method probabilities(outputs); add one that converts "
                "outputs (n, outputs) to probabilities (n, classes)."
            )
        self._task = task_class()

    def forward(self, raw: Tensor) -> Tensor:
        """Return the probabilities (n, classes) for raw inputs (n, ...)."""
        if self.factor is not None and self.shift is not None:
            # This is not done in place, because the caller's tensor must not change.
            raw = raw.to(self.factor.dtype) * self.factor - self.shift
        probabilities: Tensor = self._task.probabilities(self.module(raw))
        return probabilities


class Predictor(nn.Module):
    """A trained model with its preprocessing; ``predictor(raw)`` returns probabilities.

    Attributes:
        description: the description in the file of the model.
        pipeline: the same computation without checks of the inputs.

    Example:
        >>> predictor = cadis.load("runs/digits")  # doctest: +SKIP
        >>> predictor.predict("scan.png")[0].label  # doctest: +SKIP
        '7'
    """

    def __init__(
        self, module: nn.Module, description: ModelDescription, task: str | None = None
    ) -> None:
        """Create a predictor from a trained model.

        Args:
            module: the model; it is switched to evaluation mode.
            description: description of the model.
            task: name of a task, or ``file.py:Class`` of your own task; by default the task in the
                description.
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
        """The model without preprocessing: it takes scaled inputs and returns logits."""
        return self.pipeline.module

    def forward(self, raw: Tensor) -> Tensor:
        """Return the probabilities for raw inputs.

        Args:
            raw: a batch of inputs. Images are pixels from 0 to 255 of any type, (n, channels,
                height, width). Rows of a table are encoded with
                :meth:`cadis.data.TablePreprocessing.encode`, (n, features). If the model was passed
                to ``cadis.run``, inputs have the same form as its training data.

        Returns:
            Probabilities, (n, classes).
        """
        inputs = self.description.inputs
        if not isinstance(raw, Tensor):
            raise CadisError(f"Give a tensor of raw inputs, not a {type(raw).__name__}.")
        if inputs is not None and inputs.preprocessing and raw.shape[1:] != inputs.shape:
            expected = ", ".join(map(str, inputs.shape))
            raise CadisError(
                f"The model takes inputs of shape (n, {expected}), not {tuple(raw.shape)}."
            )
        probabilities: Tensor = self.pipeline(raw)
        return probabilities

    def predict(
        self, inputs: Path | str | Tensor | Sequence[Path | str] | Mapping[str, Sequence[Any]]
    ) -> list[Prediction]:
        """Predict the class of each input. Inputs that cannot be read are skipped with a warning.

        Args:
            inputs: path of an image or of a folder of images, or a list of paths of images; path
                of a table (CSV or Parquet), a data frame, or a mapping from titles to columns; or
                a tensor as for :meth:`forward`.

        Returns:
            One prediction per input.
        """
        callbacks = Callbacks(say=lambda text: warnings.warn(escape_controls(text), stacklevel=3))
        return list(self.iter_predictions(inputs, callbacks))

    def iter_predictions(
        self, inputs: Any, callbacks: Callbacks, label: str | None = None
    ) -> Iterator[Prediction]:
        """Yield predictions one by one.

        Args:
            inputs: as for :meth:`predict`.
            callbacks: called with the progress, and with a sentence about each skipped input.
            label: title of the column with the true classes, if the input is a table.
        """
        for batch in read_batches(inputs, self.description, callbacks, label):
            with torch.no_grad():
                probabilities = self(batch.raw)  # (n, classes)
            chosen = probabilities.argmax(dim=1).tolist()
            rows = zip(batch.names, probabilities.tolist(), chosen, batch.truths, strict=True)
            for name, row, best, truth in rows:
                yield Prediction(name, self.classes[best], row[best], tuple(row), truth)

    def __repr__(self) -> str:
        """Return a description in one line."""
        description, shape = self.description, "unknown shape"
        if description.inputs is not None:
            shape = f"shape {' x '.join(map(str, description.inputs.shape))}"
        size = sum(parameter.numel() for parameter in self.parameters())
        return (
            f"Predictor({description.architecture or type(self.module).__name__}, {size:,} "
            f"parameters: inputs of {shape} -> {len(self.classes)} classes; "
            f"{description.training.get('method', 'trained')}, "
            f"{description.rounds} round{'' if description.rounds == 1 else 's'})"
        )


def load(
    run: Path | str,
    which: Literal["last", "best"] = "last",
    model: nn.Module | str | None = None,
    name: str | None = None,
) -> Predictor:
    """Load a trained model with its preprocessing.

    Args:
        run: folder of a run, or file of a model such as ``model.safetensors``.
        which: "last" for the model after the last round, "best" for the model after the best round.
        model: a module, which is copied before the parameters are loaded, or the
            ``file.py:function`` that creates one. It is needed only for your own model: if you
            passed a module to ``cadis.run``, or have moved the file of the function.
        name: name of the model, if the method has several models.

    Returns:
        The predictor.

    Example:
        >>> cadis.load("runs/digits").predict("scan.png")[0].label  # doctest: +SKIP
        '7'
    """
    if which not in ("last", "best"):
        raise CadisError(f"which must be 'last' or 'best', not {which!r}.")
    path = expand_home(run)
    source = to_printable(path)
    if is_file(path):
        tensors, description = parse_model(read_file(path), source)
        architecture, task = description.architecture, description.task
    else:  # config.toml has the full paths of user code, the description has not
        folder = RunFolder(path)
        content, config = folder.read_model(best=which == "best"), folder.read_config()
        tensors, description = parse_model(content, f"the {which} model of {source}")
        architecture = str(config.get("model", ""))
        task = str(config.get("task", description.task))
    state_dict = _select_model(tensors, description.models, name, source)
    if isinstance(model, nn.Module):
        module = deepcopy(model)
    else:
        module = _make_module(model or architecture, description, source)
    try:
        module.load_state_dict(state_dict)
    except RuntimeError as error:
        problem = str(error).splitlines()[1:2] or [str(error)]
        raise CadisError(
            f"Your model does not match the model in {source}: {problem[0].strip()}"
        ) from None
    return Predictor(module, description, task)


def _select_model(
    tensors: Mapping[str, Tensor], names: Sequence[str], name: str | None, source: str
) -> dict[str, Tensor]:
    """Return the state dict of the model ``name`` in a file that may have several."""
    if name is None and not names:
        return dict(tensors)
    if name not in names:
        if not names:
            raise CadisError(f"{source} has only one model, which has no name; omit '{name}'.")
        problem = f"no model '{name}'" if name else "several models"
        raise CadisError(f"{source} has {problem}; choose a name: {', '.join(names)}.")
    prefix = f"{name}/"
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _make_module(architecture: str, description: ModelDescription, source: str) -> nn.Module:
    shape = () if description.inputs is None else description.inputs.shape
    if not (is_user_code(architecture) or (architecture in MODELS and shape)):
        kind = f"a {architecture}" if architecture else "of unknown architecture"
        raise CadisError(
            f"The model in {source} is {kind}, which cadis cannot create; give a module: "
            "cadis.load(RUN, model=MODULE), or --model FILE.py:FUNCTION."
        )
    try:
        return build_network(architecture, shape, description.num_outputs)
    except CadisError as error:
        raise CadisError(
            f"The model in {source} cannot be created: {str(error).removesuffix('.')}; or give a "
            "module: cadis.load(RUN, model=MODULE), or --model FILE.py:FUNCTION."
        ) from error
