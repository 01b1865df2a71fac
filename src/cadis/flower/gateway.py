"""Forward the requests of sites from the public port of a server to its SuperLink, and no others.

Flower's SuperLink serves everything on one port: sites, the operator, who starts runs without a
password, and its own processes. It therefore listens on 127.0.0.1 only, and this program has the
public port. :mod:`cadis.flower.gateway_rules` says which requests are forwarded; the answer to all
others is 403. ``gateway/start.sh`` of a deployment runs ``python -m cadis.flower.gateway``.
"""

import argparse
import asyncio
import errno
import logging
import os
import resource
import signal
import ssl
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx

from cadis.errors import CadisError
from cadis.flower.gateway_server import Gateway, Limits

_PARENT_SECONDS = 0.5
_REPORT_SECONDS = 60.0
_FULL_ERRORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

_log = logging.getLogger("cadis.gateway")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the gateway until it is terminated; return 2 and print one sentence for a user error."""
    options = _make_parser().parse_args(arguments)
    logging.basicConfig(format="%(asctime)s gateway: %(message)s", level=logging.WARNING)
    try:
        asyncio.run(run_gateway(options))
    except CadisError as error:
        print(f"gateway: {error}", file=sys.stderr)
        if options.parent and os.getppid() == options.parent:
            os.kill(options.parent, signal.SIGTERM)  # no SuperLink that sites cannot reach
        return 2
    return 0


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m cadis.flower.gateway",
        description="Forward the requests of sites to a SuperLink, and no others.",
    )
    for option, text in (
        ("--listen", "address for the sites"),
        ("--upstream", "address of the SuperLink"),
    ):
        parser.add_argument(
            option, help=text, type=_parse_address, metavar="HOST:PORT", required=True
        )
    for option, text in (
        ("--certificate", "TLS certificate for the sites"),
        ("--key", "key of this certificate"),
        ("--upstream-ca", "certificate that signs the certificate of the SuperLink"),
    ):
        parser.add_argument(option, help=text, type=Path, metavar="FILE", required=True)
    parser.add_argument(
        "--max-body",
        help="largest body of a request in bytes (default: %(default)s)",
        type=int,
        metavar="N",
        default=Limits.body_bytes,
    )
    parser.add_argument("--parent", help="end when this process ends", type=int, metavar="PID")
    return parser


def _parse_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


async def run_gateway(options: argparse.Namespace) -> None:
    """Serve sites until SIGTERM, SIGINT or the end of the parent process.

    Raises:
        CadisError: if a file cannot be read, or the address cannot be used.
    """
    limits = Limits(body_bytes=options.max_body)
    _allow_open_files(4 * limits.connections)  # a request needs two
    context = make_server_context(options.certificate, options.key)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(make_error_handler())
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(
            make_upstream_client(options.upstream, options.upstream_ca, limits)
        )
        host, port = options.listen
        gateway = Gateway(upstream, limits)
        try:
            server = await loop.create_server(lambda: gateway.make_protocol(context), host, port)
        except OSError as error:
            raise CadisError(f"Cannot listen on {host} port {port}: {error.strerror}.") from error
        stack.callback(server.close)
        await _wait_for_end(options.parent)


def make_error_handler() -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """Return a handler of errors that reports once a minute that no connection can be accepted.

    asyncio would print a traceback for each attempt, hundreds in a second.
    """
    next_report = 0.0

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal next_report
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno in _FULL_ERRORS):
            loop.default_exception_handler(context)
        elif loop.time() >= next_report:
            next_report = loop.time() + _REPORT_SECONDS
            _log.error("No more connections can be accepted for now: %s.", error.strerror)

    return handle


def make_server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return the TLS settings for the connections of sites."""
    try:
        if key.stat().st_mode & 0o077:
            raise CadisError(f"Other users can read {key}; run: chmod 600 {key}")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        raise CadisError(f"{certificate} and {key} are not a certificate and its key.") from error
    except OSError as error:
        reason = f"{error.filename or key}: {error.strerror}"
        raise CadisError(f"The gateway cannot read its certificate or key: {reason}.") from error
    context.set_alpn_protocols(["http/1.1"])
    return context


def make_upstream_client(
    address: tuple[str, int], authority: Path, limits: Limits
) -> httpx.AsyncClient:
    """Return a client of the SuperLink, which uses no proxy and follows no redirection."""
    try:
        context = ssl.create_default_context(cafile=authority)
    except OSError as error:
        raise CadisError(f"Cannot read the certificate {authority}: {error}.") from error
    host, port = address
    return httpx.AsyncClient(
        base_url=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        verify=context,
        trust_env=False,
        timeout=httpx.Timeout(limits.part_seconds, read=limits.answer_seconds, pool=None),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
    )


def _allow_open_files(number: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, number)), hard))


async def _wait_for_end(parent: int | None) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    while not ended.is_set() and parent in (None, os.getppid()):
        try:
            async with asyncio.timeout(_PARENT_SECONDS):
                await ended.wait()
        except TimeoutError:
            continue


if __name__ == "__main__":
    sys.exit(main())
