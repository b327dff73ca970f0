"""Search with a filter finds what leaving rows out of a full ranking finds, for every backend."""

import numpy as np
import pytest
from helpers.common import attribute_spec, filled_index, known_noise, record_spec, seed_noise, unit

import dpindex as dpi
from dpindex.index import ranking
from dpindex.index.exact_vectors import ExactVectors

N = 800
DIM = 16
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 4)) @ RNG.normal(size=(4, DIM))
X = unit(X)
Q = X[::40]
NUMBERS = attribute_spec("dp-oporp-staircase", DIM, k=8, epsilon=20.0)
SIGNS = attribute_spec(
    "dp-signoporp-geometric",
    DIM,
    k=12,
    epsilon=20.0,
    norm=1.0,
)
SYMBOLS = record_spec(
    "record-codebook",
    DIM,
    epsilon=4.0,
    codebook=dpi.Codebook(X[:64] * 0.9),
)
CASES = {
    "flat": (NUMBERS, {}),
    "ip": (NUMBERS, {"metric": "ip"}),
    "l2": (NUMBERS, {"metric": "l2"}),
    "sq8": (NUMBERS, {"index_type": "ROT6,SQ8"}),
    "pq": (NUMBERS, {"index_type": "OPQ4,PQ4"}),
    "ivf": (NUMBERS, {"index_type": "IVF4,Flat"}),
    "hnsw": (NUMBERS, {"index_type": "HNSW16"}),
    "rabitq": (NUMBERS, {"index_type": "RaBitQ4"}),
    "lists of rabitq": (NUMBERS, {"index_type": "OPQ4,IVF4,RaBitQ4"}),
    "signs": (SIGNS, {}),
    "symbols": (SYMBOLS, {}),
    "denoised": (NUMBERS, {}),
}


_SLOW = ("pq", "hnsw", "ivf", "l2", "ip", "lists of rabitq")


@pytest.fixture(
    scope="module",
    params=[pytest.param(n, marks=[pytest.mark.slow] if n in _SLOW else []) for n in CASES],
)
def index(request):
    with pytest.MonkeyPatch.context() as patch:
        seed_noise(patch)
        return made_of_two_parts(request.param)


def made_of_two_parts(case):
    spec, options = CASES[case]
    made = dpi.PrivateIndex(spec, **options)
    made.add(X[: N // 2], skip_leak_check=True)
    made.search(Q[:1])  # and rows that are added to a structure that is there
    made.add(X[N // 2 :], skip_leak_check=True)
    if case == "denoised":
        made.fit_denoiser("linear")
    return made


@known_noise
@pytest.mark.parametrize("mode", ["exact", "private"])
@pytest.mark.parametrize("share", [0.01, 0.5, 0.95])
def test_as_left_out_of_a_full_ranking(index, mode, share):
    mask = np.random.default_rng(1).random(N) < share
    asked = Q if mode == "exact" else dpi.Privatizer(index.spec).privatize(Q)
    full = index.search(asked, k=N)
    found = index.search(asked, k=7, filter=mask)
    assert mask[found.ids].all()
    if index.index_recall is not None and index.index_type != "OPQ4,PQ4" and share > 0.1:
        return  # it does not visit everything: what it finds is as good as without a filter
    for row in range(len(full)):
        hits = full[row]
        kept = mask[hits.ids]
        first = hits.ids[kept][:7]
        scores = hits.scores[kept][:7]
        # Rows whose scores are equal but for rounding may change places.
        assert np.allclose(found.scores[row], scores, rtol=1e-5, atol=1e-5)
        ties = np.abs(found.scores[row] - scores) < 1e-5
        assert ((found.ids[row] == first) | ties).all()
    assert np.array_equal(found.similarity.shape, found.ids.shape)


def test_neighbours_that_are_all_left_out(index):
    """Far rows alone are kept: a query that finds too few of them is asked again."""
    near = index.search(Q[:1], k=N // 2).ids[0]
    mask = np.ones(N, bool)
    mask[near] = False
    found = index.search(Q[:3], k=5, filter=mask)
    assert mask[found.ids].all()
    assert found.ids.shape == (3, 5)


def test_fewer_rows_than_wanted_and_none(index):
    two = index.search(X[:70], k=10, filter=[3, 4, -1])
    assert set(two.ids.ravel()) == {3, 4}
    none = index.search(X[:70], k=10, filter=[])
    for column in none.columns.values():
        assert column.shape == (70, 0)
    assert len(none.payload or ()) == 0


@pytest.mark.parametrize("index", ["flat"], indirect=True)
def test_subsets_that_do_not_fit_into_memory(index, monkeypatch):
    """Only decoded vectors are searched in parts."""
    mask = np.arange(N) % 10 == 3
    whole = index.search(Q, k=5, filter=mask)
    monkeypatch.setattr(ExactVectors, "max_subset", property(lambda backend: 50))
    parts = index.search(Q, k=5, filter=mask)
    assert np.allclose(whole.scores, parts.scores, rtol=1e-5, atol=1e-6)
    monkeypatch.setattr(ranking, "FEW", 1000)
    found = index.search(Q, k=5, filter=mask)
    assert mask[found.ids].all()


@known_noise
@pytest.mark.parametrize("metric", ["cosine", "l2"])
def test_range_search(metric):
    index = filled_index(
        NUMBERS,
        X,
        metric=metric,
        payload={"n": np.arange(N)},
    )
    mask = np.arange(N) % 3 == 0
    kept = index.range_search(Q[:5], 0.5, filter=mask)
    every = index.range_search(Q[:5], 0.5)
    for one, all_ in zip(kept, every, strict=True):
        expected = all_.ids[mask[all_.ids]]
        assert one.ids.tolist() == expected.tolist()
        assert one.payload["n"].to_pylist() == one.ids.tolist()
    none = index.range_search(Q[:2], 0.5, filter=[])
    assert [len(hits) for hits in none] == [0, 0]
