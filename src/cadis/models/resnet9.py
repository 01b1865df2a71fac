"""ResNet-9, which the paper trains on CIFAR."""

from torch import Tensor, nn

from cadis.models.rates import trains_at


class _Residual(nn.Module):
    """Two convolutions whose output is added to their input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *_convolution(channels, channels), *_convolution(channels, channels)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Same shape in and out."""
        out: Tensor = x + self.body(x)
        return out


@trains_at(0.001)
def resnet9(channels: int, height: int, width: int, num_classes: int) -> nn.Module:
    """Eight convolutions of 32, 64, 128 and 256 channels; 256 features go into the classifier.

    Made for pictures of 32 x 32 pixels; any from 8 x 8 will do.
    """
    del height, width  # the last pooling takes what there is
    return nn.Sequential(
        *_convolution(channels, 32),
        *_convolution(32, 64),
        nn.MaxPool2d(2),
        _Residual(64),
        *_convolution(64, 128),
        nn.MaxPool2d(2),
        *_convolution(128, 256),
        nn.MaxPool2d(2),
        _Residual(256),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(256, num_classes),
    )


def _convolution(channels: int, out: int) -> list[nn.Module]:
    """3 x 3 convolution, batch normalisation, ReLU."""
    convolution = nn.Conv2d(channels, out, kernel_size=3, padding=1, bias=False)
    return [convolution, nn.BatchNorm2d(out), nn.ReLU()]
