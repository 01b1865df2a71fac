"""Tests of the gateway: what it forwards and what it refuses, byte by byte, and nginx's rules."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from flwr.supercore.protobuf.translation import PROTOBUF_REQUEST_TYPES
from flwr.supernode import fleet_http_client

from cadis.flower.gateway_rules import PATHS
from gateway_attacks import ALLOWED, LIST, list_attacks, post, read_answer
from gateway_support import LARGE, NGINX, RunningGateway, start_gateway

without_nginx = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")


@pytest.fixture(scope="module", params=["python", pytest.param("nginx", marks=without_nginx)])
def gateway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    with start_gateway(tmp_path_factory.mktemp("gateway"), request.param) as running:
        yield running


@pytest.fixture(autouse=True)
def _forget_requests(gateway: RunningGateway) -> None:
    gateway.upstream.requests.clear()


def test_sites_need_exactly_these_paths() -> None:
    """Without the two that Flower itself refuses if the operator registers the sites."""
    code = Path(fleet_http_client.__file__).read_text()
    refused = {"/v1/fleet/register-node", "/v1/fleet/unregister-node"}
    assert {*re.findall(r'"(/v1/[\w/-]+)"', code)} == {*PATHS} | refused


def test_attacks_are_refused_and_none_arrives(gateway: RunningGateway) -> None:
    attacks = list_attacks()
    if gateway.program == "nginx":  # it ignores empty lines first, and HTTP/0.9 has no status
        attacks = [a for a in attacks if not a.startswith(b"\r\n")]
        attacks = [a for a in attacks if b" " in a.partition(b"\r\n")[0][6:]]
    answers = {attack[:200]: gateway.client.send(attack)[0] for attack in attacks}
    assert {attack: status for attack, status in answers.items() if status != 403} == {}
    assert gateway.upstream.requests == []
    assert gateway.read_log().count("refused 127.0.0.1") >= len(attacks) * 0.9


def test_all_other_paths_of_flower_are_refused(gateway: RunningGateway) -> None:
    """Flower has a type of message for each path of the operator and of its own processes."""
    others = {path for _, path in PROTOBUF_REQUEST_TYPES} - {*PATHS}
    assert len(others) > 50
    others |= {"/", "/health", "/docs", "/openapi.json", "/v1/runtime/responses"}
    assert {path: gateway.client.send(post(path))[0] for path in others} == dict.fromkeys(
        others, 403
    )
    assert gateway.upstream.requests == []


def test_site_request_is_written_anew(gateway: RunningGateway) -> None:
    headers = (
        "flwr-public-key: a+/=\r\nFlwr-Signature: s\r\nflwr-timestamp: 2026-01-01T00:00:00\r\n"
        "X-Forwarded-For: 10.0.0.9\r\nX-Forwarded-Proto: http\r\nForwarded: for=10.0.0.9\r\n"
        "flwr-task-token: t\r\nCookie: c\r\nConnection: flwr-signature\r\nHost-Header: x\r\n"
    )
    assert gateway.client.send(post(ALLOWED, b"x" * 70_000, headers)) == (200, b"answer")
    ((head, size),) = gateway.upstream.requests
    first, *lines = head.decode().strip().splitlines()
    assert (first, size) == (f"POST {ALLOWED} HTTP/1.1", 70_000)
    values = dict(line.lower().split(": ", 1) for line in lines)
    assert len(values) == len(lines)
    assert values.pop("host") == f"127.0.0.1:{gateway.port + 1}"
    for name in ("accept", "user-agent", "connection", "accept-encoding"):
        values.pop(name, None)
    assert values == {
        "content-length": "70000",
        "content-type": "application/protobuf",
        "flwr-public-key": "a+/=",
        "flwr-signature": "s",
        "flwr-timestamp": "2026-01-01t00:00:00",
        "x-forwarded-for": "127.0.0.1",
    }


def test_every_request_of_a_connection_is_checked(gateway: RunningGateway) -> None:
    """The second and third request arrive with the first one."""
    with gateway.client.connect() as connection:
        connection.sendall(post(ALLOWED, b"1") + post(ALLOWED, b"22") + post(LIST))
        statuses = [read_answer(connection)[0] for _ in range(3)]
    assert statuses == [200, 200, 403]
    assert [size for _, size in gateway.upstream.requests] == [1, 2]


def test_large_bodies_pass_without_being_held_in_memory(gateway: RunningGateway) -> None:
    before = gateway.read_peak_memory()
    assert gateway.client.send(post("/v1/fleet/push-object", bytes(LARGE))) == (200, b"answer")
    status, body = gateway.client.send(post("/v1/fleet/pull-object"))
    assert (status, len(body)) == (200, LARGE)
    assert [size for _, size in gateway.upstream.requests] == [LARGE, 0]
    if gateway.program == "python":  # nginx has several processes
        assert gateway.read_peak_memory() - before < LARGE / 3


def test_answer_of_the_server_is_passed_on(gateway: RunningGateway) -> None:
    with gateway.client.connect() as connection:
        connection.sendall(post(ALLOWED, headers="Connection: close\r\n"))
        head = b"".join(iter(lambda: connection.recv(4096), b"")).decode()
    assert head.startswith("HTTP/1.1 200 OK\r\n")
    assert "\r\nflwr-note: x\r\n" in head
    assert head.endswith("\r\n\r\nanswer")


def test_plain_connection_is_closed(gateway: RunningGateway) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as connection:
        connection.sendall(post(LIST))
        assert read_answer(connection)[0] in (0, 403)
    assert gateway.upstream.requests == []
