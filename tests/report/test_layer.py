"""Table and figure of updates of the classifier layer."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from rich.console import Console

from cadis.analysis import HeadProbe, ProbedModel
from cadis.report.layer import draw_layer, make_layer_table
from legibility import collect_figures, find_flaws


def make_probe(
    names: tuple[str, ...], features: int, chosen: tuple[int, int, int, int], bias: bool = True
) -> HeadProbe:
    """Return a probe in which only the rows of the classes trained on grow, as the paper says."""
    a, b, c, d = chosen
    owned = {"one class": (a,), "two classes": (a, c), "client 1": (a, b), "client 2": (a, b)}
    panels = []
    for seed, (title, trained) in enumerate({**owned, "client 3": (c, d)}.items()):
        rng = torch.Generator().manual_seed(seed)
        signs = torch.tensor([1.0 if n in trained else -0.1 for n in range(len(names))])
        update = torch.rand(len(names), features + bias, generator=rng) * signs[:, None]
        panels.append(ProbedModel(title, trained, 100, update))
    how = "epochs 5, batch size 8, learning rate 0.1"
    samples, clients = tuple(panels[:2]), tuple(panels[2:])
    return HeadProbe("digits", "small-cnn", how, names, bias, samples, clients)


DIGITS = make_probe(tuple("0123456789"), 64, (0, 1, 2, 3))
HUNDRED = tuple(f"aquarium_fish_{n}" for n in range(100))
SHAPES = {
    "digits": DIGITS,
    "many features": make_probe(tuple("0123456789"), 512, (9, 0, 4, 5)),
    "no bias": make_probe(tuple("abcd"), 9, (3, 1, 0, 2), bias=False),
    "many classes": make_probe(HUNDRED, 256, (0, 1, 2, 3)),
    "many classes, far and near": make_probe(HUNDRED, 512, (50, 53, 98, 99)),
    "odd names": make_probe(
        ("$x^2$", "[red]y", "Paracetamol 500 mg tablets", "名"), 3, (0, 1, 2, 3)
    ),
}


@cache
def draw_once(name: str) -> Figure:
    """Return the figure of draw_layer; drawn once, because it is slow."""
    with TemporaryDirectory() as folder, collect_figures() as found:
        path = draw_layer(SHAPES[name], Path(folder, "layer.png"))
        assert path.read_bytes().startswith(b"\x89PNG")
    return found["layer"]


@pytest.mark.parametrize("name", SHAPES)
def test_the_figure_is_legible(name: str) -> None:
    assert find_flaws(draw_once(name)) == []


@pytest.mark.parametrize("name", SHAPES)
def test_bold_names_are_the_classes_trained_on(name: str) -> None:
    for place, panel in enumerate(SHAPES[name].models):
        labels = draw_once(name).axes[2 * place].get_yticklabels()
        bold = [label.get_text() for label in labels if label.get_fontweight() == "bold"]
        count = sum(len(text.split("\n")) for text in bold)
        assert count == len(panel.trained)
        assert (len(labels) == len(bold)) == (place > 0)


def test_the_heat_map_shows_the_update() -> None:
    drawing = draw_once("digits")
    for place, panel in enumerate(DIGITS.models):
        (image,) = drawing.axes[2 * place].images
        pixels = torch.as_tensor(image.get_array())
        left, right, bottom, top = image.get_extent()
        assert (top, bottom, left) == (-0.5, 9.5, -0.5)
        high, wide = len(pixels) / 10, pixels.shape[1] / (right - left)
        for row, column in [(0, 0), (2, 63), (9, 64), (3, 30)]:
            pixel = pixels[int((row + 0.5) * high), int((column + 0.5) * wide)]
            assert pixel == panel.update[row, column]
        low, up = image.get_clim()
        assert low == -up
        (bars,) = drawing.axes[2 * place + 1].containers
        assert isinstance(bars, BarContainer)
        assert bars.datavalues == pytest.approx(panel.row_sums.numpy())


def test_titles_have_the_cosines() -> None:
    drawing = draw_once("digits")
    similar, different = DIGITS.cosines[0, 1:].tolist()
    title = drawing.axes[4].get_title(loc="left").replace("\N{MINUS SIGN}", "-")
    lines = f"cosine to client 2: {similar:.2f}\ncosine to client 3: {different:.2f}"
    assert title == f"(c) client 1\n{lines}"
    assert similar > 0.5
    assert different < 0


def render_table(probe: HeadProbe) -> str:
    console = Console(width=120, record=True)
    console.print(make_layer_table(probe))
    return console.export_text(styles=False)


def test_the_table_has_classes_and_cosines() -> None:
    text = render_table(DIGITS)
    cosine = f"{DIGITS.cosines[0, 1]:.2f}"
    rows = [line.split("│")[1:-1] for line in text.splitlines() if line.startswith("│")]
    cells = [[cell.strip() for cell in row] for row in rows]
    assert cells[0] == ["one class", "100", "0", "0", "", "", ""]
    assert cells[2][:6] == ["client 1", "100", "0, 1", "0, 1", "1.00", cosine]
    assert cells[4][2:4] == ["2, 3", "2, 3"]
    assert "digits, small-cnn: epochs 5" in text
    assert "[red]y" in render_table(SHAPES["odd names"])


def test_the_table_says_if_no_class_is_revealed() -> None:
    nothing = ProbedModel("one class", (0,), 100, -torch.ones(10, 65))
    assert "none" in render_table(replace(DIGITS, examples=(nothing, DIGITS.examples[1])))
    assert "none" not in render_table(DIGITS)


def test_an_update_of_zeros_is_drawn(tmp_path: Path) -> None:
    still = tuple(ProbedModel(f"client {n}", (0,), 4, torch.zeros(3, 5)) for n in range(1, 4))
    probe = HeadProbe("digits", "mlp", "epochs 5", tuple("abc"), True, still[:2], still)
    path = draw_layer(probe, tmp_path / "layer.pdf")
    assert path.read_bytes().startswith(b"%PDF")
