"""Cosines of denoised codes against known truths."""

import numpy as np
import pytest
from helpers.common import attribute_spec, codes_of, known_noise, picked, projected, true_cosines
from numpy.random import default_rng

from dpindex import PrivateIndex
from dpindex.decode.base import ExactQueries, PrivateQueries
from dpindex.decode.denoised import DenoisedPosterior

pytestmark = known_noise

DIM = 24


def _rows(count, seed):
    """Non-negative combinations of four parts, in [0, 1]."""
    parts = default_rng(0).random((4, DIM)) ** 4
    weights = default_rng(seed).random((count, 4)) ** 2
    return np.clip(weights @ parts, 0, 1)


def _index(epsilon, rows, **facts):
    index = PrivateIndex(
        attribute_spec("raw-staircase", DIM, epsilon=epsilon, bounds=(0.0, 1.0)),
        **facts,
    )
    index.add(_rows(rows, 1))
    index.fit_denoiser()
    return index


@pytest.mark.slow
@pytest.mark.parametrize(
    "modes, query_epsilon, least",
    [(("exact", "private"), None, 0.9), (("private",), 2.0, 0.3)],
)
@pytest.mark.parametrize("epsilon", [3.0, 6.0])
def test_the_ten_best_are_stated_as_they_are(epsilon, modes, query_epsilon, least):
    index = _index(epsilon, 6000, query_epsilon=query_epsilon)
    base = _rows(6000, 1)
    asked = _rows(200, 2)
    for mode in modes:
        hits = index.search(asked, k=10, query=mode)
        stated = np.isfinite(hits.stderr)
        assert stated.mean() > least
        off = hits.similarity - true_cosines(hits, base, asked)
        assert abs(off[stated].mean()) < 0.05
        within = np.abs(off) <= 1.96 * hits.stderr
        assert within[stated].mean() >= 0.9


def test_found_or_all_the_same_is_stated():
    index = _index(4.0, 600)
    assert index.denoiser is not None
    assert index.calibration is not None
    learned = DenoisedPosterior(index.denoiser, index.calibration)
    spec = index.spec
    asked = _rows(3, 2)
    codes = codes_of(spec, asked)
    for queries in (
        ExactQueries(projected(spec, asked), spec),
        PrivateQueries(codes, spec),
    ):
        everything = learned.estimates(index.codes, queries, 1)
        rows = np.array([[0, 5], [7, 2], [599, 1]])
        found = learned.estimates(
            index.codes.take(rows.ravel()),
            queries,
            len(queries),
        )
        for one, other in zip(found, everything, strict=True):
            np.testing.assert_allclose(one, picked(other, rows), atol=1e-5)
        assert (np.abs(everything[0]) <= 1).all()
        assert (everything[1] > 0).all()


def test_a_vector_of_zeros_is_answered():
    index = _index(4.0, 600)
    hits = index.search(np.zeros((1, DIM)), k=3)
    assert np.isfinite(hits.similarity).all()
    assert np.isfinite(hits.stderr).all()
