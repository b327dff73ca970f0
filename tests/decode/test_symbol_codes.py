"""Similarities of symbol codes: calibrated on public vectors, right for others of their kind."""

import numpy as np
import pytest
from helpers.common import known_noise, normal, picked, record_spec, top, unit
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

from dpindex import Codebook, Privatizer
from dpindex.decode import decoder_of
from dpindex.decode.base import ExactQueries, PrivateQueries
from dpindex.decode.symbols import pair_curve
from dpindex.mechanism.noise.symbols import CodebookResponse
from dpindex.mechanism.spec import Projector

pytestmark = known_noise

DIM = 32
CENTRES = normal(40, DIM)


def _public(count, seed):
    rng = default_rng(seed)
    chosen = CENTRES[rng.integers(0, len(CENTRES), count)]
    return chosen + 0.6 * rng.normal(size=(count, DIM))


@pytest.mark.parametrize("epsilon", [1.0, 5.0, 10.0])
@pytest.mark.parametrize("private", [False, True])
def test_estimates_are_calibrated(epsilon, private):
    """Of other vectors of the same kind: no bias worth mention, and errors as large as said."""
    book = Codebook(_public(600, 1))
    spec = record_spec("record-codebook", DIM, epsilon=epsilon, codebook=book)
    x = _public(1500, 2)
    q = _public(300, 3)
    privatizer = Privatizer(spec)
    codes = privatizer.privatize(x)
    queries = ExactQueries(Projector(spec).project(q), spec)
    if private:
        queries = PrivateQueries(privatizer.privatize(q), spec)
    estimates, errors = decoder_of(spec, "cosine").estimates(codes, queries, 1)
    true = unit(q) @ unit(x).T
    off = estimates - true
    assert abs(off.mean()) < 0.05
    assert 0.8 < np.std(off / errors) < 1.2
    pairs = codes.take(slice(0, 300))
    found, spread = decoder_of(spec).estimates(pairs, queries, len(queries))
    assert found.shape == (300, 1)
    assert_allclose(found[:, 0], np.diag(estimates[:, :300]))
    assert_allclose(spread[:, 0], np.diag(errors[:, :300]))
    # What looks nearest is nearer than the rest, the more so the more epsilon allows.
    nearest = top(estimates, 5)
    if epsilon > 4:
        assert picked(true, nearest).mean() > true.mean() + 0.2


@pytest.mark.parametrize("size", [2, 3, 10, 17, 700])
def test_codebooks_of_any_size_have_a_curve(size):
    book = Codebook(_public(size, 4))
    for subset in sorted({1, size // 2, size - 1}):
        exact = pair_curve(CodebookResponse(book, subset, int(0.3 * 2**64)))
        for curve in (exact, exact.after(exact)):
            assert np.isfinite(curve.mean).all()
            assert (np.abs(curve.mean) <= 1 + 1e-6).all()
            assert (np.diff(curve.mean) >= 0).all()
            assert (curve.deviation >= 0).all()
            for column in curve(np.array([[-1.0, 0.0, 1.0]])):
                assert column.shape == (1, 3)


def test_the_curve_is_public_and_does_not_change():
    def curve():
        book = Codebook(_public(300, 5))
        return pair_curve(CodebookResponse(book, 3, 1 << 63))

    one = curve()
    pair_curve.cache_clear()
    again = curve()
    assert_array_equal(one.mean, again.mean)
    assert_array_equal(one.deviation, again.deviation)


def test_what_is_reported_by_chance_says_little():
    book = Codebook(_public(600, 1))
    spread = []
    for uniform in (0.99, 0.5, 0.001):
        curve = pair_curve(CodebookResponse(book, 1, int(uniform * 2**64)))
        first, *_, last = curve.mean
        spread.append(float(last - first))
    assert spread == sorted(spread)
    assert spread[0] < 0.3 < spread[2]
