"""Fetching published datasets: mirrors, checksums, and nothing half-written.

Not by ``pooch``: it tries one address a file, and knows no checksum but that of the packed file.
"""

import itertools
import os
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from cadis._io import Callbacks, is_full, unwritable
from cadis.data.published.formats import Published
from cadis.data.published.published_files import gzipped_or_not, has_digest, read_content
from cadis.errors import CadisError

_CHUNK = 1 << 18
_TIMEOUT = 30
"""Seconds without a sign of life after which a mirror is given up."""


class _MirrorError(Exception):
    """A mirror did not deliver; the next one may."""


def fetch(published: Published, root: Path, callbacks: Callbacks) -> Path:
    """Download what is missing of a dataset into a folder of datasets; return where it lies.

    A file is put in place when it is whole and its checksum is right, and stays there whatever
    becomes of the others.
    """
    form = published.forms[0]
    folder = root / form.folders[0]
    downloads = {f"{name}.gz": [name] for name in form.files}
    if published.archive:
        downloads = {published.archive: list(form.files)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for download, names in downloads.items():
            if not all(_is_there(folder / name, form.files) for name in names):
                _from_some_mirror(published, download, names, folder, callbacks)
    except OSError as error:
        raise unwritable(folder, error) from None
    return folder


def _mirrors_of(published: Published) -> list[str]:
    """Return where to ask, in this order; ``$CADIS_MIRROR`` names an address or folder first."""
    own = os.environ.get("CADIS_MIRROR")
    if not own:
        return list(published.mirrors)
    address = own.rstrip("/") if "://" in own else Path(own).absolute().as_uri()
    return [f"{address}/{published.name}", *published.mirrors]


def _from_some_mirror(
    published: Published, download: str, names: list[str], folder: Path, callbacks: Callbacks
) -> None:
    failures = []
    for mirror in _mirrors_of(published):
        address = f"{mirror}/{download}"
        with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as draft:
            try:
                received = Path(draft) / download
                _receive(address, received, callbacks)
                for path in _checked_files(published, received, names):
                    if not _is_there(folder / path.name, published.forms[0].files):
                        _put(path, folder, callbacks)
                return
            except _MirrorError as error:
                failures.append(f"{address}: {error}")
    raise CadisError(
        f"{published.name} could not be downloaded ({'; '.join(failures)}); try again later, or "
        "get the files elsewhere and name their folder by --data-dir."
    )


def _receive(address: str, path: Path, callbacks: Callbacks) -> None:
    """Download one file, with its progress."""
    # Only now: they take a while to import, and most runs have their data.
    import http.client  # noqa: PLC0415
    import urllib.request  # noqa: PLC0415

    try:
        request = urllib.request.Request(address, headers={"User-Agent": "cadis"})
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:
            total, received = int(answer.headers.get("Content-Length") or 0), 0
            with path.open("wb") as file:
                while chunk := answer.read(_CHUNK):
                    file.write(chunk)
                    received += len(chunk)
                    callbacks.progress(f"downloading {path.name}", received, total)
    except (OSError, http.client.HTTPException, ValueError) as error:
        if is_full(error):
            raise
        raise _MirrorError(getattr(error, "reason", None) or error or type(error)) from error
    if total and received != total:
        raise _MirrorError(f"it broke off after {received:,} of {total:,} bytes")


def _checked_files(published: Published, received: Path, names: list[str]) -> Iterator[Path]:
    """Yield the wanted files in what was received, each with the right content."""
    digests = published.forms[0].files
    for path in _unpacked(received, names) if published.archive else [received]:
        try:
            content = read_content(path)
        except CadisError as error:
            raise _MirrorError("it cannot be unzipped") from error
        if not has_digest(content, digests[path.name.removesuffix(".gz")]):
            raise _MirrorError("its checksum is wrong")
        yield path


def _unpacked(archive: Path, names: list[str]) -> Iterator[Path]:
    """Unpack the wanted files, by their bare names, beside the archive."""
    try:
        with tarfile.open(archive) as tar:
            members = {Path(member.name).name: member for member in tar if member.isfile()}
            for name in names:
                source = tar.extractfile(members[name])
                path = archive.with_name(name)
                path.write_bytes(source.read() if source else b"")
                yield path
    except (tarfile.TarError, EOFError, KeyError, OSError, zlib.error) as error:
        if is_full(error):
            raise
        raise _MirrorError("it is not the archive that it should be") from error


def _put(path: Path, folder: Path, callbacks: Callbacks) -> None:
    """Put a file in place. What lies there in its stead, gzipped or not, is kept beside it."""
    bare = path.name.removesuffix(".gz")
    for name in (bare, f"{bare}.gz"):
        if os.path.lexists(folder / name):
            free = (folder / f"{name}.replaced{number or ''}" for number in itertools.count())
            aside = next(path for path in free if not os.path.lexists(path))
            (folder / name).rename(aside)
            callbacks.say(
                f"{folder / name} was in the way of the published file; it is now {aside}."
            )
    path.replace(folder / path.name)


def _is_there(path: Path, digests: dict[str, str]) -> bool:
    """Return whether a file or its gzipped twin has the right content."""
    bare = path.with_name(path.name.removesuffix(".gz"))
    try:
        return has_digest(read_content(gzipped_or_not(bare)), digests[bare.name])
    except CadisError:  # missing or damaged
        return False
