"""Tests of reading DICOM, with files of four pixels."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cadis._io import Callbacks
from cadis.data import load
from cadis.data.dicom import ImageError, is_dicom
from cadis.data.image_reading import read_image
from cadis.errors import CadisError

pydicom = pytest.importorskip("pydicom")


def write(
    path: Path, stored: Any, color_model: str = "MONOCHROME2", bits: int = 12, **tags: Any
) -> Path:
    """Write a DICOM file with these stored values."""
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid

    pixels: NDArray[Any] = np.asarray(stored)
    content = Dataset()
    content.file_meta = FileMetaDataset()
    content.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    content.file_meta.MediaStorageSOPClassUID = SecondaryCaptureImageStorage
    content.file_meta.MediaStorageSOPInstanceUID = generate_uid()
    content.SOPClassUID = SecondaryCaptureImageStorage
    content.PhotometricInterpretation = color_model
    frames = tags.pop("frames", None)
    shape = pixels.shape[1:] if frames else pixels.shape
    content.Rows, content.Columns = shape[:2]
    content.SamplesPerPixel = shape[2] if len(shape) == 3 else 1
    if content.SamplesPerPixel > 1:
        content.PlanarConfiguration = 0
    if frames:
        content.NumberOfFrames = frames
    content.BitsAllocated, content.BitsStored = 8 * pixels.dtype.itemsize, bits
    content.HighBit, content.PixelRepresentation = bits - 1, int(pixels.dtype.kind == "i")
    for name, value in tags.items():
        setattr(content, name, value)
    content.PixelData = pixels.tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    content.save_as(path, enforce_file_format=True)
    return path


def read_levels(path: Path) -> list[list[int]]:
    """Return the gray levels of an image of 2 x 2 pixels."""
    frame = read_image(path, 2).pixels
    assert (frame == frame[..., :1]).all()
    return frame[..., 0].tolist()  # type: ignore[no-any-return]


STORED = np.array([[0, 1000], [1024, 4095]], np.uint16)


ALL_BITS = [[0, round(1000 / 4095 * 255)], [round(1024 / 4095 * 255), 255]]
TO_HOUNSFIELD = {"RescaleIntercept": "-1024", "RescaleSlope": "1"}  # to -1024, -24, 0 and 3071
IN_WINDOW = [[0, round((-63.5 / 399 + 0.5) * 255)], [round((-39.5 / 399 + 0.5) * 255), 255]]
WINDOW = {"WindowCenter": "1000", "WindowWidth": "400"}


@pytest.mark.parametrize(
    ("stored", "tags", "expected"),
    [
        (STORED, {}, ALL_BITS),  # without a window, all bits are mapped to black and white
        (STORED, {"RescaleSlope": "2", "RescaleIntercept": "-1024"}, ALL_BITS),
        (
            STORED,
            {"color_model": "MONOCHROME1"},
            [[255 - level for level in row] for row in ALL_BITS],
        ),
        (np.array([[-2048, 0], [1, 2047]], np.int16), {}, [[0, 128], [128, 255]]),
        # The window is 40 +- 200 of the measured values; the first of several windows is used.
        (STORED, TO_HOUNSFIELD | {"WindowCenter": "40", "WindowWidth": "400"}, IN_WINDOW),
        (
            STORED,
            TO_HOUNSFIELD | {"WindowCenter": ["40", "600"], "WindowWidth": ["400", "2000"]},
            IN_WINDOW,
        ),
        (
            STORED,
            WINDOW | {"VOILUTFunction": "LINEAR_EXACT"},
            [[0, 128], [round((24 / 400 + 0.5) * 255), 255]],
        ),
        (
            STORED,
            WINDOW | {"VOILUTFunction": "SIGMOID"},
            [[0, 128], [round(255 / (1 + np.exp(-4 * 24 / 400))), 255]],
        ),
    ],
)
def test_gray_levels_of_stored_values(
    stored: NDArray[Any], tags: dict[str, Any], expected: list[list[int]], tmp_path: Path
) -> None:
    assert read_levels(write(tmp_path / "x.dcm", stored, **tags)) == expected


@pytest.mark.parametrize("color_model", ["RGB", "YBR_FULL"])
def test_colors_are_converted_to_rgb(color_model: str, tmp_path: Path) -> None:
    red = [76, 85, 255] if color_model == "YBR_FULL" else [255, 0, 0]
    stored = np.tile(np.array(red, np.uint8), (2, 2, 1))
    pixels = read_image(write(tmp_path / "x.dcm", stored, color_model, 8), 2).pixels
    assert np.abs(pixels.astype(int) - [255, 0, 0]).max() <= 2


def test_first_of_several_frames_is_read(tmp_path: Path) -> None:
    stored = np.stack([STORED, np.zeros_like(STORED)])
    path = write(tmp_path / "x.dcm", stored, frames=2)
    assert read_levels(path)[1][1] == 255
    assert read_image(path, 2).is_animated


@pytest.mark.parametrize(
    ("tags", "sentence"),
    [
        ({"color_model": "HSV"}, "photometric interpretation HSV, which is not supported"),
        ({"WindowCenter": "1", "WindowWidth": "-3"}, "window of width -3"),
        ({"WindowCenter": "1", "WindowWidth": "9", "VOILUTFunction": "CURVE"}, "function CURVE"),
    ],
)
def test_unsupported_tags_are_rejected(tags: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=sentence):
        read_image(write(tmp_path / "x.dcm", STORED, **tags), 2)


def test_undecodable_files_are_rejected(tmp_path: Path) -> None:
    path = write(tmp_path / "x.dcm", STORED)
    content = pydicom.dcmread(path)
    content.file_meta.TransferSyntaxUID = pydicom.uid.JPEG2000Lossless
    content.PixelData = pydicom.encaps.encapsulate([b"not JPEG 2000"])
    content["PixelData"].VR = "OB"
    content.save_as(path, enforce_file_format=True)
    with pytest.raises(ImageError, match=r"stored as JPEG 2000.*cannot be decoded"):
        read_image(path, 2)
    del content.PixelData
    content.save_as(path, enforce_file_format=True)
    with pytest.raises(ImageError, match="it is damaged, or there is no image in it"):
        read_image(path, 2)
    path.write_bytes(b"nothing")
    with pytest.raises(ImageError, match="it is not DICOM, although its name says so"):
        read_image(path, 2)


@pytest.mark.filterwarnings("ignore")  # warnings of pydicom
def test_truncated_file_is_damaged(tmp_path: Path) -> None:
    path = write(tmp_path / "x.dcm", STORED)
    content = path.read_bytes()
    for length in range(132, len(content) - STORED.nbytes - 8):  # from the signature to the pixels
        path.write_bytes(content[:length])
        with pytest.raises(ImageError, match="it is damaged"):
            read_image(path, 2)


def write_folder(folder: Path) -> Path:
    """Write images of two clients, named as hospitals name them."""
    for site in ("north", "south"):
        for number in range(10):
            label = ("ill", "well")[number % 2]
            name = f"1.2.840.{number}" if site == "north" else f"IM{number}"
            write(folder / site / label / name, STORED + number)
        (folder / site / "README").write_text("not an image")
    return folder


def test_files_without_a_suffix_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    messages: list[str] = []
    folder = write_folder(tmp_path / "in")
    data = load(f"images:{folder}", image_size=8, callbacks=Callbacks(say=messages.append))
    assert list(data.client_indices) == ["north", "south"]
    assert len(data.train) + len(data.test) == 20
    assert any("not images: 2, such as" in message for message in messages)
    assert not is_dicom(folder / "north" / "README")


def test_missing_pydicom_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_folder(tmp_path / "in")
    monkeypatch.setitem(sys.modules, "pydicom", None)
    with pytest.raises(CadisError, match=r"pip install 'cadis\[medical\]'"):
        load(f"images:{folder}", image_size=8)
