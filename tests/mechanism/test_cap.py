"""Cap response: exact against the enumeration of all codes, and the same law for every record."""

import hashlib
import itertools
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from helpers.common import folded, record_spec
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from dpindex import Privatizer
from dpindex.audit.exact_arithmetic import loss_within
from dpindex.mechanism.noise.cap import (
    Cap,
    CapResponse,
    best_cap,
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
    codes = product((False, True), repeat=len(weights))
    return [(code, sum(itertools.compress(weights, code))) for code in codes]


@folded("weights", WEIGHTS)
@folded("epsilon", EPSILONS)
def test_a_cap_is_counted_and_its_ratio_is_within_epsilon(weights, epsilon):
    cap = best_cap(weights, epsilon)
    reaching = [code for code, total in _codes(weights) if total >= cap.threshold]
    assert cap.size == len(reaching)
    inside = Fraction(cap.inside, 1 << 64)
    one = inside / cap.size
    other = (1 - inside) / cap.others
    assert cap.ratio() == max(one, other) / min(one, other)
    assert loss_within(cap.ratio().as_integer_ratio(), Fraction(epsilon))
    if epsilon < 40:  # one unit of 2^-64 more would be too much
        more = Cap(weights, cap.threshold, cap.size, cap.inside + 1).ratio()
        assert not loss_within(more.as_integer_ratio(), Fraction(epsilon))


@folded("weights", WEIGHTS)
@folded("epsilon", [0.001, 2.0, 12.0])
def test_moments_agree_with_enumeration(weights, epsilon):
    law = CapResponse(best_cap(weights, epsilon))
    cap = law.cap
    p = law.cap.inside / 2.0**64
    kept = np.zeros(len(weights))
    for code, total in _codes(weights):
        inside = total >= cap.threshold
        chance = p / cap.size if inside else (1 - p) / cap.others
        kept += chance * np.where(code, 1.0, -1.0)
    assert_allclose(law.kept, kept, atol=1e-12)


@folded("size", [5e-324, 1e-310, 1e-30, 1e30, 1.7e308])
def test_only_directions_count(size):
    spec = record_spec("record-cap", 24, k=64, epsilon=8.0)
    x = default_rng(2).integers(-1, 2, (6, 24)).astype(np.float64)
    projector = Privatizer(spec)
    for form in (np.asarray, sparse.csr_matrix):
        assert_array_equal(projector.project(form(x * size)), projector.project(form(x)))


def test_weights_are_the_same_everywhere():
    """They are part of what a spec means: any change would change codes and estimates."""
    every = sorted((k, rank_weights(k)) for k in range(64, 1025, 8))
    for k, weights in every:
        assert len(weights) == k
        assert list(weights) == sorted(weights, reverse=True)
        assert weights[0] == 31
        assert weights[-1] >= 0
    digest = hashlib.sha256(repr(every).encode()).hexdigest()
    assert digest == "a73df3d278781cf7eeb0a90d9316e081f794d5e2d582a4f6c5cca5bd768c8020"
