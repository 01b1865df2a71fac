"""Real SuperLink and SuperNode processes on this machine, with TLS and authentication."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import cadis
from cadis.core import derive_seed
from cadis.flower.certificates import make_site, write_private
from cadis.methods import METHODS
from cadis.models import MODELS
from cadis.runs import RoundRecord, RunFolder
from deployed_support import DATA, PATH, SITES, Deployment
from processes import wait_until
from support import small_federation

pytestmark = pytest.mark.deployment

FEDERATED = [name for name, kind in METHODS.items() if not kind.pools_clients]
TOLERANCE = 1e-7
"""The largest difference of two parameters; they differ only by the order of sums."""


def check_like_embedded(folder: Path, method: str, rounds: int) -> None:
    """The stored model is that of the embedded engine, from the same data and seed."""
    torch.manual_seed(derive_seed(0, "model"))
    model = MODELS["mlp"](1, 4, 4, 5)
    clients, test = list(DATA.values()), small_federation().test
    expected = cadis.run(
        model,
        clients,
        test,
        rounds=rounds,
        method=method,
        epochs=2,
        batch_size=4,
        lr=0.1,
        client_ids=SITES,
    )
    found = load_file(folder / "model.safetensors")
    for name, tensor in expected.model.state_dict().items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=TOLERANCE)


def history(folder: Path) -> list[RoundRecord]:
    return RunFolder(folder).read_history()


def names(record: RoundRecord) -> list[str]:
    return sorted(map(str, record.participants))


def test_every_method_gives_the_model_of_the_engine(deployment: Deployment) -> None:
    """All of them at the same time, on the same sites, which must not disturb each other."""
    runs = {method: deployment.run(method, rounds=2) for method in FEDERATED}
    for method, (process, folder) in runs.items():
        assert process.wait(timeout=400) == 0, deployment.said()
        check_like_embedded(folder, method, rounds=2)
        assert [names(record) for record in history(folder)] == [sorted(SITES)] * 2
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


def test_a_killed_server_app_goes_on_where_it_was(deployment: Deployment) -> None:
    """FedDyn, whose clients remember: on their own disks, through a restart of a site, too."""
    process, folder = deployment.run("feddyn", rounds=3)
    wait_until(lambda: history(folder), "a round is done", 120)
    deployment.kill("flwr-serverapp")
    process.kill()
    assert 1 <= len(history(folder)) < 3
    deployment.stop_site("south")
    wait_until(lambda: deployment.online() == len(SITES) - 1, "a site is offline")
    deployment.start_site("south")
    process, _ = deployment.run("feddyn", rounds=3, resume=folder)
    assert process.wait(timeout=240) == 0, deployment.said()
    assert [record.round for record in history(folder)] == [1, 2, 3]
    assert [names(record) for record in history(folder)] == [sorted(SITES)] * 3
    check_like_embedded(folder, "feddyn", rounds=3)


def test_the_run_goes_on_without_a_site_that_dies(deployment: Deployment) -> None:
    process, folder = deployment.run("cadis", rounds=3, more="timeout=15.0")
    wait_until(lambda: history(folder), "a round is done", 120)
    wait_until(lambda: deployment.busy("west"), "the next round has begun at the site", 60)
    deployment.kill_site("west")
    assert process.wait(timeout=240) == 0, deployment.said()
    records = history(folder)
    assert [record.round for record in records] == [1, 2, 3]
    assert names(records[0]) == sorted(SITES)
    assert names(records[1]) == ["north", "south"]
    (rejection,) = records[1].rejected
    assert rejection.client == "west"
    assert rejection.reason in ("it did not answer within 15 seconds", "it went offline")
