"""What the tests of several kinds of parts use."""

from collections.abc import Mapping

from torch import Tensor


def snapshot(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies, to see afterwards that nothing was changed in place."""
    return {name: tensor.clone() for name, tensor in tensors.items()}
