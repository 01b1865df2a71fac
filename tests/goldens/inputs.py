"""Small datasets and models that the cases write and read: images, a table, Python code."""

import random
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor, nn

_CODE = '''
import torch
from torch import nn
from torch.utils.data import TensorDataset


def load():
    """Return six clients of three classes."""
    rng = torch.Generator().manual_seed(0)
    return {"clients": {f"site {n}": draw(40, rng) for n in range(6)}, "test": draw(60, rng)}


def draw(number, rng):
    """Return samples whose inputs tell their class."""
    labels = torch.randint(3, (number,), generator=rng)
    return TensorDataset(torch.randn(number, 8, generator=rng) + labels[:, None], labels)


def net(num_classes):
    """Return a model that is not made of the usual layers alone."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 12), nn.LayerNorm(12), nn.Tanh(), nn.Linear(12, num_classes))
'''


def write_images(folder: Path) -> Path:
    """Draw images of four classes for six clients, and return their folder."""
    rng = random.Random(0)
    colours = {"blue": (0, 0, 255), "green": (0, 255, 0), "red": (255, 0, 0), "white": (255,) * 3}
    for client in range(6):
        for name in list(colours)[:2] if client < 4 else list(colours)[2:]:
            path = folder / "pictures" / f"client-{client}" / name
            path.mkdir(parents=True)
            for number in range(8):
                picture = Image.new("RGB", (12, 12), (rng.randrange(100),) * 3)
                corner = rng.randrange(6), rng.randrange(6)
                picture.paste(colours[name], (*corner, corner[0] + 5, corner[1] + 5))
                picture.save(path / f"{number}.png")
    return folder / "pictures"


def write_table(folder: Path) -> Path:
    """Write a table with numbers, categories, missing values and three clients."""
    rng, lines = random.Random(0), ["site,age,sex,marker,outcome"]
    for _ in range(240):
        ill = rng.random() < 0.4
        marker = "" if rng.random() < 0.1 else f"{rng.gauss(7 if ill else 5, 1):.2f}"
        site, sex = rng.choice(["north", "south", "east"]), rng.choice("fm")
        lines.append(f"{site},{rng.gauss(60, 10):.0f},{sex},{marker},{'ill' if ill else 'well'}")
    path = folder / "cohort.csv"
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return path


def write_code(folder: Path) -> Path:
    """Write a file with a function ``load`` that returns data, and ``net`` that returns a model."""
    path = folder / "golden_code.py"
    path.write_text(_CODE, encoding="utf-8")
    return path


def make_clients(number: int = 10) -> list[tuple[Tensor, Tensor]]:
    """Return inputs and labels of clients; seven have classes 0 and 1, the others 2 and 3."""
    rng = torch.Generator().manual_seed(1)
    clients = []
    for client in range(number):
        first = 0 if client < 0.7 * number else 2
        labels = torch.randint(first, first + 2, (30 + client,), generator=rng)
        clients.append((_inputs(labels, rng), labels))
    return clients


def make_test_set() -> tuple[Tensor, Tensor]:
    """Return inputs and labels of all four classes."""
    rng = torch.Generator().manual_seed(2)
    labels = torch.randint(4, (100,), generator=rng)
    return _inputs(labels, rng), labels


class TwoLayers(nn.Module):
    """Module with its own forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.classifier = nn.Linear(6, 16), nn.Linear(16, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return logits, (n, 4)."""
        logits: Tensor = self.classifier(torch.relu(self.hidden(inputs)))
        return logits


def build_model() -> nn.Module:
    """Return the same initial model every time."""
    torch.manual_seed(4)
    return TwoLayers()


def _inputs(labels: Tensor, rng: torch.Generator) -> Tensor:
    """Return six features per sample; the feature of its class is larger."""
    return torch.randn(len(labels), 6, generator=rng) + 3 * nn.functional.one_hot(labels, 6)
