"""The explorer in a real browser: it follows its sliders, and anyone can use it.

Needs Chromium and the package ``playwright``; the check of accessibility also needs axe-core, whose
``axe.min.js`` ``DPINDEX_AXE`` names. What is missing is reported as skipped.
"""

import json
import math
import os
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from helpers.chromium import SIZES, chromium, needs_chromium
from helpers.common import Seeded
from test_explorer import BASE, EVIL, QUERIES, specs

from dpindex.data import as_source
from dpindex.study import Shown, evaluate, write_report

AXE = os.environ.get("DPINDEX_AXE")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.extra,
    needs_chromium,
]


@pytest.fixture(scope="module")
def browser():
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """One page of each kind: pictures, texts, ids."""
    folder = tmp_path_factory.mktemp("explorer")
    kinds = {
        "picture": {"image_shape": (3, 4)},
        "text": {"texts": [f"{EVIL} {i}" for i in range(80)], "query_texts": [EVIL] * 9},
        "id": {"ids": [f"id-{i}" for i in range(80)]},
    }
    terms = {"runs": 1, "neighbours": 10, "examples": 4}
    base = as_source(BASE)
    queries = as_source(QUERIES)
    seeds = count()
    with pytest.MonkeyPatch.context() as patch:  # known noise: this passes always or never
        patch.setattr("dpindex.mechanism.privatizer.secret_stream", lambda: Seeded(next(seeds)))
        curves = evaluate(base, queries, specs(), **terms)
        return {
            kind: write_report(folder / kind, curves, Shown(base, queries, **how))
            for kind, how in kinds.items()
        }


class Explorer:
    """A page that is open, and every complaint and request it made."""

    def __init__(self, browser, file, size="desktop", scheme="light"):
        width, height = SIZES[size]
        self.context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, offline=True
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(0)  # however busy the machine is
        self.complaints = []
        self.requests = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(file.as_uri())
        self.page.wait_for_selector("#hits .example")
        self.data = json.loads(self.text("#data"))
        opened = self.page.get_by_label("One attribute of a vector")
        assert opened.is_checked() == (self.data["opens"] == 0)
        opened.check()

    def text(self, selector):
        return str(self.page.text_content(selector))

    def label(self, selector):
        return str(self.page.get_attribute(selector, "aria-label"))

    @property
    def epsilon(self):
        return float(self.text("#epsilon-value").removeprefix("ε = "))

    def pixels(self, selector):
        return str(self.page.evaluate(f"document.querySelector('{selector}').toDataURL()"))

    def press(self, selector, key, times=1):
        self.page.focus(selector)
        for _ in range(times):
            self.page.keyboard.press(key)

    def close(self):
        self.context.close()
        assert self.complaints == []
        for url in self.requests:
            assert url.startswith(("file:", "data:"))


@pytest.fixture
def explore(browser, files):
    """Opens the page of a kind, and closes it when the test is over."""
    opened = []

    def open_page(kind, *how):
        opened.append(Explorer(browser, files[kind], *how))
        return opened[-1]

    yield open_page
    for explorer in opened:
        explorer.close()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_overflows_and_axe_finds_nothing(explore, files, size, scheme):
    found = {}
    every = (size, scheme) in (("desktop", "light"), ("phone", "dark"))
    for kind in files if every else ["picture"]:
        explorer = explore(kind, size, scheme)
        assert explorer.page.evaluate("document.documentElement.scrollWidth") == SIZES[size][0]
        explorer.page.click("summary")
        if AXE is not None:
            session = explorer.context.new_cdp_session(explorer.page)  # the page's policy stands
            session.send("Runtime.evaluate", {"expression": Path(AXE).read_text("utf-8")})
            judge = "axe.run().then(r => JSON.stringify(r.violations.map(v => [v.id, v.help])))"
            terms = {"expression": judge, "awaitPromise": True, "returnByValue": True}
            answer = session.send("Runtime.evaluate", terms)
            found[kind] = json.loads(answer["result"]["value"])
    if AXE is None:
        pytest.skip("DPINDEX_AXE names no axe.min.js: the rest of this test passed")
    assert not any(found.values()), found


def test_the_epsilon_slider_moves_everything(explore):
    explorer = explore("picture")
    explorer.page.select_option("#focus", label="dp-oporp-staircase, k = 12")
    seen = {}
    for key in ("Home", "End"):
        explorer.press("#epsilon", key)
        places = ("#odds", "#odds-number", "#hits-said", "#measured", "#now", "#recall-value")
        seen[explorer.epsilon] = [
            *map(explorer.text, places),
            *map(explorer.label, ("#found", "#exposed")),
            *map(explorer.pixels, ("#found canvas", "#exposed canvas")),
            explorer.page.inner_html("#hits"),
            explorer.pixels("#rebuilt li div div:last-child canvas"),
        ]
    assert list(seen) == [1.0, 30.0]
    for low, high in zip(*seen.values(), strict=True):
        assert low != high
    explorer.press("#epsilon", "Home")
    explorer.press("#epsilon", "ArrowRight", 3)
    assert explorer.epsilon == pytest.approx(30 ** (3 / 200), abs=0.06)
    assert "nearest to your ε" in explorer.text("#measured")
    assert "epsilon" in str(explorer.page.get_attribute("#epsilon", "aria-valuetext"))


def test_the_odds_are_said(explore):
    """Those of all positions are in test_page_numbers.py."""
    explorer = explore("id")
    explorer.press("#epsilon", "Home")
    assert "at most 73.2 % sure: odds of 2.72 to 1" in explorer.text("#odds")
    assert "ε = 1 × 12 = 12" in explorer.text("#odds-more")


def test_the_recall_slider_solves_for_epsilon(explore):
    explorer = explore("id")
    explorer.page.select_option("#focus", label="dp-oporp-staircase, k = 12")
    (method,) = [
        m for m in explorer.data["views"][0]["methods"] if m["method"] == "dp-oporp-staircase"
    ]
    low, high = method["within"]["private"][0]
    wanted = math.ceil(100 * (low + high) / 2)
    explorer.press("#recall", "Home")
    explorer.press("#recall", "ArrowRight", wanted)
    share = (wanted / 100 - low) / (high - low)
    assert explorer.epsilon == pytest.approx(30**share, rel=0.05)
    assert explorer.text("#recall-value") == f"{wanted / 10:.1f} of 10"
    explorer.press("#recall", "End")
    if high < 1:
        assert "finds at most" in explorer.text("#recall-said")
    assert explorer.epsilon == 30
    assert "none-oporp" not in explorer.text("#focus")


def test_more_candidates_find_more(explore):
    explorer = explore("id")
    explorer.page.select_option("#focus", label="dp-oporp-staircase, k = 12")
    assert "codes alone decide" in explorer.text("#candidates-said")
    explorer.press("#epsilon", "Home")
    now = "#methods .method:first-child .now"

    def shown():
        return explorer.text(now), explorer.pixels("#found canvas"), explorer.text("#hits")

    before = shown()
    explorer.press("#candidates", "End")
    assert explorer.text("#candidates-value") == "R = 50"
    assert "50 of 80: 63 % of the vectors" in explorer.text("#candidates-said")
    for one, other in zip(before, shown(), strict=True):
        assert one != other
    assert "among 50 candidates" in explorer.text("#table")


def test_adjacency_query_and_methods_are_chosen(explore):
    explorer = explore("text", "phone")
    page = explorer.page
    private = explorer.label("#found")
    page.get_by_label("Only you").check()
    assert "an exact query" in explorer.text("#now")
    assert explorer.label("#found") != private
    page.get_by_label("The whole record").check()
    assert "your vector or of anybody else's" in explorer.text("#odds")
    assert "record-cap" in explorer.label("#found")
    assert "dp-oporp" not in explorer.label("#found")
    before = explorer.pixels("#found canvas")
    page.get_by_role("checkbox", name="record-cap").uncheck()
    assert "record-cap" not in explorer.label("#found")
    assert explorer.pixels("#found canvas") != before
    explorer.press("#epsilon", "End")
    assert explorer.epsilon == 16
    page.get_by_label("One attribute").focus()
    page.keyboard.press("Space")
    assert "dp-oporp-staircase" in explorer.label("#found")
    page.get_by_label("The whole record").check()
    assert not page.get_by_role("checkbox", name="record-cap").is_checked()


def test_texts_are_shown_one_query_at_a_time(explore):
    explorer = explore("text")
    assert explorer.page.locator("#hits .example").count() == 1
    first = explorer.page.inner_text("#hits")
    assert "<img src=x onerror=alert(1)>" in first
    explorer.page.select_option("#query", index=1)
    assert explorer.page.inner_text("#hits") != first
    explorer.page.get_by_label("Only you").check()
    assert explorer.page.locator("#hits .hit").count() == 10
    assert explorer.text("#rebuilt").count("the attacker would pick") == 4


def test_what_has_no_noise_is_named_and_is_no_protection(explore):
    explorer = explore("id")
    assert "none-oporp, k = 12 (dotted: no noise, the limit" in explorer.text("#methods")
    assert explorer.page.locator("#focus option").all_text_contents() == [
        method["label"] for method in explorer.data["views"][0]["methods"][:-1]
    ]


def test_a_click_on_a_chart_moves_epsilon(explore):
    explorer = explore("picture")
    chart = explorer.page.locator("#exposed .u-over")
    box = chart.bounding_box()
    assert box
    chart.click(position={"x": box["width"] / 2, "y": 40})
    assert explorer.epsilon == pytest.approx(np.sqrt(30), rel=0.05)
