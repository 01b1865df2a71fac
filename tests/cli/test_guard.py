"""Errors are one sentence, except for bugs; Ctrl-C at any time gives the exit code 130."""

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
from cadis.cli.guard import allow_interrupts, run_with_exit_code
from cadis.errors import CadisError, RunError
from processes import processes, wait_until


def raise_error(error: BaseException) -> int:
    raise error


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (CadisError("Wrong."), 2, "Wrong."),
        (RunError("Gone."), 1, "Gone."),
        (KeyboardInterrupt(), 130, "Stopped."),
        (OSError(errno.ENOSPC, "No space left on device", "/x/y"), 1, "/x/y: No space left on"),
        (OSError("strange"), 1, "strange."),
        (MemoryError(), 1, "Out of memory; use fewer"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), 1, "Out of mem"),
        (UnicodeEncodeError("utf-8", "\udcff", 0, 1, "no"), 1, "A file or name is not in UTF-8"),
    ],
)
def test_error_is_one_sentence_with_an_exit_code(
    error: BaseException, code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_with_exit_code(raise_error, error) == code
    output = capsys.readouterr().err
    assert output.startswith(f"cadis: {sentence}")
    assert output.count("\n") == 1


def test_error_in_user_code_names_file_and_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, error = tmp_path / "mine.py", RunError("mine failed in weigh: KeyError: 'x'.")
    mine.write_text("")
    lines = (f'File "{guard.__file__}", line 2', f'File "{mine}", line 7, in weigh')
    error.add_note("\n".join((*lines, f'File "{guard.__file__}", line 3')))
    assert run_with_exit_code(raise_error, error) == 1
    assert capsys.readouterr().err == f"cadis: {error} ({mine}, line 7)\n"


@pytest.mark.parametrize("error", [KeyError("bug"), RuntimeError("bug"), RecursionError("bug")])
def test_bug_keeps_its_traceback(error: Exception) -> None:
    with pytest.raises(type(error)):
        run_with_exit_code(raise_error, error)


def start_command(*arguments: str | bytes, folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "cadis", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
    )


@pytest.mark.parametrize("command", [["presets"], ["data"]])
def test_closed_output_is_not_an_error(command: list[str], tmp_path: Path) -> None:
    with start_command(*command, folder=tmp_path) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()  # like "head", but earlier
        assert process.stderr.read() == b""
    assert process.returncode in (0, 1)


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are bytes")
@pytest.mark.parametrize("option", ["--out", "--head"])
def test_arguments_that_are_not_utf_8_are_one_sentence(option: str, tmp_path: Path) -> None:
    with start_command("run", option, b"\xff\xfe", "--rounds", "1", folder=tmp_path) as process:
        output = process.communicate()[1].decode()
    assert process.returncode == 2
    assert "\\udcff" in output
    assert "Traceback" not in output
    assert list(tmp_path.iterdir()) == []


MOMENTS = [
    *(("run", after) for after in (0.15, 0.6, 1.2, 3.0)),
    ("compare", 2.0),
    ("report nothing-there", 0.3),
    ("partition", 1.0),
]


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_ctrl_c_at_any_time_ends_cleanly(tmp_path: Path) -> None:
    with processes(tmp_path) as started:
        for command, after in MOMENTS:
            name = f"{command}-{after}"
            process = started.start(name, [sys.executable, "-m", "cadis", *command.split()])
            time.sleep(after)
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does
            code, output = process.wait(timeout=60), started.read_log(name)
            has_started = "cadis" in output  # before, Python itself is starting
            assert code == 130 or not has_started, (name, output)
            assert "cadis: Stopped." in output or not has_started, (name, output)
            assert "Traceback" not in output or not has_started, (name, output)
        wait_until(lambda: not started.list_alive(), "all processes have ended")


def test_import_message_is_shown_and_erased(tmp_path: Path) -> None:
    terminal, program = pty.openpty()
    command = [sys.executable, "-m", "cadis", "partition"]
    with subprocess.Popen(command, stdout=program, stderr=program, cwd=tmp_path) as process:
        os.close(program)
        first = os.read(terminal, 100)
        assert first == b"Loading PyTorch ..."
        process.send_signal(signal.SIGINT)
        rest = b""
        while not rest.endswith(b"\n"):
            rest += os.read(terminal, 1000)
    os.close(terminal)
    assert process.returncode == 130
    erased = b"\r" + b" " * len(first)
    assert rest.startswith(erased)
    assert rest.endswith(b"\rcadis: Stopped.\r\n")


def test_import_message_is_shown_only_on_a_terminal(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cadis", "methods", "fedavg"]
    done = subprocess.run(command, capture_output=True, cwd=tmp_path, check=True)
    assert done.stderr == b""
    assert b"Loading" not in done.stdout


def test_interrupt_that_python_ignores_is_sent_again() -> None:
    class Unlucky:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    def work() -> None:
        Unlucky()
        time.sleep(10)

    before = signal.getsignal(signal.SIGINT)
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt), allow_interrupts():
        work()
    assert time.monotonic() - started < 5
    assert signal.getsignal(signal.SIGINT) is before


def test_ignored_interrupts_remain_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with allow_interrupts():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
