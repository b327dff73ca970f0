"""Codebooks smaller and larger than the public sample they are made of."""

import numpy as np
import pytest
from helpers.common import normal, refuses, top, unit
from scipy import sparse

from dpindex import Codebook, fit_codebook
from dpindex.mechanism.codebooks import grown_codebook

PUBLIC = normal(60, 8).astype(np.float32)
HEADS = unit(PUBLIC)


def test_as_many_codewords_as_vectors_are_the_vectors():
    assert fit_codebook(PUBLIC, 60) == Codebook(PUBLIC)
    assert fit_codebook(sparse.csr_matrix(PUBLIC), 60) == Codebook(PUBLIC)


def test_fewer_codewords_are_nearer_to_the_vectors_than_vectors_are():
    small = fit_codebook(PUBLIC, 10).vectors
    assert small.shape == (10, 8)

    def nearness(some):
        return (HEADS @ some.T).max(axis=1).mean()

    assert nearness(small) > nearness(HEADS[::6])


def different(rows, digits):
    """How many rows differ when so many digits are kept."""
    return len(np.unique(rows.round(digits), axis=0))


def test_a_grown_codebook_begins_with_the_vectors_and_nearest_neighbours():
    grown = fit_codebook(PUBLIC, 100).vectors
    assert np.allclose(grown[:60], HEADS, atol=1e-6)
    assert different(grown, 5) == 100
    # The nearest neighbours of all vectors come before the second nearest of any.
    cosines = HEADS @ HEADS.T
    np.fill_diagonal(cosines, -1)
    nearest = {frozenset(pair) for pair in enumerate(cosines.argmax(axis=1).tolist())}
    first = fit_codebook(PUBLIC, 60 + len(nearest)).vectors[60:]
    ends = top(np.abs(first @ HEADS.T), 2)
    made = {frozenset(pair) for pair in ends.tolist()}
    assert len(made & nearest) > len(nearest) // 2


def test_grown_codewords_keep_the_units_of_the_vectors():
    """Windows and weights are those of codewords as they are stated."""
    book, ends = grown_codebook(PUBLIC, 100)
    assert np.array_equal(book.stated[:60], PUBLIC)
    norms = np.linalg.norm(PUBLIC, axis=1)
    expected = norms[ends].mean(axis=0)
    assert np.linalg.norm(book.stated, axis=1) == pytest.approx(expected, rel=1e-5)
    between = unit(book.vectors[ends].sum(axis=0))
    assert book.vectors == pytest.approx(between, abs=1e-6)


def test_equal_vectors_make_no_midpoints():
    twice = np.tile(PUBLIC[:5], (2, 1))
    assert fit_codebook(twice, 5) == Codebook(PUBLIC[:5])
    assert different(fit_codebook(twice, 15).vectors, 4) == 15


def test_what_cannot_be_made_is_refused():
    with refuses("at most 6 codewords can be grown from them, not 7"):
        fit_codebook(np.eye(3) + 0.1, 7)
    with refuses("size of a codebook"):
        fit_codebook(PUBLIC, 1)
    with refuses("row 2 is zero"):
        hollow = PUBLIC.copy()
        hollow[2] = 0
        fit_codebook(hollow, 10)
