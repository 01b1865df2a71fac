"""The published files themselves, where they are."""

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cadis.data import load
from cadis.data.published import CATALOGUE, find, problems
from cadis.errors import CadisError

RealData = Callable[[str], Path]


@pytest.mark.parametrize(
    ("name", "shape", "sizes", "first_labels"),
    [
        ("mnist", (1, 28, 28), (60_000, 10_000), [5, 0, 4, 1, 9]),
        ("fashion-mnist", (1, 28, 28), (60_000, 10_000), [9, 0, 0, 3, 0]),
        ("cifar10", (3, 32, 32), (50_000, 10_000), [6, 9, 9, 4, 1]),
        ("cifar100", (3, 32, 32), (50_000, 10_000), [19, 29, 0, 11, 1]),
    ],
)
def test_published_files(
    name: str,
    shape: tuple[int, ...],
    sizes: tuple[int, int],
    first_labels: list[int],
    real_data: RealData,
) -> None:
    dataset = load(name, real_data(name), offline=True)
    assert dataset.train.inputs.shape == (sizes[0], *shape)
    assert dataset.test.inputs.shape == (sizes[1], *shape)
    assert dataset.train.inputs.dtype == torch.uint8
    assert dataset.train.labels[:5].tolist() == first_labels
    per_class = torch.bincount(dataset.test.labels, minlength=dataset.num_classes)
    assert len(per_class) == dataset.num_classes
    assert per_class.min() > 0.8 * sizes[1] / dataset.num_classes
    scaled = dataset.train.take(slice(0, 20_000)).scaled
    assert (scaled.mean(dim=(0, 2, 3)).abs() < 0.02).all()
    assert ((scaled.std(dim=(0, 2, 3)) - 1).abs() < 0.02).all()


def test_the_files_as_such(real_data: RealData) -> None:
    found = find(CATALOGUE["mnist"], [real_data("mnist")])
    assert found is not None
    assert list(problems(found)) == []


def test_files_under_each_others_names(real_data: RealData, tmp_path: Path) -> None:
    fashion = find(CATALOGUE["fashion-mnist"], [real_data("fashion-mnist")])
    assert fashion is not None
    shutil.copytree(fashion.folder, tmp_path / "mnist")
    with pytest.raises(CadisError, match="contains train-images-idx3-ubyte of fashion-mnist"):
        load("mnist", tmp_path, offline=True)


def test_training_and_test_files_exchanged(real_data: RealData, tmp_path: Path) -> None:
    found = find(CATALOGUE["mnist"], [real_data("mnist")])
    assert found is not None
    (tmp_path / "mnist").mkdir()
    for name, path in found.paths.items():
        other = name.replace("train", "x").replace("t10k", "train").replace("x-", "t10k-")
        content = path.read_bytes()
        unzipped = gzip.decompress(content) if path.suffix == ".gz" else content
        (tmp_path / "mnist" / other).write_bytes(unzipped)
    with pytest.raises(CadisError, match="contains t10k-images-idx3-ubyte of mnist"):
        load("mnist", tmp_path, offline=True)
