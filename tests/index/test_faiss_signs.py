"""Packed signs against NumPy: the same rows in the same order, whatever the sizes."""

import numpy as np
import pytest
from helpers.common import folded, picked, top
from numpy.random import default_rng
from numpy.testing import assert_array_equal

from dpindex.index import faiss_signs
from dpindex.index.faiss_signs import FaissSigns, coarse, rank_all, rounding_bound
from dpindex.mechanism.codes import BitCodes

MARK = bytes(16)


def _signs(n, k, seed=0):
    return default_rng(seed).integers(0, 2, (n, k)) * 2 - 1


def _bits(signs):
    store = FaissSigns(signs.shape[1], "cosine", "f32")
    store.add(BitCodes.from_signs(signs > 0, MARK).stored)
    store.finish()
    return store


def _ranking(scores, count):
    """Best first, ties by row number."""
    rows = top(scores, count)
    return picked(scores, rows), rows


def _check_exact(store, signs, queries, count):
    scores, rows = store.search(queries.astype(np.float32), count)
    expected_scores, expected_rows = _ranking(queries @ signs.T, count)
    assert_array_equal(scores, expected_scores)
    assert_array_equal(rows, expected_rows)


@pytest.mark.parametrize("k", [1, 3, 8, 12, 31, 64, 100, 257, 512, 1000, 2048])
@pytest.mark.parametrize("n", [1, 5, 37, 3000])
def test_exact_queries_rank_as_numpy_does(k, n):
    rng = default_rng(k * n)
    signs = _signs(n, k)
    queries = rng.integers(-5000, 5001, (7, k)) * rng.integers(0, 2, (7, 1)).clip(0)
    queries[3] = 0  # every code ties: row numbers decide
    queries[4] = rng.integers(-1, 2, k)  # few different scores: many ties
    for count in {1, min(10, n), n}:
        _check_exact(_bits(signs), signs, queries, count)


def test_crowds_of_equal_codes_come_in_row_order():
    signs = np.repeat(_signs(6, 40), 2000, axis=0)
    signs[[17, 4000, 11_999]] = _signs(3, 40, seed=9)
    queries = default_rng(2).integers(-100, 100, (5, 40))
    store = _bits(signs)
    for count in (1, 12, 2500):
        _check_exact(store, signs, queries, count)


@folded("size", [1e-9, 1.0, 2.0**40])
def test_the_size_of_a_query_does_not_matter(size):
    signs = _signs(4000, 64)
    queries = default_rng(3).integers(-1000, 1000, (4, 64)) * size
    _, rows = _bits(signs).search(queries, 10)
    assert_array_equal(rows, _ranking(queries @ signs.T, 10)[1])


def test_answers_stay_exact_when_no_candidate_can_be_certified(
    monkeypatch,
):
    signs = _signs(5000, 64)
    store = _bits(signs)
    queries = default_rng(4).integers(-1000, 1000, (6, 64))
    monkeypatch.setattr(faiss_signs, "rounding_bound", lambda asked: np.full(len(asked), 1e9))
    calls = _counted(monkeypatch)
    _check_exact(store, signs, queries, 10)
    assert sum(calls) == len(queries)


def _counted(monkeypatch):
    """How many queries were compared with every code, call by call."""
    calls = []

    def counting(codes, queries, count, among):
        if among.start == 0:  # not the rows that were added since the scan was made
            calls.append(len(queries))
        return rank_all(codes, queries, count, among)

    monkeypatch.setattr(faiss_signs, "rank_all", counting)
    return calls


def test_the_certificate_is_seldom_refused(monkeypatch):
    signs = _signs(20_000, 256)
    store = _bits(signs)
    calls = _counted(monkeypatch)
    queries = default_rng(5).normal(0, 1000, (64, 256)).round()
    _check_exact(store, signs, queries, 10)
    assert sum(calls) <= 16


@pytest.mark.parametrize("k", [4, 64, 512, 2048])
def test_the_rounding_bound_holds(k):
    """What the certificate rests on: no coarse score is off by more than the bound."""
    rng = default_rng(k)
    signs = _signs(3000, k)
    store = _bits(signs)
    queries = rng.normal(size=(40, k))
    queries[20:] **= 5
    padded = np.zeros((len(queries), -(-k // 8) * 8))
    padded[:, :k] = queries
    near, rows = coarse(store.scans(), padded, len(signs))
    exact = picked(queries @ signs.T, rows)
    # Codes of the least possible score are dropped, and marked by −1.
    apart = np.abs(near - exact)
    error = np.where(rows >= 0, apart, 0.0).max(axis=1)
    bound = rounding_bound(padded)
    assert (error <= bound).all()
    assert (error > bound / 100).any(), "the bound is so wide that it certifies nothing"


@folded("k", [1, 7, 64, 100, 512])
@folded("n", [1, 50, 5000])
def test_private_queries_are_searched_by_hamming_distance(k, n):
    signs = _signs(n, k)
    asked = _signs(9, k, seed=1)
    count = min(20, n)
    store = _bits(signs)
    scores, rows = store.search(BitCodes.from_signs(asked > 0, MARK).stored, count)
    truth = asked @ signs.T
    assert_array_equal(scores, _ranking(truth, count)[0])
    assert_array_equal(picked(truth, rows), scores)
    for row in rows.tolist():
        assert len(set(row)) == count
