"""Draw the picture of the report page in the documentation: the section about clusters.

Run ``cadis compare --methods fedavg,cadis --seeds 2 --rounds 40 --out runs/report``, then
``python -m website.report_image runs/report/report.html docs/images/report.png``.
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

_STYLE = ".bar { display: none; } html { scroll-padding: 10px; } #chart-flow { height: 380px; }"


def draw_report(page_path: Path, path: Path) -> None:
    """Open a report page in Chromium, and save a picture of its section about clusters."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1060, "height": 1580}, color_scheme="light")
        page.goto(page_path.resolve().as_uri())
        page.wait_for_function("() => window.Cadis && Cadis.ready")
        page.add_style_tag(content=_STYLE)
        page.evaluate("document.getElementById('clusters').scrollIntoView()")
        page.wait_for_timeout(1000)  # charts are drawn when they are visible
        page.screenshot(path=path)
        browser.close()


if __name__ == "__main__":
    draw_report(Path(sys.argv[1]), Path(sys.argv[2]))
