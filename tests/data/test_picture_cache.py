"""The cache of decoded pictures: whatever happens to it, nothing wrong comes out of it."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cadis._io import NO_CALLBACKS, Callbacks
from cadis.data.picture_cache import Decoded, cache_entries, clear, decode
from cadis.errors import CadisError, RunError
from support import draw_picture

SIZE = 12


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


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


def test_the_cache_gives_what_was_decoded(pictures: list[Path], cache: Path) -> None:
    count = Count()
    fresh = decode(pictures, SIZE, cache, count.callbacks(), "in")
    assert fresh.pixels.shape == (9, SIZE, SIZE, 3)
    assert list(fresh.broken) == [3]
    assert fresh.animated == [5]
    assert fresh.pixels[4, 0, 0].tolist() == [255, 0, 0]
    assert count == list(range(1, 11))
    assert same(decode(pictures, SIZE, cache, count.callbacks()), fresh)
    assert len(count) == 10
    (entry,) = cache_entries(cache)
    assert (entry.pictures, entry.side, entry.source) == (9, SIZE, "in")
    assert entry.size == 9 * SIZE * SIZE * 3 + (entry.path / "index.json").stat().st_size
    assert abs(entry.used - time.time()) < 60


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
def test_a_damaged_cache_is_made_anew_and_other_files_stay(
    name: str, damage: Callable[[bytes], bytes], pictures: list[Path], cache: Path
) -> None:
    before = decode(pictures, SIZE, cache, NO_CALLBACKS)
    (damaged,) = cache.rglob(name)
    content = damaged.read_bytes()
    damaged.unlink()  # what was decoded before is still mapped
    damaged.write_bytes(damage(content))
    assert damaged.read_bytes() != content
    (damaged.parent / "notes.txt").write_text("mine")
    count = Count()
    assert same(decode(pictures, SIZE, cache, count.callbacks()), before)
    assert len(count) == 10
    assert damaged.read_bytes() == content
    assert (damaged.parent / "notes.txt").read_text() == "mine"


def test_drafts_of_the_dead_are_swept(pictures: list[Path], cache: Path) -> None:
    long_ago = time.time() - 2 * 24 * 60 * 60
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


def test_no_picture_at_all_can_be_read(pictures: list[Path], cache: Path) -> None:
    for _ in range(2):
        decoded = decode([pictures[3]], SIZE, cache, NO_CALLBACKS)
        assert decoded.pixels.shape == (0, SIZE, SIZE, 3)
    assert decode([], SIZE, cache, NO_CALLBACKS).broken == {}


def test_a_picture_that_may_be_read_at_last(pictures: list[Path], cache: Path) -> None:
    pictures[0].chmod(0)
    if os.access(pictures[0], os.R_OK):
        pytest.skip("root may read everything")
    assert decode(pictures, SIZE, cache, NO_CALLBACKS).broken[0] == "Permission denied"
    pictures[0].chmod(0o644)
    assert 0 not in decode(pictures, SIZE, cache, NO_CALLBACKS).broken


def test_only_the_owner_may_see_what_is_kept(pictures: list[Path], cache: Path) -> None:
    before = os.umask(0)
    try:
        decode(pictures, SIZE, cache, NO_CALLBACKS)
    finally:
        os.umask(before)
    for path in [cache, *cache.rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600)


@pytest.mark.parametrize("limit", ["", "0"])
def test_without_a_cache_nothing_is_left(
    limit: str, pictures: list[Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = decode(pictures, SIZE, cache, NO_CALLBACKS)
    before = sorted(cache.parent.rglob("*"))
    monkeypatch.setenv("CADIS_CACHE_GB", limit)
    count, other = Count(), cache.with_name("other") if limit else None
    assert same(decode(pictures, SIZE, other, count.callbacks()), kept)
    assert count == list(range(1, 11))
    assert sorted(cache.parent.rglob("*")) == before


@pytest.mark.parametrize("limit", ["much", "-1", "inf", "nan"])
def test_a_limit_that_is_no_size(limit: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CADIS_CACHE_GB", limit)
    with pytest.raises(CadisError, match=f"CADIS_CACHE_GB is '{limit}'"):
        decode([], SIZE, cache, NO_CALLBACKS)


def test_what_was_used_least_recently_goes_first(
    pictures: list[Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, size in enumerate((10, 11, 12)):
        decode(pictures, size, cache, NO_CALLBACKS)
        (path,) = [entry.path for entry in cache_entries(cache) if entry.side == size]
        for each in (path, *path.iterdir()):
            os.utime(each, (number, number))
    decode(pictures, 10, cache, NO_CALLBACKS)  # is used again
    (cache / "notes.txt").write_text("mine")
    room = sum(9 * side * side * 3 + 1000 for side in (10, 13))
    monkeypatch.setenv("CADIS_CACHE_GB", str(room / 1e9))
    decode(pictures, 13, cache, NO_CALLBACKS)
    assert {entry.side for entry in cache_entries(cache)} == {10, 13}
    assert (cache / "notes.txt").exists()
    said: list[str] = []
    large = decode(pictures, 40, cache, Callbacks(say=said.append))
    assert len(large.pixels) == 9
    assert large.pixels[4, 0, 0].tolist() == [255, 0, 0]  # though its file is gone
    assert 40 not in {entry.side for entry in cache_entries(cache)}
    assert "are not kept" in said[0]


def test_the_cache_is_cleared_but_for_what_is_not_ours(pictures: list[Path], cache: Path) -> None:
    decode(pictures, SIZE, cache, NO_CALLBACKS)
    other, making = cache / "mine", cache / ".draft-new"
    for folder in (other, making):
        folder.mkdir()
        (folder / "pixels.raw").write_bytes(bytes(10))
    assert len(cache_entries(cache)) == 2
    gone, kept = clear(cache)
    assert len(gone) == 1
    assert [entry.path for entry in kept] == [making]
    assert {path.name for path in cache.iterdir()} == {"mine", ".draft-new"}
    assert (other / "pixels.raw").exists()
