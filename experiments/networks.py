"""Networks of plans: ``cadis run --model experiments/networks.py:lenet``."""

import torch
from torch import nn


def lenet(channels: int, height: int, width: int, num_classes: int) -> nn.Module:
    """Return LeNet, the network of Flower's quickstart for PyTorch."""
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


def mlp_without_bias(channels: int, height: int, width: int, num_classes: int) -> nn.Module:
    """Return two linear layers, of which the classifier layer has no bias."""
    hidden = nn.Linear(channels * height * width, 64)
    return nn.Sequential(nn.Flatten(), hidden, nn.ReLU(), nn.Linear(64, num_classes, bias=False))
