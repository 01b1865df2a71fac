"""The command ``cadis``. What needs torch is imported only when it is needed: help is quick."""

from importlib import import_module
from pathlib import Path

import click


def main() -> None:
    """Run the command."""
    commands(prog_name="cadis")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="cadis")
def commands() -> None:
    """Federated learning for clients that come in clusters of unequal size."""


class _RunCommand(click.Command):
    """A command with an option for every setting and for every method's parameters."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The generated options, and those of the function."""
        generated = import_module("cadis.cli.options").generated_options()
        return [*generated, *super().get_params(ctx)]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the options by section."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                title = getattr(parameter, "section", "This run")
                sections.setdefault(title, []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


@commands.command(cls=_RunCommand)
@click.argument("experiment", required=False, type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the results.")
@click.option("--resume", is_flag=True, help="Go on with the run in the folder --out.")
def run(experiment: Path | None, out: Path | None, resume: bool, **options: str | None) -> None:
    """Run a federation and keep everything in a folder.

    Without arguments: CADIS on scikit-learn's digits, 20 clients in 5 clusters. EXPERIMENT is a
    TOML file of options, such as the config.toml that every run leaves; options given here win
    over the file.
    """
    given = {name: value for name, value in options.items() if value is not None}
    raise SystemExit(import_module("cadis.cli.run").run(experiment, out, resume, given))
