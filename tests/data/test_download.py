"""Tests of downloads from a local server with good and faulty mirrors."""

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
from cadis.data.published import CATALOGUE, PublishedDataset, fetch, find_dataset, find_problems
from cadis.data.published.published_files import load_published
from cadis.errors import CadisError, RunError
from toy import CONTENTS, NAMES, ROWS, TARRED, TOY


class Server(ThreadingHTTPServer):
    """Server of files by name; it records all requests."""

    files: dict[str, bytes]
    truncated: set[str]
    requests: list[str]

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        name = self.path.removeprefix("/")
        self.server.requests.append(name)
        if name not in self.server.files:
            self.send_error(404)
            return
        content = self.server.files[name]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        is_truncated = name in self.server.truncated
        self.wfile.write(content[: len(content) // 2] if is_truncated else content)

    def log_message(self, *_: object) -> None:
        """Suppress the log."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as running:
        running.files = {
            **{f"good/{name}.gz": gzip.compress(content) for name, content in CONTENTS.items()},
            **{f"wrong/{name}.gz": gzip.compress(b"something else") for name in CONTENTS},
            **{f"plain/{name}.gz": b"<html>moved</html>" for name in CONTENTS},
            "good/tarred.tar.gz": make_archive(ROWS),
            "partial/tarred.tar.gz": make_archive({"train.bin": ROWS["train.bin"]}),
            "plain/tarred.tar.gz": b"<html>moved</html>",
        }
        running.files |= {
            name.replace("good", "truncated"): content
            for name, content in running.files.items()
            if name.startswith("good")
        }
        running.truncated = {name for name in running.files if name.startswith("truncated")}
        running.requests = []
        thread = Thread(target=running.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def make_archive(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"tarred-bin/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@pytest.mark.parametrize("published", [TOY, TARRED])
@pytest.mark.parametrize("first", ["good", "missing", "wrong", "plain", "truncated", "partial"])
def test_first_working_mirror_is_used(
    published: PublishedDataset, first: str, server: Server, tmp_path: Path
) -> None:
    mirrors = (f"{server.address}/{first}", f"{server.address}/good")
    calls: list[tuple[str, int, int]] = []
    callbacks = Callbacks(progress=lambda *call: calls.append(call))
    folder = fetch(replace(published, mirrors=mirrors), tmp_path, callbacks)
    files = find_dataset(published, [tmp_path])
    assert files is not None
    assert files.folder == folder
    assert list(find_problems(files)) == []
    assert {path.name for path in folder.iterdir()} == {path.name for path in files.paths.values()}
    load_published(published, files)
    operation, done, total = calls[-1]
    assert operation.startswith("downloading ")
    assert done == total > 0


@pytest.mark.parametrize("published", [TOY, TARRED])
@pytest.mark.parametrize(
    ("mirror", "reason"),
    [
        ("missing", "Not Found"),
        ("plain", "its checksum is wrong|not the expected archive"),
        ("wrong", "its checksum is wrong|Not Found"),
        ("truncated", r"it stopped after [\d,]+ of [\d,]+ bytes"),
    ],
)
def test_failed_download_leaves_no_files(
    published: PublishedDataset, mirror: str, reason: str, server: Server, tmp_path: Path
) -> None:
    faulty = replace(published, mirrors=(f"{server.address}/{mirror}", "http://127.0.0.1:9/none"))
    with pytest.raises(CadisError, match=reason) as caught:
        fetch(faulty, tmp_path, NO_CALLBACKS)
    assert f"{server.address}/{mirror}" in str(caught.value)
    assert "refused" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_downloaded_files_are_not_downloaded_again(server: Server, tmp_path: Path) -> None:
    toy = replace(TOY, mirrors=(f"{server.address}/good",))
    last = f"good/{NAMES[3]}.gz"
    content = server.files.pop(last)
    with pytest.raises(CadisError, match="Not Found"):
        fetch(toy, tmp_path, NO_CALLBACKS)
    assert len(list((tmp_path / "toy").iterdir())) == 3
    server.files[last] = content
    server.requests.clear()
    (tmp_path / "toy" / f"{NAMES[0]}.gz").write_bytes(gzip.compress(b"damaged later"))
    fetch(toy, tmp_path, NO_CALLBACKS)
    assert server.requests == [f"good/{NAMES[0]}.gz", last]
    assert find_dataset(toy, [tmp_path]) is not None


def test_damaged_files_are_replaced_and_backed_up(server: Server, tmp_path: Path) -> None:
    toy = replace(TOY, mirrors=(f"{server.address}/good",))
    folder = fetch(toy, tmp_path, NO_CALLBACKS)
    zipped = folder / f"{NAMES[0]}.gz"
    zipped.write_bytes(zipped.read_bytes()[:-9])
    (folder / f"{NAMES[1]}.gz").unlink()
    (folder / NAMES[1]).write_bytes(b"damaged")
    messages: list[str] = []
    fetch(toy, tmp_path, Callbacks(say=messages.append))
    files = find_dataset(toy, [tmp_path])
    assert files is not None
    assert list(find_problems(files)) == []
    # The replaced files may belong to the user, so they are renamed.
    backups = {f"{NAMES[0]}.gz.replaced", f"{NAMES[1]}.replaced"}
    assert {path.name for path in folder.iterdir()} == backups | {f"{name}.gz" for name in NAMES}
    assert (folder / f"{NAMES[1]}.replaced").read_bytes() == b"damaged"
    assert len(messages) == 2
    assert all("differs from the published file; it was renamed to" in line for line in messages)


def test_backups_are_not_overwritten(server: Server, tmp_path: Path) -> None:
    published = replace(TARRED, mirrors=(f"{server.address}/good",))
    folder = tmp_path / "tarred-bin"
    folder.mkdir()
    (folder / "test.bin").write_bytes(ROWS["test.bin"])
    for content in (b"mine", b"mine too"):
        (folder / "train.bin").write_bytes(content)
        fetch(published, tmp_path, NO_CALLBACKS)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == ROWS | {
        "train.bin.replaced": b"mine",
        "train.bin.replaced1": b"mine too",
    }


def test_full_disk_is_an_error_and_no_other_mirror_is_tried(
    server: Server, small_disk: Path
) -> None:
    server.files["heavy/tarred.tar.gz"] = os.urandom(200_000)
    server.files["late/tarred.tar.gz"] = make_archive(
        {"train.bin": bytes(200_000)}
    )  # after unpacking
    for mirror in ("heavy", "late"):
        address = f"{server.address}/{mirror}"
        with pytest.raises(RunError, match="cannot be written: the disk is full; free some space"):
            fetch(replace(TARRED, mirrors=(address,)), small_disk, NO_CALLBACKS)
        assert list((small_disk / "tarred-bin").iterdir()) == []


def test_unwritable_folder_is_an_error(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CadisError, match="cannot be written: Not a directory"):
        fetch(replace(TOY, mirrors=(f"{server.address}/good",)), tmp_path / "file", NO_CALLBACKS)


def test_load_downloads_missing_files_unless_offline(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CATALOGUE, "toy", TOY)
    monkeypatch.setenv("CADIS_DATA", str(tmp_path / "env"))
    monkeypatch.setenv("CADIS_MIRROR", f"{server.address}/")
    server.files |= {name.replace("good", "toy"): c for name, c in server.files.items()}
    with pytest.raises(
        CadisError, match=r"toy is missing: it is not in .*env.*download it without --offline"
    ):
        load("toy", offline=True)
    assert server.requests == []
    assert len(load("toy").train) == 6
    assert len(server.requests) == 4
    assert len(load("toy", offline=True).train) == 6
    assert (tmp_path / "env" / "toy").is_dir()
