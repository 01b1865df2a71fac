"""The commands ``cadis data`` and ``cadis deploy``, which have subcommands."""

from pathlib import Path
from typing import Any

import click

from cadis.cli.command import PATH, CadisGroup, call

_DATA_DIR = click.option("--data-dir", type=PATH, help="Folder to search for datasets first.")


@click.group(
    cls=CadisGroup,
    invoke_without_command=True,
    examples="""
    cadis data
    cadis data fetch mnist cifar10
    cadis data cache --clear
    """,
)
@_DATA_DIR
@click.pass_context
def data(ctx: click.Context, data_dir: Path | None) -> None:
    """List the datasets, and download or verify them.

    Without a command, list all datasets and where they are on this machine.
    """
    ctx.obj = data_dir
    if ctx.invoked_subcommand is None:
        call("data", "list_datasets", data_dir=data_dir)


@data.command(examples="cadis data fetch mnist cifar10")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@_DATA_DIR
@click.pass_context
def fetch(ctx: click.Context, names: tuple[str, ...], data_dir: Path | None) -> None:
    """Download datasets that are missing or damaged."""
    call("data", "fetch_datasets", names=names, data_dir=data_dir or ctx.obj)


@data.command(examples="cadis data verify mnist")
@click.argument("names", nargs=-1, metavar="[NAME...]")
@_DATA_DIR
@click.pass_context
def verify(ctx: click.Context, names: tuple[str, ...], data_dir: Path | None) -> None:
    """Compare the files of datasets with their published checksums.

    Without NAME, verify all datasets that are on this machine.
    """
    call("data", "verify_datasets", names=names, data_dir=data_dir or ctx.obj)


@data.command(examples="cadis data cache --clear")
@click.option("--clear", is_flag=True, help="Delete the cache.")
def cache(**arguments: Any) -> None:
    """List the cache of decoded images, or delete it."""
    call("data", "show_cache", **arguments)


@click.group(
    cls=CadisGroup, examples="cadis deploy init hospitals --site north --site south --host 10.0.0.5"
)
def deploy() -> None:
    """Create the files of a federation on several machines.

    The machines run Flower. 'cadis deploy init' writes the files, and does not start anything.
    """


@deploy.command(
    examples="""
    cadis deploy init trial
    cadis deploy init hospitals --site north --site south --host 10.0.0.5
    """
)
@click.argument("folder", metavar="DIR", type=PATH)
@click.option("--site", "names", metavar="NAME", multiple=True, help="Name of a site; repeatable.")
@click.option(
    "--sites",
    "count",
    metavar="N",
    type=click.IntRange(1, 1000),
    help="Number of sites, if you do not name them; they get the names site-1, site-2, ...  "
    "[default: 3]",
)
@click.option(
    "--host",
    metavar="NAME",
    default="127.0.0.1",
    show_default=True,
    help="Host name or IP address that the sites use to connect to the server.",
)
@click.option(
    "--port",
    metavar="N",
    default=8000,
    show_default=True,
    help="Port of the server for sites. The next port is used on 127.0.0.1 only.",
)
def init(**arguments: Any) -> None:
    """Create the files of a server and its sites.

    DIR is a new folder. It gets keys, certificates, start scripts, the Flower app, and a README
    that explains the next steps and which files belong to which site.
    """
    call("deploy", "init", **arguments)
