"""Finding datasets on disk, and checking them: a toy, and the published files where they are."""

import gzip
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cadis.data import load
from cadis.data.published import CATALOGUE, Form, find, missing_files, problems, roots
from cadis.data.published.formats import cifar_python
from cadis.data.published.published_files import Found, load_published
from cadis.errors import CadisError
from toy import CONTENTS, NAMES, TOY, idx, put


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("folder", ["toy", "TOY/raw", "."])
def test_found_wherever_it_usually_lies(folder: str, zipped: bool, tmp_path: Path) -> None:
    put(tmp_path / "root" / folder, zipped)
    found = find(TOY, [tmp_path / "nothing", tmp_path / "root"])
    assert found is not None
    assert found.folder == tmp_path / "root" / folder
    assert list(problems(found)) == []
    dataset = load_published(TOY, found)
    assert dataset.train.inputs.shape == (6, 1, 5, 5)
    assert dataset.train.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert dataset.test.labels.tolist() == [2, 1, 0]
    pixel = CONTENTS[NAMES[0]][16]
    assert dataset.train.scaled[0, 0, 0, 0].item() == pytest.approx((pixel / 255 - 0.5) / 0.5)


def test_searched_in_this_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CADIS_DATA", str(tmp_path / "env"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert roots(tmp_path / "dir")[:2] == [tmp_path / "dir", tmp_path / "env"]
    for place in reversed(roots(tmp_path / "dir")):
        put(place / "toy")
        found = find(TOY, roots(tmp_path / "dir"))
        assert found is not None
        assert found.folder == place / "toy"
    monkeypatch.delenv("CADIS_DATA")
    assert len(roots()) == 1


def test_half_a_dataset_is_none(tmp_path: Path) -> None:
    put(tmp_path / "toy")
    (tmp_path / "toy" / NAMES[3]).unlink()
    assert find(TOY, [tmp_path]) is None
    assert missing_files(TOY, [tmp_path]) == f"{tmp_path / 'toy'} lacks {NAMES[3]}"
    assert missing_files(TOY, [tmp_path / "nothing"]) == ""


def test_files_that_only_share_their_names_are_not_taken(tmp_path: Path) -> None:
    put(tmp_path / "mine")
    assert find(CATALOGUE["mnist"], [tmp_path / "mine"]) is None
    assert find(TOY, [tmp_path / "mine"]) is not None


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({NAMES[0]: CONTENTS[NAMES[0]][:-1]}, "where its header promises"),
        ({NAMES[0]: b"<html>not found</html>"}, "not an IDX file"),
        ({NAMES[1]: CONTENTS[NAMES[3]]}, "not pictures and as many labels"),
        ({NAMES[0]: CONTENTS[NAMES[1]]}, "not pictures and as many labels"),
        ({NAMES[1]: idx(np.zeros(6, np.uint8))}, "its checksum differs"),
    ],
)
def test_wrong_files_are_named(change: dict[str, bytes], sentence: str, tmp_path: Path) -> None:
    put(tmp_path / "toy")
    for name, content in change.items():
        (tmp_path / "toy" / name).write_bytes(content)
    found = find(TOY, [tmp_path])
    assert found is not None
    with pytest.raises(CadisError, match=sentence) as caught:
        load_published(TOY, found)
    assert str(tmp_path / "toy" / next(iter(change))) in str(caught.value)
    assert "published file" in str(caught.value)
    assert str(caught.value).endswith("or let 'cadis data fetch toy' do it.")
    assert len(list(problems(found))) == len(change)


def test_a_pickle_that_was_not_published_is_not_opened(tmp_path: Path) -> None:
    form = Form(("py",), {"train": "0" * 32}, {"test": "0" * 32}, cifar_python("labels"), True)
    content = b"cos\nsystem\n."  # the unpickler would refuse it, which is not needed
    for name in form.files:
        (tmp_path / name).write_bytes(content)
    found = Found(form, {name: tmp_path / name for name in form.files})
    with pytest.raises(CadisError, match="its checksum differs"):
        load_published(replace(TOY, forms=(form,)), found)


def test_names_that_there_are_not() -> None:
    with pytest.raises(CadisError, match="no dataset 'imagenet'; there are: digits, mnist"):
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
