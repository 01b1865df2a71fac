"""Disturbances of a process from within, which are installed before it runs a command."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, TypeAlias
from unittest.mock import patch

import safetensors.torch
from matplotlib.figure import Figure

from cadis.report import figures

OnOperation: TypeAlias = Callable[[str], object]
"""A function that is called with the name of a file operation."""

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC
_EVENTS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink")
_AUDITED = ("replace", "rename", "ftruncate", "unlink", "mkdir")
"""Functions with an audit event before the call; they are wrapped for an event after it."""

_NOT_AUDITED = ((os, "fsync"), (os, "fdatasync"), (safetensors.torch, "serialize_file"))
"""Functions without audit events."""


def skip_figures() -> None:
    """Draw only one figure, as a file of a few bytes, since figures take most of the time."""

    def save(_figure: Figure, target: Any, **_options: Any) -> None:
        if hasattr(target, "write"):
            target.write(b"a picture")
        else:
            Path(target).write_bytes(b"a picture")

    patch.object(Figure, "savefig", save).start()
    patch.object(Figure, "draw_without_rendering", lambda _: None).start()
    patch.object(figures, "_FIGURES", dict(list(figures._FIGURES.items())[:1])).start()


class Screen:
    """The standard output of a victim; an action follows when a text is printed."""

    def __init__(self, screen: IO[str], text: str, action: Callable[[], None]) -> None:
        self._screen, self._text, self._action = screen, text, action

    def write(self, text: str) -> int:
        written = self._screen.write(text)
        self._screen.flush()
        if self._text in text:
            self._action()
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._screen, name)


def disturb_on_output(text: str, action: Callable[[], None]) -> Callable[[], None]:
    """Return a disturbance that calls ``action`` when a text is printed."""

    def disturb() -> None:
        sys.stdout = Screen(sys.stdout, text, action)

    return disturb


def kill_self() -> None:
    """Kill this process at once, as a power cut would."""
    os.kill(os.getpid(), signal.SIGKILL)


def watch_operations(folder: Path, on_operation: OnOperation) -> None:
    """Call ``on_operation`` before file operations in a folder, and after the important ones.

    It cannot be undone, so call it only in processes that end soon. Single writes are not observed,
    except a whole file of safetensors.
    """
    folder_filter = _FolderFilter(folder)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES:
            if folder_filter.contains(arguments[0]):
                on_operation(f"before opening {_get_name(arguments[0])}")
        elif event.startswith("shutil.") or (
            event in _EVENTS and folder_filter.is_about(arguments)
        ):
            on_operation(f"before {event} of {_get_name(arguments[0])}")

    sys.addaudithook(hook)
    for name in _AUDITED:
        _wrap(os, name, on_operation, before=False)
    for module, name in _NOT_AUDITED:
        _wrap(module, name, on_operation, before=True)


class _FolderFilter:
    def __init__(self, folder: Path) -> None:
        self._folder = str(folder.absolute())

    def contains(self, path: object) -> bool:
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        return str(Path(os.fsdecode(path)).absolute()).startswith(self._folder)

    def is_about(self, arguments: tuple[Any, ...]) -> bool:
        """Return whether an event is about the folder; paths relative to a handle count as such."""
        handles = [number for number in arguments[1:] if isinstance(number, int) and number >= 0]
        return bool(handles) or any(map(self.contains, arguments))


def _wrap(module: Any, name: str, on_operation: OnOperation, before: bool) -> None:
    function = getattr(module, name)

    def call_function(*arguments: Any, **options: Any) -> Any:
        if before:
            on_operation(f"before {name}")
        result = function(*arguments, **options)
        on_operation(f"after {name}")
        return result

    setattr(module, name, call_function)


def _get_name(path: object) -> str:
    return Path(os.fsdecode(path)).name if isinstance(path, str | bytes | os.PathLike) else "it"
