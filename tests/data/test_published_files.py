"""Tests of finding and checking published datasets on disk: a toy dataset and the real files."""

import gzip
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cadis.data import load
from cadis.data.published import (
    CATALOGUE,
    FileFormat,
    describe_missing_files,
    find_dataset,
    find_problems,
    list_data_folders,
)
from cadis.data.published.formats import make_cifar_python_reader
from cadis.data.published.published_files import DatasetFiles, load_published
from cadis.errors import CadisError
from toy import CONTENTS, NAMES, TOY, to_idx, write_dataset


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("folder", ["toy", "TOY/raw", "."])
def test_dataset_is_found_in_its_usual_folders(folder: str, zipped: bool, tmp_path: Path) -> None:
    write_dataset(tmp_path / "root" / folder, zipped)
    files = find_dataset(TOY, [tmp_path / "nothing", tmp_path / "root"])
    assert files is not None
    assert files.folder == tmp_path / "root" / folder
    assert list(find_problems(files)) == []
    dataset = load_published(TOY, files)
    assert dataset.train.inputs.shape == (6, 1, 5, 5)
    assert dataset.train.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert dataset.test.labels.tolist() == [2, 1, 0]
    pixel = CONTENTS[NAMES[0]][16]
    assert dataset.train.scaled_inputs[0, 0, 0, 0].item() == pytest.approx(
        (pixel / 255 - 0.5) / 0.5
    )


def test_folders_are_searched_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CADIS_DATA", str(tmp_path / "env"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert list_data_folders(tmp_path / "dir")[:2] == [tmp_path / "dir", tmp_path / "env"]
    for folder in reversed(list_data_folders(tmp_path / "dir")):
        write_dataset(folder / "toy")
        files = find_dataset(TOY, list_data_folders(tmp_path / "dir"))
        assert files is not None
        assert files.folder == folder / "toy"
    monkeypatch.delenv("CADIS_DATA")
    assert len(list_data_folders()) == 1


def test_incomplete_dataset_is_not_found(tmp_path: Path) -> None:
    write_dataset(tmp_path / "toy")
    (tmp_path / "toy" / NAMES[3]).unlink()
    assert find_dataset(TOY, [tmp_path]) is None
    assert describe_missing_files(TOY, [tmp_path]) == f"{tmp_path / 'toy'} lacks {NAMES[3]}"
    assert describe_missing_files(TOY, [tmp_path / "nothing"]) == ""


def test_files_of_another_dataset_are_not_used(tmp_path: Path) -> None:
    write_dataset(tmp_path / "mine")
    assert find_dataset(CATALOGUE["mnist"], [tmp_path / "mine"]) is None
    assert find_dataset(TOY, [tmp_path / "mine"]) is not None


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({NAMES[0]: CONTENTS[NAMES[0]][:-1]}, "but its header says"),
        ({NAMES[0]: b"<html>not files</html>"}, "not an IDX file"),
        ({NAMES[1]: CONTENTS[NAMES[3]]}, "not images and as many labels"),
        ({NAMES[0]: CONTENTS[NAMES[1]]}, "not images and as many labels"),
        ({NAMES[1]: to_idx(np.zeros(6, np.uint8))}, "its checksum differs"),
    ],
)
def test_wrong_files_are_rejected(change: dict[str, bytes], sentence: str, tmp_path: Path) -> None:
    write_dataset(tmp_path / "toy")
    for name, content in change.items():
        (tmp_path / "toy" / name).write_bytes(content)
    files = find_dataset(TOY, [tmp_path])
    assert files is not None
    with pytest.raises(CadisError, match=sentence) as caught:
        load_published(TOY, files)
    assert str(tmp_path / "toy" / next(iter(change))) in str(caught.value)
    assert "published file" in str(caught.value)
    assert str(caught.value).endswith("or let 'cadis data fetch toy' do it.")
    assert len(list(find_problems(files))) == len(change)


def test_pickle_with_a_wrong_checksum_is_not_opened(tmp_path: Path) -> None:
    file_format = FileFormat(
        ("py",), {"train": "0" * 32}, {"test": "0" * 32}, make_cifar_python_reader("labels"), True
    )
    content = b"cos\nsystem\n."  # the unpickler would reject it with another error
    for name in file_format.checksums:
        (tmp_path / name).write_bytes(content)
    files = DatasetFiles(file_format, {name: tmp_path / name for name in file_format.checksums})
    with pytest.raises(CadisError, match="its checksum differs"):
        load_published(replace(TOY, formats=(file_format,)), files)


def test_unknown_dataset_is_rejected() -> None:
    with pytest.raises(CadisError, match="no dataset 'imagenet'; choose one of: digits, mnist"):
        load("imagenet")


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
def test_real_datasets_have_the_published_content(
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
    scaled = dataset.train.take(slice(0, 20_000)).scaled_inputs
    assert (scaled.mean(dim=(0, 2, 3)).abs() < 0.02).all()
    assert ((scaled.std(dim=(0, 2, 3)) - 1).abs() < 0.02).all()


def test_real_files_have_no_problems(real_data: RealData) -> None:
    files = find_dataset(CATALOGUE["mnist"], [real_data("mnist")])
    assert files is not None
    assert list(find_problems(files)) == []


def test_files_of_another_real_dataset_are_rejected(real_data: RealData, tmp_path: Path) -> None:
    fashion = find_dataset(CATALOGUE["fashion-mnist"], [real_data("fashion-mnist")])
    assert fashion is not None
    shutil.copytree(fashion.folder, tmp_path / "mnist")
    with pytest.raises(CadisError, match="contains train-images-idx3-ubyte of fashion-mnist"):
        load("mnist", tmp_path, offline=True)


def test_exchanged_training_and_test_files_are_rejected(
    real_data: RealData, tmp_path: Path
) -> None:
    files = find_dataset(CATALOGUE["mnist"], [real_data("mnist")])
    assert files is not None
    (tmp_path / "mnist").mkdir()
    for name, path in files.paths.items():
        other = name.replace("train", "x").replace("t10k", "train").replace("x-", "t10k-")
        content = path.read_bytes()
        unzipped = gzip.decompress(content) if path.suffix == ".gz" else content
        (tmp_path / "mnist" / other).write_bytes(unzipped)
    with pytest.raises(CadisError, match="contains t10k-images-idx3-ubyte of mnist"):
        load("mnist", tmp_path, offline=True)
