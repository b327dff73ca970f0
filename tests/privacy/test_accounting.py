"""Composition: exact sums rounded outward, and tight totals against independent computations."""

import math
import operator
import sys
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from itertools import product

import mpmath
import pytest
from helpers.common import attribute_spec, dp, folded, refuses
from hypothesis import given
from hypothesis import strategies as st
from independent.rigorous import gaussian_delta

from dpindex import Guarantee, Spec, attribute, compose, l2
from dpindex.accounting import add_up
from dpindex.mechanism.noise.gaussian import optimal_sigma
from dpindex.mechanism.papers import kenthapadi_sigma
from dpindex.privacy.adjacency import Records

DELTA = 1e-6
UNIT = attribute(1.0)


def gaussian(epsilon=1.0, method="dp-oporp", **changes):
    terms = {"delta": DELTA, "adjacency": UNIT, **changes}
    return Spec(method, 24, 8, epsilon, **terms)


def pure(epsilon, **changes):
    terms = {"adjacency": UNIT, **changes}
    return Spec("dp-oporp-staircase", 24, 8, epsilon, **terms)


def spent(mu, epsilon):
    """Delta of one Gaussian release whose shift is mu deviations, in 200 bits."""
    with mpmath.workprec(200):
        return gaussian_delta(1 / mpmath.mpf(mu), epsilon)


def analytic_epsilon(mu, delta):
    low = 0.0
    high = 200.0
    for _ in range(60):
        middle = (low + high) / 2
        if spent(mu, middle) > delta:
            low = middle
        else:
            high = middle
    return high


def check_epsilon(found, mu, delta=DELTA):
    """It holds, and is hardly larger than it must be."""
    expected = analytic_epsilon(mu, delta)
    assert expected <= found.epsilon <= expected * (1 + 1e-6)
    assert spent(mu, found.epsilon) <= delta


def pure_delta(epsilons, epsilon):
    """Hockey stick of independent randomized responses, by enumeration (Murtagh & Vadhan 2016)."""
    losses = {0.0: 1.0}
    for e in epsilons:
        truth = 1 / (1 + math.exp(-e))
        grown = {}
        for loss, chance in losses.items():
            for sign, share in ((1, truth), (-1, 1 - truth)):
                key = round(loss + sign * e, 9)
                grown[key] = grown.get(key, 0.0) + chance * share
        losses = grown
    above = [(loss, chance) for loss, chance in losses.items() if loss > epsilon]
    return sum(chance * -math.expm1(epsilon - loss) for loss, chance in above)


budgets = st.floats(1e-3, 64.0)


@pytest.mark.slow
@given(st.lists(st.tuples(budgets, st.floats(0, 0.1)), min_size=1, max_size=20))
def test_sums_are_never_below_the_exact_ones(budgets):
    found = add_up(*(Guarantee(epsilon, delta, "DP", UNIT) for epsilon, delta in budgets))
    epsilon = sum(Fraction(own) for own, _ in budgets)
    delta = sum((Fraction(own) for _, own in budgets), Fraction(0))
    delta = min(Fraction(1), delta)
    slack = 1 + Fraction(1, 2**51)
    assert epsilon <= Fraction(found.epsilon) < epsilon * slack
    assert delta <= Fraction(found.delta) <= delta * slack


def test_ten_tenths_are_one_rounded_up():
    """0.1 is a little above a tenth, so ten of them exceed 1, which plain addition hides."""
    assert reduce(operator.add, [0.1] * 10) < 1.0  # not sum(), which compensates since Python 3.12
    tenths = [dp(0.1, UNIT)] * 10
    assert add_up(*tenths).epsilon > 1.0


def test_a_sum_keeps_what_is_weaker():
    one = dp(1.0, UNIT)
    other = Guarantee(2.0, DELTA, "DP", UNIT, exact=False, delta_over="projection")
    assert add_up(one, other) == replace(other, epsilon=3.0)
    individual = Guarantee(1.0, 0.0, "iDP", UNIT)
    assert add_up(individual, individual).definition == "iDP"
    nothing = Guarantee(math.inf, 0.0, "none", UNIT)
    assert add_up(nothing, nothing) == nothing


@folded(
    "other, message",
    [
        (dp(1.0, attribute(0.5)), "count different changes"),
        (dp(1.0, l2(1.0)), "count different changes"),
        (dp(1.0, Records("replace")), "count different changes"),
        (Guarantee(1.0, 0.0, "iDP", UNIT), "DP and iDP do not add up"),
        (Guarantee(math.inf, 0.0, "none", UNIT), "DP and none do not add up"),
    ],
)
def test_what_does_not_add_up_is_refused(other, message):
    with refuses(message):
        add_up(dp(1.0, UNIT), other)


def test_nothing_is_refused():
    for empty in (lambda: add_up(), lambda: compose([])):
        with refuses("nothing to compose"):
            empty()


@pytest.mark.parametrize("times", [1, 4, 25])
@pytest.mark.parametrize("method", ["dp-oporp", "dp-rp-g", "dp-sjlt-gaussian"])
def test_gaussian_releases_equal_one_of_less_noise(method, times):
    """m releases of deviation σ are one of σ/√m (Dong, Roth & Su 2022, Cor. 3.3)."""
    calibrate = kenthapadi_sigma if method == "dp-rp-g" else optimal_sigma
    mu = math.sqrt(times) / calibrate(1.0, DELTA)
    found = compose([gaussian(method=method)] * times, delta=DELTA)
    check_epsilon(found, mu)
    assert found.delta == DELTA
    assert found.definition == "DP"
    assert found.exact == (times == 1 and method != "dp-rp-g")  # the sum itself, where it is best


def test_different_gaussian_releases():
    specs = [gaussian(0.5), gaussian(1.0), gaussian(2.0, delta=1e-8)]
    shifts = [1 / optimal_sigma(spec.budget, spec.delta) for spec in specs]
    check_epsilon(compose(specs, delta=1e-5), math.hypot(*shifts), 1e-5)


@pytest.mark.parametrize("epsilons", [[0.25] * 30, [0.1] * 40 + [0.5] * 10])
def test_pure_releases_are_composed_optimally(epsilons):
    found = compose([pure(epsilon) for epsilon in epsilons], delta=DELTA).epsilon
    assert pure_delta(epsilons, found) <= DELTA
    assert pure_delta(epsilons, found - 0.01) > DELTA
    assert found < sum(epsilons) - 0.5


@pytest.mark.parametrize(
    "gaussians, pures, delta",
    [
        ([1.0] * 4, [0.5] * 2, 4e-6),
        ([1.0] * 4, [0.5], 1e-10),
        ([3.0], [1.0, 2.0] * 2, 1e-3),
        pytest.param([12.0] * 2, [5.0], 1e-9, marks=pytest.mark.slow),
        ([0.01], [0.01], 1e-7),
    ],
)
def test_mixed_releases_are_bounded_closely(gaussians, pures, delta):
    """All outcomes of the randomized responses, and of each the analytic curve that is left."""
    specs = [*map(gaussian, gaussians), *map(pure, pures)]
    found = compose(specs, delta=delta).epsilon
    shifts = [1 / optimal_sigma(epsilon, DELTA) for epsilon in gaussians]
    mu = math.hypot(*shifts)
    signed = [(mpmath.mpf(epsilon), -mpmath.mpf(epsilon)) for epsilon in pures]

    def spent_at(epsilon):
        with mpmath.workprec(200):
            total = 0
            for losses in product(*signed):
                chances = (1 / (1 + mpmath.exp(-loss)) for loss in losses)
                left = spent(mu, epsilon - mpmath.fsum(losses))
                total += mpmath.fprod(chances) * left
            return total

    assert spent_at(found) <= delta < spent_at(found - 1e-3)


def test_without_dp_accounting_gaussian_releases_are_composed_and_mixed_ones_name_it(
    monkeypatch,
):
    monkeypatch.setitem(
        sys.modules,
        "dp_accounting.pld.privacy_loss_distribution",
        None,
    )
    assert compose([gaussian()] * 4, delta=DELTA).epsilon < 2.2
    assert compose([pure(0.5)] * 2).epsilon == 1.0
    with refuses(r"not all Gaussian .*; run pip install dp-accounting\.$"):
        compose([gaussian(), pure(0.5)], delta=DELTA)


def test_one_pure_release_stays_exact():
    release = pure(0.5)
    assert compose([release], delta=1e-9) == release.guarantee


@folded("beta", [1.0, 0.5, 0.3])
def test_finding_2_gaussian_releases_of_different_betas(beta):
    """A change of one is ⌈1/β⌉ changes of β, and has as many times the sensitivity."""
    specs = [gaussian(), gaussian(adjacency=attribute(beta))]
    steps = math.ceil(1 / beta)
    mu = math.hypot(1, steps) / optimal_sigma(1.0, DELTA)
    found = compose(specs, delta=DELTA, at=UNIT)
    check_epsilon(found, mu)
    assert found.adjacency == UNIT
    plain = compose(specs, at=UNIT)
    assert plain.epsilon == 1.0 + steps
    group = math.fsum(math.exp(step) * DELTA for step in range(steps))  # Vadhan 2017, Lemma 2.2
    assert DELTA + group <= plain.delta
    assert plain.delta <= 1.001 * DELTA * (1 + steps * math.exp(steps - 1))


def test_without_delta_it_is_the_plain_sum():
    both = compose([gaussian(), pure(2.0)])
    assert both == Guarantee(3.0, DELTA, "DP", UNIT)
    weak = gaussian(method="dp-rp-g-analytic")
    assert compose([weak, weak]).delta_over == "projection"


@pytest.mark.parametrize(
    "specs, delta, message",
    [
        ([pure(1.0), pure(1.0, scale=255.0)], None, "count different changes"),
        ([attribute_spec("idp-signrp-rr", 8, epsilon=1.0)], DELTA, "has iDP"),
        ([gaussian(method="dp-rp-g-analytic")], DELTA, "over the projection"),
        ([gaussian()], 0.0, "must lie in"),
        ([gaussian(), pure(1.0)], 1e-11, "at least 1e-10"),
        ([gaussian()], 1.0, "must lie in"),
        ([gaussian()], math.nan, "finite number"),
        ([gaussian(20.0)] * 40, DELTA, "no tight bound"),
    ],
)
def test_bad_input_is_refused(specs, delta, message):
    with refuses(message):
        compose(specs, delta)
