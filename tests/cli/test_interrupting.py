"""Ctrl-C at any moment is a sentence and exit code 130; the first words come before PyTorch."""

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cadis.cli.guard import interruptible
from processes import processes, wait_until

MOMENTS = [
    *(("run", after) for after in (0.15, 0.6, 1.2, 3.0)),
    ("compare", 2.0),
    ("report nothing-there", 0.3),
    ("partition", 1.0),
]


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_stopping_is_clean_at_any_moment(tmp_path: Path) -> None:
    with processes(tmp_path) as started:
        for command, after in MOMENTS:
            name = f"{command}-{after}"
            process = started.start(name, [sys.executable, "-m", "cadis", *command.split()])
            time.sleep(after)
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does
            code, said = process.wait(timeout=60), started.said(name)
            begun = "cadis" in said  # before, it is Python's own start
            assert code == 130 or not begun, (name, said)
            assert "cadis: Stopped." in said or not begun, (name, said)
            assert "Traceback" not in said or not begun, (name, said)
        wait_until(lambda: not started.alive(), "all processes have ended")


def test_the_first_words_are_there_before_pytorch_and_go(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "cadis", "partition"]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, cwd=tmp_path) as process:
        os.close(theirs)
        first = os.read(ours, 100)
        assert first == b"Loading PyTorch ..."
        process.send_signal(signal.SIGINT)
        rest = b""
        while not rest.endswith(b"\n"):
            rest += os.read(ours, 1000)
    os.close(ours)
    assert process.returncode == 130
    erased = b"\r" + b" " * len(first)
    assert rest.startswith(erased)
    assert rest.endswith(b"\rcadis: Stopped.\r\n")


def test_nothing_of_it_is_said_where_nobody_looks(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cadis", "methods", "fedavg"]
    done = subprocess.run(command, capture_output=True, cwd=tmp_path, check=True)
    assert done.stderr == b""
    assert b"Loading" not in done.stdout


def test_an_interrupt_that_python_loses_comes_again() -> None:
    class Unlucky:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    def work() -> None:
        Unlucky()
        time.sleep(10)

    before = signal.getsignal(signal.SIGINT)
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt), interruptible():
        work()
    assert time.monotonic() - started < 5
    assert signal.getsignal(signal.SIGINT) is before


def test_who_ignores_interrupts_goes_on_to() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interruptible():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
