"""Convolutional networks for small pictures."""

from torch import nn

from cadis.models.rates import trains_at


def cnn(channels: int, height: int, width: int, num_classes: int) -> nn.Module:
    """The CNN of the FedAvg paper: 5 x 5 convolutions of 32 and 64 channels, 512 hidden units."""
    return nn.Sequential(
        nn.Conv2d(channels, 32, kernel_size=5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, kernel_size=5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * (height // 4) * (width // 4), 512),
        nn.ReLU(),
        nn.Linear(512, num_classes),
    )


@trains_at(0.1)
def small_cnn(channels: int, height: int, width: int, num_classes: int) -> nn.Module:
    """A CNN for pictures as tiny as the embedded digits: 3 x 3 convolutions, 64 hidden units."""
    return nn.Sequential(
        nn.Conv2d(channels, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (height // 4) * (width // 4), 64),
        nn.ReLU(),
        nn.Linear(64, num_classes),
    )
