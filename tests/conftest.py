"""The same on every machine: examples, however slow it is, and threads, as the engine has them."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest
import torch

from cadis.data.published import CATALOGUE, find
from own_parts import write_parts

torch.set_num_threads(1)

hypothesis.settings.register_profile("project", deadline=None, derandomize=True, max_examples=60)
hypothesis.settings.load_profile("project")

_BESIDE = Path(__file__).parents[2] / "shared" / "data"
"""A folder of datasets beside the checkout, which may have a program that unpacks some of them."""


_SLOW = {
    "test_docs.py",
    "test_parity.py",
    "test_library.py",
    "test_federations.py",
    "test_compare.py",
}
"""Files with tests of half a minute and more."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the slow tests, so that no worker process has to wait for one at the end."""
    items.sort(key=lambda item: item.path.name not in _SLOW)


def _shared_folder(factory: pytest.TempPathFactory) -> Path:
    """Return a temporary folder that all worker processes of this test run share."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, an empty one but for ``own.py``, a file of a user's own parts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    write_parts(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def real_data(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Gives a folder that has the published files of a dataset; skips where there are none."""
    unpacked = _shared_folder(tmp_path_factory) / "unpacked"
    named = os.environ.get("CADIS_DATA")
    places = [*([Path(named)] if named else []), _BESIDE]

    def folder_of(name: str) -> Path:
        found = next((place for place in places if find(CATALOGUE[name], [place])), None)
        if found is None and (_BESIDE / "unpack").is_file():
            command = [sys.executable, str(_BESIDE / "unpack"), str(unpacked), name]
            unpacked.mkdir(exist_ok=True)
            with (unpacked / f"{name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not find(CATALOGUE[name], [unpacked]):
                    subprocess.run(command, check=True, capture_output=True)
            found = unpacked
        if found is None:
            pytest.skip(f"the published files of {name} are not in $CADIS_DATA or {_BESIDE}")
        return found

    return folder_of
