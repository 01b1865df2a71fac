"""Open report pages in a browser and check them for errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page

from cadis.analysis import read_results
from cadis.report import write_report
from cadis.store import RunFolder, StudyFolder


def write_report_page(folder: RunFolder | StudyFolder) -> str:
    """Write the report page of a folder and return its address."""
    return write_report(read_results([folder.path]), folder.path / "report.html").as_uri()


@contextmanager
def open_page(browser: Browser, address: str, width: int = 1280, **context: Any) -> Iterator[Page]:
    """Open a page; fail on console messages, errors, dialogs and requests to other hosts."""
    errors: list[str] = []
    requests: list[str] = []
    browser_context = browser.new_context(viewport={"width": width, "height": 800}, **context)
    page = browser_context.new_page()
    page.on("console", lambda m: errors.append(m.text) if m.type != "log" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", lambda dialog: errors.append(dialog.message))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(address)
    page.wait_for_function("() => window.Cadis && Cadis.ready")
    yield page
    host = address.split("/")[2]
    others = [url for url in requests if url.split("/")[2] != host and not url.startswith("data:")]
    browser_context.close()
    assert errors == []
    assert others == []


def get_pixels(page: Page, chart: str) -> str:
    """Return the picture of a chart as a data URL."""
    page.locator(f"#{chart}").scroll_into_view_if_needed()
    page.wait_for_function(f"() => Cadis.charts['{chart}']")
    picture: str = page.evaluate(f"Cadis.charts['{chart}'].getDataURL()")
    return picture


def get_label(page: Page, chart: str) -> str:
    """Return the description of a chart for screen readers."""
    return page.locator(f"#{chart}").get_attribute("aria-label") or ""


def wait_for_drawing(page: Page) -> None:
    """Wait until pending changes are drawn."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")
