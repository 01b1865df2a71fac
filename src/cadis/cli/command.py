"""Classes and functions that all commands share.

Modules that need torch are imported when a command is called, so that ``--help`` is fast.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from cadis.cli.guard import print_error, run_with_exit_code, show_import_message
from cadis.errors import CadisError
from cadis.permission import restrict_code

TRUST = "--trust"
"""Option that allows the code that files name."""
_PART_OPTIONS = frozenset(
    {"--method", "--methods", "--sampler", "--server-optimizer"}
    | {"--transforms", "--task", "--local-optimizer"}
)
"""Options whose values may name code, separated by commas."""

_ARGUMENTS = "cadis.arguments"
_NO_BREAK_SPACE, _NO_BREAK_HYPHEN = "\u00a0", "\u2011"
_WITH_BREAKS = str.maketrans({_NO_BREAK_SPACE: " ", _NO_BREAK_HYPHEN: "-"})
_COLUMN_WIDTH = 24
"""Width of the column of option names in help texts."""
_PARAMETERS_NOTE = (
    "Below, each part (method, sampler, optimizer, transform, task or partition) is listed with "
    "its parameters. If two parts that you choose have a parameter of the same name, write the "
    "name of the part before it, for example --moon-temperature and --hics-temperature. The "
    "received model is the model that the server sends to a client at the start of a round."
)


class PathType(click.Path):
    """Path of a file or folder, with a name that can be displayed."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Raise an error if the path is empty, not UTF-8, or has a null character.

        An empty path is an error because ``pathlib`` reads it as the current folder.
        """
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


class _HelpFormatter(click.HelpFormatter):
    """Formatter that does not break option names and short defaults at the end of a line."""

    def write(self, string: str) -> None:
        """Write a text, with ordinary spaces and hyphens."""
        super().write(string.translate(_WITH_BREAKS))

    def write_text(self, text: str) -> None:
        """Write paragraphs."""
        super().write_text(_prevent_breaks(text))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Write rows in two columns."""
        super().write_dl([(n, _prevent_breaks(text)) for n, text in rows], col_max, col_spacing)


class _Context(click.Context):
    formatter_class = _HelpFormatter


@contextmanager
def _escape_usage_errors() -> Iterator[None]:
    try:
        yield
    except click.UsageError as error:
        if error.message.isprintable():
            raise
        from cadis._io import escape_controls  # noqa: PLC0415 - imports torch

        raise click.UsageError(escape_controls(error.format_message()), error.ctx) from None


class CadisCommand(click.Command):
    """Command whose help text ends with examples.

    Attributes:
        examples: command lines, one per line.
    """

    context_class = _Context

    def __init__(self, *arguments: Any, examples: str = "", **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.examples = examples

    def make_context(self, *arguments: Any, **attributes: Any) -> click.Context:
        """Parse the arguments; an error shows control characters in them as escapes."""
        with _escape_usage_errors():
            return super().make_context(*arguments, **attributes)

    def invoke(self, ctx: click.Context) -> Any:
        """Call the command; an error shows control characters in the arguments as escapes."""
        with _escape_usage_errors():
            return super().invoke(ctx)

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

    def main(self, *args: Any, **options: Any) -> Any:
        """Run the command line; code that it does not name is refused, unless it has --trust."""
        given = args[0] if args else options.pop("args", None)
        arguments = sys.argv[1:] if given is None else list(given)
        with restrict_code(_list_names(arguments), trust=TRUST in arguments):
            return super().main(arguments, *args[1:], **options)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of the commands."""
        return list(self.commands)


class GeneratedCommand(CadisCommand):
    """Command with options for the settings and the parts of an algorithm (method, sampler, ...).

    The options are generated from the fields of the settings and of the parts.

    Attributes:
        options_function: name of the function in ``cadis.cli.options`` that returns the options.
    """

    def __init__(self, *arguments: Any, options_function: str, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.options_function = options_function

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; store them first for :meth:`get_params`.

        They may name a user-defined method or other part (FILE.py:CLASS), whose parameters become
        options too.
        """
        arguments = ctx.meta[_ARGUMENTS] = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption:  # it may belong to code that a file names
            try:
                import_module("cadis.cli.options").check_files(arguments)
            except CadisError as error:
                ctx.exit(print_error(str(error), 2))
            raise

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options declared with decorators, followed by the generated ones."""
        with show_import_message():
            module, declared = import_module("cadis.cli.options"), super().get_params(ctx)
        try:
            user_parts = module.find_user_parts(ctx.meta.get(_ARGUMENTS, []))
            reserved = {parameter.name for parameter in declared}
            generated = getattr(module, self.options_function)(user_parts, reserved)
        except CadisError as error:
            ctx.exit(print_error(str(error), 2))
        return [*declared, *generated]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by section, and the parameters of parts by part."""
        sections: dict[str, dict[str, list[tuple[str, str]]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                groups = sections.setdefault(getattr(parameter, "section", "Options"), {})
                rows = groups.setdefault(getattr(parameter, "part_names", ""), [])
                rows.append(record)
        titles_with_parts = [title for title, groups in sections.items() if any(groups)]
        for title, groups in sections.items():
            with formatter.section(title):
                if len(titles_with_parts) > 1 and title == titles_with_parts[0]:
                    formatter.write_text(_PARAMETERS_NOTE)
                    formatter.write_paragraph()
                for part_names, rows in groups.items():
                    _write_rows(formatter, part_names, rows)


def _list_names(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the names of code that the user typed.

    These are only the values of options that can name code: a stranger may have chosen the name of
    a file or folder on the command line.
    """
    if arguments[:1] == ["methods"]:  # cadis methods FILE.py:CLASS
        yield from arguments[1:]
    for argument, following in pairwise([*arguments, ""]):
        option, equals, value = argument.partition("=")
        value = value if equals else following
        if option == "--grid":
            option, _, value = f"--{value}".partition("=")
        if option in _PART_OPTIONS:
            yield from (name.strip() for name in (value, *value.split(",")))
        elif option in ("--model", "--dataset"):
            yield value


def _write_rows(
    formatter: click.HelpFormatter, part_names: str, rows: list[tuple[str, str]]
) -> None:
    """Write options in two columns, below the names of their parts if there are any."""
    if part_names:
        formatter.write(f"{'':>{formatter.current_indent}}{part_names}:\n")
        formatter.indent()
    width = _COLUMN_WIDTH if not part_names else _COLUMN_WIDTH - formatter.indent_increment
    wide_names = [(f"{name:<{width}}", text) for name, text in rows]  # align all groups
    formatter.write_dl(wide_names, col_max=width)
    if part_names:
        formatter.dedent()


def _prevent_breaks(text: str) -> str:
    """Prevent line breaks after hyphens and within a short "[default: ...]"."""
    text = re.sub(r"(?<=\w)-(?=\w)", _NO_BREAK_HYPHEN, text)
    return re.sub(
        r"\[default: [^];]{,15}\]", lambda match: match[0].replace(" ", _NO_BREAK_SPACE), text
    )


def call(module: str, function: str, /, **arguments: Any) -> None:
    """Call a function with the arguments that are set, and exit with its exit code."""
    with show_import_message():
        command = getattr(import_module(f"cadis.cli.{module}"), function)
    set_arguments = {name: value for name, value in arguments.items() if value is not None}
    raise SystemExit(run_with_exit_code(command, **set_arguments))
