"""``cadis partition`` and ``cadis layer``: a table and a figure before anything is run."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from rich.console import Console

from cadis.analysis import PartitionSummary
from cadis.cli.run import file_options, plain_name, short_name
from cadis.data.partition import write_partition
from cadis.errors import CadisError
from cadis.experiment import (
    build_partition,
    choose_partition,
    load_dataset,
    observe_layer,
    own_tests_of,
    resolve,
)
from cadis.options import options_of_scope
from cadis.report.layer import draw_layer, layer_table
from cadis.report.partition import draw_partition, group_table, partition_table
from cadis.report.style import is_picture
from cadis.report.terminal import loading, tell

_IN_NAME = ("dataset", "partition", "model", *options_of_scope("machine"))
"""Options that the name of a figure tells anyway, or that change nothing in it."""


def partition(
    preset: str | None = None, out: Path | None = None, figure: Path | None = None, **given: Any
) -> int:
    """Split a dataset among clients, show and draw the partition, and write it if asked to."""
    config, console = resolve(file_options(preset=preset), given), Console()
    if out is not None and (out.suffix != ".json" or out.stem.endswith(".clusters")):
        name = out.name.partition(".")[0]
        raise CadisError(f"The partition is written as JSON; call the file {name}.json.")
    _check_type(figure)
    with loading(console) as callbacks:
        dataset = load_dataset(config.settings, callbacks)
    config = choose_partition(config, dataset)
    name, dealt = config.settings.partition, build_partition(config, dataset)
    own = own_tests_of(dataset, dealt.client_ids) if name == "clients" else ()
    summary = PartitionSummary.of(f"{dataset.name}, {name}", dataset, dealt, own)
    console.print(group_table(summary))
    console.print(partition_table(summary))
    path = figure or _default_path("partition", [dataset.name, name], preset, given)
    drawn = draw_partition(summary, _make_writable(path))
    tell(console, f"The picture is {drawn}.")
    if out is not None:
        files = " and ".join(map(str, write_partition(out, dealt)))
        tell(console, f"The partition is {files}.")
    return 0


def layer(preset: str | None = None, figure: Path | None = None, **given: Any) -> int:
    """Train a few models on few classes, show and draw what became of their classifier layer.

    Besides options of a run, ``classes`` may be given: names of the classes with commas.
    """
    options = {name: value for name, value in given.items() if name != "classes"}
    config, console = resolve(file_options(preset=preset), options), Console()
    _check_type(figure)
    with loading(console) as callbacks:
        probe = observe_layer(config, given.get("classes", ""), callbacks)
    console.print(layer_table(probe))
    path = figure or _default_path("layer", [probe.dataset, probe.model], preset, given)
    tell(console, f"The picture is {draw_layer(probe, _make_writable(path))}.")
    return 0


def _default_path(
    what: str, of: Sequence[str], preset: str | None, given: Mapping[str, Any]
) -> Path:
    """Name a figure by all options that were given, so that no other figure has its name."""
    asked = [f"{name}-{value}" for name, value in sorted(given.items()) if name not in _IN_NAME]
    files = [str(value) for value in given.values() if "/" in str(value)]  # the name has their ends
    told = [sha256("\n".join(files).encode()).hexdigest()[:8]] if files else []
    name = plain_name(what, *of, *([preset] if preset else []), *asked, *told)
    return Path("runs") / f"{short_name(name)}.png"


def _check_type(path: Path | None) -> None:
    if path is not None and path.suffix not in (".png", ".pdf", ".svg"):
        raise CadisError(f"The picture is written as PNG, PDF or SVG; call it {path.stem}.png.")


def _make_writable(path: Path) -> Path:
    """Create the folder of a figure; refuse a file that is not one of our figures."""
    if path.is_file() and path.stat().st_size and not is_picture(path):
        raise CadisError(
            f"{path} is there already, and not drawn by cadis; choose another name by --figure."
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError as error:
        raise CadisError(f"The file {path} cannot be written: {error.strerror}.") from None
    return path
