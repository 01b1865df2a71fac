"""The cache of decoded pictures: whatever happens to it, nothing wrong comes out of it."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cadis.core import RunError
from cadis.data import NO_CALLBACKS, Callbacks
from cadis.data.picture_cache import Decoded, decode
from support import draw_picture

SIZE = 12


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    """Ten pictures of which the fourth is broken and the sixth has two frames."""
    paths = [tmp_path / "in" / f"{number}.png" for number in range(10)]
    for number, path in enumerate(paths):
        draw_picture(path, colour=number, seed=number)
    paths[3].write_bytes(b"no picture")
    frame = Image.new("RGB", (8, 8), "red")
    frame.save(paths[5], save_all=True, append_images=[Image.new("RGB", (8, 8), "lime")])
    return paths


class Count(list[int]):
    """Counts pictures that are decoded."""

    def callbacks(self) -> Callbacks:
        return Callbacks(progress=lambda _, done, __: self.append(done))


def same(first: Decoded, second: Decoded) -> bool:
    told = (first.broken, first.animated) == (second.broken, second.animated)
    return told and np.array_equal(first.pixels, second.pixels)


def test_the_cache_gives_what_was_decoded(pictures: list[Path], tmp_path: Path) -> None:
    count = Count()
    fresh = decode(pictures, SIZE, tmp_path / "cache", count.callbacks())
    assert fresh.pixels.shape == (9, SIZE, SIZE, 3)
    assert list(fresh.broken) == [3]
    assert fresh.animated == [5]
    assert fresh.pixels[4, 0, 0].tolist() == [255, 0, 0]
    assert count == list(range(1, 11))
    assert same(decode(pictures, SIZE, tmp_path / "cache", count.callbacks()), fresh)
    assert len(count) == 10


def cut(content: bytes) -> bytes:
    return content[:-2]


def flipped(at: int) -> Callable[[bytes], bytes]:
    def flip(content: bytes) -> bytes:
        changed = bytearray(content)
        changed[at] ^= 1
        return bytes(changed)

    return flip


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("pixels.raw", cut),
        ("pixels.raw", lambda content: content + b"x"),
        ("pixels.raw", lambda _: b""),
        ("pixels.raw", flipped(0)),
        ("pixels.raw", flipped(-1)),
        ("index.json", cut),
        ("index.json", lambda _: b""),
        ("index.json", lambda _: b"[]\n0\n"),
        ("index.json", lambda _: b'{"broken": []}\n0\n'),
        ("index.json", lambda _: b'{"broken": {"x": 1}}\n0\n'),
        ("index.json", lambda _: b"[" * 100_000),
        ("index.json", lambda _: b"\xff\xfe"),
        ("index.json", lambda content: content.replace(b'"3"', b'"4"')),
        ("index.json", lambda content: content.replace(b"[5]", b"[6]")),
    ],
)
def test_a_damaged_cache_is_made_anew(
    name: str, damage: Callable[[bytes], bytes], pictures: list[Path], tmp_path: Path
) -> None:
    before = decode(pictures, SIZE, tmp_path / "cache", NO_CALLBACKS)
    (damaged,) = (tmp_path / "cache").rglob(name)
    content = damaged.read_bytes()
    damaged.unlink()  # what was decoded before is still mapped
    damaged.write_bytes(damage(content))
    assert damaged.read_bytes() != content
    count = Count()
    assert same(decode(pictures, SIZE, tmp_path / "cache", count.callbacks()), before)
    assert len(count) == 10
    assert damaged.read_bytes() == content


def test_nothing_but_pictures_of_the_cache_is_ever_removed(
    pictures: list[Path], tmp_path: Path
) -> None:
    decode(pictures, SIZE, tmp_path / "cache", NO_CALLBACKS)
    (index,) = (tmp_path / "cache").rglob("index.json")
    index.write_text("")
    (index.parent / "notes.txt").write_text("mine")
    decode(pictures, SIZE, tmp_path / "cache", NO_CALLBACKS)
    assert (index.parent / "notes.txt").read_text() == "mine"


def test_drafts_of_the_dead_are_swept(pictures: list[Path], tmp_path: Path) -> None:
    cache, long_ago = tmp_path / "cache", time.time() - 2 * 24 * 60 * 60
    for name, when in (("dead", long_ago), ("alive", time.time()), ("other", long_ago)):
        draft = cache / f".draft-{name}"
        draft.mkdir(parents=True)
        for file in ("pixels.raw", *(["mine.txt"] if name == "other" else [])):
            (draft / file).write_bytes(bytes(10))
            os.utime(draft / file, (when, when))
        os.utime(draft, (long_ago, long_ago))  # nobody touches the folder while a file is written
    decode(pictures, SIZE, cache, NO_CALLBACKS)
    assert {path.name for path in cache.glob(".draft-*")} == {".draft-alive", ".draft-other"}
    assert (cache / ".draft-alive" / "pixels.raw").is_file()
    assert (cache / ".draft-other" / "mine.txt").is_file()


def test_a_full_disk_is_a_sentence_and_nothing_is_left(
    pictures: list[Path], small_disk: Path
) -> None:
    with pytest.raises(RunError, match="cannot be written: the disk is full; make room"):
        decode(pictures, 64, small_disk / "cache", NO_CALLBACKS)
    assert list((small_disk / "cache").iterdir()) == []
    assert len(decode(pictures, SIZE, small_disk / "cache", NO_CALLBACKS).pixels) == 9


def test_no_picture_at_all_can_be_read(pictures: list[Path], tmp_path: Path) -> None:
    for _ in range(2):
        decoded = decode([pictures[3]], SIZE, tmp_path / "cache", NO_CALLBACKS)
        assert decoded.pixels.shape == (0, SIZE, SIZE, 3)
    assert decode([], SIZE, tmp_path / "cache", NO_CALLBACKS).broken == {}


def test_a_picture_that_may_be_read_at_last(pictures: list[Path], tmp_path: Path) -> None:
    pictures[0].chmod(0)
    if os.access(pictures[0], os.R_OK):
        pytest.skip("root may read everything")
    assert decode(pictures, SIZE, tmp_path / "cache", NO_CALLBACKS).broken[0] == "Permission denied"
    pictures[0].chmod(0o644)
    assert 0 not in decode(pictures, SIZE, tmp_path / "cache", NO_CALLBACKS).broken
