"""The report and its pictures: complete, self-contained, whole or not there at all."""

import math
import os
import sys
from dataclasses import replace
from html.parser import HTMLParser
from importlib import import_module

import pytest
from helpers.common import attribute_spec, interrupt, names_in, refuses

from dpindex.study import Additions, Curve, Run, require_libraries, write_report
from dpindex.study.reconstruction import EXPOSURE
from dpindex.study.report import write_all

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

VOID = {"meta", "img", "br", "link", "input"}
SPECS = [
    attribute_spec("dp-oporp-staircase", 16, k=8, epsilon=1),
    attribute_spec("dp-oporp-staircase", 16, k=8, epsilon=2),
    attribute_spec("dp-oporp", 16, k=8, epsilon=1, delta=1e-6),
    attribute_spec("dp-oporp", 16, k=8, epsilon=2, delta=1e-6),
    attribute_spec("idp-signrp-rr", 16, k=32, epsilon=2),
    attribute_spec("none-oporp", 16, k=8),
]


def made_up(runs_each=3, specs=SPECS):
    """A curve of invented numbers that rise with epsilon."""
    empty = Curve((), ("<base>", 1234), ("queries", 56), 16, 50, "cosine", "f32", None)
    runs = []
    for spec in specs:
        shown = 0.1 * math.log1p(min(spec.budget, 20))
        for number in range(runs_each):
            values = dict.fromkeys(empty.measures, shown + 0.01 * number)
            for mode in ("private", "exact"):
                key = f"{spec.method} {spec.epsilon} {number} {mode}"
                runs.append(Run(spec, mode, spec.seed + number, values, key=key))
    return replace(empty, runs=tuple(runs))


class Page(HTMLParser):
    """Collects text and addresses, and checks that every tag is closed in its turn."""

    def __init__(self, text):
        super().__init__()
        self.open = []
        self.addresses = []
        self.words = ""
        self.silent = False
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        given = [value for name, value in attrs if name in ("src", "href")]
        self.addresses += [value for value in given if value != "data:,"]  # the icon, which is none
        self.silent = tag in ("script", "style")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        self.silent = False

    def handle_data(self, data):
        if not self.silent:
            self.words += data


def words_of(folder, curve):
    """What a reader of its report sees."""
    return Page(write_report(folder, [curve]).read_text("utf-8")).words


@pytest.mark.slow
def test_the_report_is_one_file_with_everything_in_it(tmp_path):
    curve = made_up()
    path = write_report(
        tmp_path,
        [curve],
        additions=Additions(notes=["raw-x: no guarantee <here>"]),
        title="Mine & <yours>",
    )
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert page.addresses == []
    assert "://" not in page.words
    # Both DP methods find as much, at each epsilon, by two measures in two query modes.
    assert text.count('class="best"') == 2 * 2 * 2 * 2
    for words in (
        "Mine & <yours>",
        "1,234 of 16 attributes (<base>)",
        "50 (precision@10, recall@100) nearest by exact cosine",
        "recall@10 of the true 10, private query",
        "precision@10 of the true 50, exact query",
        "share of the ten nearest that are among the first ten answers",
        "raw-x: no guarantee <here>",
        "ε under attribute(beta=1)",
        "0.079 ± 0.010",
        "(not private)",
        "without a denoiser",
        *(point.label for point in curve.points),
    ):
        assert words in page.words
    for spec in SPECS[1:-1]:
        if spec.epsilon == 2:
            assert spec.guarantee.protects() in page.words
            for line in spec.guarantee.does_not_protect(16):
                assert line in page.words
    assert names_in(tmp_path) == [
        "curve.csv",
        "report.html",
        "runs.csv",
    ]


@pytest.mark.slow
def test_the_report_says_what_was_denoised(tmp_path):
    curve = replace(made_up(), denoise="auto")
    first = "dp-oporp-staircase"
    runs = tuple(replace(run, denoised=run.spec.method == first) for run in curve.runs)
    curve = replace(curve, runs=runs)
    assert set(curve.series("exact")) == {
        f"{first}, k = 8, denoised",
        "dp-oporp, k = 8, δ = 1e-06",
        "idp-signrp-rr, k = 32 (iDP)",
        "none-oporp, k = 8",
    }
    words = words_of(tmp_path, curve)
    assert "denoised first (auto)" in words
    assert "without a denoiser" not in words


@pytest.mark.slow
def test_an_exposure_that_nobody_measured_is_left_out(tmp_path):
    curve = made_up()
    unknown = dict.fromkeys(EXPOSURE, math.nan)
    runs = tuple(replace(run, values={**run.values, **unknown}) for run in curve.runs)
    assert "nan" not in words_of(tmp_path, replace(curve, runs=runs))


@pytest.mark.slow
@pytest.mark.parametrize("runs_each, spread", [(1, False), (2, True)])
def test_a_spread_is_stated_of_several_runs_alone(runs_each, spread, tmp_path):
    words = words_of(tmp_path, made_up(runs_each))
    assert ("one standard deviation" in words) == spread
    assert ("Every figure is of one run" in words) == (not spread)


@pytest.mark.slow
def test_without_a_library_the_numbers_are_kept(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    unable = [require_libraries, lambda: write_report(tmp_path, [made_up()])]
    for attempt in unable:
        with refuses("needs jinja2 and pillow; run pip"):
            attempt()
    assert names_in(tmp_path) == ["curve.csv", "runs.csv"]


def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch):
    folder = tmp_path / "new"
    write_all(folder, {"report.html": b"old"})
    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_all(folder, {"report.html": b"new"})
    assert names_in(folder) == ["report.html"]
    assert (folder / "report.html").read_bytes() == b"old"


def test_an_interrupted_page_leaves_no_report(tmp_path, monkeypatch):
    monkeypatch.setattr(import_module("dpindex.study.report"), "page_html", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_report(tmp_path, [made_up()])
    assert names_in(tmp_path) == ["curve.csv", "runs.csv"]


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with refuses("choose another directory"):
        write_report(tmp_path / "file", [made_up()])


@pytest.mark.slow
def test_a_report_of_other_runs_is_not_replaced_in_silence(tmp_path):
    curve = made_up()
    write_report(tmp_path, [curve])
    before = (tmp_path / "report.html").read_bytes()
    for other in (made_up(specs=SPECS[:-1]), made_up(2)):
        with refuses(r"runs of another evaluation.*replace"):
            write_report(tmp_path, [other])
        assert (tmp_path / "report.html").read_bytes() == before
    write_report(tmp_path, [made_up(4)])  # it has all the runs, and more
    write_report(tmp_path, [curve], replace=True)
    (tmp_path / "runs.csv").unlink()
    with refuses("another report"):
        write_report(tmp_path, [curve])
