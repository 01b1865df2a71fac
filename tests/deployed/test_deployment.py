"""Tests with real SuperLink and SuperNode processes, with TLS and authentication."""

import shutil
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from flwr.proto.control_pb2 import (
    ListRunsRequest,
    ListRunsResponse,
    RegisterNodeRequest,
    StartRunRequest,
    StopRunRequest,
    StreamLogsRequest,
)
from flwr.proto.fab_pb2 import Fab
from flwr.proto.fleet_pb2 import RegisterNodeFleetRequest
from flwr.proto.runtime_pb2 import AcquireTaskRequest

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
from gateway_attacks import RawClient, list_attacks, post
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
        wait_until(lambda: is_listening(port) and is_listening(port + 1), "the server listens")
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
    """Both runs use the same sites at the same time and must not disturb each other.

    While they train, an attacker with the certificate attacks the server.
    """
    runs = {method: deployment.run(method, number) for method, number in rounds.items()}
    wait_until(lambda: any(map(deployment.is_busy, SITES)), "a site is training", 180)
    check_attacks_are_refused(deployment)
    for method, (process, folder) in runs.items():
        assert process.wait(timeout=400) == 0, deployment.read_logs()
        check_equals_engine(folder, method, rounds[method])
        assert [sort_participants(record) for record in read_history(folder)] == [
            sorted(SITES)
        ] * rounds[method]
        assert (folder / "figures" / "accuracy.png").is_file()


def check_attacks_are_refused(deployment: Deployment) -> None:
    """Check that a site can do nothing that only the operator may do, and that each try is logged.

    The SuperLink itself accepts the same requests, so it is the gateway that prevents them.
    """
    authority = deployment.folder / "sites" / SITES[0] / "ca.crt"
    behind, site = (RawClient(deployment.port + n, authority) for n in (1, 0))
    run_id = read_running_ids(behind)[0]
    key = make_site_key().public
    attacks = {
        "/v1/control/list-runs": ListRunsRequest().SerializeToString(),
        "/v1/control/start-run": StartRunRequest(fab=Fab(content=b"code")).SerializeToString(),
        "/v1/control/stop-run": StopRunRequest(run_id=run_id).SerializeToString(),
        "/v1/control/stream-logs": StreamLogsRequest(run_id=run_id).SerializeToString(),
        "/v1/control/register-node": RegisterNodeRequest(public_key=key).SerializeToString(),
        "/v1/fleet/register-node": RegisterNodeFleetRequest(public_key=key).SerializeToString(),
        "/v1/runtime/acquire-task": AcquireTaskRequest().SerializeToString(),
    }
    before = deployment.started.read_log("superlink")
    for path, message in attacks.items():
        assert site.send(post(path, message))[0] == 403, path
    for attack in list_attacks():
        assert site.send(attack)[0] == 403, attack[:200]
    assert run_id in read_running_ids(behind)
    log = deployment.started.read_log("superlink").removeprefix(before)
    for path in attacks:
        assert f"refused 127.0.0.1: 'POST {path} HTTP/1.1'" in log
    assert '"POST /v1/control/stop-run' not in log


def read_running_ids(client: RawClient) -> list[int]:
    """List the running runs, as anybody can who reaches the SuperLink."""
    status, body = client.send(post("/v1/control/list-runs", ListRunsRequest().SerializeToString()))
    assert status == 200
    runs = ListRunsResponse.FromString(body).run_dict
    return [number for number, run in runs.items() if run.status.status == "running"]


def test_unknown_sites_are_refused(deployment: Deployment, tmp_path: Path) -> None:
    """One site has a key that is not registered, another one does not use TLS."""
    unknown = tmp_path / "unknown"
    shutil.copytree(deployment.folder / "sites" / SITES[0], unknown)
    (unknown / "supernode.key").unlink()
    write_private_file(unknown / "supernode.key", make_site_key().private)
    port = str(deployment.port + len(SITES) + 2)
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
