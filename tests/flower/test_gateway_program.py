"""Tests of slow and many clients, of the start and the end of the gateway, and of its errors."""

import asyncio
import errno
import logging
import os
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

pytest.importorskip("flwr")

from cadis.errors import CadisError
from cadis.flower.deployment import DeploymentPlan, write_deployment
from cadis.flower.gateway import main, make_error_handler, make_server_context
from cadis.flower.gateway_server import Gateway, Limits
from cadis.flower.version import check_flower_version
from deployed_support import find_free_port, is_listening
from gateway_attacks import ALLOWED, LIST, RawClient, post
from gateway_support import PATH
from processes import processes, wait_until

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
LIMITS = Limits(connections=10, head_seconds=0.4, part_seconds=0.4, answer_seconds=0.4)


async def answer_upstream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer a request with an empty body, in the place of the SuperLink."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    writer.close()


@asynccontextmanager
async def serve(serve: Serve) -> AsyncIterator[int]:
    """Serve on a port of this machine, without TLS."""
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@asynccontextmanager
async def start_limited_gateway(
    upstream: Serve = answer_upstream, limits: Limits = LIMITS
) -> AsyncIterator[int]:
    async with (
        serve(upstream) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=1) as client,
        serve(Gateway(client, limits).serve) as gateway,
    ):
        yield gateway


async def send(
    port: int,
    *parts: bytes,
    pause: float = 0.0,
    address: str = "127.0.0.1",
    context: ssl.SSLContext | None = None,
) -> bytes:
    """Send parts with pauses; return all that comes back until the connection ends."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, local_addr=(address, 0), ssl=context
    )
    try:
        for part in parts:
            writer.write(part)
            await asyncio.sleep(pause)
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def get_status(answer: bytes) -> str:
    return answer.partition(b"\r\n")[0].decode()


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        ([b""], ""),
        ([b"POST /v1"], ""),
        ([b"POST ", *[b"/"] * 20], ""),
        ([post(ALLOWED)[:-2]], "HTTP/1.1 403 Forbidden"),
        ([post(ALLOWED)[:-2], *[b"x: y\r\n"] * 20], "HTTP/1.1 403 Forbidden"),
        ([post(ALLOWED, b"1234")[:-1]], ""),
        ([post(ALLOWED, bytes(70_000))[:-1]], ""),
    ],
)
def test_slow_clients_are_disconnected(parts: list[bytes], status: str) -> None:
    async def check() -> bytes:
        async with start_limited_gateway() as port, asyncio.timeout(10):
            return await send(port, *parts, pause=0.1)

    assert get_status(asyncio.run(check())) == status


PATIENT = replace(LIMITS, head_seconds=20.0, part_seconds=20.0)


@pytest.mark.parametrize(
    "slow",
    [
        b"",
        post(ALLOWED)[:-2],
        post(ALLOWED, bytes(60_000))[:-1],
        post(ALLOWED, bytes(70_000))[:-1],
        post(LIST, bytes(1000))[:-1],
    ],
    ids=["nothing", "head", "small body", "large body", "refused"],
)
def test_many_slow_clients_do_not_keep_others_out(slow: bytes) -> None:
    """There are three times as many slow connections as the gateway accepts."""

    async def check() -> list[str]:
        async with start_limited_gateway(limits=PATIENT) as port, asyncio.timeout(10):
            attack = [asyncio.create_task(send(port, slow)) for _ in range(30)]
            await asyncio.sleep(0.2)
            answers = [get_status(await send(port, close(post(ALLOWED)))) for _ in range(5)]
            await end(attack)
            return answers

    assert asyncio.run(check()) == ["HTTP/1.1 200 OK"] * 5


def test_many_clients_of_one_address_do_not_end_requests_of_others() -> None:
    """The request of the other address is the oldest, and is sent slowly."""

    async def check() -> str:
        async with start_limited_gateway(limits=PATIENT) as port, asyncio.timeout(10):
            request = close(post(ALLOWED, b"1234"))
            parts = [request[:-4], b"12", b"34"]
            honest = asyncio.create_task(send(port, *parts, pause=0.3, address="127.0.0.2"))
            await asyncio.sleep(0.1)
            attack = [asyncio.create_task(send(port, request[:-1])) for _ in range(30)]
            answer = await honest
            await end(attack)
            return get_status(answer)

    assert asyncio.run(check()) == "HTTP/1.1 200 OK"


async def end(tasks: list[asyncio.Task[bytes]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("start", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["nothing", "part"])
def test_many_connections_without_handshake_do_not_keep_others_out(
    start: bytes, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate = folder / "gateway" / "server.crt"
    server = make_server_context(certificate, folder / "gateway" / "server.key")
    client = ssl.create_default_context(cafile=folder / "flower" / "ca.crt")

    async def check() -> tuple[str, int]:
        async with start_tls_gateway(server) as port, asyncio.timeout(10):
            plain = [asyncio.create_task(send(port, start)) for _ in range(30)]
            while (ended := sum(task.done() for task in plain)) < 20:
                await asyncio.sleep(0.05)
            answer = await send(port, close(post(ALLOWED)), context=client)
            await end(plain)
            return get_status(answer), ended

    assert asyncio.run(check()) == ("HTTP/1.1 200 OK", 20)
    assert caplog.records == []


@asynccontextmanager
async def start_tls_gateway(context: ssl.SSLContext) -> AsyncIterator[int]:
    async with (
        serve(answer_upstream) as upstream,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{upstream}", timeout=1) as client,
    ):
        gateway = Gateway(client, PATIENT)
        loop = asyncio.get_running_loop()
        async with await loop.create_server(
            lambda: gateway.make_protocol(context), "127.0.0.1", 0
        ) as server:
            yield server.sockets[0].getsockname()[1]


def test_whole_body_has_a_deadline() -> None:
    """Each part arrives in time."""
    limits = replace(PATIENT, body_seconds=0.6, body_rate=2**30)
    head, body = post(ALLOWED, bytes(640 * 1024)).split(b"\r\n\r\n")
    parts = [head + b"\r\n\r\n", *[body[: 64 * 1024]] * 9]

    async def check(pause: float) -> str:
        async with start_limited_gateway(read_upstream, limits) as port, asyncio.timeout(10):
            return get_status(await send(port, *parts, body[: 64 * 1024], pause=pause))

    assert asyncio.run(check(0.01)) == "HTTP/1.1 200 OK"
    assert asyncio.run(check(0.1)) == ""


async def read_upstream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer a request when its body is complete."""
    head = await reader.readuntil(b"\r\n\r\n")
    with suppress(EOFError):
        await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split()[0]))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    writer.close()


def test_lack_of_open_files_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Of a thousand errors of asyncio; other errors are reported as before."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(make_error_handler())
    full = OSError(errno.EMFILE, "Too many open files")
    for _ in range(1000):
        loop.call_exception_handler({"message": "socket.accept()", "exception": full})
    loop.call_exception_handler({"message": "other", "exception": OSError(errno.EIO, "x")})
    loop.close()
    first, second = (record.getMessage() for record in caplog.records)
    assert first == "No more connections can be accepted for now: Too many open files."
    assert second.startswith("other")


def close(request: bytes) -> bytes:
    return request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)


def test_missing_or_slow_server_is_an_error_that_sites_retry() -> None:
    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def check(upstream: Serve) -> str:
        async with start_limited_gateway(upstream) as port, asyncio.timeout(10):
            return get_status(await send(port, post(ALLOWED)))

    assert asyncio.run(check(wait)) == "HTTP/1.1 503 Service Unavailable"
    assert asyncio.run(check(hang_up)) == "HTTP/1.1 503 Service Unavailable"


def test_log_names_address_path_and_reason_with_escapes(caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        async with start_limited_gateway() as port:
            await send(port, b"GET /\x1b[31m'\xff HTTP/1.1\r\n\r\n")
            await send(port, post(LIST))
            await send(port, post(f"/{'x' * 5000}"))

    with caplog.at_level(logging.WARNING):
        asyncio.run(check())
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0].startswith("refused 127.0.0.1: ")
    assert "GET /\\x1b[31m'\\xff HTTP/1.1" in lines[0]
    assert "'POST /v1/control/list-runs HTTP/1.1': it is not a request of a site" in lines[1]
    assert len(lines[2]) < 400


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_deployment(tmp_path / "d", DeploymentPlan(("one",), port=find_free_port()))


def run_main(folder: Path, **changes: str) -> int:
    gateway = folder / "gateway"
    options = {
        "listen": "127.0.0.1:1",
        "upstream": "127.0.0.1:1",
        "certificate": str(gateway / "server.crt"),
        "key": str(gateway / "server.key"),
        "upstream-ca": str(gateway / "ca.crt"),
        **changes,
    }
    return main([word for name, value in options.items() for word in (f"--{name}", value)])


def test_user_errors_are_one_sentence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gateway = folder / "gateway"
    other = str(folder / "superlink" / "server.key")
    for changes, sentence in (
        ({"listen": "192.0.2.1:1"}, "Cannot listen on 192.0.2.1 port 1"),
        ({"key": str(gateway / "no.key")}, "cannot read its certificate or key"),
        ({"certificate": str(gateway / "no.crt")}, "cannot read its certificate or key"),
        ({"key": other}, "are not a certificate and its key"),
        ({"upstream-ca": str(gateway / "no.crt")}, "Cannot read the certificate"),
        ({"upstream-ca": str(gateway / "start.sh")}, "Cannot read the certificate"),
    ):
        assert run_main(folder, **changes) == 2
        error = capsys.readouterr().err
        assert sentence in error
        assert error.count("\n") == 1
    (gateway / "server.key").chmod(0o640)
    assert run_main(folder) == 2
    assert "Other users can read" in capsys.readouterr().err


def test_start_script_of_the_server_starts_and_ends_the_gateway(folder: Path) -> None:
    programs = folder / "programs"
    programs.mkdir()
    (programs / "flower-superlink").write_text("#!/bin/sh\nexec sleep 100\n")
    (programs / "flower-superlink").chmod(0o755)
    path = {"PATH": f"{programs}:{PATH['PATH']}"}
    text = (folder / "gateway" / "start.sh").read_text()
    port = int(text.partition("--listen 127.0.0.1:")[2].split()[0])
    with processes(folder) as started:
        script = folder / "superlink" / "start.sh"
        superlink = started.start("superlink", [script], path)
        wait_until(lambda: is_listening(port), "the gateway listens")
        second = started.start("second", [script], path)
        assert second.wait(timeout=20) != 0  # its gateway ends it
        assert f"Cannot listen on 127.0.0.1 port {port}" in started.read_log("second")
        with RawClient(port, folder / "flower" / "ca.crt").connect():
            superlink.terminate()
            superlink.wait(timeout=10)
            wait_until(lambda: not started.list_alive(), "the gateway has ended too", 10)
        assert started.read_log("superlink") == ""
        separate = started.start("separate", [script], path | {"CADIS_GATEWAY": "separate"})
        wait_until(lambda: len(started.list_alive()) == 1, "the server has started")
        assert not is_listening(port)
        separate.terminate()


@pytest.mark.parametrize("version", ["1.40.0", "1.42.0", "1.100.1", "1.40.0.dev20260101"])
def test_supported_versions(version: str) -> None:
    check_flower_version(version)


@pytest.mark.parametrize("version", ["1.39.9", "0.50", "2.0.0", "unknown"])
def test_other_versions_are_an_error(version: str) -> None:
    with pytest.raises(CadisError, match=f"Flower {version} is not supported"):
        check_flower_version(version)


@pytest.mark.parametrize(
    "script",
    ["superlink/start.sh", "gateway/start.sh", "sites/one/start.sh", "register.sh", "run.sh"],
)
def test_scripts_check_the_version_of_flower(script: str, folder: Path, tmp_path: Path) -> None:
    information = tmp_path / "old" / "flwr-1.38.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: flwr\nVersion: 1.38.0\n")
    modules = os.pathsep.join([str(information.parent), *filter(None, sys.path)])
    environment = os.environ | PATH | {"PYTHONPATH": modules}
    result = subprocess.run(
        [folder / script], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert result.stderr == (
        "cadis: Flower 1.38.0 is not supported; install another version with: "
        "pip install 'flwr>=1.40,<2'\n"
    )
    assert not list((folder / "runs").iterdir())
