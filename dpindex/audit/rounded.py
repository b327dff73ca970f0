"""Exact checks of Gaussian noise that moves many coordinates at once.

*Reduction.* On integers ``x + round(N) = round(x + N)``: if the noise were a rounded normal, a code
would be post-processing of ``x + N`` in all its coordinates, and Balle & Wang 2018, Thm 8, holds
for it at the L2 distance of two neighbours, in any dimension. The table is not quite a rounded
normal: its distance from one, in total variation, is computed in exact integers and high precision,
and each of k coordinates adds ``(1 + e^ε)`` times that to delta. Which normal law is compared with
does not matter to the proof: it has the deviation of the table itself.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import mpmath
import numpy as np

from dpindex.audit.checks import Check, above_root, digits
from dpindex.noise.individual import IndividualGaussian
from dpindex.noise.tables import CellTable
from dpindex.noise.two_digit import TwoDigitGaussian
from dpindex.spec import Spec

__all__ = ["distance_to_rounded", "gaussian_check", "gaussian_delta", "individual_gaussian_check"]

_WORK = 64


def gaussian_check(spec: Spec, law: Any, cells: Fraction) -> Check:
    """(ε, δ) of a whole code whose neighbours are at most ``cells`` apart in L2."""
    tables, deviation = _normal_law(law)
    distance = sum((part for part in tables), Fraction(0))
    return _check(
        "law: Gaussian on the whole code",
        spec,
        cells / deviation,
        distance,
        "Balle & Wang 2018 Thm 8 at the realised L2 distance, as post-processing of the continuous "
        "mechanism, plus k(1 + e^ε) times the table's distance from a rounded normal law",
    )


def individual_gaussian_check(spec: Spec, law: IndividualGaussian, moved: int) -> Check:
    table = law.table
    sizes = np.minimum(np.arange(1, spec.code_length + 1), moved)
    multipliers = np.floor(law.deviation / (law.sigma * np.sqrt(sizes))).astype(np.int64)
    # The largest L2 shift that any size of A makes; no more than ``moved`` of A move.
    most = max(int(m) ** 2 * int(n) for m, n in zip(multipliers, sizes, strict=True))
    deviation = Fraction(law.deviation)
    check = _check(
        "law: Gaussian inside A, worst size of A",
        spec,
        above_root(Fraction(most)) / deviation,
        distance_to_rounded(table, deviation),
        "iDP only (Li & Li 2023, Def. 2.6, Thm 6.1): A is held fixed at the actual vector; "
        "Balle & Wang 2018 Thm 8 in 320 bits plus the table's distance from the normal law",
    )
    enough = law.changes >= moved
    return check if enough else replace(check, passed=False)


def gaussian_delta(mu: Any, epsilon: Any, coordinates: int, distance: Fraction) -> Any:
    """Delta at ``epsilon`` of tables at a ``distance`` from normal laws, ``mu`` deviations apart.

    Numbers of mpmath, in the precision that the caller has set.
    """
    power = mpmath.exp(epsilon)
    normal = mpmath.ncdf(mu / 2 - epsilon / mu) - power * mpmath.ncdf(-mu / 2 - epsilon / mu)
    rounding = coordinates * (1 + power) * mpmath.mpf(distance.numerator)
    # ncdf is good to nearly 320 bits; 2^-200 of slack covers that many times over.
    return normal + rounding / distance.denominator + mpmath.ldexp(1, -200)


def _check(name: str, spec: Spec, shift: Fraction, distance: Fraction, theorem: str) -> Check:
    epsilon, delta = Fraction(spec.guarantee.epsilon), Fraction(spec.guarantee.delta)
    with mpmath.workprec(320):
        mu = mpmath.mpf(shift.numerator) / shift.denominator
        found = gaussian_delta(mu, mpmath.mpf(float(epsilon)), spec.code_length, distance)
        passed = bool(found <= mpmath.mpf(float(delta)))
    text = f"δ = {digits(found)} at ε = {digits(epsilon)}, shift of {float(shift):.9g} deviations"
    return Check(name, text, digits(delta), theorem, passed)


def _normal_law(law: Any) -> tuple[list[Fraction], Fraction]:
    """Distances that add up to that of the noise from a rounded normal, and its deviation."""
    source = law.source
    if isinstance(source, CellTable):
        deviation = above_root(_variance(source) - Fraction(1, 12))  # Sheppard
        return [distance_to_rounded(source, deviation)], deviation
    assert isinstance(source, TwoDigitGaussian)
    base = 1 << source.digit
    coarse = above_root(_variance(source.coarse))
    fine = above_root(_variance(source.fine) - Fraction(1, 12))
    deviation = above_root((coarse * base) ** 2 + fine**2)
    # L·C + N has the density of N(0, σ²) times 1 ± 5·e^{−2π²s²}, s = σ₁σ₂/σ: see TwoDigitGaussian.
    share = coarse * fine / deviation
    with mpmath.workprec(128):
        s = mpmath.mpf(share.numerator) / share.denominator
        smooth = mpmath.ldexp(5 * mpmath.exp(-2 * mpmath.pi**2 * s**2), 512)
        apart = Fraction(int(mpmath.ceil(smooth)) + 1, 1 << 512)
    parts = [apart, _distance_to_discrete(source.coarse, coarse)]
    return [*parts, distance_to_rounded(source.fine, fine)], deviation


def _variance(table: CellTable) -> Fraction:
    """Of a table about 0; one that is not symmetric is at some distance from any normal law."""
    values = range(table.first, table.first + len(table.masses))
    total = sum(v * v * mass for v, mass in zip(values, table.masses, strict=True))
    return Fraction(total, 1 << table.bits)


def _side(table: CellTable) -> tuple[tuple[int, ...], int] | None:
    """Masses of 0, 1, 2, … of a bounded symmetric table; None for any other."""
    reach = len(table.masses) // 2
    fits = table.first == -reach and not table.tails and table.masses == table.masses[::-1]
    return (table.masses[reach:], table.bits) if fits else None


def distance_to_rounded(table: CellTable, deviation: Fraction) -> Fraction:
    """Total variation between a table and the rounded normal law; 1 for a table of another form."""
    side = _side(table)
    return Fraction(1) if side is None else _to_rounded(*side, deviation)


def _distance_to_discrete(table: CellTable, deviation: Fraction) -> Fraction:
    side = _side(table)
    return Fraction(1) if side is None else _to_discrete(*side, deviation)


@lru_cache(maxsize=32)
def _to_rounded(side: tuple[int, ...], bits: int, deviation: Fraction) -> Fraction:
    """Total variation between a symmetric table and the rounded normal law, in exact 2^-bits."""
    reach = len(side) - 1
    with mpmath.workprec(bits + _WORK):
        scale = mpmath.sqrt(2) * deviation.numerator / deviation.denominator
        upper = [mpmath.ldexp(mpmath.erfc((z - 0.5) / scale), bits - 1) for z in range(reach + 2)]
        off = [abs(side[z] - (upper[z] - upper[z + 1])) for z in range(1, reach + 1)]
        centre = abs(side[0] - (mpmath.ldexp(1, bits) - 2 * upper[1]))
        total = 2 * (mpmath.fsum(off) + upper[reach + 1]) + centre
        return Fraction(int(mpmath.ceil(total)) + 1, 1 << (bits + 1))


@lru_cache(maxsize=32)
def _to_discrete(side: tuple[int, ...], bits: int, deviation: Fraction) -> Fraction:
    """The same from the discrete normal law ``P(c) ∝ e^{−c²/2σ²}``."""
    with mpmath.workprec(bits + _WORK):
        sigma = mpmath.mpf(deviation.numerator) / deviation.denominator
        scale = -1 / (2 * sigma**2)
        weights = [mpmath.exp(scale * (c * c)) for c in range(len(side))]
        last = len(side)
        # Beyond the table the weights fall faster than a geometric series.
        beyond = mpmath.exp(scale * last**2) / -mpmath.expm1(scale * (2 * last + 1))
        whole = weights[0] + 2 * (mpmath.fsum(weights[1:]) + beyond)
        unit = mpmath.ldexp(1, bits) / whole
        off = [abs(mass - unit * weight) for mass, weight in zip(side, weights, strict=True)]
        total = off[0] + 2 * (mpmath.fsum(off[1:]) + 2 * unit * beyond)
        return Fraction(int(mpmath.ceil(total)) + 1, 1 << (bits + 1))
