"""Commands about files: data, deploy."""

from pathlib import Path

import click

from cadis.cli.command import PATH, call


@click.group(invoke_without_command=True)
@click.option("--data-dir", type=PATH, help="Folder to look in first.")
@click.pass_context
def data(ctx: click.Context, data_dir: Path | None) -> None:
    """List the datasets: what is there, and what is missing."""
    ctx.obj = data_dir
    if ctx.invoked_subcommand is None:
        call("data", "list_datasets", data_dir)


_DATA_DIR = click.option("--data-dir", type=PATH, help="Folder of datasets to use first.")


@data.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@_DATA_DIR
@click.pass_context
def fetch(ctx: click.Context, names: tuple[str, ...], data_dir: Path | None) -> None:
    """Download datasets that are missing or damaged."""
    call("data", "fetch_datasets", names, data_dir or ctx.obj)


@data.command()
@click.argument("names", nargs=-1, metavar="[NAME...]")
@_DATA_DIR
@click.pass_context
def verify(ctx: click.Context, names: tuple[str, ...], data_dir: Path | None) -> None:
    """Compare the files that are there with their published checksums."""
    call("data", "verify_datasets", names, data_dir or ctx.obj)


@click.group()
def deploy() -> None:
    """Run a federation on machines of its own, with Flower."""


@deploy.command()
@click.argument("folder", metavar="DIR", type=PATH)
@click.option("--site", "names", metavar="NAME", multiple=True, help="Name of a site; repeat it.")
@click.option(
    "--sites", "number", type=click.IntRange(1, 1000), help="Or: so many, site-1 to site-N [3]."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="How sites call the server.")
@click.option("--port", default=8000, show_default=True, help="Port of the server.")
def init(folder: Path, names: tuple[str, ...], number: int | None, host: str, port: int) -> None:
    """Write keys, certificates, scripts and a README for a server and its sites to DIR."""
    call("deploy", "init", folder, names, number, host, port)
