"""Finding the files of published datasets on disk, and checking them."""

import gzip
import hashlib
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from platformdirs import user_cache_path

from cadis._io import is_file
from cadis.data.examples import Dataset, Examples
from cadis.data.preprocessing import PicturePreprocessing
from cadis.data.published.catalogue import CATALOGUE
from cadis.data.published.formats import Form, Published
from cadis.errors import CadisError


@dataclass(frozen=True)
class Found:
    """A dataset on disk."""

    form: Form  # the way in which it was published
    paths: dict[str, Path]  # its files by their published names, gzipped or not

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return next(iter(self.paths.values())).parent

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(path.stat().st_size for path in self.paths.values())

    def missing(self) -> list[str]:
        """Return the names of files that are not there."""
        return [path.name for path in self.paths.values() if not is_file(path)]


def roots(data_dir: Path | None = None) -> list[Path]:
    """Return folders of datasets, in the order in which they are searched."""
    named = os.environ.get("CADIS_DATA")
    return [*filter(None, [data_dir, Path(named) if named else None]), cache_folder()]


def cache_folder() -> Path:
    """Return where downloads and decoded pictures are kept by default."""
    return user_cache_path("cadis", appauthor=False)


def picture_cache(kept: bool = True) -> Path | None:
    """Return where decoded pictures are kept, if they are."""
    return cache_folder() / "pictures" if kept else None


def find(published: Published, places: Sequence[Path]) -> Found | None:
    """Return the first complete copy, in whichever form; None if there is none."""
    for folder, copy in _possible_copies(published, places):
        if not copy.missing() and (folder != "." or _is_it(copy)):
            return copy
    return None


def missing_files(published: Published, places: Sequence[Path]) -> str:
    """Say what is missing of a dataset of which some files were found; "" if there are none."""
    for folder, copy in _possible_copies(published, places):
        missing = copy.missing()
        if folder != "." and 0 < len(missing) < len(copy.paths):
            return f"{copy.folder} lacks {', '.join(missing)}"
    return ""


def _possible_copies(published: Published, places: Sequence[Path]) -> Iterator[tuple[str, Found]]:
    """Yield where a dataset may lie, in whichever form, with the folder within the place."""
    for root in places:
        for form in published.forms:
            for folder in form.folders:
                paths = {name: gzipped_or_not(root / folder / name) for name in form.files}
                yield folder, Found(form, paths)


def load_published(published: Published, found: Found) -> Dataset:
    """Read a dataset; every file must contain what was published."""
    sets = (found.form.train, found.form.test)
    try:
        train, test = (_examples(published, found, list(files)) for files in sets)
    except CadisError as error:
        remedy = f"or let 'cadis data fetch {published.name}' do it."
        raise CadisError(f"{str(error).removesuffix('.')}, {remedy}") from None
    channels, height, width = train.inputs.shape[1:]
    how = PicturePreprocessing(channels, height, width, published.scaling)
    return Dataset(published.name, train, test, published.classes, preprocessing=how)


def problems(found: Found) -> Iterator[str]:
    """Yield what is wrong with the files, one sentence each."""
    for name, path in found.paths.items():
        try:
            check_content(read_content(path), found.form.files[name], path)
        except CadisError as error:
            yield str(error)


def read_content(path: Path) -> bytes:
    """Return a file's bytes, unzipped if need be."""
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CadisError(
            f"{path} cannot be unzipped ({error}); it is damaged: put the published file in its "
            "place."
        ) from None
    except OSError as error:
        raise CadisError(f"{path} cannot be read: {error.strerror}.") from None


def check_content(content: bytes, digest: str, path: Path) -> None:
    """Refuse a file that does not contain what was published under its name."""
    if has_digest(content, digest):
        return
    for other in CATALOGUE.values():
        for form in other.forms:
            for name, published in form.files.items():
                if has_digest(content, published):
                    raise CadisError(
                        f"{path} contains {name} of {other.name}; put the right file in its place."
                    )
    raise CadisError(
        f"{path} does not contain what was published under its name (its checksum differs); "
        "put the published file in its place."
    )


def has_digest(content: bytes, digest: str) -> bool:
    """Return whether this is the SHA-256, or the MD5, of a content."""
    kind = "sha256" if len(digest) == 64 else "md5"
    return hashlib.new(kind, content, usedforsecurity=False).hexdigest() == digest


def _is_it(found: Found) -> bool:
    """Whether files whose folder says nothing are this dataset's: several share their names."""
    name = min(found.paths, key=lambda name: found.paths[name].stat().st_size)
    return has_digest(read_content(found.paths[name]), found.form.files[name])


def gzipped_or_not(path: Path) -> Path:
    """Return the file itself, or the gzipped one if there is only that."""
    zipped = path.with_name(f"{path.name}.gz")
    return zipped if is_file(zipped) and not is_file(path) else path


def _examples(published: Published, found: Found, names: list[str]) -> Examples:
    """Read one set. If a checksum is wrong, what the file's structure shows is said first."""
    paths = [found.paths[name] for name in names]
    contents = [read_content(path) for path in paths]
    for name, content, path in zip(names, contents, paths, strict=True):
        try:
            check_content(content, found.form.files[name], path)
        except CadisError:
            if not found.form.pickled:
                found.form.read(contents, paths)
            raise
    pictures, labels = found.form.read(contents, paths)
    return Examples(
        torch.from_numpy(np.require(pictures, requirements=["C", "W"])),
        torch.from_numpy(labels.astype(np.int64)),
        published.scaling,
    )
