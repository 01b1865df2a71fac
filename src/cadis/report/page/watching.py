"""Serve the report page of a run or study on this machine, also while it is running."""

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cadis.analysis import Results, RunData, convert_read_errors, is_result_folder, read_results
from cadis.errors import CadisError
from cadis.report.page.assembly import assemble_page
from cadis.report.page.content import format_now, make_page_data
from cadis.store import RunFolder, StudyFolder, is_locked

_Version = tuple[tuple[int, int] | None, ...]
"""Modification time and size of each file; files are read again if it changes."""
_FILES = ("config.toml", "history.jsonl", "federation.json", "summary.json")
_PAUSE_FACTOR = 4.0
"""Pause after making a page, as a multiple of the time to make it; it keeps the run fast."""
_HOST = "127.0.0.1"
_CHUNK_SIZE = 1 << 16  # bytes
_GRACE_SECONDS = 6.0  # time for open pages to see that the run has ended


class WatchedFolder:
    """Folder of a run or a study that may be running.

    Attributes:
        path: the folder.
        clock: function that returns the time in seconds.
        is_making: whether the page is being made.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path, self.clock, self.is_making = path, clock, False
        self._runs_read: dict[Path, tuple[_Version, RunData]] = {}
        self._content = b""
        self._state: object = None  # state of the files that the content was made from
        self._next_time, self._was_running, self._was_ever_running = 0.0, False, False
        self._check_folder()

    def is_running(self) -> bool:
        """Return whether a process holds the lock of the folder."""
        run = RunFolder(self.path).checkpoint.lock_file
        running = is_locked(StudyFolder(self.path).lock_file) or is_locked(run)
        self._was_ever_running = self._was_ever_running or running
        return running

    def get_data(self) -> bytes:
        """Return the data of the page, made again if files have changed, but not too often.

        If a file is damaged, the page names it. The next request reads it again, since it may have
        been repaired.
        """
        running = self.is_running()
        state = (running, self._get_versions())
        is_due = self.clock() >= self._next_time or running != self._was_running
        if not self._content or (state != self._state and is_due):
            is_first, start = not self._content, self.clock()
            self.is_making, self._was_running = True, running
            try:
                self._content, self._state = self._make_content(running), state
            except CadisError as error:
                page = _make_empty_page(self.path, "damaged", str(error))
                self._content, self._state = json.dumps(page).encode(), None
            finally:
                self.is_making = False
            end = self.clock()
            # The first page takes long because of imports, so its time says nothing about the next.
            pause = 0.0 if is_first else _PAUSE_FACTOR * (end - start)
            self._next_time = end + pause
        return self._content

    def get_tag(self) -> str:
        """Return the ETag of the last data."""
        return f'"{hashlib.sha256(self._content).hexdigest()[:20]}"'

    def _get_versions(self) -> list[_Version]:
        study = _get_version(self.path, ["study.json"])
        return [study, *(_get_version(run.path, _FILES) for run in self._list_runs())]

    def _list_runs(self) -> list[RunFolder]:
        if not StudyFolder(self.path).has_study():
            return [RunFolder(self.path)]
        return [RunFolder(path.parent) for path in sorted(self.path.glob("*/*/config.toml"))]

    def _read(self, run: RunFolder) -> RunData:
        """Read a run, or return it from the cache if its files have not changed."""
        version = _get_version(run.path, _FILES)
        known = self._runs_read.get(run.path)
        if known is None or known[0] != version:
            self._runs_read.pop(run.path, None)  # free the memory first: a history may be large
            self._runs_read[run.path] = known = version, RunData.read(run)
        return known[1]

    def _make_content(self, running: bool) -> bytes:
        state = "running" if running else "ended" if self._was_ever_running else "idle"
        with convert_read_errors(self.path):
            self._check_folder()
            page = _make_empty_page(self.path, state)
            if any(run.has_rounds() for run in self._list_runs()):
                results = read_results([self.path], self._read)
                page = make_page_data(results) | {"live": _make_live(results, state)}
            return json.dumps(page, allow_nan=False, separators=(",", ":")).encode()

    def _check_folder(self) -> None:
        if not is_result_folder(self.path):
            raise CadisError(f"There is no run and no comparison in the folder {self.path}.")


def _get_version(folder: Path, names: Sequence[str]) -> _Version:
    """Return modification time and size of each file; None for missing files."""
    version: list[tuple[int, int] | None] = []
    for name in names:
        try:
            status = (folder / name).stat()
            version.append((status.st_mtime_ns, status.st_size))
        except OSError:
            version.append(None)
    return tuple(version)


def _make_empty_page(path: Path, state: str, note: str = "") -> dict[str, Any]:
    live = {"state": state, "done": 0, "total": None, "note": note}
    return {"title": str(path), "created": format_now(), "live": live, "methods": []}


def _make_live(results: Results, state: str) -> dict[str, Any]:
    runs = [(group.label, run_data) for group in results.groups for run_data in group.runs]
    newest = max(runs, key=lambda run: (run[1].path / "history.jsonl").stat().st_mtime)
    return {
        "state": state,
        "done": sum(len(run_data.history) for _, run_data in runs),
        "total": results.planned_rounds,
        "note": f"{newest[0]}, seed {newest[1].seed}",
    }


class _Server(ThreadingHTTPServer):
    """HTTP server for this machine only."""

    daemon_threads = True

    def __init__(self, watched: WatchedFolder, port: int, timeout: float) -> None:
        super().__init__((_HOST, port), _Handler)
        self.watched, self.page = watched, assemble_page().encode()
        self.lock, self.timeout_seconds = threading.Lock(), timeout

    def handle_error(self, *_: object) -> None:
        """Ignore closed connections: errors would clutter the user's terminal."""


class _Handler(BaseHTTPRequestHandler):
    """Handler of requests for the page and its data."""

    server: _Server

    def setup(self) -> None:
        """Set a timeout, so that idle connections do not block the server."""
        super().setup()
        self.connection.settimeout(self.server.timeout_seconds)

    def do_GET(self) -> None:
        """Send the page or its data; reject requests with another host name."""
        names = {f"{host}:{self.server.server_port}" for host in (_HOST, "localhost")}
        if self.headers.get("Host") not in names:  # DNS rebinding by another website
            self.send_error(HTTPStatus.FORBIDDEN)
        elif self.path == "/":
            self._send("text/html; charset=utf-8", self.server.page)
        elif self.path == "/data.json":
            with self.server.lock:
                content, tag = self.server.watched.get_data(), self.server.watched.get_tag()
            self._send("application/json", content, tag)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def do_HEAD(self) -> None:
        """Send the headers of do_GET."""
        self.do_GET()

    def _send(self, content_type: str, content: bytes, tag: str | None = None) -> None:
        unchanged = tag is not None and self.headers.get("If-None-Match") == tag
        self.send_response(HTTPStatus.NOT_MODIFIED if unchanged else HTTPStatus.OK)
        self.send_header("Content-Type", content_type)
        self.send_header("Cache-Control", "no-cache")
        self.send_header("X-Content-Type-Options", "nosniff")
        if tag is not None:
            self.send_header("ETag", tag)
        self.send_header("Content-Length", "0" if unchanged else str(len(content)))
        self.end_headers()
        if not unchanged and self.command != "HEAD":
            for start in range(0, len(content), _CHUNK_SIZE):  # the timeout counts per chunk
                self.wfile.write(content[start : start + _CHUNK_SIZE])

    def log_message(self, *_: object) -> None:
        """Do not log requests: they would clutter the user's terminal."""


@contextmanager
def serve_page(watched: WatchedFolder, port: int = 0, timeout: float = 10.0) -> Iterator[str]:
    """Serve the page of a run or study, and yield its address.

    Args:
        watched: folder to show.
        port: port of the server; 0 for a free one.
        timeout: seconds that a browser may take to send a request or to receive a chunk.
    """
    try:
        server = _Server(watched, port, timeout)
    except (OSError, OverflowError) as error:
        raise CadisError(f"Port {port} cannot be used: {error}.") from None
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{_HOST}:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def wait_for_end(watched: WatchedFolder) -> None:
    """Wait until the run has ended and open pages have had time to show it.

    If it is not running, wait until it starts.
    """
    was_running = False
    while not was_running or watched.is_running():
        was_running = was_running or watched.is_running()
        time.sleep(0.5)
    time.sleep(_GRACE_SECONDS)
    while watched.is_making:  # the last page of a large run may take longer
        time.sleep(1)
