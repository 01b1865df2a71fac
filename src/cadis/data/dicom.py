"""Reading DICOM images with the brightness that a viewer would show.

The modality lookup table (LUT) of the file converts stored values to measured values. The VOI
(values of interest) transformation, a window or another table, converts measured values to gray
levels. Without it, the lowest value that the file can store is black and the highest is white, so
the brightness of a value never depends on the rest of the image.
"""

import struct
import zlib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cadis._io import is_file, open_regular
from cadis.errors import CadisError

_SUFFIXES = {".dcm", ".dicom"}
IMAGE_SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"}
"""Suffixes of other image formats; the content of these files is not checked for DICOM."""

_MAGIC, _MAGIC_OFFSET = b"DICM", 128
_DECODERS = ("gdcm", "pylibjpeg", "openjpeg", "libjpeg", "rle", "jpeg_ls")
_MAX_PIXELS = 178_956_970
"""The limit of Pillow, which applies to all other images."""

_GRAY, _PALETTE = ("MONOCHROME1", "MONOCHROME2"), "PALETTE COLOR"
_COLORS = ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_PARTIAL_420", "YBR_ICT", "YBR_RCT")

_BLOCK = 1 << 20
"""Number of bytes that are decompressed at once."""

_MAX_DEFLATED = 1 << 30
"""Maximum number of bytes to which the elements of a file may expand."""


class ImageError(ValueError):
    """Reason why an image cannot be used, to be shown after "Skipped FILE: "."""


def is_dicom(path: Path) -> bool:
    """Return whether a file is DICOM; without a known suffix, its content is checked."""
    if path.suffix.lower() in _SUFFIXES:
        return True
    if path.name == "DICOMDIR" or path.suffix.lower() in IMAGE_SUFFIXES or not is_file(path):
        return False
    try:
        with open_regular(path) as file:
            file.seek(_MAGIC_OFFSET)
            return bool(file.read(len(_MAGIC)) == _MAGIC)
    except OSError:
        return False


def check_dicom_extra() -> None:
    """Raise an error if pydicom is not installed."""
    try:
        import_module("pydicom")
    except ImportError:
        raise CadisError("Reading DICOM needs pydicom: pip install 'cadis[medical]'.") from None


def describe_decoders() -> str:
    """Return the version of pydicom and the installed decoders, as part of a cache key."""
    version = getattr(import_module("pydicom"), "__version__", "")
    return f"{version} {[name for name in _DECODERS if find_spec(name) is not None]}"


def read_dicom(path: Path) -> tuple[NDArray[np.uint8], bool]:
    """Read the first frame of a DICOM file.

    Returns:
        Gray levels from 0 to 255, (height, width), or colors, (height, width, 3); and whether
        the file has more frames.
    """
    from pydicom import dcmread  # noqa: PLC0415 - an extra
    from pydicom.errors import BytesLengthException, InvalidDicomError  # noqa: PLC0415

    try:
        _check_deflated(path)
        content = dcmread(path)
    except InvalidDicomError:
        raise ImageError("it is not DICOM, although its name says so") from None
    except ImageError:
        raise
    except (BytesLengthException, ValueError, EOFError, struct.error, zlib.error):
        raise ImageError("it is damaged") from None
    color_model = str(content.get("PhotometricInterpretation", ""))
    _check(content, color_model)
    stored = _read_first_frame(content)
    if color_model == _PALETTE:
        from pydicom.pixels.processing import apply_color_lut  # noqa: PLC0415

        bits = int(content.RedPaletteColorLookupTableDescriptor[2])
        levels = _to_uint8(apply_color_lut(stored, content)[..., :3], 0, 2**bits - 1)
    elif color_model in _GRAY:
        levels = _compute_gray_levels(stored, content)
    else:
        levels = _to_uint8(stored, 0, 2 ** int(content.BitsStored) - 1)
    has_more_frames = int(content.get("NumberOfFrames") or 1) > 1
    return (255 - levels if color_model == "MONOCHROME1" else levels), has_more_frames


def _check_deflated(path: Path) -> None:
    """Raise an error if the compressed elements of a file are too large; pydicom has no limit."""
    from pydicom.filereader import _read_file_meta_info  # noqa: PLC0415 - leaves the position
    from pydicom.uid import DeflatedExplicitVRLittleEndian  # noqa: PLC0415

    with path.open("rb") as file:
        if file.read(_MAGIC_OFFSET + len(_MAGIC))[_MAGIC_OFFSET:] != _MAGIC:
            return
        syntax = _read_file_meta_info(file).get("TransferSyntaxUID")
        if syntax != DeflatedExplicitVRLittleEndian:
            return
        inflater, size = zlib.decompressobj(-zlib.MAX_WBITS), 0
        while block := inflater.unconsumed_tail or file.read(_BLOCK):
            size += len(inflater.decompress(block, _BLOCK))
            if size > _MAX_DEFLATED:
                raise ImageError(f"it expands to more than {_MAX_DEFLATED:,} bytes")


def _check(content: Any, color_model: str) -> None:
    """Raise an error if there is no image, or if its color model is not supported."""
    if "PixelData" not in content:
        is_float = "FloatPixelData" in content or "DoubleFloatPixelData" in content
        raise ImageError(
            "it has floating-point pixels, so the value of white is unknown"
            if is_float
            else "it is damaged, or there is no image in it"
        )
    if color_model not in (*_GRAY, _PALETTE, *_COLORS):
        raise ImageError(
            f"it has photometric interpretation {color_model or 'unknown'}, which is not supported"
        )
    if int(content.Rows) * int(content.Columns) > _MAX_PIXELS:
        raise ImageError(f"it has more than {_MAX_PIXELS:,} pixels; make it smaller")


def _read_first_frame(content: Any) -> NDArray[Any]:
    """Return the stored values, (height, width), or colors converted to RGB."""
    from pydicom.pixels.utils import pixel_array  # noqa: PLC0415

    try:
        frame: NDArray[Any] = pixel_array(content, index=0)
    except Exception as error:  # a missing decoder or damaged data may raise any exception
        syntax = content.file_meta.TransferSyntaxUID
        reason = " ".join(str(error).split()).rstrip(".")
        raise ImageError(
            f"it is stored as {syntax.name}, which cannot be decoded: {reason}"
        ) from None
    return frame


def _compute_gray_levels(stored: NDArray[Any], content: Any) -> NDArray[np.uint8]:
    from pydicom.pixels.processing import apply_modality_lut, apply_voi  # noqa: PLC0415

    measured = np.asarray(apply_modality_lut(stored, content), np.float64)
    if content.get("WindowCenter") not in (None, "") and content.get("WindowWidth"):
        return _apply_window(measured, content)
    if content.get("VOILUTSequence"):
        entry = content.VOILUTSequence[0]
        values = apply_voi(measured.astype(np.int64), content)
        return _to_uint8(values, 0, 2 ** int(entry.LUTDescriptor[2]) - 1)
    return _to_uint8(measured, *_get_measured_range(content))


def _apply_window(measured: NDArray[np.float64], content: Any) -> NDArray[np.uint8]:
    """Apply the first window of the file (DICOM PS3.3, C.11.2.1.2 and C.11.2.1.3)."""
    names = ("WindowCenter", "WindowWidth")
    center, width = (float(np.ravel(content[name].value)[0]) for name in names)
    function = str(content.get("VOILUTFunction") or "LINEAR")
    if not width > (0 if function != "LINEAR" else 1 - 1e-9):
        raise ImageError(f"it has a window of width {width:g}")
    if function == "SIGMOID":
        white = 1 / (1 + np.exp(np.clip(-4 * (measured - center) / width, -700, 700)))
    elif function == "LINEAR_EXACT":
        white = (measured - center) / width + 0.5
    elif function == "LINEAR":
        white = (measured - (center - 0.5)) / max(width - 1, 1e-9) + 0.5
    else:
        raise ImageError(f"it has a window with the function {function}, which is not supported")
    return _to_uint8(white, 0, 1)


def _get_measured_range(content: Any) -> tuple[float, float]:
    """Return the lowest and the highest measured value that the file can store."""
    if content.get("ModalityLUTSequence"):
        return 0, 2 ** int(content.ModalityLUTSequence[0].LUTDescriptor[2]) - 1
    bits, is_signed = int(content.BitsStored), bool(content.PixelRepresentation)
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else (0, 2**bits - 1)
    factor = float(content.get("RescaleSlope") or 1)
    intercept = float(content.get("RescaleIntercept") or 0)
    ends = (low * factor + intercept, high * factor + intercept)
    return min(ends), max(ends)


def _to_uint8(values: NDArray[Any], black: float, white: float) -> NDArray[np.uint8]:
    """Scale values linearly so that black is 0 and white is 255."""
    fractions = (np.asarray(values, np.float64) - black) / (white - black)
    return np.rint(np.clip(fractions, 0, 1) * 255).astype(np.uint8)
