"""Tests of reading images of each mode of Pillow and of each bit depth."""

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

from cadis.data.dicom import ImageError
from cadis.data.image_reading import read_image, to_rgb

GRAY = np.arange(256, dtype=np.uint8).reshape(16, 16)
COLORS = np.stack([GRAY, GRAY.T, 255 - GRAY], axis=-1)
MIXED = Image.fromarray(COLORS)
MUTED = COLORS // 4 + np.uint8(96)
HALF = np.where(np.arange(16) < 8, 0, 255).astype(np.uint8) * np.ones((16, 1), np.uint8)
"""An alpha channel: the left half is transparent."""


def to_three_channels(levels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.repeat(levels[:, :, None], 3, axis=-1)


def apply_alpha(colors: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the colors that are visible with the alpha channel :data:`HALF`."""
    return colors * (HALF > 0)[:, :, None]


def make_16_bit(mode: str) -> Image.Image:
    """Return an image with 16 bits: the 8-bit level is in both bytes."""
    order = ">u2" if mode.endswith("B") else "<u2"
    return Image.frombytes(mode, (16, 16), (GRAY * np.uint16(257)).astype(order).tobytes())


def make_transparent(mode: str) -> Image.Image:
    """Return an image whose left half is transparent, and white without the alpha channel."""
    colors = np.where(HALF[:, :, None] > 0, COLORS, 255).astype(np.uint8)
    image = Image.fromarray(np.dstack([colors, HALF]))
    if mode == "PA":
        palette = Image.fromarray(np.where(HALF > 0, GRAY, 255).astype(np.uint8))
        image = Image.merge("LA", (palette, Image.fromarray(HALF)))
        image.putpalette(bytes(to_three_channels(GRAY).tobytes()))
    return image if image.mode == mode else image.convert(mode)


def make_premultiplied_gray() -> Image.Image:
    pixels = np.dstack([np.where(HALF > 0, GRAY, 0), HALF]).astype(np.uint8)
    return Image.frombytes("La", (16, 16), pixels.tobytes())


GRAY_VISIBLE = apply_alpha(to_three_channels(GRAY))
MODES: dict[str, tuple[Callable[[], Image.Image], NDArray[np.uint8], int]] = {
    "1": (lambda: Image.fromarray(HALF).convert("1"), to_three_channels(HALF), 0),
    "L": (lambda: Image.fromarray(GRAY), to_three_channels(GRAY), 0),
    "P": (lambda: Image.fromarray(GRAY).convert("P"), to_three_channels(GRAY), 0),
    "RGB": (lambda: MIXED, COLORS, 0),
    "RGBX": (lambda: MIXED.convert("RGBX"), COLORS, 0),
    "CMYK": (lambda: MIXED.convert("CMYK"), COLORS, 0),
    "YCbCr": (lambda: MIXED.convert("YCbCr"), COLORS, 3),
    "HSV": (lambda: MIXED.convert("HSV"), COLORS, 6),
    "LAB": (lambda: Image.fromarray(MUTED).convert("LAB"), MUTED, 3),
    "RGBA": (lambda: make_transparent("RGBA"), apply_alpha(COLORS), 0),
    "RGBa": (lambda: make_transparent("RGBa"), apply_alpha(COLORS), 0),
    "LA": (lambda: make_transparent("PA").convert("LA"), GRAY_VISIBLE, 0),
    "La": (make_premultiplied_gray, GRAY_VISIBLE, 0),
    "PA": (lambda: make_transparent("PA"), GRAY_VISIBLE, 0),
    "I;16": (lambda: make_16_bit("I;16"), to_three_channels(GRAY), 0),
    "I;16L": (lambda: make_16_bit("I;16L"), to_three_channels(GRAY), 0),
    "I;16B": (lambda: make_16_bit("I;16B"), to_three_channels(GRAY), 0),
    "I;16N": (lambda: make_16_bit("I;16N"), to_three_channels(GRAY), 0),
    "F": (lambda: Image.fromarray((GRAY / 255).astype(np.float32)), to_three_channels(GRAY), 0),
}
REJECTED_MODES = {"I"}
"""Modes that do not define which value is white."""


@pytest.mark.parametrize("mode", Image.MODES)
def test_each_mode_is_converted_or_rejected(mode: str) -> None:
    if mode in REJECTED_MODES:
        with pytest.raises(ImageError, match=f"^it has mode {mode}, .*; save it"):
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
    return read_image(path, size).pixels


@pytest.mark.parametrize("name", ["a.png", "a.bmp", "a.tif", "a.webp", "a.jpg", "a.gif"])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_8_bit_images_are_converted_by_pillow(name: str, mode: str, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 30, 3), dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save(tmp_path / name)
    with Image.open(tmp_path / name) as image:
        image.draft("RGB", (2 * 7, 2 * 7))
        expected = image.convert("RGB").resize((7, 7), Image.Resampling.BILINEAR)
    assert np.array_equal(read(tmp_path / name, 7), np.asarray(expected))


def make_tiff(
    values: NDArray[np.generic], bits: int, sample_format: int = 1, white_is_zero: bool = False
) -> bytes:
    """Return a little-endian TIFF of one strip, in a format that Pillow cannot write."""
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
        (339, sample_format),  # 1: unsigned, 2: signed, 3: floating-point
    ]
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + data


def pack_12_bits(values: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Pack two values into three bytes, most significant bit first."""
    first, second = values.flatten()[::2], values.flatten()[1::2]
    parts = [first >> 4, (first & 15) << 4 | second >> 8, second & 255]
    return np.stack(parts, axis=-1).astype(np.uint8)


GRAY_16 = GRAY * np.uint16(257)


FRACTIONS = (GRAY / 255).astype(np.float32)
GRAY_FILES: dict[str, tuple[str, bytes | Image.Image]] = {
    "16 bits": ("a.png", make_16_bit("I;16")),
    "16 bits, TIFF": ("a.tif", make_16_bit("I;16")),
    "16 bits, big-endian": ("a.tif", make_16_bit("I;16B")),
    "16 bits, white is 0": ("a.tif", make_tiff(65535 - GRAY_16, bits=16, white_is_zero=True)),
    "12 bits": ("a.tif", make_tiff(pack_12_bits(np.rint(GRAY / 255 * 4095).astype(int)), bits=12)),
    "floating-point": ("a.tif", Image.fromarray(FRACTIONS)),
    "floating-point, white is 0": (
        "a.tif",
        make_tiff(1 - FRACTIONS, bits=32, sample_format=3, white_is_zero=True),
    ),
    "PGM": ("a.ppm", b"P5 16 16 65535\n" + GRAY_16.astype(">u2").tobytes()),
}
"""Files with the same gray levels from black to white."""


@pytest.mark.parametrize("case", GRAY_FILES)
@pytest.mark.parametrize("size", [16, 5, 40])
def test_gray_levels_of_any_depth_equal_those_of_8_bits(
    case: str, size: int, tmp_path: Path
) -> None:
    name, content = GRAY_FILES[case]
    if isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    else:
        content.save(tmp_path / name)
    Image.fromarray(GRAY).save(tmp_path / "plain.png")
    assert np.array_equal(read(tmp_path / name, size), read(tmp_path / "plain.png", size))


@pytest.mark.parametrize("value", [0, 128, 129, 256, 385, 386, 4095, 65406, 65407, 65535])
def test_16_bit_levels_do_not_depend_on_other_pixels(value: int, tmp_path: Path) -> None:
    for name, other in (("dark.png", 0), ("bright.png", 65535)):
        pixels = np.full((4, 4), value, np.uint16)
        pixels[0, 0] = other
        Image.fromarray(pixels).save(tmp_path / name)
        assert read(tmp_path / name, 4)[2, 2].tolist() == [round(value / 257)] * 3


@pytest.mark.parametrize("value", [1.001, -0.5, 255.0, float("nan"), float("inf")])
def test_floats_outside_0_to_1_are_rejected(value: float, tmp_path: Path) -> None:
    pixels = np.full((4, 4), 0.5, np.float32)
    pixels[1, 2] = value
    Image.fromarray(pixels).save(tmp_path / "a.tif")
    with pytest.raises(ImageError, match=rf"mode F, .* has the value {value:g}; divide all"):
        read(tmp_path / "a.tif")


@pytest.mark.parametrize(
    ("values", "sample_format"),
    [(GRAY_16.astype(np.int16), 2), (GRAY_16.astype(np.int32), 2), (GRAY + 0, 1)],
)
def test_signed_and_32_bit_integers_are_rejected(
    values: NDArray[np.generic], sample_format: int, tmp_path: Path
) -> None:
    values = values if sample_format == 2 else values.astype(np.uint32)
    content = make_tiff(values, bits=8 * values.itemsize, sample_format=sample_format)
    (tmp_path / "a.tif").write_bytes(content)
    with pytest.raises(ImageError, match=r"it has mode I, .*; save it with 8 bits, or with 16"):
        read(tmp_path / "a.tif")


HIDDEN_WHITE = np.where(HALF > 0, np.minimum(GRAY, 254), 255).astype(np.uint8)
LEVELS, ALPHA = Image.fromarray(HIDDEN_WHITE), Image.fromarray(HALF)
WITH_ALPHA = Image.merge("RGBA", [LEVELS] * 3 + [ALPHA])
TRANSPARENT: dict[str, tuple[str, Image.Image, Any]] = {
    "one color": ("a.png", LEVELS.convert("RGB"), (255, 255, 255)),
    "one level": ("a.png", LEVELS, 255),
    "one level of 16 bits": ("a.png", Image.fromarray(HIDDEN_WHITE * np.uint16(257)), 65535),
    "palette": ("a.png", LEVELS.convert("P"), 255),
    "palette of GIF": ("a.gif", LEVELS.convert("P"), 255),
    "palette with alpha": ("a.png", LEVELS.convert("P"), bytes([255] * 255 + [0])),
    "RGBA": ("a.png", WITH_ALPHA, None),
    "RGBA of WebP": ("a.webp", WITH_ALPHA, None),
    "RGBA of TIFF": ("a.tif", WITH_ALPHA, None),
    "LA": ("a.png", Image.merge("LA", [LEVELS, ALPHA]), None),
}
"""Images whose left half is transparent, and white without transparency."""


@pytest.mark.parametrize("case", TRANSPARENT)
def test_transparent_pixels_are_black(case: str, tmp_path: Path) -> None:
    name, image, color = TRANSPARENT[case]
    image.save(tmp_path / name, **({} if color is None else {"transparency": color}))
    pixels = read(tmp_path / name)
    assert not pixels[:, :8].any()
    assert (
        np.abs(pixels[:, 8:].astype(int) - to_three_channels(GRAY)[:, 8:]).max() < 8
    )  # WebP is lossy


def test_partial_transparency_darkens_pixels(tmp_path: Path) -> None:
    Image.new("RGBA", (4, 4), (200, 100, 50, 51)).save(tmp_path / "a.png")
    assert read(tmp_path / "a.png", 4)[0, 0].tolist() == [40, 20, 10]  # a fifth


def make_png(
    width: int, height: int, bits: int, color_type: int, rows: bytes, transparent: bytes = b""
) -> bytes:
    """Return a PNG in a format that Pillow cannot write."""

    def make_chunk(name: bytes, data: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(name + data))
        return struct.pack(">I", len(data)) + name + data + checksum

    header = struct.pack(">IIBBBBB", width, height, bits, color_type, 0, 0, 0)
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            make_chunk(b"IHDR", header),
            make_chunk(b"tRNS", transparent) if transparent else b"",
            make_chunk(b"IDAT", zlib.compress(rows)),
            make_chunk(b"IEND", b""),
        ]
    )


def test_colors_of_16_bits_equal_those_of_8_bits(tmp_path: Path) -> None:
    rows = (COLORS * np.uint16(257)).astype(">u2").reshape(16, -1)
    content = b"".join(b"\0" + row.tobytes() for row in rows)
    (tmp_path / "a.png").write_bytes(make_png(16, 16, 16, 2, content))
    assert np.array_equal(read(tmp_path / "a.png"), COLORS)
    (tmp_path / "a.png").write_bytes(make_png(16, 16, 16, 2, content, bytes(6)))
    with pytest.raises(ImageError, match=r"mode RGB with one transparent color .* alpha"):
        read(tmp_path / "a.png")


def test_ambiguous_transparent_level_is_rejected(tmp_path: Path) -> None:
    row = bytes([0, 0b00011011])  # levels 0 to 3 of two bits
    (tmp_path / "a.png").write_bytes(make_png(4, 1, 2, 0, row))
    assert read(tmp_path / "a.png", 4)[0, :, 0].tolist() == [0, 85, 170, 255]
    (tmp_path / "a.png").write_bytes(make_png(4, 1, 2, 0, row, b"\0\3"))
    with pytest.raises(ImageError, match=r"mode L with one transparent color .* alpha channel"):
        read(tmp_path / "a.png")


@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.jpg"])
def test_exif_orientation_is_applied(name: str, tmp_path: Path) -> None:
    upright = np.zeros((16, 16), np.uint8)
    upright[:8] = 200  # the upper half is bright
    rotated = np.rot90(upright)
    image = Image.fromarray(rotated if name == "a.jpg" else rotated * np.uint16(257))
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees clockwise
    image.save(tmp_path / name, exif=exif)
    pixels = read(tmp_path / name).astype(int)
    assert np.abs(pixels - to_three_channels(upright)).max() < 4


def test_large_jpeg_is_decoded_at_lower_resolution(tmp_path: Path) -> None:
    Image.new("RGB", (1600, 1600), (10, 200, 30)).save(tmp_path / "a.jpg")
    with Image.open(tmp_path / "a.jpg") as image:
        image.draft("RGB", (32, 32))
        assert image.size == (200, 200)
    assert np.abs(read(tmp_path / "a.jpg")[3, 3].astype(int) - (10, 200, 30)).max() < 3


@pytest.mark.parametrize("name", ["a.gif", "a.png", "a.webp", "a.tif"])
def test_first_of_several_frames_is_read(name: str, tmp_path: Path) -> None:
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "lime")]
    frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:], lossless=True)
    frame = read_image(tmp_path / name, 8)
    assert frame.is_animated
    assert frame.pixels[0, 0].tolist() == [255, 0, 0]
    frames[0].save(tmp_path / name)
    assert not read_image(tmp_path / name, 8).is_animated


def test_special_files_are_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "loop.png").symlink_to("loop.png")
    (tmp_path / "null.png").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listening:
        monkeypatch.chdir(tmp_path)  # paths of sockets must be short
        listening.bind("socket.png")
        for name in ("pipe.png", "folder.png", "null.png", "socket.png"):
            with pytest.raises(ImageError, match=r"^it is not a regular file$"):
                read(tmp_path / name)
    with pytest.raises(ImageError, match="Too many levels of symbolic links"):
        read(tmp_path / "loop.png")
    with pytest.raises(ImageError, match="No such file"):
        read(tmp_path / "none.png")


def test_images_with_too_many_pixels_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.fromarray(GRAY).save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 200)
    with warnings.catch_warnings(action="ignore"):
        assert read(tmp_path / "a.png").shape == (16, 16, 3)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(ImageError, match=r"^it has more than 200 pixels; make it smaller$"):
        read(tmp_path / "a.png")
