"""The commands as users see them: what trains, what shows, and what is about files.

What does the work is imported only when a command is called, so that help is quick.
"""

from functools import partial
from pathlib import Path
from typing import Any

import click

from cadis.cli.command import PATH, GeneratedCommand, call

_EXPERIMENT = click.argument("experiment", required=False, type=PATH)
_PRESET = click.option("--preset", metavar="NAME", help="Start from a preset; see 'cadis presets'.")
_OUT = click.option("--out", type=PATH, help="Folder for the results.")
_TRACK = click.option(
    "--track", metavar="NAME", help="Tell tensorboard, wandb or mlflow too; see docs/trackers.md."
)
_FIGURE = click.option("--figure", type=PATH, help="Where to draw the picture.")
_RUN = click.argument("run", metavar="RUN", type=PATH)
_SEEDS = partial(
    click.option,
    "--seeds",
    show_default=True,
    type=click.IntRange(1),
    help="Runs of each, from --seed.",
)
_DATA_DIR = click.option("--data-dir", type=PATH, help="Folder of datasets to use first.")
_WHICH = click.option(
    "--which",
    type=click.Choice(["last", "best"]),
    default="last",
    show_default=True,
    help="The model after the last round, or the best of all rounds.",
)
_MODEL = click.option(
    "--model", metavar="FILE.py:FUNCTION", help="What makes the model, if RUN does not say."
)
_NAME = click.option("--name", help="Which of the models, if the method has several.")
_OVERWRITE = click.option("--overwrite", is_flag=True, help="Replace a file that is there.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="cadis")
def commands() -> None:
    """Federated learning for clients that come in clusters of unequal size."""


@commands.command(cls=GeneratedCommand, options="run_options")
@_EXPERIMENT
@_PRESET
@_OUT
@click.option("--resume", is_flag=True, help="Go on with the run in the folder --out.")
@_TRACK
def run(**arguments: Any) -> None:
    """Run a federation and keep everything in a folder.

    Without arguments: CADIS on scikit-learn's digits, 20 clients in 5 clusters. EXPERIMENT is a
    TOML file of options, such as the config.toml that every run leaves; options given here win
    over the file.
    """
    call("run", "run", **arguments)


@commands.command(cls=GeneratedCommand, options="compare_options")
@_EXPERIMENT
@click.option(
    "--methods",
    default="fedavg,fedprox,fedfa,feddyn,cadis-paper,cadis",
    show_default=True,
    metavar="NAME,NAME,...",
    help="What to compare: methods, see 'cadis methods'; FILE.py:CLASS for one of your own; "
    "power-of-choice, fedcluster, hics (FedAvg with that sampler); all: all of ours so far; "
    "cadis-uniform (participants drawn uniformly), "
    "cadis-no-momentum, cadis-plain-weights, cadis-no-distillation, cadis-no-clustering, "
    "cadis-absent (absent clusters remembered), cadis-oracle (true clusters given); ablations: "
    "cadis and all these.",
)
@_SEEDS(default=3)
@click.option(
    "--targets", metavar="X,X,...", help="Accuracies to be reached.  [default: some that fit]"
)
@click.option(
    "--grid",
    multiple=True,
    metavar="NAME=X,X,...",
    help="Compare with each value of an option, such as partition=mc,dirichlet; repeat it.",
)
@_PRESET
@_OUT
@_TRACK
def compare(**arguments: Any) -> None:
    """Run several methods on the same federations and say who wins, if anybody does.

    For one seed, all methods have the same partition, initial model and participants. Runs that
    exist are reused, and the same command goes on with what was interrupted. At the end: tables
    (also as CSV, Markdown and LaTeX), pictures, and a page, report.html.
    """
    call("compare", "compare", **arguments)


@commands.command(cls=GeneratedCommand, options="run_options")
@_EXPERIMENT
@click.option(
    "--grid", multiple=True, metavar="NAME=X,X,...", help="An option and its values; repeat it."
)
@_SEEDS(default=1)
@_PRESET
@_OUT
@_TRACK
def sweep(**arguments: Any) -> None:
    """Run a method with every combination of values of some options.

    For example: cadis sweep --grid threshold=0.6,0.7,0.8 --grid distillation=0,0.1,1
    """
    call("compare", "compare", **arguments)


@commands.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=PATH)
@click.option("--out", type=PATH, help="Folder for the page, or its name.")
@click.option(
    "--metric",
    metavar="NAME",
    help="What decides: accuracy, balanced_accuracy, f1, auc, or a measure of a task of your own.  "
    "[default: what decided in the runs]",
)
def report(**arguments: Any) -> None:
    """Show runs and comparisons on one page, and draw their figures.

    RUN is the folder of a run, a comparison or a sweep; several are shown together, and so is all
    that is in a folder of these. Only what learns the same thing is compared. The page is one file
    without any link to the network; tables and figures are put beside it.
    """
    call("report", "report", **arguments)


@commands.command()
@_RUN
@click.option(
    "--port",
    default=0,
    type=click.IntRange(0, 65535),
    help="Port to serve it on.  [default: a free one]",
)
@click.option("--open", "open_browser", is_flag=True, help="Open it in a browser.")
def watch(**arguments: Any) -> None:
    """Show a run, a comparison or a sweep while it works.

    The same page as 'cadis report', on this machine only. It ends with the process that works on
    RUN, or with Ctrl-C.
    """
    call("report", "watch", **arguments)


@commands.command()
@_RUN
@click.argument("inputs", metavar="INPUT", type=PATH)
@click.option(
    "--out",
    type=PATH,
    default=Path("predictions.csv"),
    show_default=True,
    help="The CSV file to write.",
)
@click.option("--label", metavar="COLUMN", help="Column of a table that has the true classes.")
@_WHICH
@_MODEL
@_NAME
@_OVERWRITE
def predict(**arguments: Any) -> None:
    """Let the model of a run predict.

    INPUT is a picture, a folder of pictures, or a table (.csv, .tsv or .parquet) with the columns
    that the model was trained on. RUN is the folder of a run or a model's file. Pictures in folders
    that are named as classes, and tables with a column of labels, are compared with the truth.
    """
    call("inference", "predict", **arguments)


@commands.command()
@_RUN
@click.option(
    "--to",
    type=click.Choice(["onnx", "torchscript", "state-dict"]),
    required=True,
    help="The first two make probabilities of raw inputs; the last is the numbers alone.",
)
@click.option("--out", type=PATH, help="The file to write.  [default: beside the model]")
@_WHICH
@_MODEL
@_NAME
@_OVERWRITE
def export(**arguments: Any) -> None:
    """Write the model of a run for other programs.

    What is written is compared with the model first, prediction for prediction. RUN is the folder
    of a run or a model's file.
    """
    call("inference", "export", **arguments)


@commands.command()
@click.argument("name", required=False)
def methods(**arguments: Any) -> None:
    """List the methods and samplers by what they are about, or tell all of one."""
    call("catalogue", "methods", **arguments)


@commands.command(cls=GeneratedCommand, options="partition_options")
@_PRESET
@click.option("--out", type=PATH, help="Write the partition to FILE.json.")
@_FIGURE
def partition(**arguments: Any) -> None:
    """Show who would have what, before anything is trained.

    A table, and a picture in which the area of a point is the number of samples that a client
    has of a class. The file that --out writes can be given to 'cadis run --partition'.
    """
    call("figures", "partition", **arguments)


@commands.command(cls=GeneratedCommand, options="layer_options")
@click.option(
    "--classes",
    metavar="A,B,C,D",
    help="Three or four classes: alike clients have the first two, a stranger the others.  "
    "[default: the first]",
)
@_PRESET
@_FIGURE
def layer(**arguments: Any) -> None:
    """Show how the classifier layer betrays the classes trained on.

    Heat maps of its update after training on one class, on two, and of three clients of whom two
    are alike: what CADIS tells clusters by.
    """
    call("figures", "layer", **arguments)


@commands.command()
@click.argument("name", required=False)
def presets(**arguments: Any) -> None:
    """List the paper's experiments, or show the file of one."""
    call("catalogue", "presets", **arguments)


@commands.group(invoke_without_command=True)
@click.option("--data-dir", type=PATH, help="Folder to look in first.")
@click.pass_context
def data(ctx: click.Context, data_dir: Path | None) -> None:
    """List the datasets: what is there, and what is missing."""
    ctx.obj = data_dir
    if ctx.invoked_subcommand is None:
        call("data", "list_datasets", data_dir=data_dir)


@data.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@_DATA_DIR
@click.pass_context
def fetch(ctx: click.Context, names: tuple[str, ...], data_dir: Path | None) -> None:
    """Download datasets that are missing or damaged."""
    call("data", "fetch_datasets", names=names, data_dir=data_dir or ctx.obj)


@data.command()
@click.argument("names", nargs=-1, metavar="[NAME...]")
@_DATA_DIR
@click.pass_context
def verify(ctx: click.Context, names: tuple[str, ...], data_dir: Path | None) -> None:
    """Compare the files that are there with their published checksums."""
    call("data", "verify_datasets", names=names, data_dir=data_dir or ctx.obj)


@data.command()
@click.option("--clear", is_flag=True, help="Remove all of it.")
def cache(**arguments: Any) -> None:
    """List the decoded pictures that are kept, or remove them."""
    call("data", "show_cache", **arguments)


@commands.group()
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
def init(**arguments: Any) -> None:
    """Write keys, certificates, scripts and a README for a server and its sites to DIR."""
    call("deploy", "init", **arguments)
