"""The explorer: its numbers are those of the curve, its page is one safe file."""

import base64
import hashlib
import io
import json
import math
import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from helpers.common import fails, refuses, top, unit

from dpindex import attribute, record
from dpindex.data import as_source
from dpindex.study import Additions, Shown, evaluate, spec_grid
from dpindex.study.evaluation import at_norm_1
from dpindex.study.explorer import Sheet, page_data, promise
from dpindex.study.report import page_html

pytest.importorskip("jinja2")
Image = pytest.importorskip("PIL.Image")

DIM = 12
RNG = np.random.default_rng(0)
BASE = RNG.uniform(0.05, 1.0, (80, DIM)).astype(np.float32)
QUERIES = RNG.uniform(0.05, 1.0, (9, DIM)).astype(np.float32)
EVIL = "</script><img src=x onerror=alert(1)><!-- 'quoted' & \u2028 {{ 7 * 7 }}"


def specs():
    hidden = {"adjacency": attribute(1.0), "bounds": (0.0, 1.0)}
    names = ["dp-oporp-staircase", "dp-oporp", "idp-signoporp-rr", "none-oporp"]
    one = spec_grid(DIM, names, [1, 30], [DIM], **hidden)
    names = ["record-cap", "raw-gaussian", "none-oporp"]
    whole = spec_grid(DIM, names, [4, 16], adjacency=record())
    return [*one.specs, *whole.specs]


@pytest.fixture(scope="module")
def curves():
    source = as_source(BASE, "base")
    asked = as_source(QUERIES, "queries")
    return evaluate(source, asked, specs(), examples=4, runs=2, neighbours=10)


def shown_of(**how):
    return Shown(as_source(BASE), as_source(QUERIES), **how)


def data_of(curves, **how):
    return page_data(curves, shown_of(**how))


def tiles(data):
    """The pictures of a sheet, cut out again: shape (count, height, width) or (…, 3)."""
    sheet = data["sheet"]
    height = sheet["height"]
    width = sheet["width"]
    _, _, written = sheet["src"].partition(",")
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(written))))
    cut = []
    for first in range(0, pixels.shape[0], height):
        for column in range(sheet["columns"]):
            left = column * width
            cut.append(pixels[first : first + height, left : left + width])
    return np.stack(cut)


class Page(HTMLParser):
    """The elements of a page, and the text of scripts, styles and data."""

    def __init__(self, text):
        super().__init__()
        self.elements = []
        self.texts = {"script": [], "style": [], "title": [], "li": []}
        self.inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.inside = tag
        if tag in self.texts:
            self.texts[tag].append("")

    def handle_endtag(self, tag):
        self.inside = ""

    def handle_data(self, data):
        if self.inside in self.texts:
            self.texts[self.inside][-1] += data

    def of_kind(self, *tags):
        """The attributes of all elements of these kinds."""
        return [attributes for tag, attributes in self.elements if tag in tags]

    @property
    def data(self):
        """What the page shows, as its first script holds it."""
        return json.loads(self.texts["script"][0])


@pytest.mark.slow
def test_each_adjacency_is_a_view(curves):
    one, whole = data_of(curves)["views"]
    assert one["adjacency"]["kind"] == "attribute"
    assert one["adjacency"]["words"].startswith("one attribute (coordinate) of one vector")
    assert whole["adjacency"]["kind"] == "record"
    assert (
        whole["adjacency"]["words"] == "one whole vector, replaced by any other (any two vectors)"
    )
    assert one["epsilons"] == [1.0, 30.0]
    assert whole["epsilons"] == [4.0, 16.0]
    methods = [method["method"] for method in whole["methods"]]
    assert methods == ["record-cap", "raw-gaussian", "none-oporp"]


@pytest.mark.slow
def test_the_page_opens_on_whole_records_unless_of_pictures(curves):
    """One coordinate of an embedding is nobody's secret."""
    assert data_of(curves)["opens"] == 1
    assert data_of(curves[:1])["opens"] == 0
    assert data_of(curves, image_shape=(3, 4))["opens"] == 0


@pytest.mark.slow
def test_figures_are_those_of_the_curve(curves):
    for curve, shown in zip(curves, data_of(curves)["views"], strict=True):
        methods = {method["label"]: method for method in shown["methods"]}
        for mode in ("private", "exact"):
            for name, line in curve.series(mode).items():
                _check_figures(methods[name], line, mode, curve.candidates)


def _check_figures(method, line, mode, candidates):
    """What the page shows of a method is the mean and spread of what was measured of it."""
    means = [point.mean for point in line]

    def agrees(shown, measured):
        assert shown == pytest.approx(measured, abs=1e-4)

    assert method["epsilons"] == [point.spec.epsilon for point in line]
    for level, within in zip(candidates, method["within"][mode], strict=True):
        agrees(within, [mean[f"recall@10 within {level}"] for mean in means])
    agrees(method["spread"][mode], [point.std["recall@10"] for point in line])
    agrees(method["exposed"], [1 - mean["reconstruction_error"] for mean in means])


@pytest.mark.slow
@pytest.mark.parametrize("share, shown", [(math.nan, None), (0.25, 0.25)])
def test_recognition_is_shown_where_it_was_measured(curves, share, shown):
    curve = replace(curves[0])
    points = curve.points
    linked = [replace(point, mean={**point.mean, "linked": share}) for point in points]
    vars(curve)["points"] = tuple(linked)
    (view,) = data_of([curve])["views"]
    values = {value for method in view["methods"] for value in method["linked"]}
    assert values == {shown}


@pytest.mark.slow
def test_without_noise_everything_is_found_and_rebuilt(curves):
    """A code with a bin for each attribute loses nothing."""
    data = data_of(curves, image_shape=(3, 4))
    assert data["kind"] == "picture"
    one = data["views"][0]
    clear = one["methods"][-1]
    assert clear["method"] == "none-oporp"
    assert clear["epsilons"] == [None]
    asked = QUERIES[[0, 2, 5, 8]]
    nearest = top(asked @ unit(BASE).T, 10)
    expected = [[f"row {row}" for row in line] for line in nearest]
    names = data["items"]["names"]
    for listed in (one["truth"], clear["hits"]["exact"][0][0]):
        assert [[names[item] for item in line] for line in listed] == expected
    (rebuilt,) = clear["rebuilt"]
    assert rebuilt["nearest"] == data["records"]
    assert min(rebuilt["cosine"]) > 0.99
    cut = tiles(data)
    for place, i in enumerate(data["records"]):
        original = cut[data["items"]["tiles"][i]].astype(int)
        again = cut[rebuilt["tile"] + place].astype(int)
        assert np.abs(again - original).max() <= 2
    shown = BASE[[0, 26, 52, 79]]
    share = (QUERIES[2] - shown.min()) / np.ptp(shown)
    grey = np.rint(255 * share).clip(0, 255)
    wanted = grey.reshape(3, 4)
    assert np.array_equal(cut[data["queries"]["tile"] + 1], wanted)


def test_an_answer_that_is_no_neighbour_is_negative(curves):
    data = data_of(curves)
    names = data["items"]["names"]
    for curve, shown in zip(curves, data["views"], strict=True):
        listed = {}
        for method in shown["methods"]:
            for epsilon, hits in zip(method["epsilons"], method["hits"]["private"], strict=True):
                listed[method["method"], epsilon] = np.array(hits).ravel()
        true = np.ravel(shown["truth"])
        for sample in curve.examples.builds:
            coded = listed[sample.spec.method, sample.spec.epsilon]
            items = np.where(coded < 0, -1 - coded, coded)
            found = sample.found["private"].ravel()
            assert [names[item] for item in items] == [f"row {row}" for row in found]
            assert np.isin(items[coded >= 0], true).all()


def test_answers_follow_the_number_of_candidates(curves):
    """Of so many candidates the owner lists the nearest ten: those that are true come first."""
    for curve in curves:
        assert len(curve.candidates) > 1
        for sample in curve.examples.builds:
            for rows, true in zip(sample.found.values(), sample.true.values(), strict=True):
                assert rows.shape == (len(curve.candidates), 4, 10)
                assert true.shape == rows.shape
                counts = true.sum(axis=2)
                assert (np.diff(counts, axis=0) >= 0).all()
                assert (true[1:, :, :-1] >= true[1:, :, 1:]).all()
                assert counts[-1].sum() > counts[0].sum() or counts[0].min() == 10
                for line in rows.reshape(-1, 10).tolist():
                    assert len(set(line)) == 10


def test_vectors_that_are_no_pictures_are_stripes(curves):
    data = data_of(curves, ids=[f"id-{i}" for i in range(80)])
    assert data["kind"] == "id"
    assert data["sheet"]["height"] == 1
    assert data["sheet"]["width"] == DIM
    assert data["items"]["names"][data["records"][1]] == "id-26"
    shown = [tile for tile in data["items"]["tiles"] if tile is not None]
    assert len(shown) == len(data["records"])
    assert data_of(curves, texts=["text"] * 80)["kind"] == "text"


def test_how_far_a_promise_reaches():
    said = {(spec.method, spec.epsilon): promise(spec.guarantee) for spec in specs()}
    assert said["dp-oporp-staircase", 1] == "The odds above hold without exception."
    assert "δ = 1e-06" in said["dp-oporp", 1]
    assert "weaker" in said["idp-signoporp-rr", 1]
    assert "no promise" in said["none-oporp", None]


def test_the_page_is_one_file_that_may_run_nothing_else(curves):
    text = page_html(curves, shown_of(image_shape=(3, 4)), title="Mine & <yours>")
    page = Page(text)
    assert page.texts["title"] == ["Mine & <yours>"]
    assert len(text) < 200_000
    for tag, attributes in page.elements:
        assert attributes.get("src") is None, tag
        assert attributes.get("href") in (None, "data:,"), tag
        for name in attributes:
            assert not name.startswith("on"), tag
            assert name != "style", tag
    (policy,) = (meta["content"] for meta in page.of_kind("meta") if "http-equiv" in meta)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    _, *scripts = page.texts["script"]
    assert page.data["found"] == 10

    def allowed(texts):
        digests = (hashlib.sha256(text.encode()).digest() for text in texts)
        quoted = (base64.b64encode(digest).decode() for digest in digests)
        return " ".join(f"'sha256-{digest}'" for digest in quoted)

    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    assert rules["script-src"] == allowed(scripts)
    assert rules["style-src"] == allowed(page.texts["style"])
    assert "Copyright (c)" in scripts[0]  # of the chart library, as its licence asks
    assert "innerHTML" not in scripts[1]
    labelled = {label.get("for") for label in page.of_kind("label")}
    for attributes in page.of_kind("input", "select"):
        assert attributes["id"] in labelled
    names = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(names) == len(set(names))
    used = re.findall(r'(?:at|say)\("([a-z-]+)"', scripts[1])
    assert set(used) <= set(names)


def test_foreign_texts_stay_texts(curves):
    texts = [f"{EVIL} {i}" for i in range(80)]
    shown = shown_of(texts=texts, query_texts=[EVIL] * 9)
    page = Page(page_html(curves, shown, Additions(notes=[EVIL]), title=EVIL))
    assert len(page.of_kind("script")) == 3
    assert not page.of_kind("img")
    data = page.data
    assert data["queries"]["shown"] == [EVIL] * 4
    assert EVIL in page.texts["li"]
    assert set(data["items"]["names"]) <= set(texts)
    long = shown_of(texts=["x" * 9999] * 80)
    assert long.names(np.array([3])) == ["x" * 200 + "…"]


def test_sheets(monkeypatch):
    sheet = Sheet((2, 3), (0.0, 10.0))
    assert sheet.add(np.arange(12).reshape(2, 6)) == 0
    assert sheet.add(np.full((3, 6), -5.0)) == 2
    cut = tiles({"sheet": sheet.to_dict()})
    assert cut[1].tolist() == [[153, 178, 204], [230, 255, 255]]
    assert not cut[2:].any()
    colours = Sheet((1, 2, 3), (0.0, 255.0))
    colours.add(np.array([[1, 2, 3, 4, 5, 6]]))
    (first, *_) = tiles({"sheet": colours.to_dict()})
    assert first.tolist() == [[[1, 2, 3], [4, 5, 6]]]
    large = Sheet((64, 128), (0.0, 1.0))
    large.add(np.ones((1, 64 * 128)))
    monkeypatch.setattr("dpindex.study.explorer.MAX_PNG_BYTES", 0)
    facts = large.to_dict()
    assert facts["height"] == 16
    assert facts["width"] == 32
    assert facts["src"].startswith("data:image/webp;base64,")


def test_bad_input_is_refused_before_anything_is_measured(
    monkeypatch,
):
    monkeypatch.setattr("dpindex.study.evaluation.Trial", None)

    def refused(sentence, **how):
        with refuses(sentence):
            shown_of(**how)

    refused("an image of 3x5 has 15 values and a vector has 12", image_shape=(3, 5))
    refused("HEIGHTxWIDTH or", image_shape=(12,))
    refused("HEIGHTxWIDTH or", image_shape=(2, 3, 2))
    refused("80 vectors, and there are 2 texts", texts=["a", "b"])
    refused("9 vectors, and there are 1 texts", query_texts=["a"])
    hollow = BASE.copy()
    hollow[7] = 0
    sparse = as_source(scipy.sparse.csr_matrix(hollow))
    for base, sentence in (
        (hollow, "base: row 7 is the zero"),
        (sparse, "array: row 7 is the zero"),
    ):
        with refuses(sentence):
            evaluate(base, QUERIES, specs())


@pytest.mark.slow
def test_a_page_shows_what_there_is(curves):
    """Sliders with two epsilons or more; charts with one; tables alone with baselines alone."""
    methods = ["dp-oporp-staircase", "none-oporp"]
    for epsilons, sliders, scripts in (([1, 9], 3, 3), ([9], 0, 3), ([], 0, 0)):
        grid = spec_grid(DIM, methods, epsilons, [DIM], adjacency=attribute(1.0))
        some = evaluate(BASE, QUERIES, grid.specs, runs=1, neighbours=10)
        page = Page(page_html(some, shown_of()))
        kinds = [attributes.get("type") for attributes in page.of_kind("input")]
        assert kinds == ["range"] * sliders
        assert len(page.of_kind("script")) == scripts
        if scripts:
            assert page.data["kind"] is None


def test_vectors_at_norm_1_are_measured_as_they_are():
    """Directions are made where they are needed, and not of vectors that are directions."""
    directions = unit(BASE)
    source = as_source(directions)
    assert at_norm_1(source) is source
    ((_, rows),) = at_norm_1(as_source(BASE)).chunks()
    np.testing.assert_allclose(rows, directions, rtol=1e-5)
    sparse = as_source(scipy.sparse.csr_matrix(BASE))
    ((_, rows),) = at_norm_1(sparse).chunks()
    np.testing.assert_allclose(rows.toarray(), directions, rtol=1e-5)


def test_sparse_vectors_and_a_projection_too_large_to_invert(
    monkeypatch,
):
    monkeypatch.setattr("dpindex.study.reconstruction.MAX_MEASURED_ENTRIES", 1)
    sparse = scipy.sparse.csr_matrix(BASE)
    few = sparse[:3]
    how = {"runs": 1, "neighbours": 10, "examples": 6}
    curves = evaluate(sparse, few, specs()[-5:], **how)
    shown = Shown(as_source(sparse), as_source(few))
    (view, *_) = Page(page_html(curves, shown)).data["views"]
    method = view["methods"][0]
    for name in ("rebuilt", "exposed"):
        assert method[name] == [None, None]


def kinds_of(data):
    """The adjacencies of its views."""
    return [view["adjacency"]["kind"] for view in data["views"]]


@pytest.mark.slow
def test_command_line(run, prints, tmp_path):
    np.save(tmp_path / "x.npy", BASE)
    np.save(tmp_path / "q.npy", QUERIES)
    ids = [f"id-{i}\n" for i in range(80)]
    texts = [f"{EVIL!a} {i}\n" for i in range(80)]
    (tmp_path / "ids.txt").write_text("".join(ids))
    (tmp_path / "x.txt").write_text("".join(texts))
    few = "--runs 1 --neighbours 10 --methods dp-oporp-staircase,none-oporp"
    terms = f"evaluate x.npy q.npy {few} --beta 1 --epsilons 1,9"
    whole = "--record-methods record-cap,raw-gaussian --record-epsilons 4,16"
    fails(run(f"{terms} --report a --image-shape 3by4"), "such as 28x28")
    fails(run(f"{terms} --report a --ids q.npy"), "ids")
    assert not (tmp_path / "a").exists()

    def page_of(name, options):
        said = prints(f"{terms} --report {name} {options}")
        assert said.splitlines()[-1].startswith(f"Report: {Path(name) / 'report.html'} (")
        return Page((tmp_path / name / "report.html").read_text(encoding="utf-8"))

    title = shlex.quote(EVIL)
    page = page_of("a", f"{whole} --ids ids.txt --title {title} --examples 2")
    assert page.texts["title"] == [EVIL]
    data = page.data
    assert kinds_of(data) == ["attribute", "record"]
    assert data["base"]["name"] == "x.npy"
    assert data["kind"] == "id"
    assert len(data["records"]) == 2
    data = page_of("b", "--base-texts x.txt").data
    assert data["kind"] == "text"
    terms = "evaluate x.npy q.npy --runs 1 --record --epsilons 4,16"
    data = page_of("c", "--methods record-cap").data
    assert kinds_of(data) == ["record"]
