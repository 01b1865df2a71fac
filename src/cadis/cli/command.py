"""Classes and functions that all commands share.

Modules that need torch are imported when a command is called, so that ``--help`` is fast.
"""

import os
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from cadis.cli.guard import print_error, run_with_exit_code, show_import_message
from cadis.errors import CadisError

_ARGUMENTS = "cadis.arguments"
_NO_BREAK_SPACE = "\u00a0"
_COLUMN_WIDTH = 26
"""Width of the column of option names in help texts."""


class PathType(click.Path):
    """Path of a file or folder; names that cannot be displayed are refused."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Refuse an empty path, which would mean the current folder, and one not in UTF-8."""
        text = os.fspath(value)
        if not text:
            self.fail("the path is empty.", param, ctx)
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail(f"{text!r} is not UTF-8.", param, ctx)
        if "\0" in text:
            self.fail(f"{text!r} cannot be a path.", param, ctx)
        return super().convert(value, param, ctx)


PATH = PathType()


class CadisCommand(click.Command):
    """Command whose help text ends with examples.

    Attributes:
        examples: command lines, one per line.
    """

    def __init__(self, *arguments: Any, examples: str = "", **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.examples = examples

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, without wrapping lines so that they can be copied."""
        super().format_epilog(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples.strip().splitlines():
                    formatter.write(f"{'':>{formatter.current_indent}}{line.strip()}\n")


class CadisGroup(CadisCommand, click.Group):
    """Group of commands, listed in the order of their definition."""

    command_class = CadisCommand
    group_class = type

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of the commands."""
        return list(self.commands)


class GeneratedCommand(CadisCommand):
    """Command with options generated from the fields of settings and parts.

    Attributes:
        options: the name of the function in ``cadis.cli.options`` that returns the options.
    """

    def __init__(self, *arguments: Any, options: str, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.options = options

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Store the arguments first: the user-defined parts that they name have options too."""
        ctx.meta[_ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options of the function, and the generated ones."""
        with show_import_message():
            module, declared = import_module("cadis.cli.options"), super().get_params(ctx)
        try:
            user_parts = module.find_user_parts(ctx.meta.get(_ARGUMENTS, []))
            reserved = {parameter.name for parameter in declared}
            generated = getattr(module, self.options)(user_parts, reserved)
        except CadisError as error:
            ctx.exit(print_error(str(error), 2))
        return [*declared, *generated]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by section."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                title = getattr(parameter, "section", "Options")
                sections.setdefault(title, []).append((record[0], _join_default(record[1])))
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records, col_max=_COLUMN_WIDTH)
        formatter.buffer = [text.replace(_NO_BREAK_SPACE, " ") for text in formatter.buffer]


def _join_default(text: str) -> str:
    """Prevent a line break within a short "[default: ...]"."""
    return re.sub(
        r"\[default: [^];]{,15}\]", lambda match: match[0].replace(" ", _NO_BREAK_SPACE), text
    )


def call(module: str, function: str, /, **arguments: Any) -> None:
    """Call a function with the arguments that are set, and exit with its exit code."""
    with show_import_message():
        command = getattr(import_module(f"cadis.cli.{module}"), function)
    set_arguments = {name: value for name, value in arguments.items() if value is not None}
    raise SystemExit(run_with_exit_code(command, **set_arguments))
