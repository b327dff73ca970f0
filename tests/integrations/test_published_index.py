"""A published index answers as the index itself does."""

from contextlib import closing
from itertools import count

import numpy as np
import pytest
from collector_contract import CollectorContract
from helpers.common import (
    Seeded,
    attribute_spec,
    codes_of,
    filled_index,
    known_noise,
    picked,
    record_spec,
    refuses,
    top,
    typed,
    unit,
)
from helpers.documents import section
from helpers.lite import LITE, PLACES, address
from numpy.testing import assert_allclose, assert_array_equal

import dpindex as dpi

pytest.importorskip("pyarrow")
pytestmark = [*LITE, known_noise]

N = 900
NQ = 70
DIM = 32
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 8)) @ RNG.normal(size=(8, DIM))
X = unit(X + 0.3 * RNG.normal(size=(N, DIM)))
Q = unit(X[:NQ] + 0.1 * RNG.normal(size=(NQ, DIM)) / DIM**0.5)
TITLES = [f"it's {i}" for i in range(N)]
PAYLOAD = {
    "year": [None if i % 7 == 0 else 1990 + i % 30 for i in range(N)],
    "title": TITLES,
}
TEXT_IDS = [f'it\'s "{i}"' for i in range(N)]
BOOK = dpi.Codebook(RNG.normal(size=(50, DIM)))
SIGNS = attribute_spec("dp-signrp-rr", DIM, k=124, epsilon=60.0, norm=1.0)
NUMBERS = attribute_spec(
    "dp-oporp-staircase",
    DIM,
    k=32,
    epsilon=20.0,
    norm=1.0,
)
SYMBOLS = record_spec("record-codebook", DIM, epsilon=8.0, codebook=BOOK)
CASES = {
    "signs": (SIGNS, "cosine", False),
    "cosine": (NUMBERS, "cosine", False),
    "denoised_l2": (NUMBERS, "l2", True),
    "denoised_signs": (SIGNS, "cosine", True),
    "symbols": (SYMBOLS, "cosine", False),
}
SQL = ("year >= 2000 and not (year = 2005)", "year is null or title = 'it''s 8'")
MILVUS = ("year >= 2000 and year != 2005", 'year_is_null == true or title == "it\'s 8"')
FILTERS = ("year >= 2000 and not (year == 2005)", 'year is None or title == "it\'s 8"')
"""The same two conditions: of SQL, of Milvus, and of an index in memory."""


@pytest.fixture(scope="module", params=PLACES)
def made(request, tmp_path_factory):
    place = address(tmp_path_factory.mktemp("lite"), request.param)
    pairs = {}
    seeds = count()

    def make(name):
        if name not in pairs:
            spec, metric, denoised = CASES[name]
            index = dpi.PrivateIndex(spec, metric=metric, query_epsilon=12.0)
            ids = TEXT_IDS if name in ("signs", "symbols") else None
            with pytest.MonkeyPatch.context() as patched:  # near ties come always or never
                patched.setattr(
                    "dpindex.mechanism.privatizer.secret_stream", lambda: Seeded(next(seeds))
                )
                index.add(X, ids, payload=PAYLOAD)
            if denoised:
                index.fit_denoiser("linear")
            dpi.publish(index, place, name)
            pairs[name] = index, dpi.open(place, name)
        return pairs[name]

    return make


def _same(here, there, ties):
    """The same hits; with ties, other rows of the same score may stand at a place."""
    assert here.ids.shape == there.ids.shape
    largest = np.abs(here.scores).max()
    assert_allclose(there.scores, here.scores, atol=2e-6 * largest)
    same = here.ids == there.ids
    if not ties:
        gaps = np.abs(np.diff(here.scores, axis=1))
        gaps = gaps.min(axis=1, initial=np.inf)
        swapped = gaps < 4e-6 * largest  # both scores are rounded
        # The last hit may tie with the first that is not among them; scores are compared above.
        tied_with_next = same[:, :-1].all(axis=1)
        assert (same | (swapped | tied_with_next)[:, None]).all()
        for name in ("similarity", "stderr", "unbiased", "unbiased_stderr"):
            expected = getattr(here, name)
            found = getattr(there, name)
            assert_allclose(found[same], expected[same], atol=1e-5)
    rows = np.flatnonzero(same.ravel())
    assert there.payload.schema == here.payload.schema
    expected = here.payload.take(rows)
    assert there.payload.take(rows).equals(expected)


@pytest.mark.parametrize("name", CASES)
def test_hits_are_those_of_the_index(name, made):
    index, served = made(name)
    codes = codes_of(index.query_spec, Q)
    few = index.ids[3:7].tolist()
    own = MILVUS if "Milvus" in type(served.database).__name__ else SQL
    pairs = [(None, None), (few, few), (few, set(few)), *zip(FILTERS, own, strict=True)]
    for filter_, there in pairs:
        rows = slice(None if filter_ is None else 9)
        for asked in (Q[rows], codes.take(rows)):
            here = index.search(asked, 10, filter=filter_)
            # Distances of private queries are whole numbers, so many are equal.
            options = [{"filter": filter_}]
            if isinstance(there, str):
                options.append({"where": there})
            for option in options:
                found = served.search(asked, 10, query="exact", **option)
                _same(here, found, name in ("symbols", "signs"))
    for k, query, filter_, size in (
        (5, "exact", [], 0),
        (10, "private", None, 10),
        (5, "exact", "year > 3000", 0),
        (2 * N, "exact", None, N),
    ):
        found = served.search(Q[:2], k, query, filter=filter_)
        assert found.ids.shape == (2, size)


@pytest.mark.parametrize("name", ["signs", "symbols"])
def test_similarities_of_ties_are_those_of_their_codes(name, made):
    index, served = made(name)
    for asked in (Q, codes_of(index.query_spec, Q)):
        found = served.search(asked, 10, query="exact")
        all_ = index.search(asked, N)
        for query in range(len(found)):
            hits = found[query]
            whole = all_[query]
            row_of = {id_: row for row, id_ in enumerate(whole.ids.tolist())}
            rows = [row_of[id_] for id_ in hits.ids.tolist()]
            for column in ("scores", "similarity", "stderr", "unbiased", "unbiased_stderr"):
                expected = getattr(whole, column)[rows]
                assert_allclose(getattr(hits, column), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["signs", "denoised_l2"])
def test_originals_order_its_candidates(name, made):
    index, served = made(name)
    names = index.ids
    metric = index.metric
    terms = {"rerank": dpi.Originals(X, ids=names), "query": "exact"}
    every = served.search(Q, 5, candidates=N, **terms)
    truth = Q @ X.T
    if metric == "l2":
        differences = Q[:, None] - X
        truth = -np.square(differences).sum(axis=2)
    best = top(truth, 5)
    if metric != "l2":  # all of these vectors have norm 1
        assert_allclose(every.similarity, picked(truth, best))
    assert_array_equal(every.ids, names[best])
    assert every.exact.all()
    assert (every.stderr == 0).all()
    titles = dict(zip(names.tolist(), TITLES, strict=True))
    expected = [titles[id_] for id_ in every.ids.ravel().tolist()]
    assert every.payload["title"].to_pylist() == expected
    since = {"filter": "year >= 2000"}
    found = served.search(Q[:5], 40, query="exact", **since)
    few = served.search(Q[:5], 5, candidates=40, **terms, **since)
    if name != "signs":  # of many equal codes others may be found
        for ids, candidates in zip(few.ids.tolist(), found.ids.tolist(), strict=True):
            assert set(ids) <= set(candidates)
    threshold = -1.0 if metric == "l2" else 0.5
    near = served.range_search(Q[:5], abs(threshold), candidates=N, **terms)
    for row, one in enumerate(near):
        expected = names[truth[row] >= threshold].tolist()
        assert sorted(one.ids.tolist()) == sorted(expected)


def test_rows_of_a_published_index_are_its_ids_or_need_them(made):
    index, served = made("cosine")
    here = index.search(Q[:5], 5, candidates=N, rerank=X)
    there = served.search(Q[:5], 5, candidates=N, rerank=X, query="exact")
    assert_array_equal(there.ids, here.ids)
    _, named = made("signs")
    with refuses("order of the index, which is not known here"):
        named.search(Q[:1], rerank=X, query="exact")
    with refuses("searched by range among candidates only"):
        served.range_search(Q[:1], 0.5, query="exact")
    most = served.database.max_found
    with refuses(f"k and candidates must be at most {most}"):
        served.search(Q[:1], candidates=most + 1, rerank=X, query="exact")


def test_it_is_a_dictionary_too(made):
    for name in ("signs", "cosine", "symbols"):
        index, served = made(name)
        one = index.ids[5].item()
        assert len(served) == N
        assert one in served
        assert "nobody" not in served
        assert (7 in served) == (name == "cosine")
        assert_array_equal(served[one].stored, index[one].stored)
        assert served.payload_columns == index.payload_columns
        assert repr(served).startswith(f"<PublishedIndex: {N} codes")
        with pytest.raises(KeyError):
            served["nobody"]


@pytest.mark.parametrize(
    "filter_, said",
    [
        ("year >", "cannot be read"),
        ("pages > 3", "names 'pages'"),
        ({"year": 2000}, "list of ids"),
        ([[1], [2, 3]], "list of ids"),
        (N * [True], "list of ids"),
        (lambda row: True, "list of ids"),
        (["x"], "whole numbers"),
    ],
)
def test_filters_without_meaning(filter_, said, made):
    _, served = made("cosine")
    with refuses(said):
        served.search(Q[:1], filter=filter_, query="exact")
    with refuses("refuses"):
        served.search(Q[:1], where="year >", query="exact")


def test_k_and_codes_are_checked(made):
    _, served = made("cosine")
    most = served.database.max_found
    for k, said in {0: "at least 1", most + 1: f"at most {most}"}.items():
        with refuses(said):
            served.search(Q[:1], k, query="exact")
    codes = codes_of(SIGNS, X[:2])
    with refuses("another spec"):
        served.search(codes)
    with refuses("another spec"):
        served.add_codes(codes, [901, 902])
    own = codes_of(NUMBERS, X[:2])
    for ids, said in (
        ([1, 901], "are in the index"),
        ([901, 901], "each another"),
        (["a", "b"], "whole numbers"),
        ([901], "each another"),
    ):
        with refuses(said):
            served.add_codes(own, ids)


@pytest.mark.parametrize("place", PLACES)
def test_codes_join_an_index_without_a_payload(place, tmp_path):
    uri = address(tmp_path, place)
    dpi.publish(filled_index(NUMBERS, X), uri)
    more = codes_of(NUMBERS, X[:2])
    with closing(dpi.open(uri)) as served:
        served.add_codes(more, [901, 902])
        served.save()
        assert len(served) == len(X) + 2
        with refuses("published without a payload"):
            served.add_codes(more, [903, 904], payload={"year": [1, 2]})


@pytest.mark.parametrize("place", PLACES)
class TestCollectors(CollectorContract):
    @pytest.fixture
    def opened(self, place, filled, tmp_path):
        uri = address(tmp_path, place)
        dpi.publish(filled, uri)
        served = []

        def again():
            if served:
                served[-1].close()
            served.append(dpi.open(uri))
            return served[-1], served[-1].save

        yield again
        served[-1].close()


@pytest.mark.parametrize("place", PLACES[:1])
def test_the_page_runs_as_it_is_typed(place, tmp_path):
    page = section("databases.md", "## Publish and search")
    said = "".join(typed(page, tmp_path))
    assert "books.db, collection books: 20000 codes" in said
    assert said.count("±") == 16  # the heading, and five hits of each query
