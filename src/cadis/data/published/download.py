"""Downloading published datasets from mirrors; only files with the right checksum are kept.

The package ``pooch`` is not used: it tries only one address per file, and verifies only the
compressed file.
"""

import io
import itertools
import os
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from cadis._io import Callbacks, is_disk_full, make_write_error
from cadis.data.published.formats import PublishedDataset
from cadis.data.published.published_files import (
    MAX_BYTES,
    find_plain_or_gzipped,
    has_checksum,
    read_content,
)
from cadis.errors import CadisError

_CHUNK = 1 << 18
_MAX_MEMBERS = 1000
"""Maximum number of members of an archive; the published ones have about ten."""

_TIMEOUT = 30
"""Seconds without a response after which the next mirror is tried."""


class _MirrorError(Exception):
    """Failure of one mirror; the next one is tried."""


def fetch(dataset: PublishedDataset, root: Path, callbacks: Callbacks) -> Path:
    """Download the missing files of a dataset.

    A file is stored only if it is complete and has the right checksum. It is kept even if the
    download of another file fails.

    Args:
        dataset: the dataset to download.
        root: folder of datasets; files are stored in a subfolder.
        callbacks: called with the progress and with warnings.

    Returns:
        Folder of the files.
    """
    file_format = dataset.mirror_format
    folder = root / file_format.folders[0]
    names_by_download = {f"{name}.gz": [name] for name in file_format.checksums}
    if dataset.archive:
        names_by_download = {dataset.archive: list(file_format.checksums)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for download, names in names_by_download.items():
            if not all(_is_complete(folder / name, file_format.checksums) for name in names):
                _try_mirrors(dataset, download, names, folder, callbacks)
    except OSError as error:
        raise make_write_error(folder, error) from None
    return folder


def _list_mirrors(dataset: PublishedDataset) -> list[str]:
    """Return the addresses to try in order; ``$CADIS_MIRROR``, an address or folder, is first."""
    mirror = os.environ.get("CADIS_MIRROR")
    if not mirror:
        return list(dataset.mirrors)
    address = mirror.rstrip("/") if "://" in mirror else Path(mirror).absolute().as_uri()
    return [f"{address}/{dataset.name}", *dataset.mirrors]


def _try_mirrors(
    dataset: PublishedDataset, download: str, names: list[str], folder: Path, callbacks: Callbacks
) -> None:
    failures = []
    for mirror in _list_mirrors(dataset):
        address = f"{mirror}/{download}"
        with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as draft:
            try:
                received = Path(draft) / download
                _download(address, received, callbacks)
                for path in _extract_files(dataset, received, names):
                    if not _is_complete(folder / path.name, dataset.mirror_format.checksums):
                        _store(path, folder, callbacks)
                return
            except _MirrorError as error:
                failures.append(f"{address}: {error}")
    raise CadisError(
        f"{dataset.name} could not be downloaded ({'; '.join(failures)}); try again later, or "
        "get the files elsewhere and name their folder with --data-dir."
    )


def _download(address: str, path: Path, callbacks: Callbacks) -> None:
    """Download one file and report the progress."""
    # These modules are slow to import, and most runs do not download.
    import http.client  # noqa: PLC0415
    import urllib.request  # noqa: PLC0415

    try:
        request = urllib.request.Request(address, headers={"User-Agent": "cadis"})
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
            total, received = int(response.headers.get("Content-Length") or 0), 0
            with path.open("wb") as file:
                while chunk := response.read(_CHUNK):
                    file.write(chunk)
                    received += len(chunk)
                    if received > MAX_BYTES:
                        raise _MirrorError(f"it has more than {MAX_BYTES:,} bytes")
                    callbacks.progress(f"downloading {path.name}", received, total)
    except (OSError, http.client.HTTPException, ValueError) as error:
        if is_disk_full(error):
            raise
        raise _MirrorError(getattr(error, "reason", None) or error or type(error)) from error
    if total and received != total:
        raise _MirrorError(f"it stopped after {received:,} of {total:,} bytes")


def _extract_files(dataset: PublishedDataset, received: Path, names: list[str]) -> Iterator[Path]:
    """Verify the checksums of the wanted files of a download, and yield their paths."""
    checksums = dataset.mirror_format.checksums
    for path in _unpack(received, names) if dataset.archive else [received]:
        try:
            content = read_content(path)
        except CadisError as error:
            raise _MirrorError("it cannot be unzipped") from error
        if not has_checksum(content, checksums[path.name.removesuffix(".gz")]):
            raise _MirrorError("its checksum is wrong")
        yield path


def _unpack(archive: Path, names: list[str]) -> Iterator[Path]:
    """Unpack the wanted files to the folder of the archive, without subfolders."""
    try:
        # read_content limits the size, also of what tarfile reads into memory for a header
        with tarfile.open(fileobj=io.BytesIO(read_content(archive))) as tar:
            first_members = itertools.islice(tar, _MAX_MEMBERS)
            members = {Path(each.name).name: each for each in first_members if each.isfile()}
            for name in names:
                source = tar.extractfile(members[name])
                path = archive.with_name(name)
                path.write_bytes(source.read() if source else b"")
                yield path
    except (tarfile.TarError, CadisError, EOFError, KeyError, OSError, zlib.error) as error:
        if is_disk_full(error):
            raise
        raise _MirrorError("it is not the expected archive") from error


def _store(path: Path, folder: Path, callbacks: Callbacks) -> None:
    """Move a file to a folder; rename an existing file of the same name, gzipped or not."""
    bare = path.name.removesuffix(".gz")
    for name in (bare, f"{bare}.gz"):
        if os.path.lexists(folder / name):
            candidates = (folder / f"{name}.replaced{number or ''}" for number in itertools.count())
            backup = next(path for path in candidates if not os.path.lexists(path))
            (folder / name).rename(backup)
            callbacks.say(
                f"{folder / name} differs from the published file; it was renamed to {backup}."
            )
    path.replace(folder / path.name)


def _is_complete(path: Path, checksums: dict[str, str]) -> bool:
    """Return whether a file, gzipped or not, has the right checksum."""
    bare = path.with_name(path.name.removesuffix(".gz"))
    try:
        return has_checksum(read_content(find_plain_or_gzipped(bare)), checksums[bare.name])
    except CadisError:  # missing or damaged
        return False
