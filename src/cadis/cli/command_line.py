"""Declarations of the commands: arguments, options, help texts and examples.

The modules that do the work are imported when a command is called, so that ``--help`` is fast.
"""

from functools import partial
from pathlib import Path
from typing import Any

import click

from cadis.cli.command import PATH, TRUST, CadisGroup, GeneratedCommand, call
from cadis.cli.subcommands import data, deploy

_EXPERIMENT = click.argument("experiment", required=False, type=PATH)
_PRESET = click.option(
    "--preset",
    metavar="NAME",
    help="Begin with the options of an experiment of the CADIS paper; 'cadis presets' lists the "
    "names.",
)
_OUT = click.option(
    "--out", type=PATH, help="Folder for the results.  [default: a subfolder of runs/]"
)
_TRACK = click.option("--track", metavar="NAME", help="Also log to tensorboard, wandb or mlflow.")
_FIGURE = click.option(
    "--figure", type=PATH, help="File of the figure (.png, .pdf, .svg).  [default: a file in runs/]"
)
_RUN = click.argument("run", metavar="RUN", type=PATH)
_SEEDS = partial(
    click.option,
    "--seeds",
    metavar="N",
    show_default=True,
    type=click.IntRange(1),
    help="Number of runs of each method; their seeds are --seed, --seed + 1, ...",
)
_WHICH = click.option(
    "--which",
    type=click.Choice(["last", "best"]),
    default="last",
    show_default=True,
    help="Use the model of the last round or of the best round.",
)
_MODEL = click.option(
    "--model",
    metavar="FILE.py:FUNCTION",
    help="Your function that creates the model; needed only if the model was given to cadis.run in "
    "Python, or if you trained with --model FILE.py:FUNCTION and have moved that file.",
)
_NAME = click.option(
    "--name", metavar="NAME", help="Name of the model, if the run has several, as with ifca."
)
_OVERWRITE = click.option("--overwrite", is_flag=True, help="Replace an existing file.")


_TRUST = click.option(
    TRUST,
    is_flag=True,
    expose_value=False,
    help="Run code that a file names (your own method, model, data, ...). Without it, only code "
    "that you name on the command line runs, and code of runs that you began on this machine.",
)
_TRUST_MODEL = click.option(
    TRUST,
    is_flag=True,
    help="Run code that the model file or the run names (its own model or task). It is not needed "
    "for runs that you began on this machine.",
)


@click.group(
    cls=CadisGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    examples="""
    cadis run                                        train on handwritten digits
    cadis compare --methods fedavg,cadis --seeds 3   compare two methods
    cadis methods fedprox                            explain a method
    cadis run --help                                 show all options of 'run'
    """,
)
@click.version_option(package_name="cadis")
def commands() -> None:
    """Federated learning for clients in clusters of unequal size.

    Simulate a federation on this machine, compare methods, use the trained model, or create the
    files to run a federation on several machines.
    """


@commands.command(
    cls=GeneratedCommand,
    options_function="run_options",
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
@click.option("--resume", is_flag=True, help="Continue the run in the folder given with --out.")
@_TRACK
@_TRUST
def run(**arguments: Any) -> None:
    """Train a model with federated learning.

    Without arguments, the method is CADIS and the data are handwritten digits, split among 20
    clients in 5 clusters. The model, the results of all rounds, figures and the options
    (config.toml) are written to a folder.

    EXPERIMENT is a TOML file with options, for example the config.toml of an earlier run. Options
    on the command line override the options in the file.
    """
    call("run", "run", **arguments)


@commands.command(
    cls=GeneratedCommand,
    options_function="compare_options",
    epilog="""
    --methods takes the names that 'cadis methods' lists, your own FILE.py:CLASS, and these names:

    \b
    power-of-choice, fedcluster, hics  FedAvg with this sampler
    all                                all methods, and the three above
    cadis-uniform                      CADIS with uniform sampling
    cadis-no-momentum                  CADIS without server momentum
    cadis-plain-weights                CADIS with the weights of FedAvg
    cadis-no-distillation              CADIS without distillation
    cadis-no-clustering                CADIS with one cluster per client
    cadis-absent                       CADIS with uniform sampling, and with old
                                       updates of clusters without participants
    cadis-hard-weights                 CADIS with weights and sampling by clusters
    cadis-oracle                       CADIS with the true clusters
    ablations                          cadis, and all names cadis-... above
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
    help="Methods to compare; the end of this text lists the names.",
)
@_SEEDS(default=3)
@click.option(
    "--targets",
    metavar="X,...",
    help="Accuracies such as 0.8,0.9; a table shows the first round that reaches each.  [default: "
    "chosen from the results]",
)
@click.option(
    "--grid",
    multiple=True,
    metavar="NAME=X,...",
    help="Compare the methods for each of these values of an option, for example "
    "partition=mc,dirichlet; repeatable.",
)
@_PRESET
@_OUT
@_TRACK
@_TRUST
def compare(**arguments: Any) -> None:
    """Compare several methods on the same federations.

    For each seed, all methods get the same partition, initial model and random numbers. The results
    are a sentence that says which method is better, tables (CSV, Markdown, LaTeX), figures, and a
    page, report.html. If you repeat the command, finished runs are reused and interrupted runs
    continue.

    EXPERIMENT is a TOML file with options. Options on the command line override the options in the
    file.
    """
    call("compare", "compare", **arguments)


@commands.command(
    cls=GeneratedCommand,
    options_function="run_options",
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
    help="Option and its values, for example mu=0.01,0.1; repeatable.",
)
@_SEEDS(default=1)
@_PRESET
@_OUT
@_TRACK
@_TRUST
def sweep(**arguments: Any) -> None:
    """Run one method with all combinations of the values of options.

    If you repeat the command, finished runs are reused and interrupted runs continue.

    EXPERIMENT is a TOML file with options. Options on the command line override the options in the
    file.
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
    help="Folder or .html file of the page.  [default: the folder of the run]",
)
@click.option(
    "--metric",
    metavar="NAME",
    help="Metric that ranks the methods: accuracy, balanced_accuracy, f1, auc, or a metric of your "
    "own task.  [default: the metric of the runs]",
)
def report(**arguments: Any) -> None:
    """Write a report page with tables and figures about runs.

    RUN is the folder of a run, a comparison or a sweep, or a folder that contains several of them.
    Only runs on the same data are compared with each other. The page is one HTML file that works
    without a network; the tables and figures are written next to it.
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

    RUN is the folder of a run, a comparison or a sweep. The page is the same as the page of 'cadis
    report'. It updates itself, and only this machine can open it. The command ends when the run
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
@click.option("--label", metavar="COLUMN", help="Column of the table that has the true classes.")
@_WHICH
@_MODEL
@_NAME
@_TRUST_MODEL
@_OVERWRITE
def predict(**arguments: Any) -> None:
    """Predict classes with the model of a run.

    RUN is the folder of a run or the file of a model. INPUT is an image, a folder of images, or a
    table (.csv, .tsv or .parquet) with the columns of the training data. If the true classes are
    known (from the names of folders, or from a column of the table), the accuracy is shown.
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
    help="File format. Models in onnx and torchscript map unscaled inputs to probabilities; "
    "state-dict has the parameters only.",
)
@click.option("--out", type=PATH, help="File to write.  [default: next to the model]")
@_WHICH
@_MODEL
@_NAME
@_TRUST_MODEL
@_OVERWRITE
def export(**arguments: Any) -> None:
    """Export the model of a run to ONNX, TorchScript or a state dict.

    RUN is the folder of a run or the file of a model. Before the file is written, the exported
    model is tested: it must predict the same classes as the original model.
    """
    call("inference", "export", **arguments)


@commands.command(
    examples="""
    cadis methods
    cadis methods fedprox
    cadis methods examples/methods/fedcm.py:FedCM
    """
)
@click.argument("name", required=False)
def methods(**arguments: Any) -> None:
    """List the methods and other parts, or explain one.

    Without NAME, list all methods, samplers, server optimizers and transforms, each with a short
    description and its paper. With NAME, or FILE.py:CLASS for your own part, show the full
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

    A preset is a TOML file with the options of an experiment of the CADIS paper. Use it with
    --preset in 'cadis run' and 'cadis compare'. The list also shows the accuracies that the paper
    reports.
    """
    call("catalogue", "presets", **arguments)


@commands.command(
    cls=GeneratedCommand,
    options_function="partition_options",
    examples="""
    cadis partition --partition dirichlet --concentration 0.1 --clients 10
    cadis partition --dataset mnist --partition uc --out uc.json
    """,
)
@_PRESET
@click.option("--out", metavar="FILE.json", type=PATH, help="File for the partition.")
@_FIGURE
def partition(**arguments: Any) -> None:
    """Show how a dataset is split among clients, without training.

    The result is a table, and a figure with one point per client and class; the area of the point
    is the number of samples. With --out, the partition is also written to a file, which you can use
    with 'cadis run --partition FILE.json'.
    """
    call("figures", "partition", **arguments)


@commands.command(
    cls=GeneratedCommand,
    options_function="layer_options",
    examples="""
    cadis layer
    cadis layer --dataset mnist --classes 0,1,2,3 --figure layer.png
    """,
)
@click.option(
    "--classes",
    metavar="A,B,C,D",
    help="Three or four classes. Clients 1 and 2 have the first two, client 3 has the others.  "
    "[default: the first four classes]",
)
@_PRESET
@_FIGURE
def layer(**arguments: Any) -> None:
    """Show which classes a classifier update reveals.

    Five models are trained: on one class, on two classes, and by three clients, of which two have
    the same classes. Heat maps show the update of the classifier layer of each model. CADIS finds
    clusters from the similarity of such updates.
    """
    call("figures", "layer", **arguments)


commands.add_command(data)
commands.add_command(deploy)
