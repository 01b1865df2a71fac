"""Locks: one process at a time, also after a kill."""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest

from cadis.errors import CadisError
from cadis.store import is_locked, lock

HOLD = """
import os, sys, time
from pathlib import Path
from cadis.store import lock
file_lock = lock(Path(sys.argv[1]), "It")
worker = os.fork() if "fork" in sys.argv else os.getpid()
if not worker:
    time.sleep(60)
    os._exit(0)
print(worker, flush=True)
sys.stdin.read()
"""


def start(path: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_lock_is_refused_until_the_other_process_ends(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with start(path) as other:
        owner = read_line(other)
        for _ in range(2):  # the error must not release the lock
            assert is_locked(path)
            with pytest.raises(CadisError, match=f"^It is in use by process {owner}; "):
                lock(path, "It")
        other.communicate("")
    assert not is_locked(path)
    lock(path, "It").close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no forking")
def test_killed_process_holds_no_lock_while_its_workers_live(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with start(path, "fork") as run:
        worker = int(read_line(run))
        assert is_locked(path)
        run.kill()
        run.wait()
        os.kill(worker, 0)  # raises an error if the worker has ended
        assert not is_locked(path)
        lock(path, "It").close()
        os.kill(worker, signal.SIGKILL)


def test_lock_of_the_same_process_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with closing(lock(path, "It")):
        with pytest.raises(CadisError, match=f"by process {os.getpid()};"):
            lock(path, "It")
        with pytest.raises(CadisError, match="is in use by"):
            lock(tmp_path / "." / "lock", "It")
        assert is_locked(path)
    assert not is_locked(path)
    with closing(lock(path, "It")):
        assert is_locked(path)


def test_another_thread_can_release_the_lock(tmp_path: Path) -> None:
    first = lock(tmp_path / "lock", "It")
    thread = Thread(target=first.close)
    thread.start()
    thread.join()
    assert not is_locked(tmp_path / "lock")


def test_second_close_does_not_release_a_new_lock(tmp_path: Path) -> None:
    first = lock(tmp_path / "lock", "It")
    first.close()
    with closing(lock(tmp_path / "lock", "It")):
        first.close()
        assert is_locked(tmp_path / "lock")


def test_is_locked_changes_no_files(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    assert not list(tmp_path.iterdir())
    lock(path, "It").close()
    before = path.read_bytes()
    assert not is_locked(path)
    assert path.read_bytes() == before


def test_copy_of_a_folder_is_not_locked(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with closing(lock(tmp_path / "run" / "lock", "It")):
        shutil.copytree(tmp_path / "run", tmp_path / "copy")
        assert not is_locked(tmp_path / "copy" / "lock")
        lock(tmp_path / "copy" / "lock", "It").close()
        assert is_locked(tmp_path / "run" / "lock")


@pytest.mark.parametrize("content", [b"x", b"my notes", b"\x00\xff", b"12 monkeys"])
def test_file_of_another_program_does_not_change(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "lock"
    path.write_bytes(content)
    with pytest.raises(CadisError, match="is not a lock file of cadis; choose another folder"):
        lock(path, "It")
    assert path.read_bytes() == content
    assert not is_locked(path)


def test_folder_and_missing_path_cannot_be_locked(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=r"folder"):
        lock(tmp_path / "folder", "It")
    with pytest.raises(FileNotFoundError):
        lock(tmp_path / "missing" / "lock", "It")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    assert not is_locked(tmp_path / "folder")


@pytest.mark.skipif(sys.platform == "win32" or os.getuid() == 0, reason="root may write anywhere")
def test_read_only_lock_counts_as_free(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock(path, "It").close()
    path.chmod(0o400)
    tmp_path.chmod(0o500)
    assert not is_locked(path)
    with pytest.raises(PermissionError):
        lock(path, "It")
    tmp_path.chmod(0o700)
