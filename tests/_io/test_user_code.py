"""Loading of users' code by name, from files and modules, in this process and in new ones."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from cadis._io import user_code
from cadis._io.user_code import add_search_folder, is_user_code, load_user_code
from cadis.errors import CadisError


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a new current folder; the search path is restored after the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(user_code, "_folders", [])
    return tmp_path


def test_built_in_names_are_not_user_code() -> None:
    assert is_user_code("mine.py:Mine")
    assert is_user_code("package.module:Mine")
    assert is_user_code("mine.py")
    assert not is_user_code("small-cnn")


def test_files_are_found_from_the_current_folder(here: Path) -> None:
    (here / "sub").mkdir()
    (here / "sub" / "beside.py").write_text("seven = 7")
    (here / "sub" / "mine.py").write_text("from beside import seven\nclass Net: x = seven")
    net = load_user_code("sub/mine.py:Net")
    assert net.x == 7
    assert load_user_code(str(here / "sub" / "mine.py") + ":Net") is net  # loaded once


def test_files_of_equal_name_do_not_replace_each_other_or_a_library(here: Path) -> None:
    for folder in ("a", "b"):
        (here / folder).mkdir()
        (here / folder / "random.py").write_text(f"class Net: x = '{folder}'")
    assert [load_user_code(f"{folder}/random.py:Net").x for folder in "ab"] == ["a", "b"]
    import random

    assert random.random() < 1


def test_modules_are_found_in_the_current_folder(here: Path) -> None:
    (here / "own_package_7").mkdir()
    (here / "own_package_7" / "inner.py").write_text("class Net: x = 7")
    assert load_user_code("own_package_7.inner:Net").x == 7


def test_added_folders_are_searched_first(here: Path) -> None:
    (here / "app").mkdir()
    (here / "app" / "first.py").write_text("where = 'app'")
    (here / "first.py").write_text("where = 'here'")
    (here / "second.py").write_text("where = 'here'")
    add_search_folder(here / "app")
    assert load_user_code("first.py:where") == "app"
    assert load_user_code("second.py:where") == "here"


def test_an_object_from_a_user_file_can_be_unpickled_in_a_new_process(here: Path) -> None:
    (here / "mine.py").write_text("class Mine:\n  def __init__(self): self.x = 7\n")
    (here / "pickled").write_bytes(pickle.dumps(load_user_code("mine.py:Mine")()))
    check = (
        "import pickle, sys, cadis._io.user_code; "
        f"print(pickle.load(open({str(here / 'pickled')!r}, 'rb')).x)"
    )
    command = [sys.executable, "-c", check]
    process = subprocess.run(command, check=True, cwd="/", capture_output=True, text=True)
    assert process.stdout == "7\n"


@pytest.mark.parametrize(
    ("name", "body", "sentence"),
    [
        ("none.py:Net", "", "There is no file none.py; give its path from the current folder."),
        ("sub/mine:Net", "", "sub/mine is not a Python file; write sub/mine.py:Net."),
        ("mine.py", "", "'mine.py' does not name a class or function; write mine.py:NAME."),
        ("mine.py:", "", "'mine.py:' does not name a class or function; write mine.py:NAME."),
        (":Net", "", "':Net' does not name a class or function; write Net:NAME."),
        ("mine.py:Net", "class Other: pass", "The file mine.py has no function or class 'Net'."),
        ("nowhere_7:Net", "", "; start from the folder that it is in."),
        ("mine.py:Net", "def (", "The file mine.py could not be imported: SyntaxError"),
        ("mine.py:Net", "raise SystemExit(3)", "mine.py could not be imported: SystemExit: 3."),
        ("mine.py:Net", "raise ValueError('a\\nb')", "could not be imported: ValueError: a b."),
        ("mine.py:Net", "import nowhere_7", "No module named 'nowhere_7'."),
        (f"{'x' * 999}.py:Net", "", "There is no file xxx"),
        ("a\0b.py:Net", "", "There is no file a"),
    ],
)
def test_a_mistake_is_reported_in_one_sentence(
    name: str, body: str, sentence: str, here: Path
) -> None:
    (here / "mine.py").write_text(body)
    with pytest.raises(CadisError) as caught:
        load_user_code(name)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
