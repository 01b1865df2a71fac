"""Fixtures, and settings that make tests the same on every machine: one thread, fixed examples."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest
import torch

from cadis.data.published import CATALOGUE, find_dataset
from own_parts import write_parts

torch.set_num_threads(1)

hypothesis.settings.register_profile("project", deadline=None, derandomize=True, max_examples=60)
hypothesis.settings.load_profile("project")

_LOCAL_DATA = Path(__file__).parents[2] / "shared" / "data"
"""An optional folder of datasets beside the checkout; it may have a program ``unpack``."""

_SLOW = {
    "test_docs.py",
    "test_parity.py",
    "test_published_files.py",
    "test_federations.py",
    "test_compare.py",
}
"""Files with tests that take half a minute or more."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the slow tests, so that no worker process has to wait for one at the end."""
    items.sort(key=lambda item: item.path.name not in _SLOW)


def _get_common_folder(factory: pytest.TempPathFactory) -> Path:
    """Return a temporary folder that is the same in all worker processes of this test run."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session", autouse=True)
def _data_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the key that signs runs out of the home of the user."""
    os.environ["XDG_DATA_HOME"] = str(tmp_path_factory.mktemp("data-home"))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a new current folder that holds ``own.py``, a file with a user's parts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    write_parts(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def real_data(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that finds the folder of a dataset, or skips the test."""
    unpacked = _get_common_folder(tmp_path_factory) / "unpacked"
    variable = os.environ.get("CADIS_DATA")
    folders = [*([Path(variable)] if variable else []), _LOCAL_DATA]

    def find_folder(name: str) -> Path:
        dataset = CATALOGUE[name]
        result = next((folder for folder in folders if find_dataset(dataset, [folder])), None)
        if result is None and (_LOCAL_DATA / "unpack").is_file():
            command = [sys.executable, str(_LOCAL_DATA / "unpack"), str(unpacked), name]
            unpacked.mkdir(exist_ok=True)
            with (unpacked / f"{name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not find_dataset(dataset, [unpacked]):
                    subprocess.run(command, check=True, capture_output=True)
            result = unpacked
        if result is None:
            pytest.skip(f"the published files of {name} are not in $CADIS_DATA or {_LOCAL_DATA}")
        return result

    return find_folder
