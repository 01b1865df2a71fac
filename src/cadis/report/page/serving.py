"""The page on this machine, while a run or study works."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cadis.errors import CadisError
from cadis.report.page.assembly import live_page
from cadis.report.page.watching import Watched

_HOST = "127.0.0.1"
_PIECE = 1 << 16
_GRACE = 6.0  # seconds in which open pages can still learn that the run has ended


class _Server(ThreadingHTTPServer):
    """Serves this machine only."""

    daemon_threads = True

    def __init__(self, watched: Watched, port: int, patience: float) -> None:
        super().__init__((_HOST, port), _Handler)
        self.watched, self.page = watched, live_page().encode()
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
