"""Names from outside are shown as they are in the terminal, figures, tables and cards."""

import io
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from matplotlib.text import Text

from cadis.algorithm.methods import CADIS
from cadis.analysis import PartitionSummary
from cadis.cli.guard import print_error
from cadis.report import draw_figures
from cadis.report.console import SafeConsole
from cadis.report.exports import write_results
from cadis.report.page.assembly import write_report
from cadis.report.partition import draw_partition, make_cluster_table
from cadis.report.terminal import print_line, print_tables, show_run_progress
from cli_support import call
from fabricated import CLASSES, compare, compare_folders, read_csv, write_run
from legibility import collect_figures

ODD = "\x1b[31m=a|$x$[red]</script>\u202e"
SHOWN = r"\x1b[31m=a|$x$[red]</script>\u202e"


def rename(federation: dict[str, Any]) -> dict[str, Any]:
    """Give all classes odd names."""
    names = [f"{ODD}{number}" for number in range(len(CLASSES))]
    return federation | {"classes": names}


def make_console() -> tuple[SafeConsole, io.StringIO]:
    file = io.StringIO()
    return SafeConsole(file=file, width=200, force_terminal=True, color_system=None), file


def test_terminal_shows_escapes_and_markup(tmp_path: Path) -> None:
    console, file = make_console()
    print_line(console, f"Skipped {ODD}\nround 1: forged.")
    assert file.getvalue() == f"Skipped {SHOWN}\\nround 1: forged.\n"
    run = write_run(tmp_path / "run", CADIS(), change_federation=rename)
    console, file = make_console()
    print_tables(console, compare_folders(run))
    assert "\x1b[31m" not in file.getvalue()
    assert "\u202e" not in file.getvalue()
    assert SHOWN in file.getvalue()


def test_table_of_a_partition_shows_escapes() -> None:
    console, file = make_console()
    console.print(make_cluster_table(make_summary()))
    assert SHOWN in file.getvalue()
    assert "\x1b[31m" not in file.getvalue()


def test_colors_and_bars_of_our_own_are_kept() -> None:
    file = io.StringIO()
    console = SafeConsole(file=file, width=80, force_terminal=True, color_system="standard")
    console.print("[red]ours[/red] :x:")
    assert file.getvalue() == "\x1b[31mours\x1b[0m :x:\n"
    with show_run_progress(console, 2) as (_, callbacks):
        callbacks.progress(f"[red]{ODD}", 1, 2)
    assert f"[red]{SHOWN}"[:8] in file.getvalue()
    assert ODD not in file.getvalue()


def test_error_shows_escapes_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_error(f"There is no {ODD}\ncadis: fine.", 2) == 2
    assert capsys.readouterr().err == f"cadis: There is no {SHOWN}\\ncadis: fine.\n"


def make_summary() -> PartitionSummary:
    counts = torch.tensor([[3, 1], [0, 2]])
    return PartitionSummary(ODD, (ODD, "b"), (f"{ODD}1", f"{ODD}2"), counts, None, 6, 2)


def test_figures_show_dollars_and_escapes(tmp_path: Path) -> None:
    draw_partition(make_summary(), tmp_path / "figure.svg")
    ElementTree.parse(tmp_path / "figure.svg")  # a control character would not be XML
    run = write_run(tmp_path / "run", CADIS(), change_federation=rename)
    with collect_figures() as figures:
        draw_figures(compare_folders(run).results, tmp_path / "figures", pdf=False)
    texts = [text for drawing in figures.values() for text in drawing.findobj(Text)]
    assert any(r"\x1b" in text.get_text() for text in texts if isinstance(text, Text))
    for text in texts:
        assert isinstance(text, Text)
        assert not text.get_parse_math()
        assert not set("\x1b\u202e") & set(text.get_text())


def test_files_with_tables_have_no_formulas_and_no_html(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", CADIS(), change_federation=rename)
    comparison = compare_folders(run)
    write_results(comparison, tmp_path / "out")
    for name in ("results.csv", "runs.csv", "results.md", "results.tex"):
        text = (tmp_path / "out" / name).read_text()
        assert not set("\x1b\u202e") & set(text)
        assert "</script>" not in text.replace(r"\</script", "") or name.endswith((".csv", ".tex"))
    page = write_report(comparison.results, tmp_path / "page" / "report.html").read_text()
    assert "$x$[red]</script>" not in page
    assert r"$x$[red]\u003c/script>" in page


def test_csv_with_odd_methods_has_no_formulas(tmp_path: Path) -> None:
    comparison = compare(tmp_path / "study", {"fedavg": 0.5, "cadis": 0.6}, seeds=1)
    object.__setattr__(comparison.groups[0], "label", "=cmd()")
    write_results(comparison, tmp_path / "out")
    for name in ("results.csv", "runs.csv"):
        rows = read_csv((tmp_path / "out" / name).read_text())
        assert {row["method"] for row in rows} == {"'=cmd()", "CADIS"}


@pytest.mark.parametrize("arguments", [[ODD], ["predict", "a", "b", f"--{ODD}"], ["report", ODD]])
def test_wrong_arguments_are_shown_with_escapes(arguments: list[str]) -> None:
    result = call(*arguments)
    assert result.exit_code == 2
    assert SHOWN[:8] in result.stderr
    assert not set("\x1b\u202e") & set(result.output)
