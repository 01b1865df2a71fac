"""One picture of each mode that Pillow knows, and of each depth that files have."""

import os
import socket
import struct
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from cadis.data.dicom import PictureError
from cadis.data.picture import read_picture, to_rgb

GREY = np.arange(256, dtype=np.uint8).reshape(16, 16)
COLOURS = np.stack([GREY, GREY.T, 255 - GREY], axis=-1)
MIXED = Image.fromarray(COLOURS)
MUTED = COLOURS // 4 + np.uint8(96)
HALF = np.where(np.arange(16) < 8, 0, 255).astype(np.uint8) * np.ones((16, 1), np.uint8)
"""An alpha channel: the left half is transparent."""


def in_grey(shades: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.repeat(shades[:, :, None], 3, axis=-1)


def seen(colours: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """What is to be seen through :data:`HALF`."""
    return colours * (HALF > 0)[:, :, None]


def wide(mode: str) -> Image.Image:
    """Shades of 16 bits: those of 8 bits in both bytes."""
    order = ">u2" if mode.endswith("B") else "<u2"
    return Image.frombytes(mode, (16, 16), (GREY * np.uint16(257)).astype(order).tobytes())


def transparent(mode: str) -> Image.Image:
    """Half transparent; the hidden colours are the brightest, so that they would be noticed."""
    colours = np.where(HALF[:, :, None] > 0, COLOURS, 255).astype(np.uint8)
    image = Image.fromarray(np.dstack([colours, HALF]))
    if mode == "PA":
        palette = Image.fromarray(np.where(HALF > 0, GREY, 255).astype(np.uint8))
        image = Image.merge("LA", (palette, Image.fromarray(HALF)))
        image.putpalette(bytes(in_grey(GREY).tobytes()))
    return image if image.mode == mode else image.convert(mode)


def premultiplied_grey() -> Image.Image:
    pixels = np.dstack([np.where(HALF > 0, GREY, 0), HALF]).astype(np.uint8)
    return Image.frombytes("La", (16, 16), pixels.tobytes())


GREY_SEEN = seen(in_grey(GREY))
MODES: dict[str, tuple[Callable[[], Image.Image], NDArray[np.uint8], int]] = {
    "1": (lambda: Image.fromarray(HALF).convert("1"), in_grey(HALF), 0),
    "L": (lambda: Image.fromarray(GREY), in_grey(GREY), 0),
    "P": (lambda: Image.fromarray(GREY).convert("P"), in_grey(GREY), 0),
    "RGB": (lambda: MIXED, COLOURS, 0),
    "RGBX": (lambda: MIXED.convert("RGBX"), COLOURS, 0),
    "CMYK": (lambda: MIXED.convert("CMYK"), COLOURS, 0),
    "YCbCr": (lambda: MIXED.convert("YCbCr"), COLOURS, 3),
    "HSV": (lambda: MIXED.convert("HSV"), COLOURS, 6),
    "LAB": (lambda: Image.fromarray(MUTED).convert("LAB"), MUTED, 3),
    "RGBA": (lambda: transparent("RGBA"), seen(COLOURS), 0),
    "RGBa": (lambda: transparent("RGBa"), seen(COLOURS), 0),
    "LA": (lambda: transparent("PA").convert("LA"), GREY_SEEN, 0),
    "La": (premultiplied_grey, GREY_SEEN, 0),
    "PA": (lambda: transparent("PA"), GREY_SEEN, 0),
    "I;16": (lambda: wide("I;16"), in_grey(GREY), 0),
    "I;16L": (lambda: wide("I;16L"), in_grey(GREY), 0),
    "I;16B": (lambda: wide("I;16B"), in_grey(GREY), 0),
    "I;16N": (lambda: wide("I;16N"), in_grey(GREY), 0),
    "F": (lambda: Image.fromarray((GREY / 255).astype(np.float32)), in_grey(GREY), 0),
}
REFUSED = {"I"}
"""Modes that do not tell how bright their numbers are."""


@pytest.mark.parametrize("mode", Image.MODES)
def test_every_mode_has_its_colours_or_is_refused_by_name(mode: str) -> None:
    if mode in REFUSED:
        with pytest.raises(PictureError, match=f"^it has mode {mode}, .*; save it"):
            to_rgb(Image.new(mode, (2, 2)), Image.new(mode, (2, 2)))
        return
    make, expected, tolerance = MODES[mode]
    image = make()
    assert image.mode == mode
    converted = to_rgb(image, image)
    assert converted.mode == "RGB"
    difference = np.abs(np.asarray(converted).astype(int) - expected)
    assert difference.max() <= tolerance


def read(path: Path, size: int = 16) -> NDArray[np.uint8]:
    return read_picture(path, size).pixels


@pytest.mark.parametrize("name", ["a.png", "a.bmp", "a.tif", "a.webp", "a.jpg", "a.gif"])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_pictures_of_8_bits_are_as_pillow_has_them(name: str, mode: str, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 30, 3), dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save(tmp_path / name)
    with Image.open(tmp_path / name) as image:
        image.draft("RGB", (2 * 7, 2 * 7))
        expected = image.convert("RGB").resize((7, 7), Image.Resampling.BILINEAR)
    assert np.array_equal(read(tmp_path / name, 7), np.asarray(expected))


def tiff(
    values: NDArray[np.generic], bits: int, kind: int = 1, white_is_zero: bool = False
) -> bytes:
    """A TIFF of one strip, little-endian, of a kind that Pillow does not write."""
    data, (height, width) = values.tobytes(), (16, 16)
    tags = [
        (256, width),
        (257, height),
        (258, bits),
        (259, 1),  # not compressed
        (262, 0 if white_is_zero else 1),
        (273, 8 + 2 + 11 * 12 + 4),
        (277, 1),
        (278, height),
        (279, len(data)),
        (284, 1),
        (339, kind),  # 1: without a sign, 2: with a sign, 3: floating
    ]
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + data


def packed_12(values: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Two numbers in three bytes, the highest bit first."""
    first, second = values.flatten()[::2], values.flatten()[1::2]
    parts = [first >> 4, (first & 15) << 4 | second >> 8, second & 255]
    return np.stack(parts, axis=-1).astype(np.uint8)


WIDE = GREY * np.uint16(257)


FRACTIONS = (GREY / 255).astype(np.float32)
SHADES: dict[str, tuple[str, bytes | Image.Image]] = {
    "16 bits": ("a.png", wide("I;16")),
    "16 bits, TIFF": ("a.tif", wide("I;16")),
    "16 bits, big-endian": ("a.tif", wide("I;16B")),
    "16 bits, white is 0": ("a.tif", tiff(65535 - WIDE, bits=16, white_is_zero=True)),
    "12 bits": ("a.tif", tiff(packed_12(np.rint(GREY / 255 * 4095).astype(int)), bits=12)),
    "floating": ("a.tif", Image.fromarray(FRACTIONS)),
    "floating, white is 0": ("a.tif", tiff(1 - FRACTIONS, bits=32, kind=3, white_is_zero=True)),
    "grey map": ("a.ppm", b"P5 16 16 65535\n" + WIDE.astype(">u2").tobytes()),
}
"""Shades of grey from black to white, in the ways in which files have them."""


@pytest.mark.parametrize("kind", SHADES)
@pytest.mark.parametrize("size", [16, 5, 40])
def test_shades_of_any_depth_are_those_of_8_bits(kind: str, size: int, tmp_path: Path) -> None:
    name, content = SHADES[kind]
    if isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    else:
        content.save(tmp_path / name)
    Image.fromarray(GREY).save(tmp_path / "plain.png")
    assert np.array_equal(read(tmp_path / name, size), read(tmp_path / "plain.png", size))


@pytest.mark.parametrize("value", [0, 128, 129, 256, 385, 386, 4095, 65406, 65407, 65535])
def test_16_bits_are_divided_by_257_whatever_else_is_in_the_picture(
    value: int, tmp_path: Path
) -> None:
    for name, other in (("dark.png", 0), ("bright.png", 65535)):
        pixels = np.full((4, 4), value, np.uint16)
        pixels[0, 0] = other
        Image.fromarray(pixels).save(tmp_path / name)
        assert read(tmp_path / name, 4)[2, 2].tolist() == [round(value / 257)] * 3


@pytest.mark.parametrize("value", [1.001, -0.5, 255.0, float("nan"), float("inf")])
def test_fractions_beyond_white_are_refused(value: float, tmp_path: Path) -> None:
    pixels = np.full((4, 4), 0.5, np.float32)
    pixels[1, 2] = value
    Image.fromarray(pixels).save(tmp_path / "a.tif")
    with pytest.raises(PictureError, match=rf"mode F, .* has the value {value:g}; divide its"):
        read(tmp_path / "a.tif")


@pytest.mark.parametrize(
    ("values", "kind"), [(WIDE.astype(np.int16), 2), (WIDE.astype(np.int32), 2), (GREY + 0, 1)]
)
def test_whole_numbers_that_do_not_say_what_is_white_are_refused(
    values: NDArray[np.generic], kind: int, tmp_path: Path
) -> None:
    values = values if kind == 2 else values.astype(np.uint32)
    (tmp_path / "a.tif").write_bytes(tiff(values, bits=8 * values.itemsize, kind=kind))
    with pytest.raises(PictureError, match=r"it has mode I, .*; save it with 8 bits, or with 16"):
        read(tmp_path / "a.tif")


HIDING = np.where(HALF > 0, np.minimum(GREY, 254), 255).astype(np.uint8)
SHADE, OPACITY = Image.fromarray(HIDING), Image.fromarray(HALF)
WITH_ALPHA = Image.merge("RGBA", [SHADE] * 3 + [OPACITY])
TRANSPARENT: dict[str, tuple[str, Image.Image, Any]] = {
    "one colour": ("a.png", SHADE.convert("RGB"), (255, 255, 255)),
    "one shade": ("a.png", SHADE, 255),
    "one shade of 16 bits": ("a.png", Image.fromarray(HIDING * np.uint16(257)), 65535),
    "palette": ("a.png", SHADE.convert("P"), 255),
    "palette of GIF": ("a.gif", SHADE.convert("P"), 255),
    "palette with opacities": ("a.png", SHADE.convert("P"), bytes([255] * 255 + [0])),
    "RGBA": ("a.png", WITH_ALPHA, None),
    "RGBA of WebP": ("a.webp", WITH_ALPHA, None),
    "RGBA of TIFF": ("a.tif", WITH_ALPHA, None),
    "LA": ("a.png", Image.merge("LA", [SHADE, OPACITY]), None),
}
"""The left half is transparent, and hides white."""


@pytest.mark.parametrize("kind", TRANSPARENT)
def test_what_is_transparent_is_black(kind: str, tmp_path: Path) -> None:
    name, image, colour = TRANSPARENT[kind]
    image.save(tmp_path / name, **({} if colour is None else {"transparency": colour}))
    pixels = read(tmp_path / name)
    assert not pixels[:, :8].any()
    assert np.abs(pixels[:, 8:].astype(int) - in_grey(GREY)[:, 8:]).max() < 8  # WebP is lossy


def test_opacity_between_all_and_nothing(tmp_path: Path) -> None:
    Image.new("RGBA", (4, 4), (200, 100, 50, 51)).save(tmp_path / "a.png")
    assert read(tmp_path / "a.png", 4)[0, 0].tolist() == [40, 20, 10]  # a fifth


def png(
    width: int, height: int, bits: int, kind: int, rows: bytes, transparent: bytes = b""
) -> bytes:
    """A PNG of a kind that Pillow does not write."""

    def chunk(name: bytes, data: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(name + data))
        return struct.pack(">I", len(data)) + name + data + checksum

    header = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0)
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", header),
            chunk(b"tRNS", transparent) if transparent else b"",
            chunk(b"IDAT", zlib.compress(rows)),
            chunk(b"IEND", b""),
        ]
    )


def test_colours_of_16_bits_are_those_of_8_bits(tmp_path: Path) -> None:
    rows = (COLOURS * np.uint16(257)).astype(">u2").reshape(16, -1)
    content = b"".join(b"\0" + row.tobytes() for row in rows)
    (tmp_path / "a.png").write_bytes(png(16, 16, 16, 2, content))
    assert np.array_equal(read(tmp_path / "a.png"), COLOURS)
    (tmp_path / "a.png").write_bytes(png(16, 16, 16, 2, content, bytes(6)))
    with pytest.raises(PictureError, match=r"mode RGB with one transparent colour .* alpha"):
        read(tmp_path / "a.png")


def test_a_transparent_shade_that_cannot_be_told_is_refused(tmp_path: Path) -> None:
    row = bytes([0, 0b00011011])  # shades 0 to 3, of two bits
    (tmp_path / "a.png").write_bytes(png(4, 1, 2, 0, row))
    assert read(tmp_path / "a.png", 4)[0, :, 0].tolist() == [0, 85, 170, 255]
    (tmp_path / "a.png").write_bytes(png(4, 1, 2, 0, row, b"\0\3"))
    with pytest.raises(PictureError, match=r"mode L with one transparent colour .* alpha channel"):
        read(tmp_path / "a.png")


@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.jpg"])
def test_16_bits_and_colours_are_turned_upright(name: str, tmp_path: Path) -> None:
    upright = np.zeros((16, 16), np.uint8)
    upright[:8] = 200  # the upper half is bright
    turned = np.rot90(upright)  # to be turned by 90 degrees clockwise
    image = Image.fromarray(turned if name == "a.jpg" else turned * np.uint16(257))
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / name, exif=exif)
    pixels = read(tmp_path / name).astype(int)
    assert np.abs(pixels - in_grey(upright)).max() < 4


def test_a_large_jpeg_is_not_decoded_whole(tmp_path: Path) -> None:
    Image.new("RGB", (1600, 1600), (10, 200, 30)).save(tmp_path / "a.jpg")
    with Image.open(tmp_path / "a.jpg") as image:
        image.draft("RGB", (32, 32))
        assert image.size == (200, 200)
    assert np.abs(read(tmp_path / "a.jpg")[3, 3].astype(int) - (10, 200, 30)).max() < 3


@pytest.mark.parametrize("name", ["a.gif", "a.png", "a.webp", "a.tif"])
def test_the_first_of_several_frames(name: str, tmp_path: Path) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "lime")]
    frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:], lossless=True)
    frame = read_picture(tmp_path / name, 8)
    assert frame.animated
    assert frame.pixels[0, 0].tolist() == [255, 0, 0]
    frames[0].save(tmp_path / name)
    assert not read_picture(tmp_path / name, 8).animated


def test_what_is_no_file_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "loop.png").symlink_to("loop.png")
    (tmp_path / "null.png").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listening:
        monkeypatch.chdir(tmp_path)  # names of sockets are short
        listening.bind("socket.png")
        for name in ("pipe.png", "folder.png", "null.png", "socket.png"):
            with pytest.raises(PictureError, match=r"^it is not an ordinary file$"):
                read(tmp_path / name)
    with pytest.raises(PictureError, match="Too many levels of symbolic links"):
        read(tmp_path / "loop.png")
    with pytest.raises(PictureError, match="No such file"):
        read(tmp_path / "none.png")


def test_too_many_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.fromarray(GREY).save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 200)
    with warnings.catch_warnings(action="ignore"):
        assert read(tmp_path / "a.png").shape == (16, 16, 3)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(PictureError, match=r"^it has more than 200 pixels; make it smaller$"):
        read(tmp_path / "a.png")
