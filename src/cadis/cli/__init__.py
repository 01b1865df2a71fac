"""The command ``cadis``."""

from importlib import import_module
from typing import TYPE_CHECKING

from cadis.cli.guard import end_at_once

if TYPE_CHECKING:
    from cadis.cli.command_line import commands


def main() -> None:
    """Run the command; all else is imported after Ctrl-C is taken care of."""
    end_at_once()
    import_module("cadis.cli.command_line").commands(prog_name="cadis")


def __getattr__(name: str) -> object:
    """Import on first use."""
    if name != "commands":
        raise AttributeError(f"module 'cadis.cli' has no attribute '{name}'")
    return import_module("cadis.cli.command_line").commands
