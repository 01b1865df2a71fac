"""Medical pictures: DICOM, as a radiologist's screen would show them.

Stored numbers become what was measured (modality), and that becomes shades by the file's own
window (VOI). Without a window, all numbers that the file could hold are between black and white:
how bright something is never depends on what else is in the picture.
"""

import struct
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cadis._io import is_file
from cadis.errors import CadisError

_SUFFIXES = {".dcm", ".dicom"}
PICTURE_SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"}
"""Files that are named so are pictures of other kinds; they need not be looked into."""

_MAGIC, _AT = b"DICM", 128
_DECODERS = ("gdcm", "pylibjpeg", "openjpeg", "libjpeg", "rle", "jpeg_ls")
_MOST_PIXELS = 178_956_970
"""As with all other pictures."""

_GREY, _PALETTE = ("MONOCHROME1", "MONOCHROME2"), "PALETTE COLOR"
_COLOURS = ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_PARTIAL_420", "YBR_ICT", "YBR_RCT")


class PictureError(ValueError):
    """Why a picture cannot be used; the message goes on after "Skipped it: "."""


def is_dicom(path: Path) -> bool:
    """Return whether a file says that it is DICOM, by its name or, if it has none, within."""
    if path.suffix.lower() in _SUFFIXES:
        return True
    if path.name == "DICOMDIR" or path.suffix.lower() in PICTURE_SUFFIXES or not is_file(path):
        return False
    try:
        with path.open("rb") as file:
            file.seek(_AT)
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def check_dicom_extra() -> None:
    """Refuse DICOM if nothing is installed that reads it."""
    try:
        import_module("pydicom")
    except ImportError:
        raise CadisError("Reading DICOM takes pydicom: pip install 'cadis[medical]'.") from None


def dicom_decoders() -> str:
    """Return what is installed to read DICOM with."""
    version = getattr(import_module("pydicom"), "__version__", "")
    return f"{version} {[name for name in _DECODERS if find_spec(name) is not None]}"


def read_dicom(path: Path) -> tuple[NDArray[np.uint8], bool]:
    """Return the first frame, and whether there are more.

    It has shades of 0 to 255, (height, width) or (height, width, 3).
    """
    from pydicom import dcmread  # noqa: PLC0415 - an extra
    from pydicom.errors import BytesLengthException, InvalidDicomError  # noqa: PLC0415

    try:
        content = dcmread(path)
    except InvalidDicomError:
        raise PictureError("it is not DICOM, though it is named so") from None
    except (BytesLengthException, ValueError, EOFError, struct.error):
        raise PictureError("it is damaged") from None
    kind = str(content.get("PhotometricInterpretation", ""))
    _check(content, kind)
    stored = _first_frame(content)
    if kind == _PALETTE:
        from pydicom.pixels.processing import apply_color_lut  # noqa: PLC0415

        bits = int(content.RedPaletteColorLookupTableDescriptor[2])
        shades = _spread(apply_color_lut(stored, content)[..., :3], 0, 2**bits - 1)
    elif kind in _GREY:
        shades = _shades(stored, content)
    else:
        shades = _spread(stored, 0, 2 ** int(content.BitsStored) - 1)
    animated = int(content.get("NumberOfFrames") or 1) > 1
    return (255 - shades if kind == "MONOCHROME1" else shades), animated


def _check(content: Any, kind: str) -> None:
    """Refuse what is no picture, or one whose numbers have no known colours."""
    if "PixelData" not in content:
        floating = "FloatPixelData" in content or "DoubleFloatPixelData" in content
        raise PictureError(
            "it has pixels of floating numbers, which do not say what is white"
            if floating
            else "it is damaged, or there is no picture in it"
        )
    if kind not in (*_GREY, _PALETTE, *_COLOURS):
        raise PictureError(
            f"it has photometric interpretation {kind or 'unknown'}, which is unusual"
        )
    if int(content.Rows) * int(content.Columns) > _MOST_PIXELS:
        raise PictureError(f"it has more than {_MOST_PIXELS:,} pixels; make it smaller")


def _first_frame(content: Any) -> NDArray[Any]:
    """Return the numbers as stored; colours as red, green and blue."""
    from pydicom.pixels.utils import pixel_array  # noqa: PLC0415

    try:
        found: NDArray[Any] = pixel_array(content, index=0)
    except Exception as error:  # whatever is missing for, or wrong with, a compressed picture
        syntax = content.file_meta.TransferSyntaxUID
        why = " ".join(str(error).split()).rstrip(".")
        raise PictureError(
            f"it is stored as {syntax.name}, which cannot be decoded: {why}"
        ) from None
    return found


def _shades(stored: NDArray[Any], content: Any) -> NDArray[np.uint8]:
    from pydicom.pixels.processing import apply_modality_lut, apply_voi  # noqa: PLC0415

    measured = np.asarray(apply_modality_lut(stored, content), np.float64)
    if content.get("WindowCenter") not in (None, "") and content.get("WindowWidth"):
        return _windowed(measured, content)
    if content.get("VOILUTSequence"):
        entry = content.VOILUTSequence[0]
        looked_up = apply_voi(measured.astype(np.int64), content)
        return _spread(looked_up, 0, 2 ** int(entry.LUTDescriptor[2]) - 1)
    return _spread(measured, *_range(content))


def _windowed(measured: NDArray[np.float64], content: Any) -> NDArray[np.uint8]:
    """Shades by the first of the file's windows (DICOM PS3.3, C.11.2.1.2 and C.11.2.1.3)."""
    names = ("WindowCenter", "WindowWidth")
    centre, width = (float(np.ravel(content[name].value)[0]) for name in names)
    how = str(content.get("VOILUTFunction") or "LINEAR")
    if not width > (0 if how != "LINEAR" else 1 - 1e-9):
        raise PictureError(f"it has a window of width {width:g}")
    if how == "SIGMOID":
        white = 1 / (1 + np.exp(np.clip(-4 * (measured - centre) / width, -700, 700)))
    elif how == "LINEAR_EXACT":
        white = (measured - centre) / width + 0.5
    elif how == "LINEAR":
        white = (measured - (centre - 0.5)) / max(width - 1, 1e-9) + 0.5
    else:
        raise PictureError(f"it has a window of the function {how}, which is unusual")
    return _spread(white, 0, 1)


def _range(content: Any) -> tuple[float, float]:
    """Return the lowest and the highest number that could have been measured."""
    if content.get("ModalityLUTSequence"):
        return 0, 2 ** int(content.ModalityLUTSequence[0].LUTDescriptor[2]) - 1
    bits, signed = int(content.BitsStored), bool(content.PixelRepresentation)
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    slope = float(content.get("RescaleSlope") or 1)
    intercept = float(content.get("RescaleIntercept") or 0)
    ends = (low * slope + intercept, high * slope + intercept)
    return min(ends), max(ends)


def _spread(values: NDArray[Any], black: float, white: float) -> NDArray[np.uint8]:
    share = (np.asarray(values, np.float64) - black) / (white - black)
    return np.rint(np.clip(share, 0, 1) * 255).astype(np.uint8)
