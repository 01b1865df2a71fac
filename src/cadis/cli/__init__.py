"""The command ``cadis``. What needs torch is imported only when it is needed: help is quick."""

from importlib import import_module
from pathlib import Path
from typing import Any

import click


def main() -> None:
    """Run the command."""
    commands(prog_name="cadis")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="cadis")
def commands() -> None:
    """Federated learning for clients that come in clusters of unequal size."""


class _GeneratedCommand(click.Command):
    """A command whose options are read from the classes that hold them.

    Attributes:
        options: name of the function in ``cadis.cli.options`` that lists them.
    """

    def __init__(self, *arguments: Any, options: str, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.options = options

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The generated options, and those of the function."""
        generated = getattr(import_module("cadis.cli.options"), self.options)()
        return [*generated, *super().get_params(ctx)]

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


def _call(module: str, function: str, *arguments: Any) -> None:
    """Import what does the work, do it, and end with its exit code; errors are one sentence."""
    work = getattr(import_module(f"cadis.cli.{module}"), function)
    raise SystemExit(import_module("cadis.cli.guard").guarded(work, *arguments))


def _typed(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


@commands.command(cls=_GeneratedCommand, options="run_options")
@click.argument("experiment", required=False, type=click.Path(path_type=Path))
@click.option("--preset", metavar="NAME", help="Start from a preset; see 'cadis presets'.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the results.")
@click.option("--resume", is_flag=True, help="Go on with the run in the folder --out.")
def run(
    experiment: Path | None, preset: str | None, out: Path | None, resume: bool, **options: Any
) -> None:
    """Run a federation and keep everything in a folder.

    Without arguments: CADIS on scikit-learn's digits, 20 clients in 5 clusters. EXPERIMENT is a
    TOML file of options, such as the config.toml that every run leaves; options given here win
    over the file.
    """
    _call("run", "run", experiment, preset, out, resume, _typed(options))


@commands.command(cls=_GeneratedCommand, options="partition_options")
@click.option("--preset", metavar="NAME", help="Start from a preset; see 'cadis presets'.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the partition to FILE.json.")
@click.option("--figure", type=click.Path(path_type=Path), help="Where to draw the picture.")
def partition(preset: str | None, out: Path | None, figure: Path | None, **options: Any) -> None:
    """Show who would have what, before anything is trained.

    A table, and a picture in which the area of a point is the number of samples that a client
    has of a class. The file that --out writes can be given to 'cadis run --partition'.
    """
    _call("partition", "partition", preset, out, figure, _typed(options))


@commands.command()
@click.argument("name", required=False)
def presets(name: str | None) -> None:
    """List the paper's experiments, or show the file of one."""
    _call("presets", "presets", name)


@commands.group(invoke_without_command=True)
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder to look in first.")
@click.pass_context
def data(ctx: click.Context, data_dir: Path | None) -> None:
    """List the datasets: what is there, and what is missing."""
    ctx.obj = data_dir
    if ctx.invoked_subcommand is None:
        _call("data", "list_datasets", data_dir)


_DATA_DIR = click.option(
    "--data-dir", type=click.Path(path_type=Path), help="Folder of datasets to use first."
)


@data.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@_DATA_DIR
@click.pass_context
def fetch(ctx: click.Context, names: tuple[str, ...], data_dir: Path | None) -> None:
    """Download datasets that are missing or damaged."""
    _call("data", "fetch_datasets", names, data_dir or ctx.obj)


@data.command()
@click.argument("names", nargs=-1, metavar="[NAME...]")
@_DATA_DIR
@click.pass_context
def verify(ctx: click.Context, names: tuple[str, ...], data_dir: Path | None) -> None:
    """Compare the files that are there with their published checksums."""
    _call("data", "verify_datasets", names, data_dir or ctx.obj)


@commands.group()
def deploy() -> None:
    """Run a federation on machines of its own, with Flower."""


@deploy.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--site", "names", metavar="NAME", multiple=True, help="Name of a site; repeat it.")
@click.option(
    "--sites", "number", type=click.IntRange(1), help="Or: so many, site-1 to site-N [3]."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="How sites call the server.")
@click.option("--port", default=8000, show_default=True, help="Port of the server.")
def init(folder: Path, names: tuple[str, ...], number: int | None, host: str, port: int) -> None:
    """Write keys, certificates, scripts and a README for a server and its sites to DIR."""
    _call("deploy", "init", folder, names, number, host, port)
