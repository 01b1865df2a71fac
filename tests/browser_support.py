"""A page in a browser, and all that it complains about."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page

from cadis.analysis import read_results
from cadis.report import write_report
from cadis.store import RunFolder, StudyFolder


def report_of(folder: RunFolder | StudyFolder) -> str:
    """The address of a page about what is in a folder."""
    return write_report(read_results([folder.path]), folder.path / "report.html").as_uri()


@contextmanager
def shown(browser: Browser, address: str, width: int = 1280, **context: Any) -> Iterator[Page]:
    """A page that is ready; it must not complain, nor ask any other host."""
    complaints: list[str] = []
    asked: list[str] = []
    opened = browser.new_context(viewport={"width": width, "height": 800}, **context)
    page = opened.new_page()
    page.on("console", lambda m: complaints.append(m.text) if m.type != "log" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    page.wait_for_function("() => window.Cadis && Cadis.ready")
    yield page
    host = address.split("/")[2]
    others = [url for url in asked if url.split("/")[2] != host and not url.startswith("data:")]
    opened.close()
    assert complaints == []
    assert others == []


def pixels(page: Page, chart: str) -> str:
    """What a chart shows."""
    page.locator(f"#{chart}").scroll_into_view_if_needed()
    page.wait_for_function(f"() => Cadis.charts['{chart}']")
    picture: str = page.evaluate(f"Cadis.charts['{chart}'].getDataURL()")
    return picture


def label_of(page: Page, chart: str) -> str:
    """What a chart tells those who do not see it."""
    return page.locator(f"#{chart}").get_attribute("aria-label") or ""


def settled(page: Page) -> None:
    """Wait until what was asked for has been drawn."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")
