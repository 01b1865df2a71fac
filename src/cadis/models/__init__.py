"""Models, and finding the classifier layer of any model."""

from collections.abc import Callable

from torch import nn

from cadis.models.cnn import cnn, small_cnn
from cadis.models.flat import FlatModel, channels_last
from cadis.models.head import Head, find_head, name_head
from cadis.models.layout import Layout, WrongTensorsError
from cadis.models.mlp import mlp
from cadis.models.own import own_model
from cadis.models.resnet9 import resnet9
from cadis.models.resnet18 import resnet18

MODELS: dict[str, Callable[[int, int, int, int], nn.Module]] = {
    "small-cnn": small_cnn,
    "cnn": cnn,
    "mlp": mlp,
    "resnet9": resnet9,
    "resnet18": resnet18,
}
"""Builders, called with channels, height, width and number of classes."""

__all__ = [
    "MODELS",
    "FlatModel",
    "Head",
    "Layout",
    "WrongTensorsError",
    "channels_last",
    "cnn",
    "find_head",
    "mlp",
    "name_head",
    "own_model",
    "resnet9",
    "resnet18",
    "small_cnn",
]
