"""``cadis presets``: the paper's experiments."""

from rich.console import Console
from rich.table import Table

from cadis.experiment import paper_figures, preset_names, preset_text
from cadis.methods import METHODS, label_of


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
    for method in METHODS:
        table.add_column(label_of(method), justify="right", no_wrap=True)
    for preset in preset_names():
        figures = paper_figures(preset)
        numbers = [f"{figures[name]:.2f}" if name in figures else "" for name in METHODS]
        table.add_row(preset, *numbers)
    console.print(table)
    console.print("A preset's name: dataset, partition, clients in a round.")
    console.print("Run one by: cadis run --preset NAME    Read its file by: cadis presets NAME")
    return 0
