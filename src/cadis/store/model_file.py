"""A model's file: its tensors as safetensors, and a description of itself."""

from collections.abc import Mapping

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from cadis.store.description import ModelDescription
from cadis.store.storage import DamagedError, tensor_metadata

_KEY = "cadis"
"""Of the description. It is the only one: safetensors writes several in any order, and a file must
be the same bits each time."""


def model_bytes(model: Mapping[str, Tensor], description: ModelDescription) -> bytes:
    """A model's state dict under its usual names, as safetensors that say what the model is."""
    contiguous = torch.contiguous_format
    tensors = {
        key: value.detach().cpu().clone(memory_format=contiguous) for key, value in model.items()
    }
    return save(tensors, {_KEY: description.to_text()})


def parse_model(content: bytes, where: object) -> tuple[dict[str, Tensor], ModelDescription]:
    """The tensors in a model's file, and its description.

    Args:
        content: of the file.
        where: its name, for sentences.
    """
    try:
        tensors, described = load(content), tensor_metadata(content)[_KEY]
    except (SafetensorError, ValueError, KeyError):
        raise DamagedError(f"{where} is no model of cadis, or damaged; put back a copy.") from None
    return tensors, ModelDescription.from_text(described, where)
