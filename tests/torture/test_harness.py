"""The attacks can fail: whatever harm there is, is found, and only that."""

import json
import os
import platform
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from torture import fuzzing
from torture.campaign import Campaign
from torture.disturbance import kill_myself, watch_operations, when_shown
from torture.experiments import Experiment, Recovery, difference, judge_end, left_over, undisturbed
from torture.harm import OF_CONTENT, OF_FILES, OF_TEXT, Draw, do_harm
from torture.outcomes import Attack, Case, Finding, Trial
from torture.table import Row, markdown, write_markdown
from torture.victim import Work, command, run_to_end

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="they want Linux")

TINY = Experiment("fedavg", rounds=2)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return undisturbed(TINY, tmp_path_factory.mktemp("reference") / "runs" / "run")


@pytest.fixture
def run(reference: Path, tmp_path: Path) -> Path:
    return shutil.copytree(reference, tmp_path / "runs" / "run")


@pytest.mark.parametrize(
    ("verdict", "work"),
    [
        ("traceback", lambda: int("missing")),
        ("hang", lambda: time.sleep(60)),
        ("signal", lambda: os.kill(os.getpid(), signal.SIGBUS)),
        ("wrong code", lambda: 3),
        ("wrong code", lambda: 2),  # without a sentence
        (None, lambda: 0),
        (None, command(["presets", "no-such"])),
    ],
)
def test_how_a_process_ended(verdict: str | None, work: Work, tmp_path: Path) -> None:
    patience = 0.5 if verdict == "hang" else 20
    fault = run_to_end(work, tmp_path / "log", seconds=patience).fault()
    assert (fault and fault.verdict) == verdict


def test_a_finished_run_is_like_itself_whatever_time_it_took(run: Path, reference: Path) -> None:
    lines = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    slower = [line | {"seconds": {"total": 9}} for line in lines]
    (run / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in slower))
    assert difference(run, reference) is None
    assert left_over(run, reference) is None


def test_one_bit_of_a_model_is_a_difference(run: Path, reference: Path) -> None:
    tensors = load_file(run / "model.safetensors")
    name = next(iter(tensors))
    tensors[name].view(torch.int32).flatten()[0] ^= 1
    save_file(tensors, run / "model.safetensors")
    assert difference(run, reference) == "model.safetensors has other numbers"


def test_a_round_that_is_missing_is_a_difference(run: Path, reference: Path) -> None:
    lines = (run / "history.jsonl").read_text().splitlines(True)
    (run / "history.jsonl").write_text(lines[0])
    assert difference(run, reference) == "history.jsonl has 1 rounds, not 2"


@pytest.mark.parametrize("name", ["notes.draft", "checkpoint/.x.tmp", "../beside", "figures/x"])
def test_drafts_are_left_over(name: str, run: Path, reference: Path) -> None:
    (run / name).write_text("")
    assert left_over(run, reference) is not None


def test_a_run_that_begins_anew_has_lost_its_rounds(run: Path, reference: Path) -> None:
    shutil.rmtree(run)
    logs = run.parents[1]
    assert Recovery(TINY, run, reference, 0, logs, resumes_first=False).finding().good
    shutil.rmtree(run)
    lost = Recovery(TINY, run, reference, 1, logs, resumes_first=False).finding()
    assert lost == Finding("lost", "round 1 was saved; it began at 1")


def test_a_folder_that_nothing_can_be_done_with_is_a_dead_end(run: Path, reference: Path) -> None:
    shutil.rmtree(run)
    run.mkdir()
    (run / "something").write_text("of the user's")
    for resumes_first in (True, False):
        found = Recovery(TINY, run, reference, 0, run.parents[1], resumes_first).finding()
        assert found.verdict == "dead end"


def test_a_run_is_killed_when_a_text_is_shown(tmp_path: Path) -> None:
    work = command(TINY.begin(tmp_path / "run"), when_shown("round 1/", kill_myself))
    ending = run_to_end(work, tmp_path / "log")
    assert ending.code == -signal.SIGKILL
    assert ending.rounds == [1]


def test_operations_within_a_folder_are_seen(tmp_path: Path) -> None:
    inside, seen = tmp_path / "inside", tmp_path / "seen"

    def work() -> int:
        names: list[str] = []
        watch_operations(inside, names.append)
        inside.mkdir()
        (inside / "a").write_text("x")
        (inside / "a").rename(inside / "b")
        (inside / "b").read_text()
        (tmp_path / "outside").write_text("x")
        told = json.dumps(names)
        seen.write_text(told)
        return 0

    assert run_to_end(work, tmp_path / "log").code == 0
    events = ["before os.mkdir of inside", "after mkdir", "before opening a"]
    assert json.loads(seen.read_text()) == [*events, "before os.rename of a", "after rename"]


@pytest.mark.parametrize("way", [*OF_CONTENT, *OF_FILES, *OF_TEXT])
def test_every_way_to_damage_a_file_changes_it(way: Any, tmp_path: Path) -> None:
    random = Trial("damages", 0, 0, tmp_path, tmp_path).random
    file = tmp_path / "a.json"
    (tmp_path / "other").write_text("other")
    file.write_text('{"a": 41}\n{"b": 42}\n')
    do_harm(way, file, random)
    assert not file.is_file() or file.read_text(errors="replace") != '{"a": 41}\n{"b": 42}\n'


def _odd_one_out(trial: Trial) -> tuple[str, Finding]:
    (trial.folder / "file").write_text("kept if it fails")
    if trial.number == 1:
        kill_myself()
    if trial.number == 2:
        time.sleep(60)
    if trial.number == 3:
        raise ValueError("broken")
    return f"{trial.random.random()}", Finding("lost" if trial.number == 4 else "same")


def test_trials_that_die_or_hang_fail_and_the_others_go_on(tmp_path: Path) -> None:
    attack = Attack("test", "nothing", 6, (), lambda _: None, _odd_one_out, patience=2)
    campaign = Campaign(attack, 0, tmp_path)
    outcomes = campaign.fight(range(6), 2, lambda _: None)
    verdicts = [outcome.finding.verdict for outcome in outcomes]
    assert verdicts == ["same", "signal", "hang", "harness", "lost", "same"]
    assert [campaign.folder(n).exists() for n in range(6)] == [False, True, True, True, True, False]
    (again,) = campaign.fight([5], 1, lambda _: None)
    assert again.what == outcomes[5].what
    (other,) = Campaign(attack, 1, tmp_path).fight([5], 1, lambda _: None)
    assert other.what != outcomes[5].what


def _fail_above_ten(_folder: Path, _base: Path, draw: Draw) -> Case:
    number = draw(st.integers(0, 1000))
    return f"{number}", lambda: {n: n for n in range(11)}[number]


def test_of_inputs_that_do_harm_the_simplest_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzzing, "_TARGETS", (_fail_above_ten, lambda *_: ("", signal.pause)))
    monkeypatch.setattr(fuzzing, "_SECONDS", 1)
    attack = replace(fuzzing.ATTACK, prepare=lambda _: None)
    harm, hang = Campaign(attack, 0, tmp_path).fight([0, 1], 1, lambda _: None)
    assert (harm.what, harm.finding.verdict) == ("_fail_above_ten: 11", "traceback")
    assert hang.finding.verdict == "hang"


def test_the_table_is_put_between_the_comments_of_a_page(tmp_path: Path) -> None:
    attack = Attack("test", "nothing", 6, (), lambda _: None, _odd_one_out)
    page = tmp_path / "page.md"
    write_markdown(page, markdown([Row(attack, [], 6, "nobody may")], 0))
    page.write_text(f"before\n{page.read_text()}after\n")
    outcomes = Campaign(attack, 0, tmp_path).fight([0, 4], 1, lambda _: None)
    write_markdown(page, markdown([Row(attack, outcomes, 6)], 0))
    text = page.read_text()
    assert "nobody may" not in text
    assert "| test: nothing | 2 | 1 |  |  | 1 lost | 0.1 |" in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")


def test_only_an_end_that_is_the_same_is_the_same(run: Path, reference: Path) -> None:
    ending = run_to_end(command(TINY.resume(run)), run.parents[1] / "log")
    assert judge_end(ending, run, reference) == Finding("same")
    (run / "model.safetensors").write_bytes(b"")
    assert judge_end(ending, run, reference).verdict == "silent change"
