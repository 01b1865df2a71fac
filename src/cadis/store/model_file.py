"""Model files: safetensors with a description, so that the model can be used without the run.

:class:`~cadis.store.RunWriter` writes them; :func:`cadis.load` reads them.
"""

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
from cadis.data import ImagePreprocessing, Preprocessing, Samples, from_json, to_json
from cadis.options import OPTIONS
from cadis.store.description_schema import DescriptionSchema
from cadis.store.storage import DamagedError, parse_json, parse_tensor_metadata

FORMAT = 1
"""Version of the description; it increases when older versions of cadis cannot read it."""

_KEY = "cadis"
"""Metadata key of the description. There is only one key, because safetensors writes several keys
in an arbitrary order, and equal models must give the same bytes."""

_MAX_HEADER = 2**25
"""Maximum number of bytes of the header of a model file, which has the description."""

_MAX_REASON = 200
"""Maximum number of characters of a reason, which may contain text of the file."""

_TRAINING = (
    *(key for key in KINDS if key != "task"),
    *(name for name, option in OPTIONS.items() if option.in_card and not option.may_change),
)
"""Options that describe the training, without options about the machine and the user's notes."""


@dataclass(frozen=True)
class ModelInputs:
    """Description of the inputs of a model.

    Attributes:
        shape: shape of one raw input.
        dtype: dtype of raw inputs, such as "uint8".
        preprocessing: converts raw inputs to inputs of the model; None if they are the same.

    Example:
        >>> ModelInputs((3, 32, 32), "uint8").shape
        (3, 32, 32)
    """

    shape: tuple[int, ...]
    dtype: str
    preprocessing: Preprocessing | None = None

    @classmethod
    def from_samples(
        cls, samples: Samples, preprocessing: Preprocessing | None = None
    ) -> "ModelInputs":
        """Return the description of the inputs of some samples.

        Args:
            samples: samples with the model's inputs.
            preprocessing: conversion of raw inputs; by default the scaling of images, if any.
        """
        shape = tuple(samples.inputs.shape[1:])
        if preprocessing is None and samples.scaling is not None and len(shape) == 3:
            preprocessing = ImagePreprocessing(*shape, samples.scaling)
        is_image = isinstance(preprocessing, ImagePreprocessing)
        dtype = "uint8" if is_image else str(samples.inputs.dtype).removeprefix("torch.")
        return cls(shape, dtype, preprocessing)


@dataclass(frozen=True)
class ModelDescription:
    """Description of a model in its file.

    Attributes:
        architecture: one of :data:`cadis.models.MODELS`, ``file.py:function`` of a user's own
            model, or the name of a class; "" if unknown.
        num_outputs: number of outputs.
        task: name of the task, which defines the meaning of the outputs.
        classes: names of the classes, in the order of their labels.
        inputs: description of the inputs; None if unknown, as on a Flower server.
        rounds: number of rounds of training.
        training: options of the training, and parameters of the method and the other parts.
        models: names of the models, if the file has several.
        version: version of cadis that wrote the file.
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
    def from_options(
        cls,
        options: Mapping[str, Any],
        num_outputs: int,
        classes: Sequence[str],
        inputs: ModelInputs | None,
    ) -> "ModelDescription":
        """Return the description of a run's model before the first round.

        Args:
            options: options of the run.
            num_outputs: number of outputs of the model.
            classes: names of the classes.
            inputs: description of the inputs, if known.
        """
        return cls(
            architecture=strip_folders(str(options.get("model", ""))),
            num_outputs=num_outputs,
            task=strip_folders(str(options.get("task", "classification"))),
            classes=tuple(classes),
            inputs=inputs,
            training=_select_training(options),
        )

    def with_rounds(self, rounds: int, models: Sequence[str]) -> "ModelDescription":
        """Return a copy with the number of rounds, and the models' names if there are several."""
        return replace(self, rounds=rounds, models=tuple(models) if len(models) > 1 else ())

    def to_text(self) -> str:
        """Return one line of JSON, the same for equal descriptions."""
        inputs = None if self.inputs is None else vars(self.inputs).copy()
        if inputs is not None and inputs["preprocessing"] is not None:
            inputs["preprocessing"] = to_json(inputs["preprocessing"])
        fields = {**asdict(replace(self, inputs=None)), "inputs": inputs}
        return json.dumps({"format": FORMAT, **fields}, sort_keys=True)

    @classmethod
    def from_text(cls, text: str, source: object) -> "ModelDescription":
        """Parse the text of :meth:`to_text`; error messages name ``source``."""
        content = _parse_description(text, source)
        del content["format"]
        inputs = content["inputs"]
        if inputs is not None:
            fields = inputs["preprocessing"]
            preprocessing = None if fields is None else from_json(fields)
            inputs = ModelInputs(tuple(inputs["shape"]), inputs["dtype"], preprocessing)
        lists = {name: tuple(content[name]) for name in ("classes", "models")}
        return cls(**{**content, **lists, "inputs": inputs})


def encode_model(model: Mapping[str, Tensor], description: ModelDescription) -> bytes:
    """Return the content of a model file: a state dict as safetensors, with the description."""
    contiguous = torch.contiguous_format
    tensors = {
        key: value.detach().cpu().clone(memory_format=contiguous) for key, value in model.items()
    }
    return save(tensors, {_KEY: description.to_text()})


def parse_model(content: bytes, source: object) -> tuple[dict[str, Tensor], ModelDescription]:
    """Return the state dict and the description in a model file; error messages name ``source``."""
    try:
        if int.from_bytes(content[:8], "little") > _MAX_HEADER:
            raise ValueError("the header is too large")
        tensors, text = load(content), parse_tensor_metadata(content)[_KEY]
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError):
        raise DamagedError(
            f"{source} is not a model of cadis, or it is damaged; restore a copy of the file."
        ) from None
    return tensors, ModelDescription.from_text(text, source)


def _parse_description(text: str, source: object) -> dict[str, Any]:
    """Return the fields of a description, after checking them."""
    try:
        version = parse_json(dict[str, Any], text, source).get("format")
        if not isinstance(version, int) or version <= FORMAT:
            return asdict(parse_json(DescriptionSchema, text, source))
    except DamagedError as error:
        reason = str(error).removeprefix(f"{source} is damaged: ")[:_MAX_REASON]
        printable = "".join(letter if letter.isprintable() else "?" for letter in reason)
        raise DamagedError(
            f"The description of the model in {source} is damaged; restore a copy of the file: "
            f"{printable.removesuffix('.')}."
        ) from None
    raise DamagedError(f"{source} was written by a newer version of cadis; update cadis.")


def _select_training(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the training, and the parameters of the parts."""
    training = {k: options[k] for k in _TRAINING if options.get(k) not in (None, "", [], ())}
    tables = {key: value for key, value in options.items() if isinstance(value, Mapping)}
    plain: dict[str, Any] = _to_plain({**training, **tables})
    return plain


def strip_folders(name: str) -> str:
    """Remove folders from a name: ``images:/home/me/pills`` becomes ``images:pills``.

    A model file must not reveal where the user keeps data.
    """
    return ":".join(PurePath(part).name if part else part for part in name.split(":"))


def _to_plain(value: Any) -> Any:
    """Convert a value to JSON types and remove folders from texts."""
    if isinstance(value, Mapping):
        return {str(k): _to_plain(v) for k, v in value.items() if v is not None}
    if isinstance(value, list | tuple):
        return [_to_plain(item) for item in value]
    return strip_folders(value) if isinstance(value, str) else value
