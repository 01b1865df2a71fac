"""``cadis presets``: list the experiments of the paper, or print one."""

from rich.console import Console
from rich.table import Table

from cadis.algorithm.methods import METHODS, label_of
from cadis.experiment import preset_names, preset_text, read_paper
from cadis.report.terminal_table import Fitting


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
    papers = {preset: read_paper(preset) for preset in preset_names()}
    methods = [method for method in METHODS if any(method in p.accuracy for p in papers.values())]
    for method in methods:
        table.add_column(label_of(method), justify="right", no_wrap=True)
    for preset, paper in papers.items():
        found = (f"{paper.accuracy[m]:.2f}" if m in paper.accuracy else "" for m in methods)
        table.add_row(preset, paper.place, *found)
    console.print(Fitting(table))
    console.print("A preset's name: dataset, partition, clients in a round.")
    console.print("Run one by: cadis run --preset NAME    Read its file by: cadis presets NAME")
    return 0
