"""Generate the reference page of the command line from the commands."""

from collections.abc import Iterator
from inspect import cleandoc
from typing import Any

import click

from cadis.cli.command_line import commands

MARKER = "<!-- all commands -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the marker in a page with the sections of all commands."""
    if MARKER not in markdown:
        return markdown
    context = click.Context(commands, info_name="cadis")
    return markdown.replace(MARKER, "".join(_format_commands(commands, context, {})))


def _format_commands(
    group: click.Group, parent: click.Context, shown: dict[str, str]
) -> Iterator[str]:
    """Yield one section per command; ``shown`` maps a table of options to its first command."""
    for name, command in group.commands.items():
        context = click.Context(command, info_name=name, parent=parent)
        usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
        about = _escape(cleandoc(command.help or ""))
        yield f"\n## {context.command_path}\n\n{about}\n\n```\n{usage}\n```\n"
        yield from _format_options(command, context, shown)
        if command.epilog:
            yield f"\n{_escape(cleandoc(command.epilog))}\n"
        if examples := cleandoc(getattr(command, "examples", "")):
            yield f"\nExamples:\n\n```bash\n{examples}\n```\n"
        if isinstance(command, click.Group):
            yield from _format_commands(command, context, shown)


def _format_options(
    command: click.Command, context: click.Context, shown: dict[str, str]
) -> Iterator[str]:
    """Yield one table per section of options; for tables shown before, yield a link instead."""
    tables = _make_tables(command, context)
    repeated = [title for title, table in tables.items() if table in shown]
    for title, table in tables.items():
        if title not in repeated:
            shown[table] = context.command_path
            yield (f"\n### {title}\n" if len(tables) > 1 else "") + table
    if repeated:
        other = shown[tables[repeated[0]]]
        link = f"[`{other}`](#{other.replace(' ', '-')})"
        yield f"\nThe same options as for {link}: {'; '.join(repeated)}.\n"


def _make_tables(command: click.Command, context: click.Context) -> dict[str, str]:
    rows: dict[str, list[str]] = {}
    for option in command.get_params(context):
        record = option.get_help_record(context)
        if record is not None and isinstance(option, click.Option) and "--help" not in option.opts:
            title = getattr(option, "section", "Options")
            part_names = getattr(option, "part_names", "")
            text = f"{part_names}: {record[1]}" if part_names else record[1]
            rows.setdefault(title, []).append(f"| `{record[0]}` | {_format_cell(text)} |\n")
    header = "\n| option | meaning |\n| --- | --- |\n"
    return {title: header + "".join(lines) for title, lines in rows.items()}


def _escape(text: str) -> str:
    """Escape the characters that have a meaning in Markdown."""
    return "".join(f"\\{letter}" if letter in "\\`*_<[" else letter for letter in text)


def _format_cell(text: str) -> str:
    return _escape(" ".join(text.split())).replace("|", "\\|")
