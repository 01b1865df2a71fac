"""Serve the connections of sites: forward their requests to the SuperLink, refuse all others.

A forwarded request is written anew, with a path, a Host and a length of our own, so that the
SuperLink cannot read another request in it.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass

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
        connections: if there are more, the one that has waited longest for a request is closed.
        head_seconds: time in which the head of a request must arrive, and between two requests.
        part_seconds: time for each 64 KiB of a body or of an answer.
        answer_seconds: time in which the SuperLink must begin its answer.
    """

    body_bytes: int = 64 * 2**20
    connections: int = 1000
    head_seconds: float = 20.0
    part_seconds: float = 30.0
    answer_seconds: float = 120.0


class Gateway:
    """Answers the requests of sites, with a client of the SuperLink."""

    def __init__(self, upstream: httpx.AsyncClient, limits: Limits) -> None:
        self._upstream, self._limits = upstream, limits
        self._open = 0
        self._waiting: dict[asyncio.StreamWriter, None] = {}  # the oldest first

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        self._open += 1
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
            self._open -= 1
            writer.close()  # waits until the client has read everything
            seconds = self._limits.part_seconds
            asyncio.get_running_loop().call_later(seconds, writer.transport.abort)

    async def _serve_request(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Answer one request; return whether the connection stays open."""
        lines: list[bytes] = []
        self._wait(writer)
        try:
            async with asyncio.timeout(self._limits.head_seconds):
                request = await read_request(reader, lines, self._limits.body_bytes)
        except (TimeoutError, RefusedError) as error:
            if lines:  # otherwise no request has begun
                reason = str(error) or "its head came too slowly"
                await self._refuse(reader, writer, lines[0], reason)
            return False
        finally:
            self._waiting.pop(writer, None)
        return await self._forward(request, reader, writer)

    def _wait(self, writer: asyncio.StreamWriter) -> None:
        """Note that a connection waits for a request; close the oldest if there are too many."""
        self._waiting[writer] = None
        if self._open > self._limits.connections:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            oldest.transport.abort()

    async def _refuse(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        line: bytes,
        reason: str,
    ) -> None:
        """Answer 403, and log the address and the first line with special characters escaped."""
        first = ascii(line[:_LOGGED_BYTES].rstrip(b"\r\n").decode("latin-1"))
        _log.warning("refused %s: %s: %s", _get_address(writer), first, reason)
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
            "x-forwarded-for": _get_address(writer),
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
        while length:
            async with asyncio.timeout(self._limits.part_seconds):
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


def _get_address(writer: asyncio.StreamWriter) -> str:
    peer = writer.get_extra_info("peername")
    return str(peer[0]) if peer else "unknown"  # the client has left
