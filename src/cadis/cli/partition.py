"""``cadis partition``: show how training data are split among clients."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from cadis.analysis import PartitionSummary
from cadis.cli.figure_file import check_figure_type, figure_path, make_writable
from cadis.data.partition import write_partition
from cadis.errors import CadisError
from cadis.experiment import (
    build_partition,
    choose_partition,
    load_dataset,
    own_tests_of,
    read_preset,
    resolve,
)
from cadis.report.partition import draw_partition, group_table, partition_table
from cadis.report.terminal import loading, tell


def partition(
    preset: str | None, out: Path | None, figure: Path | None, given: Mapping[str, Any]
) -> int:
    """Split a dataset among clients, show and draw the partition, and write it if asked to."""
    config, console = resolve(read_preset(preset) if preset else {}, given), Console()
    if out is not None and (out.suffix != ".json" or out.stem.endswith(".clusters")):
        name = out.name.partition(".")[0]
        raise CadisError(f"The partition is written as JSON; call the file {name}.json.")
    check_figure_type(figure)
    with loading(console) as callbacks:
        dataset = load_dataset(config.settings, callbacks)
    config = choose_partition(config, dataset)
    name, dealt = config.settings.partition, build_partition(config, dataset)
    own = own_tests_of(dataset, dealt.client_ids) if name == "clients" else ()
    summary = PartitionSummary.of(f"{dataset.name}, {name}", dataset, dealt, own)
    console.print(group_table(summary))
    console.print(partition_table(summary))
    default = figure_path("partition", [dataset.name, name], preset, given)
    drawn = draw_partition(summary, make_writable(figure or default))
    tell(console, f"The picture is {drawn}.")
    if out is not None:
        files = " and ".join(map(str, write_partition(out, dealt)))
        tell(console, f"The partition is {files}.")
    return 0
