"""Models, and finding the classifier layer of any model."""

from cadis.models.build import build_network, own_model
from cadis.models.flat import FlatModel, channels_last
from cadis.models.head import Head, find_head, linear_layers, name_head
from cadis.models.layout import Layout, WrongTensorsError
from cadis.models.named import NamedState
from cadis.models.networks import MODELS, auto_lr, cnn, mlp, resnet9, resnet18, small_cnn

__all__ = [
    "MODELS",
    "FlatModel",
    "Head",
    "Layout",
    "NamedState",
    "WrongTensorsError",
    "auto_lr",
    "build_network",
    "channels_last",
    "cnn",
    "find_head",
    "linear_layers",
    "mlp",
    "name_head",
    "own_model",
    "resnet9",
    "resnet18",
    "small_cnn",
]
