"""The exact verifier: what ships passes, and its lemmas agree with brute force."""

import json
import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product

import mpmath
import numpy as np
import pytest
from helpers.common import attribute_spec, example, normal, record_spec, refuses
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng
from scipy.special import bdtrc, ndtr
from self_test.second_reading import READERS, refuted, replay_fails

from dpindex import Codebook, Dense, Repeated, Spec, attribute, l2, methods
from dpindex.audit import default_specs, not_covered, verify, verify_each
from dpindex.audit.exact_arithmetic import (
    distance_to_rounded,
    exp_below,
    hockey_stick,
    normal_of_table,
    worst_table_ratio,
    worst_two_digit_step,
)
from dpindex.audit.input_checks import code_checks, grid_checks, norm_at_most, read_map
from dpindex.audit.law_verifiers import VERIFIERS, binomial_tail, change_chance, law_verifier
from dpindex.audit.record_verifiers import cap_size
from dpindex.mechanism.noise.additive import CellTable, TwoDigitLaplace, geometric_table
from dpindex.mechanism.noise.gaussian import gaussian_table
from dpindex.mechanism.noise.response import FlipsByLevel, response_threshold
from dpindex.mechanism.papers.signs import change_probability
from dpindex.mechanism.projections import Sensitivity

pytestmark = pytest.mark.usefixtures("one_stream_check")
SPECS = [spec for spec in default_specs() if isinstance(spec, Spec)]
DENSE_LAPLACE = attribute_spec(
    "dp-rp-l",
    48,
    k=32,
    epsilon=0.1,
)  # in two digits
PRIVATE = list(dict.fromkeys(spec.method for spec in SPECS))
FIRST_OF_LAW = {spec.method_row.calibration: spec.method for spec in reversed(SPECS)}.values()
"""Methods that are proved at every budget: others draw from the laws of these."""


def _large(spec):
    """Tables of thousands of cells in 128 bits: one budget is enough here."""
    single = spec.adjacency.kind == "attribute" and spec.projection.sensitivity.count == 1
    return spec.method_row.needs_delta and (spec.method_row.definition == "iDP" or not single)


@given(st.fractions(0, 100, max_denominator=1000))
def test_exp_below_is_below_and_tight(x):
    below, shift = exp_below(x)
    with mpmath.workprec(900):
        true = mpmath.exp(mpmath.mpf(x.numerator) / x.denominator)
        found = mpmath.ldexp(below, -shift)
        assert found <= true
        assert (true - found) / true < mpmath.ldexp(1, -370)


@pytest.mark.parametrize("width, inner", [(1, 1), (4, 2), (5, 5), (7, 1)])
def test_the_lemma_on_unbounded_tables_agrees_with_all_pairs(width, inner):
    table = geometric_table(mpmath.mpf("0.7"), width, inner, 0)
    shift = 2 * width + 1
    half = 1 << 63
    period = table.period
    side = table.masses[len(table.masses) // 2 : -1]

    def chance(z):
        rounds, rest = divmod(z if z >= 0 else -1 - z, period)
        first = Fraction(side[rest], 1 << 64)
        return first * Fraction(table.masses[-1], half) ** rounds

    reach = period + 2 * shift
    chances = {z: chance(z) for z in range(-reach, reach)}
    ratios = []
    for z in range(-reach, reach - shift):
        ratios += [chances[z] / chances[z + s] for s in range(1, shift)]
    brute = max(*ratios, 1 / min(ratios))
    found = Fraction(*worst_table_ratio(table, shift - 1))
    assert found == brute


def test_hockey_stick_agrees_with_randomized_response():
    table = CellTable([3 << 62, 1 << 62], first=0)
    # P = (¾, ¼); shifted by one, all mass but P(0) has a counterpart of ¾·e^ε ≥ ¼.
    found = hockey_stick(table, 1, Fraction(1))
    assert found == max(Fraction(3, 4), Fraction(1, 4))


@pytest.mark.slow
@pytest.mark.parametrize("name", PRIVATE)
def test_every_shipped_law_passes(name):
    specs = [spec for spec in SPECS if spec.method == name]
    every = name in FIRST_OF_LAW
    at_one = [spec for spec in specs if spec.epsilon == 1.0]
    few = [spec for spec in specs if every and not _large(spec)]
    if name == "codebook-softmax":  # 48 tables of 4096 steps: nearly every epsilon, in some terms
        few = few[::5]
    few = [spec for spec in specs if spec in few or spec in at_one]
    reports = list(verify_each(few))
    assert reports
    if name.startswith("record-"):
        assert "any two vectors" in str(reports[0])
    failed = [(report.spec.epsilon, report.failed) for report in reports if not report.passed]
    assert failed == []
    # A sampler runs the same steps at every epsilon, on tables that differ in size.
    ends = {few[0].epsilon, 1.0, few[-1].epsilon}
    replayed = {spec.epsilon: spec for spec in few if spec.epsilon in ends}
    for epsilon, spec in replayed.items():
        assert not replay_fails(spec), epsilon


@pytest.mark.slow
def test_every_law_has_a_verifier_that_proves_what_its_calibration_promises():
    used = set()
    one_of_each = {(spec.method, spec.adjacency.kind): spec for spec in SPECS}
    for spec in [*one_of_each.values(), DENSE_LAPLACE]:
        drawn = type(getattr(spec.law, "source", spec.law))
        assert VERIFIERS[drawn].proves == spec.guarantee.definition
        used.add(drawn)
    assert set(VERIFIERS) == used
    assert set(READERS) == set(VERIFIERS)


@pytest.mark.slow
@pytest.mark.parametrize("size, subset", [(2, 1), (3, 2), (700, 350), (65536, 3)])
def test_codebooks_of_any_size_are_verified(size, subset):
    book = Codebook(normal(size, 3))
    spec = record_spec("record-codebook", 3, epsilon=2.0, codebook=book,
                subset=subset)  # fmt: skip
    assert refuted(spec) == ()


@pytest.mark.parametrize("size", [2, 37, 300, pytest.param(3000, marks=pytest.mark.slow)])
def test_softmax_draws_of_any_number_of_codewords_are_verified(size):
    """A draw rounds each of K chances: with more codewords less would be held back by luck."""
    book = Codebook(normal(size, 6))
    both = {"epsilon": 5.0, "record_epsilon": 9.0}
    for terms in ({"epsilon": 10.0}, both):
        spec = Spec(
            "codebook-softmax",
            6,
            adjacency=attribute(0.5),
            codebook=book,
            **terms,
        )
        assert refuted(spec) == ()


def test_caps_are_counted_as_by_hand():
    for weights in ([1], [3, 2, 1], [5, 5, 1, 0, 0], [31] * 9):
        chosen = product(*((0, weight) for weight in weights))
        totals = list(map(sum, chosen))
        for threshold in range(-1, sum(weights) + 3):
            reaching = [total for total in totals if total >= threshold]
            assert cap_size(weights, threshold) == len(reaching)


@pytest.mark.slow
def test_long_caps_are_verified():
    """Counts are whole numbers of any length: twice as many coordinates would prove no more."""
    spec = record_spec("record-cap", 24, k=512, epsilon=12.0)
    assert refuted(spec) == ()


def test_what_is_not_covered_is_listed_with_its_reason():
    missing = not_covered()
    assert list(missing) == ["row-rp-g-direct", "row-rp-g-composition"]
    promising = {row.name for row in methods() if row.definition != "none"}
    assert promising == {*PRIVATE, *missing}
    spec = Spec(
        "row-rp-g-direct",
        4,
        k=2,
        epsilon=1.0,
        delta=1e-6,
        adjacency=l2(1.0),
    )
    with refuses("not covered by the exact verifier: its delta is also"):
        verify(spec)


@pytest.mark.parametrize("dim, ratio", [(1, 0.3), (48, 0.02), (784, 0.1), (5000, 0.4)])
def test_the_chance_of_a_change_is_bounded_closely(dim, ratio):
    """Against the integral that the law is calibrated by, which conditions on the other normal."""
    found = change_chance(dim, ratio)
    other = change_probability(dim, ratio)
    assert other - 2e-9 <= found <= other * (1 + 3e-5) + 1e-8


def test_binomial_tails_are_exact():
    found = binomial_tail(512, Fraction(1, 4), 176)
    assert float(found) == pytest.approx(bdtrc(176, 512, 0.25), rel=1e-9)
    assert binomial_tail(5, Fraction(1, 3), 5) == 0
    assert binomial_tail(5, Fraction(1, 3), -1) == 1


@pytest.mark.slow
@pytest.mark.parametrize("norm", [1.5, 40.0])
def test_signs_that_can_change_are_counted(norm):
    spec = attribute_spec(
        "dp-signrp-rr",
        200,
        k=256,
        epsilon=2.0,
        delta=1e-6,
        variant=Dense("gaussian", min_norm=norm),
        bounds=(-4.0, 4.0),
    )
    assert verify(spec).failed == ()
    odds = 2**64 / spec.law.thresholds[0] - 1
    signs = round(2.0 / math.log(odds))
    law = FlipsByLevel([response_threshold(2.0, signs - 1)])
    object.__setattr__(spec, "law", law)
    assert verify(spec).failed == ("law: signs that can change",)


def test_steps_of_a_law_in_two_digits_agree_with_all_pairs():
    source = TwoDigitLaplace(mpmath.mpf("0.01"), 0)
    base = 1 << source.digit
    high = source.high
    low = source.low
    side = high.masses[len(high.masses) // 2 : -1]

    def chance(z):
        upper, lower = divmod(z if z >= 0 else -1 - z, base)
        rounds, rest = divmod(upper, high.period)
        powers = side[rest] * high.masses[-1] ** rounds
        mass = powers << (high.bits - 1) * (2 - rounds)
        return mass * low.masses[lower]

    reach = (high.period + 1) * base
    chances = [chance(z) for z in range(-reach, reach)]
    ratios = [Fraction(one, other) for one, other in pairwise(chances)]
    brute = max(*ratios, 1 / min(ratios))
    assert Fraction(*worst_two_digit_step(source)) == brute
    assert math.log(brute) == pytest.approx(0.01, rel=1e-12)


def test_the_gaussian_reduction_agrees_with_the_hockey_stick_of_the_table():
    """Where one coordinate moves both can be computed: the reduction is above, by little."""
    spec = attribute_spec("dp-oporp", 12, k=1, epsilon=1.0, delta=1e-6)
    table = spec.law.source
    one = code_checks(spec)[1]
    reach = one.cells(table.cell_bits)
    exact = hockey_stick(table, reach, Fraction(1))
    # The same as if two coordinates moved by 1/√2 each.
    two = replace(one, moves=Sensitivity(2, 2, 1))
    check = law_verifier(spec, two).check()
    assert check.name == "law: Gaussian on the whole code"
    assert check.passed
    bound = float(check.found.split()[2])
    assert 0.97 * bound <= float(exact) <= bound <= 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [0.2, 0.55, 3.0, 4.5, 700.0])
def test_the_normal_law_next_to_a_table_is_found(sigma):
    """By the mass at 0 where the table is narrow, by the variance where it is wide."""
    table = gaussian_table(sigma, 1.0, 1e-6, 1, 0)
    deviation, distance = normal_of_table(table)
    assert float(deviation) == pytest.approx(sigma, rel=1e-14)
    assert distance < Fraction(4 * len(table.masses), 1 << table.bits)
    one_cell = CellTable([1 << 64], 0)
    geometric = geometric_table(mpmath.mpf(1), 1, 1, 0)
    for other in (one_cell, geometric):
        assert normal_of_table(other) == (1, 1)


def test_distance_of_a_table_to_the_rounded_normal():
    table = gaussian_table(3.0, 1.0, 1e-6, 1, 0)
    deviation = Fraction(3)
    rounding = Fraction(len(table.masses), 1 << table.bits)
    assert distance_to_rounded(table, deviation) < rounding
    masses = list(table.masses)
    middle = len(masses) // 2
    moved = 1 << (table.bits - 20)
    masses[middle] -= 2 * moved
    masses[middle - 1] += moved
    masses[middle + 1] += moved
    other = CellTable(masses, table.first, bits=table.bits)
    distance = float(distance_to_rounded(other, deviation))
    assert distance == pytest.approx(2**-19, rel=1e-9)
    wider = float(distance_to_rounded(table, Fraction(301, 100)))
    edges = np.arange(-60, 62) - 0.5
    apart = np.diff(ndtr(edges / 3.01)) - np.diff(ndtr(edges / 3.0))
    assert wider == pytest.approx(np.abs(apart).sum() / 2, rel=1e-6)


@given(st.integers(0, 2**32), st.integers(1, 7))
def test_operator_norms_are_decided_exactly(seed, size):
    entries = default_rng(seed).integers(-50, 51, (9, size))
    gram = entries.T @ entries
    top = float(np.linalg.eigvalsh(gram)[-1])
    assert norm_at_most(gram, Fraction(top * (1 + 1e-9) + 1e-6))
    assert not norm_at_most(gram, Fraction(top * (1 - 1e-9) - 1e-6))
    diagonal = np.diag(np.diag(gram))
    norm = Fraction(int(diagonal.max()))
    assert norm_at_most(diagonal, norm)
    assert not norm_at_most(diagonal, norm - Fraction(1, 1 << 60))


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"adjacency": attribute(0.3), "scale": 255.0},
        {"bounds": (-7.25, 3.5)},
        {"bounds": (-900.0, 900.0)},
        {"bounds": (-0.1, 0.1), "clip": True},
        {"bounds": (5.3, 5.4), "scale": 1 / 3},
        {"scale": 1e-20},
        {"clip": True, "scale": math.pi},
        {"dim": 1, "k": 1},
        {"epsilon": 64.0},
        {"epsilon": 0.001},
    ],
    ids=str,
)
def test_other_specs_pass(changes):
    plain = {
        "method": "dp-oporp-staircase",
        "adjacency": attribute(1.0),
        "dim": 12,
        "k": 4,
        "epsilon": 0.7,
    }
    spec = Spec(**{**plain, **changes})
    assert verify(spec).failed == ()


@pytest.mark.parametrize("times", [2, 3, 5, 7])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_shares_of_repetitions_add_up_to_no_more(epsilon, times):
    spec = attribute_spec(
        "dp-signoporp-rr",
        8,
        k=times,
        epsilon=epsilon,
        variant=Repeated(times),
    )
    assert verify(spec).failed == ()


NARROW = [
    row
    for row in methods()
    if row.private and row.calibration.rounded and row.adjacencies[0] == "attribute"
]


@pytest.mark.parametrize("row", NARROW, ids=[row.name for row in NARROW])
def test_a_change_is_no_wider_than_the_bounds(row, monkeypatch):
    """A change of 1 within bounds of width 0.2 costs what one of 0.2 costs, and no less."""
    known = {"bounds": (-0.1, 0.1)}
    spec = example(row, **known)
    same = example(row, **known, adjacency=attribute(0.2))
    assert spec.grid == same.grid
    assert spec.change == same.change
    assert str(spec.guarantee.adjacency) == "attribute(beta=1)"
    rows, reach = grid_checks(spec, read_map(spec))
    assert all(check.passed for check in rows)
    ends = np.array([-0.1, 0.1])
    low, high = spec.grid.round(ends)
    assert 0.999 * reach < high - low <= reach
    monkeypatch.setattr(Spec, "change", property(lambda _: 0.95 * 0.2))
    weak = replace(spec, seed=1)
    checks, _ = grid_checks(weak, read_map(weak))
    assert not all(check.passed for check in checks)


@pytest.mark.parametrize("low", [10.929, 18.83, -8.271])
def test_square_wave_with_bounds_next_to_a_tie(low):
    """float32 rounds these bounds one grid step outside the interval."""
    width = attribute(1.0000001)
    spec = Spec(
        "raw-square-wave",
        2,
        epsilon=1.0,
        bounds=(low, low + 1),
        adjacency=width,
    )
    assert verify(spec).failed == ()


def test_a_promise_of_nothing_is_not_verified():
    with refuses("promises nothing"):
        verify(attribute_spec("none-oporp", 4))


def test_command_line(run, tmp_path):
    spec = attribute_spec("dp-signoporp-geometric", 12, k=4, epsilon=1.0)
    (tmp_path / "spec.json").write_text(spec.to_json())
    code, out, err = run("audit --exact spec.json")
    assert code == 0, err
    assert "sequential" not in out
    assert "law: ratio of neighbouring levels" in out
    assert json.loads(run("audit --exact --json spec.json")[1])["passed"] is True
