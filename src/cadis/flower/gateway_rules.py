"""Rules of the gateway: which requests reach the SuperLink, and with which headers.

The SuperLink serves sites, the operator and its own processes on one port, and checks keys only for
the requests of sites. So the gateway compares the whole first line of a request, byte for byte,
with the lines that a site sends. It never decodes or normalizes a path.
"""

import asyncio
import re
from dataclasses import dataclass

PATHS = tuple(
    f"/v1/fleet/{name}"
    for name in (
        "activate-node",
        "deactivate-node",
        "send-node-heartbeat",
        "pull-messages",
        "push-messages",
        "get-run",
        "get-fab",
        "push-object",
        "pull-object",
        "confirm-message-received",
    )
)
"""Paths that a SuperNode of Flower 1.40 to 1.42 uses if its key is registered by the operator."""

HEADERS = (
    "accept",
    "content-type",
    "flwr-component-name",
    "flwr-package-name",
    "flwr-package-version",
    "flwr-public-key",
    "flwr-signature",
    "flwr-timestamp",
)
"""Headers that are forwarded; all others end at the gateway."""

MAX_HEAD_BYTES = 32 * 1024
_REQUEST_LINES = {f"POST {path} HTTP/1.1".encode(): path for path in PATHS}
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e]*?)[ \t]*")
_LENGTH = re.compile(rb"[0-9]{1,18}")
# With one of them, programs may disagree where a request ends, or leave HTTP/1.1.
_REFUSED_HEADERS = (b"transfer-encoding", b"upgrade", b"expect")


class RefusedError(Exception):
    """A request that the gateway does not forward; the message is the reason."""


@dataclass(frozen=True)
class SiteRequest:
    """A request that may be forwarded.

    Attributes:
        path: one of :data:`PATHS`.
        headers: headers to forward.
        length: size of the body in bytes.
        keeps_connection: whether the site may send its next request on the same connection.
    """

    path: str
    headers: dict[str, str]
    length: int
    keeps_connection: bool


async def read_request(
    reader: asyncio.StreamReader, lines: list[bytes], max_body: int
) -> SiteRequest:
    """Read the head of a request and append its lines to ``lines``.

    Raises:
        RefusedError: if it is not exactly a request of a site. The rest of it is not read.
    """
    path = _REQUEST_LINES.get(await _read_line(reader, lines))
    if path is None:
        raise RefusedError("it is not a request of a site")
    headers: dict[bytes, bytes] = {}
    while line := await _read_line(reader, lines):
        match = _HEADER.fullmatch(line)
        if match is None:
            raise RefusedError("it has a header that cannot be read")
        if match[1].lower() in headers:
            raise RefusedError(f"it has the header {match[1].decode()} twice")
        headers[match[1].lower()] = match[2]
    return _check_headers(path, headers, max_body)


async def _read_line(reader: asyncio.StreamReader, lines: list[bytes]) -> bytes:
    try:
        line = await reader.readuntil(b"\n")
    except asyncio.LimitOverrunError:
        lines.append(await reader.read(MAX_HEAD_BYTES))
        raise RefusedError("a line of its head is too long") from None
    lines.append(line)
    if sum(map(len, lines)) > MAX_HEAD_BYTES:
        raise RefusedError("its head is too long")
    if not line.endswith(b"\r\n"):
        raise RefusedError("a line of its head does not end with CR and LF")
    return line[:-2]


def _check_headers(path: str, headers: dict[bytes, bytes], max_body: int) -> SiteRequest:
    for name in _REFUSED_HEADERS:
        if name in headers:
            raise RefusedError(f"it has the header {name.decode()}")
    length = headers.get(b"content-length", b"")
    if not _LENGTH.fullmatch(length):
        raise RefusedError("it has no valid content-length")
    if int(length) > max_body:
        raise RefusedError(f"its body has {int(length)} bytes, more than {max_body} (--max-body)")
    forwarded = {
        name: headers[name.encode()].decode() for name in HEADERS if name.encode() in headers
    }
    closes = headers.get(b"connection", b"").lower() == b"close"
    return SiteRequest(path, forwarded, int(length), keeps_connection=not closes)
