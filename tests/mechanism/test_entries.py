"""Random entries as integers: decided by thresholds, portable, and of the stated law."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from dpindex.mechanism.projections.dense import normal_integers, normal_second_moment
from dpindex.mechanism.projections.sparse import sparse_places
from dpindex.mechanism.public_random import PublicStream


@pytest.mark.parametrize("bits", [4, 12])
def test_normal_entries_are_decided_by_integer_thresholds(bits: int) -> None:
    """The same words through mpmath's normal distribution, digit by digit."""
    words = PublicStream(5, "entries").words(300, np.uint64)
    entries = normal_integers(300, bits, PublicStream(5, "entries"))
    with mpmath.workprec(200):
        for word, entry in zip(words.tolist(), entries.tolist(), strict=True):
            size = abs(entry)
            assert entry == 0 or (entry < 0) == bool(word & 1)
            u = mpmath.mpf(word >> 1) / 2**63
            beyond = mpmath.erfc((size + mpmath.mpf(0.5)) / 2**bits / mpmath.sqrt(2))
            within = mpmath.erfc((size - mpmath.mpf(0.5)) / 2**bits / mpmath.sqrt(2))
            assert beyond - mpmath.mpf(2) ** -62 <= u
            assert size == 0 or u <= within + mpmath.mpf(2) ** -62


def test_normal_entries_have_the_moments_of_a_rounded_normal() -> None:
    """2^20 fixed entries; within 5.5 standard errors of mean 0, E w² and E w⁴."""
    w = normal_integers(1 << 20, 4, PublicStream(1, "moments")).astype(np.float64)
    z = w / math.sqrt(normal_second_moment(4))
    assert abs(z.mean()) < 5.5 / 1024
    assert abs((z**2).mean() - 1) < 5.5 * math.sqrt(2) / 1024
    assert abs((z**4).mean() - 3) < 5.5 * math.sqrt(96) / 1024
    assert np.abs(w).max() <= 9.5 * 16


@pytest.mark.parametrize("s", [1, 2, 7, 300])
def test_sparse_places_are_independent_coins(s: int) -> None:
    """Count, gaps and ends of 2^20 coins of chance 1/s, within 6 standard errors; seed fixed."""
    total = 1 << 20
    places = sparse_places(total, s, PublicStream(4, f"coins/{s}"))
    assert (np.diff(places) > 0).all()
    assert places.min() >= 0
    assert places.max() < total
    chance = 1 / s
    deviation = math.sqrt(total * chance * (1 - chance)) + 1e-9
    assert abs(len(places) - total * chance) <= 6 * deviation
    for gap in (1, 2, 3 * s, 4 * s, 4 * s + 1):
        seen = np.count_nonzero(np.diff(places) > gap)
        wanted = len(places) * (1 - chance) ** gap
        assert abs(seen - wanted) <= 6 * math.sqrt(wanted + 1)
