"""Gaussian noise: the hockey-stick divergence of the shipped integers, and sigma by other means."""

import math

import mpmath
import numpy as np
import pytest
from helpers.streams import Seeded
from independent.rigorous import exp_below

from dpindex.mechanism.noise.additive import CellTable
from dpindex.mechanism.noise.gaussian import gaussian_table, optimal_sigma, rounded_gaussian
from dpindex.mechanism.secret_random import secret_stream

EPSILONS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
REFERENCE = {  # Balle & Wang's bisection in float64, at L2 sensitivity 1 and delta 1e-6
    0.1: 36.3046904262,
    0.5: 8.05761848,
    1.0: 4.22467889,
    2.0: 2.23047627,
    5.0: 0.98004900,
    10.0: 0.54108683,
    20.0: 0.30908468,
}
_EXP_BITS = 400


def one_beta(epsilon, delta, code_length):
    """Optimal noise for an L2 sensitivity of one beta."""
    return rounded_gaussian(optimal_sigma(epsilon, delta), epsilon, delta, code_length)


def _divergence(table, shift, epsilon):
    """Σ_z max(0, P(z) − e^ε P(z − shift)), no less than the true one, from the masses alone."""
    bound = exp_below(epsilon, _EXP_BITS)
    masses = table.masses
    total = 0
    for z, mass in enumerate(masses):
        other = masses[z - shift] if 0 <= z - shift < len(masses) else 0
        total += max(0, (mass << _EXP_BITS) - bound * other)
    return mpmath.mpf(total) / (mpmath.mpf(2) ** (_EXP_BITS + table.bits))


def _excess(sigma, epsilon):
    """Balle & Wang's Φ(1/2σ − εσ) − e^ε Φ(−1/2σ − εσ)."""
    e = mpmath.mpf(epsilon)
    near = 1 / (2 * sigma) - e * sigma
    far = -1 / (2 * sigma) - e * sigma
    return mpmath.ncdf(near) - mpmath.exp(e) * mpmath.ncdf(far)


def _sigma_by_bisection(epsilon, delta):
    with mpmath.workprec(400):
        low = mpmath.mpf("1e-3")
        high = mpmath.mpf(10) ** 5
        for _ in range(120):
            middle = mpmath.sqrt(low * high)
            if _excess(middle, epsilon) > delta:
                low = middle
            else:
                high = middle
        return float(high)


@pytest.mark.parametrize("epsilon", REFERENCE)
def test_sigma_of_the_reference(epsilon):
    assert optimal_sigma(epsilon, 1e-6) == pytest.approx(REFERENCE[epsilon], rel=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.001, 0.1, 1.0, 8.0, 30.0, 64.0])
@pytest.mark.parametrize("delta", [1e-30, 1e-9, 1e-3, 0.5, 0.99])
def test_sigma_by_bisection_in_high_precision(epsilon, delta):
    """Never below the exact one, and above it by no more than its safety margins."""
    exact = _sigma_by_bisection(epsilon, delta)
    assert exact <= optimal_sigma(epsilon, delta) <= exact * (1 + 1e-7)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", [1e-6, 1e-9])
def test_divergence_of_the_shipped_masses_is_at_most_delta(epsilon, delta):
    noise = one_beta(epsilon, delta, 1024)
    shift = 1 << (noise.grid_bits - noise.source.cell_bits)
    for signed in (shift, -shift):
        assert _divergence(noise.source, signed, epsilon) <= mpmath.mpf(delta)
    # ... and it is not wasteful: more than 99 % of delta is used where cells are fine.
    assert _divergence(noise.source, shift, epsilon) >= 0.9 * mpmath.mpf(delta)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0, 50.0])
def test_smaller_shifts_cost_less(epsilon):
    noise = one_beta(epsilon, 1e-6, 1)
    shift = 1 << (noise.grid_bits - noise.source.cell_bits)
    for smaller in {1, shift // 3, shift // 2, shift - 1} - {0}:
        assert _divergence(noise.source, smaller, epsilon) < mpmath.mpf(10) ** -6


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", [1e-6, 1e-9])
def test_five_percent_less_sigma_fails(epsilon, delta):
    noise = one_beta(epsilon, delta, 1024)
    shift = 1 << (noise.grid_bits - noise.source.cell_bits)
    sigma = 0.95 * optimal_sigma(epsilon, delta) * shift
    weaker = gaussian_table(sigma, epsilon, delta, 1024, noise.source.cell_bits)
    assert _divergence(weaker, shift, epsilon) > mpmath.mpf(delta)


def test_a_table_of_64_bits_would_not_do_at_epsilon_50():
    """At ε = 50 the rounding of 64-bit masses alone costs far more than delta."""
    noise = one_beta(50.0, 1e-6, 1024)
    assert noise.source.bits >= 144
    shift = 1 << (noise.grid_bits - noise.source.cell_bits)
    low = noise.source.bits - 64
    coarse = [mass >> low for mass in noise.source.masses]
    coarse[len(coarse) // 2] += (1 << 64) - sum(coarse)
    first = noise.source.first
    while not coarse[-1]:
        coarse, first = coarse[1:-1], first + 1
    table = CellTable(coarse, first, cell_bits=noise.source.cell_bits)
    assert _divergence(table, shift, 50.0) > 1e-4


@pytest.mark.parametrize("sigma", [0.7, 3.0, 41.5])
def test_masses_are_those_of_the_rounded_normal(sigma):
    """Every mass within two units of 2^bits·(Φ((z+½)/σ) − Φ((z−½)/σ))."""
    table = gaussian_table(sigma, 1.0, 1e-6, 100, 0)
    half = len(table.masses) // 2
    assert table.first == -half
    assert list(table.masses) == list(reversed(table.masses))
    with mpmath.workprec(400):
        scale = mpmath.mpf(sigma) * mpmath.sqrt(2)
        for z in {0, 1, 2, half // 3, half // 2, half - 1}:
            upper, lower = (mpmath.mpf(2 * z + i) / 2 / scale for i in (1, -1))
            share = (mpmath.erfc(lower) - mpmath.erfc(upper)) / 2
            assert abs(table.masses[half + z] - share * mpmath.mpf(2) ** table.bits) <= 2


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0, 50.0])
def test_the_law_knows_its_moments(epsilon):
    noise = one_beta(epsilon, 1e-6, 10)
    cell = 1 << noise.source.cell_bits
    pairs = list(enumerate(noise.source.masses, noise.source.first))
    variance = float(mpmath.mpf(sum(z * z * m for z, m in pairs)) / 2**noise.source.bits)
    fourth = float(mpmath.mpf(sum(z**4 * m for z, m in pairs)) / 2**noise.source.bits)
    assert noise.offset == 0.0
    assert noise.scale == cell
    assert noise.moments.variance[0] == pytest.approx((variance + 1 / 6) * cell**2, rel=1e-12)
    stated = noise.moments.squared[0] + noise.moments.variance[0] ** 2
    assert stated == pytest.approx((fourth + variance + 1 / 15) * cell**4, rel=1e-12)
    # Rounding to cells and the dither together add less than 1 % to the variance.
    sigma = optimal_sigma(epsilon, 1e-6) * 2.0**noise.grid_bits
    assert 1.0 <= noise.moments.variance[0] / sigma**2 < 1.01


@pytest.mark.parametrize("epsilon", [0.3, 3.0, 20.0])
@pytest.mark.parametrize("x", [0, 1000, -4096])
def test_codes_have_the_law_of_cell_noise_and_dither(epsilon, x):
    """Chi-square of 2^19 codes of one x against the exact convolution; bound at
    df + 8·√(2·df) + 30: false alarm below 1e-7, with seeded words none."""
    noise = one_beta(epsilon, 1e-6, 8)
    count = 1 << 19
    codes = noise.perturb(np.full((count // 8, 8), x, np.float32), Seeded(12)).ravel()
    law = np.array([mass / (1 << noise.source.bits) for mass in noise.source.masses])
    whole, part = divmod(x, 1 << noise.source.cell_bits)
    up = part / (1 << noise.source.cell_bits)
    expected = count * (np.append((1 - up) * law, 0) + np.append(0, up * law))
    first = whole + noise.source.first
    assert first <= codes.min()
    assert codes.max() < first + len(expected)
    seen = np.bincount(codes - first, minlength=len(expected))
    common = expected >= 20
    statistic = ((seen - expected)[common] ** 2 / expected[common]).sum()
    pooled = expected[~common].sum()
    statistic += (seen[~common].sum() - pooled) ** 2 / pooled
    df = common.sum()
    assert statistic < df + 8 * math.sqrt(2 * df) + 30


def test_decoded_codes_are_unbiased():
    """Mean of 2^19 secret draws within 5.5 standard errors: false alarm 4e-8 each."""
    for epsilon in (0.5, 5.0):
        noise = one_beta(epsilon, 1e-6, 8)
        for x in (0, 13, -2047):
            codes = noise.perturb(np.full((1 << 19, 1), x, np.float64), secret_stream())
            estimate = (codes + noise.offset) * noise.scale
            error = math.sqrt(1.1 * noise.moments.variance[0] / len(codes))
            assert abs(estimate.mean() - x) < 5.5 * error
