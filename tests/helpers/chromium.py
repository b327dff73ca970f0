"""A browser that says nothing by itself, for tests of pages; skipped where there is none."""

import shutil
from contextlib import contextmanager

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, _NAMES)), None)
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SIZES = {"desktop": (1280, 900), "phone": (375, 667)}
"""Of windows, in pixels."""

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium in the path")


@contextmanager
def chromium():
    """The browser, driven by playwright."""
    reason = "needs pip install playwright"
    sync_api = pytest.importorskip("playwright.sync_api", reason=reason)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield browser
        browser.close()
