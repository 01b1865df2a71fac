"""No link is followed for writing, nothing waits for a pipe, and new folders are private."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from cadis._io import (
    check_output,
    make_private_folder,
    open_for_append,
    read_json_object,
    read_regular,
    read_toml,
    replace_text,
)
from cadis.errors import CadisError


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a user's folder with a file, next to a folder of a run."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "notes").write_text("precious")
    (tmp_path / "run").mkdir()
    return tmp_path / "home"


def check_unchanged(home: Path) -> None:
    assert [path.name for path in home.iterdir()] == ["notes"]
    assert (home / "notes").read_text() == "precious"


def append(path: Path) -> None:
    with open_for_append(path) as file:
        file.write(b"more")


def replace(path: Path) -> None:
    replace_text(path, "new")


@pytest.mark.parametrize("write", [append, replace, make_private_folder])
@pytest.mark.parametrize("target", ["notes", "new", "."])
def test_link_is_not_written_through(
    write: Callable[[Path], object], target: str, home: Path
) -> None:
    path = home.parent / "run" / "file"
    path.symlink_to(home / target)
    with pytest.raises(CadisError, match=r"file is a link to .* does not write through links"):
        write(path)
    check_unchanged(home)


@pytest.mark.parametrize("part", ["run", "run/figures", "run/figures/deep"])
def test_folders_from_the_root_on_must_not_be_links(part: str, home: Path) -> None:
    root = home.parent / "run"
    root.rmdir()
    (home.parent / part).parent.mkdir(parents=True, exist_ok=True)
    (home.parent / part).symlink_to(home)
    with pytest.raises(CadisError, match=f"{part} is a link"):
        replace_text(root / "figures" / "deep" / "notes", "new", root)
    with pytest.raises(CadisError, match=f"{part} is a link"):
        make_private_folder(root / "figures" / "deep", root)
    check_unchanged(home)


def test_links_above_the_root_are_the_users_own(home: Path) -> None:
    (home.parent / "data").symlink_to(home.parent / "run")
    root = home.parent / "data" / "mine"
    make_private_folder(root / "figures", root)
    replace_text(root / "figures" / "a", "new", root)
    assert (home.parent / "run" / "mine" / "figures" / "a").read_text() == "new"


def test_link_in_place_of_a_draft_is_deleted(home: Path) -> None:
    path = home.parent / "run" / "file"
    path.with_name(".file.draft").symlink_to(home / "notes")
    replace(path)
    assert path.read_text() == "new"
    assert not path.is_symlink()
    check_unchanged(home)


def test_hard_link_is_replaced_but_never_appended_to(home: Path) -> None:
    path = home.parent / "run" / "file"
    path.hardlink_to(home / "notes")
    with pytest.raises(CadisError, match="file is a hard link"):
        append(path)
    replace(path)
    assert path.read_text() == "new"
    append(path)
    check_unchanged(home)


def make_socket(path: Path) -> None:
    current = Path.cwd()
    os.chdir(path.parent)  # the name of a socket has at most 107 characters
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(path.name)
    os.chdir(current)


def link_to_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [os.mkfifo, make_socket, link_to_device])
def test_special_files_are_an_error_without_waiting(
    make: Callable[[Path], object], tmp_path: Path
) -> None:
    make(tmp_path / "file")
    for read in (read_json_object, read_toml):
        with pytest.raises(CadisError, match="cannot be read: it is not a regular file"):
            read(tmp_path / "file")
    with pytest.raises(OSError, match="it is not a regular file"):
        read_regular(tmp_path / "file")
    for write in (append, replace, check_output):
        with pytest.raises(CadisError, match=r"it is not a regular file|is a link"):
            write(tmp_path / "file")


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_new_folders_are_private_and_old_ones_are_not_changed(umask: int, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old").chmod(0o755)
    before = os.umask(umask)
    try:
        make_private_folder(tmp_path / "old" / "new" / "deep")
    finally:
        os.umask(before)
    modes = [path.stat().st_mode & 0o777 for path in (tmp_path / "old").rglob("*")]
    assert modes == [0o700, 0o700]
    assert (tmp_path / "old").stat().st_mode & 0o777 == 0o755


def test_failed_write_leaves_no_draft(tmp_path: Path) -> None:
    (tmp_path / "file" / "in").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        replace(tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
