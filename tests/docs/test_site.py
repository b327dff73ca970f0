"""The documentation site: it builds without a warning, and nothing in it leads nowhere."""

import fcntl
import html.parser
import os
import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from helpers.chromium import SIZES, chromium, needs_chromium
from helpers.common import ROOT, python
from test_reference import PUBLIC

pytestmark = pytest.mark.slow


class _Page(html.parser.HTMLParser):
    """What a page links to, what it loads, and its anchors."""

    def __init__(self, path):
        super().__init__()
        self.links = []
        self.loads = []
        self.anchors = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if "src" in given:
            self.loads.append(given["src"])
        if tag == "link":
            self.loads.append(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Built by the first process that needs it, for which the others wait.

    ``DPINDEX_SITE`` names a folder that several runs of pytest share.
    """
    for library in ("mkdocs", "mkdocstrings_handlers.python"):
        pytest.importorskip(library, reason="the site needs pip install 'dpindex[docs]'")
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    shared = Path(os.environ.get("DPINDEX_SITE", shared))
    folder = shared / "site"
    with open(shared / "site.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            words = ("-m", "mkdocs", "build", "--strict", "--site-dir", folder)
            python(
                *words,
                cwd=ROOT,
                NO_MKDOCS_2_WARNING="1",
            )  # strict: a warning is an error
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return {path: _Page(path) for path in sorted(site.rglob("*.html"))}


def test_links_and_anchors_exist(pages):
    assert len(pages) > 25
    for path, page in pages.items():
        if path.name == "404.html":  # its links are absolute: a server shows it anywhere
            continue
        for link in page.links:
            target, _, anchor = unquote(link).partition("#")
            if re.match(r"\w+:", target):
                continue
            place = (path.parent / target).resolve() if target else path
            place = place / "index.html" if place.is_dir() else place
            assert place.exists(), f"{path.name}: {link}"
            if anchor and place in pages:
                assert anchor in pages[place].anchors, f"{path.name}: {link}"


def test_nothing_is_loaded_from_the_network(site, pages):
    for path, page in pages.items():
        for source in page.loads:
            assert not re.match(r"(\w+:)?//", source), f"{path.name} loads {source}"
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", text), sheet.name


def test_wide_tables_scroll(pages):
    """Each table of a document is in a frame, so that a narrow screen cuts nothing off.

    The theme's own table, a help text for the keyboard, has a class.
    """
    tables = 0
    for path in pages:
        text = path.read_text(encoding="utf-8")
        framed = text.count('<div class="table-responsive" tabindex="0"><table>')
        assert framed == text.count("<table>"), path.name
        tables += framed
    assert tables > 50


@needs_chromium
@pytest.mark.extra
def test_pages_work_on_a_phone_and_from_a_disk(site, pages):
    """No page is wider than the screen; tables and code scroll in frames of their own."""
    width, height = SIZES["phone"]
    with chromium() as browser:
        page = browser.new_page(viewport={"width": width, "height": height})
        page.set_default_timeout(0)  # however busy the machine is
        for path in pages:
            page.goto(path.as_uri())
            wide = page.evaluate(
                """() => [...document.querySelectorAll("main *, .container *")]
                    .filter(part => !part.closest(".table-responsive, pre"))
                    .filter(part => part.getBoundingClientRect().right > innerWidth + 1)
                    .map(part => part.outerHTML.slice(0, 80))"""
            )
            assert wide == [], path.relative_to(site)
            frames = page.evaluate(
                """() => [...document.querySelectorAll(".table-responsive, pre")]
                    .filter(frame => frame.scrollWidth > frame.clientWidth + 1)
                    .map(frame => getComputedStyle(frame).overflowX)"""
            )
            assert set(frames) <= {"auto"}, path.relative_to(site)
        assert "needs a server" in page.get_attribute("#mkdocs-search-query", "placeholder")
        page.evaluate("document.querySelector('[data-bs-theme-value=dark]').click()")
        assert page.get_attribute("html", "data-bs-theme") == "dark"


def test_every_public_name_has_an_entry(site, pages):
    """Of the class or function itself: some share their name with a file."""
    for name, value in PUBLIC.items():
        path = site / "reference" / f"{name.rpartition('.')[0]}.html"
        assert {name, f"{value.__module__}.{value.__qualname__}"} & pages[path].anchors, name
        assert "doc-symbol-module" not in path.read_text(encoding="utf-8"), path.name


def test_no_markup_of_docstrings_is_left(site):
    for path in (site / "reference").glob("*.html"):
        text = re.sub(r"<[^>]+>", "", path.read_text(encoding="utf-8"))
        left = re.search(
            r":(?:class|func|meth|mod):|^-{4,}$|^Returns\n-",
            text,
            re.MULTILINE,
        )
        assert not left, f"{path.name}: {left}"
