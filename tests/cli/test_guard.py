"""What goes wrong around a command is one sentence; what is our own fault is not hidden.

Ctrl-C at any moment is a sentence and exit code 130; the first words come before PyTorch.
"""

import errno
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cadis.cli import guard
from cadis.cli.guard import guarded, interruptible
from cadis.errors import CadisError, RunError
from processes import processes, wait_until


def raising(error: BaseException) -> int:
    raise error


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (CadisError("Wrong."), 2, "Wrong."),
        (RunError("Gone."), 1, "Gone."),
        (KeyboardInterrupt(), 130, "Stopped."),
        (OSError(errno.ENOSPC, "No space left on device", "/x/y"), 1, "/x/y: No space left on"),
        (OSError("strange"), 1, "strange."),
        (MemoryError(), 1, "Out of memory; ask for"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), 1, "Out of mem"),
        (UnicodeEncodeError("utf-8", "\udcff", 0, 1, "no"), 1, "There is text that is not UTF-8"),
    ],
)
def test_what_goes_wrong_is_one_sentence(
    error: BaseException, code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded(raising, error) == code
    said = capsys.readouterr().err
    assert said.startswith(f"cadis: {sentence}")
    assert said.count("\n") == 1


def test_the_place_in_ones_own_code_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, error = tmp_path / "mine.py", RunError("mine failed in weigh: KeyError: 'x'.")
    mine.write_text("")
    lines = (f'File "{guard.__file__}", line 2', f'File "{mine}", line 7, in weigh')
    error.add_note("\n".join((*lines, f'File "{guard.__file__}", line 3')))
    assert guarded(raising, error) == 1
    assert capsys.readouterr().err == f"cadis: {error} ({mine}, line 7)\n"


@pytest.mark.parametrize("error", [KeyError("bug"), RuntimeError("bug"), RecursionError("bug")])
def test_a_bug_is_seen(error: Exception) -> None:
    with pytest.raises(type(error)):
        guarded(raising, error)


def started(*arguments: str | bytes, folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "cadis", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
    )


@pytest.mark.parametrize("command", [["presets"], ["data"]])
def test_nobody_reading_any_more_is_no_error(command: list[str], tmp_path: Path) -> None:
    with started(*command, folder=tmp_path) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()  # as "head" does, only earlier
        assert process.stderr.read() == b""
    assert process.returncode in (0, 1)


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are bytes")
@pytest.mark.parametrize("option", ["--out", "--head"])
def test_arguments_that_are_not_utf_8_are_one_sentence(option: str, tmp_path: Path) -> None:
    with started("run", option, b"\xff\xfe", "--rounds", "1", folder=tmp_path) as process:
        said = process.communicate()[1].decode()
    assert process.returncode == 2
    assert "\\udcff" in said
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


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
