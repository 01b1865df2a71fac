"""Tests with real SuperLink and SuperNode processes, with TLS and authentication."""

import shutil
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from cadis.flower.certificates import make_site_key, write_private_file
from deployed_support import (
    PATH,
    PROGRAMS,
    SITES,
    Deployment,
    check_equals_engine,
    find_free_port,
    is_listening,
    read_history,
    sort_participants,
)
from processes import processes, wait_until

pytestmark = pytest.mark.deployment

PAIRS = (
    {"cadis": 2, "fedavg": 1},
    {"scaffold": 2, "fedfa": 1},
    {"ifca": 1, "cadis-paper": 1},
)
"""Number of rounds by method, in pairs that run at the same time.

There is one method for each kind of message: a single model, scalars, tensors and states on both
sides with two rounds, several models. A test below resumes FedDyn, and
``tests/flower/test_parity.py`` covers all methods without processes. More than two runs at a time
can overload a small machine: Flower gives up a task that does not start within 30 seconds.
"""


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Start a server with all sites connected."""
    root = tmp_path_factory.mktemp("deployment")
    port, folder = find_free_port(), root / "federation"
    sites = [word for site in SITES for word in ("--site", site)]
    init: list[str | Path] = [PROGRAMS / "cadis", "deploy", "init", folder]
    command = [*init, *sites, "--port", str(port)]
    with processes(root) as started:
        assert started.finish("init", command) == 0, started.read_log("init")
        running = Deployment(folder, started, port)
        running.write_data()
        started.start("superlink", [folder / "superlink" / "start.sh"], PATH)
        wait_until(lambda: is_listening(port), "the server listens")
        assert started.finish("register", [folder / "register.sh"], PATH) == 0
        for site in SITES:
            running.start_site(site)
        wait_until(lambda: running.count_online() == len(SITES), "all sites are online", 180)
        yield running
    assert not started.list_alive()


@pytest.mark.parametrize("rounds", PAIRS, ids="-".join)
def test_models_equal_those_of_the_engine(
    deployment: Deployment, rounds: Mapping[str, int]
) -> None:
    """Both runs use the same sites at the same time and must not disturb each other."""
    runs = {method: deployment.run(method, number) for method, number in rounds.items()}
    for method, (process, folder) in runs.items():
        assert process.wait(timeout=400) == 0, deployment.read_logs()
        check_equals_engine(folder, method, rounds[method])
        assert [sort_participants(record) for record in read_history(folder)] == [
            sorted(SITES)
        ] * rounds[method]
        assert (folder / "figures" / "accuracy.png").is_file()


def test_unknown_sites_are_refused(deployment: Deployment, tmp_path: Path) -> None:
    """One site has a key that is not registered, another one does not use TLS."""
    unknown = tmp_path / "unknown"
    shutil.copytree(deployment.folder / "sites" / SITES[0], unknown)
    (unknown / "supernode.key").unlink()
    write_private_file(unknown / "supernode.key", make_site_key().private)
    port = str(deployment.port + len(SITES) + 1)
    code = deployment.started.finish("unknown", [unknown / "start.sh", "--port", port], PATH)
    assert code != 0
    assert "Failed to activate SuperNode" in deployment.started.read_log("unknown")
    plain = ["flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{deployment.port}"]
    command = [*plain, "--port", port, "--max-retries", "1"]
    assert deployment.started.finish("plain", command, PATH) != 0
    assert deployment.count_online() == len(SITES)
    assert "activate-node" in deployment.started.read_log("superlink")
    for name in ("unknown", "plain"):
        assert "cadis-app" not in deployment.started.read_log(name)  # it did not receive the app


def test_killed_server_app_is_resumed(deployment: Deployment) -> None:
    """Clients of FedDyn keep their states on disk, also when a site restarts."""
    process, folder = deployment.run("feddyn", rounds=2)
    wait_until(lambda: read_history(folder), "a round is complete", 120)
    wait_until(lambda: deployment.is_busy("north"), "the next round has started at a site", 60)
    deployment.send_signal(signal.SIGKILL, "flwr-serverapp")
    process.kill()
    assert len(read_history(folder)) == 1
    deployment.send_signal(signal.SIGINT, "flower-supernode", "south")  # like Ctrl-C
    wait_until(lambda: deployment.count_online() == len(SITES) - 1, "a site is offline")
    deployment.start_site("south")
    process, _ = deployment.run("feddyn", rounds=2, resume=folder)
    assert process.wait(timeout=240) == 0, deployment.read_logs()
    assert [record.round for record in read_history(folder)] == [1, 2]
    assert [sort_participants(record) for record in read_history(folder)] == [sorted(SITES)] * 2
    check_equals_engine(folder, "feddyn", rounds=2)


def test_run_continues_without_a_killed_site(deployment: Deployment) -> None:
    """This must be the last test, because the site is not restarted."""
    process, folder = deployment.run("cadis", rounds=3, more="timeout=40.0")
    wait_until(lambda: read_history(folder), "a round is complete", 120)
    wait_until(lambda: deployment.is_busy("west"), "the next round has started at the site", 60)
    deployment.send_signal(signal.SIGKILL, site="west")
    assert process.wait(timeout=240) == 0, deployment.read_logs()
    records = read_history(folder)
    assert [record.round for record in records] == [1, 2, 3]
    assert sort_participants(records[0]) == sorted(SITES)
    assert sort_participants(records[1]) == ["north", "south"]
    (rejection,) = records[1].rejected
    assert rejection.client == "west"
    assert rejection.reason in ("it did not reply within 40 seconds", "it went offline")
