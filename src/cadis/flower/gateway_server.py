"""Serve the connections of sites: forward their requests to the SuperLink, refuse all others.

A forwarded request is written anew, with a path, a Host and a length of our own, so that the
SuperLink cannot read another request in it.
"""

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

import httpx

from cadis.flower.gateway_rules import RefusedError, SiteRequest, read_request

_PART_BYTES = 64 * 1024
_LOGGED_BYTES = 300
_DISCARD_SECONDS, _SILENT_SECONDS = 5.0, 0.2
# They concern one connection, and a request passes over two.
_CONNECTION_HEADERS = {b"connection", b"keep-alive", b"trailer", b"transfer-encoding", b"upgrade"}

_log = logging.getLogger("cadis.gateway")


@dataclass(frozen=True)
class Limits:
    """Limits, so that slow or large requests do not keep others out.

    Attributes:
        body_bytes: largest body of a request. Flower sends arrays in parts of 5 MiB.
        connections: if there are more, one is closed: of the address with most connections, the
            one whose request began first.
        handshake_seconds: time for the TLS handshake.
        head_seconds: time in which the head of a request must arrive, and between two requests.
        part_seconds: time for each 64 KiB of a body or of an answer.
        body_seconds: time for a whole body, in addition to its size divided by ``body_rate``.
        body_rate: bytes per second.
        answer_seconds: time in which the SuperLink must begin its answer.
    """

    body_bytes: int = 64 * 2**20
    connections: int = 1000
    handshake_seconds: float = 5.0
    head_seconds: float = 20.0
    part_seconds: float = 30.0
    body_seconds: float = 60.0
    body_rate: int = 256 * 1024
    answer_seconds: float = 120.0


class Gateway:
    """Answers the requests of sites, with a client of the SuperLink."""

    def __init__(self, upstream: httpx.AsyncClient, limits: Limits) -> None:
        self._upstream, self._limits = upstream, limits
        # The address of each open connection; the one whose request began first is the first.
        self._addresses: dict[asyncio.WriteTransport, str] = {}
        self._handshakes: set[asyncio.Task[None]] = set()

    def make_protocol(self, context: ssl.SSLContext) -> asyncio.Protocol:
        """Return a protocol for one connection, which counts before its TLS handshake too."""

        def begin(transport: asyncio.Transport) -> None:
            task = asyncio.create_task(self._start_tls(transport, context))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

        return _AcceptedProtocol(begin)

    async def _start_tls(self, plain: asyncio.Transport, context: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader(), self.serve)
        self._begin(plain)
        try:
            transport = await loop.start_tls(
                plain,
                protocol,
                context,
                server_side=True,
                ssl_handshake_timeout=self._limits.handshake_seconds,
            )
        except OSError:  # the client is gone or too slow, or does not use TLS
            plain.abort()
            return
        finally:
            self._addresses.pop(plain, None)
        if transport is None or transport.is_closing():  # closed in the meantime
            plain.abort()
        else:
            protocol.connection_made(transport)  # calls serve

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while await self._serve_request(reader, writer):
                pass
        except (OSError, EOFError):  # the client is gone or too slow
            writer.transport.abort()
        except httpx.HTTPError as error:  # in the middle of an answer
            _log.error("The SuperLink did not finish its answer: %r", error)
            writer.transport.abort()
        except asyncio.CancelledError:  # the gateway ends; Python 3.11 would print a traceback
            writer.transport.abort()
        finally:
            await self._close(writer)

    async def _close(self, writer: asyncio.StreamWriter) -> None:
        """Close a connection; it counts as open until the client has read everything."""
        writer.close()
        with suppress(OSError, asyncio.CancelledError):
            async with asyncio.timeout(self._limits.part_seconds):
                await writer.wait_closed()
        writer.transport.abort()
        self._addresses.pop(writer.transport, None)

    async def _serve_request(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Answer one request; return whether the connection stays open."""
        lines: list[bytes] = []
        self._begin(writer.transport)
        try:
            async with asyncio.timeout(self._limits.head_seconds):
                request = await read_request(reader, lines, self._limits.body_bytes)
        except (TimeoutError, RefusedError) as error:
            if lines:  # otherwise no request has begun
                reason = str(error) or "its head came too slowly"
                await self._refuse(reader, writer, lines[0], reason)
            return False
        return await self._forward(request, reader, writer)

    def _begin(self, transport: asyncio.WriteTransport) -> None:
        """Note that a request begins; close another connection if there are too many.

        So one address cannot keep others out, whatever its connections wait for.
        """
        self._addresses.pop(transport, None)
        self._addresses[transport] = _get_address(transport)
        if len(self._addresses) > self._limits.connections:
            ((most, _),) = Counter(self._addresses.values()).most_common(1)
            first = next(key for key, address in self._addresses.items() if address == most)
            del self._addresses[first]
            first.abort()

    async def _refuse(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        line: bytes,
        reason: str,
    ) -> None:
        """Answer 403, and log the address and the first line with special characters escaped."""
        first = ascii(line[:_LOGGED_BYTES].rstrip(b"\r\n").decode("latin-1"))
        _log.warning("refused %s: %s: %s", _get_address(writer.transport), first, reason)
        await self._answer(writer, 403, f"The gateway refuses this request: {reason}.")
        # Closing while the client sends would reset the connection, and the answer could be lost.
        with suppress(TimeoutError):
            async with asyncio.timeout(_DISCARD_SECONDS):
                while await asyncio.wait_for(reader.read(_PART_BYTES), _SILENT_SECONDS):
                    pass

    async def _forward(
        self, request: SiteRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Forward a request and its answer; return whether the connection stays open."""
        is_small = request.length <= _PART_BYTES
        body = self._read_body(reader, request.length)
        # A small body is complete before the SuperLink hears of it; a large one is never in memory.
        content = b"".join([part async for part in body]) if is_small else body
        headers = request.headers | {
            "accept-encoding": "identity",
            "content-length": str(request.length),
            # The address in the log of the SuperLink.
            "x-forwarded-for": _get_address(writer.transport),
        }
        outgoing = self._upstream.build_request(
            "POST", request.path, headers=headers, content=content
        )
        try:
            response = await self._upstream.send(outgoing, stream=True)
        except httpx.TransportError as error:
            _log.error("The SuperLink does not answer: %r", error)
            await self._answer(writer, 503, "The SuperLink does not answer.")
            return False
        try:
            return await self._send(writer, response, request.keeps_connection and is_small)
        finally:
            await response.aclose()

    async def _read_body(self, reader: asyncio.StreamReader, length: int) -> AsyncIterator[bytes]:
        limits, get_time = self._limits, asyncio.get_running_loop().time
        end = get_time() + limits.body_seconds + length / limits.body_rate
        while length:
            async with asyncio.timeout_at(min(end, get_time() + limits.part_seconds)):
                part = await reader.readexactly(min(length, _PART_BYTES))
            length -= len(part)
            yield part

    async def _send(
        self, writer: asyncio.StreamWriter, response: httpx.Response, keeps: bool
    ) -> bool:
        """Send the answer of the SuperLink; return whether the connection stays open."""
        keeps = keeps and "content-length" in response.headers  # else it ends with the connection
        headers = [
            name + b": " + value
            for name, value in response.headers.raw
            if name.lower() not in _CONNECTION_HEADERS
        ]
        status = f"HTTP/1.1 {response.status_code} {response.reason_phrase}".encode()
        connection = b"connection: " + (b"keep-alive" if keeps else b"close")
        writer.write(b"\r\n".join([status, *headers, connection, b"", b""]))
        async for part in response.aiter_raw(_PART_BYTES):
            writer.write(part)
            await self._drain(writer)
        await self._drain(writer)
        return keeps

    async def _answer(self, writer: asyncio.StreamWriter, status: int, text: str) -> None:
        body = f"{text}\n".encode()
        head = (
            f"HTTP/1.1 {status} {httpx.codes.get_reason_phrase(status)}\r\n"
            f"content-type: text/plain\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await self._drain(writer)

    async def _drain(self, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(self._limits.part_seconds):
            await writer.drain()


class _AcceptedProtocol(asyncio.Protocol):
    """Calls a function with a new connection, from which nothing is read yet."""

    def __init__(self, begin: Callable[[asyncio.Transport], None]) -> None:
        self._begin = begin

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        accepted = cast(asyncio.Transport, transport)
        accepted.pause_reading()
        self._begin(accepted)


def _get_address(transport: asyncio.BaseTransport) -> str:
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if peer else "unknown"  # the client has left
