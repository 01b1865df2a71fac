"""What ``cadis partition``, ``layer``, ``watch`` and ``presets`` show."""

import webbrowser
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from cadis.algorithm.methods import METHODS, label_of
from cadis.analysis import Census
from cadis.cli.run import plain_name, short_name
from cadis.data.partition import write_partition
from cadis.errors import CadisError
from cadis.experiment import (
    build_partition,
    fitted,
    load_dataset,
    observe_layer,
    own_tests_of,
    paper_figures,
    place_in_paper,
    preset_names,
    preset_text,
    read_preset,
    resolve,
)
from cadis.options import options_of_scope
from cadis.report import (
    Fitting,
    Watched,
    census_table,
    draw_layer,
    draw_partition,
    group_table,
    is_picture,
    layer_table,
    loading,
    serving,
    tell,
    wait_for_end,
)


def partition(
    preset: str | None, out: Path | None, figure: Path | None, given: Mapping[str, Any]
) -> int:
    """Deal, show, and write what was asked for."""
    config, console = resolve(read_preset(preset) if preset else {}, given), Console()
    if out is not None and (out.suffix != ".json" or out.stem.endswith(".clusters")):
        name = out.name.partition(".")[0]
        raise CadisError(f"The partition is written as JSON; call the file {name}.json.")
    _check_picture(figure)
    with loading(console) as callbacks:
        dataset = load_dataset(config.settings, callbacks)
    config = fitted(config, dataset)
    name, dealt = config.settings.partition, build_partition(config, dataset)
    own = own_tests_of(dataset, dealt.client_ids) if name == "clients" else ()
    census = Census.take(f"{dataset.name}, {name}", dataset, dealt, own)
    console.print(group_table(census))
    console.print(census_table(census))
    default = _picture("partition", [dataset.name, name], preset, given)
    drawn = draw_partition(census, _writable(figure or default))
    console.print(f"The picture is {drawn}.", soft_wrap=True, markup=False)
    if out is not None:
        files = " and ".join(map(str, write_partition(out, dealt)))
        console.print(f"The partition is {files}.", soft_wrap=True, markup=False)
    return 0


def layer(preset: str | None, figure: Path | None, given: Mapping[str, Any]) -> int:
    """Train a few models on few classes, show and draw what became of their classifier layer.

    Args:
        preset: options to start from.
        figure: where to draw.
        given: options of a run; and ``classes``, names of the classes with commas.
    """
    options = {name: value for name, value in given.items() if name != "classes"}
    config, console = resolve(read_preset(preset) if preset else {}, options), Console()
    _check_picture(figure)
    with loading(console) as callbacks:
        behaviour = observe_layer(config, given.get("classes", ""), callbacks)
    console.print(layer_table(behaviour))
    default = _picture("layer", [behaviour.dataset, behaviour.model], preset, given)
    drawn = draw_layer(behaviour, _writable(figure or default))
    console.print(f"The picture is {drawn}.", soft_wrap=True, markup=False)
    return 0


def watch(path: Path, port: int, open_browser: bool) -> int:
    """Serve until the run has ended, or Ctrl-C."""
    console, watched = Console(), Watched(path)
    with serving(watched, port) as address:
        idle = "" if watched.is_running() else " Nobody is working on it at present."
        tell(console, f"{path} is shown at {address} until it ends, or Ctrl-C.{idle}")
        if open_browser:
            webbrowser.open(address)
        try:
            wait_for_end(watched)
        except KeyboardInterrupt:
            tell(console, "Stopped watching; what is watched goes on.")
            return 0
    tell(console, f"It has ended; look at it again by: cadis report {path}")
    return 0


def presets(name: str | None) -> int:
    """List them, or show one as it is."""
    console = Console()
    if name is not None:
        console.print(preset_text(name), markup=False, highlight=False, end="", soft_wrap=True)
        return 0
    table = Table(
        title="The paper's experiments, and its top-1 accuracy in %", title_justify="left"
    )
    table.add_column("preset", no_wrap=True)
    table.add_column("in the paper", no_wrap=True)
    figures = {preset: paper_figures(preset) for preset in preset_names()}
    methods = [method for method in METHODS if any(method in found for found in figures.values())]
    for method in methods:
        table.add_column(label_of(method), justify="right", no_wrap=True)
    for preset, found in figures.items():
        table.add_row(
            preset,
            place_in_paper(preset),
            *(f"{found[m]:.2f}" if m in found else "" for m in methods),
        )
    console.print(Fitting(table))
    console.print("A preset's name: dataset, partition, clients in a round.")
    console.print("Run one by: cadis run --preset NAME    Read its file by: cadis presets NAME")
    return 0


_IN_NAME = ("dataset", "partition", "model", *options_of_scope("machine"))
"""Options that the name of a picture tells anyway, or that change nothing in it."""


def _picture(what: str, of: Sequence[str], preset: str | None, given: Mapping[str, Any]) -> Path:
    """Where a picture goes: its name tells all that was asked for, so that no other has it."""
    asked = [f"{name}-{value}" for name, value in sorted(given.items()) if name not in _IN_NAME]
    files = [str(value) for value in given.values() if "/" in str(value)]  # the name has their ends
    told = [sha256("\n".join(files).encode()).hexdigest()[:8]] if files else []
    name = plain_name(what, *of, *([preset] if preset else []), *asked, *told)
    return Path("runs") / f"{short_name(name)}.png"


def _check_picture(path: Path | None) -> None:
    """Refuse a picture of a kind that is not drawn."""
    if path is not None and path.suffix not in (".png", ".pdf", ".svg"):
        raise CadisError(f"The picture is written as PNG, PDF or SVG; call it {path.stem}.png.")


def _writable(path: Path) -> Path:
    """A file that can be written, in a folder that is there; a picture of ours may be replaced."""
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
