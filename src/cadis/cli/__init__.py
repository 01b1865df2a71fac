"""The command ``cadis``."""

import sys

import click

from cadis.cli.command_line import COMMANDS
from cadis.cli.early import check_early


def main() -> None:
    """Run the command."""
    try:
        check_early(commands, sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
    commands(prog_name="cadis")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="cadis")
def commands() -> None:
    """Federated learning for clients that come in clusters of unequal size."""


for command in COMMANDS:
    commands.add_command(command)
