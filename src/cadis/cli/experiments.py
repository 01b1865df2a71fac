"""Commands that train: run, compare, sweep."""

from pathlib import Path
from typing import Any

import click

from cadis.cli.command import OUT, PATH, PRESET, TRACK, GeneratedCommand, call, typed


@click.command(cls=GeneratedCommand, options="run_options")
@click.argument("experiment", required=False, type=PATH)
@PRESET
@OUT
@click.option("--resume", is_flag=True, help="Go on with the run in the folder --out.")
@TRACK
def run(
    experiment: Path | None,
    preset: str | None,
    out: Path | None,
    resume: bool,
    track: str | None,
    **options: Any,
) -> None:
    """Run a federation and keep everything in a folder.

    Without arguments: CADIS on scikit-learn's digits, 20 clients in 5 clusters. EXPERIMENT is a
    TOML file of options, such as the config.toml that every run leaves; options given here win
    over the file.
    """
    call("run", "run", experiment, preset, out, resume, track, typed(options))


@click.command(cls=GeneratedCommand, options="compare_options")
@click.argument("experiment", required=False, type=PATH)
@click.option(
    "--methods",
    default="fedavg,fedprox,fedfa,feddyn,cadis",
    show_default=True,
    metavar="NAME,NAME,...",
    help="What to compare: methods, as for 'cadis run'; FILE.py:CLASS for one of your own; "
    "cadis-no-distillation, cadis-no-clustering, cadis-no-transitive, cadis-oracle (true clusters "
    "given); ablations: cadis and all these.",
)
@click.option(
    "--seeds",
    default=3,
    show_default=True,
    type=click.IntRange(1),
    help="Runs of each, from --seed.",
)
@click.option(
    "--targets", metavar="X,X,...", help="Accuracies to be reached.  [default: some that fit]"
)
@PRESET
@OUT
@TRACK
def compare(
    experiment: Path | None,
    methods: str,
    seeds: int,
    targets: str | None,
    preset: str | None,
    out: Path | None,
    track: str | None,
    **options: Any,
) -> None:
    """Run several methods on the same federations and say who wins.

    For one seed, all methods have the same partition, initial model and participants. Runs that
    exist are reused, and the same command goes on with what was interrupted. At the end: tables
    (also as CSV, Markdown and LaTeX), pictures, and a page, report.html.
    """
    asked = {"methods": methods, "seeds": seeds, "targets": targets, "track": track}
    call("compare", "compare", experiment, preset, out, asked, typed(options))


@click.command(cls=GeneratedCommand, options="run_options")
@click.argument("experiment", required=False, type=PATH)
@click.option(
    "--grid", multiple=True, metavar="NAME=X,X,...", help="An option and its values; repeat it."
)
@click.option(
    "--seeds",
    default=1,
    show_default=True,
    type=click.IntRange(1),
    help="Runs of each, from --seed.",
)
@PRESET
@OUT
@TRACK
def sweep(
    experiment: Path | None,
    grid: tuple[str, ...],
    seeds: int,
    preset: str | None,
    out: Path | None,
    track: str | None,
    **options: Any,
) -> None:
    """Run a method with every combination of values of some options.

    For example: cadis sweep --grid threshold=0.6,0.7,0.8 --grid distillation=0,0.1,1
    """
    asked = {"grid": grid, "seeds": seeds, "track": track}
    call("compare", "sweep", experiment, preset, out, asked, typed(options))
