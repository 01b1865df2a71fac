"""What all commands share. What needs torch is imported only when it is needed: help is quick."""

import os
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from cadis.cli.guard import guarded, notice, say
from cadis.errors import CadisError

_ARGUMENTS = "cadis.arguments"


class PathType(click.Path):
    """A file or folder by a name that it can have, and that can be shown."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Refuse an empty name, which would mean the current folder, and one that is not UTF-8."""
        text = os.fspath(value)
        if not text:
            self.fail("the name is empty.", param, ctx)
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail(f"{text!r} is not UTF-8.", param, ctx)
        if "\0" in text:
            self.fail(f"{text!r} cannot be a name.", param, ctx)
        return super().convert(value, param, ctx)


PATH = PathType()


class GeneratedCommand(click.Command):
    """A command whose options are read from the classes that hold them, a user's own included.

    Attributes:
        options: name of the function in ``cadis.cli.options`` that lists them.
    """

    def __init__(self, *arguments: Any, options: str, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.options = options

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Note the arguments first: parts of a user's own that they name have options, too."""
        ctx.meta[_ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the generated options, and those of the function."""
        with notice():
            listing, mine = import_module("cadis.cli.options"), super().get_params(ctx)
        try:
            own = listing.parts_in(ctx.meta.get(_ARGUMENTS, []))
            generated = getattr(listing, self.options)(own, {each.name for each in mine})
        except CadisError as error:
            ctx.exit(say(str(error), 2))
        return [*generated, *mine]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the options by section."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                title = getattr(parameter, "section", "This command")
                sections.setdefault(title, []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def call(module: str, function: str, /, **arguments: Any) -> None:
    """Call the function with the arguments that a user gave, and end with its exit code."""
    with notice():
        work = getattr(import_module(f"cadis.cli.{module}"), function)
    given = {name: value for name, value in arguments.items() if value is not None}
    raise SystemExit(guarded(work, **given))
