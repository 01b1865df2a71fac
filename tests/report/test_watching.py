"""The page of ``cadis watch``, whatever the folder holds and whoever asks; without a browser."""

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
from cadis.report.page.watching import Watched, serving
from cadis.store import RunFolder, lock
from fabricated import write_run, write_study


def quick(path: Path) -> Watched:
    """Watched where making a page takes no time, so that there is no rest after it."""
    return Watched(path, clock=lambda: 0.0)


def shown(watched: Watched) -> dict[str, Any]:
    page: dict[str, Any] = json.loads(watched.data())
    return page


def ask(
    address: str, path: str, method: str = "GET", **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection(address.split("/")[2], timeout=20)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def connect(address: str) -> socket.socket:
    host, port = address.split("/")[2].split(":")
    return socket.create_connection((host, int(port)), timeout=20)


def raw(address: str, request: bytes) -> bytes:
    """The whole answer to a request that no library would send."""
    with connect(address) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return write_run(tmp_path / "run", CADIS(), rounds=4)


@pytest.mark.parametrize(
    "name", ["config.toml", "history.jsonl", "federation.json", "summary.json"]
)
def test_a_damaged_file_is_named_on_the_page_until_it_is_put_right(
    name: str, run: RunFolder
) -> None:
    watched, path = quick(run.path), run.path / name
    assert shown(watched)["live"]["state"] == "idle"
    good = path.read_bytes()
    for bad in (b"\xff\xfe{\n", b"[1, 2]\n", b'{"rounds": 3}\n', b"[" * 100_000 + b"\n"):
        path.write_bytes(bad)
        page = shown(watched)
        assert page["live"]["state"] == "damaged"
        assert name in page["live"]["note"]
        assert "Traceback" not in page["live"]["note"]
        path.write_bytes(good)
        assert shown(watched)["live"]["state"] == "idle"


def test_a_damaged_study_is_told_too(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study", {"fedavg": 0.6, "cadis": 0.9}, 1, rounds=2)
    watched = quick(folder.path)
    assert shown(watched)["live"]["total"] == 4
    (folder.path / "study.json").write_text('{"kind": "compare"}')
    assert "study.json is damaged" in shown(watched)["live"]["note"]


def test_a_folder_that_vanishes_and_comes_back(run: RunFolder) -> None:
    watched = quick(run.path)
    shown(watched)
    shutil.move(run.path, run.path.with_name("elsewhere"))
    assert "no run and no comparison in" in shown(watched)["live"]["note"]
    shutil.move(run.path.with_name("elsewhere"), run.path)
    assert shown(watched)["live"]["done"] == 4
    with pytest.raises(CadisError, match="no run and no comparison"):
        Watched(run.path / "figures")


def test_a_run_without_a_round_is_waited_for(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", CADIS(), rounds=0, finished=False)
    assert shown(Watched(folder.path))["live"] == {
        "state": "idle", "done": 0, "total": None, "note": "",
    }  # fmt: skip


def test_the_end_of_a_resumed_run_is_seen(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", CADIS(), rounds=4)
    summary = folder.read_json("summary.json")
    folder.write_json("summary.json", summary | {"rounds": 2})  # that of before it was resumed
    watched = quick(folder.path)
    assert shown(watched)["confusion"] is None
    folder.write_json("summary.json", summary)
    assert shown(watched)["confusion"] is not None


def test_a_run_that_works_does_not_wait_for_its_page(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", CADIS(), rounds=4, finished=False)
    ticks = count(step=5)  # each look at the clock is five seconds later
    watched = Watched(folder.path, clock=lambda: float(next(ticks)))
    lines = folder.history_path.read_bytes().splitlines(keepends=True)
    with closing(lock(folder.checkpoint.lock_file, "It")):
        assert shown(watched)["live"]["done"] == 4
        folder.history_path.write_bytes(b"".join(lines[:2]))
        assert shown(watched)["live"]["done"] == 2  # making it took 5 seconds: a rest of 20 follows
        folder.history_path.write_bytes(b"".join(lines[:3]))
        assert [shown(watched)["live"]["done"] for _ in range(4)] == [2, 2, 2, 3]
        folder.history_path.write_bytes(b"".join(lines))
    live = shown(watched)["live"]  # that it has ended is told at once
    assert (live["state"], live["done"]) == ("ended", 4)


@pytest.fixture
def address(run: RunFolder) -> Iterator[str]:
    with serving(Watched(run.path), patience=0.5) as address:
        yield address


def test_damage_is_an_answer_and_no_traceback(
    address: str, run: RunFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    (run.path / "federation.json").unlink()
    answer, content = ask(address, "/data.json")
    assert answer.status == 200
    assert "federation.json is missing" in json.loads(content)["live"]["note"]
    assert capfd.readouterr() == ("", "")


def test_who_hangs_up_is_passed_over_in_silence(
    address: str, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(5):
        with connect(address) as connection:
            host = address.split("/")[2]
            connection.sendall(f"GET / HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
            linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"  # closing it resets the connection
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    assert ask(address, "/")[0].status == 200
    assert capfd.readouterr() == ("", "")


def test_who_keeps_silent_is_hung_up_on(address: str) -> None:
    before = threading.active_count()
    idle = [connect(address) for _ in range(30)]
    assert ask(address, "/")[0].status == 200  # others are served meanwhile
    assert [connection.recv(1) for connection in idle] == [b""] * 30
    for connection in idle:
        connection.close()
    while threading.active_count() > before:  # ends, or the test does not
        pass


def test_only_short_requests_of_this_machine_for_the_page_are_answered(address: str) -> None:
    answer, content = ask(address, "/", "HEAD")
    assert (answer.status, content) == (200, b"")
    assert int(answer.headers["Content-Length"]) > 1_000_000
    answer, content = ask(address, "/data.json")
    assert b'"state":"idle"' in content
    unchanged = {"If-None-Match": answer.headers["ETag"]}
    assert ask(address, "/data.json", **unchanged)[0].status == 304
    assert ask(address, "/config.toml")[0].status == 404
    assert ask(address, "/", Host="evil.example")[0].status == 403
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        answer, content = ask(address, "/data.json", method)
        assert answer.status == 501
        assert content
    assert b" 414 " in raw(address, b"GET /" + 70_000 * b"x" + b" HTTP/1.0\r\n\r\n")[:50]
    many = b"".join(b"X-%d: 1\r\n" % number for number in range(200))
    assert b" 431 " in raw(address, b"GET / HTTP/1.0\r\n" + many + b"\r\n")[:50]
    listening = Path("/proc/net/tcp").read_text() if sys.platform == "linux" else ""
    assert f"00000000:{int(address.split(':')[2].strip('/')):04X}" not in listening
