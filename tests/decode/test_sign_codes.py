"""Sign estimators: curves against simulation, unbiased cosines, error bars that cover.

Vectors and secret words are seeded. Means over n codes are compared at 5.5 standard errors;
coverage over 4000 pairs has a standard deviation of 0.7 % and must lie within 68.3 ± 5 %.
"""

import math
from functools import cache
from itertools import count

import numpy as np
import pytest
import scipy
from helpers.common import Seeded, attribute_spec, unit
from numpy.testing import assert_allclose

from dpindex import Repeated
from dpindex.decode.signs import SignChannel, agreement_curve, signal_kept
from dpindex.mechanism.grid import GRID_BITS
from dpindex.mechanism.noise.response import geometric_flips, randomized_response
from dpindex.mechanism.papers.signs import IndividualFlips, NoFlips, smooth_flips
from dpindex.mechanism.privatizer import Privatizer

LAWS = {
    "smooth": (smooth_flips(0.7), 2.5),
    "smooth, wide": (smooth_flips(0.05), 30.0),
    "geometric": (geometric_flips(1.0), 1.5),
    "geometric, narrow": (geometric_flips(2.0), 0.3),
    "individual": (IndividualFlips(20.0, 128), 6.0),
}


def _normal_pairs(n, k, rho):
    seed = [n, k, int(1000 * abs(rho))]
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((2, n, k))
    return a, rho * a + math.sqrt(1 - rho**2) * b


def _flipped(law, rms, x, seed=1):
    """Signs as the mechanism itself makes them, of coordinates in standard deviations."""
    grid = np.rint(x * rms * 2**GRID_BITS).astype(np.float32)
    return np.where(law.perturb(grid, Seeded(seed)), 1.0, -1.0)


def _close(sample, expected, slack=0.0):
    error = abs(float(sample.mean()) - expected)
    deviation = sample.std() / math.sqrt(sample.size)
    assert error < 5 * deviation + slack


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_uniform_flips_have_the_closed_form(epsilon):
    """Li & Li 2023, Thm 4.6: (1−2q₁)(1−2q₂)·(2/π)·arcsin ρ, with tanh(ε/2) = 1 − 2q."""
    curve = agreement_curve(
        randomized_response(epsilon),
        1.0,
        randomized_response(2.0),
        1.0,
    )
    dilution = math.tanh(epsilon / 2) * math.tanh(1.0)
    expected = dilution * 2 / math.pi * np.arcsin(np.sin(curve.angles))
    assert_allclose(curve.agreement, expected, atol=1e-12)
    rho = np.linspace(-1, 1, 41)
    many = SignChannel(randomized_response(epsilon), 1.0, 10**9, 1e-9)
    value, _ = many.from_agreement(dilution * 2 / math.pi * np.arcsin(rho), curve)
    assert_allclose(value, rho, atol=1e-5)


def _expected(curve, rho):
    """The agreement of signs of two vectors of that cosine."""
    return float(np.interp(math.asin(rho), curve.angles, curve.agreement))


@pytest.mark.parametrize("name", LAWS)
def test_numeric_curves_against_simulation(name):
    law, rms = LAWS[name]
    # How many flips iDP makes depends on the other coordinates; the curve takes their mean number.
    k, slack = (128, 2e-3) if name == "individual" else (128, 0.0)
    curve = agreement_curve(law, rms, law, rms)
    assert (np.diff(curve.agreement) >= 0).all()
    assert_allclose(curve.agreement, -curve.agreement[::-1], atol=1e-12)
    for rho in (0.0, 0.4, 0.9, 0.999):
        x, y = _normal_pairs(3000, k, rho)
        agreement = _flipped(law, rms, x) * _flipped(law, rms, y, 2)
        _close(agreement.mean(axis=1), _expected(curve, rho), slack + 1e-4)


def test_two_different_laws_and_deviations():
    one = smooth_flips(0.5), 3.0
    other = geometric_flips(1.5), 1.2
    curve = agreement_curve(*one, *other)
    x, y = _normal_pairs(200_000, 2, 0.6)
    agreement = _flipped(*one, x) * _flipped(*other, y, 2)
    _close(agreement, _expected(curve, 0.6), 1e-4)


@pytest.mark.parametrize("name", ["none", "uniform", *LAWS])
@pytest.mark.parametrize("power", [1, 3])
def test_signal_kept_against_simulation(name, power):
    extra = {
        "none": (NoFlips(), 1.0),
        "uniform": (randomized_response(1.0), 1.0),
    }
    law, rms = {**LAWS, **extra}[name]
    x, _ = _normal_pairs(4000, 128, 0.0)
    products = x**power * _flipped(law, rms, x)
    kept = products.mean(axis=1)
    _close(
        kept,
        signal_kept(law, rms, power),
        3e-3 if name == "individual" else 1e-4,
    )
    if name == "none":
        moment = 1 if power == 1 else 2
        exact = math.sqrt(2 / math.pi) * moment
        assert abs(signal_kept(law, rms, power) - exact) < 1e-9


PAIRS = 4000
NORM = 4.0
CASES = {
    "rr": ("dp-signoporp-rr", 512, 128, 4.0),
    "rr, one attribute a bin": ("dp-signoporp-rr", 256, 256, 3.0),
    "smooth": ("dp-signoporp-rr-smooth", 768, 512, 16.0),
    "geometric": ("dp-signoporp-geometric", 768, 128, 3.0),
    "individual": ("idp-signrp-rr", 256, 256, 2.0),
    "none": ("none-signrp", 256, 256),
}
MORE = {"smooth": {"variant": Repeated(4)}}


@cache
def _coded(name, rho):
    """Spec, signs of u, signs of v, exact projection of v, true cosines."""
    terms = {"norm": NORM, "bounds": (-4.0, 4.0), **MORE.get(name, {})}
    spec = attribute_spec(*CASES[name], seed=3, **terms)
    u, v = _normal_pairs(PAIRS, spec.dim, rho)
    u, v = (NORM * unit(part) for part in (u, v))
    seeds = count()
    maker = Privatizer(spec, stream=lambda: Seeded(next(seeds)), allow_unprotected=True)
    rms = NORM * spec.projection.rms / spec.adjacency.size
    codes = [maker.privatize(part, threads=1) for part in (u, v)]
    signs = [one.to_float().astype(np.float64) for one in codes]
    exact = maker.project(v).astype(np.float64)
    truth = (u * v).sum(axis=1) / NORM**2
    return spec, *signs, exact, truth, rms


@pytest.mark.slow
@pytest.mark.parametrize("query", ["private", "exact"])
@pytest.mark.parametrize("rho", [0.0, 0.7])
@pytest.mark.parametrize("name", CASES)
def test_cosines_are_unbiased_and_their_errors_cover(name, rho, query):
    spec, x, t, y, truth, rms = _coded(name, rho)
    factor = spec.projection.inner_product_factor
    signs = SignChannel(spec.law, rms, spec.code_length, factor)
    if query == "private":
        value, stderr = signs.from_agreement((x * t).mean(axis=1), signs.curve(signs))
    else:
        sizes = np.linalg.norm(y, axis=1)
        value, stderr = signs.from_score((x * y).sum(axis=1), sizes)
    error = value - truth
    # 0.05 deviations are left over from the second order, at ρ near 1 above all.
    allowed = 0.05 + 5.5 / math.sqrt(PAIRS)
    assert abs(error.mean()) < allowed * error.std()
    covered = np.mean(np.abs(error) <= stderr)
    assert abs(covered - 0.6827) < 0.05, f"the error bars cover {covered:.3f}"


def test_the_sine_of_an_angle_with_an_error_is_made_longer():
    """E[sin(a + e)] = sin(a)·exp(−Var(e)/2): 2 % of a cosine are missing without the curvature."""
    law = randomized_response(1.0)
    k = 1024
    rho = 0.5
    curve = agreement_curve(law, 1.0, law, 1.0)
    mean = _expected(curve, rho)
    chances = (np.arange(10_000) + 0.5) / 10_000
    deviation = math.sqrt((1 - mean**2) / k)
    errors = deviation * scipy.stats.norm.ppf(chances)
    value, _ = SignChannel(law, 1.0, k, 1 / k).from_agreement(mean + errors, curve)
    assert abs(value.mean() - rho) < 0.002


def test_the_ends_of_the_range_are_calm():
    signs = SignChannel(smooth_flips(1.0), 3.0, 64, 1 / 64)
    for agreement in (-1.0, 0.0, 1.0):
        value, stderr = signs.from_agreement(np.array([agreement]), signs.curve(signs))
        assert -1 <= value[0] <= 1
        assert 0 < stderr[0] <= 2 or agreement
    value, stderr = SignChannel(NoFlips(), 1.0, 64, 1 / 64).from_score(np.zeros(1), np.zeros(1))
    assert value[0] == 0
    assert np.isfinite(stderr[0])
