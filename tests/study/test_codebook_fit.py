"""Codebooks smaller and larger than the public sample they are made of."""

import numpy as np
import pytest
from helpers.common import normal, refuses, unit
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
    of_small, of_vectors = (HEADS @ some.T for some in (small, HEADS[::6]))
    assert of_small.max(axis=1).mean() > of_vectors.max(axis=1).mean()


def test_a_grown_codebook_begins_with_the_vectors_and_nearest_neighbours():
    grown = fit_codebook(PUBLIC, 100).vectors
    assert np.allclose(grown[:60], HEADS, atol=1e-6)
    cosines = HEADS @ HEADS.T
    np.fill_diagonal(cosines, -1)
    assert len(np.unique(grown.round(5), axis=0)) == 100
    # The nearest neighbours of all vectors come before the second nearest of any.
    nearest = {tuple(sorted((i, int(cosines[i].argmax())))) for i in range(60)}
    first = fit_codebook(PUBLIC, 60 + len(nearest)).vectors[60:]
    made = {tuple(sorted(np.argsort(-np.abs(HEADS @ w))[:2].tolist())) for w in first}
    assert len(made & nearest) > len(nearest) // 2


def test_grown_codewords_keep_the_units_of_the_vectors():
    """Windows and weights are those of codewords as they are stated."""
    book, ends = grown_codebook(PUBLIC, 100)
    assert np.array_equal(book.stated[:60], PUBLIC)
    norms = np.linalg.norm(PUBLIC, axis=1)
    assert np.linalg.norm(book.stated, axis=1) == pytest.approx(norms[ends].mean(axis=0), rel=1e-5)
    between = unit(book.vectors[ends].sum(axis=0))
    assert book.vectors == pytest.approx(between, abs=1e-6)


def test_equal_vectors_make_no_midpoints():
    twice = np.concatenate([PUBLIC[:5], PUBLIC[:5]])
    assert fit_codebook(twice, 5) == Codebook(PUBLIC[:5])
    assert len(np.unique(fit_codebook(twice, 15).vectors.round(4), axis=0)) == 15


def test_what_cannot_be_made_is_refused():
    with refuses("at most 6 codewords can be grown from them, not 7"):
        fit_codebook(np.eye(3) + 0.1, 7)
    with refuses("size of a codebook"):
        fit_codebook(PUBLIC, 1)
    with refuses("row 2 is zero"):
        fit_codebook(np.where(np.arange(60)[:, None] == 2, 0, PUBLIC), 10)
