"""Models, and finding the classifier layer of any model."""

from collections.abc import Callable

from torch import nn

from cadis.models.cnn import cnn, small_cnn
from cadis.models.flat import FlatModel, Layout, channels_last
from cadis.models.head import find_head

MODELS: dict[str, Callable[[int, int, int, int], nn.Module]] = {"cnn": cnn, "small-cnn": small_cnn}
"""Builders, called with channels, height, width and number of classes."""

__all__ = ["MODELS", "FlatModel", "Layout", "channels_last", "cnn", "find_head", "small_cnn"]
