"""Real SuperLink and SuperNode processes on this machine, with TLS and authentication."""

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cadis.flower.certificates import make_site, write_private
from deployed_support import (
    PATH,
    PROGRAMS,
    SITES,
    Deployment,
    check_like_embedded,
    free_port,
    history,
    listens,
    names,
)
from processes import processes, wait_until

pytestmark = pytest.mark.deployment

ROUNDS = {"cadis": 2, "cadis-paper": 1, "fedavg": 1, "fedfa": 1, "scaffold": 2, "ifca": 1}
"""One for each way in which methods use messages: a model alone, further scalars, tensors both
ways with memories on both sides (two rounds), several models. FedDyn is resumed below, and every
method goes through Flower's messages in ``tests/flower/test_parity.py``."""


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """The server, and all sites connected to it."""
    place = tmp_path_factory.mktemp("deployment")
    port, folder = free_port(), place / "federation"
    sites = [word for site in SITES for word in ("--site", site)]
    init: list[str | Path] = [PROGRAMS / "cadis", "deploy", "init", folder]
    command = [*init, *sites, "--port", str(port)]
    with processes(place) as started:
        assert started.finish("init", command) == 0, started.said("init")
        made = Deployment(folder, started, port)
        made.write_data()
        started.start("superlink", [folder / "superlink" / "start.sh"], PATH)
        wait_until(lambda: listens(port), "the server listens")
        assert started.finish("register", [folder / "register.sh"], PATH) == 0
        for site in SITES:
            made.start_site(site)
        wait_until(lambda: made.online() == len(SITES), "all sites are online", 180)
        yield made
    assert not started.alive()


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


def test_a_killed_server_app_goes_on_where_it_was(deployment: Deployment) -> None:
    """FedDyn, whose clients remember: on their own disks, through a restart of a site, too."""
    process, folder = deployment.run("feddyn", rounds=2)
    wait_until(lambda: history(folder), "a round is done", 120)
    wait_until(lambda: deployment.busy("north"), "the next round has begun at a site", 60)
    deployment.send_signal(signal.SIGKILL, "flwr-serverapp")
    process.kill()
    assert len(history(folder)) == 1
    deployment.send_signal(signal.SIGINT, "flower-supernode", "south")  # as by Ctrl-C
    wait_until(lambda: deployment.online() == len(SITES) - 1, "a site is offline")
    deployment.start_site("south")
    process, _ = deployment.run("feddyn", rounds=2, resume=folder)
    assert process.wait(timeout=240) == 0, deployment.said()
    assert [record.round for record in history(folder)] == [1, 2]
    assert [names(record) for record in history(folder)] == [sorted(SITES)] * 2
    check_like_embedded(folder, "feddyn", rounds=2)


def test_the_run_goes_on_without_a_site_that_dies(deployment: Deployment) -> None:
    """The last test here, as the site stays dead."""
    process, folder = deployment.run("cadis", rounds=3, more="timeout=40.0")
    wait_until(lambda: history(folder), "a round is done", 120)
    wait_until(lambda: deployment.busy("west"), "the next round has begun at the site", 60)
    deployment.send_signal(signal.SIGKILL, site="west")
    assert process.wait(timeout=240) == 0, deployment.said()
    records = history(folder)
    assert [record.round for record in records] == [1, 2, 3]
    assert names(records[0]) == sorted(SITES)
    assert names(records[1]) == ["north", "south"]
    (rejection,) = records[1].rejected
    assert rejection.client == "west"
    assert rejection.reason in ("it did not answer within 40 seconds", "it went offline")
