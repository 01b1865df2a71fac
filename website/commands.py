"""The page about the command, from the command itself."""

from collections.abc import Iterator
from inspect import cleandoc

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from cadis.cli.command_line import commands

PAGE = "reference/commands.md"
OPENING = """# The command

What `cadis COMMAND --help` says. A wrong option is told in one sentence, and the exit code is 2.
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page."""
    text = OPENING + "".join(_described(commands, click.Context(commands, info_name="cadis"), {}))
    files.append(File.generated(config, PAGE, content=text))
    return files


def _described(group: click.Group, parent: click.Context, told: dict[str, str]) -> Iterator[str]:
    """The commands of a group; ``told`` has which command has told a table already."""
    for name, command in group.commands.items():
        context = click.Context(command, info_name=name, parent=parent)
        usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
        about = _plain(cleandoc(command.help or ""))
        yield f"\n## {context.command_path}\n\n{about}\n\n```\n{usage}\n```\n"
        yield from _options(command, context, told)
        if isinstance(command, click.Group):
            yield from _described(command, context, told)


def _options(command: click.Command, context: click.Context, told: dict[str, str]) -> Iterator[str]:
    """A table for each section; of one that another command has told, which one that is."""
    tables = _tables(command, context)
    repeated = [title for title, table in tables.items() if table in told]
    for title, table in tables.items():
        if title not in repeated:
            told[table] = context.command_path
            yield (f"\n### {title}\n" if len(tables) > 1 else "") + table
    if repeated:
        where = told[tables[repeated[0]]]
        yield f"\nAs of [`{where}`](#{where.replace(' ', '-')}): {'; '.join(repeated)}.\n"


def _tables(command: click.Command, context: click.Context) -> dict[str, str]:
    rows: dict[str, list[str]] = {}
    for option in command.get_params(context):
        record = option.get_help_record(context)
        if record is not None and option.name != "help":
            title = getattr(option, "section", "This command")
            rows.setdefault(title, []).append(f"| `{record[0]}` | {_cell(record[1])} |\n")
    opening = "\n| option | |\n| --- | --- |\n"
    return {title: opening + "".join(found) for title, found in rows.items()}


def _plain(text: str) -> str:
    """Text that is not Markdown, as Markdown."""
    return "".join(f"\\{letter}" if letter in "\\`*_<[" else letter for letter in text)


def _cell(text: str) -> str:
    return _plain(" ".join(text.split())).replace("|", "\\|")
