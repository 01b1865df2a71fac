"""The page of a run or study while it works, served on this machine."""

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

from cadis.analysis import Results, RunData, is_result, naming, read_results
from cadis.errors import CadisError
from cadis.report.page.assembly import assemble_page
from cadis.report.page.content import now, page_data
from cadis.store import RunFolder, StudyFolder, is_locked

_Version = tuple[tuple[int, int] | None, ...]
"""What tells whether files must be read again: when each was written and how long it is."""
_FILES = ("config.toml", "history.jsonl", "federation.json", "summary.json")
_REST = 4.0
"""A page is made anew only after so many times as long as making the last one took: a run that is
watched must not wait for its page."""
_HOST = "127.0.0.1"
_PIECE = 1 << 16
_GRACE = 6.0  # seconds in which open pages can still learn that the run has ended


class Watched:
    """A folder of a run or a study that somebody may be working on.

    Its ``clock`` tells seconds. While the page is being made, ``making`` is true.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path, self.clock, self.making = path, clock, False
        self._runs_read: dict[Path, tuple[_Version, RunData]] = {}
        self._made = b""
        self._seen: object = None
        self._next, self._was_running, self._worked_on = 0.0, False, False
        self._check()

    def is_running(self) -> bool:
        """Whether a process works on it."""
        run = RunFolder(self.path).checkpoint.lock_file
        running = is_locked(StudyFolder(self.path).lock_file) or is_locked(run)
        self._worked_on = self._worked_on or running
        return running

    def data(self) -> bytes:
        """Return what the page shows; made anew only if something has changed, and not too often.

        What is damaged is told on the page, and looked at again: it may be put right.
        """
        running = self.is_running()
        seen = (running, self._versions())
        due = self.clock() >= self._next or running != self._was_running
        if not self._made or (seen != self._seen and due):
            first, started = not self._made, self.clock()
            self.making, self._was_running = True, running
            try:
                self._made, self._seen = self._text(running), seen
            except CadisError as error:
                page = _empty_page(self.path, "damaged", str(error))
                self._made, self._seen = json.dumps(page).encode(), None
            finally:
                self.making = False
            ended = self.clock()  # the first page had to wait for what is imported
            self._next = ended if first else ended + _REST * (ended - started)
        return self._made

    def tag(self) -> str:
        """A name for what :meth:`data` returned last."""
        return f'"{hashlib.sha256(self._made).hexdigest()[:20]}"'

    def _versions(self) -> list[_Version]:
        study = _version(self.path, ["study.json"])
        return [study, *(_version(run.path, _FILES) for run in self._runs())]

    def _runs(self) -> list[RunFolder]:
        if not StudyFolder(self.path).holds_study():
            return [RunFolder(self.path)]
        return [RunFolder(path.parent) for path in sorted(self.path.glob("*/*/config.toml"))]

    def _read(self, run: RunFolder) -> RunData:
        """A run, read again only if it has changed."""
        version = _version(run.path, _FILES)
        known = self._runs_read.get(run.path)
        if known is None or known[0] != version:
            self._runs_read.pop(run.path, None)  # not both at once: a history may be large
            self._runs_read[run.path] = known = version, RunData.read(run)
        return known[1]

    def _text(self, running: bool) -> bytes:
        state = "running" if running else "ended" if self._worked_on else "idle"
        with naming(self.path):
            self._check()
            page = _empty_page(self.path, state)
            if any(run.has_rounds() for run in self._runs()):
                results = read_results([self.path], self._read)
                page = page_data(results) | {"live": _live(results, state)}
            return json.dumps(page, allow_nan=False, separators=(",", ":")).encode()

    def _check(self) -> None:
        if not is_result(self.path):
            raise CadisError(f"There is no run and no comparison in the folder {self.path}.")


def _version(folder: Path, names: Sequence[str]) -> _Version:
    """When each of the files was written, and how long it is; None for one that is not there."""
    found: list[tuple[int, int] | None] = []
    for name in names:
        try:
            status = (folder / name).stat()
            found.append((status.st_mtime_ns, status.st_size))
        except OSError:
            found.append(None)
    return tuple(found)


def _empty_page(path: Path, state: str, note: str = "") -> dict[str, Any]:
    live = {"state": state, "done": 0, "total": None, "note": note}
    return {"title": str(path), "created": now(), "live": live, "methods": []}


def _live(results: Results, state: str) -> dict[str, Any]:
    runs = [(group.label, run_data) for group in results.groups for run_data in group.runs]
    newest = max(runs, key=lambda run: (run[1].path / "history.jsonl").stat().st_mtime)
    return {
        "state": state,
        "done": sum(len(run_data.history) for _, run_data in runs),
        "total": results.planned_rounds,
        "note": f"{newest[0]}, seed {newest[1].seed}",
    }


class _Server(ThreadingHTTPServer):
    """Serves this machine only."""

    daemon_threads = True

    def __init__(self, watched: Watched, port: int, patience: float) -> None:
        super().__init__((_HOST, port), _Handler)
        self.watched, self.page = watched, assemble_page().encode()
        self.working, self.patience = threading.Lock(), patience

    def handle_error(self, *_: object) -> None:
        """Say nothing of those who hung up: the terminal is the user's."""


class _Handler(BaseHTTPRequestHandler):
    """The page, and its data, for those who get on with it."""

    server: _Server

    def setup(self) -> None:
        """Wait for nobody who keeps silent."""
        super().setup()
        self.connection.settimeout(self.server.patience)

    def do_GET(self) -> None:
        """Send the page or its data, and nothing to pages of other sites."""
        names = {f"{host}:{self.server.server_port}" for host in (_HOST, "localhost")}
        if self.headers.get("Host") not in names:  # another site's page that was led here
            self.send_error(HTTPStatus.FORBIDDEN)
        elif self.path == "/":
            self._answer("text/html; charset=utf-8", self.server.page)
        elif self.path == "/data.json":
            with self.server.working:
                content, tag = self.server.watched.data(), self.server.watched.tag()
            self._answer("application/json", content, tag)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def do_HEAD(self) -> None:
        """Send what do_GET would, without the content."""
        self.do_GET()

    def _answer(self, kind: str, content: bytes, tag: str | None = None) -> None:
        unchanged = tag is not None and self.headers.get("If-None-Match") == tag
        self.send_response(HTTPStatus.NOT_MODIFIED if unchanged else HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Cache-Control", "no-cache")
        self.send_header("X-Content-Type-Options", "nosniff")
        if tag is not None:
            self.send_header("ETag", tag)
        self.send_header("Content-Length", "0" if unchanged else str(len(content)))
        self.end_headers()
        if not unchanged and self.command != "HEAD":
            for start in range(0, len(content), _PIECE):  # each has the time that is given
                self.wfile.write(content[start : start + _PIECE])

    def log_message(self, *_: object) -> None:
        """Say nothing: the terminal is the user's."""


@contextmanager
def serving(watched: Watched, port: int = 0, patience: float = 10.0) -> Iterator[str]:
    """Serve the page of a run or study; yields its address.

    Args:
        watched: what is shown.
        port: on which port; 0 takes a free one.
        patience: seconds in which a browser must say something, or take a piece of the answer.
    """
    try:
        server = _Server(watched, port, patience)
    except (OSError, OverflowError) as error:
        raise CadisError(f"Port {port} cannot be used: {error}.") from None
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{_HOST}:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def wait_for_end(watched: Watched) -> None:
    """Wait while a process works on it, and until open pages can know that it has ended.

    If nobody works on it, somebody may begin to.
    """
    seen = False
    while not seen or watched.is_running():
        seen = seen or watched.is_running()
        time.sleep(0.5)
    time.sleep(_GRACE)
    while watched.making:  # the last page of a large run may take longer
        time.sleep(1)
