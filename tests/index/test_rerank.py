"""Reranking: whoever has the original vectors orders the candidates that the codes found."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
from helpers.common import (
    attribute_spec,
    codebook,
    filled_index,
    folded,
    peak_memory,
    picked,
    record_spec,
    refuses,
    top,
)
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import dpindex as dpi
from dpindex.data import rows as row_reader
from dpindex.data.dataset import Dataset, Part, as_dataset, open_dataset
from dpindex.data.source import as_source
from dpindex.decode.base import exact_similarities
from dpindex.index import originals
from dpindex.index.originals import Candidates, Originals

N = 600
NQ = 9
DIM = 24
K = 5
RNG = default_rng(0)
X = RNG.uniform(-1, 1, (N, DIM))
X[17] = 0.0
Q = X[:NQ] + RNG.normal(size=(NQ, DIM)) / 10
Q = Q.clip(-1, 1)
NAMES = [f"n{i}" for i in range(N)]
METRICS = ("cosine", "ip", "l2")

SPECS = {
    "numbers": attribute_spec("dp-oporp-staircase", DIM, k=24, epsilon=8.0),
    "signs": attribute_spec("dp-signrp-rr", DIM, k=64, epsilon=8.0),
    "symbols": record_spec("record-codebook", DIM, epsilon=8.0, codebook=codebook(DIM)),
}
CASES = [*(("numbers", metric) for metric in METRICS), ("signs", "cosine"), ("symbols", "cosine")]


@cache
def _index(name="numbers", metric="cosine"):
    """One index for all tests, none of which changes it."""
    return filled_index(SPECS[name], X, metric=metric)


def _reranked(index, originals):
    """Hits among all, by exact similarities."""
    return index.search(Q, K, candidates=N, rerank=originals)


def _truth(metric, queries=Q, base=X):
    """Exact similarities in one expression each, shape (nq, n)."""
    if metric == "ip":
        return queries @ base.T
    if metric == "l2":
        apart = queries[:, None] - base[None]
        return (apart**2).sum(axis=2)
    lengths = np.linalg.norm(queries, axis=1)
    norms = lengths[:, None] * np.linalg.norm(base, axis=1)
    cosines = np.zeros(norms.shape)
    return np.divide(queries @ base.T, norms, out=cosines, where=norms > 0)


def _check(hits, metric, ids=None, k=K):
    """The hits are the true neighbours, with their true similarities and no error."""
    names = np.arange(N) if ids is None else np.asarray(ids)
    truth = _truth(metric)
    sign = -1.0 if metric == "l2" else 1.0
    order = top(sign * truth, k)
    assert_array_equal(hits.ids, names[order])
    assert_allclose(hits.similarity, picked(truth, order), rtol=1e-12, atol=1e-12)
    assert_array_equal(hits.scores, sign * hits.similarity)
    assert (hits.stderr == 0).all()
    assert hits.exact.all()
    assert hits.exact.dtype == np.bool_


@pytest.mark.parametrize("name, metric", CASES)
@pytest.mark.parametrize("query", ["exact", "private"])
def test_all_candidates_give_the_true_neighbours(name, metric, query):
    hits = _index(name, metric).search(Q, K, query, candidates=N, rerank=X)
    _check(hits, metric)
    assert np.isfinite(hits.unbiased).all()  # of the codes, as without reranking


def test_candidates_are_what_the_codes_find_first():
    index = _index()
    found = index.search(Q, 40)
    hits = index.search(Q, K, candidates=40, rerank=X)
    truth = _truth("cosine")
    for row, candidates in enumerate(found.ids.tolist()):
        nearest = sorted(candidates, key=lambda i: -truth[row, i])[:K]
        assert hits.ids[row].tolist() == nearest
        place = candidates.index(nearest[0])
        assert hits.unbiased[row, 0] == found.unbiased[row, place]


@pytest.fixture
def files(tmp_path):
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "column_order.npy", np.asfortranarray(X))
    np.savez(tmp_path / "x.npz", a=X)
    sparse.save_npz(tmp_path / "sparse.npz", sparse.csr_matrix(X))
    np.savetxt(tmp_path / "x.csv", X, delimiter=",", fmt="%.18e")
    return tmp_path


@pytest.mark.parametrize("file", ["x.npy", "column_order.npy", "x.npz:a", "sparse.npz", "x.csv"])
def test_files_of_vectors(file, files):
    path = str(files / file)
    _check(_reranked(_index(), path), "cosine")


@pytest.mark.parametrize("metric", METRICS)
def test_every_kind_of_originals(metric, files, monkeypatch):
    monkeypatch.setattr(originals, "READ_NUMBERS", 37 * DIM)  # many blocks
    index = _index(metric=metric)
    shuffled = default_rng(1).permutation(N)
    with open_dataset(files / "x.npy", rows_per_part=70) as dataset:
        kinds = [
            X,
            X.tolist(),
            sparse.csr_matrix(X),
            np.load(files / "x.npy", mmap_mode="r"),
            dataset,
            as_dataset(as_source(sparse.csr_matrix(X)), rows_per_part=90),
            as_dataset(as_source(X), rows_per_part=90).with_labels(np.arange(N)),
            dpi.Originals(X[shuffled], ids=shuffled),
            {i: X[i] for i in range(N)},
            lambda ids: X[ids],
            dpi.Answers(lambda query, ids: exact_similarities(query, X[ids], metric)),
        ]
        for rerank in kinds:
            _check(_reranked(index, rerank), metric)


def test_rows_follow_the_order_of_adding_and_ids_name_them():
    index = filled_index(SPECS["numbers"], X, NAMES)
    backwards = dpi.Originals(X[::-1], ids=NAMES[::-1])
    others = [f"other {i}" for i in range(N)]
    more = dpi.Originals(np.vstack([X, X]), ids=NAMES + others)
    for rerank in (X, backwards, more):
        _check(_reranked(index, rerank), "cosine", NAMES)
    index.remove(NAMES[300:])
    with refuses("there are 600 for its 300 rows; name its rows by ids"):
        index.search(Q, K, rerank=X)
    hits = _reranked(index, dpi.Originals(X, ids=NAMES))
    found = set(hits.ids.ravel())
    assert found <= set(NAMES[:300])
    assert hits.exact.all()


def test_what_is_not_answered_comes_last_in_the_order_of_the_codes():
    index = _index()
    found = index.search(Q, 30)
    kept = range(0, N, 3)
    answers = {i: X[i] for i in kept}
    partial = np.full_like(X, np.nan)
    partial[kept] = X[kept]
    truth = _truth("cosine")

    def ask(query, ids):
        own = _truth("cosine", query[None])[0]
        return [own[i] if i in kept else None for i in ids]

    originals = dpi.Originals(X[kept], ids=kept)
    for rerank in (answers, originals, partial, lambda ids: partial[ids], dpi.Answers(ask)):
        hits = index.search(Q, 30, candidates=30, rerank=rerank)
        for row, candidates in enumerate(found.ids.tolist()):
            one = hits[row]
            answered = [i for i in candidates if i in kept]
            answered.sort(key=lambda i: -truth[row, i])
            left = [i for i in candidates if i not in kept]
            assert one.ids.tolist() == answered + left
            known = len(answered)
            assert one.exact[:known].all()
            assert not one.exact[known:].any()
            assert (one.stderr[:known] == 0).all()
            assert (one.stderr[known:] > 0).all()
            assert (one.scores[known:] == -np.inf).all()
            assert (np.diff(one.scores[:known]) <= 0).all()


@folded("wrong", [np.nan, np.inf])
def test_a_vector_with_a_gap_is_refused_and_not_lost(wrong):
    index = _index()
    damaged = X.copy()
    damaged[5, 2] = wrong
    for rerank, place in ((damaged, "row 5"), (lambda ids: damaged[ids], "id 5")):
        with refuses(f"{place} has a number that is not finite; fill it"):
            index.search(X[5:6], 3, candidates=N, rerank=rerank)


def test_ties_keep_the_order_of_the_codes():
    index = _index()
    found = index.search(Q, 50)
    alike = np.ones((N, DIM))
    hits = index.search(Q, 50, candidates=50, rerank=alike)
    assert_array_equal(hits.ids, found.ids)
    assert hits.exact.all()

    factor = 50.0
    spec = replace(SPECS["numbers"], scale=factor)
    for metric in METRICS:
        index = filled_index(spec, factor * X, metric=metric)
        hits = index.search(factor * Q, K, candidates=N, rerank=factor * X)
        _check(hits, metric)


@pytest.mark.slow
@pytest.mark.parametrize("metric", METRICS)
def test_range_search(metric):
    index = _index(metric=metric)
    truth = _truth(metric)
    threshold = float(np.median(truth))
    reaches = truth <= threshold if metric == "l2" else truth >= threshold
    asked = {"Q": Q, "threshold": threshold, "rerank": X}
    every = index.range_search(**asked, candidates=N)
    few = index.range_search(**asked, candidates=20, filter=lambda row: row["id"] > 9)
    first = index.search(Q, 20, filter=np.arange(10, N))
    for row in range(NQ):
        near = set(np.flatnonzero(reaches[row]))
        assert set(every[row].ids) == near
        assert set(few[row].ids) == near & set(first.ids[row])
        assert every[row].exact.all()


def test_filters_denoisers_and_payload():
    pytest.importorskip("pyarrow")
    rng = default_rng(1)
    plane = rng.normal(size=(N, 4)) @ rng.normal(size=(4, DIM))
    low_rank = plane / 10
    years = {"year": np.arange(N)}
    index = filled_index(SPECS["numbers"], low_rank.clip(-1, 1), payload=years)
    index.fit_denoiser("linear")
    late = index.search(Q, K, filter="year >= 200", candidates=60, rerank=low_rank)
    assert (late.ids >= 200).all()
    assert late.payload["year"].to_pylist() == late.ids.ravel().tolist()
    truth = _truth("cosine", Q, low_rank)
    assert_allclose(late.similarity, picked(truth, late.ids))
    none = index.search(Q, K, filter="year > 9999", rerank=low_rank)
    assert none.ids.shape == (NQ, 0)


def test_sparse_queries_stay_sparse():
    """One query is dense at a time, whatever their number: 40 of them would take 1.3 GB."""
    columns = 1 << 22
    places = default_rng(0).choice(columns, (100, 40), replace=False)
    entries = (np.repeat(np.arange(100), 40), places.ravel())
    vectors = sparse.csr_matrix((np.ones(4000), entries), shape=(100, columns))
    queries = vectors[:40]
    every_row = np.tile(np.arange(100), (40, 1))
    candidates = Candidates(every_row, None, 100)
    holder = Originals(vectors, ids=range(100))
    with peak_memory() as peak:
        found = holder.similarities(queries, candidates, "cosine")
    assert peak.bytes < 2e8
    assert_array_equal(found.argmax(axis=1), np.arange(40))


def test_one_query_alone_and_sparse_queries():
    index = _index()
    among = {"candidates": N, "rerank": X}
    alone = index.search(Q[0], K, **among)
    row = index.search(Q[:1], K, **among)
    assert_array_equal(alone.ids, row.ids)
    every = index.search(sparse.csr_matrix(Q), K, **among)
    _check(every, "cosine")


def test_batches_are_bounded_by_candidates(monkeypatch):
    monkeypatch.setattr("dpindex.index.search.BATCH_CANDIDATES", 2 * N)
    sizes = []

    class Counted(dpi.Holder):
        def similarities(self, queries, candidates, metric):
            sizes.append(candidates.ids.shape)
            return np.full(candidates.ids.shape, np.nan)

    _reranked(_index(), Counted())
    assert sizes == [(2, N)] * 4 + [(1, N)]


def test_only_rows_of_candidates_are_read(monkeypatch):
    read = set()

    class Watched(np.ndarray):
        def __getitem__(self, rows):
            read.update(np.atleast_1d(rows).tolist())
            return np.asarray(self)[rows]

    monkeypatch.setattr(row_reader, "in_memory", lambda vectors, _: vectors.view(Watched))
    originals = dpi.Originals(X)
    index = _index()
    index.search(Q, K, candidates=20, rerank=originals)
    found = index.search(Q, 20).ids
    assert read == set(found.ravel().tolist())


def test_only_parts_of_candidates_are_read():
    read = []

    def watched(first):
        read.append(first)
        return as_source(X[first : first + 10])

    parts = [Part("part", first, 10, partial(watched, first)) for first in range(0, N, 10)]
    index = _index()
    originals = dpi.Originals(Dataset("parts", DIM, 4, tuple(parts)))
    hits = index.search(Q[:1], K, candidates=8, rerank=originals)
    assert hits.exact.all()
    found = index.search(Q[:1], 8).ids[0].tolist()
    assert read == sorted({row // 10 * 10 for row in found})


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"candidates": 30}, "say where these are"),
        ({"rerank": X, "candidates": 3}, "candidates must be at least k = 5, not 3"),
        ({"rerank": X, "candidates": 7.5}, "candidates must be a whole number"),
        ({"rerank": X[:, 1:]}, "23 columns where the index has 24"),
        ({"rerank": np.zeros((2, 3, 4))}, "3 dimension"),
        ({"rerank": "missing.npy"}, "missing.npy: "),
        ({"rerank": lambda query, ids: ids}, "wrap a function .* in dpindex.Answers"),
        ({"rerank": lambda ids: X[:3]}, r"shape \(3, 24\) where .* one vector for each id"),
        ({"rerank": lambda ids: ["a"]}, "must be real numbers"),
        ({"rerank": {i: X[i, 1:] for i in range(N)}}, r"of id \d+ to rerank by has shape \(23,\)"),
        ({"rerank": dpi.Answers(lambda query, ids: [1.0])}, r"shape \(1,\) where \(600,\)"),
        ({"rerank": dpi.Answers(lambda query, ids: ids + 2.0)}, r"cosine outside \[-1, 1\]"),
        ({"rerank": dpi.Answers(lambda query, ids: ids / 0.0)}, "infinite"),
        ({"rerank": dpi.Originals(X, ids=NAMES)}, "ids of this index are whole numbers"),
        ({"rerank": X, "Q": dpi.Privatizer(SPECS["numbers"]).privatize(Q)}, "codes cannot"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_wrong_input_is_one_sentence(changes, sentence):
    index = _index()
    asked = {"Q": Q, "k": K, **changes}
    with refuses(sentence) as error:
        index.search(**asked)
    assert "\n" not in str(error.value)


def test_an_infinite_original_is_no_answer():
    originals = X.copy()
    originals[7] = np.inf
    hits = _index().search(Q, k=N, candidates=N, rerank=originals)
    assert set(hits.ids[~hits.exact]) == {7}


def test_ids_beside_must_fit():
    with refuses("the ids of the vectors to rerank by: rows 0 and 2 have the same id"):
        dpi.Originals(X[:3], ids=[1, 2, 1])
    with refuses("there are 2 ids for 3 vectors"):
        dpi.Originals(X[:3], ids=[1, 2])
    with refuses(r"wrap a function|takes ids"):
        dpi.Answers(lambda ids: ids)


def test_squared_distances_of_owners_are_not_negative():
    with refuses("squared distance below 0"):
        _index(metric="l2").search(
            Q,
            K,
            rerank=dpi.Answers(lambda query, ids: ids - 5.0),
        )


def test_a_large_memory_map_is_read_in_stretches(files, monkeypatch):
    monkeypatch.setattr(row_reader, "LARGE_MAP_BYTES", 50 * 8 * DIM)
    released = []
    monkeypatch.setattr(row_reader, "release_pages", released.append)
    _check(_reranked(_index(), files / "x.npy"), "cosine")
    assert len(released) == N // 50
    private = np.load(files / "x.npy", mmap_mode="c")  # its pages may hold changes
    _check(_reranked(_index(), private), "cosine")
    assert len(released) == N // 50


@pytest.mark.parametrize("arranged", [np.asfortranarray, sparse.csr_matrix])
def test_few_rows_are_read_without_a_copy_of_all(arranged):
    """Chunks of rows would copy what lies column by column, and what is sparse."""
    shared = dpi.Originals(arranged(RNG.normal(size=(50_000, DIM))))
    rows = np.arange(10)[None]
    candidates = Candidates(rows, rows, 50_000)
    with peak_memory() as peak:
        shared.similarities(Q[:1], candidates, "ip")
    assert peak.bytes < 50_000 * DIM


def test_searches_in_several_threads_share_vectors():
    """Each reads for itself: of one pass that all share some would get the rows of others."""
    vectors = np.asfortranarray(RNG.normal(size=(20_000, DIM)))
    shared = dpi.Originals(vectors)
    rows = np.arange(0, len(vectors), 50)[None]
    candidates = Candidates(rows, rows, len(vectors))

    def similarities(_):
        return shared.similarities(vectors[:1], candidates, "ip")

    expected = similarities(0)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(similarities, range(200)):
            assert_array_equal(found, expected)


def _clipping(vectors, metric, **terms):
    """An index of vectors that leave its bounds."""
    spec = attribute_spec("raw-staircase", DIM, clip=True, **terms)
    with pytest.warns(dpi.QualityWarning, match="outside the public bounds"):
        return filled_index(spec, vectors, metric=metric)


@pytest.mark.parametrize("metric", ["cosine", "l2"])
@pytest.mark.parametrize("sparsely", [False, True])
def test_vectors_that_a_build_clips_are_compared_clipped(metric, sparsely):
    """A plan counts the neighbours of what lies within the bounds, and so does who reranks."""
    far = 80.0 * X
    asked = 80.0 * Q
    index = _clipping(far, metric, epsilon=40.0)
    originals = sparse.csr_matrix(far) if sparsely else far
    hits = index.search(asked, K, candidates=N, rerank=originals)
    truth = _truth(metric, asked.clip(-1, 1), far.clip(-1, 1))
    expected = np.sort(truth, axis=1)
    if metric == "cosine":
        expected = expected[:, ::-1]
    assert_allclose(hits.similarity, expected[:, :K], rtol=1e-9, atol=1e-9)


def test_bounds_within_a_change_are_for_the_noise_alone():
    """A plan narrows bounds for embeddings, whose neighbours are those of the whole vectors."""
    index = _clipping(X, "cosine", epsilon=8.0, bounds=(-0.2, 0.2))
    _check(_reranked(index, X), "cosine")


def test_keys_of_another_kind_than_the_ids_are_refused():
    """Keys that were JSON are strings: none is an id, and no hit would be exact."""
    vectors = {str(row): vector for row, vector in enumerate(X)}
    with refuses("those of the vectors to rerank by must be whole numbers too"):
        _index().search(Q, K, rerank=vectors)
    none = _index().search(Q, K, rerank={})
    assert not none.exact.any()


def test_a_set_names_no_rows():
    index = dpi.PrivateIndex(SPECS["numbers"])
    with refuses("ids in a set have no order"):
        index.add(X, ids=set(NAMES))
    with refuses("ids in a set have no order"):
        Originals(X, ids=frozenset(NAMES))
    index.add(X, ids=dict.fromkeys(NAMES).keys())
    assert list(index) == NAMES
