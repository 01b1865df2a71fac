"""What is done to a process from within, before it does what it was asked to do."""

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
"""Called with the name of an operation."""

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC
_EVENTS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink")
_ANNOUNCED = ("replace", "rename", "ftruncate", "unlink", "mkdir")
"""Functions that have an event before; wrapped for what comes after."""

_UNANNOUNCED = ((os, "fsync"), (os, "fdatasync"), (safetensors.torch, "serialize_file"))
"""Functions that have none."""


def sketch() -> None:
    """Have one figure drawn only, and as a file of a few bytes: figures take most of the time."""

    def save(_figure: Figure, target: Any, **_options: Any) -> None:
        if hasattr(target, "write"):
            target.write(b"a picture")
        else:
            Path(target).write_bytes(b"a picture")

    patch.object(Figure, "savefig", save).start()
    patch.object(Figure, "draw_without_rendering", lambda _: None).start()
    patch.object(figures, "_FIGURES", dict(list(figures._FIGURES.items())[:1])).start()


class Screen:
    """The screen of a victim, on which something happens once a text is shown."""

    def __init__(self, screen: IO[str], text: str, happens: Callable[[], None]) -> None:
        self._screen, self._text, self._happens = screen, text, happens

    def write(self, text: str) -> int:
        written = self._screen.write(text)
        self._screen.flush()
        if self._text in text:
            self._happens()
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._screen, name)


def when_shown(text: str, happens: Callable[[], None]) -> Callable[[], None]:
    """A disturbance: something happens as soon as a text is on the screen."""

    def disturb() -> None:
        sys.stdout = Screen(sys.stdout, text, happens)

    return disturb


def kill_myself() -> None:
    """End this very process at once, as a power cut would."""
    os.kill(os.getpid(), signal.SIGKILL)


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
    def __init__(self, folder: Path) -> None:
        self._folder = str(folder.absolute())

    def names(self, path: object) -> bool:
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
