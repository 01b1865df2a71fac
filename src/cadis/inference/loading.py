"""``cadis.load``: a trained model from the folder of its run, or from its file alone."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch import Tensor, nn

from cadis._io import at_home, is_file, is_user_code, shown
from cadis.errors import CadisError
from cadis.inference.predictor import Predictor
from cadis.models import MODELS, build_network
from cadis.store import ModelDescription, RunFolder, parse_model, read_file


@dataclass(frozen=True)
class _Found:
    """A model's file.

    Attributes:
        tensors: by name.
        description: what the model says of itself.
        architecture: what to build it by, as the user typed it.
        task: what its outputs mean, likewise.
        place: where it is, for sentences.
    """

    tensors: Mapping[str, Tensor]
    description: ModelDescription
    architecture: str
    task: str
    place: str


def load(
    run: Path | str,
    which: Literal["last", "best"] = "last",
    model: nn.Module | str | None = None,
    name: str | None = None,
) -> Predictor:
    """A trained model with its preprocessing, which predicts on raw inputs.

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
    found = _in_file(path) if is_file(path) else _in_run(RunFolder(path), which)
    tensors = _chosen(found, name)
    module = deepcopy(model) if isinstance(model, nn.Module) else _built(found, model)
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        problem = str(error).splitlines()[1:2] or [str(error)]
        raise CadisError(
            f"The model does not fit that in {found.place}: {problem[0].strip()}"
        ) from None
    return Predictor(module, found.description, found.task)


def _in_file(path: Path) -> _Found:
    """The model in a file that describes itself."""
    tensors, description = parse_model(read_file(path), shown(path))
    return _Found(tensors, description, description.architecture, description.task, shown(path))


def _in_run(folder: RunFolder, which: str) -> _Found:
    """Return a model of a run, built by the names that the run's options have."""
    content = folder.read_model(best=which == "best")
    tensors, description = parse_model(content, f"the {which} model of {shown(folder.path)}")
    config = folder.read_config()
    typed = str(config.get("model", "")), str(config.get("task", description.task))
    return _Found(tensors, description, *typed, shown(folder.path))


def _chosen(found: _Found, name: str | None) -> dict[str, Tensor]:
    """The tensors of the model that is asked for."""
    names = found.description.models
    if name is None and not names:
        return dict(found.tensors)
    if name not in names:
        there = f"there are: {', '.join(names)}; say which by name" if names else "there is but one"
        which = f"no model '{name}'" if name else "several models"
        raise CadisError(f"{found.place} has {which}; {there}.")
    start = f"{name}/"
    return {k.removeprefix(start): v for k, v in found.tensors.items() if k.startswith(start)}


def _built(found: _Found, given: str | None) -> nn.Module:
    """A new network like the one that was trained."""
    architecture, inputs = given or found.architecture, found.description.inputs
    shape = () if inputs is None else inputs.shape
    if not (is_user_code(architecture) or (architecture in MODELS and shape)):
        raise CadisError(
            f"The model in {found.place} is {_called(architecture)}, which cannot be made again by "
            "its name; give it to load the numbers into: cadis.load(RUN, model=MODULE), or "
            "--model FILE.py:FUNCTION."
        )
    try:
        return build_network(architecture, shape, found.description.num_outputs)
    except CadisError as error:
        raise CadisError(
            f"The model in {found.place} cannot be made again: "
            f"{str(error).removesuffix('.')}; or give it: cadis.load(RUN, model=MODULE), or "
            "--model FILE.py:FUNCTION."
        ) from error


def _called(architecture: str) -> str:
    return f"a {architecture}" if architecture else "of unknown architecture"
