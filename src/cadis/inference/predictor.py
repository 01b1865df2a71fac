"""Prediction with a trained model, which ``cadis.load`` loads from a run or a file."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeGuard

import torch
from torch import Tensor, nn

from cadis._io import (
    Callbacks,
    check_path,
    check_text,
    escape_controls,
    format_error,
    format_value,
    is_file,
    is_user_code,
    load_user_code,
    to_printable,
)
from cadis.algorithm.tasks import TASKS, Task
from cadis.data import MAX_DEVIATIONS, ImagePreprocessing
from cadis.errors import CadisError
from cadis.inference.inputs import check_tensor, read_batches
from cadis.inference.network import build_described_network
from cadis.models import build_user_network
from cadis.permission import (
    UntrustedCodeError,
    check_code,
    restrict_code,
    restrict_code_by_default,
)
from cadis.store import (
    DamagedError,
    ModelDescription,
    ModelInputs,
    RunFolder,
    parse_model,
    permit_signed_code,
    read_file,
)

_MAX_LENGTH, _MAX_NAMES = 200, 20
"""Maximum number of characters and of names that an error message quotes from a file."""


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

    def __init__(
        self, module: nn.Module, description: ModelDescription, task: Task | type[Task] | str
    ) -> None:
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
        self._task = _make_task(task)

    def forward(self, raw: Tensor) -> Tensor:
        """Return the probabilities (n, classes) for raw inputs (n, ...)."""
        if self.factor is not None and self.shift is not None:
            # This is not done in place, because the caller's tensor must not change.
            raw = raw.to(self.factor.dtype) * self.factor - self.shift
        probabilities: Tensor = self._task.probabilities(self.module(raw))
        return probabilities


def _make_task(task: Task | type[Task] | str) -> Any:
    """Return the task, given its class or its name."""
    found: Any = task
    if isinstance(task, str):
        found = load_user_code(task) if is_user_code(task) else TASKS.get(task)
    if found is None or not hasattr(found, "probabilities"):
        raise CadisError(
            f"The task {task} has no method probabilities(outputs); add one that converts "
            "outputs (n, outputs) to probabilities (n, classes)."
        )
    return found() if isinstance(found, type) else found


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
        self,
        module: nn.Module,
        description: ModelDescription,
        task: Task | type[Task] | str | None = None,
    ) -> None:
        """Create a predictor from a trained model.

        Args:
            module: the model; it is switched to evaluation mode.
            description: description of the model.
            task: a task, its class, or its name, such as ``file.py:Class`` for your own task; by
                default the built-in task in the description.
        """
        super().__init__()
        if not isinstance(module, nn.Module):
            raise CadisError(f"The model must be a torch.nn.Module, not {format_value(module)}.")
        if not isinstance(description, ModelDescription):
            raise CadisError(
                f"Give a cadis.store.ModelDescription, not {format_value(description)}."
            )
        self.description = description
        with restrict_code_by_default([task] if isinstance(task, str) else []):
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
        check_tensor(raw)
        if inputs is not None and inputs.preprocessing and raw.shape[1:] != inputs.shape:
            expected = ", ".join(map(str, inputs.shape))
            raise CadisError(
                f"The model takes inputs of shape (n, {expected}), not {tuple(raw.shape)}."
            )
        check_values(raw, inputs)
        try:
            probabilities: Tensor = self.pipeline(raw)
        except Exception as error:  # a user's model may raise anything
            raise CadisError(
                f"The model cannot be applied to inputs of shape {tuple(raw.shape)} and type "
                f"{raw.dtype}: {format_error(error)[:_MAX_LENGTH]}."
            ) from error
        if probabilities.shape != (len(raw), len(self.classes)):
            raise CadisError(
                f"The model returns {tuple(probabilities.shape[1:])} probabilities for each input, "
                f"but its description names {len(self.classes)} classes."
            )
        finite = probabilities.isfinite().all(dim=1)
        if not finite.all():
            row = int(finite.logical_not().nonzero()[0])
            raise CadisError(
                f"The model has no finite probability for row {row + 1} of the inputs; check the "
                "values of this row, and the parameters of the model."
            )
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


def check_values(raw: Tensor, inputs: ModelInputs | None) -> None:
    """Raise an error for inputs with NaN, infinite values, or values far from those of training."""
    if not raw.is_floating_point():
        return
    is_scaled = inputs is not None and inputs.preprocessing is not None
    limit = MAX_DEVIATIONS if is_scaled else torch.finfo(torch.float32).max
    wrong = (raw.abs() <= limit).logical_not()  # also true for NaN
    if wrong.any():
        position = wrong.nonzero()[0].tolist()
        raise CadisError(
            f"Row {position[0] + 1} of the inputs has the value {float(raw[tuple(position)]):g} at "
            f"position {position[1:]}, but values must be finite and at most {limit:.3g}; correct "
            "it, or leave out the row."
        )


def load(
    run: Path | str,
    which: Literal["last", "best"] = "last",
    model: nn.Module | Callable[..., nn.Module] | str | None = None,
    name: str | None = None,
    task: Task | type[Task] | str | None = None,
    trust: bool = False,
) -> Predictor:
    """Load a trained model with its preprocessing.

    A model file or a run that you received from a stranger runs no code: only built-in models and
    tasks are created. If the file names other code, an error says so, unless you began the run
    yourself on this machine.

    Args:
        run: folder of a run, or file of a model such as ``model.safetensors``.
        which: "last" for the model after the last round, "best" for the model after the best round.
        model: a module, which is copied before the parameters are loaded; or the function or class
            that creates one, or its name ``file.py:function``. It is needed only for your own
            model: if you passed a module to ``cadis.run``, or have moved the file of the function.
        name: name of the model, if the method has several models.
        task: a task, its class, or its name ``file.py:Class``; by default the task of the run.
        trust: run the code that the file names, such as its own model or task.

    Returns:
        The predictor.

    Example:
        >>> cadis.load("runs/digits").predict("scan.png")[0].label  # doctest: +SKIP
        '7'
    """
    if which not in ("last", "best"):
        raise CadisError(f"which must be 'last' or 'best', not {which!r}.")
    path = check_path("run", run)
    source, options = to_printable(path), dict[str, Any]()
    check_text("name", name)
    if not (model is None or isinstance(model, str) or callable(model)):
        raise CadisError(
            "model should be a module, a function or class that creates one, or its name "
            f"'FILE.py:FUNCTION', not {format_value(model)}."
        )
    if is_file(path) or path.suffix == ".safetensors":
        tensors, description = parse_model(read_file(path), source)
    else:  # config.toml has the full paths of user code, the description has not
        folder = RunFolder(path)
        content, options = folder.read_model(best=which == "best"), folder.read_config()
        tensors, description = parse_model(content, f"the {which} model of {source}")
    state_dict = _select_model(tensors, description.models, name, source)
    typed = [given for given in (model, task) if isinstance(given, str)]
    network = _get_name(options, "model", description.architecture) if model is None else model
    if task is None:
        task = _get_name(options, "task", description.task)
    with restrict_code(typed, trust, f"The model in {source}"):
        permit_signed_code(path, options)
        check_code(*(given for given in (network, task) if _is_code(given)))
        if isinstance(network, str) and not is_user_code(network):
            module = build_described_network(network, description, state_dict, source)
        else:
            module = _make_user_module(network, description, source)
            _load_state_dict(module, state_dict, source)
        return Predictor(module, description, task)


def _is_code(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and is_user_code(value)


def _get_name(options: Mapping[str, Any], key: str, default: str) -> str:
    """Return an option of a run that is a name; ``default`` if it is missing."""
    name = options.get(key, default)
    if not isinstance(name, str) or not name.isprintable():
        raise DamagedError(f"The run is damaged: its option {key} is not a name.")
    return name


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
        choices = ", ".join([*names[:_MAX_NAMES], *(["..."] if len(names) > _MAX_NAMES else [])])
        raise CadisError(f"{source} has {problem}; choose a name: {choices}.")
    prefix = f"{name}/"
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _make_user_module(
    model: nn.Module | Callable[..., nn.Module] | str, description: ModelDescription, source: str
) -> nn.Module:
    if isinstance(model, nn.Module):
        return deepcopy(model)
    shape = () if description.inputs is None else description.inputs.shape
    try:
        return build_user_network(model, shape, description.num_outputs)
    except UntrustedCodeError:
        raise
    except CadisError as error:
        raise CadisError(
            f"The model in {source} cannot be created: {str(error).removesuffix('.')}; or give a "
            "module: cadis.load(RUN, model=MODULE), or --model FILE.py:FUNCTION."
        ) from error


def _load_state_dict(module: nn.Module, state_dict: Mapping[str, Tensor], source: str) -> None:
    try:
        module.load_state_dict(state_dict)
    except RuntimeError as error:
        problem = str(error).splitlines()[1:2] or [str(error)]
        raise CadisError(
            f"Your model does not match the model in {source}: {problem[0].strip()[:_MAX_LENGTH]}"
        ) from None
