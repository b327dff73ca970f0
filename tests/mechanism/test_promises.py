"""What is stated of exposure without measuring: proven bounds, or nothing."""

import math

import numpy as np
import pytest
from helpers.common import directions, known_noise, record_spec

import dpindex as dpi
from dpindex.mechanism.promises import exposure_line, max_bits, max_linkage_rate
from dpindex.study.trial import Trial, measure_linkage

pytestmark = known_noise

DIM = 16
BOOK = dpi.Codebook(directions(64, DIM, 3))


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 3.0])
@pytest.mark.parametrize("method", ["record-cap", "record-codebook"])
def test_no_linkage_of_whole_records_beats_the_bound(method, epsilon):
    """Random vectors, and the worst ones: a vector among copies of its opposite.

    The slack is six standard deviations of a share of 250 known vectors, and of 400 worlds.
    """
    book = BOOK if method == "record-codebook" else None
    spec = record_spec(method, DIM, epsilon=epsilon, codebook=book)
    rows = 400
    bound = max_linkage_rate(spec, rows)
    trial = Trial(spec, directions(rows, DIM, 4))
    found = trial.linkage().share
    assert found <= bound + 6 * math.sqrt(bound / 250)
    privatizer = dpi.Privatizer(spec)
    one = directions(1, DIM, 5)
    for n in (2, 10):
        bound = max_linkage_rate(spec, n)
        assert bound is not None
        others = np.repeat(-one, n - 1, axis=0)
        world = np.concatenate([one, others])
        codes = privatizer.privatize(np.tile(world, (rows, 1)))
        shares = []
        for first in range(0, rows * n, n):
            own = codes.take(slice(first, first + 1))
            everyone = codes.take(slice(first, first + n))
            linkage = measure_linkage(privatizer, one, own, everyone, -one)
            shares.append(linkage.share)
        spread = 6 * math.sqrt(bound * (1 - bound) / rows)
        assert np.mean(shares) <= bound + spread


def test_the_bound_of_linkage_is_that_of_changed_places():
    """Of two codes any answer that is right with chance p is wrong with e^−2ε·p at least."""
    spec = record_spec("record-cap", DIM, epsilon=1.0)
    assert max_linkage_rate(spec, 1) == 1.0
    odds = math.exp(2)
    assert max_linkage_rate(spec, 2) == pytest.approx(odds / (odds + 1))
    budgets = [spec.with_epsilon(epsilon) for epsilon in (1.0, 2.0, 4.0)]
    rates = [max_linkage_rate(one, 1000) for one in budgets]
    assert rates == sorted(rates)
    assert "6 %" in exposure_line(spec.with_epsilon(2.0), 1000)
    assert "limits neither" in exposure_line(spec.with_epsilon(16.0), 1000)


def test_no_code_says_more_than_the_best_share_allows():
    """The most bits, by a search over shares that is finer than the one that ships."""
    for epsilon in (1.0, 6.0, 12.0):
        shares = np.exp(-np.linspace(1e-3, 3 * epsilon + 5, 200_001))
        inside = math.exp(epsilon) * shares / (math.expm1(epsilon) * shares + 1)
        outside = 1 - inside
        bits = inside * np.log2(inside / shares)
        bits += outside * np.log2(outside / (1 - shares))
        assert max_bits(epsilon) == pytest.approx(float(bits.max()), rel=1e-5)
