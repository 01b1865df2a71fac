"""Finding the files of published datasets on disk, and checking and reading them."""

import gzip
import hashlib
import io
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from platformdirs import user_cache_path

from cadis._io import is_file, open_regular
from cadis.data.preprocessing import ImagePreprocessing
from cadis.data.published.catalogue import CATALOGUE
from cadis.data.published.formats import FileFormat, PublishedDataset
from cadis.data.samples import Dataset, Samples
from cadis.errors import CadisError

MAX_BYTES = 1 << 28
"""Maximum size of a published file, decompressed; the largest one has 155 MB."""


@dataclass(frozen=True)
class DatasetFiles:
    """Files of a dataset on disk, some of which may be missing."""

    file_format: FileFormat
    paths: dict[str, Path]  # name of each published file -> its path, which may end with .gz

    @property
    def folder(self) -> Path:
        """Folder of the files."""
        return next(iter(self.paths.values())).parent

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(path.stat().st_size for path in self.paths.values())

    def list_missing(self) -> list[str]:
        """Return the names of missing files."""
        return [path.name for path in self.paths.values() if not is_file(path)]


def list_data_folders(data_dir: Path | None = None) -> list[Path]:
    """Return the folders of datasets, in the order in which they are searched."""
    from_environment = os.environ.get("CADIS_DATA")
    folders = [data_dir, Path(from_environment) if from_environment else None]
    return [*filter(None, folders), get_cache_folder()]


def get_cache_folder() -> Path:
    """Return the default folder of downloads and decoded images."""
    return user_cache_path("cadis", appauthor=False)


def get_image_cache_folder() -> Path:
    """Return the folder of decoded images."""
    return get_cache_folder() / "pictures"


def find_dataset(dataset: PublishedDataset, folders: Sequence[Path]) -> DatasetFiles | None:
    """Return the first complete copy of a dataset in any format; None if there is none."""
    for subfolder, files in _list_candidates(dataset, folders):
        if not files.list_missing() and (subfolder != "." or _has_known_content(files)):
            return files
    return None


def describe_missing_files(dataset: PublishedDataset, folders: Sequence[Path]) -> str:
    """Return text that names the missing files of an incomplete copy; "" if there is none."""
    for subfolder, files in _list_candidates(dataset, folders):
        missing = files.list_missing()
        if subfolder != "." and 0 < len(missing) < len(files.paths):
            return f"{files.folder} lacks {', '.join(missing)}"
    return ""


def _list_candidates(
    dataset: PublishedDataset, folders: Sequence[Path]
) -> Iterator[tuple[str, DatasetFiles]]:
    """Yield the usual subfolders of a dataset, each with the expected files."""
    for folder in folders:
        for file_format in dataset.formats:
            for subfolder in file_format.folders:
                base = folder / subfolder
                paths = {name: find_plain_or_gzipped(base / name) for name in file_format.checksums}
                yield subfolder, DatasetFiles(file_format, paths)


def load_published(dataset: PublishedDataset, files: DatasetFiles) -> Dataset:
    """Read a dataset; all files must have the published checksum."""
    parts = (files.file_format.train, files.file_format.test)
    try:
        train, test = (_read_samples(dataset, files, list(names)) for names in parts)
    except CadisError as error:
        remedy = f"or let 'cadis data fetch {dataset.name}' do it."
        raise CadisError(f"{str(error).removesuffix('.')}, {remedy}") from None
    channels, height, width = train.inputs.shape[1:]
    preprocessing = ImagePreprocessing(channels, height, width, dataset.scaling)
    return Dataset(dataset.name, train, test, dataset.classes, preprocessing=preprocessing)


def find_problems(files: DatasetFiles) -> Iterator[str]:
    """Yield one sentence for each file that is damaged or differs from the published file."""
    for name, path in files.paths.items():
        try:
            check_content(read_content(path), files.file_format.checksums[name], path)
        except CadisError as error:
            yield str(error)


def read_content(path: Path) -> bytes:
    """Return the content of a file, decompressed if it is gzipped."""
    try:
        with open_regular(path) as file:
            content: bytes = file.read(MAX_BYTES + 1)
        if content[:2] == b"\x1f\x8b":
            with gzip.open(io.BytesIO(content)) as unzipped:
                content = unzipped.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise CadisError(
                f"{path} has more than {MAX_BYTES:,} bytes, more than any published file; "
                "replace it with the published file."
            )
        return content
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CadisError(
            f"{path} cannot be unzipped ({error}); it is damaged: replace it with the published "
            "file."
        ) from None
    except OSError as error:
        raise CadisError(
            f"{path} cannot be read: {error.strerror}; replace it with the published file."
        ) from None


def check_content(content: bytes, checksum: str, path: Path) -> None:
    """Raise an error if a file does not have the published checksum."""
    if has_checksum(content, checksum):
        return
    for other in CATALOGUE.values():
        for file_format in other.formats:
            for name, other_checksum in file_format.checksums.items():
                if has_checksum(content, other_checksum):
                    raise CadisError(
                        f"{path} contains {name} of {other.name}; replace it with the right file."
                    )
    raise CadisError(
        f"{path} is not the published file of this name (its checksum differs); replace it with "
        "the published file."
    )


def has_checksum(content: bytes, checksum: str) -> bool:
    """Return whether the content has this SHA-256 or MD5 checksum."""
    algorithm = "sha256" if len(checksum) == 64 else "md5"
    return hashlib.new(algorithm, content, usedforsecurity=False).hexdigest() == checksum


def _has_known_content(files: DatasetFiles) -> bool:
    """Return whether the smallest file has the right checksum.

    Its name says little: MNIST and Fashion-MNIST have the same file names.
    """
    name = min(files.paths, key=lambda name: files.paths[name].stat().st_size)
    return has_checksum(read_content(files.paths[name]), files.file_format.checksums[name])


def find_plain_or_gzipped(path: Path) -> Path:
    """Return the path, or the path with ``.gz`` if only the gzipped file exists."""
    zipped = path.with_name(f"{path.name}.gz")
    return zipped if is_file(zipped) and not is_file(path) else path


def _read_samples(dataset: PublishedDataset, files: DatasetFiles, names: list[str]) -> Samples:
    """Read the training set or the test set.

    If a checksum is wrong and the file cannot be read either, the error says why it cannot be read.
    """
    paths = [files.paths[name] for name in names]
    contents = [read_content(path) for path in paths]
    for name, content, path in zip(names, contents, paths, strict=True):
        try:
            check_content(content, files.file_format.checksums[name], path)
        except CadisError:
            if not files.file_format.is_pickle:
                files.file_format.read(contents, paths)
            raise
    images, labels = files.file_format.read(contents, paths)
    return Samples(
        torch.from_numpy(np.require(images, requirements=["C", "W"])),
        torch.from_numpy(labels.astype(np.int64)),
        dataset.scaling,
    )
