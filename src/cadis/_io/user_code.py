"""Loading a user's code by name: ``file.py:Name`` or ``package.module:Name``."""

import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any

from cadis._io.files import expand_home
from cadis.errors import CadisError
from cadis.permission import check_code

_PREFIX = "cadis_user_file_"
"""Prefix of the module names of users' files."""

_folders: list[Path] = []
"""Folders that are searched for users' files before the current folder."""


def is_user_code(name: str) -> bool:
    """Return whether a name refers to a user's code; built-in names have no colon and no .py."""
    return ":" in name or name.endswith(".py")


def add_search_folder(folder: Path) -> None:
    """Search a folder for users' files, before all other folders."""
    _folders[:] = [folder, *(other for other in _folders if other != folder)]


def load_user_code(name: str) -> Any:
    """Import and return the object called ``file.py:Name`` or ``package.module:Name``.

    A relative path of a file starts from the folders of :func:`add_search_folder`, then from the
    current folder. A module is imported as usual, and the current folder is searched first.
    A name that a file contains is refused unless the user allows it, see :func:`check_code`.
    """
    check_code(name)
    source, _, attribute = name.rpartition(":")
    if not source or not attribute:
        raise CadisError(
            f"'{name}' does not name a class or function; write {name.strip(':')}:NAME."
        )
    is_file = _is_path(source)
    module = _import(source, _make_module_name(source, attribute) if is_file else source)
    try:
        return getattr(module, attribute)
    except AttributeError:
        kind = "file" if is_file else "module"
        raise CadisError(f"The {kind} {source} has no function or class '{attribute}'.") from None


def locate_user_code(name: str) -> str:
    """Return the path of the file that a name refers to, without importing it; "" if unknown."""
    source = name.rpartition(":")[0]
    if _is_path(source):
        return str(_find_file(source) or expand_home(source).absolute())
    folders: list[str] | None = [str(Path.cwd()), *sys.path]
    spec, parts = None, source.split(".")
    for count in range(1, len(parts) + 1):
        try:
            spec = PathFinder.find_spec(".".join(parts[:count]), folders)
        except (OSError, ValueError, ImportError):  # not the name of a module
            return ""
        if spec is None:
            return ""
        folders = spec.submodule_search_locations
    return (spec and spec.origin) or ""


def format_error(error: BaseException) -> str:
    """Format an exception of a user's code on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _import(source: str, module_name: str) -> Any:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return import_module(module_name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a user's code may raise anything, SystemExit too
        is_missing = isinstance(error, ModuleNotFoundError) and error.name == module_name
        hint = "; start from the folder that it is in" if is_missing else ""
        kind = "module" if module_name == source else "file"
        raise CadisError(
            f"The {kind} {source} could not be imported: {format_error(error)}{hint}."
        ) from error


def _make_module_name(source: str, attribute: str) -> str:
    """Return the name under which a file is imported; it encodes the file's path."""
    if not source.endswith(".py"):
        raise CadisError(f"{source} is not a Python file; write {source}.py:{attribute}.")
    path = _find_file(source)
    if path is None:
        raise CadisError(f"There is no file {source}; give its path from the current folder.")
    if str(path.parent) not in sys.path:  # the file may import its neighbors
        sys.path.append(str(path.parent))
    return _PREFIX + os.fsencode(path.resolve()).hex()


def _is_path(source: str) -> bool:
    """Return whether the part of a name before the colon is a file, not a module."""
    return source.endswith(".py") or "/" in source or os.sep in source


def _find_file(source: str) -> Path | None:
    """Return the path of a user's file; None if there is none."""
    relative = expand_home(source)
    paths = (folder / relative for folder in (*_folders, Path.cwd()))
    # Path.is_file raises if a name is too long.
    return next((path for path in paths if os.path.isfile(path)), None)  # noqa: PTH113


class _UserFileFinder:
    """Import hook for users' files, so that worker processes can unpickle their classes."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """Return the spec of a file imported by :func:`load_user_code`; None for other modules."""
        if not name.startswith(_PREFIX):
            return None
        path = os.fsdecode(bytes.fromhex(name.removeprefix(_PREFIX)))
        return spec_from_file_location(name, path)


sys.meta_path.append(_UserFileFinder)
