"""A network of fully connected layers."""

from torch import nn

from cadis.models.rates import trains_at


@trains_at(0.1)
def mlp(channels: int, height: int, width: int, num_classes: int) -> nn.Module:
    """The "2NN" of the FedAvg paper: two hidden layers of 200 units."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(channels * height * width, 200),
        nn.ReLU(),
        nn.Linear(200, 200),
        nn.ReLU(),
        nn.Linear(200, num_classes),
    )
