"""A user's own code by name: ``file.py:Name`` or ``package.module:Name``."""

import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any

from cadis.errors import CadisError

_PREFIX = "cadis_user_file_"
_folders: list[Path] = []


def is_user_code(name: str) -> bool:
    """Whether a name is that of a user's own code; names of ours have neither a colon nor .py."""
    return ":" in name or name.endswith(".py")


def search_folder(folder: Path) -> None:
    """Look for users' files in this folder first, and in the current one last."""
    _folders[:] = [folder, *(other for other in _folders if other != folder)]


def load_user_code(name: str) -> Any:
    """What a user calls ``file.py:Name`` or ``package.module:Name``.

    A file is named by its path, from the current folder unless it is absolute. A module is
    imported as Python does, but looked for in the current folder first.
    """
    place, _, attribute = name.rpartition(":")
    if not place or not attribute:
        raise CadisError(f"'{name}' names no class or function; write {name.strip(':')}:NAME.")
    is_file = place.endswith(".py") or "/" in place or os.sep in place
    module = _imported(place, _name_of_file(place, attribute) if is_file else place)
    try:
        return getattr(module, attribute)
    except AttributeError:
        what = f"file {place}" if is_file else f"module {place}"
        raise CadisError(f"The {what} has no function or class '{attribute}'.") from None


def one_line(error: BaseException) -> str:
    """What a user's code has raised, on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _imported(place: str, module_name: str) -> Any:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return import_module(module_name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a user's code may raise, SystemExit too
        missing = isinstance(error, ModuleNotFoundError) and error.name == module_name
        hint = "; start from the folder that it is in" if missing else ""
        what = "module" if module_name == place else "file"
        raise CadisError(
            f"The {what} {place} could not be imported: {one_line(error)}{hint}."
        ) from error


def _name_of_file(place: str, attribute: str) -> str:
    """The module's name under which a file is imported; it can be found again by that alone."""
    if not place.endswith(".py"):
        raise CadisError(f"{place} is no Python file; write {place}.py:{attribute}.")
    typed = Path(place).expanduser()
    for path in (folder / typed for folder in (*_folders, Path.cwd())):
        if os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises if a name is too long
            if str(path.parent) not in sys.path:  # for what it imports from beside itself
                sys.path.append(str(path.parent))
            return _PREFIX + os.fsencode(path.resolve()).hex()
    raise CadisError(f"There is no file {place}; give its path from the current folder.")


class _UserFiles:
    """Finds users' files by the names they are imported under, in worker processes as well."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """The file that a name of ours stands for; None for all other names."""
        if not name.startswith(_PREFIX):
            return None
        path = os.fsdecode(bytes.fromhex(name.removeprefix(_PREFIX)))
        return spec_from_file_location(name, path)


sys.meta_path.append(_UserFiles)
