"""Run the command ``cadis`` within the test process."""

from collections.abc import Mapping

from click.testing import CliRunner, Result

from cadis.cli.command_line import commands


def call(*arguments: object) -> Result:
    """Run ``cadis`` with these arguments."""
    return CliRunner().invoke(commands, [str(argument) for argument in arguments])


def to_options(options: Mapping[str, object]) -> list[str]:
    """Convert options by Python name to command-line arguments."""
    return [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]


def succeed(*arguments: object) -> str:
    """Run a command that must succeed; return its output."""
    result = call(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


def refuse(*arguments: object) -> str:
    """Run a command that must fail with one sentence and exit code 2; return the sentence."""
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr
