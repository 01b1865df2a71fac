import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser

from browser_support import open_page
from cadis.algorithm.methods import CADIS
from fabricated import write_run
from processes import wait_until

STATUS = "document.querySelector('#status').textContent"
QUICK = ["--clients", "8", "--per-round", "4", "--epochs", "1", "--workers", "1"]


@contextmanager
def start_process(*arguments: str, **options: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a cadis process, and kill it at the end."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "cadis", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment, **options
    ) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


def read_address(watch: subprocess.Popen[str]) -> str:
    assert watch.stdout is not None
    found = re.search(r"http://127\.0\.0\.1:\d+/", watch.stdout.readline())
    assert found is not None
    return found[0]


def test_the_page_follows_a_run_until_it_ends(browser: Browser, tmp_path: Path) -> None:
    out = tmp_path / "run"
    rounds = ["--rounds", "400", "--test-clients", "0"]
    with start_process("run", "--out", str(out), *QUICK, *rounds) as run:
        wait_until((out / "history.jsonl").exists, "a round")
        with (
            start_process("watch", str(out)) as watch,
            open_page(browser, read_address(watch)) as page,
        ):
            page.wait_for_function(f"() => /round \\d+ of 400/.test({STATUS})")
            first = page.locator("#status").inner_text()
            page.wait_for_function(f"() => {STATUS} !== {first!r}")
            slider = "Number(document.querySelector('#round').max)"
            last = page.evaluate(slider)
            page.wait_for_function(f"() => {slider} > {last}")  # the matrix is updated, too
            run.send_signal(signal.SIGINT)
            page.wait_for_function(f"() => {STATUS} === 'Ended.'")
            assert watch.wait(timeout=30) == 0  # it ends with the process
            assert watch.stdout is not None
            assert "cadis report" in watch.stdout.read()


def test_the_page_follows_a_comparison_from_its_first_round(
    browser: Browser, tmp_path: Path
) -> None:
    out = tmp_path / "study"
    study = ["--methods", "fedavg,cadis", "--seeds", "2", "--rounds", "300"]
    with start_process("compare", "--out", str(out), *study, *QUICK, cwd=tmp_path):
        wait_until((out / "study.json").exists, "a study")
        with (
            start_process("watch", str(out)) as watch,
            open_page(browser, read_address(watch)) as page,
        ):
            page.wait_for_function(f"() => / of 1200/.test({STATUS})")
            assert page.locator("h1").inner_text().startswith("digits: 8 clients")


def test_ctrl_c_stops_watching(tmp_path: Path) -> None:
    write_run(tmp_path / "run", CADIS())
    with start_process("watch", str(tmp_path / "run")) as watch:
        read_address(watch)
        watch.send_signal(signal.SIGINT)
        assert watch.wait(timeout=20) == 0
