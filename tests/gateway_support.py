"""A gateway in front of a small server that records the bytes that arrive there."""

import shutil
import socketserver
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import BinaryIO

from cadis.flower.deployment import DeploymentPlan, write_deployment
from deployed_support import find_free_port, is_listening
from gateway_attacks import RawClient
from processes import Processes, processes, wait_until

LARGE = 60 * 2**20
"""Size of a large body, below the limit of the gateway."""
PATH = {"PATH": f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/bin"}
NGINX = shutil.which("nginx", path=PATH["PATH"])


def read_head(stream: BinaryIO) -> bytes:
    """Return the next head, or an empty text at the end."""
    lines = []
    for line in stream:
        lines.append(line)
        if line == b"\r\n":
            return b"".join(lines)
    return b""


@dataclass
class Upstream:
    """Records the head and the size of each request; answers like the SuperLink."""

    requests: list[tuple[bytes, int]] = field(default_factory=list)

    def serve(self, connection: ssl.SSLSocket) -> None:
        """Answer the requests of one connection; the path pull-object has a large answer."""
        with connection.makefile("rb") as stream:
            while head := read_head(stream):
                length = int(head.lower().partition(b"content-length: ")[2].split()[0])
                size, remaining = 0, length
                while part := stream.read(min(remaining, 2**20)):
                    size, remaining = size + len(part), remaining - len(part)
                self.requests.append((head, size))
                body = bytes(LARGE) if b"/pull-object " in head else b"answer"
                answer = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nflwr-note: x\r\n\r\n"
                connection.sendall(answer.encode() + body)


@contextmanager
def start_upstream(folder: Path, port: int) -> Iterator[Upstream]:
    """Serve on the port with the certificate in ``folder``."""
    upstream = Upstream()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with context.wrap_socket(self.request, server_side=True) as connection:
                upstream.serve(connection)

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address, daemon_threads = True, True

        def handle_error(self, *_: object) -> None:
            """Ignore connections that are closed early."""

    with Server(("127.0.0.1", port), Handler) as server:
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield upstream
        server.shutdown()


@dataclass(frozen=True)
class RunningGateway:
    """A gateway that listens, and the server behind it."""

    program: str
    folder: Path
    port: int
    upstream: Upstream
    client: RawClient
    started: Processes
    process: int

    def read_log(self) -> str:
        """Return the output of the gateway."""
        return self.started.read_log(self.program)

    def read_peak_memory(self) -> int:
        """Return the largest number of bytes that the gateway has had in memory."""
        text = Path(f"/proc/{self.process}/status").read_text()
        return int(text.partition("VmHWM:")[2].split()[0]) * 1024


@contextmanager
def start_gateway(root: Path, program: str) -> Iterator[RunningGateway]:
    """Start the gateway of a new deployment, with ``program`` "python" or "nginx"."""
    port = find_free_port()
    folder = write_deployment(root / "federation", DeploymentPlan(("one",), port=port))
    gateway = folder / "gateway"
    command: list[str | Path] = [gateway / "start.sh"]
    if program == "nginx":
        command = ["nginx", "-p", gateway, "-c", "nginx.conf"]
    with start_upstream(folder / "superlink", port + 1) as upstream, processes(root) as started:
        process = started.start(program, command, PATH).pid
        wait_until(lambda: is_listening(port), started.read_log(program), 30)
        client = RawClient(port, folder / "flower" / "ca.crt")
        yield RunningGateway(program, folder, port, upstream, client, started, process)
    assert not started.list_alive()
