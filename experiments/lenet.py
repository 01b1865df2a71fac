"""The network of Flower's quickstart for PyTorch, for the plan ``quickstart``."""

import torch
from torch import nn


def lenet(channels: int, height: int, width: int, num_classes: int) -> nn.Module:
    """Return LeNet: two convolutions with 5 x 5 kernels and pooling, three linear layers."""
    features = nn.Sequential(
        nn.Conv2d(channels, 6, kernel_size=5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, kernel_size=5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
    )
    size = features(torch.zeros(1, channels, height, width)).shape[1]
    classifier = [nn.Linear(size, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU()]
    return nn.Sequential(features, *classifier, nn.Linear(84, num_classes))
