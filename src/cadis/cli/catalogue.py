"""``cadis methods`` and ``cadis presets``: list what there is to choose from, or show one."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cadis.algorithm import Entry, catalogue, check_names, names_of
from cadis.algorithm.methods import METHODS, label_of
from cadis.cli.options import described_attributes
from cadis.experiment import as_option, preset_names, preset_text, qualified, read_paper
from cadis.report.terminal_table import Fitting, fitting_table

_FACTS = {
    "paper": "Paper",
    "sends": "Sent beyond the model",
    "client_memory": "A client remembers",
    "server_memory": "The server remembers",
    "flower": "Runs on Flower",
    "batch_norm": "Works with batch norm",
}
"""What is told of one of them, in this order."""

_WIDEST = 15
"""Letters of the longest name, so that all lists are aligned."""


def methods(name: str | None = None) -> int:
    """List all, by what they are about, or tell all of one."""
    console, found = Console(), catalogue()
    if name is None:
        for about, entries in found.items():
            console.print(_list(about, entries))
        console.print("One in full: cadis methods NAME    Run it: cadis run --method NAME")
        console.print("Compare some, or all: cadis compare --methods NAME,NAME,...")
        return 0
    known = {entry.name: entry for entries in found.values() for entry in entries}
    check_names("method or sampler", [name.lower()], known)
    _tell(console, known[name.lower()])
    return 0


def presets(name: str | None = None) -> int:
    """List the experiments of the paper, or show the file of one."""
    console = Console()
    if name is not None:
        console.print(preset_text(name), markup=False, highlight=False, end="", soft_wrap=True)
        return 0
    papers = {preset: read_paper(preset) for preset in preset_names()}
    methods = [method for method in METHODS if any(method in p.accuracy for p in papers.values())]
    columns, rows = ["preset", "in the paper", *map(label_of, methods)], []
    for preset, paper in papers.items():
        found = (f"{paper.accuracy[m]:.2f}" if m in paper.accuracy else "" for m in methods)
        rows.append([preset, paper.place, *found])
    title = "The paper's experiments, and its top-1 accuracy in %"
    console.print(fitting_table(title, columns, rows, words=columns[:2]))
    console.print("A preset's name: dataset, partition, clients in a round.")
    console.print("Run one by: cadis run --preset NAME    Read its file by: cadis presets NAME")
    return 0


def _list(about: str, entries: list[Entry]) -> Table:
    samplers = all(entry.kind.key == "sampler" for entry in entries)
    table = Table(title=f"{about.capitalize()}{' (--sampler NAME)' * samplers}", box=None)
    table.title_justify, table.show_header = "left", False
    table.add_column(no_wrap=True, style="bold", min_width=_WIDEST)
    table.add_column()
    for entry in entries:
        facts = "; ".join(filter(None, (entry.about.paper, entry.parameters)))
        table.add_row(entry.name, f"{escape(entry.line)}\n[dim]{escape(facts)}[/dim]".rstrip())
    return table


def _tell(console: Console, entry: Entry) -> None:
    name, about = entry.name, entry.about
    console.print(f"{name}, a {entry.kind.noun}: {about.kind}", style="bold", markup=False)
    console.print(f"\n{entry.text}\n", markup=False, highlight=False)
    facts = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for fact, title in _FACTS.items():
        if told := getattr(about, fact):
            facts.add_row(title, escape(told))
    default_parts = entry.part.default_parts if entry.kind.key == "method" else {}
    for kind, other in default_parts.items():
        facts.add_row(f"Goes with the {kind.replace('_', ' ')}", escape(other))
    console.print(facts)
    if names_of(entry.part):
        console.print(_parameters(entry))
    runs = f"cadis run --{entry.kind.key} {name}"
    console.print(f"Run it: {runs}    Compare it: cadis compare --methods fedavg,{name}")


def _parameters(entry: Entry) -> Fitting:
    columns, rows = ("option", "default", "what it is"), []
    described = described_attributes(entry.part)
    for field in names_of(entry.part):
        default = getattr(entry.part, field, "must be given")
        option = as_option(qualified(entry.part, field))
        rows.append([option, str(default).lower(), escape(described.get(field, ""))])
    return fitting_table("Parameters", columns, rows, words=columns)
