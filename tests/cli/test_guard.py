"""What goes wrong around a command is one sentence; what is our own fault is not hidden."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from cadis.cli import guard
from cadis.cli.guard import guarded
from cadis.errors import CadisError, RunError


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
