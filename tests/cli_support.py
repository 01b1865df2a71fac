"""The command as a user types it, in this process."""

from collections.abc import Mapping

from click.testing import CliRunner, Result

from cadis.cli.command_line import commands


def call(*arguments: object) -> Result:
    """Run ``cadis`` with these arguments."""
    return CliRunner().invoke(commands, [str(argument) for argument in arguments])


def to_options(options: Mapping[str, object]) -> list[str]:
    """Return options by their Python names as a user types them."""
    return [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]


def succeed(*arguments: object) -> str:
    """Run a command that must succeed; return all that it says."""
    result = call(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


def refuse(*arguments: object) -> str:
    """Run a command that must be refused in one sentence; return the sentence."""
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr
