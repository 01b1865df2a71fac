"""One picture of a user as RGB of 8 bits.

How its numbers are scaled depends on what the file says of itself, never on what it shows, so that
pictures stay comparable with each other. What the file leaves open is refused, not guessed.
"""

import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from cadis._io import shown
from cadis.data.dicom import PictureError, is_dicom, read_dicom

_PLAIN = {"1", "L", "P", "RGB", "RGBX", "CMYK", "YCbCr", "LAB", "HSV"}
"""Modes of 8 bits or fewer that Pillow converts without loss of range."""

_STRAIGHT = {"La": "LA", "RGBa": "RGBA"}
"""Modes whose colours are multiplied by their opacity, and the same without."""

_BITS_PER_SAMPLE, _PHOTOMETRIC = 258, 262
"""Tags of TIFF: how many bits a number has, and whether 0 is black (1) or white (0)."""


@dataclass(frozen=True)
class Frame:
    """The first frame of a picture, which for most is the picture."""

    pixels: NDArray[np.uint8]  # red, green and blue, (size, size, 3)
    animated: bool  # whether there are more frames


def read_picture(path: Path, size: int) -> Frame:
    """Read the upright picture in colour, squeezed into a square."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # reading a pipe might never end
            raise PictureError("it is not an ordinary file")
        if is_dicom(path):
            shades, animated = read_dicom(path)
            upright = Image.fromarray(shades).convert("RGB")
        else:
            with Image.open(path) as image:
                _check_transparent_colour(image)
                image.draft("RGB", (2 * size, 2 * size))  # a large JPEG need not be decoded whole
                upright = to_rgb(ImageOps.exif_transpose(image), image)
                animated = _has_more_frames(image)
        return Frame(np.asarray(upright.resize((size, size), Image.Resampling.BILINEAR)), animated)
    except PictureError:
        raise
    except UnidentifiedImageError:
        raise PictureError("it is not a picture that can be read") from None
    except Image.DecompressionBombError:
        most = 2 * (Image.MAX_IMAGE_PIXELS or 0)
        raise PictureError(f"it has more than {most:,} pixels; make it smaller") from None
    except Exception as error:  # whatever a broken file may raise
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise PictureError(shown(" ".join(why.split()).rstrip("."))) from error


def to_rgb(image: Image.Image, source: Image.Image) -> Image.Image:
    """Return the colours of a picture; what is transparent is on black.

    ``source`` is the picture as it was opened, with its format and tags.
    """
    if image.mode.split(";")[0] == "I":
        return _grey(_from_whole_numbers(image, source), source)
    if image.mode == "F":
        return _grey(_from_fractions(np.asarray(image)), source)
    if image.has_transparency_data:
        # Colours of transparent pixels are whatever a program left there: nobody has seen them.
        opaque = Image.new("RGB", image.size)
        colours = image.convert(_STRAIGHT.get(image.mode, image.mode)).convert("RGBA")
        opaque.paste(colours, mask=colours.getchannel("A"))
        return opaque
    if image.mode in _PLAIN:
        return image.convert("RGB")
    raise PictureError(f"it has mode {image.mode}, which has no known colours; save it as RGB")


def _from_whole_numbers(image: Image.Image, source: Image.Image) -> NDArray[np.uint8]:
    """Numbers of 16 bits, or of 12 if the file says so, scaled to 0 to 255."""
    if image.mode == "I" and source.format not in ("PNG", "PPM"):  # these have 16 bits at most
        raise PictureError(
            "it has mode I, whole numbers with a sign or of 32 bits, which do not say what is "
            "white; save it with 8 bits, or with 16 and no sign"
        )
    values = np.asarray(image).astype(np.uint32)
    bits = getattr(source, "tag_v2", {}).get(_BITS_PER_SAMPLE)
    white = 4095 if bits == (12,) else 65535
    shades = (2 * 255 * values + white) // (2 * white)  # rounded
    if "transparency" in image.info:
        shades[values == image.info["transparency"]] = 0
    return shades.astype(np.uint8)


def _from_fractions(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Fractions of white scaled to 0 to 255."""
    outside = values[~((values >= 0) & (values <= 1))]  # NaN is outside too
    if outside.size:
        raise PictureError(
            "it has mode F, fractions from 0 (black) to 1 (white), but has the value "
            f"{outside[0]:g}; divide its values by that of white"
        )
    return np.rint(values * 255).astype(np.uint8)


def _grey(shades: NDArray[np.uint8], source: Image.Image) -> Image.Image:
    if getattr(source, "tag_v2", {}).get(_PHOTOMETRIC) == 0:  # Pillow sees to it with 8 bits only
        shades = 255 - shades
    return Image.fromarray(shades).convert("RGB")


def _check_transparent_colour(image: Image.Image) -> None:
    """Refuse a transparent colour that cannot be compared with pixels once these have 8 bits."""
    packed = {str(tile[3]) for tile in getattr(image, "tile", [])} & {"L;2", "L;4", "RGB;16B"}
    if packed and "transparency" in image.info:
        raise PictureError(
            f"it has mode {image.mode} with one transparent colour that does not have 8 bits; "
            "save it with an alpha channel"
        )


def _has_more_frames(image: Image.Image) -> bool:
    with suppress(Exception):  # the first frame was read: broken ones after it do no harm
        return image.format != "MPO" and bool(getattr(image, "is_animated", False))
    return False
