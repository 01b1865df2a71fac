"""Results of benchmarks: kept, read, compared. Nothing is timed here."""

import json
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import benchmarks.__main__ as command
from benchmarks.compare import Change, changes, main
from benchmarks.isolated import measure_in_process
from benchmarks.lines import LINES
from benchmarks.measure import Measurement
from benchmarks.peers import check_same_work
from benchmarks.results import FOLDER, Results, collect_results, find_newest, read, save
from benchmarks.steps import count_flops, iterate_rounds, make_cnn_case, make_tabular_case
from cadis.algorithm.methods import CADIS, FedAvg
from cadis.errors import CadisError

ROOT = Path(__file__).parents[1]
FAST = Measurement("step / arithmetic", 1.7, 1.35, note="5 rounds")
PEER = Measurement("peer / ours", 1.6, 2.2, at_least=True)
MEMORY = Measurement("memory", 717, 1000, "MB")


def results(*rows: Measurement, date: str = "2026-11-17-030000") -> Results:
    return Results(date, "e97ba7b", False, "a machine", {"torch": "2"}, rows, "quiet")


def replace_value(row: Measurement, value: float) -> Measurement:
    return Measurement(row.name, value, row.limit, row.unit, row.note, row.at_least)


@pytest.mark.parametrize(
    ("row", "value", "met"),
    [(FAST, 1.35, True), (FAST, 1.36, False), (PEER, 2.2, True), (PEER, 2.19, False)],
)
def test_goal_is_met_from_its_side(row: Measurement, value: float, met: bool) -> None:
    assert replace_value(row, value).met is met


def test_values_and_goals_are_formatted() -> None:
    assert (FAST.figure, FAST.goal) == ("1.7", "at most 1.35")
    assert (PEER.figure, PEER.goal) == ("1.6", "at least 2.2")
    assert (MEMORY.figure, MEMORY.goal) == ("717 MB", "at most 1000 MB")


def test_saved_results_are_read_back(tmp_path: Path) -> None:
    saved = results(FAST, PEER, MEMORY)
    path = save(saved, tmp_path / "results")
    assert path.name == "2026-11-17-030000-e97ba7b.json"
    assert read(path) == saved


def test_results_name_machine_and_commit() -> None:
    now = collect_results([FAST], "busy")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d-\d{6}", now.date)
    assert {"Python", "torch"} <= set(now.versions)
    assert (now.rows, now.note) == ((FAST,), "busy")
    assert now.commit
    assert "cores" in now.machine


def test_two_newest_results_are_found_by_date(tmp_path: Path) -> None:
    dates = ("2026-11-17-030000", "2026-12-01-000000", "2026-11-18-235959")
    first, third, second = (save(results(FAST, date=date), tmp_path) for date in dates)
    assert find_newest(tmp_path) == (second, third)
    second.unlink()
    third.unlink()
    with pytest.raises(CadisError, match="There are 1 results"):
        find_newest(tmp_path)
    assert first.exists()


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"rows": [{"name": "a"}]}', '{"rows": [], "else": 1}']
)
def test_file_that_is_not_a_result_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "odd.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CadisError, match=r"odd\.json does not contain results"):
        read(path)
    with pytest.raises(CadisError, match=r"gone\.json does not contain results"):
        read(tmp_path / "gone.json")


@pytest.mark.parametrize(
    ("row", "value", "percent", "verdict"),
    [
        (FAST, 1.36, -20, "better"),  # 1.36 / 1.7 = 0.8
        (FAST, 2.04, 20, "worse"),  # 2.04 / 1.7 = 1.2
        (FAST, 1.734, 2, "same"),
        (PEER, 2.4, 50, "better"),  # 2.4 / 1.6 = 1.5: more is better
        (PEER, 1.2, -25, "worse"),
        (PEER, 1.552, -3, "same"),
    ],
)
def test_change_is_a_percentage_with_a_verdict(
    row: Measurement, value: float, percent: float, verdict: str
) -> None:
    change = Change(row, replace_value(row, value))
    assert change.percent == pytest.approx(percent)
    assert change.verdict == verdict


def test_change_from_zero_has_no_percentage() -> None:
    change = Change(replace_value(MEMORY, 0), MEMORY)
    assert change.percent is None
    assert change.verdict == "same"


def test_rows_in_only_one_result_are_shown() -> None:
    found = changes(results(FAST, MEMORY), results(PEER, FAST))
    assert [change.row.name for change in found] == [PEER.name, FAST.name, MEMORY.name]
    assert [change.verdict for change in found] == ["new", "same", "not measured"]


def test_comparison_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = save(results(FAST, PEER), tmp_path)
    new = save(results(FAST, replace_value(PEER, 2.4), date="2026-11-18-000000"), tmp_path)
    main([str(old), str(new)])
    printed = capsys.readouterr().out
    assert re.search(r"peer / ours.*1\.6.*2\.4.*\+50\.0%.*better.*at least 2\.2.*ok", printed)
    assert re.search(r"step / arithmetic.*\+0\.0%.*same.*at most 1\.35.*missed", printed)
    assert "Noise of a few percent is normal" in printed


def test_wrong_number_of_files_is_refused() -> None:
    with pytest.raises(SystemExit, match="Give two files"):
        main(["one.json"])


def test_results_in_the_repository_are_readable_and_small() -> None:
    for path in FOLDER.glob("*.json"):
        assert path.stem == f"{read(path).date}-{read(path).commit}"
        assert path.stat().st_size < 20_000


def test_lines_have_a_group_and_a_name() -> None:
    assert all(re.fullmatch(r"[a-z]+/[a-z0-9-]+", line) for line in LINES)


def test_failing_line_is_reported() -> None:
    outcome = measure_in_process("nothing/here")
    assert not outcome.rows
    assert "KeyError: 'nothing/here'" in outcome.failure


def test_failing_line_gives_exit_code_1_after_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "LINES", dict.fromkeys(("no/such", "nor/this"), lambda: FAST))
    monkeypatch.setattr(sys, "argv", ["benchmarks"])
    with pytest.raises(SystemExit, match=r"Failed: no/such, nor/this\."):
        command.main()
    printed = capsys.readouterr().out
    assert "no/such: FAILED" in printed
    assert "measured" in printed


def test_unknown_names_of_lines_are_refused() -> None:
    command_line = [sys.executable, "-m", "benchmarks", "nothing-like-it"]
    done = subprocess.run(command_line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("There is no such benchmark; there are: ")


def test_json_output_is_valid(tmp_path: Path) -> None:
    found = json.loads(save(results(PEER), tmp_path).read_text(encoding="utf-8"))
    assert found["rows"] == [
        {
            "name": "peer / ours",
            "value": 1.6,
            "limit": 2.2,
            "unit": "",
            "note": "",
            "at_least": True,
        }
    ]


def test_flops_of_a_step_computed_by_hand() -> None:
    first = 28 * 28 * 32 * (5 * 5 * 1)  # outputs, and what each is a sum of
    second = 14 * 14 * 64 * (5 * 5 * 32)
    wide, last = 512 * (7 * 7 * 64), 10 * 512
    by_hand = 2 * (2 * first + 3 * second + 3 * wide + 3 * last)  # the pictures need no gradient
    assert count_flops(make_cnn_case().module, (1, 28, 28)) == by_hand


def test_two_engines_train_the_same_clients_in_turns() -> None:
    case = (
        make_tabular_case()
    )  # ten clients of 60 samples: 5 epochs of 8 batches, the last one of 4
    with (
        closing(iterate_rounds(case, FedAvg())) as ours,
        closing(iterate_rounds(case, CADIS())) as theirs,
    ):
        for _ in range(2):
            one, other = next(ours), next(theirs)
            assert one.steps == other.steps == 10 * 5 * 8
            assert min(one.seconds, other.seconds) > 0


@pytest.mark.parametrize("losses", [(2.3, 2.3), (0.5, 1.5), (float("nan"), 0.5)])
def test_peers_with_different_work_are_not_compared(losses: tuple[float, float]) -> None:
    with pytest.raises(RuntimeError, match="Not the same work"):
        check_same_work([losses])


def test_peers_with_the_same_work_are_compared() -> None:
    check_same_work([(2.3, 2.3), (0.5, 0.6)])
