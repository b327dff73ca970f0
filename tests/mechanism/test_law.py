"""The contract of every noise law: what it draws, its moments, its likelihood and its format.

Each row of the method table at three budgets, and laws so wide that they take two digits. Draws
come from seeded words, so a statistical comparison passes always or never.
"""

import math

import numpy as np
import pytest
from helpers.common import Seeded, example, folded
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

import dpindex as dpi
from dpindex.mechanism.method_table import find_method
from dpindex.mechanism.noise.base import NumberLaw, SignLaw, SymbolLaw
from dpindex.mechanism.noise.gaussian import count_noise
from dpindex.mechanism.noise.response import SquareWave
from dpindex.privacy import L2, Attribute, Record

MARK = bytes(range(16))
EPSILONS = (0.3, 2.0, 9.0)


def _spec(row, epsilon, **changes):
    if isinstance(row.family.variant, dpi.Dense):
        changes["entries"] = "gaussian"
    if row.definition == "iDP":  # stated for so many signs that the near ones have a mean number
        changes |= {"dim": 256, "k": 256}
    return example(row, epsilon=epsilon if row.private else None, **changes)


SPECS = {
    f"{row.name} at {epsilon:g}": _spec(row, epsilon)
    for row in dpi.methods()
    for epsilon in (EPSILONS if row.private else (1.0,))
    if row.name != "row-rp-g-composition" or epsilon < 2.0  # its epsilons would pass 1
}
SPECS |= {
    f"{name}, two digits": _spec(find_method(name), 0.05, dim=70, k=64)
    for name in ("dp-rp-g-opt", "dp-rp-l")
}
ON_TWO_CELLS = {
    f"raw-staircase at {e:g}": _spec(find_method("raw-staircase"), e) for e in (32.0, 45.0)
}
"""Nearly all of their variance is rounding."""
SPECS |= ON_TWO_CELLS
COUNTS = {
    "counts": count_noise(1.0, 0.0, 50, 20, "add-remove"),
    "counts, normal": count_noise(1.0, 1e-6, 50, 20, "add-remove"),
}
"""Laws of sketches, which no spec of codes names."""


def law_of(name):
    """Worked out for the tests that run, and not when they are collected."""
    return COUNTS[name] if name in COUNTS else SPECS[name].law


CODES = {name: spec.method_row.codes for name, spec in SPECS.items()}
NUMBERS = [name for name, codes in CODES.items() if codes == "numbers"]
NOISY = [*COUNTS, *(name for name in NUMBERS if SPECS[name].method_row.private)]
SIGNS = [name for name, codes in CODES.items() if codes == "signs"]
SYMBOLS = [name for name, codes in CODES.items() if codes == "symbols"]


def cases(names):
    """Every law once in the fast tier, and at all budgets in the full one."""
    first = {}
    for name in names:
        method = SPECS[name].method if name in SPECS else name
        first.setdefault(method, name)
    quick = set(first.values())
    slow = pytest.mark.slow
    return [pytest.param(name, marks=() if name in quick else slow) for name in names]


PLACES = (0.0, 0.31, 1.0)
"""Where in the bounds a coordinate lies."""


def test_every_row_is_a_law_of_numbers_signs_or_symbols():
    methods = {SPECS[name].method for name in NUMBERS + SIGNS + SYMBOLS}
    assert methods == {row.name for row in dpi.methods()}


@folded("row", dpi.methods())
def test_a_calibration_says_what_it_needs_and_promises(row):
    calibration = row.calibration
    assert calibration.definition in ("DP", "iDP", "none")
    assert calibration.delta in ("zero", "optional", "required")
    assert calibration.delta_over in ("noise", "projection")
    assert 0 < calibration.max_delta <= 1
    kinds = {kind.kind for kind in (Attribute, L2, Record)}
    assert set(calibration.adjacencies) <= kinds
    # Tight composition needs a Gaussian whose delta is about the noise alone.
    if calibration.deviation is not None:
        assert calibration.delta == "required"
        assert calibration.delta_over == "noise"
        assert calibration.deviation(1.0, 1e-6) >= 4.2246788
    if calibration.check_norm:
        assert calibration.delta != "zero"


@folded("name", cases(list(SPECS)))
def test_a_law_knows_its_grid_and_its_format(name):
    spec = SPECS[name]
    law = spec.law
    rounded = spec.method_row.calibration.rounded
    least = spec.projection.grid_bits if rounded else 0
    assert law.grid_bits >= least if rounded else law.grid_bits == 0
    assert 0 < law.max_sum <= 2**46
    assert isinstance(law, NumberLaw) == (name in NUMBERS)
    assert isinstance(law, SignLaw) == (name in SIGNS)
    form = law.code_format(7, MARK, 0.25)
    assert type(form) is spec.method_row.calibration.format
    assert form.code_length == (1 if name in SYMBOLS else 7)
    assert form.fingerprint == MARK
    if isinstance(law, NumberLaw):
        assert form.scale == law.scale * 0.25
        assert form.offset == law.offset


@folded("name", cases(list(SPECS)))
def test_draws_are_a_function_of_the_words(name):
    """The same words give the same outcomes, in either float type; the input is left alone."""
    spec = SPECS[name]
    most = 1 << spec.law.grid_bits  # one beta, which every law takes
    x = default_rng(0).integers(0, most, (500, spec.projection.k), endpoint=True)
    single = x.astype(np.float32)
    double = x.astype(np.float64)
    drawn = spec.law.perturb(single, Seeded(1))
    kinds = {"signs": np.bool_, "numbers": np.int32, "symbols": np.int64}
    assert drawn.shape == (x.shape[:1] if name in SYMBOLS else x.shape)
    assert drawn.dtype == kinds[CODES[name]]
    assert_array_equal(drawn, spec.law.perturb(double, Seeded(1)))
    assert_array_equal(single, x)
    assert_array_equal(double, x)
    for count in (0, 1):
        few = np.zeros((count, x.shape[1]), np.float32)
        drawn_of_few = spec.law.perturb(few, Seeded(1))
        assert drawn_of_few.shape == (count, *drawn.shape[1:])
    stored = spec.format.pack(drawn)
    assert spec.format.fault(stored) is None


# Number laws


def _at(polynomial, z):
    return sum(factor * z**power for power, factor in enumerate(polynomial))


def _place(law, share):
    """A grid integer in the interval of a bounded law, or of one beta."""
    low = getattr(law, "low", 0)
    return round(low + share * (1 << law.grid_bits))


def _chances(law, x):
    """All codes that matter and ``P(code | x)`` by the likelihood, rounding to cells included."""
    likelihood = law.likelihood
    if isinstance(law, SquareWave):
        codes = np.arange(law.cells + 2 * law.half_width + 1)
    else:
        middle = round(x / law.scale)
        farthest = float(np.abs(likelihood.edges).max())
        reach = math.ceil(farthest / law.scale) + 2
        codes = np.arange(middle - reach, middle + reach + 1)
    decoded = (codes + law.offset) * law.scale
    u = likelihood.slope * decoded + likelihood.shift - x
    # Uniform rounding spreads a code over one cell: the mean of the likelihood over it.
    edges = likelihood.edges
    half = likelihood.slope * law.scale / 2
    levels = np.cumsum(likelihood.jumps)[:-1]
    beyond = np.concatenate([[0.0], np.cumsum(levels * np.diff(edges))])
    over = np.interp(u + half, edges, beyond)
    under = np.interp(u - half, edges, beyond)
    return codes, over - under + likelihood.base * 2 * half


@folded("name", cases([name for name in NOISY if name not in ON_TWO_CELLS]))
@folded("share", PLACES)
def test_moments_are_those_of_the_likelihood(name, share):
    """The mean, the variance and all that errors of squared norms are computed from.

    Moments are averaged over places in a cell, up to a quarter of a cell squared.
    """
    law = law_of(name)
    x = _place(law, share)
    codes, chances = _chances(law, x)
    assert (chances > -1e-12).all()
    assert chances.sum() == pytest.approx(1.0, abs=2e-6)
    # In units of the deviation, so that one tolerance fits all laws.
    unit = 1.0 / math.sqrt(_at(law.moments.variance_of_x, x))
    moments = law.moments.in_units(unit)
    true = x * unit
    true_z = true - moments.centre
    error = (codes + law.offset) * law.scale * unit - true
    z = error + true_z
    square = moments.weight * (z**2 - moments.variance[0])
    off = square + 2 * moments.centre * z
    off += moments.centre**2 - true**2
    size = _at(moments.squared, true_z)
    cell2 = (law.scale * unit) ** 2 * (1 + 2 * abs(true)) / 4
    assert abs(chances @ error) < 1e-3
    assert chances @ error**2 == pytest.approx(1.0, rel=2e-3, abs=cell2)
    assert _at(moments.variance, true_z) == pytest.approx(1.0)
    root = math.sqrt(size)
    assert abs(chances @ off) < 2e-3 * root + cell2
    mixed = _at(moments.mixed, true_z)
    assert abs(chances @ (error * off) - mixed) < 0.02 * root + cell2
    assert chances @ off**2 == pytest.approx(size, rel=0.04, abs=cell2)


@pytest.mark.parametrize("name", cases(NOISY))
@pytest.mark.parametrize("share", PLACES)
def test_the_likelihood_is_that_of_the_draws(name, share):
    """Chi-square of 2^18 draws in up to 200 groups of codes against the likelihood.

    Bound at df + 8·√(2·df) + 30: by chance below 1e-7. A law with 5 % less noise is seen.
    """
    law = law_of(name)
    count = 1 << 18
    x = _place(law, share)
    codes, chances = _chances(law, x)

    def statistic(drawn):
        # Groups of about equal chance, none of which expects fewer than 20.
        share = (np.cumsum(chances) * 200).astype(int)
        group = np.minimum(share, 199)
        place = np.clip(drawn - codes[0], 0, len(codes) - 1)
        seen = np.bincount(group[place], minlength=200)
        expected = np.bincount(group, weights=chances, minlength=200) * count
        common = expected >= 20
        rare = ~common
        assert seen[rare].sum() <= 40 + 3 * expected[rare].sum()
        terms = (seen - expected)[common] ** 2 / expected[common]
        return float(terms.sum()), int(common.sum())

    x = np.full((count, 1), x, np.float64)
    drawn = law.perturb(x, Seeded(4))[:, 0]
    found, df = statistic(drawn)
    bound = df + 8 * math.sqrt(2 * df) + 30
    assert found < bound
    centre = x[0, 0] / law.scale - law.offset
    noise = drawn - centre
    if law.moments.weight == 1.0 and np.median(np.abs(noise)) > 20:
        weaker = np.rint(centre + 0.95 * noise).astype(np.int64)
        assert statistic(weaker)[0] > bound


@folded("name", [name for name in NUMBERS if name not in NOISY])
def test_a_baseline_draws_nothing(name):
    law = law_of(name)
    x = np.array([[0.0, -3.0, 4096.0]])
    assert law.perturb(x, Seeded(1)).tolist() == [[0, -3, 4096]]
    assert law.moments.variance == (0.0, 0.0, 0.0)
    # The likelihood is one within half an integer of the code, and nothing elsewhere.
    assert law.likelihood.edges.tolist() == [-0.5, 0.5]
    assert law.likelihood.jumps.tolist() == [1.0, -1.0]


@folded("name", cases(NOISY))
def test_densities_of_the_likelihood_in_other_units_still_add_up_to_one(name):
    """Units of moments are those of ``test_moments_are_those_of_the_likelihood``."""
    law = law_of(name)
    unit = 0.37
    likelihood = law.likelihood.in_units(unit)
    first, *_, last = law.likelihood.edges
    u = np.linspace(first, last, 1001)[1:-1] * 1.0001

    def density(of, at):
        return np.array([of.base + of.jumps[of.edges < place].sum() for place in at])

    assert_allclose(
        density(likelihood, u * unit) * unit,
        density(law.likelihood, u),
        atol=1e-12,
    )


# Sign laws


@pytest.mark.parametrize("name", cases(SIGNS))
@pytest.mark.parametrize("rms", [0.4, 3.0])
def test_flips_have_the_stated_chance_at_every_size(name, rms):
    """2^18 normal coordinates of that deviation in betas: flips by size in fifteen groups.

    Six standard errors. iDP: the number of signs that share the budget is taken at its mean, which
    is a few percent off.
    """
    spec = SPECS[name]
    law = spec.law
    k = spec.code_length
    rng = default_rng(5)
    beta = float(1 << (law.grid_bits or 12))  # laws without a grid take any floats
    rows = (1 << 18) // k
    x = np.rint(rng.standard_normal((rows, k)) * rms * beta)
    flipped = law.perturb(x, Seeded(6)) != (x > 0)
    size = np.abs(x) / beta
    stated = law.flip_probability(size, rms)
    assert stated.shape == x.shape
    assert ((stated >= 0) & (stated <= 0.5)).all()
    individual = spec.method_row.definition == "iDP"
    ends = [*np.linspace(0.2, 1.0, 5), *np.linspace(1.5, 6, 10)]
    groups = np.digitize(size, ends)
    groups[x == 0] = -1  # a coin
    for group in np.unique(groups[groups >= 0]):
        inside = groups == group
        expected = stated[inside].mean()
        count = int(inside.sum())
        # An iDP row's flips hang together through the number of its near signs: k a row.
        slack = 0.02 * expected if individual else 0.0
        alone = count / k if individual else count
        error = 6 * math.sqrt(expected * (1 - expected) / alone)
        found = flipped[inside].mean()
        assert abs(found - expected) <= error + slack + 1e-12
    assert law.depends_on_size or np.ptp(stated) == 0.0


@folded("name", cases([*NUMBERS, *SIGNS]))
def test_a_linear_channel_explains_what_it_says(name):
    """Its parts fit together: explained and unexplained variance are all there is."""
    spec = SPECS[name]
    k = spec.projection.k
    beta = spec.projection.scale * spec.adjacency.size
    mean = np.full(k, beta / 2)
    variance = np.full(k, (beta / 4) ** 2)
    law = spec.law
    if isinstance(law, SignLaw):
        channel = law.linear_channel(mean, variance, beta)
        own = np.diag(channel.covariance(np.diag(variance)))
        assert_allclose(own, 1 - channel.mean**2, rtol=1e-3)
        signs = law.expected_signs(np.array([-0.3, 0.3]), 1.0)
        assert signs[0] == -signs[1]
        assert 0 <= signs[1] <= 1
    else:
        channel = spec.law.linear_channel(mean, variance, spec.step)
        assert_array_equal(channel.slope, 1.0)
        assert_array_equal(channel.mean, mean)
    assert (channel.noise >= 0).all()


def test_signs_without_flips_are_as_linear_as_bussgang_says():
    """E[sign(x)·x]/Var(x) = √(2/π)/σ for x ~ N(0, σ²), and (2/π)·arcsin ρ for two signs."""
    law = SPECS["none-signrp at 1"].law
    channel = law.linear_channel(np.zeros(2), np.full(2, 4.0), 1.0)
    slope = math.sqrt(2 / math.pi) / 2
    assert_allclose(channel.slope, slope, rtol=1e-3)
    assert_allclose(channel.mean, 0.0, atol=1e-12)
    for cosine in (-0.7, 0.0, 0.3, 0.6):
        covariance = 4 * np.array([[1, cosine], [cosine, 1]])
        found = channel.covariance(covariance)[0, 1]
        assert abs(found - 2 / math.pi * math.asin(cosine)) < 0.01


@folded("name", ["none-oporp at 1", "none-signrp at 1", SYMBOLS[0]])
def test_a_law_of_another_kind_is_not_given(name):
    spec = SPECS[name]
    for kind in (NumberLaw, SignLaw, SymbolLaw):
        if isinstance(spec.law, kind):
            assert kind.of(spec.law) is spec.law
        else:
            with pytest.raises(TypeError, match=f"is no {kind.__name__}"):
                kind.of(spec.law)
