"""The built-in networks and their default learning rates.

Large models diverge with the learning rates that are best for small models. With ResNets on CIFAR
and a learning rate of 0.01, CADIS does not find the clusters (adjusted Rand index of at most 0.2
after a round); with 0.001 it does (1.0).

Max pooling comes before ReLU. Since ReLU is monotone, all values and gradients are the same as in
the usual order, but ReLU has to process only a quarter of the values.
"""

from collections.abc import Callable
from functools import wraps
from typing import TypeAlias

from torch import Tensor, nn

Builder: TypeAlias = Callable[[int, int, int, int], nn.Module]
"""A function that builds a model from channels, height, width and the number of classes."""

_DEFAULT_LR = 0.01
"""Learning rate for all other models."""

_SMALL_IMAGE = 64
"""Height or width in pixels below which ResNet-18 does not downsample before its first block."""


def set_auto_lr(lr: float) -> Callable[[Builder], Builder]:
    """Return a decorator that attaches a default learning rate to a builder and its models."""

    def decorate(build: Builder) -> Builder:
        @wraps(build)
        def wrapper(channels: int, height: int, width: int, num_classes: int) -> nn.Module:
            model = build(channels, height, width, num_classes)
            model.auto_lr = lr  # type: ignore[assignment]  # a plain attribute, not a tensor
            return model

        wrapper.auto_lr = lr  # type: ignore[attr-defined]
        return wrapper

    return decorate


def get_auto_lr(model: nn.Module | Builder | None) -> float:
    """Return the default learning rate of a built-in model or its builder; 0.01 for all others.

    Example:
        >>> get_auto_lr(mlp), get_auto_lr(nn.Linear(3, 2))
        (0.1, 0.01)
    """
    lr: float = getattr(model, "auto_lr", _DEFAULT_LR)
    return lr


@set_auto_lr(0.1)
def mlp(channels: int, height: int, width: int, num_classes: int) -> nn.Module:
    """Build the "2NN" of the FedAvg paper (McMahan et al., AISTATS 2017, arXiv:1602.05629).

    It has two hidden layers of 200 units.

    Args:
        channels: the channels of an image.
        height: its height in pixels.
        width: its width in pixels.
        num_classes: the number of outputs.

    Example:
        >>> import torch
        >>> mlp(1, 8, 8, 10)(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 10])
    """
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(channels * height * width, 200),
        nn.ReLU(),
        nn.Linear(200, 200),
        nn.ReLU(),
        nn.Linear(200, num_classes),
    )


def cnn(channels: int, height: int, width: int, num_classes: int) -> nn.Module:
    """Build the CNN of the FedAvg paper (McMahan et al., AISTATS 2017, arXiv:1602.05629).

    It has two 5 x 5 convolutions with 32 and 64 channels, and 512 hidden units. See :func:`mlp` for
    the arguments.
    """
    return _make_cnn((channels, height, width), 5, (32, 64, 512), num_classes)


@set_auto_lr(0.1)
def small_cnn(channels: int, height: int, width: int, num_classes: int) -> nn.Module:
    """Build a CNN for images as small as the built-in digits, 8 x 8 pixels.

    It has two 3 x 3 convolutions with 16 and 32 channels, and 64 hidden units. See :func:`mlp` for
    the arguments.
    """
    return _make_cnn((channels, height, width), 3, (16, 32, 64), num_classes)


def _make_cnn(
    shape: tuple[int, int, int], kernel: int, widths: tuple[int, int, int], num_classes: int
) -> nn.Module:
    """Build two convolutions with pooling, followed by two linear layers.

    Args:
        shape: channels, height and width of an image.
        kernel: the kernel size of the convolutions.
        widths: the channels of the first and of the second convolution, and the hidden units.
        num_classes: the number of outputs.
    """
    channels, height, width = shape
    first, second, hidden = widths
    features = second * (height // 4) * (width // 4)
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
    """A residual block of two convolutions, without downsampling."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *_make_convolution(channels, channels), *_make_convolution(channels, channels)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of the same shape."""
        out: Tensor = x + self.body(x)
        return out


@set_auto_lr(0.001)
def resnet9(channels: int, height: int, width: int, num_classes: int) -> nn.Module:
    """Build a ResNet-9, which the CADIS paper trains on CIFAR.

    It has eight convolutions with 32, 64, 128 and 256 channels, and 256 features before the
    classifier layer. It is designed for images of 32 x 32 pixels, and accepts images of at least
    8 x 8 pixels. See :func:`mlp` for the arguments.
    """
    del height, width  # the last pooling is adaptive
    return nn.Sequential(
        *_make_convolution(channels, 32),
        *_make_convolution(32, 64, nn.MaxPool2d(2)),
        _Residual(64),
        *_make_convolution(64, 128, nn.MaxPool2d(2)),
        *_make_convolution(128, 256, nn.MaxPool2d(2)),
        _Residual(256),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(256, num_classes),
    )


def _make_convolution(channels: int, out: int, *pooling: nn.Module) -> list[nn.Module]:
    """Return a 3 x 3 convolution, batch norm, optional pooling, and ReLU."""
    convolution = nn.Conv2d(channels, out, kernel_size=3, padding=1, bias=False)
    return [convolution, nn.BatchNorm2d(out), *pooling, nn.ReLU()]


class _BasicBlock(nn.Module):
    """The basic block of ResNet: two 3 x 3 convolutions and a shortcut."""

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
        """Return the features, with half the height and width if the stride is 2."""
        y = self.relu(self.bn1(self.conv1(x)))
        out: Tensor = self.relu(self.bn2(self.conv2(y)) + self.downsample(x))
        return out


class ResNet18(nn.Module):
    """ResNet-18 with the layer names of torchvision, so that you can load torchvision's weights."""

    def __init__(self, channels: int, height: int, width: int, num_classes: int) -> None:
        super().__init__()
        is_small = min(height, width) < _SMALL_IMAGE
        size, stride = (3, 1) if is_small else (7, 2)
        self.conv1 = nn.Conv2d(channels, 64, size, stride, padding=size // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU()
        self.maxpool = nn.Identity() if is_small else nn.MaxPool2d(3, 2, padding=1)
        self.layer1 = _make_stage(64, 64, stride=1)
        self.layer2 = _make_stage(64, 128, stride=2)
        self.layer3 = _make_stage(128, 256, stride=2)
        self.layer4 = _make_stage(256, 512, stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Return logits, (n, classes)."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc(self.avgpool(x).flatten(1))
        return logits


@set_auto_lr(0.001)
def resnet18(channels: int, height: int, width: int, num_classes: int) -> nn.Module:
    """Build a ResNet-18, which the CADIS paper trains on images of pills.

    He et al. propose the network in "Deep residual learning for image recognition" (CVPR 2016,
    arXiv:1512.03385). It is designed for images of 224 x 224 pixels. For images below 64 x 64
    pixels, the first layers do not downsample. See :func:`mlp` for the arguments.
    """
    return ResNet18(channels, height, width, num_classes)


def _make_stage(channels: int, out: int, stride: int) -> nn.Module:
    return nn.Sequential(_BasicBlock(channels, out, stride), _BasicBlock(out, out, 1))


MODELS: dict[str, Builder] = {
    "small-cnn": small_cnn,
    "cnn": cnn,
    "mlp": mlp,
    "resnet9": resnet9,
    "resnet18": resnet18,
}
"""The builders of the built-in networks, by their name in the option ``--model``."""
