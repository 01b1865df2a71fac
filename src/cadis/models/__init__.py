"""Networks, flat views of their parameters, and detection of their classifier layer."""

from cadis.models.build import build_network, build_user_model, build_user_network
from cadis.models.flat import FlatModel, to_channels_last
from cadis.models.head import Head, find_head, find_linear_layers, find_output_layer
from cadis.models.layout import Layout, WrongTensorsError
from cadis.models.named import NamedState
from cadis.models.networks import MODELS, cnn, get_auto_lr, mlp, resnet9, resnet18, small_cnn

__all__ = [
    "MODELS",
    "FlatModel",
    "Head",
    "Layout",
    "NamedState",
    "WrongTensorsError",
    "build_network",
    "build_user_model",
    "build_user_network",
    "cnn",
    "find_head",
    "find_linear_layers",
    "find_output_layer",
    "get_auto_lr",
    "mlp",
    "resnet9",
    "resnet18",
    "small_cnn",
    "to_channels_last",
]
