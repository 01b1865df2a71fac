"""Measure the frame rate of a report page: ``python -m benchmarks.page REPORT.html``.

Scrolls through the page and drags the slider of the matrix in a real browser, and counts frames
that take more than twice 16.7 ms. Use the page of a long comparison.
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.table import Table

_FRAMES = """
async (step) => {
  const times = [];
  let before = await new Promise(requestAnimationFrame);
  for (let n = 0; n < 200; n++) {
    (0, window[step])(n);
    const now = await new Promise(requestAnimationFrame);
    times.push(now - before);
    before = now;
  }
  return times.sort((a, b) => a - b);
}
"""
_STEPS = """
() => {
  window.scrolling = (n) => scrollTo(0, (n / 200) * document.body.scrollHeight);
  window.dragging = (n) => {
    const slider = document.querySelector("#round");
    slider.value = Math.round((n / 200) * slider.max);
    slider.dispatchEvent(new Event("input", { bubbles: true }));
  };
}
"""


def main(path: str) -> None:
    """Open the page, measure it, and print a table."""
    table = Table(title=f"{path}: {Path(path).stat().st_size / 1e6:.1f} MB")
    for title in ("action", "median ms per frame", "95%", "frames of more than 33 ms"):
        table.add_column(title, justify="right")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(Path(path).resolve().as_uri())
        page.wait_for_function("() => window.Cadis && Cadis.ready")
        page.evaluate("Cadis.redraw(true)")
        page.evaluate(_STEPS)
        for step in ("scrolling", "dragging"):
            if step == "dragging":
                page.locator("#chart-matrix").scroll_into_view_if_needed()
            times = page.evaluate(_FRAMES, step)
            slow = sum(time > 33.4 for time in times)
            table.add_row(step, f"{times[100]:.1f}", f"{times[190]:.1f}", f"{slow} of 200")
        browser.close()
    Console(width=90).print(table)


if __name__ == "__main__":
    main(sys.argv[1])
