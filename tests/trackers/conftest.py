"""Fixtures: no network and no API keys, and a real run."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cadis.store import RunFolder
from support import draw_picture, run_small


@pytest.fixture(autouse=True)
def _isolate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove API keys, and make the network unreachable."""
    for variable in list(os.environ):
        if variable.startswith(("WANDB_", "MLFLOW_")):
            monkeypatch.delenv(variable)
    home = tmp_path / "home"
    home.mkdir()
    for variable in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(variable, str(home))
    monkeypatch.setenv("NETRC", str(home / "netrc"))
    for variable in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")


@pytest.fixture(autouse=True)
def _reset_wandb() -> Iterator[None]:
    """Stop the W&B service, which keeps the folders and the key of a test."""
    yield
    if sys.modules.get("wandb") is not None:
        sys.modules["wandb"].teardown()


@pytest.fixture(scope="module")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Return a real run of four rounds with a figure."""
    folder = tmp_path_factory.mktemp("runs") / "real"
    options = {"true_clusters": [0, 0, 0, 1, 2], "per_round": 3, "workers": 1}
    run_small(rounds=4, lr=0.1, out=folder, **options)
    draw_picture(folder / "figures" / "accuracy.png", colour=1, seed=0)
    return RunFolder(folder)
