"""``cadis partition``: who would have what."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from cadis.cli.names import check_picture, plain_name, writable
from cadis.core import CadisError
from cadis.experiment import Census, build_partition, fitted, load_dataset, read_preset, resolve
from cadis.partition import write_partition
from cadis.report import census_table, draw_partition, group_table, loading


def partition(
    preset: str | None, out: Path | None, figure: Path | None, given: Mapping[str, Any]
) -> int:
    """Deal, show, and write what was asked for."""
    config, console = resolve(read_preset(preset) if preset else {}, given), Console()
    if out is not None and (out.suffix != ".json" or out.stem.endswith(".clusters")):
        name = out.name.partition(".")[0]
        raise CadisError(f"The partition is written as JSON; call the file {name}.json.")
    check_picture(figure)
    with loading(console) as callbacks:
        dataset = load_dataset(config.settings, callbacks)
    config = fitted(config, dataset)
    name, dealt = config.settings.partition, build_partition(config, dataset)
    census = Census.take(f"{dataset.name}, {name}", dataset, dealt)
    console.print(group_table(census))
    console.print(census_table(census))
    default = Path("runs") / f"partition-{plain_name(dataset.name, name)}.png"
    drawn = draw_partition(census, writable(figure or default))
    console.print(f"The picture is {drawn}.", soft_wrap=True, markup=False)
    if out is not None:
        files = " and ".join(map(str, write_partition(out, dealt)))
        console.print(f"The partition is {files}.", soft_wrap=True, markup=False)
    return 0
