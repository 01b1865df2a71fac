"""The command ``cadis``."""

from importlib import import_module

from cadis.cli.guard import exit_on_interrupt


def main() -> None:
    """Run the command; Ctrl-C is handled before the slow imports."""
    exit_on_interrupt()
    import_module("cadis.cli.command_line").commands(prog_name="cadis")
