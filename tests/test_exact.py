"""The exact verifier: what ships passes, and its lemmas agree with brute force."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from dpindex import InputError, Spec, attribute
from dpindex.audit import default_specs, verify
from dpindex.audit.bounds import exp_below
from dpindex.audit.chain import grid_checks
from dpindex.audit.laws import hockey_stick, worst_table_ratio
from dpindex.cli import app
from dpindex.noise.ladder import ladder_table
from dpindex.noise.tables import CellTable

# Their tables have thousands of cells in 128 bits: one budget is enough here.
SLOW = ("idp-signrp-g", "idp-signoporp-g")
PRIVATE = list(dict.fromkeys(spec.method for spec in default_specs()))


@given(st.fractions(0, 100, max_denominator=1000))
def test_exp_below_is_below_and_tight(x: Fraction) -> None:
    below, shift = exp_below(x)
    with mpmath.workprec(900):
        true = mpmath.exp(mpmath.mpf(x.numerator) / x.denominator)
        found = mpmath.ldexp(below, -shift)
        assert found <= true
        assert (true - found) / true < mpmath.ldexp(1, -370)


@pytest.mark.parametrize(("width", "inner"), [(1, 1), (4, 2), (5, 5), (7, 1)])
def test_the_lemma_on_unbounded_tables_agrees_with_all_pairs(width: int, inner: int) -> None:
    table = ladder_table(mpmath.mpf("0.7"), width, inner, 0)
    shift = 2 * width + 1
    half, period = 1 << 63, table.period
    side = table.masses[len(table.masses) // 2 : -1]

    def chance(z: int) -> Fraction:
        rounds, rest = divmod(z if z >= 0 else -1 - z, period)
        return Fraction(side[rest], 1 << 64) * Fraction(table.masses[-1], half) ** rounds

    reach = period + 2 * shift
    chances = {z: chance(z) for z in range(-reach, reach)}
    pairs = [(z, z + s) for z in range(-reach, reach - shift) for s in range(1, shift)]
    ratios = [chances[a] / chances[b] for a, b in pairs]
    brute = max(*ratios, *(1 / ratio for ratio in ratios))
    found = Fraction(*worst_table_ratio(table, shift - 1))
    assert found == brute


def test_hockey_stick_agrees_with_randomized_response() -> None:
    table = CellTable([3 << 62, 1 << 62], first=0)
    # P = (¾, ¼); shifted by one, all mass but P(0) has a counterpart of ¾·e^ε ≥ ¼.
    found = hockey_stick(table, 1, Fraction(1))
    assert found == max(Fraction(3, 4), Fraction(1, 4))


@pytest.mark.parametrize("name", [name for name in PRIVATE if name not in SLOW])
def test_every_shipped_law_passes(name: str) -> None:
    reports = [verify(spec) for spec in default_specs() if spec.method == name]
    assert len(reports) >= 12
    assert [(r.spec.epsilon, r.failed) for r in reports if not r.passed] == []


@pytest.mark.parametrize("name", SLOW)
def test_individual_gaussian_passes(name: str) -> None:
    spec = next(s for s in default_specs() if s.method == name and s.epsilon == 1.0)
    assert verify(spec).failed == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"adjacency": attribute(0.3), "scale": 255.0},
        {"bounds": (-7.25, 3.5)},
        {"bounds": (-900.0, 900.0)},
        {"scale": 1e-20},
        {"clip": True, "scale": math.pi},
        {"dim": 1, "k": 1},
        {"epsilon": 64.0},
        {"epsilon": 0.001},
    ],
    ids=str,
)
def test_other_specs_pass(changes: dict[str, object]) -> None:
    plain = {"method": "dp-oporp-staircase", "dim": 12, "k": 4, "epsilon": 0.7}
    assert verify(Spec(**{**plain, **changes})).failed == ()


@pytest.mark.parametrize("times", [2, 3, 5, 7])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_shares_of_repetitions_add_up_to_no_more(epsilon: float, times: int) -> None:
    spec = Spec("dp-signoporp-rr", dim=8, k=times, epsilon=epsilon, repetitions=times)
    assert verify(spec).failed == ()


@pytest.mark.parametrize("low", [10.929, 18.83, -8.271])
def test_square_wave_with_bounds_next_to_a_tie(low: float) -> None:
    """float32 rounds these bounds one grid step outside the interval."""
    width = attribute(1.0000001)
    spec = Spec("raw-square-wave", dim=2, epsilon=1.0, bounds=(low, low + 1), adjacency=width)
    assert verify(spec).failed == ()


@given(
    st.floats(1e-3, 1e3),
    st.floats(1e-6, 1e6),
    st.floats(-20, 20),
    st.floats(0, 1),
    st.floats(-1, 1),
)
def test_the_grid_lemma_holds_on_examples(
    beta: float, scale: float, place: float, size: float, other: float
) -> None:
    bounds = (-30 * beta, 30 * beta)
    spec = Spec("raw-laplace", dim=1, epsilon=1.0, scale=scale, bounds=bounds,
                adjacency=attribute(beta))  # fmt: skip
    assert all(check.passed for check in grid_checks(spec))
    x = np.array([place * beta * scale, (place + size) * beta * scale])
    if Fraction(float(x[1])) - Fraction(float(x[0])) <= Fraction(beta) * Fraction(scale):
        steps = np.diff(spec.grid.round(x))
        assert abs(steps[0]) <= 1 << spec.grid.bits


def test_a_promise_of_nothing_is_not_verified() -> None:
    with pytest.raises(InputError, match="promises nothing"):
        verify(Spec("none-oporp", dim=4))


def test_command_line(tmp_path) -> None:  # type: ignore[no-untyped-def]
    spec = Spec("dp-signoporp-geometric", dim=12, k=4, epsilon=1.0)
    path = tmp_path / "spec.json"
    path.write_text(spec.to_json())
    done = CliRunner().invoke(app, ["audit", "--exact", str(path)])
    assert done.exit_code == 0, done.output
    assert "sequential" not in done.output
    assert "law: ratio of neighbouring levels" in done.output
    done = CliRunner().invoke(app, ["audit", "--exact", "--json", str(path)])
    assert json.loads(done.output)["passed"] is True
