"""Seeing every operation on files of a folder, from within the process that does them."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import safetensors.torch

OnOperation: TypeAlias = Callable[[str], None]
"""Called with the name of an operation."""

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC
_EVENTS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink")
_ANNOUNCED = ("replace", "rename", "ftruncate", "unlink", "mkdir")
"""Functions that have an event before; wrapped for what comes after."""

_UNANNOUNCED = ((os, "fsync"), (os, "fdatasync"), (safetensors.torch, "serialize_file"))
"""Functions that have none."""


def watch_operations(folder: Path, on_operation: OnOperation) -> None:
    """Be called before each operation within a folder, and before and after the weighty ones.

    It cannot be undone: for processes that are to end anyway. Bytes are written unseen, but by
    safetensors, which are seen as a whole.
    """
    inside = _Inside(folder)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES:
            if inside.names(arguments[0]):
                on_operation(f"before opening {_last(arguments[0])}")
        elif event.startswith("shutil.") or (event in _EVENTS and inside.concerns(arguments)):
            on_operation(f"before {event} of {_last(arguments[0])}")

    sys.addaudithook(hook)
    for name in _ANNOUNCED:
        _wrap(os, name, on_operation, before=False)
    for module, name in _UNANNOUNCED:
        _wrap(module, name, on_operation, before=True)


class _Inside:
    """Whether operations concern a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder.absolute())

    def names(self, path: object) -> bool:
        """Whether a path lies within."""
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        return str(Path(os.fsdecode(path)).absolute()).startswith(self._folder)

    def concerns(self, arguments: tuple[Any, ...]) -> bool:
        """Whether an event is about something within; a name relative to a handle is."""
        handles = [number for number in arguments[1:] if isinstance(number, int) and number >= 0]
        return bool(handles) or any(map(self.names, arguments))


def _wrap(module: Any, name: str, on_operation: OnOperation, before: bool) -> None:
    function = getattr(module, name)

    def wrapped(*arguments: Any, **options: Any) -> Any:
        if before:
            on_operation(f"before {name}")
        result = function(*arguments, **options)
        on_operation(f"after {name}")
        return result

    setattr(module, name, wrapped)


def _last(path: object) -> str:
    return Path(os.fsdecode(path)).name if isinstance(path, str | bytes | os.PathLike) else "it"
