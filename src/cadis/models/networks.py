"""Our networks, and the learning rate that each is trained at if nobody says.

Larger models diverge where small ones do best. ResNets on CIFAR hide their clusters at 0.01
(adjusted Rand index 0.2 and less after a round) and show them at 0.001 (1.0).

Pooling comes before the rectifier: the maximum of what is rectified is the rectified maximum, so
every number and gradient is the same, and a quarter of the numbers are rectified.
"""

from collections.abc import Callable
from functools import wraps
from typing import TypeAlias

from torch import Tensor, nn

Builder: TypeAlias = Callable[[int, int, int, int], nn.Module]
"""Makes a model from channels, height, width and number of classes."""

_OTHERS = 0.01
"""For models that nothing is known of."""

_SMALL = 64
"""Pictures of fewer pixels a side are not shrunk before the first block."""


def trains_at(lr: float) -> Callable[[Builder], Builder]:
    """Note the rate that trains what a builder makes fast and safely."""

    def noting(build: Builder) -> Builder:
        @wraps(build)
        def building(channels: int, height: int, width: int, num_classes: int) -> nn.Module:
            model = build(channels, height, width, num_classes)
            model.auto_lr = lr  # type: ignore[assignment]  # no tensor, but a note
            return model

        building.auto_lr = lr  # type: ignore[attr-defined]
        return building

    return noting


def auto_lr(model: nn.Module | Builder | None) -> float:
    """The learning rate of one of our models or its builder; 0.01 for all others."""
    lr: float = getattr(model, "auto_lr", _OTHERS)
    return lr


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


def cnn(channels: int, height: int, width: int, num_classes: int) -> nn.Module:
    """The CNN of the FedAvg paper: 5 x 5 convolutions of 32 and 64 channels, 512 hidden units."""
    features = 64 * (height // 4) * (width // 4)
    return _two_convolutions(5, channels, 32, 64, features, 512, num_classes)


@trains_at(0.1)
def small_cnn(channels: int, height: int, width: int, num_classes: int) -> nn.Module:
    """A CNN for pictures as tiny as the embedded digits: 3 x 3 convolutions, 64 hidden units."""
    features = 32 * (height // 4) * (width // 4)
    return _two_convolutions(3, channels, 16, 32, features, 64, num_classes)


def _two_convolutions(kernel: int, *widths: int) -> nn.Module:
    """Two convolutions, each with pooling, and two linear layers."""
    channels, first, second, features, hidden, num_classes = widths
    return nn.Sequential(
        nn.Conv2d(channels, first, kernel, padding=kernel // 2),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(first, second, kernel, padding=kernel // 2),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(features, hidden),
        nn.ReLU(),
        nn.Linear(hidden, num_classes),
    )


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
    """ResNet-9, which the paper trains on CIFAR.

    Eight convolutions of 32, 64, 128 and 256 channels; 256 features go into the classifier.
    Made for pictures of 32 x 32 pixels; any from 8 x 8 will do.
    """
    del height, width  # the last pooling takes what there is
    return nn.Sequential(
        *_convolution(channels, 32),
        *_convolution(32, 64, nn.MaxPool2d(2)),
        _Residual(64),
        *_convolution(64, 128, nn.MaxPool2d(2)),
        *_convolution(128, 256, nn.MaxPool2d(2)),
        _Residual(256),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(256, num_classes),
    )


def _convolution(channels: int, out: int, *pooling: nn.Module) -> list[nn.Module]:
    """3 x 3 convolution, batch normalisation, pooling if there is any, ReLU."""
    convolution = nn.Conv2d(channels, out, kernel_size=3, padding=1, bias=False)
    return [convolution, nn.BatchNorm2d(out), *pooling, nn.ReLU()]


class _BasicBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1:
            projection = nn.Conv2d(channels, out, 1, stride, bias=False)
            self.downsample = nn.Sequential(projection, nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        """Half the height and width if the stride is 2."""
        y = self.relu(self.bn1(self.conv1(x)))
        out: Tensor = self.relu(self.bn2(self.conv2(y)) + self.downsample(x))
        return out


class ResNet18(nn.Module):
    """Layers have torchvision's names, so that its weights can be loaded."""

    def __init__(self, channels: int, height: int, width: int, num_classes: int) -> None:
        super().__init__()
        small = min(height, width) < _SMALL
        size, stride = (3, 1) if small else (7, 2)
        self.conv1 = nn.Conv2d(channels, 64, size, stride, padding=size // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU()
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, 2, padding=1)
        self.layer1 = _stage(64, 64, stride=1)
        self.layer2 = _stage(64, 128, stride=2)
        self.layer3 = _stage(128, 256, stride=2)
        self.layer4 = _stage(256, 512, stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Logits, (n, classes)."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc(self.avgpool(x).flatten(1))
        return logits


@trains_at(0.001)
def resnet18(channels: int, height: int, width: int, num_classes: int) -> nn.Module:
    """ResNet-18 (He et al. 2016), which the paper trains on pill pictures.

    For pictures of 224 x 224 pixels; smaller than 64 x 64, the first layers do not shrink.
    """
    return ResNet18(channels, height, width, num_classes)


def _stage(channels: int, out: int, stride: int) -> nn.Module:
    return nn.Sequential(_BasicBlock(channels, out, stride), _BasicBlock(out, out, 1))


MODELS: dict[str, Builder] = {
    "small-cnn": small_cnn,
    "cnn": cnn,
    "mlp": mlp,
    "resnet9": resnet9,
    "resnet18": resnet18,
}
"""Builders, called with channels, height, width and number of outputs."""
