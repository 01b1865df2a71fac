"""The batches of several clients as one padded tensor per step.

Clients may have different numbers of samples:

- They are sorted by size, and clients with fewer steps per epoch skip the steps before the last
  one. So the clients that take part in a step are always the first clients of the stack.
- Batches of unequal size are padded to the largest one with copies of their last row. Copies have
  weight 0 in the loss, and ``row_mask`` is False for them.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from cadis.data import Samples
from cadis.training.local import compute_batch_sizes
from cadis.types import TensorState


class StackedBatch(NamedTuple):
    """The batches of all clients in one step, padded to the largest batch size b.

    Attributes:
        inputs: the inputs, (m, b, ...).
        labels: the labels, (m, b).
        per_sample: rows of the extras, (m, b, ...).
        weights: 1 / (batch size of the client), 0 for padding, (m, b), float64.
        row_mask: True for samples, False for padding, (m, b); None if there is no padding.
    """

    inputs: Tensor
    labels: Tensor
    per_sample: TensorState
    weights: Tensor
    row_mask: Tensor | None


def iter_stacked_batches(
    epochs: Sequence[tuple[Samples, TensorState]], batch_size: int
) -> Iterator[StackedBatch]:
    """Yield the stacked batches of one epoch.

    All clients take part in the last step, with their last batch, which may be smaller than the
    others. Only the clients that still have a full batch take part in an earlier step.

    Args:
        epochs: the shuffled samples and extras of each client, largest client first.
        batch_size: the size of a full batch.
    """
    client_sizes = [compute_batch_sizes(len(samples), batch_size) for samples, _ in epochs]
    steps = len(client_sizes[0])
    sizes = torch.tensor([[*b[:-1], *[0] * (steps - len(b)), b[-1]] for b in client_sizes]).T
    rows, weights = _compute_rows_and_weights(sizes)

    def gather(tensors: Iterable[Tensor]) -> Tensor:
        """Return the rows of all batches, (steps, m, b, ...)."""
        batches = torch.cat(list(tensors)).index_select(0, rows.flatten())
        return batches.view(*rows.shape, *batches.shape[1:])

    first, extras = epochs[0]
    inputs = gather(_permute_channels_last(samples.inputs) for samples, _ in epochs)
    labels = gather(samples.labels for samples, _ in epochs)
    per_sample = {name: gather(tensors[name] for _, tensors in epochs) for name in extras}
    for step, step_sizes in enumerate(sizes.tolist()):
        active_sizes = [size for size in step_sizes if size]
        index = step, slice(len(active_sizes)), slice(max(active_sizes))
        batch = inputs[index].permute(0, 1, 4, 2, 3) if inputs.dim() == 6 else inputs[index]
        yield StackedBatch(
            batch if first.scaling is None else first.scaling(batch),
            labels[index],
            {name: tensor[index] for name, tensor in per_sample.items()},
            weights[index],
            weights[index] > 0 if len(set(active_sizes)) > 1 else None,
        )


def _compute_rows_and_weights(sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the row indices and the weights of all padded batches, (steps, m, b) each.

    Args:
        sizes: the batch sizes of each client, (steps, m); 0 if a client skips the step.

    Returns:
        Indices into the concatenated samples of all clients, in which padding repeats the last row
        of the batch; and weights in float64: 1 / (batch size), 0 for padding.
    """
    # The end of each batch in the concatenated samples, client by client, (steps, m).
    ends = sizes.T.flatten().cumsum(0).view(sizes.T.shape).T
    offsets = torch.arange(int(sizes.max()))
    padded = offsets.minimum((sizes - 1).clamp_min(0)[..., None])
    rows = ((ends - sizes)[..., None] + padded).clamp_max(int(ends[-1, -1]) - 1)
    return rows, (offsets < sizes[..., None]).double() / sizes.clamp_min(1)[..., None]


def _permute_channels_last(inputs: Tensor) -> Tensor:
    """Permute images, (n, c, h, w), to (n, h, w, c); return other inputs unchanged."""
    return inputs.permute(0, 2, 3, 1) if inputs.dim() == 4 else inputs
