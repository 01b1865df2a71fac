"""``cadis layer``: show which classes an update of the classifier layer reveals."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from cadis.cli.figure_file import check_figure_type, figure_path, make_writable
from cadis.experiment import observe_layer, read_preset, resolve
from cadis.report.layer import draw_layer, layer_table
from cadis.report.terminal import loading, tell


def layer(preset: str | None, figure: Path | None, given: Mapping[str, Any]) -> int:
    """Train a few models on few classes, show and draw what became of their classifier layer.

    Args:
        preset: options to start from.
        figure: where to draw.
        given: options of a run; and ``classes``, names of the classes with commas.
    """
    options = {name: value for name, value in given.items() if name != "classes"}
    config, console = resolve(read_preset(preset) if preset else {}, options), Console()
    check_figure_type(figure)
    with loading(console) as callbacks:
        probe = observe_layer(config, given.get("classes", ""), callbacks)
    console.print(layer_table(probe))
    default = figure_path("layer", [probe.dataset, probe.model], preset, given)
    drawn = draw_layer(probe, make_writable(figure or default))
    tell(console, f"The picture is {drawn}.")
    return 0
