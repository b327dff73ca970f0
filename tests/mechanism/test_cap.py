"""Cap response: exact against the enumeration of all codes, and the same law for every record."""

import hashlib
import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from helpers.specs import folded
from helpers.streams import Scripted, Seeded
from numpy.random import default_rng
from numpy.testing import assert_array_equal
from scipy import sparse

from dpindex import Privatizer, Spec, record
from dpindex.audit.exact_arithmetic import loss_within
from dpindex.mechanism.noise.cap import (
    Cap,
    CapResponse,
    best_cap,
    cap_response,
    rank_weights,
)

WEIGHTS = [
    pytest.param(rank_weights(8), id="eight ranks"),
    pytest.param((5, 4, 3, 3, 2, 1, 1, 0), id="with a zero"),
    pytest.param((1,) * 9, id="all equal"),
    pytest.param((9, 7, 5, 4, 3, 2, 2, 1, 1, 1, 0, 0), id="twelve"),
]
EPSILONS = [0.001, 0.5, 1.0, 4.0, 12.0, 64.0]


def _codes(weights):
    """Every code as agreements in rank order, with the sum of the weights that agree."""
    return [
        (code, sum(w for w, kept in zip(weights, code, strict=True) if kept))
        for code in product((False, True), repeat=len(weights))
    ]


@folded("weights", WEIGHTS)
@folded("epsilon", EPSILONS)
def test_a_cap_is_counted_and_its_ratio_is_within_epsilon(weights, epsilon):
    cap = best_cap(weights, epsilon)
    assert cap.size == sum(total >= cap.threshold for _, total in _codes(weights))
    chances = Fraction(cap.inside, cap.size << 64), Fraction((1 << 64) - cap.inside, cap.others)
    chances = chances[0], chances[1] / (1 << 64)
    assert cap.ratio() == max(chances) / min(chances)
    ratio = cap.ratio()
    assert loss_within((ratio.numerator, ratio.denominator), Fraction(epsilon))
    assert chances[0] * cap.size + chances[1] * cap.others == 1
    if epsilon < 40:  # one unit of 2^-64 more would be too much
        more = Cap(weights, cap.threshold, cap.size, cap.inside + 1).ratio()
        assert not loss_within((more.numerator, more.denominator), Fraction(epsilon))


@folded("weights", WEIGHTS)
@folded("epsilon", EPSILONS)
def test_the_best_cap_is_the_best_of_all(weights, epsilon):
    """Against every threshold and the ideal chance at it, by the sum over all codes."""
    total = sum(weights)
    sums = [agreeing for _, agreeing in _codes(weights)]

    def value(threshold, inside=None):
        within = [2 * s - total for s in sums if s >= threshold]
        beyond = [2 * s - total for s in sums if s < threshold]
        if not within or not beyond:
            return 0.0
        odds = math.exp(epsilon) * len(within)
        p = odds / (odds + len(beyond)) if inside is None else inside
        return p * sum(within) / len(within) + (1 - p) * sum(beyond) / len(beyond)

    cap = best_cap(weights, epsilon)
    best = max(value(threshold) for threshold in range(total + 1))
    assert value(cap.threshold, cap.inside / 2.0**64) == pytest.approx(best, rel=1e-12)


@folded("weights", WEIGHTS)
@folded("epsilon", [0.5, 4.0, 64.0])
def test_tables_hold_the_exact_shares(weights, epsilon):
    """Every draw that can come: 48 bits of the minority's share, counted by enumeration."""
    law = CapResponse(best_cap(weights, epsilon))
    first, second = law.tables
    for i in range(len(weights)):
        rest = [total for _, total in _codes(weights[i + 1 :])]
        for agreeing in {total for _, total in _codes(weights[:i])}:
            need = law.cap.threshold - agreeing
            stay, move = (sum(own + s >= need for s in rest) for own in (0, weights[i]))
            for side, few, many in ((1, stay, move), (0, len(rest) - move, len(rest) - stay)):
                if few + many:
                    share = (few << 48) // (few + many)
                    held = int(first[side, i, agreeing]) << 32 | int(second[side, i, agreeing])
                    assert held == share


@folded("weights", WEIGHTS)
@folded("epsilon", [0.001, 2.0, 12.0])
def test_moments_agree_with_enumeration(weights, epsilon):
    law = CapResponse(best_cap(weights, epsilon))
    cap = law.cap
    p = law.cap.inside / 2.0**64
    kept = np.zeros(len(weights))
    for code, total in _codes(weights):
        chance = p / cap.size if total >= cap.threshold else (1 - p) / cap.others
        kept += chance * np.where(code, 1.0, -1.0)
    np.testing.assert_allclose(law.kept, kept, atol=1e-12)


def _ranks(x):
    return sorted(range(len(x)), key=lambda i: (-abs(x[i]), i))


@folded(
    "row",
    [
        np.zeros(64),
        -np.zeros(64),
        np.ones(64),
        np.full(64, -3e38),
        np.r_[np.zeros(32), np.full(32, 1e-45)],
        default_rng(0).normal(size=64),
        default_rng(1).integers(-2, 3, 64) * 1.0,
        np.where(np.arange(64) % 3, np.nan, 1.0),  # never let in; the law would hold all the same
    ],
)
def test_signs_and_ranks_are_all_that_counts(row):
    """The same words for any record: what is kept, in the order of ranks, does not change."""
    law = cap_response(64, 4.0)
    plain = law.perturb(np.tile(np.arange(64, 0, -1.0), (500, 1)), Seeded(3))
    drawn = law.perturb(np.tile(row.astype(np.float32), (500, 1)), Seeded(3))
    order = np.argsort(~np.isnan(row), kind="stable") if np.isnan(row).any() else _ranks(row)
    assert sorted(order) == list(range(64))
    assert_array_equal(drawn[:, order] == (row[order] >= 0), plain)


def test_one_vector_alone_gets_the_signs_that_it_gets_beside_others():
    """Many draws of one row at a time, and of two rows that read the same words."""
    rng = default_rng(3)
    for k, epsilon in ((64, 1.0), (64, 16.0), (128, 8.0)):
        law = cap_response(k, epsilon)
        for number in range(200):
            row = rng.normal(size=(1, k))
            coin = rng.integers(0, 1 << 64, 1, dtype=np.uint64)
            words = rng.integers(0, 1 << 16, k, dtype=np.uint16)
            if number % 4 == 0:  # beside a table's own share, on either side of it
                words[0] = law.tables[0][int(coin[0] < law.cap.inside), 0, 0] + number % 8 // 2 - 1
            try:
                alone = law.perturb(row, Scripted([coin, words]))
            except IndexError:
                continue  # a draw that ties needs further words
            pair = Scripted([np.repeat(coin, 2), np.repeat(words, 2)])
            assert np.array_equal(np.repeat(alone, 2, axis=0), law.perturb(row.repeat(2, 0), pair))


@pytest.mark.parametrize("size", [5e-324, 1e-310, 1e-30, 1e30, 1.7e308])
def test_only_directions_count(size):
    spec = Spec("record-cap", 24, k=64, epsilon=8.0, adjacency=record())
    x = default_rng(2).integers(-1, 2, (6, 24)).astype(np.float64)
    projector = Privatizer(spec)
    assert_array_equal(projector.project(x * size), projector.project(x))
    assert_array_equal(
        projector.project(sparse.csr_matrix(x * size)), projector.project(sparse.csr_matrix(x))
    )


def test_weights_are_the_same_everywhere():
    """They are part of what a spec means: any change would change codes and estimates."""
    every = {k: rank_weights(k) for k in range(64, 1025, 8)}
    for k, weights in every.items():
        assert len(weights) == k
        assert list(weights) == sorted(weights, reverse=True)
        assert weights[0] == 31
        assert weights[-1] >= 0
    digest = hashlib.sha256(repr(sorted(every.items())).encode()).hexdigest()
    assert digest == "a73df3d278781cf7eeb0a90d9316e081f794d5e2d582a4f6c5cca5bd768c8020"
