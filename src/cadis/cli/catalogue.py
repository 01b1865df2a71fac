"""``cadis methods`` and ``cadis presets``: list the built-in parts and presets, or show one."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cadis._io import is_user_code
from cadis.algorithm import About, Entry, build_catalogue, check_names, get_field_names
from cadis.algorithm.catalogue import make_user_entry
from cadis.algorithm.methods import METHODS, get_method_label
from cadis.cli.options import parse_attribute_docs
from cadis.experiment import (
    list_presets,
    read_paper,
    read_preset_text,
    to_option_name,
)
from cadis.report.console import SafeConsole
from cadis.report.terminal_table import TerminalTable, make_terminal_table

_NAME_WIDTH = 15
"""Minimum width of the column of names, so that all lists are aligned."""


def methods(name: str | None = None) -> int:
    """List all built-in parts by topic, or show one part in full."""
    console, catalogue = SafeConsole(), build_catalogue()
    if name is None:
        for topic, entries in catalogue.items():
            console.print(_make_list(topic, entries))
        console.print("Explain one: cadis methods NAME    Run a method: cadis run --method NAME")
        console.print("Compare methods: cadis compare --methods NAME,NAME,...")
        return 0
    if is_user_code(name):
        _print_entry(console, make_user_entry(name))
        return 0
    known = {entry.name: entry for entries in catalogue.values() for entry in entries}
    check_names("method or other part", [name.lower()], [*known, "FILE.py:CLASS"])
    _print_entry(console, known[name.lower()])
    return 0


def presets(name: str | None = None) -> int:
    """List the experiments of the paper, or show the file of one."""
    console = SafeConsole()
    if name is not None:
        console.print(read_preset_text(name), markup=False, highlight=False, end="", soft_wrap=True)
        return 0
    papers = {preset: read_paper(preset) for preset in list_presets()}
    methods = [method for method in METHODS if any(method in p.accuracy for p in papers.values())]
    columns, rows = ["preset", "table or figure", *map(get_method_label, methods)], []
    for preset, paper in papers.items():
        accuracies = (f"{paper.accuracy[m]:.2f}" if m in paper.accuracy else "" for m in methods)
        rows.append([preset, paper.place, *accuracies])
    title = "Experiments of the CADIS paper, and the accuracies in % that it reports"
    console.print(make_terminal_table(title, columns, rows, words=columns[:2]))
    console.print(
        "The name of a preset consists of the dataset, the partition and the number of "
        "participants per round."
    )
    console.print("Run one: cadis run --preset NAME    Show its options: cadis presets NAME")
    return 0


def _make_list(topic: str, entries: list[Entry]) -> Table:
    option = entries[0].option.split()[0]
    hint = "" if option == "--method" else f" ({option} NAME)"
    table = Table(title=f"{topic.capitalize()}{hint}", box=None)
    table.title_justify, table.show_header = "left", False
    table.add_column(no_wrap=True, style="bold", min_width=_NAME_WIDTH)
    table.add_column()
    for entry in entries:
        paper = entry.about.paper
        facts = "; ".join(filter(None, (paper.citation if paper else "", entry.parameters)))
        link = f"\n[dim]{paper.link}[/dim]" if paper and paper.link else ""
        text = f"{escape(entry.summary)}\n[dim]{escape(facts)}[/dim]".rstrip()
        table.add_row(entry.name, text + link)
    return table


def _print_entry(console: Console, entry: Entry) -> None:
    title = f"{entry.name}, a {entry.kind.noun}: {entry.about.topic}"
    console.print(title, style="bold", markup=False)
    console.print(f"\n{entry.description}\n", markup=False, highlight=False)
    facts = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for fact, value in _collect_facts(entry).items():
        facts.add_row(fact, escape(value))
    if facts.row_count:
        console.print(facts)
    if get_field_names(entry.part):
        console.print(_make_parameter_table(entry))
    console.print(f"Run it: cadis run {entry.option}", markup=False, highlight=False)
    if entry.kind.key in ("method", "sampler"):
        compare = f"cadis compare --methods fedavg,{entry.name}"
        console.print(f"Compare it: {compare}", markup=False, highlight=False)


def _collect_facts(entry: Entry) -> dict[str, str]:
    """Return the facts about a part by title, in the order in which they are shown."""
    about, facts = entry.about, {}
    if paper := about.paper:
        facts = {"Paper": f"{paper.title} ({paper.citation})", "Authors": paper.authors}
        facts |= {"Link": paper.link} if paper.link else {}
    if about != About():  # a user's class need not have facts
        facts |= {
            "Sent besides the model": about.sends,
            "Client state": about.client_state,
            "Server state": about.server_state,
            "Runs on Flower": about.flower,
            "Works with batch norm": about.batch_norm,
        }
    default_parts = entry.part.default_parts if entry.kind.key == "method" else {}
    return facts | {f"Default {key.replace('_', ' ')}": name for key, name in default_parts.items()}


def _make_parameter_table(entry: Entry) -> TerminalTable:
    columns, rows = ("option", "default", "description"), []
    descriptions = parse_attribute_docs(entry.part)
    for field in get_field_names(entry.part):
        default = getattr(entry.part, field, "required")
        rows.append(
            [
                to_option_name(field),
                escape(str(default).lower()),
                escape(descriptions.get(field, "")),
            ]
        )
    return make_terminal_table("Parameters", columns, rows, words=columns)
