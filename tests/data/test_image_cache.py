"""Tests of the cache of decoded images: damage, limits and clearing never give wrong pixels."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cadis._io import NO_CALLBACKS, Callbacks
from cadis.data.image_cache import DecodedImages, clear_image_cache, decode, list_cache_entries
from cadis.errors import CadisError, RunError
from support import draw_picture

SIZE = 12


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def images(tmp_path: Path) -> list[Path]:
    """Write ten images: the fourth is damaged, and the sixth has two frames."""
    paths = [tmp_path / "in" / f"{number}.png" for number in range(10)]
    for number, path in enumerate(paths):
        draw_picture(path, colour=number, seed=number)
    paths[3].write_bytes(b"not an image")
    frame = Image.new("RGB", (8, 8), "red")
    frame.save(paths[5], save_all=True, append_images=[Image.new("RGB", (8, 8), "lime")])
    return paths


class DecodeCounter(list[int]):
    """Counter of the images that are decoded."""

    def callbacks(self) -> Callbacks:
        return Callbacks(progress=lambda _, done, __: self.append(done))


def are_equal(first: DecodedImages, second: DecodedImages) -> bool:
    have_same_index = (first.errors, first.animated) == (second.errors, second.animated)
    return have_same_index and np.array_equal(first.pixels, second.pixels)


def test_cache_returns_the_decoded_images(images: list[Path], cache: Path) -> None:
    counter = DecodeCounter()
    fresh = decode(images, SIZE, cache, counter.callbacks(), "in")
    assert fresh.pixels.shape == (9, SIZE, SIZE, 3)
    assert list(fresh.errors) == [3]
    assert fresh.animated == [5]
    assert fresh.pixels[4, 0, 0].tolist() == [255, 0, 0]
    assert counter == list(range(1, 11))
    assert are_equal(decode(images, SIZE, cache, counter.callbacks()), fresh)
    assert len(counter) == 10
    (entry,) = list_cache_entries(cache)
    assert (entry.num_images, entry.side, entry.source) == (9, SIZE, "in")
    assert entry.size == 9 * SIZE * SIZE * 3 + (entry.path / "index.json").stat().st_size
    assert abs(entry.used - time.time()) < 60


def truncate(content: bytes) -> bytes:
    return content[:-2]


def flip_bit(index: int) -> Callable[[bytes], bytes]:
    def flip(content: bytes) -> bytes:
        changed = bytearray(content)
        changed[index] ^= 1
        return bytes(changed)

    return flip


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("pixels.raw", truncate),
        ("pixels.raw", lambda content: content + b"x"),
        ("pixels.raw", lambda _: b""),
        ("pixels.raw", flip_bit(0)),
        ("pixels.raw", flip_bit(-1)),
        ("index.json", truncate),
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
def test_damaged_entry_is_replaced_and_other_files_are_kept(
    name: str, damage: Callable[[bytes], bytes], images: list[Path], cache: Path
) -> None:
    before = decode(images, SIZE, cache, NO_CALLBACKS)
    (damaged,) = cache.rglob(name)
    content = damaged.read_bytes()
    damaged.unlink()  # the images decoded before are still mapped
    damaged.write_bytes(damage(content))
    assert damaged.read_bytes() != content
    (damaged.parent / "notes.txt").write_text("mine")
    counter = DecodeCounter()
    assert are_equal(decode(images, SIZE, cache, counter.callbacks()), before)
    assert len(counter) == 10
    assert damaged.read_bytes() == content
    assert (damaged.parent / "notes.txt").read_text() == "mine"


def test_drafts_of_killed_processes_are_removed(images: list[Path], cache: Path) -> None:
    long_ago = time.time() - 2 * 24 * 60 * 60
    for name, modified in (("dead", long_ago), ("alive", time.time()), ("other", long_ago)):
        draft = cache / f".draft-{name}"
        draft.mkdir(parents=True)
        for file in ("pixels.raw", *(["mine.txt"] if name == "other" else [])):
            (draft / file).write_bytes(bytes(10))
            os.utime(draft / file, (modified, modified))
        os.utime(draft, (long_ago, long_ago))  # writing a file does not change the folder
    decode(images, SIZE, cache, NO_CALLBACKS)
    assert {path.name for path in cache.glob(".draft-*")} == {".draft-alive", ".draft-other"}
    assert (cache / ".draft-alive" / "pixels.raw").is_file()
    assert (cache / ".draft-other" / "mine.txt").is_file()


def test_full_disk_is_an_error_and_leaves_no_files(images: list[Path], small_disk: Path) -> None:
    with pytest.raises(RunError, match="cannot be written: the disk is full; free some space"):
        decode(images, 64, small_disk / "cache", NO_CALLBACKS)
    assert list((small_disk / "cache").iterdir()) == []
    assert len(decode(images, SIZE, small_disk / "cache", NO_CALLBACKS).pixels) == 9


def test_folder_without_readable_images(images: list[Path], cache: Path) -> None:
    for _ in range(2):
        decoded = decode([images[3]], SIZE, cache, NO_CALLBACKS)
        assert decoded.pixels.shape == (0, SIZE, SIZE, 3)
    assert decode([], SIZE, cache, NO_CALLBACKS).errors == {}


def test_image_that_becomes_readable_is_decoded(images: list[Path], cache: Path) -> None:
    images[0].chmod(0)
    if os.access(images[0], os.R_OK):
        pytest.skip("root may read everything")
    assert decode(images, SIZE, cache, NO_CALLBACKS).errors[0] == "Permission denied"
    images[0].chmod(0o644)
    assert 0 not in decode(images, SIZE, cache, NO_CALLBACKS).errors


def test_only_the_user_may_read_the_cache(images: list[Path], cache: Path) -> None:
    before = os.umask(0)
    try:
        decode(images, SIZE, cache, NO_CALLBACKS)
    finally:
        os.umask(before)
    for path in [cache, *cache.rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600)


@pytest.mark.parametrize("limit", ["", "0"])
def test_without_a_cache_no_files_are_written(
    limit: str, images: list[Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = decode(images, SIZE, cache, NO_CALLBACKS)
    before = sorted(cache.parent.rglob("*"))
    monkeypatch.setenv("CADIS_CACHE_GB", limit)
    counter, other = DecodeCounter(), cache.with_name("other") if limit else None
    assert are_equal(decode(images, SIZE, other, counter.callbacks()), expected)
    assert counter == list(range(1, 11))
    assert sorted(cache.parent.rglob("*")) == before


@pytest.mark.parametrize("limit", ["much", "-1", "inf", "nan"])
def test_invalid_limit_is_rejected(
    limit: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CADIS_CACHE_GB", limit)
    with pytest.raises(CadisError, match=f"CADIS_CACHE_GB is '{limit}'"):
        decode([], SIZE, cache, NO_CALLBACKS)


def test_least_recently_used_entries_are_removed_first(
    images: list[Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, size in enumerate((10, 11, 12)):
        decode(images, size, cache, NO_CALLBACKS)
        (path,) = [entry.path for entry in list_cache_entries(cache) if entry.side == size]
        for file in (path, *path.iterdir()):
            os.utime(file, (number, number))
    decode(images, 10, cache, NO_CALLBACKS)  # use this entry again
    (cache / "notes.txt").write_text("mine")
    limit = sum(9 * side * side * 3 + 1000 for side in (10, 13))
    monkeypatch.setenv("CADIS_CACHE_GB", str(limit / 1e9))
    decode(images, 13, cache, NO_CALLBACKS)
    assert {entry.side for entry in list_cache_entries(cache)} == {10, 13}
    assert (cache / "notes.txt").exists()
    messages: list[str] = []
    large = decode(images, 40, cache, Callbacks(say=messages.append))
    assert len(large.pixels) == 9
    assert large.pixels[4, 0, 0].tolist() == [255, 0, 0]  # although its file was removed
    assert 40 not in {entry.side for entry in list_cache_entries(cache)}
    assert "are not kept" in messages[0]


def test_clearing_keeps_other_files_and_fresh_drafts(images: list[Path], cache: Path) -> None:
    decode(images, SIZE, cache, NO_CALLBACKS)
    other, draft = cache / "mine", cache / ".draft-new"
    for folder in (other, draft):
        folder.mkdir()
        (folder / "pixels.raw").write_bytes(bytes(10))
    assert len(list_cache_entries(cache)) == 2
    removed, remaining = clear_image_cache(cache)
    assert len(removed) == 1
    assert [entry.path for entry in remaining] == [draft]
    assert {path.name for path in cache.iterdir()} == {"mine", ".draft-new"}
    assert (other / "pixels.raw").exists()
