"""A model's file: its tensors, and a description that is enough to use the model elsewhere."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import PurePath
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from cadis.algorithm import KINDS
from cadis.data import Examples, PicturePreprocessing, Preprocessing, from_json, to_json
from cadis.options import OPTIONS
from cadis.store.storage import DamagedError, tensor_metadata

FORMAT = 1
"""Of the description; it grows when an older version could not read it any more."""

_KEY = "cadis"
"""Of the description. It is the only one: safetensors writes several in any order, and a file must
be the same bits each time."""

_TRAINING = (
    *(key for key in KINDS if key != "task"),
    *(name for name, option in OPTIONS.items() if option.in_card and not option.may_change),
)
"""Options that decide how a model is trained; others are about the machine, or a user's notes."""


@dataclass(frozen=True)
class ModelInputs:
    """What a model is given.

    Attributes:
        shape: of one raw input.
        dtype: of raw inputs, such as "uint8".
        preprocessing: what makes the model's inputs of raw ones; None if they are taken as they
            are.
    """

    shape: tuple[int, ...]
    dtype: str
    preprocessing: Preprocessing | None = None

    @classmethod
    def of(cls, examples: Examples, preprocessing: Preprocessing | None = None) -> "ModelInputs":
        """Those of examples like these; pictures that are scaled as they are used say how."""
        shape = tuple(examples.inputs.shape[1:])
        if preprocessing is None and examples.scaling is not None and len(shape) == 3:
            preprocessing = PicturePreprocessing(*shape, examples.scaling)
        pixels = isinstance(preprocessing, PicturePreprocessing)
        dtype = "uint8" if pixels else str(examples.inputs.dtype).removeprefix("torch.")
        return cls(shape, dtype, preprocessing)


@dataclass(frozen=True)
class ModelDescription:
    """A model in words and numbers.

    Attributes:
        architecture: one of :data:`cadis.models.MODELS`, ``file.py:function`` for a user's own, or
            the name of a class that nobody here knows; "" if nothing was said.
        num_outputs: how many numbers it makes of an input.
        task: what they mean, as users type it.
        classes: names of the classes, in the order of their numbers.
        inputs: what it is given; None if whoever aggregated it did not know.
        rounds: how many rounds it was trained for.
        training: how: the options that tell, and the parameters of the method and the other parts.
        models: names of the models, if there are several in the file.
        version: of cadis, which wrote it.
    """

    architecture: str
    num_outputs: int
    task: str
    classes: tuple[str, ...]
    inputs: ModelInputs | None
    rounds: int = 0
    training: Mapping[str, Any] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    version: str = field(default_factory=lambda: version("cadis"))

    @classmethod
    def of_run(
        cls,
        options: Mapping[str, Any],
        num_outputs: int,
        classes: Sequence[str],
        inputs: ModelInputs | None,
    ) -> "ModelDescription":
        """The model of a run with these options, before its first round."""
        return cls(
            architecture=without_folders(str(options.get("model", ""))),
            num_outputs=num_outputs,
            task=without_folders(str(options.get("task", "classification"))),
            classes=tuple(classes),
            inputs=inputs,
            training=_training_of(options),
        )

    def after(self, rounds: int, models: Sequence[str]) -> "ModelDescription":
        """The same after so many rounds, with names of the models if there are several."""
        return replace(self, rounds=rounds, models=tuple(models) if len(models) > 1 else ())

    def to_text(self) -> str:
        """One line of JSON, always alike."""
        inputs = None if self.inputs is None else vars(self.inputs).copy()
        if inputs is not None and inputs["preprocessing"] is not None:
            inputs["preprocessing"] = to_json(inputs["preprocessing"])
        fields = {**asdict(replace(self, inputs=None)), "inputs": inputs}
        return json.dumps({"format": FORMAT, **fields}, sort_keys=True)

    @classmethod
    def from_text(cls, text: str, where: object) -> "ModelDescription":
        """What :meth:`to_text` has written; ``where`` names what holds it in a sentence."""
        try:
            content = json.loads(text)
            if content.pop("format") > FORMAT:
                raise DamagedError(f"{where} was written by a newer version of cadis; update it.")
            inputs = content["inputs"]
            if inputs is not None:
                how = inputs["preprocessing"]
                preprocessing = None if how is None else from_json(how)
                inputs = ModelInputs(tuple(inputs["shape"]), inputs["dtype"], preprocessing)
            lists = {name: tuple(content[name]) for name in ("classes", "models")}
            return cls(**{**content, **lists, "inputs": inputs})
        except DamagedError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DamagedError(f"The description of the model in {where} is damaged.") from error


def model_bytes(model: Mapping[str, Tensor], description: ModelDescription) -> bytes:
    """A model's state dict under its usual names, as safetensors that say what the model is."""
    contiguous = torch.contiguous_format
    tensors = {
        key: value.detach().cpu().clone(memory_format=contiguous) for key, value in model.items()
    }
    return save(tensors, {_KEY: description.to_text()})


def parse_model(content: bytes, where: object) -> tuple[dict[str, Tensor], ModelDescription]:
    """The tensors in a model's file, and its description; ``where`` names it in sentences."""
    try:
        tensors, described = load(content), tensor_metadata(content)[_KEY]
    except (SafetensorError, ValueError, KeyError):
        raise DamagedError(f"{where} is no model of cadis, or damaged; put back a copy.") from None
    return tensors, ModelDescription.from_text(described, where)


def _training_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that tell how a model is trained, and the tables of its parts' parameters."""
    told = {key: options[key] for key in _TRAINING if options.get(key) not in (None, "", [], ())}
    tables = {key: value for key, value in options.items() if isinstance(value, Mapping)}
    plain: dict[str, Any] = _plain({**told, **tables})
    return plain


def without_folders(name: str) -> str:
    """A name as others may see it: of a path in it, as in ``images:/home/me/pills``, the last part.

    Where a user's files are is nobody's business who is given the model.
    """
    return ":".join(PurePath(part).name if part else part for part in name.split(":"))


def _plain(value: Any) -> Any:
    """A value as JSON holds it, without folders."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items() if v is not None}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return without_folders(value) if isinstance(value, str) else value
