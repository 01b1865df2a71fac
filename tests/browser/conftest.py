"""Browser of the system; nothing is downloaded."""

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start Chromium, or the browser in $CADIS_BROWSER."""
    named = os.environ.get("CADIS_BROWSER")
    path = named or next((candidate for name in _NAMES if (candidate := shutil.which(name))), None)
    if path is None:
        pytest.skip("No browser path: install chromium, or set CADIS_BROWSER to the path of one.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()
