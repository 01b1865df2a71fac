"""Nobody can be reached; a real run."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cadis.store import RunFolder
from support import draw_picture, run_small


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can be reached, and nobody has a key."""
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
def _wandb_ends() -> Iterator[None]:
    """W&B remembers the folders and the key of the test before."""
    yield
    if sys.modules.get("wandb") is not None:
        sys.modules["wandb"].teardown()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A real run of four rounds, and a picture."""
    folder = tmp_path_factory.mktemp("runs") / "real"
    options = {"true_clusters": [0, 0, 0, 1, 2], "per_round": 3, "workers": 1}
    run_small(rounds=4, lr=0.1, out=folder, **options)
    draw_picture(folder / "figures" / "accuracy.png", colour=1, seed=0)
    return RunFolder(folder)
