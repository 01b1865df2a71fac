"""Reading an image file as RGB with 8 bits per channel.

The scaling of pixel values depends on the metadata of the file and never on the content of the
image, so equal values have equal brightness in all images. An image whose scaling is ambiguous is
rejected.
"""

import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from cadis._io import to_printable
from cadis.data.dicom import ImageError, is_dicom, read_dicom

_PLAIN_MODES = {"1", "L", "P", "RGB", "RGBX", "CMYK", "YCbCr", "LAB", "HSV"}
"""Modes with at most 8 bits per channel, which Pillow converts to RGB without clipping."""

_STRAIGHT_MODES = {"La": "LA", "RGBa": "RGBA"}
"""Modes with premultiplied alpha, and the same modes with straight alpha."""

_BITS_PER_SAMPLE, _PHOTOMETRIC = 258, 262
"""TIFF tags: the number of bits per value, and whether 0 is black (1) or white (0)."""


@dataclass(frozen=True)
class Frame:
    """The first frame of an image file."""

    pixels: NDArray[np.uint8]  # RGB, (size, size, 3)
    is_animated: bool  # whether the file has more frames


def read_image(path: Path, size: int) -> Frame:
    """Read an image upright and in RGB, resized to a square.

    Args:
        path: image file; DICOM files are accepted too.
        size: width and height of the result in pixels.

    Raises:
        ImageError: if the image cannot be used.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from PIL import Image
        >>> from cadis.data import read_image
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "red.png")
        ...     Image.new("RGB", (64, 48), "red").save(path)
        ...     frame = read_image(path, size=8)
        >>> frame.pixels.shape
        (8, 8, 3)
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # reading a pipe might never end
            raise ImageError("it is not a regular file")
        if is_dicom(path):
            levels, is_animated = read_dicom(path)
            upright = Image.fromarray(levels).convert("RGB")
        else:
            with Image.open(path) as image:
                _check_transparent_color(image)
                image.draft("RGB", (2 * size, 2 * size))  # decodes a large JPEG at lower resolution
                upright = to_rgb(ImageOps.exif_transpose(image), image)
                is_animated = _has_more_frames(image)
        resized = upright.resize((size, size), Image.Resampling.BILINEAR)
        return Frame(np.asarray(resized), is_animated)
    except ImageError:
        raise
    except UnidentifiedImageError:
        raise ImageError("it is not an image that can be read") from None
    except Image.DecompressionBombError:
        limit = 2 * (Image.MAX_IMAGE_PIXELS or 0)
        raise ImageError(f"it has more than {limit:,} pixels; make it smaller") from None
    except Exception as error:  # a damaged file may raise any exception
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise ImageError(to_printable(" ".join(reason.split()).rstrip("."))) from error


def to_rgb(image: Image.Image, source: Image.Image) -> Image.Image:
    """Convert an image to RGB; transparent pixels become black.

    Args:
        image: image to convert.
        source: image as it was opened, with its format and tags.
    """
    if image.mode.split(";")[0] == "I":
        return _gray_to_rgb(_scale_integers(image, source), source)
    if image.mode == "F":
        return _gray_to_rgb(_scale_floats(np.asarray(image)), source)
    if image.has_transparency_data:
        # The colors of transparent pixels are arbitrary, because they are never visible.
        opaque = Image.new("RGB", image.size)
        colors = image.convert(_STRAIGHT_MODES.get(image.mode, image.mode)).convert("RGBA")
        opaque.paste(colors, mask=colors.getchannel("A"))
        return opaque
    if image.mode in _PLAIN_MODES:
        return image.convert("RGB")
    raise ImageError(f"it has mode {image.mode}, which has no known colors; save it as RGB")


def _scale_integers(image: Image.Image, source: Image.Image) -> NDArray[np.uint8]:
    """Scale integers of 16 bits, or of 12 bits if the metadata say so, to the range 0 to 255."""
    if image.mode == "I" and source.format not in ("PNG", "PPM"):  # these have at most 16 bits
        raise ImageError(
            "it has mode I, signed or 32-bit integers, so the value of white is unknown; save it "
            "with 8 bits, or with 16 bits and no sign"
        )
    values = np.asarray(image).astype(np.uint32)
    bits = getattr(source, "tag_v2", {}).get(_BITS_PER_SAMPLE)
    white = 4095 if bits == (12,) else 65535
    levels = (2 * 255 * values + white) // (2 * white)  # rounded
    if "transparency" in image.info:
        levels[values == image.info["transparency"]] = 0
    return levels.astype(np.uint8)


def _scale_floats(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Scale floats between 0 (black) and 1 (white) to the range 0 to 255."""
    outside = values[~((values >= 0) & (values <= 1))]  # NaN is outside too
    if outside.size:
        raise ImageError(
            "it has mode F, floats from 0 (black) to 1 (white), but has the value "
            f"{outside[0]:g}; divide all values by the value of white"
        )
    return np.rint(values * 255).astype(np.uint8)


def _gray_to_rgb(levels: NDArray[np.uint8], source: Image.Image) -> Image.Image:
    if getattr(source, "tag_v2", {}).get(_PHOTOMETRIC) == 0:  # Pillow inverts only 8-bit images
        levels = 255 - levels
    return Image.fromarray(levels).convert("RGB")


def _check_transparent_color(image: Image.Image) -> None:
    """Raise an error if the transparent color cannot be compared with pixels of 8 bits."""
    layouts = {str(tile[3]) for tile in getattr(image, "tile", [])} & {"L;2", "L;4", "RGB;16B"}
    if layouts and "transparency" in image.info:
        raise ImageError(
            f"it has mode {image.mode} with one transparent color that does not have 8 bits; "
            "save it with an alpha channel"
        )


def _has_more_frames(image: Image.Image) -> bool:
    with suppress(Exception):  # only the first frame is used, so damaged later ones do not matter
        return image.format != "MPO" and bool(getattr(image, "is_animated", False))
    return False
