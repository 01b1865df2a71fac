"""The command ``cadis``."""

from importlib import import_module

from cadis.cli.guard import end_at_once


def main() -> None:
    """Run the command; all else is imported after Ctrl-C is taken care of."""
    end_at_once()
    import_module("cadis.cli.command_line").commands(prog_name="cadis")
