"""Read and write files without following links and without waiting for pipes.

A folder that you received from a stranger may contain symbolic links to your own files, files
that are hard links, or pipes in place of files. So everything that cadis writes goes through these
functions. They check each folder from the folder of the run down to the file, and refuse a link.
Links above the folder of the run are your own, such as ``~/data`` to another disk, and are allowed.
"""

import errno
import os
import stat
from pathlib import Path
from typing import IO, Any

from cadis.errors import CadisError

_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)
_PRIVATE = 0o700
"""Mode of a folder that only its owner can read."""
_NOT_REGULAR = "it is not a regular file"


def has_name(path: Path) -> bool:
    """Return whether the folder has an entry of this name, even a link to a missing file."""
    return os.path.lexists(path)


def check_output(path: Path, root: Path | None = None) -> None:
    """Raise an error if a file or folder cannot be written without following a link.

    Args:
        path: the file or folder; it may be missing.
        root: the outermost folder that is checked; by default only ``path`` itself is.
    """
    for part in _list_parts(path, path if root is None else root):
        try:
            mode = part.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        if stat.S_ISLNK(mode) or _is_junction(part):
            raise CadisError(
                f"{part} is a link to {part.readlink()}, and cadis does not write through links; "
                "give the path of the file or folder itself, or remove the link."
            )
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise CadisError(f"{part} cannot be written: {_NOT_REGULAR}; remove it.")


def open_regular(path: Path, mode: str = "rb", **options: Any) -> IO[Any]:
    """Open a regular file for reading; raise an OSError for a pipe, a device and the like.

    Opening a pipe without this check would wait until another process writes to it.
    """
    return open(path, mode, opener=_open_regular, **options)


def read_regular(path: Path) -> bytes:
    """Return the content of a regular file."""
    with open_regular(path) as file:
        content: bytes = file.read()
    return content


def open_for_append(path: Path) -> IO[bytes]:
    """Open a file for appending; create it if it is missing.

    A hard link is refused, because the user's other name of the file would get the text too.
    """
    check_output(path)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | _NO_FOLLOW | _NO_WAIT
    descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0), 0o666)
    try:
        check_single_name(path, descriptor)
        return os.fdopen(descriptor, "ab")
    except BaseException:
        os.close(descriptor)
        raise


def check_single_name(path: Path, descriptor: int | None = None) -> None:
    """Raise an error if an existing file has a second name, since both would be changed."""
    status = path.lstat() if descriptor is None else os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, _NOT_REGULAR, str(path))
    if status.st_nlink > 1:
        raise CadisError(
            f"{path} is a hard link, and the other names of the file would be changed too; replace "
            "it with a copy."
        )


def get_draft_path(path: Path) -> Path:
    """Return the path of the draft of a file, which is written first and then renamed."""
    return path.with_name(f".{path.name}.draft")


def write_draft(path: Path, content: bytes, root: Path | None = None) -> Path:
    """Write the draft of ``path`` and flush it to the disk; return its path.

    An old draft is deleted first, so that a link of its name is not followed.

    Args:
        path: the file that the draft will replace.
        content: the new content.
        root: as for :func:`check_output`.
    """
    check_output(path, root)
    draft = get_draft_path(path)
    draft.unlink(missing_ok=True)
    with draft.open("xb") as file:
        file.write(content)
        sync_file(file)
    return draft


def replace_file(path: Path, content: bytes, root: Path | None = None) -> None:
    """Replace a file atomically. After a power loss it may still be the old file."""
    try:
        write_draft(path, content, root).replace(path)
    except OSError:  # such as a full disk
        get_draft_path(path).unlink(missing_ok=True)
        raise


def replace_text(path: Path, text: str, root: Path | None = None) -> None:
    """Replace a text file atomically."""
    replace_file(path, text.encode(), root)


def sync_file(file: IO[bytes]) -> None:
    """Flush the content of a file to the disk."""
    file.flush()
    os.fsync(file.fileno())


def make_private_folder(folder: Path, root: Path | None = None) -> list[Path]:
    """Create a folder and its missing parents; return those that were created, outermost first.

    Only their owner can read the new folders, whatever the umask is. A folder that exists already
    is not changed.

    Args:
        folder: the folder.
        root: as for :func:`check_output`.
    """
    check_output(folder, root)
    missing = [path for path in (folder, *folder.parents) if not path.exists()][::-1]
    for path in missing:
        try:
            path.mkdir(_PRIVATE)
        except FileExistsError:  # another process was faster, or it is a file
            if not path.is_dir():
                raise
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    return missing


def _list_parts(path: Path, root: Path) -> list[Path]:
    """Return the path and its parents up to ``root``, the outermost first."""
    parts = [path]
    while parts[-1] != root:
        if parts[-1].parent == parts[-1]:
            raise ValueError(f"{path} is not in {root}.")
        parts.append(parts[-1].parent)
    return parts[::-1]


def _is_junction(path: Path) -> bool:
    """Return whether a path is a junction, which is a link to a folder on Windows."""
    tag = getattr(path.lstat(), "st_reparse_tag", 0)
    return bool(tag) and tag == getattr(stat, "IO_REPARSE_TAG_MOUNT_POINT", None)


def _open_regular(path: str, flags: int) -> int:
    """Open a file without waiting; raise an OSError unless it is a regular file."""
    if not stat.S_ISREG(Path(path).stat().st_mode):  # opening a device may have an effect
        raise OSError(errno.EINVAL, _NOT_REGULAR, path)
    descriptor = os.open(path, flags | _NO_WAIT)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, _NOT_REGULAR, path)
    return descriptor
