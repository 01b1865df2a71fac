"""Copies of tensors whose memory belongs to the updates of clients.

A part may return a tensor of an update, or a view of it, as a part of its result. The next round
overwrites the memory of the updates, so the server copies such tensors.
"""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from cadis.algorithm import Aggregation
from cadis.types import ClientUpdate, ModelState, TensorState


def copy_aggregation(aggregation: Aggregation, updates: Sequence[ClientUpdate]) -> Aggregation:
    """Return the aggregation with copies of all tensors that share memory with the updates."""
    models = {
        name: ModelState(**copy_if_shared(model.vectors(), updates))
        for name, model in aggregation.models.items()
    }
    tensors = copy_if_shared(aggregation.tensors, updates)
    return replace(aggregation, models=models, tensors=tensors)


def copy_if_shared(tensors: TensorState, updates: Sequence[ClientUpdate]) -> dict[str, Tensor]:
    """Copy the tensors that share memory with the updates; return the others unchanged."""
    shared = {
        tensor.untyped_storage().data_ptr()
        for update in updates
        for tensor in update.message.iter_tensors()
    }
    return {
        name: tensor.clone() if tensor.untyped_storage().data_ptr() in shared else tensor
        for name, tensor in tensors.items()
    }
