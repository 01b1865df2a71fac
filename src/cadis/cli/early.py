"""Wrong options are told before torch is imported, which takes longer than all else together.

Options are read from the classes that hold them, and those are beside code that computes with
torch. None of it computes anything while options are checked. So a second process checks them with
stand-ins for torch and numpy, that have every name and do nothing, while this one imports the real
ones. What the second one finds wrong is told at once, in the words of the usual check; whatever
else happens to it does not matter, since the usual check follows.
"""

import io
import os
import re
import sys
import threading
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import click

from cadis.cli.command import CHECK_ONLY
from cadis.cli.notice import erase, notice

_CHECKED = ("run", "compare", "sweep")
"""Commands with options that are read from classes, and a check of their own."""

_LEFT = re.compile(r"\.py|\.toml|:[^\W\d]|^--resume$|^--help$|^-h$")
"""In arguments that are left to the usual check: they may name a user's own code."""

_STOOD_IN_FOR = ("torch", "numpy")
"""What takes long to import, and computes nothing while options are checked."""

_WRONG = 2
"""The exit code of a command with wrong options."""


def check_early(commands: click.Command, arguments: Sequence[str]) -> None:
    """Import torch, and meanwhile end this process if the options of its command are wrong."""
    few = len(arguments) < 2 or arguments[0] not in _CHECKED
    if few or sys.platform != "linux" or any(map(_LEFT.search, arguments)):
        return
    with notice():
        child = os.fork()  # there are no threads yet
        if not child:
            _check(commands, arguments)
        waiting = threading.Thread(target=_end_with, args=(child,), daemon=True)
        waiting.start()
        import_module("cadis.experiment")
        waiting.join()  # before there are workers to be forked


def _end_with(child: int) -> None:
    """End this process if the other one has found something wrong: all is said."""
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status) == _WRONG:
        os._exit(_WRONG)


def _check(commands: click.Command, arguments: Sequence[str]) -> None:
    """In a process of its own, which ends: check the options, and tell what is wrong with them."""
    said, code = io.StringIO(), 0
    with suppress(BaseException), redirect_stderr(said), redirect_stdout(io.StringIO()):
        code = exit_code(commands, arguments)
    if code == _WRONG:
        erase()
        os.write(2, said.getvalue().encode(errors="replace"))
    os._exit(code)


def exit_code(commands: click.Command, arguments: Sequence[str]) -> int:
    """What a command would end with, were it only about its options; torch is not imported."""
    sys.meta_path.insert(0, _StandIns())
    try:
        commands.main(list(arguments), prog_name="cadis", obj=CHECK_ONLY)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0


class _Anything(type):
    """A class of whatever name, that can be derived from, called, decorated with and annotated."""

    def __getattr__(cls, name: str) -> "_Anything":
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name, (), {})

    def __call__(cls, *arguments: Any, **_options: Any) -> Any:
        decorates = len(arguments) == 1 and callable(arguments[0])
        return arguments[0] if decorates else cls

    def __or__(cls, _other: Any) -> "_Anything":
        return cls

    def __ror__(cls, _other: Any) -> "_Anything":
        return cls

    def __getitem__(cls, _key: Any) -> "_Anything":
        return cls


class _StandIn(ModuleType):
    """A module that has every name."""

    def __getattr__(self, name: str) -> _Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _Anything(name, (), {})
        setattr(self, name, made)
        return made


class _StandIns(MetaPathFinder, Loader):
    """Finds a stand-in for each of the packages, and for all their modules."""

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """A module that is not read from anywhere, if it is to be stood in for."""
        stands_in = name.partition(".")[0] in _STOOD_IN_FOR
        return ModuleSpec(name, self, is_package=True) if stands_in else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """A stand-in of that name."""
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """It is complete as it is."""
