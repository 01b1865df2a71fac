"""Fetching datasets from a server of our own, whatever it does."""

import gzip
import io
import os
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from cadis._io import NO_CALLBACKS, Callbacks
from cadis.data import load
from cadis.data.published import CATALOGUE, Published, fetch, find, problems
from cadis.data.published.published_files import load_published
from cadis.errors import CadisError, RunError
from toy import CONTENTS, NAMES, ROWS, TARRED, TOY


class Server(ThreadingHTTPServer):
    """Serves what it is told to; remembers what it was asked for."""

    files: dict[str, bytes]
    cut: set[str]
    asked: list[str]

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        name = self.path.removeprefix("/")
        self.server.asked.append(name)
        if name not in self.server.files:
            self.send_error(404)
            return
        content = self.server.files[name]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        broken = name in self.server.cut
        self.wfile.write(content[: len(content) // 2] if broken else content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as running:
        running.files = {
            **{f"good/{name}.gz": gzip.compress(content) for name, content in CONTENTS.items()},
            **{f"wrong/{name}.gz": gzip.compress(b"something else") for name in CONTENTS},
            **{f"plain/{name}.gz": b"<html>moved</html>" for name in CONTENTS},
            "good/tarred.tar.gz": tarred(ROWS),
            "poor/tarred.tar.gz": tarred({"train.bin": ROWS["train.bin"]}),
            "plain/tarred.tar.gz": b"<html>moved</html>",
        }
        running.files |= {
            name.replace("good", "cut"): content
            for name, content in running.files.items()
            if name.startswith("good")
        }
        running.cut = {name for name in running.files if name.startswith("cut")}
        running.asked = []
        thread = Thread(target=running.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def tarred(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"tarred-bin/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@pytest.mark.parametrize("published", [TOY, TARRED])
@pytest.mark.parametrize("first", ["good", "missing", "wrong", "plain", "cut", "poor"])
def test_fetched_from_the_first_mirror_that_delivers(
    published: Published, first: str, server: Server, tmp_path: Path
) -> None:
    mirrors = (f"{server.address}/{first}", f"{server.address}/good")
    heard: list[tuple[str, int, int]] = []
    callbacks = Callbacks(progress=lambda *call: heard.append(call))
    folder = fetch(replace(published, mirrors=mirrors), tmp_path, callbacks)
    found = find(published, [tmp_path])
    assert found is not None
    assert found.folder == folder
    assert list(problems(found)) == []
    assert {path.name for path in folder.iterdir()} == {path.name for path in found.paths.values()}
    load_published(published, found)
    what, done, total = heard[-1]
    assert what.startswith("downloading ")
    assert done == total > 0


@pytest.mark.parametrize("published", [TOY, TARRED])
@pytest.mark.parametrize(
    ("mirror", "reason"),
    [
        ("missing", "Not Found"),
        ("plain", "its checksum is wrong|not the archive"),
        ("wrong", "its checksum is wrong|Not Found"),
        ("cut", r"it broke off after [\d,]+ of [\d,]+ bytes"),
    ],
)
def test_when_no_mirror_delivers_nothing_is_left(
    published: Published, mirror: str, reason: str, server: Server, tmp_path: Path
) -> None:
    broken = replace(published, mirrors=(f"{server.address}/{mirror}", "http://127.0.0.1:9/none"))
    with pytest.raises(CadisError, match=reason) as caught:
        fetch(broken, tmp_path, NO_CALLBACKS)
    assert f"{server.address}/{mirror}" in str(caught.value)
    assert "refused" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_what_was_fetched_stays_and_is_not_fetched_again(server: Server, tmp_path: Path) -> None:
    toy = replace(TOY, mirrors=(f"{server.address}/good",))
    last = f"good/{NAMES[3]}.gz"
    kept = server.files.pop(last)
    with pytest.raises(CadisError, match="Not Found"):
        fetch(toy, tmp_path, NO_CALLBACKS)
    assert len(list((tmp_path / "toy").iterdir())) == 3
    server.files[last] = kept
    server.asked.clear()
    (tmp_path / "toy" / f"{NAMES[0]}.gz").write_bytes(gzip.compress(b"damaged since"))
    fetch(toy, tmp_path, NO_CALLBACKS)
    assert server.asked == [f"good/{NAMES[0]}.gz", last]
    assert find(toy, [tmp_path]) is not None


def test_what_is_damaged_is_replaced_gzipped_or_not(server: Server, tmp_path: Path) -> None:
    toy = replace(TOY, mirrors=(f"{server.address}/good",))
    folder = fetch(toy, tmp_path, NO_CALLBACKS)
    zipped = folder / f"{NAMES[0]}.gz"
    zipped.write_bytes(zipped.read_bytes()[:-9])
    (folder / f"{NAMES[1]}.gz").unlink()
    (folder / NAMES[1]).write_bytes(b"damaged")
    said: list[str] = []
    fetch(toy, tmp_path, Callbacks(say=said.append))
    found = find(toy, [tmp_path])
    assert found is not None
    assert list(problems(found)) == []
    # What was there may be the user's own: it is kept, and said where.
    kept = {f"{NAMES[0]}.gz.replaced", f"{NAMES[1]}.replaced"}
    assert {path.name for path in folder.iterdir()} == kept | {f"{name}.gz" for name in NAMES}
    assert (folder / f"{NAMES[1]}.replaced").read_bytes() == b"damaged"
    assert len(said) == 2
    assert all("was in the way of the published file; it is now" in line for line in said)


def test_what_was_kept_is_kept_again(server: Server, tmp_path: Path) -> None:
    tarred = replace(TARRED, mirrors=(f"{server.address}/good",))
    folder = tmp_path / "tarred-bin"
    folder.mkdir()
    (folder / "test.bin").write_bytes(ROWS["test.bin"])
    for content in (b"mine", b"mine too"):
        (folder / "train.bin").write_bytes(content)
        fetch(tarred, tmp_path, NO_CALLBACKS)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == ROWS | {
        "train.bin.replaced": b"mine",
        "train.bin.replaced1": b"mine too",
    }


def test_a_full_disk_is_not_the_mirrors_fault(server: Server, small_disk: Path) -> None:
    server.files["heavy/tarred.tar.gz"] = os.urandom(200_000)
    server.files["late/tarred.tar.gz"] = tarred({"train.bin": bytes(200_000)})  # once unpacked
    for mirror in ("heavy", "late"):
        address = f"{server.address}/{mirror}"
        with pytest.raises(RunError, match="cannot be written: the disk is full; make room"):
            fetch(replace(TARRED, mirrors=(address,)), small_disk, NO_CALLBACKS)
        assert list((small_disk / "tarred-bin").iterdir()) == []


def test_a_folder_that_cannot_be_written(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CadisError, match="cannot be written: Not a directory"):
        fetch(replace(TOY, mirrors=(f"{server.address}/good",)), tmp_path / "file", NO_CALLBACKS)


def test_load_downloads_what_is_missing_unless_offline(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CATALOGUE, "toy", TOY)
    monkeypatch.setenv("CADIS_DATA", str(tmp_path / "env"))
    monkeypatch.setenv("CADIS_MIRROR", f"{server.address}/")
    server.files |= {name.replace("good", "toy"): c for name, c in server.files.items()}
    with pytest.raises(
        CadisError, match=r"toy is missing: it is not in .*env.*fetch it without --offline"
    ):
        load("toy", offline=True)
    assert server.asked == []
    assert len(load("toy").train) == 6
    assert len(server.asked) == 4
    assert len(load("toy", offline=True).train) == 6
    assert (tmp_path / "env" / "toy").is_dir()
