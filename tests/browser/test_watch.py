import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser

from browser_support import shown
from cadis.algorithm.methods import CADIS
from fabricated import write_run

STATUS = "document.querySelector('#status').textContent"
QUICK = ["--clients", "8", "--per-round", "4", "--epochs", "1", "--workers", "1"]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "cadis", *arguments]


@contextmanager
def started(*arguments: str, **options: Path) -> Iterator[subprocess.Popen[str]]:
    """A process of ours, gone afterwards."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command(*arguments), stdout=subprocess.PIPE, text=True, env=environment, **options
    ) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


def address_of(watch: subprocess.Popen[str]) -> str:
    assert watch.stdout is not None
    found = re.search(r"http://127\.0\.0\.1:\d+/", watch.stdout.readline())
    assert found is not None
    return found[0]


def wait_for(path: Path, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, f"{path} did not appear"
        time.sleep(0.05)


def test_a_run_is_watched_until_it_ends(browser: Browser, tmp_path: Path) -> None:
    out = tmp_path / "run"
    rounds = ["--rounds", "400", "--test-clients", "0"]
    with started("run", "--out", str(out), *QUICK, *rounds) as run:
        wait_for(out / "history.jsonl")
        with started("watch", str(out)) as watch, shown(browser, address_of(watch)) as page:
            status = page.locator("#status")
            page.wait_for_function(
                "() => /round \\d+ of 400/.test(document.querySelector('#status').textContent)"
            )
            first = status.inner_text()
            page.wait_for_function(
                f"() => document.querySelector('#status').textContent !== {first!r}"
            )
            slider = "Number(document.querySelector('#round').max)"
            last = page.evaluate(slider)
            page.wait_for_function(f"() => {slider} > {last}")  # the matrix goes on, too
            run.send_signal(signal.SIGINT)
            page.wait_for_function(f"() => {STATUS} === 'Ended.'")
            assert watch.wait(timeout=30) == 0  # it ends with the process
            assert watch.stdout is not None
            assert "cadis report" in watch.stdout.read()


def test_a_comparison_is_watched_from_its_first_round(browser: Browser, tmp_path: Path) -> None:
    out = tmp_path / "study"
    study = ["--methods", "fedavg,cadis", "--seeds", "2", "--rounds", "300"]
    with started("compare", "--out", str(out), *study, *QUICK, cwd=tmp_path):
        wait_for(out / "study.json")
        with started("watch", str(out)) as watch, shown(browser, address_of(watch)) as page:
            page.wait_for_function(f"() => / of 1200/.test({STATUS})")
            assert page.locator("h1").inner_text().startswith("digits: 8 clients")


def test_only_this_machine_and_only_the_page_is_served(tmp_path: Path) -> None:
    write_run(tmp_path / "run", CADIS())
    with started("watch", str(tmp_path / "run")) as watch:
        address = address_of(watch)
        with urllib.request.urlopen(address + "data.json") as answer:
            tag = answer.headers["ETag"]
            assert b'"state":"idle"' in answer.read()
        same = urllib.request.Request(address + "data.json", headers={"If-None-Match": tag})
        assert status_of(same) == 304
        assert status_of(urllib.request.Request(address + "config.toml")) == 404
        led_here = urllib.request.Request(address, headers={"Host": "evil.example"})
        assert status_of(led_here) == 403
        port = address.split(":")[2].strip("/")
        listening = Path("/proc/net/tcp").read_text() if sys.platform == "linux" else ""
        everywhere = f"00000000:{int(port):04X}"
        assert everywhere not in listening
        watch.send_signal(signal.SIGINT)
        assert watch.wait(timeout=20) == 0


def status_of(request: urllib.request.Request) -> int:
    try:
        with urllib.request.urlopen(request) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
