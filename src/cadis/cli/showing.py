"""Commands that show: report, watch, partition, layer, presets."""

from pathlib import Path
from typing import Any

import click

from cadis.cli.command import FIGURE, PATH, PRESET, GeneratedCommand, call, typed


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=PATH)
@click.option("--out", type=PATH, help="Folder for the page, or its name.")
def report(runs: tuple[Path, ...], out: Path | None) -> None:
    """Show runs and comparisons on one page, and draw their figures.

    RUN is the folder of a run, a comparison or a sweep; several are shown together. The page is
    one file without any link to the network; tables and figures are put beside it.
    """
    call("report", "report", runs, out)


@click.command()
@click.argument("run", metavar="RUN", type=PATH)
@click.option(
    "--port",
    default=0,
    type=click.IntRange(0, 65535),
    help="Port to serve it on.  [default: a free one]",
)
@click.option("--open", "open_browser", is_flag=True, help="Open it in a browser.")
def watch(run: Path, port: int, open_browser: bool) -> None:
    """Show a run, a comparison or a sweep while it works.

    The same page as 'cadis report', on this machine only. It ends with the process that works on
    RUN, or with Ctrl-C.
    """
    call("watch", "watch", run, port, open_browser)


@click.command(cls=GeneratedCommand, options="partition_options")
@PRESET
@click.option("--out", type=PATH, help="Write the partition to FILE.json.")
@FIGURE
def partition(preset: str | None, out: Path | None, figure: Path | None, **options: Any) -> None:
    """Show who would have what, before anything is trained.

    A table, and a picture in which the area of a point is the number of samples that a client
    has of a class. The file that --out writes can be given to 'cadis run --partition'.
    """
    call("partition", "partition", preset, out, figure, typed(options))


@click.command(cls=GeneratedCommand, options="layer_options")
@click.option(
    "--classes",
    metavar="A,B,C,D",
    help="Three or four classes: alike clients have the first two, a stranger the others.  "
    "[default: the first]",
)
@PRESET
@FIGURE
def layer(preset: str | None, figure: Path | None, **options: Any) -> None:
    """Show how the classifier layer betrays the classes trained on.

    Heat maps of its update after training on one class, on two, and of three clients of whom two
    are alike: what CADIS tells clusters by.
    """
    call("layer", "layer", preset, figure, typed(options))


@click.command()
@click.argument("name", required=False)
def presets(name: str | None) -> None:
    """List the paper's experiments, or show the file of one."""
    call("presets", "presets", name)
