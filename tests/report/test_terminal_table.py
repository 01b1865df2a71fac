"""Narrow terminals show every number, in tables and beside progress bars."""

import io
import re
from pathlib import Path

import pytest
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from cadis.algorithm import ServerState
from cadis.algorithm.methods import CADIS
from cadis.cli.catalogue import presets
from cadis.report.formats import TextTable, to_rich
from cadis.report.terminal import make_summary_table, print_tables, show_run_progress
from cadis.report.terminal_table import TerminalTable
from cadis.server import RoundResult, RunState
from fabricated import compare, write_run

ROWS = [
    ["CADIS without momentum", "0.953±0.001", "0.942±0.002", "+0.1 to +0.2", "12,345", "< 0.001"],
    ["Averylongnamewithoutanyspaces", "0.853±0.003", "0.842±0.004", "-0.1 to +0.3", "67", "0.5"],
]
TITLES = [
    "method",
    "best round",
    "last 10 rounds",
    "95% confidence interval",
    "training samples/s per worker",
    "p-value",
]
TABLE = TextTable("A caption that is longer than its table is wide", TITLES, ROWS, [(0, 1)])


def render(what: object, width: int) -> str:
    console = Console(width=width)
    with console.capture() as text:
        console.print(what)
    lines = text.get().splitlines()
    assert max(map(len, lines)) <= width
    return text.get()


@pytest.mark.parametrize("width", [30, 40, 60, 80, 120])
def test_every_number_stays_whole(width: int) -> None:
    text = render(to_rich(TABLE), width)
    for cell in [cell for row in TABLE.rows for cell in row[1:]]:
        assert re.search(rf"(^|\s){re.escape(cell)}(\s|$)", text), (cell, text)
    assert "…" not in text
    assert all(word in text for title in TABLE.columns for word in title.split())
    assert "Averylongname" in text


def test_each_part_repeats_the_names_of_rows() -> None:
    assert render(to_rich(TABLE), 200).count("CADIS without momentum") == 1
    narrow = render(to_rich(TABLE), 60)
    parts = len(re.findall(r"^ *method", narrow, re.M))
    assert parts > 1
    assert narrow.count("CADIS") == parts
    assert narrow.count("A caption that is longer than its table is wide\n") == 1


@pytest.mark.parametrize("box", [None, SIMPLE_HEAD, Table().box])
@pytest.mark.parametrize("edge", [True, False])
def test_a_table_is_never_wider_than_the_terminal(box: object, edge: bool) -> None:
    table = Table(box=box, pad_edge=edge)  # type: ignore[arg-type]
    for number in range(9):
        table.add_column(f"title {number}", justify="right")
    table.add_row(*(f"{number}.12345678" for number in range(9)))
    for width in range(30, 120, 7):
        text = render(TerminalTable(table), width)
        assert all(f"{number}.12345678" in text for number in range(9))


def test_narrow_tables_of_a_comparison_have_all_numbers(tmp_path: Path) -> None:
    levels = {"fedavg": 0.7, "cadis": 0.9, "scaffold": 0.8}
    comparison, numbers = compare(tmp_path / "s", levels), []
    for width in (200, 60):
        console = Console(width=width)
        with console.capture() as text:
            print_tables(console, comparison)
        assert "…" not in text.get()
        numbers.append(set(re.findall(r"\d+\.\d+(?:±\d+\.\d+)?", text.get())))
    assert len(numbers[0]) > 20
    assert numbers[1] == numbers[0]


def test_narrow_presets_and_summaries_have_all_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for width in ("60", "200"):
        monkeypatch.setenv("COLUMNS", width)
        presets(None)
        found.append(sorted(re.findall(r"\d+\.\d+", capsys.readouterr().out)))
    assert found[0] == found[1]
    summary = write_run(tmp_path / "run", CADIS()).read_json("summary.json")
    shown = render(make_summary_table(summary, "abcde"), 40)
    assert f"{summary['accuracy']:.3f}" in shown
    assert f"{summary['rare_accuracy']:.3f}" in shown


@pytest.mark.parametrize("width", [60, 70, 80, 100])
def test_all_numbers_fit_beside_a_bar(width: int, tmp_path: Path) -> None:
    record = write_run(tmp_path / "run", CADIS(), rounds=12).read_history()[11]
    paper = io.StringIO()
    with show_run_progress(Console(file=paper, force_terminal=True, width=width), 100) as shown:
        on_round, callbacks = shown
        callbacks.progress("testing on clients' data", 37, 100)
        on_round(RoundResult(record, None, RunState(12, ServerState({}))))
    last = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", paper.getvalue())[-8 * width :]
    assert all(text in last for text in ("12/100", f"{record.accuracy:.3f}", "37%", "clusters"))
    assert "…" not in last
