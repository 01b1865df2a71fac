"""Tests of the attacks themselves: they find failures, and only failures."""

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
from torture.disturbance import disturb_on_output, kill_self, watch_operations
from torture.experiments import (
    Experiment,
    Recovery,
    find_difference,
    find_leftover,
    judge_ending,
    run_undisturbed,
)
from torture.harm import CONTENT_DAMAGES, FILE_DAMAGES, TEXT_DAMAGES, Draw, apply_damage
from torture.outcomes import Attack, Case, Finding, Trial
from torture.table import Row, format_markdown, write_markdown
from torture.victim import Work, make_command, run_to_end

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="needs Linux")

TINY = Experiment("fedavg", rounds=2)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_undisturbed(TINY, tmp_path_factory.mktemp("reference") / "runs" / "run")


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
        ("wrong code", lambda: 2),  # without an error message
        (None, lambda: 0),
        (None, make_command(["presets", "no-such"])),
    ],
)
def test_faults_of_a_process_are_found(verdict: str | None, work: Work, tmp_path: Path) -> None:
    timeout = 0.5 if verdict == "hang" else 20
    fault = run_to_end(work, tmp_path / "log", seconds=timeout).find_fault()
    assert (fault and fault.verdict) == verdict


def test_times_are_not_a_difference(run: Path, reference: Path) -> None:
    lines = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    slower = [line | {"seconds": {"total": 9}} for line in lines]
    (run / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in slower))
    assert find_difference(run, reference) is None
    assert find_leftover(run, reference) is None


def test_bit_of_a_model_is_a_difference(run: Path, reference: Path) -> None:
    tensors = load_file(run / "model.safetensors")
    name = next(iter(tensors))
    tensors[name].view(torch.int32).flatten()[0] ^= 1
    save_file(tensors, run / "model.safetensors")
    assert find_difference(run, reference) == "model.safetensors has other numbers"


def test_missing_round_is_a_difference(run: Path, reference: Path) -> None:
    lines = (run / "history.jsonl").read_text().splitlines(True)
    (run / "history.jsonl").write_text(lines[0])
    assert find_difference(run, reference) == "history.jsonl has 1 rounds, not 2"


@pytest.mark.parametrize("name", ["notes.draft", "checkpoint/.x.tmp", "../beside", "figures/x"])
def test_drafts_are_left_over(name: str, run: Path, reference: Path) -> None:
    (run / name).write_text("")
    assert find_leftover(run, reference) is not None


def test_restarted_run_has_lost_its_rounds(run: Path, reference: Path) -> None:
    shutil.rmtree(run)
    logs = run.parents[1]
    assert Recovery(TINY, run, reference, 0, logs, resume_first=False).execute().is_good
    shutil.rmtree(run)
    lost = Recovery(TINY, run, reference, 1, logs, resume_first=False).execute()
    assert lost == Finding("lost", "round 1 was saved; it began at 1")


def test_folder_that_no_command_accepts_is_a_dead_end(run: Path, reference: Path) -> None:
    shutil.rmtree(run)
    run.mkdir()
    (run / "something").write_text("a file of the user")
    for resume_first in (True, False):
        finding = Recovery(TINY, run, reference, 0, run.parents[1], resume_first).execute()
        assert finding.verdict == "dead end"


def test_run_is_killed_when_a_text_is_printed(tmp_path: Path) -> None:
    work = make_command(TINY.start(tmp_path / "run"), disturb_on_output("round 1/", kill_self))
    ending = run_to_end(work, tmp_path / "log")
    assert ending.code == -signal.SIGKILL
    assert ending.rounds == [1]


def test_operations_in_a_folder_are_observed(tmp_path: Path) -> None:
    inside, log = tmp_path / "inside", tmp_path / "log.json"

    def work() -> int:
        names: list[str] = []
        watch_operations(inside, names.append)
        inside.mkdir()
        (inside / "a").write_text("x")
        (inside / "a").rename(inside / "b")
        (inside / "b").read_text()
        (tmp_path / "outside").write_text("x")
        text = json.dumps(names)  # before the file is opened, which is an operation too
        log.write_text(text)
        return 0

    assert run_to_end(work, tmp_path / "log").code == 0
    events = ["before os.mkdir of inside", "after mkdir", "before opening a"]
    assert json.loads(log.read_text()) == [*events, "before os.rename of a", "after rename"]


@pytest.mark.parametrize("way", [*CONTENT_DAMAGES, *FILE_DAMAGES, *TEXT_DAMAGES])
def test_every_damage_changes_the_file(way: Any, tmp_path: Path) -> None:
    random = Trial("damages", 0, 0, tmp_path, tmp_path).random
    file = tmp_path / "a.json"
    (tmp_path / "other").write_text("other")
    file.write_text('{"a": 41}\n{"b": 42}\n')
    apply_damage(way, file, random)
    assert not file.is_file() or file.read_text(errors="replace") != '{"a": 41}\n{"b": 42}\n'


def _attempt_by_number(trial: Trial) -> tuple[str, Finding]:
    (trial.folder / "file").write_text("stays if the trial fails")
    if trial.number == 1:
        kill_self()
    if trial.number == 2:
        time.sleep(60)
    if trial.number == 3:
        raise ValueError("broken")
    return f"{trial.random.random()}", Finding("lost" if trial.number == 4 else "same")


def test_trials_that_die_or_hang_fail_and_the_others_continue(tmp_path: Path) -> None:
    attack = Attack("test", "nothing", 6, (), lambda _: None, _attempt_by_number, patience=2)
    campaign = Campaign(attack, 0, tmp_path)
    outcomes = campaign.run(range(6), 2, lambda _: None)
    verdicts = [outcome.finding.verdict for outcome in outcomes]
    assert verdicts == ["same", "signal", "hang", "harness", "lost", "same"]
    assert [campaign.folder(n).exists() for n in range(6)] == [False, True, True, True, True, False]
    (again,) = campaign.run([5], 1, lambda _: None)
    assert again.what == outcomes[5].what
    (other,) = Campaign(attack, 1, tmp_path).run([5], 1, lambda _: None)
    assert other.what != outcomes[5].what


def _fail_above_ten(_folder: Path, _base: Path, draw: Draw) -> Case:
    number = draw(st.integers(0, 1000))
    return f"{number}", lambda: {n: n for n in range(11)}[number]


def test_simplest_input_that_fails_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzzing, "_TARGETS", (_fail_above_ten, lambda *_: ("", signal.pause)))
    monkeypatch.setattr(fuzzing, "_SECONDS", 1)
    attack = replace(fuzzing.ATTACK, prepare=lambda _: None)
    failure, hang = Campaign(attack, 0, tmp_path).run([0, 1], 1, lambda _: None)
    assert (failure.what, failure.finding.verdict) == ("_fail_above_ten: 11", "traceback")
    assert hang.finding.verdict == "hang"


def test_table_is_written_between_the_comments_of_a_page(tmp_path: Path) -> None:
    attack = Attack("test", "nothing", 6, (), lambda _: None, _attempt_by_number)
    page = tmp_path / "page.md"
    write_markdown(page, format_markdown([Row(attack, [], 6, "no permission")], 0))
    page.write_text(f"before\n{page.read_text()}after\n")
    outcomes = Campaign(attack, 0, tmp_path).run([0, 4], 1, lambda _: None)
    write_markdown(page, format_markdown([Row(attack, outcomes, 6)], 0))
    text = page.read_text()
    assert "no permission" not in text
    assert "| test: nothing | 2 | 1 |  |  | 1 lost | 0.1 |" in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")


def test_finding_is_same_only_for_an_identical_result(run: Path, reference: Path) -> None:
    ending = run_to_end(make_command(TINY.resume(run)), run.parents[1] / "log")
    assert judge_ending(ending, run, reference) == Finding("same")
    (run / "model.safetensors").write_bytes(b"")
    assert judge_ending(ending, run, reference).verdict == "silent change"
