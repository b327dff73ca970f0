"""A browser that says nothing by itself, for tests of pages; skipped where there is none."""

import shutil

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
