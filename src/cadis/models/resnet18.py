"""ResNet-18 (He et al. 2016), which the paper trains on pill pictures."""

from torch import Tensor, nn

from cadis.models.rates import trains_at

_SMALL = 64
"""Pictures of fewer pixels a side are not shrunk before the first block."""


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
        self.conv1 = (
            nn.Conv2d(channels, 64, 3, 1, padding=1, bias=False)
            if small
            else nn.Conv2d(channels, 64, 7, 2, padding=3, bias=False)
        )
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
    """For pictures of 224 x 224 pixels; smaller than 64 x 64, the first layers do not shrink."""
    return ResNet18(channels, height, width, num_classes)


def _stage(channels: int, out: int, stride: int) -> nn.Module:
    return nn.Sequential(_BasicBlock(channels, out, stride), _BasicBlock(out, out, 1))
