"""Float estimators: unbiased, with error bars that cover, under every law.

Vectors are drawn anew for every pair from a rotation-invariant law. So, although the projection is
the same for all, its error is independent from pair to pair; on real data one projection's error is
common to all pairs, and the mean over pairs would not go to zero.

False alarms. A mean over N = 4000 pairs is compared with 5.5 standard errors; the biases measured
are below 0.6 of one, so a test of one mean fails by chance less than 1 time in 10⁶. Coverage has a
standard deviation of 0.7 % and must lie within 68.3 ± 5 %.
"""

from dataclasses import replace

import numpy as np
import pytest
from helpers.common import attribute_spec, known_noise, unit
from numpy.random import default_rng

from dpindex.decode.number_moments import (
    NoisyVectorStats,
    cosine,
    inner_product,
    squared_distance,
)
from dpindex.mechanism.noise.moments import NoiseMoments
from dpindex.mechanism.privatizer import Privatizer

pytestmark = known_noise

PAIRS = 4000
NORM = 8.0


def _pairs(dim, rho, seed):
    """Dense vectors of norm 8 with cosines scattered about rho."""
    rng = default_rng(seed)
    u, w = rng.standard_normal((2, PAIRS, dim))
    v = rho * u + np.sqrt(1 - rho**2) * w
    return tuple(NORM * unit(x) for x in (u, v))


def _images(dim, rho, seed):
    """Mostly empty vectors in [0, 1], as images are; a share rho of the pixels is common."""
    rng = default_rng(seed)
    there = rng.random((2, PAIRS, dim)) < 0.2
    u, w = there * rng.random((2, PAIRS, dim))
    common = rng.random((PAIRS, dim)) < rho
    return u, np.where(common, u, w)


def _sides(method, epsilon, dim, k, rho):
    images = method == "raw-square-wave"
    draw = _images if images else _pairs
    u, v = draw(dim, rho, seed=int(100 * rho))
    delta = 1e-6 if method in ("dp-oporp", "raw-gaussian") else 0.0
    bounds = (0.0, 1.0) if images else (-2.0, 2.0)
    spec = attribute_spec(
        method,
        dim,
        k=k,
        epsilon=epsilon,
        delta=delta,
        bounds=bounds,
        seed=1,
    )
    maker = Privatizer(spec)
    x, y = (maker.privatize(part).to_float().astype(np.float64) for part in (u, v))
    exact = maker.project(v).astype(np.float64) * spec.step
    noise = spec.law.moments.in_units(spec.step)
    dot = (u * v).sum(axis=1)
    sizes = np.linalg.norm(u, axis=1) * np.linalg.norm(v, axis=1)
    return {
        "x": NoisyVectorStats.of(x, noise),
        "private": (
            NoisyVectorStats.of(y, noise),
            (x * y).sum(axis=1),
        ),
        "exact": (NoisyVectorStats.of(exact), (x * exact).sum(axis=1)),
        "factor": spec.projection.inner_product_factor,
        "truth": {
            cosine: dot / sizes,
            inner_product: dot,
            squared_distance: ((u - v) ** 2).sum(axis=1),
        },
        "norms": [(u**2).sum(axis=1)],
    }


OPORP = [
    ("dp-oporp-staircase", 3.0, 768, 128),
    ("dp-oporp-staircase", 5.0, 768, 384),
    ("dp-oporp-staircase", 5.0, 768, 512),  # padded: 512 does not divide 768
    ("dp-oporp-laplace", 3.0, 768, 128),
    ("dp-oporp", 10.0, 768, 256),
]
RAW = [
    ("raw-gaussian", 20.0, 512, None),
    ("raw-laplace", 4.0, 512, None),
    ("raw-staircase", 4.0, 512, None),
]
IMAGES = [
    ("raw-square-wave", 3.0, 512, None),
    ("raw-square-wave", 5.0, 512, None),
]
CASES = [(*case, rho) for case in OPORP + RAW for rho in (0.0, 0.6)]
CASES += [(*case, rho) for case in IMAGES for rho in (0.0, 0.3)]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_estimates_are_unbiased_and_their_errors_cover(case):
    """Of all that is estimated from the same pairs, which take a second to make."""
    data = _sides(*case)
    for query in ("private", "exact"):
        y, ip = data[query]
        for estimator, truth in data["truth"].items():
            value, stderr = estimator(ip, data["x"], y, data["factor"])
            _check(value - truth, stderr, f"{estimator.__name__}, {query}")
        if case[0].startswith("dp"):
            _check_declared_norms(data, query)
    if case[4] == 0.0:
        error = data["x"].energy - data["norms"][0]
        allowed = 5.5 * error.std() / np.sqrt(PAIRS)
        assert abs(error.mean()) < allowed


def _check(error, stderr, what):
    spread = error.std() / np.sqrt(len(error))
    standard_errors = error.mean() / spread
    assert abs(standard_errors) < 5.5, f"{what}: bias of {standard_errors:.1f} standard errors"
    covered = np.mean(np.abs(error) <= stderr)
    assert abs(covered - 0.6827) < 0.05, f"{what}: the error bars cover {covered:.3f}"


def _check_declared_norms(data, query):
    """They sharpen the cosine."""
    y, ip = data[query]
    truth = data["truth"][cosine]
    plain, _ = cosine(ip, data["x"], y, data["factor"])
    x = replace(data["x"], norm=NORM)
    y = replace(y, norm=NORM)
    value, stderr = cosine(ip, x, y, data["factor"])
    _check(value - truth, stderr, f"cosine of declared norms, {query}")
    unbiased, _ = inner_product(ip, x, y, data["factor"])
    for other in (plain, unbiased / NORM**2):
        assert (value - truth).std() < 1.02 * (other - truth).std()


@pytest.mark.parametrize("share", [0.002, 0.02])
@pytest.mark.parametrize("k", [32, 256])
def test_inverse_norm_against_integration(share, k):
    """``E[⟨x̃, x⟩·h]`` must be the norm: x̃ = x + n in the direction of x, and χ² elsewhere."""
    rng = default_rng(0)
    along = 1 + np.sqrt(share) * rng.standard_normal(400_000)
    squares = along**2 + share * rng.chisquare(k - 1, along.shape)
    law = NoiseMoments.additive(share, 3 * share**2)
    h = NoisyVectorStats(np.zeros_like(squares), squares, k, law).inverse_norm
    error = abs(np.mean(along * h) - 1)
    # What is left is of third order in the squared relative deviation of the energy.
    third = float(np.std(squares) ** 6)
    chance = np.std(along * h) / np.sqrt(4e5)
    assert error < 1.5 * third + 5 * chance


def test_vectors_of_nothing_give_no_warning_and_wide_errors():
    law = NoiseMoments.additive(1.0, 6.0)
    energies = np.array([0.0, 5.0, 10.0])
    nothing = NoisyVectorStats(np.zeros(3), energies, 10, law)
    products = np.array([0.0, 5.0, -5.0])
    value, stderr = cosine(products, nothing, nothing, 0.1)
    assert np.isfinite(value).all()
    assert (np.abs(value) <= 1).all()
    assert (stderr > 0.3).all()
    silent = NoisyVectorStats(np.zeros(1), np.zeros(1), 10)
    value, stderr = cosine(np.zeros(1), silent, silent, 0.1)
    assert value.tolist() == [0.0]
    assert np.isfinite(stderr).all()
