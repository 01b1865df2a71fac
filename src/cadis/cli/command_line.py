"""The commands as users see them: arguments, options, help texts and examples.

The modules that do the work are imported when a command is called, so that ``--help`` is fast.
"""

from functools import partial
from pathlib import Path
from typing import Any

import click

from cadis.cli.command import PATH, CadisGroup, GeneratedCommand, call
from cadis.cli.subcommands import data, deploy

_EXPERIMENT = click.argument("experiment", required=False, type=PATH)
_PRESET = click.option("--preset", metavar="NAME", help="Start from a preset; see 'cadis presets'.")
_OUT = click.option("--out", type=PATH, help="Folder for the results.  [default: in runs/]")
_TRACK = click.option("--track", metavar="NAME", help="Log to tensorboard, wandb or mlflow too.")
_FIGURE = click.option(
    "--figure", type=PATH, help="File of the figure: .png, .pdf or .svg.  [default: in runs/]"
)
_RUN = click.argument("run", metavar="RUN", type=PATH)
_SEEDS = partial(
    click.option,
    "--seeds",
    metavar="N",
    show_default=True,
    type=click.IntRange(1),
    help="Number of runs of each method, with seeds from --seed.",
)
_WHICH = click.option(
    "--which",
    type=click.Choice(["last", "best"]),
    default="last",
    show_default=True,
    help="Model of the last round, or of the best round.",
)
_MODEL = click.option(
    "--model",
    metavar="FILE.py:FUNCTION",
    help="Function that builds the model, if RUN does not name one.",
)
_NAME = click.option("--name", metavar="NAME", help="Which model, if the method has several.")
_OVERWRITE = click.option("--overwrite", is_flag=True, help="Replace an existing file.")


@click.group(
    cls=CadisGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    examples="""
    cadis run                                        CADIS on handwritten digits
    cadis compare --methods fedavg,cadis --seeds 3   which method is better?
    cadis methods fedprox                            explain a method
    cadis run --help                                 all options of a command
    """,
)
@click.version_option(package_name="cadis")
def commands() -> None:
    """Federated learning for clients in clusters of unequal size.

    Simulate a federation on this machine, compare methods, use the trained model, or run a
    federation on several machines.
    """


@commands.command(
    cls=GeneratedCommand,
    options="run_options",
    examples="""
    cadis run
    cadis run --method fedprox --mu 0.1 --dataset mnist --rounds 50
    cadis run --dataset csv:patients.csv --client-column hospital
    cadis run runs/cadis-digits/config.toml --lr 0.05
    cadis run --resume --out runs/cadis-digits
    """,
)
@_EXPERIMENT
@_PRESET
@_OUT
@click.option("--resume", is_flag=True, help="Continue the run in the folder --out.")
@_TRACK
def run(**arguments: Any) -> None:
    """Train a model by federated learning.

    Without arguments, train CADIS on the digits of scikit-learn, with 20 clients in 5 clusters.
    All results are written to a folder, with figures and a config.toml. EXPERIMENT is a TOML file
    of options, such as the config.toml of an earlier run; options on the command line replace those
    of the file.
    """
    call("run", "run", **arguments)


@commands.command(
    cls=GeneratedCommand,
    options="compare_options",
    epilog="""
    Names for --methods, besides those of 'cadis methods' and FILE.py:CLASS: power-of-choice,
    fedcluster, hics (FedAvg with that sampler); all (all methods and these); ablations (cadis and
    the following); cadis-uniform (uniform sampling), cadis-no-momentum, cadis-plain-weights,
    cadis-no-distillation, cadis-no-clustering, cadis-absent (uses old updates of absent clusters),
    cadis-oracle (true clusters given).
    """,
    examples="""
    cadis compare --methods fedavg,cadis
    cadis compare --methods all --seeds 5 --dataset mnist --clients 100
    cadis compare --methods fedavg,mine.py:MyMethod --grid partition=mc,iid
    """,
)
@_EXPERIMENT
@click.option(
    "--methods",
    default="fedavg,fedprox,fedfa,feddyn,cadis-paper,cadis",
    show_default=True,
    metavar="NAME,...",
    help="Methods to compare; see 'cadis methods', and more names below.",
)
@_SEEDS(default=3)
@click.option(
    "--targets",
    metavar="X,...",
    help="Target accuracies, such as 0.8,0.9: the report shows the first round that achieves "
    "each.  [default: chosen from the results]",
)
@click.option(
    "--grid",
    multiple=True,
    metavar="NAME=X,...",
    help="Compare for each value of an option, such as partition=mc,dirichlet; repeatable.",
)
@_PRESET
@_OUT
@_TRACK
def compare(**arguments: Any) -> None:
    """Compare several methods on the same federations.

    For each seed, all methods get the same partition, initial model and random numbers. Finished
    runs are reused, so the same command continues an interrupted comparison. The result is a
    statistical verdict, tables (CSV, Markdown, LaTeX), figures and a page, report.html. EXPERIMENT
    is a TOML file of options.
    """
    call("compare", "compare", **arguments)


@commands.command(
    cls=GeneratedCommand,
    options="run_options",
    examples="""
    cadis sweep --grid threshold=0.6,0.7,0.8 --grid distillation=0,0.1,1
    cadis sweep --method fedprox --grid mu=0.001,0.01,0.1 --seeds 3
    """,
)
@_EXPERIMENT
@click.option(
    "--grid",
    multiple=True,
    metavar="NAME=X,...",
    help="An option and its values; repeatable.",
)
@_SEEDS(default=1)
@_PRESET
@_OUT
@_TRACK
def sweep(**arguments: Any) -> None:
    """Run one method with every combination of option values.

    Finished runs are reused, so the same command continues an interrupted sweep. EXPERIMENT is a
    TOML file of options.
    """
    call("compare", "compare", **arguments)


@commands.command(
    examples="""
    cadis report runs/cadis-digits
    cadis report runs/cadis-digits runs/fedavg-digits --out runs/both
    cadis report runs/compare-digits --metric f1
    """
)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=PATH)
@click.option(
    "--out",
    type=PATH,
    help="Folder for the page, or a file .html.  [default: the folder of the run]",
)
@click.option(
    "--metric",
    metavar="NAME",
    help="Metric that ranks the methods: accuracy, balanced_accuracy, f1, auc, or one of your own "
    "task.  [default: that of the runs]",
)
def report(**arguments: Any) -> None:
    """Write a page with tables and figures about runs.

    RUN is the folder of a run, a comparison or a sweep, or a folder that contains several of them.
    Only runs on the same data are compared with each other. The page is one HTML file without
    links to the network; the tables and figures are written next to it.
    """
    call("report", "report", **arguments)


@commands.command(
    examples="""
    cadis watch runs/compare-digits --open
    """
)
@_RUN
@click.option(
    "--port",
    default=0,
    metavar="N",
    type=click.IntRange(0, 65535),
    help="Port of the page.  [default: a free port]",
)
@click.option("--open", "open_browser", is_flag=True, help="Open the page in a browser.")
def watch(**arguments: Any) -> None:
    """Show the report of a run while it is running.

    RUN is the folder of a run, a comparison or a sweep. The page is the same as that of 'cadis
    report', is served on this machine only, and updates itself. The command ends when the run
    ends, or with Ctrl-C.
    """
    call("report", "watch", **arguments)


@commands.command(
    examples="""
    cadis predict runs/cadis-pills photos/ --out photos.csv
    cadis predict runs/cadis-patients new.csv --label diagnosis
    """
)
@_RUN
@click.argument("inputs", metavar="INPUT", type=PATH)
@click.option(
    "--out",
    type=PATH,
    default=Path("predictions.csv"),
    show_default=True,
    help="CSV file to write.",
)
@click.option("--label", metavar="COLUMN", help="Table column with the true classes.")
@_WHICH
@_MODEL
@_NAME
@_OVERWRITE
def predict(**arguments: Any) -> None:
    """Predict classes with the model of a run.

    RUN is the folder of a run or the file of a model. INPUT is an image, a folder of images, or a
    table (.csv, .tsv or .parquet) with the columns of the training data. If the true classes are
    known, from folders named by class or a column of the table, the accuracy is shown.
    """
    call("inference", "predict", **arguments)


@commands.command(
    examples="""
    cadis export runs/cadis-digits --to onnx
    cadis export runs/cadis-digits --to torchscript --which best --out digits.pt
    """
)
@_RUN
@click.option(
    "--to",
    type=click.Choice(["onnx", "torchscript", "state-dict"]),
    required=True,
    help="Format: onnx and torchscript map raw inputs to probabilities, state-dict has the "
    "parameters only.",
)
@click.option("--out", type=PATH, help="File to write.  [default: next to the model]")
@_WHICH
@_MODEL
@_NAME
@_OVERWRITE
def export(**arguments: Any) -> None:
    """Export the model of a run to ONNX, TorchScript or a state dict.

    RUN is the folder of a run or the file of a model. The predictions of the exported model are
    compared with those of the original before the file is written.
    """
    call("inference", "export", **arguments)


@commands.command(
    examples="""
    cadis methods
    cadis methods fedprox
    """
)
@click.argument("name", required=False)
def methods(**arguments: Any) -> None:
    """List the methods and samplers, or explain one.

    Without NAME, list all with a one-line description and the paper. With NAME, show the full
    description, the parameters with their defaults, and how to run it.
    """
    call("catalogue", "methods", **arguments)


@commands.command(
    examples="""
    cadis presets
    cadis presets mnist-mc-10
    cadis run --preset mnist-mc-10
    """
)
@click.argument("name", required=False)
def presets(**arguments: Any) -> None:
    """List the experiments of the paper, or show the options of one.

    A preset is a file of options for --preset of 'cadis run' and 'cadis compare'. The list shows
    the accuracies that the paper reports.
    """
    call("catalogue", "presets", **arguments)


@commands.command(
    cls=GeneratedCommand,
    options="partition_options",
    examples="""
    cadis partition --partition dirichlet --concentration 0.1 --clients 10
    cadis partition --dataset mnist --partition uc --out uc.json
    """,
)
@_PRESET
@click.option("--out", metavar="FILE.json", type=PATH, help="File to write the partition to.")
@_FIGURE
def partition(**arguments: Any) -> None:
    """Show how a dataset is split among clients, without training.

    The result is a table, and a figure in which the area of a point is the number of samples of a
    class that a client has. 'cadis run --partition' accepts the file that --out writes.
    """
    call("figures", "partition", **arguments)


@commands.command(
    cls=GeneratedCommand,
    options="layer_options",
    examples="""
    cadis layer
    cadis layer --dataset mnist --classes 0,1,2,3 --figure layer.png
    """,
)
@click.option(
    "--classes",
    metavar="A,B,C,D",
    help="Three or four classes: two clients have the first two, a third client the others.  "
    "[default: the first classes]",
)
@_PRESET
@_FIGURE
def layer(**arguments: Any) -> None:
    """Show which classes a classifier update reveals.

    The result is heat maps of the updates of the classifier layer after training on one class, on
    two classes, and by three clients, two of which have the same classes. CADIS finds clusters
    from the similarity of such updates.
    """
    call("figures", "layer", **arguments)


commands.add_command(data)
commands.add_command(deploy)
