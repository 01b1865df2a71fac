"""``cadis partition`` and ``cadis layer``: a table and a figure, without a federated run."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from cadis._io import check_output
from cadis.analysis import PartitionSummary
from cadis.cli.run import make_run_name, read_file_options, shorten_name
from cadis.data.partition import write_partition
from cadis.errors import CadisError
from cadis.experiment import (
    choose_partition,
    get_client_tests,
    load_dataset,
    make_partition,
    observe_layer,
    resolve,
)
from cadis.options import find_options_by_scope
from cadis.report.console import SafeConsole
from cadis.report.layer import draw_layer, make_layer_table
from cadis.report.partition import draw_partition, make_cluster_table, make_partition_table
from cadis.report.style import is_cadis_figure
from cadis.report.terminal import print_line, show_loading

_NOT_IN_NAME = ("dataset", "partition", "model", *find_options_by_scope("machine"))
"""Options that the name of a figure already contains, or that do not change the figure."""


def partition(
    preset: str | None = None, out: Path | None = None, figure: Path | None = None, **options: Any
) -> int:
    """Split a dataset among clients, show and draw the partition, and write it to ``out``."""
    config, console = resolve(read_file_options(preset=preset), options), SafeConsole()
    if out is not None and (out.suffix != ".json" or out.stem.endswith(".clusters")):
        name = out.name.partition(".")[0]
        raise CadisError(f"The partition is a JSON file; name it {name}.json.")
    _check_type(figure)
    with show_loading(console) as callbacks:
        dataset = load_dataset(config.settings, callbacks)
    config = choose_partition(config, dataset)
    name, split = config.settings.partition, make_partition(config, dataset)
    client_tests = get_client_tests(dataset, split.client_ids) if name == "clients" else ()
    summary = PartitionSummary.from_partition(
        f"{dataset.name}, {name}", dataset, split, client_tests
    )
    console.print(make_cluster_table(summary))
    console.print(make_partition_table(summary))
    path = figure or _make_default_path(["partition", dataset.name, name], preset, options)
    print_line(console, f"Figure: {draw_partition(summary, _create_figure_file(path))}")
    if out is not None:
        files = " and ".join(map(str, write_partition(out, split)))
        print_line(console, f"Partition: {files}")
    return 0


def layer(preset: str | None = None, figure: Path | None = None, **options: Any) -> int:
    """Train models on a few classes each; show their classifier updates in a table and a figure.

    The options are those of a run, and ``classes``: names of classes, separated by commas.
    """
    overrides = {name: value for name, value in options.items() if name != "classes"}
    config, console = resolve(read_file_options(preset=preset), overrides), SafeConsole()
    _check_type(figure)
    with show_loading(console) as callbacks:
        probe = observe_layer(config, options.get("classes", ""), callbacks)
    console.print(make_layer_table(probe))
    path = figure or _make_default_path(["layer", probe.dataset, probe.model], preset, options)
    print_line(console, f"Figure: {draw_layer(probe, _create_figure_file(path))}")
    return 0


def _make_default_path(
    words: Sequence[str], preset: str | None, options: Mapping[str, Any]
) -> Path:
    """Return the path of a figure; its name has all options that change the figure.

    The name contains only the last component of a path. A digest of all paths is added, so that the
    figures of ``a/data.csv`` and ``b/data.csv`` have different names.
    """
    values = [f"{key}-{value}" for key, value in sorted(options.items()) if key not in _NOT_IN_NAME]
    paths = [str(value) for value in options.values() if "/" in str(value)]
    digest = [sha256("\n".join(paths).encode()).hexdigest()[:8]] if paths else []
    name = make_run_name(*words, *([preset] if preset else []), *values, *digest)
    return Path("runs") / f"{shorten_name(name)}.png"


def _check_type(path: Path | None) -> None:
    if path is not None:
        check_output(path)
    if path is not None and path.suffix not in (".png", ".pdf", ".svg"):
        raise CadisError(f"The figure is a PNG, PDF or SVG file; name it {path.stem}.png.")


def _create_figure_file(path: Path) -> Path:
    """Create the file of a figure; raise an error if it exists and is not a figure of cadis."""
    check_output(path)
    if path.is_file() and path.stat().st_size and not is_cadis_figure(path):
        raise CadisError(
            f"{path} exists and is not a figure of cadis; choose another file with --figure."
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError as error:
        raise CadisError(f"The file {path} cannot be written: {error.strerror}.") from None
    return path
