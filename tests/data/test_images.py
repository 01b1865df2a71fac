"""Tests of folders of images."""

import json
import os
import re
from pathlib import Path

import pytest
import torch
from PIL import Image

from cadis._io import Callbacks
from cadis.data import Dataset, load
from cadis.errors import CadisError
from support import draw_picture, draw_pills


@pytest.fixture(autouse=True)
def _set_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def draw_classes(folder: Path, **counts: int) -> Path:
    """Draw images of several classes; return the folder."""
    for number, (name, count) in enumerate(counts.items()):
        for n in range(count):
            draw_picture(folder / name / f"{n}.png", colour=number, seed=n)
    return folder


def load_folder(folder: Path, size: int = 16) -> Dataset:
    return load(f"images:{folder}", image_size=size)


def load_with_messages(folder: Path) -> tuple[Dataset, list[str], list[str]]:
    """Load a folder; return the dataset, warnings, and messages about sizes and skipped files."""
    messages: list[str] = []
    dataset = load(f"images:{folder}", image_size=16, callbacks=Callbacks(say=messages.append))
    pattern = re.compile(r"test set has \d|test samples|[Tt]raining|not images:")
    sizes = [message for message in messages if pattern.search(message)]
    return dataset, [message for message in messages if message not in sizes], sizes


def test_folders_of_classes_are_not_divided_among_clients(tmp_path: Path) -> None:
    draw_classes(tmp_path / "in", **{"10": 20, "2": 30, "pear": 10})
    (tmp_path / "in" / "2" / "0.png").rename(tmp_path / "in" / "2" / "0.PNG")
    (tmp_path / "in" / "2" / "notes.txt").write_text("not an image")
    (tmp_path / "in" / ".hidden").mkdir()
    draw_picture(tmp_path / "in" / ".hidden" / "x.png", colour=0, seed=0)
    dataset, warnings, _ = load_with_messages(tmp_path / "in")
    assert dataset.classes == ("2", "10", "pear")
    assert torch.bincount(dataset.train.labels).tolist() == [27, 18, 9]
    assert torch.bincount(dataset.test.labels).tolist() == [3, 2, 1]
    assert dataset.train.inputs.shape == (54, 3, 16, 16)
    assert dataset.train.inputs.dtype == torch.uint8
    assert not dataset.client_indices
    assert warnings == []


def test_images_keep_their_labels(tmp_path: Path) -> None:
    for n in range(12):
        path = tmp_path / "in" / "ab"[n % 2] / f"{n}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16), (10 * n, 255 - 10 * n, 7)).save(path)
    dataset = load_folder(tmp_path / "in")
    numbers = []
    for samples in (dataset.train, dataset.test):
        for pixels, label in zip(samples.inputs, samples.labels, strict=True):
            red, green, blue = pixels[:, 3, 3].tolist()
            assert (pixels == pixels[:, :1, :1]).all()
            assert (green, blue) == (255 - red, 7)
            assert red // 10 % 2 == label
            numbers.append(red // 10)
    assert sorted(numbers) == list(range(12))
    red = dataset.train.inputs[0, 0, 0, 0].item()
    assert dataset.train.scaled_inputs[0, 0, 0, 0].item() == pytest.approx(
        (red / 255 - 0.485) / 0.229
    )


def test_folders_define_the_clients(tmp_path: Path) -> None:
    draw_classes(tmp_path / "in" / "ann", apple=20, pear=10)
    draw_classes(tmp_path / "in" / "bob", plum=10)
    dataset = load_folder(tmp_path / "in")
    assert dataset.classes == ("apple", "pear", "plum")
    assert list(dataset.client_indices) == ["ann", "bob"]
    labels = dataset.train.labels
    assert torch.bincount(labels[dataset.client_indices["ann"]]).tolist() == [18, 9]
    assert torch.bincount(labels[dataset.client_indices["bob"]]).tolist() == [0, 0, 9]
    assert sorted(torch.cat(list(dataset.client_indices.values())).tolist()) == list(range(36))


def test_only_image_of_a_class_is_in_the_training_set(tmp_path: Path) -> None:
    dataset, warnings, _ = load_with_messages(draw_classes(tmp_path / "in", common=10, rare=1))
    assert torch.bincount(dataset.train.labels).tolist() == [9, 1]
    assert warnings == ["The test set has no image of rare; add some."]


def test_folder_with_a_test_set(tmp_path: Path) -> None:
    draw_classes(tmp_path / "in" / "train", apple=5, pear=4)
    draw_classes(tmp_path / "in" / "test", pear=2, plum=1)
    dataset = load_folder(tmp_path / "in")
    assert dataset.classes == ("apple", "pear", "plum")
    assert torch.bincount(dataset.train.labels).tolist() == [5, 4]
    assert dataset.test.labels.tolist() == [1, 1, 2]


@pytest.mark.parametrize("beside", [True, False])
def test_layout_of_the_pill_images(beside: bool, tmp_path: Path) -> None:
    draw_pills(tmp_path / "pill", clients=3, beside=beside)
    dataset = load_folder(tmp_path / "pill")
    assert dataset.classes == ("pill-a", "pill-b", "pill-c")
    assert list(dataset.client_indices) == ["0", "1", "2"]
    for client, indices in dataset.client_indices.items():
        assert set(dataset.train.labels[indices].tolist()) == {int(client), (int(client) + 1) % 3}
    assert len(dataset.train) == 36
    assert torch.bincount(dataset.test.labels).tolist() == [2, 2, 2]
    # The color of a drawn image is its class.
    for pixels, label in zip(dataset.train.inputs, dataset.train.labels, strict=True):
        assert pixels.float().mean(dim=(1, 2)).argmax() == label
    (tmp_path / "pill" / "server_dataset").rename(tmp_path / "elsewhere")
    dataset = load_folder(tmp_path / "pill")  # without a test set
    assert len(dataset.train) + len(dataset.test) == 36
    assert torch.bincount(dataset.test.labels).tolist() == [1, 1, 1]


def test_damaged_images_are_reported_and_skipped(tmp_path: Path) -> None:
    folder = draw_classes(tmp_path / "in", apple=20, pear=20)
    content = (folder / "apple" / "0.png").read_bytes()
    (folder / "apple" / "1.png").write_bytes(content[: len(content) // 2])
    (folder / "pear" / "2.jpg").write_bytes(b"not an image")
    (folder / "pear" / "3.png").write_bytes(b"")
    for _ in range(2):  # also when they come from the cache
        dataset, warnings, _ = load_with_messages(folder)
        assert len(dataset.train) + len(dataset.test) == 40 - 2  # 2.jpg is additional
        names = {Path(line.split(": ")[0]).name for line in warnings}
        assert names == {"1.png", "2.jpg", "3.png"}
        assert all(line.startswith("Skipped ") for line in warnings)
    for n in range(4, 14):
        (folder / "pear" / f"{n}.png").write_bytes(b"")
    _, warnings, _ = load_with_messages(folder)
    assert warnings[10] == "Skipped 3 more images that cannot be read."


def test_images_are_decoded_again_only_after_a_change(tmp_path: Path) -> None:
    folder = draw_classes(tmp_path / "in", apple=10, pear=10)

    def was_decoded() -> bool:
        calls: list[tuple[str, int, int]] = []
        callbacks = Callbacks(lambda *call: calls.append(call))
        number = len(load(f"images:{folder}", image_size=16, callbacks=callbacks).train)
        assert not calls or calls[-1] == ("reading images", number + 2, number + 2)
        return bool(calls)

    assert was_decoded()
    assert not was_decoded()
    os.utime(folder / "pear" / "3.png", (1, 1))
    assert was_decoded()
    (folder / "pear" / "4.png").unlink()
    assert was_decoded()
    assert not was_decoded()
    load_folder(folder, size=8)
    assert not was_decoded()


def test_crash_while_decoding_leaves_no_files(tmp_path: Path) -> None:
    folder = draw_classes(tmp_path / "in", apple=10, pear=10)

    def stop(_what: str, done: int, _total: int) -> None:
        if done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(f"images:{folder}", image_size=16, callbacks=Callbacks(stop))
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []
    assert len(load_folder(folder).train) == 18


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ([], "There are no images in"),
        (["a.png"], "a.png is neither in"),
        (["a/b/c/d.png"], "neither in .*/<class>/<image> nor in"),
        (["a/b.png", "a/b/c.png"], "are in folders of different depth"),
    ],
)
def test_invalid_layouts_are_rejected(files: list[str], sentence: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for file in files:
        draw_picture(tmp_path / "in" / file, colour=0, seed=0)
    with pytest.raises(CadisError, match=sentence):
        load_folder(tmp_path / "in")


def test_missing_folders_and_unreadable_images_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for name in ("none", "loop", "x" * 300, "caf\udce9", "\0"):
        with pytest.raises(CadisError, match="There is no folder") as caught:
            load_folder(tmp_path / name)
        str(caught.value).encode()
    with pytest.raises(CadisError, match="There is no folder ~unknown-user"):
        load_folder(Path("~unknown-user"))
    folder = draw_classes(tmp_path / "in", apple=2)
    for path in folder.rglob("*.png"):
        path.write_bytes(b"")
    with pytest.raises(CadisError, match="too few images that can be read"):
        load_folder(folder)


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        ("label_hash.json", {"x": 0}, "has no label in img_label_dict.json"),
        ("img_label_dict.json", {"x": "y"}, "has no label in img_label_dict.json"),
        ("user_group_img.json", [], "must contain a JSON object"),
        ("user_group_img.json", None, "cannot be read: No such file"),
        ("user_group_img.json", {"0": "x.png"}, "Client 0 in .* must have a list of image names"),
        ("user_group_img.json", {"0": 5}, "Client 0 in .* must have a list of image names"),
        ("user_group_img.json", {"0": [5]}, "Client 0 in .* must have a list of image names"),
        ("user_group_img.json", {"0": ["../x.png"]}, r"\.\./x.png, which is not within pill_crop"),
        ("user_group_img.json", {"0": ["a/../../x"]}, "which is not within pill_cropped"),
        ("user_group_img.json", {"0": ["/etc/x.png"]}, "/etc/x.png, which is not within pill_crop"),
        ("user_group_img.json", {"\ud800": ["x.png"]}, "is not valid JSON"),
        ("img_label_dict.json", {"client-0-0.png": ["y"]}, "has no label in img_label_dict.json"),
        ("img_label_dict.json", {"client-0-0.png": {}}, "has no label in img_label_dict.json"),
        ("label_hash.json", {"pill-a": 1.5}, "class pill-a has the number 1.5; number classes"),
        ("label_hash.json", {"pill-a": 99999999999}, "has the number 99999999999; number classes"),
        ("label_hash.json", {"pill-a": -1}, "has the number -1; number classes from 0"),
        ("label_hash.json", {"pill-a": True}, "has the number true; number classes from 0"),
        ("label_hash.json", {"pill-a": "0"}, 'has the number "0"; number classes from 0'),
        ("label_hash.json", {"pill-a": [0]}, "number classes from 0"),
        (
            "label_hash.json",
            {"pill-a": float("inf")},
            "is not valid JSON: Infinity is not a number",
        ),
    ],
)
def test_invalid_pill_files_are_rejected(
    file: str, content: object, sentence: str, tmp_path: Path
) -> None:
    draw_pills(tmp_path / "pill", clients=3, beside=True)
    path = tmp_path / "pill" / "client_dataset" / file
    path.unlink() if content is None else path.write_text(json.dumps(content))
    with pytest.raises(CadisError, match=sentence):
        load_folder(tmp_path / "pill")


def test_classes_are_sorted_naturally_with_any_digits(tmp_path: Path) -> None:
    names = ["5\u00b2", "\u0665", "05", "5", "10", "\u2460", "x5"]
    folder = draw_classes(tmp_path / "in", **dict.fromkeys(names, 2))
    assert load_folder(folder).classes == ("05", "5", "\u0665", "5\u00b2", "10", "x5", "\u2460")


def test_special_files_are_reported_and_skipped(tmp_path: Path) -> None:
    folder = draw_classes(tmp_path / "in", apple=30, pear=30)
    os.mkfifo(folder / "apple" / "pipe.png")
    (folder / "apple" / "loop.png").symlink_to("loop.png")
    (folder / "apple" / "gone.png").symlink_to("nowhere.png")
    (folder / "pear" / "folder.png").mkdir()
    (folder / "pear" / "circle").symlink_to("..")
    (folder / "loop").symlink_to("loop")
    (folder / "pear" / "0.png").rename(folder / "pear" / "caf\udce9.png")
    (folder / "pear" / "caf\udce8.png").write_bytes(b"")
    dataset, warnings, _ = load_with_messages(folder)
    assert len(dataset.train) + len(dataset.test) == 60
    assert {line.removeprefix(f"Skipped {folder}/") for line in warnings} == {
        "apple/gone.png: No such file or directory.",
        "apple/loop.png: Too many levels of symbolic links.",
        "apple/pipe.png: it is not a regular file.",
        "pear/caf\\udce8.png: it is not an image that can be read.",
        "pear/circle: links to folders are not followed.",
    }


@pytest.mark.parametrize("names", [("caf\udce9",), ("caf\udce9", "apple"), ("ann", "caf\udce9")])
def test_names_of_classes_and_clients_must_be_utf8(names: tuple[str, ...], tmp_path: Path) -> None:
    draw_picture(tmp_path.joinpath("in", *names, "0.png"), colour=0, seed=0)
    with pytest.raises(CadisError, match=r"caf.udce9.* is not valid UTF-8; rename it"):
        load_folder(tmp_path / "in")


def test_images_with_several_frames_are_reported(tmp_path: Path) -> None:
    folder, frames = draw_classes(tmp_path / "in", apple=5, pear=5), [Image.new("RGB", (8, 8))] * 2
    frames[1] = Image.new("RGB", (8, 8), "red")
    for name in ("a", "b"):
        frames[0].save(folder / "pear" / f"{name}.gif", save_all=True, append_images=frames[1:])
    for _ in range(2):  # also when they come from the cache
        _, (message,), _ = load_with_messages(folder)
        assert message.startswith("2 images have several frames; only the first is used: ")
        assert "a.gif" in message
        assert "b.gif" in message


def test_images_removed_while_loading_are_reported(tmp_path: Path) -> None:
    folder = draw_classes(tmp_path / "in", apple=5, pear=400)
    messages: list[str] = []

    def remove(_: str, done: int, total: int) -> None:
        if done == 1:
            for path in (folder / "pear").iterdir():
                path.unlink()
        assert total == 405

    load(f"images:{folder}", image_size=8, callbacks=Callbacks(remove, messages.append))
    assert any(line.endswith("more images that cannot be read.") for line in messages)
    assert "No such file or directory" in messages[0]


def test_skipped_files_and_sizes_are_reported(tmp_path: Path) -> None:
    for client in ("ann", "bob"):
        draw_classes(tmp_path / "in" / client, apple=10, pear=10)
    draw_classes(tmp_path / "in" / "eve", pear=2)
    for client in ("fay", "gil"):
        (tmp_path / "in" / client / "pear").mkdir(parents=True)
    for name in ("x.png", "y.png"):
        (tmp_path / "in" / "gil" / "pear" / name).write_bytes(b"not an image")
    notes = tmp_path / "in" / "ann" / "notes.txt"
    notes.write_text("not an image")
    dataset, warnings, sizes = load_with_messages(tmp_path / "in")
    train = {client: len(indices) for client, indices in dataset.client_indices.items()}
    test = {client: len(indices) for client, indices in dataset.client_test_indices.items()}
    assert sum(train.values()) == len(dataset.train)
    assert sum(test.values()) == len(dataset.test)
    assert f"Left out {tmp_path / 'in' / 'fay'}: there is no image in it." in warnings
    assert "Left out gil: none of its training images can be read." in sizes
    text = ", ".join(f"{name} {train[name]} + {test.get(name, 0)}" for name in train)
    assert f"Skipped files that are not images: 1, such as {notes}." in sizes
    assert f"Training + test samples: {text}." in sizes
    steps = f"accuracy changes in steps of {1 / len(dataset.test):.2g}."
    assert f"The test set has {len(dataset.test)} samples: {steps}" in sizes
    assert any("fewer than 30 test samples" in message for message in sizes)


def test_skipped_files_are_counted_by_suffix(tmp_path: Path) -> None:
    draw_classes(tmp_path / "in", pear=10, apple=10)
    for name in ("a.nii.gz", "b.nii.gz", "c.NII.GZ", "d.docx", "e.docx", "DICOMDIR", "f.txt"):
        (tmp_path / "in" / name).write_text("not an image")
    _, _, sizes = load_with_messages(tmp_path / "in")
    (message,) = [message for message in sizes if "not images: 7" in message]
    assert re.search(r"\(3 \.nii\.gz, 2 \.docx, 1 (DICOMDIR|\.txt), 1 more\)\.$", message)
