"""One owner's data where they are."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from cadis.core import CadisError
from cadis.data import load_own
from support import draw_picture, same

CLASSES = ("a", "b", "c")
INPUTS = torch.randn(30, 1, 4, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(30) % 2


def test_a_tenth_of_each_class_is_set_apart(tmp_path: Path) -> None:
    path = tmp_path / "own.safetensors"
    save_file({"inputs": INPUTS, "labels": LABELS}, path)
    own = load_own(path, CLASSES)
    assert own.classes == CLASSES
    assert own.test.labels.bincount().tolist() == [2, 2]
    assert own.train.labels.bincount().tolist() == [13, 13]
    both = torch.cat([own.train.inputs, own.test.inputs]).flatten(1)
    assert same(both.sort(dim=0).values, INPUTS.flatten(1).sort(dim=0).values)
    assert same(load_own(path, CLASSES).test.inputs, own.test.inputs)


def test_a_test_set_of_ones_own_and_other_kinds_of_files(tmp_path: Path) -> None:
    tensors = {"inputs": INPUTS, "labels": LABELS}
    apart = {"test_inputs": INPUTS[:5].clone(), "test_labels": LABELS[:5].clone()}
    save_file(tensors | apart, tmp_path / "own.safetensors")
    arrays = {name: tensor.numpy() for name, tensor in (tensors | apart).items()}
    np.savez(tmp_path / "own.npz", **arrays)  # type: ignore[arg-type]
    for name in ("own.safetensors", "own.npz"):
        own = load_own(tmp_path / name, CLASSES)
        assert same(own.train.inputs, INPUTS)
        assert same(own.test.labels, LABELS[:5])


def test_bytes_are_scaled(tmp_path: Path) -> None:
    pixels = torch.tensor([0, 51, 255, 102], dtype=torch.uint8).view(4, 1, 1, 1)
    save_file({"inputs": pixels, "labels": torch.zeros(4).long()}, tmp_path / "own.safetensors")
    own = load_own(tmp_path / "own.safetensors", CLASSES)
    every = torch.cat([own.train.scaled, own.test.scaled]).flatten()
    assert sorted(every.tolist()) == pytest.approx([0, 0.2, 0.4, 1])


def test_a_folder_may_have_only_some_of_the_classes(tmp_path: Path) -> None:
    for number in range(10):
        draw_picture(tmp_path / "c" / f"{number}.png", colour=2, seed=number)
    own = load_own(tmp_path, CLASSES, image_size=8)
    assert own.classes == CLASSES
    assert own.train.labels.tolist() == [2] * 9
    assert own.train.inputs.shape[1:] == (3, 8, 8)
    with pytest.raises(CadisError, match="has pictures of c, which is none of the classes: a, b"):
        load_own(tmp_path, ("a", "b"), image_size=8)


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(CadisError, match="neither a folder of pictures nor"):
        load_own(tmp_path / "own.pt", CLASSES)
    with pytest.raises(CadisError, match=r"none\.safetensors cannot be read"):
        load_own(tmp_path / "none.safetensors", CLASSES)
    (tmp_path / "evil.npz").write_bytes(pickle.dumps([1]))
    with pytest.raises(CadisError, match=r"evil\.npz cannot be read"):
        load_own(tmp_path / "evil.npz", CLASSES)
    save_file({"inputs": INPUTS}, tmp_path / "own.safetensors")
    with pytest.raises(CadisError, match="has no tensor 'labels'; it has: inputs"):
        load_own(tmp_path / "own.safetensors", CLASSES)
    save_file({"inputs": INPUTS, "labels": LABELS + 2}, tmp_path / "own.safetensors")
    with pytest.raises(CadisError, match="has label 3, but there are 3 classes"):
        load_own(tmp_path / "own.safetensors", CLASSES)
