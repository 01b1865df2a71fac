"""Real SuperLink and SuperNode processes on this machine, with TLS and authentication."""

import shutil
from pathlib import Path

import pytest

from cadis.flower.certificates import make_site, write_private
from deployed_support import PATH, SITES, Deployment, check_like_embedded, history, names

pytestmark = pytest.mark.deployment

ROUNDS = {"cadis": 2, "cadis-paper": 1, "fedavg": 1, "fedfa": 1, "scaffold": 2, "ifca": 1}
"""One for each way in which methods use messages: a model alone, further scalars, tensors both
ways with memories on both sides (two rounds), several models. FedDyn is in ``test_resume.py``, and
every method goes through Flower's messages in ``tests/flower/test_parity.py``."""


def test_methods_give_the_models_of_the_engine(deployment: Deployment) -> None:
    """All of them at the same time, on the same sites, which must not disturb each other."""
    runs = {method: deployment.run(method, rounds) for method, rounds in ROUNDS.items()}
    for method, (process, folder) in runs.items():
        assert process.wait(timeout=400) == 0, deployment.said()
        check_like_embedded(folder, method, ROUNDS[method])
        assert [names(record) for record in history(folder)] == [sorted(SITES)] * ROUNDS[method]
        assert (folder / "figures" / "accuracy.png").is_file()


def test_strangers_get_nothing(deployment: Deployment, tmp_path: Path) -> None:
    """Neither a site whose key nobody registered, nor one that does not encrypt."""
    stranger = tmp_path / "stranger"
    shutil.copytree(deployment.folder / "sites" / SITES[0], stranger)
    (stranger / "supernode.key").unlink()
    write_private(stranger / "supernode.key", make_site().private)
    port = str(deployment.port + len(SITES) + 1)
    code = deployment.started.finish("stranger", [stranger / "start.sh", "--port", port], PATH)
    assert code != 0
    assert "Failed to activate SuperNode" in deployment.started.said("stranger")
    plain = ["flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{deployment.port}"]
    command = [*plain, "--port", port, "--max-retries", "1"]
    assert deployment.started.finish("plain", command, PATH) != 0
    assert deployment.online() == len(SITES)
    assert "activate-node" in deployment.started.said("superlink")
    for name in ("stranger", "plain"):
        assert "cadis-app" not in deployment.started.said(name)  # not even the app
