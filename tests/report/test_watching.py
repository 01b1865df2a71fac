"""The server of ``cadis watch``: damaged folders and unusual requests, without a browser."""

import http.client
import json
import shutil
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from cadis.algorithm.methods import CADIS
from cadis.errors import CadisError
from cadis.report.page.watching import WatchedFolder, serve_page
from cadis.store import RunFolder, lock
from fabricated import write_run, write_study


def watch_without_pause(path: Path) -> WatchedFolder:
    """Return a watched folder whose clock stands still, so that pages are made without a pause."""
    return WatchedFolder(path, clock=lambda: 0.0)


def get_page(watched: WatchedFolder) -> dict[str, Any]:
    page: dict[str, Any] = json.loads(watched.get_data())
    return page


def send_request(
    address: str, path: str, method: str = "GET", **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection(address.split("/")[2], timeout=20)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


def connect(address: str) -> socket.socket:
    host, port = address.split("/")[2].split(":")
    return socket.create_connection((host, int(port)), timeout=20)


def send_raw(address: str, request: bytes) -> bytes:
    """Send a request that no library would send, and return the response."""
    with connect(address) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return write_run(tmp_path / "run", CADIS(), rounds=4)


@pytest.mark.parametrize(
    "name", ["config.toml", "history.jsonl", "federation.json", "summary.json"]
)
def test_a_damaged_file_is_named_on_the_page_until_it_is_repaired(
    name: str, run: RunFolder
) -> None:
    watched, path = watch_without_pause(run.path), run.path / name
    assert get_page(watched)["live"]["state"] == "idle"
    good = path.read_bytes()
    for bad in (b"\xff\xfe{\n", b"[1, 2]\n", b'{"rounds": 3}\n', b"[" * 100_000 + b"\n"):
        path.write_bytes(bad)
        page = get_page(watched)
        assert page["live"]["state"] == "damaged"
        assert name in page["live"]["note"]
        assert "Traceback" not in page["live"]["note"]
        path.write_bytes(good)
        assert get_page(watched)["live"]["state"] == "idle"


def test_a_damaged_study_is_named_on_the_page(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study", {"fedavg": 0.6, "cadis": 0.9}, 1, rounds=2)
    watched = watch_without_pause(folder.path)
    assert get_page(watched)["live"]["total"] == 4
    (folder.path / "study.json").write_text('{"kind": "compare"}')
    assert "study.json is damaged" in get_page(watched)["live"]["note"]


def test_a_folder_may_disappear_and_return(run: RunFolder) -> None:
    watched = watch_without_pause(run.path)
    get_page(watched)
    shutil.move(run.path, run.path.with_name("elsewhere"))
    assert "no run and no comparison in" in get_page(watched)["live"]["note"]
    shutil.move(run.path.with_name("elsewhere"), run.path)
    assert get_page(watched)["live"]["done"] == 4
    with pytest.raises(CadisError, match="no run and no comparison"):
        WatchedFolder(run.path / "figures")


def test_a_run_without_a_round_is_idle(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", CADIS(), rounds=0, finished=False)
    assert get_page(WatchedFolder(folder.path))["live"] == {
        "state": "idle", "done": 0, "total": None, "note": "",
    }  # fmt: skip


def test_the_end_of_a_resumed_run_is_shown(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", CADIS(), rounds=4)
    summary = folder.read_json("summary.json")
    folder.write_json("summary.json", summary | {"rounds": 2})  # as before it was resumed
    watched = watch_without_pause(folder.path)
    assert get_page(watched)["confusion"] is None
    folder.write_json("summary.json", summary)
    assert get_page(watched)["confusion"] is not None


def test_pages_are_made_with_pauses(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", CADIS(), rounds=4, finished=False)
    ticks = count(step=5)  # each look at the clock is five seconds later
    watched = WatchedFolder(folder.path, clock=lambda: float(next(ticks)))
    lines = folder.history_path.read_bytes().splitlines(keepends=True)
    with closing(lock(folder.checkpoint.lock_file, "It")):
        assert get_page(watched)["live"]["done"] == 4
        folder.history_path.write_bytes(b"".join(lines[:2]))
        assert get_page(watched)["live"]["done"] == 2  # it took 5 s: a pause of 20 s follows
        folder.history_path.write_bytes(b"".join(lines[:3]))
        assert [get_page(watched)["live"]["done"] for _ in range(4)] == [2, 2, 2, 3]
        folder.history_path.write_bytes(b"".join(lines))
    live = get_page(watched)["live"]  # the end is shown at once
    assert (live["state"], live["done"]) == ("ended", 4)


@pytest.fixture
def address(run: RunFolder) -> Iterator[str]:
    with serve_page(WatchedFolder(run.path), timeout=0.5) as address:
        yield address


def test_damage_gives_a_response_without_traceback(
    address: str, run: RunFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    (run.path / "federation.json").unlink()
    response, content = send_request(address, "/data.json")
    assert response.status == 200
    assert "federation.json is missing" in json.loads(content)["live"]["note"]
    assert capfd.readouterr() == ("", "")


def test_closed_connections_are_ignored(address: str, capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(5):
        with connect(address) as connection:
            host = address.split("/")[2]
            connection.sendall(f"GET / HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
            linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"  # closing it resets the connection
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    assert send_request(address, "/")[0].status == 200
    assert capfd.readouterr() == ("", "")


def test_idle_connections_are_closed(address: str) -> None:
    before = threading.active_count()
    idle = [connect(address) for _ in range(30)]
    assert send_request(address, "/")[0].status == 200  # others are served meanwhile
    assert [connection.recv(1) for connection in idle] == [b""] * 30
    for connection in idle:
        connection.close()
    while threading.active_count() > before:  # ends, or the test does not
        pass


def test_only_valid_local_requests_are_answered(address: str) -> None:
    response, content = send_request(address, "/", "HEAD")
    assert (response.status, content) == (200, b"")
    assert int(response.headers["Content-Length"]) > 1_000_000
    response, content = send_request(address, "/data.json")
    assert b'"state":"idle"' in content
    unchanged = {"If-None-Match": response.headers["ETag"]}
    assert send_request(address, "/data.json", **unchanged)[0].status == 304
    assert send_request(address, "/config.toml")[0].status == 404
    assert send_request(address, "/", Host="evil.example")[0].status == 403
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        response, content = send_request(address, "/data.json", method)
        assert response.status == 501
        assert content
    assert b" 414 " in send_raw(address, b"GET /" + 70_000 * b"x" + b" HTTP/1.0\r\n\r\n")[:50]
    many = b"".join(b"X-%d: 1\r\n" % number for number in range(200))
    assert b" 431 " in send_raw(address, b"GET / HTTP/1.0\r\n" + many + b"\r\n")[:50]
    listening = Path("/proc/net/tcp").read_text() if sys.platform == "linux" else ""
    assert f"00000000:{int(address.split(':')[2].strip('/')):04X}" not in listening
