"""``cadis.load``: a trained model from the folder of its run, or from its file alone."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Literal

from torch import Tensor, nn

from cadis._io import at_home, is_file, is_user_code, shown
from cadis.errors import CadisError
from cadis.inference.predictor import Predictor
from cadis.models import MODELS, build_network
from cadis.store import ModelDescription, RunFolder, parse_model, read_file


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
    """Return the tensors of the model that is asked for."""
    if name is None and not names:
        return dict(tensors)
    if name not in names:
        there = f"there are: {', '.join(names)}; say which by name" if names else "there is but one"
        which = f"no model '{name}'" if name else "several models"
        raise CadisError(f"{place} has {which}; {there}.")
    start = f"{name}/"
    return {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}


def _build(architecture: str, description: ModelDescription, place: str) -> nn.Module:
    """Return a new network like the one that was trained."""
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
