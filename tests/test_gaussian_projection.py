"""Normal and uniform projections as integers: portable, of the stated law, with exact norms."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import sparse

from dpindex.projections import Dense, Gaussian, Uniform
from dpindex.projections.dense import operator_norm
from dpindex.projections.entries import normal_integers, normal_second_moment, sparse_places
from dpindex.randomness import PublicStream, public


def test_known_answers() -> None:
    """A published index relies on these integers: they may never change."""
    assert Gaussian(3, 5, seed=7).apply(np.eye(3)).tolist() == GAUSSIAN
    assert Uniform(3, 5, seed=7).apply(np.eye(3)).tolist() == UNIFORM


GAUSSIAN = [[10, 9, 20, -2, -4], [20, -8, 14, 11, 7], [-9, -35, -11, -25, 23]]
UNIFORM = [[9, -15, -39, -29, -19], [43, -53, 21, -1, -17], [-23, -39, -11, 33, 13]]


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


def test_uniform_entries() -> None:
    """All 64 odd integers, as often as each other: chi-square within 6.5 deviations, seed fixed."""
    entries = Uniform(512, 256, 3).apply(np.eye(512)).ravel()
    values, counts = np.unique(entries, return_counts=True)
    assert values.tolist() == list(range(-63, 64, 2))
    expected = entries.size / 64
    assert ((counts - expected) ** 2 / expected).sum() < 63 + 6.5 * math.sqrt(126)
    assert (values**2).mean() == (64**2 - 1) / 3
    assert Uniform(2, 2, 0).rms == pytest.approx(math.sqrt(1365))


@pytest.mark.parametrize("kind", [Gaussian, Uniform])
@pytest.mark.parametrize(("dim", "k"), [(1, 1), (7, 3), (40, 64)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dense_sparse_and_integers_agree(kind: Any, dim: int, k: int, dtype: Any) -> None:
    projection = kind(dim, k, 2)
    matrix = projection.apply(np.eye(dim)).astype(np.int64)
    rng = np.random.default_rng(0)
    x = rng.integers(-2000, 2001, (20, dim)).astype(dtype)
    wanted = x.astype(np.int64) @ matrix
    np.testing.assert_array_equal(projection.apply(x), wanted)
    np.testing.assert_array_equal(projection.apply_sparse(sparse.csr_matrix(x)), wanted)
    assert projection.apply(x).dtype == dtype


@pytest.mark.parametrize("kind", [Gaussian, Uniform])
def test_sensitivities_by_brute_force(kind: Any) -> None:
    """Move every attribute by one and look: largest L1, L2 and count; largest move of each j."""
    projection = kind(30, 12, 9)
    x = np.random.default_rng(1).integers(-50, 50, (1, 30)).astype(np.float64)
    moved = projection.apply(x + np.eye(30)) - projection.apply(x)
    sizes = projection.sensitivity
    assert sizes.l1 == np.abs(moved).sum(axis=1).max()
    assert sizes.l2_squared == (moved**2).sum(axis=1).max()
    assert sizes.count == np.count_nonzero(moved, axis=1).max()
    np.testing.assert_array_equal(projection.largest, np.abs(moved).max(axis=0))
    assert projection.max_column_l1 == np.abs(moved).sum(axis=0).max()


@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (60, 12), (12, 60), (300, 40)])
def test_operator_norm_is_a_bound_and_a_tight_one(shape: tuple[int, int]) -> None:
    """Against 60-digit arithmetic on the Gram matrix where small, NumPy's SVD else."""
    entries = np.random.default_rng(3).integers(-90, 91, shape)
    bound = operator_norm(entries)
    true = float(np.linalg.norm(entries.astype(np.float64), 2))
    assert true * (1 - 1e-13) <= bound <= true * (1 + 1e-8)
    if max(shape) <= 12:
        with mpmath.workdps(60):
            exact = max(mpmath.eigsy(mpmath.matrix((entries.T @ entries).tolist()))[0])
            assert mpmath.sqrt(exact) <= bound


def test_operator_norm_of_zero_and_of_equal_columns() -> None:
    assert operator_norm(np.zeros((4, 3), np.int8)) >= 1  # as if one entry were 1
    ones = np.ones((9, 4), np.int8)
    assert 6 <= operator_norm(ones) <= 6 * (1 + 1e-8)


@pytest.mark.parametrize("kind", [Gaussian, Uniform])
def test_inner_products_over_seeds(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """E⟨x,y⟩ = ⟨u,v⟩ and Var = (‖u‖²‖v‖² + ⟨u,v⟩² + (κ−3)Σu_i²v_i²)/k with the entries' kurtosis.

    4000 fixed seeds, within 6 standard errors each.
    """
    monkeypatch.setattr(public, "_BLOCK", 1024)
    dim, k = 12, 4
    u, v = np.random.default_rng(0).normal(size=(2, dim))
    products = np.empty(4000)
    for seed in range(len(products)):
        projection = kind(dim, k, seed)
        x, y = projection.apply(np.stack([u, v])) * projection.scale
        products[seed] = x @ y
    kurtosis = {Gaussian: 3.0, Uniform: 1.8}[kind]
    norms = (u @ u) * (v @ v) + (u @ v) ** 2
    variance = (norms + (kurtosis - 3) * float((u**2 * v**2).sum())) / k
    deviations = products - u @ v
    error = 6 / np.sqrt(len(products))
    assert abs(deviations.mean()) <= error * np.sqrt(variance)
    assert abs((deviations**2).mean() - variance) <= error * (deviations**2).std() + 0.001


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


def test_a_dense_map_keeps_its_entries_in_bytes() -> None:
    assert isinstance(Gaussian(64, 32, 0), Dense)
    assert Gaussian(64, 32, 0)._entries.dtype == np.int8
