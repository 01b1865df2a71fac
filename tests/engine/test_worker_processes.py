"""Worker processes that die, are stopped or hang: the result is that of an undisturbed run."""

import faulthandler
import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cadis._io import Callbacks
from cadis.algorithm import Algorithm
from cadis.algorithm.methods import FedDyn
from cadis.engine import Engine, stall_watch
from cadis.errors import RunError
from cadis.server import RoundResult
from processes import wait_until
from support import get_model, is_identical, small_federation, small_model, small_settings

_MAIN = os.getpid()


class Disturbed(nn.Module):
    """A model that harms its worker process at a moment, a number of times in all processes."""

    def __init__(self, moment: str, harm: Callable[[], object], folder: Path, times: int) -> None:
        super().__init__()
        self.inner, self.moment, self.harm = small_model(), moment, harm
        self.folder, self.times = folder, times

    def _apply(self, *arguments: Any, **options: Any) -> Any:
        self.disturb("start")  # called by Module.to, when a worker copies the model
        return super()._apply(*arguments, **options)  # type: ignore[no-untyped-call]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.disturb("training" if self.training else "evaluation")
        logits: torch.Tensor = self.inner(x)
        return logits

    def disturb(self, moment: str) -> None:
        if moment == self.moment and os.getpid() != _MAIN:
            for number in range(self.times):
                try:  # several processes may try at the same time
                    (self.folder / str(number)).touch(exist_ok=False)
                except FileExistsError:
                    continue
                self.harm()
                return


def send_self(number: signal.Signals) -> Callable[[], None]:
    def send() -> None:
        faulthandler.disable()  # pytest enables it
        os.kill(os.getpid(), number)

    return send


def run(model: nn.Module, folder: Path, say: Callable[[str], None] = print) -> list[RoundResult]:
    folder.mkdir(exist_ok=True)
    # Stacked training would not call the model of a user.
    settings = replace(small_settings(rounds=2, workers=2), stack=False)
    engine = Engine(model, small_federation(), Algorithm(FedDyn()), settings, folder)
    return list(engine.rounds(engine.start, Callbacks(say=say)))


def are_identical(first: list[RoundResult], second: list[RoundResult]) -> bool:
    def to_json(result: RoundResult) -> dict[str, object]:
        return {k: v for k, v in result.record.to_json().items() if k != "seconds"}

    return [to_json(r) for r in first] == [to_json(r) for r in second] and all(
        is_identical(get_model(a).parameters, get_model(b).parameters)
        for a, b in zip(first, second, strict=True)
    )


def list_children() -> list[int]:
    tasks = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return [int(pid) for task in tasks for pid in task.read_text().split()]


@pytest.mark.parametrize(
    ("moment", "activity"),
    [
        ("start", r"(trained client \d in round 1, which is repeated|was idle)"),
        ("training", r"trained client \d in round 1, which is repeated \(attempt 2 of 4\)"),
        ("evaluation", r"tested a global model (on the data of clients .* )?after round 1, which"),
    ],
)
@pytest.mark.parametrize(
    ("harm", "ending"),
    [
        (send_self(signal.SIGKILL), "was killed by SIGKILL"),
        (send_self(signal.SIGSEGV), "was killed by SIGSEGV"),
        (lambda: os._exit(7), "ended with exit code 7"),
    ],
    ids=["SIGKILL", "SIGSEGV", "exit"],
)
def test_work_of_a_dead_process_is_repeated(
    moment: str, activity: str, harm: Callable[[], object], ending: str, tmp_path: Path
) -> None:
    (tmp_path / "marks").mkdir()
    before, sentences = list_children(), list[str]()
    undisturbed = run(Disturbed("never", harm, tmp_path, 0), tmp_path / "undisturbed")
    model = Disturbed(moment, harm, tmp_path / "marks", times=1)
    disturbed = run(model, tmp_path / "disturbed", sentences.append)
    assert are_identical(undisturbed, disturbed)
    (sentence,) = sentences
    assert re.match(rf"Worker process \d+ {ending} while it {activity}", sentence), sentence
    assert list_children() == before


def test_client_whose_process_always_dies_ends_the_run(tmp_path: Path) -> None:
    before, sentences = list_children(), list[str]()
    model = Disturbed("training", send_self(signal.SIGKILL), tmp_path, times=100)
    with pytest.raises(RunError, match=r"4 worker processes ended .* trained client \d in round 1"):
        run(model, tmp_path, sentences.append)
    assert any("attempt 4 of 4" in sentence for sentence in sentences)
    assert list_children() == before


def test_idle_process_is_replaced(tmp_path: Path) -> None:
    undisturbed = run(small_model(), tmp_path / "undisturbed")
    settings = replace(small_settings(rounds=2, workers=2), stack=False)
    engine = Engine(small_model(), small_federation(), Algorithm(FedDyn()), settings, tmp_path)
    before, sentences, results = list_children(), list[str](), list[RoundResult]()
    for result in engine.rounds(engine.start, Callbacks(say=sentences.append)):
        results.append(result)
        for pid in set(list_children()) - set(before):
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert are_identical(undisturbed, results)
    assert len(sentences) == 2
    assert all("was killed by SIGKILL while it was idle." in sentence for sentence in sentences)


def test_stopped_process_is_reported_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cadis.engine import pool

    monkeypatch.setattr(stall_watch, "STOPPED_LIMIT", 1.5)
    monkeypatch.setattr(pool, "INTERVAL", 0.1)
    monkeypatch.setattr(stall_watch, "INTERVAL", 0.1)
    before, sentences = list_children(), list[str]()
    undisturbed = run(small_model(), tmp_path / "undisturbed")
    (tmp_path / "marks").mkdir()
    model = Disturbed("training", send_self(signal.SIGSTOP), tmp_path / "marks", times=1)
    disturbed = run(model, tmp_path / "disturbed", sentences.append)
    assert are_identical(undisturbed, disturbed)
    stopped, killed = sentences
    assert "is stopped; it trained client" in stopped
    assert "was killed by SIGKILL while it trained client" in killed
    assert list_children() == before


def test_process_that_uses_no_cpu_is_reported_once_and_not_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cadis.engine import pool

    monkeypatch.setattr(stall_watch, "_QUIET_LIMIT", 0.5)
    monkeypatch.setattr(pool, "INTERVAL", 0.1)
    monkeypatch.setattr(stall_watch, "INTERVAL", 0.1)
    sentences = list[str]()
    model = Disturbed("training", lambda: time.sleep(2), tmp_path, times=1)
    run(model, tmp_path / "run", sentences.append)
    (sentence,) = sentences
    assert "has used no CPU time for a minute and may hang; it trained client" in sentence


def test_process_that_uses_the_cpu_is_not_suspicious() -> None:
    watch = stall_watch.StallWatch(os.getpid())
    watch._cpu_seconds = stall_watch.read_cpu_seconds(os.getpid()) or 0.0
    sum(range(3_000_000))
    assert not watch._is_quiet(1.0)


def test_stop_is_noticed_until_the_process_continues() -> None:
    pid = os.fork()
    if pid == 0:
        while True:
            time.sleep(0.01)
    try:
        assert not stall_watch.is_stopped(pid)
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: stall_watch.is_stopped(pid), "stopped", 5)
        assert stall_watch.is_stopped(pid)  # looking does not change it
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: not stall_watch.is_stopped(pid), "continued", 5)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
