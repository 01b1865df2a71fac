"""Requests that a gateway must refuse, and a client that sends them byte by byte."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from pathlib import Path

ALLOWED = "/v1/fleet/get-run"
LIST, STOP = "/v1/control/list-runs", "/v1/control/stop-run"
PROTOBUF = "Content-Type: application/protobuf\r\n"


@dataclass(frozen=True)
class RawClient:
    """Client of a TLS server that sends exactly the given bytes."""

    port: int
    authority: Path
    context: ssl.SSLContext = field(init=False)

    def __post_init__(self) -> None:
        context = ssl.create_default_context(cafile=self.authority)
        object.__setattr__(self, "context", context)

    def connect(self) -> ssl.SSLSocket:
        """Return a connection."""
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        return self.context.wrap_socket(plain, server_hostname="127.0.0.1")

    def send(self, request: bytes) -> tuple[int, bytes]:
        """Return status and body of the answer; status 0 if the connection ends without one."""
        with self.connect() as connection:
            with suppress(OSError):  # the server need not read a request that it refuses
                connection.sendall(request)
            return read_answer(connection, request.partition(b" ")[0].decode("latin-1"))


def read_answer(connection: socket.socket, method: str = "POST") -> tuple[int, bytes]:
    """Read an answer."""
    answer = HTTPResponse(connection, method=method)
    try:
        answer.begin()
        return answer.status, answer.read()
    except (OSError, HTTPException):
        return 0, b""


def post(path: str, body: bytes = b"", headers: str = "", first: str = "") -> bytes:
    """Return the bytes of a request as a site sends it, or with another first line."""
    head = f"{first or f'POST {path} HTTP/1.1'}\r\nHost: 127.0.0.1\r\n{PROTOBUF}{headers}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode("latin-1") + body


def list_wrong_paths(path: str) -> Iterator[str]:
    """Yield other spellings of a forbidden path."""
    head, _, tail = path.rpartition("/")
    yield from (path, f"/{path}", path.replace("/", "//"), f"{path}/", f"{path}?", f"{path}#x")
    yield from (path.upper(), path.replace("/", "%2f"), path.replace("/", "\\"))
    yield from (f"{head}/%{ord(tail[0]):02x}{tail[1:]}", f"{head}/./{tail}", f"{path};x=1")
    for up in ("..", "%2e%2e", "%2E.", "..%2f..", "..;", "..\\", "%252e%252e"):
        yield f"/v1/fleet/{up}{path.removeprefix('/v1')}"
        yield f"{ALLOWED}/{up}/{up}{path.removeprefix('/v1')}"
    for end in ("%00", "%20", "%0d%0a", "%23", "%3f", "\t", "\xff"):
        yield f"{ALLOWED}{end}{path}"


def list_wrong_spellings() -> Iterator[str]:
    """Yield spellings of an allowed path that no site sends."""
    yield from (f"{ALLOWED}/", f"{ALLOWED}?", f"{ALLOWED}?x=1", f"{ALLOWED}#x", f"/{ALLOWED}")
    yield from (ALLOWED.upper(), ALLOWED.replace("-", "%2d"), ALLOWED.replace("/", "//"))
    yield from (f"{ALLOWED};x", f"{ALLOWED}.", f"{ALLOWED}%00", "/v1/fleet/x/../get-run")
    yield from ("/v1/fleet/register-node", "/v1/fleet/unregister-node", "/v1/fleet/", "/", "*")


def list_wrong_first_lines() -> Iterator[str]:
    """Yield first lines with other methods, versions, kinds of targets, and blanks."""
    for method in ("GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "post"):
        yield f"{method} {ALLOWED} HTTP/1.1"
        yield f"{method} {LIST} HTTP/1.1"
    for path in (ALLOWED, LIST):
        yield f"POST http://127.0.0.1{path} HTTP/1.1"
        yield f"POST https://127.0.0.1{path} HTTP/1.1"
        yield f"POST //127.0.0.1{path} HTTP/1.1"
        yield f"POST {path} HTTP/1.0"
        yield f"POST {path} HTTP/2.0"
        yield f"POST {path}"
        yield f"POST  {path} HTTP/1.1"
        yield f"POST\t{path} HTTP/1.1"
        yield f" POST {path} HTTP/1.1"
        yield f"POST {path} HTTP/1.1 "
        yield f"\r\nPOST {path} HTTP/1.1"
    yield from ("CONNECT 127.0.0.1:80 HTTP/1.1", "PRI * HTTP/2.0", "GET / HTTP/0.9", "x", "")


def list_smuggling() -> Iterator[bytes]:
    """Yield requests to an allowed path that try to pass on a second request, or to leave HTTP."""
    hidden = post(LIST)
    chunked = b"0\r\n\r\n" + hidden
    for coding in ("chunked", "Chunked", "gzip, chunked", "identity", "xchunked", "\tchunked"):
        yield post(ALLOWED, chunked, f"Transfer-Encoding: {coding}\r\n")
    yield post(ALLOWED, chunked, "Transfer-Encoding : chunked\r\n")
    yield post(ALLOWED, chunked, "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n")
    yield post(ALLOWED, hidden, "X: 1\n\tTransfer-Encoding: chunked\r\n")
    yield post(ALLOWED, hidden, "Content-Length: 0\r\n")
    yield post(ALLOWED, hidden, "Content-Length: -1\r\n")
    for length in ("+0", "0x0", "0, 0", "1e1", "-5", "", "\xb2", "9" * 30):
        head = f"POST {ALLOWED} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"
        yield head.encode("latin-1") + hidden
    yield f"POST {ALLOWED} HTTP/1.1\r\nHost: x\r\n\r\n".encode() + hidden
    yield f"POST {ALLOWED} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    for header in (
        "Upgrade: h2c",
        "Upgrade: websocket",
        "Upgrade: TLS/1.3",
        "Expect: 100-continue",
    ):
        yield post(ALLOWED, hidden, f"{header}\r\nConnection: Upgrade, HTTP2-Settings\r\n")


def list_large_requests() -> Iterator[bytes]:
    """Yield requests with a large head, and with a body above the limit."""
    yield post(ALLOWED, headers=f"X: {'x' * 200_000}\r\n")
    yield post(ALLOWED, headers="".join(f"X-{n}: {'x' * 500}\r\n" for n in range(200)))
    yield post(f"{ALLOWED}{'x' * 100_000}")
    yield post(LIST, bytes(3_000_000))
    head = f"POST {ALLOWED} HTTP/1.1\r\nHost: x\r\nContent-Length: {2**40}\r\n\r\n"
    yield head.encode() + bytes(500_000)


def list_attacks() -> list[bytes]:
    """Return all requests that must be refused with 403."""
    paths = [*list_wrong_paths(LIST), *list_wrong_paths(STOP), *list_wrong_spellings()]
    lines = [post("", first=line) for line in list_wrong_first_lines()]
    return [*map(post, paths), *lines, *list_smuggling(), *list_large_requests()]
