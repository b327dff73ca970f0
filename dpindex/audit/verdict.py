"""What the exact verifier finds, link by link, and the base class of the verifiers of laws."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

import mpmath
import numpy as np
import numpy.typing as npt

from dpindex.audit import exact_arithmetic as exact
from dpindex.base.arrays import Doubles, Floats, Longs
from dpindex.base.errors import InputError
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.projections import Sensitivity
from dpindex.mechanism.spec import Spec
from dpindex.privacy import VectorAdjacency
from dpindex.race import SketchSpec

Counts = Longs


@dataclass(frozen=True)
class Check:
    """One link of the argument.

    Attributes
    ----------
    name : str
        What is checked.
    found, bound : str
        The quantity computed from the integers that run, and what it may not exceed.
    theorem : str
        Why this check, passed, gives its part of the guarantee.
    passed : bool
        Decided in exact arithmetic, never from the rounded numbers in ``found``.

    >>> Check("the sum of both", found="2", bound="3", theorem="2 ≤ 3", passed=True).passed
    True
    """

    name: str
    found: str
    bound: str
    theorem: str
    passed: bool

    @classmethod
    def none(cls, name: str, faults: npt.ArrayLike, what: str, theorem: str) -> Check:
        """The check ``name`` that none of ``faults`` is true, by a ``theorem``.

        ``what`` is the name of a fault."""
        result = f"{np.count_nonzero(faults)} of {np.size(faults)} {what}"
        return cls(name, result, "0", theorem, not np.any(faults))

    def __str__(self) -> str:
        mark = "ok  " if self.passed else "FAIL"
        return f"{mark} {self.name}: {self.found}; bound {self.bound}\n       {self.theorem}"


@dataclass(frozen=True)
class Difference:
    """The difference of two neighbours, as the checks before the noise have shown it.

    Attributes
    ----------
    epsilon, delta : Fraction
        What the noise may cost.
    moves : Sensitivity
        How many coordinates differ at most, and by how much in L1 and L2, in units of one beta (of
        a sketch: of one record).
    bits : int
        A unit is 2^bits grid steps; default one.
    largest : int array
        The most that each coordinate differs by, in units; default one.
    spread : Fraction
        The most that two coordinates are moved apart, in grid steps, where scores are compared.
    ball : Fraction, optional
        The L2 distance of projected neighbours, in grid steps, where all attributes may move.
    """

    epsilon: Fraction
    delta: Fraction
    moves: Sensitivity
    bits: int = 0
    largest: Longs = field(default_factory=lambda: np.ones(1, dtype=np.int64))
    ball: Fraction | None = None
    spread: Fraction = Fraction(0)

    @property
    def single(self) -> bool:
        """Whether neighbours differ by one unit in one coordinate."""
        return self.moves.l1 == 1 and self.ball is None

    def cells(self, cell_bits: int) -> int:
        """Cells of ``2^cell_bits`` steps that one unit is at most, whatever the dither."""
        return -(-(1 << self.bits) >> cell_bits)

    def cells_l2(self, cell_bits: int) -> Fraction:
        """Bound on the L2 distance of two neighbours' codes, in cells.

        For every fixed offset a coordinate that moves by d grid steps moves by at most ⌈d/2^m⌉
        cells. One attribute moves coordinate j by ``|w_j|·2^bits`` steps, ``|w_j|·⌈2^bits/2^m⌉``
        cells, all of them by √Σw² times that. In a ball each coordinate moves by less than one cell
        more than its share of the distance: √k in all.
        """
        if self.ball is None:
            weight = exact.above_root(Fraction(self.moves.l2_squared))
            return weight * self.cells(cell_bits)
        rounding = Fraction(0)
        if cell_bits:
            rounding = exact.above_root(Fraction(self.moves.count))
        return self.ball / (1 << cell_bits) + rounding


@dataclass(frozen=True)
class Report:
    """The verdict of several checks.

    Attributes
    ----------
    checks : tuple of Check

    >>> check = Check("the sum of both", found="4", bound="3", theorem="4 > 3", passed=False)
    >>> Report((check,)).passed
    False
    """

    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether every check holds."""
        return not self.failed

    @property
    def failed(self) -> tuple[str, ...]:
        """Names of the checks that did not hold."""
        return tuple(check.name for check in self.checks if not check.passed)

    @property
    def verdict(self) -> str:
        """The verdict in a few words."""
        if self.passed:
            return f"{len(self.checks)} checks hold"
        return f"FAILED: {', '.join(self.failed)}"

    def __str__(self) -> str:
        return "\n".join([self.verdict, *(f"  {check}" for check in self.checks)])

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        checks = [asdict(check) for check in self.checks]
        return {"passed": self.passed, "checks": checks}


@dataclass(frozen=True)
class ExactReport(Report):
    """The verdict on the guarantee of one spec, of codes or of a sketch.

    Attributes
    ----------
    checks : tuple of Check
        Every link of the argument; one that does not hold leaves no guarantee.
    spec : Spec or SketchSpec
        What was verified; ``spec.guarantee`` is what it claims.
    seconds : float
        How long it took.

    >>> from dpindex import attribute
    >>> spec = Spec("dp-oporp-staircase", dim=6, epsilon=1.0, adjacency=attribute(1.0))
    >>> print(ExactReport((), spec, seconds=0.1))
    dp-oporp-staircase: epsilon = 1 (pure DP) under attribute(beta=1): holds (0.10 s)
    """

    spec: Spec | SketchSpec
    seconds: float

    @property
    def verdict(self) -> str:
        if isinstance(self.spec, Spec):
            subject = self.spec.method
        else:
            subject = f"RACE, {self.spec.rows} × {self.spec.columns} counts"
        verdict = "holds"
        if not self.passed:
            verdict = f"DOES NOT HOLD: {', '.join(self.failed)}"
        return f"{subject}: {self.spec.guarantee}: {verdict} ({self.seconds:.2f} s)"

    def to_dict(self) -> dict[str, Any]:
        return {
            "spec": self.spec.to_dict(),
            "guarantee": self.spec.guarantee.to_dict(),
            "seconds": self.seconds,
            **super().to_dict(),
        }


def digits(x: Any) -> str:
    """22 digits of a rational or of an mpmath number, for reading only."""
    with mpmath.workprec(512):
        if isinstance(x, Fraction):
            x = exact.as_mpf(x)
        return str(mpmath.nstr(x, 22))


class LawVerifier:
    """Verifies the law of one spec; the base class is that of unknown laws, and proves nothing.

    Parameters
    ----------
    spec : Spec or SketchSpec
        Whose law it is.
    apart : Difference
        What the law has to hide.
    """

    proves: ClassVar[str] = "nothing, as it is unknown"
    """The strongest promise that the law can keep: "DP" or "iDP"."""

    composition: ClassVar[str] = "the law's check is about all of them, by their L1 or L2 distance"
    """Why the losses of the coordinates that differ add up to epsilon."""

    whole_code: ClassVar[bool] = False
    """Whether the law's check compares whole codes, so that nothing is composed."""

    def __init__(self, spec: Any, apart: Difference) -> None:
        self.spec = spec
        self.law = spec.law
        self.apart = apart

    def check(self) -> Check:
        """The exact check of the law."""
        return Check("law", "a law of an unknown kind", "", "there is no check of it", False)

    @property
    def proves_too(self) -> list[tuple[VectorAdjacency, float, float]]:
        """Adjacency, epsilon and delta of further promises that it has checks of."""
        return []

    def checks(self) -> Iterator[Check]:
        """The exact check of each promise of the law."""
        yield self.check()

    def likeliest(self) -> tuple[float, float]:
        """Bounds on the chance of one value of a coordinate, and of two coordinates being equal."""
        return 1.0, 1.0

    def record_scores(self, near: Sequence[Floats]) -> tuple[Callable[[Codes], Counts], int]:
        """What tells codes of two records apart, of a law that hides whole ones.

        ``near`` is what the law is given of the two records. Returned are a function from n codes
        to integers, shape (n, m), each larger for the second record and the first a score of the
        whole code; and m.
        """
        raise InputError(f"there is no attack on the records of {self.spec.method} yet.")

    def spread(self) -> float | None:
        """The deviation of additive noise in cells; None of other laws."""
        return None

    def characteristic(self, times: Doubles) -> Doubles:
        """``|E e^{itz}|`` of additive noise z in cells."""
        return np.ones(len(times))

    def _ratio(self, name: str, ratio: exact.Ratio, epsilon: Fraction, theorem: str) -> Check:
        """The loss ``log(ratio)`` is at most ``epsilon``."""
        with mpmath.workprec(512):  # for reading alone: integers decide
            loss = "∞"
            above, below = ratio
            if below != 0:
                loss = digits(mpmath.log(mpmath.mpf(above) / below))
        passed = exact.loss_within(ratio, epsilon)
        return Check(name, f"largest loss {loss}", digits(epsilon), theorem, passed)

    def _gaussian(self, name: str, cells: Fraction, law: exact.Normal, note: str = "") -> Check:
        """(ε, δ) where all coordinates that differ move by ``cells`` in L2.

        *Reduction.* On integers ``x + round(N) = round(x + N)``: if the noise were a rounded
        normal, a code would be post-processing of ``x + N`` in all its coordinates, and Balle &
        Wang 2018, Thm 8, holds for it in any dimension. The table is not quite a rounded normal:
        for every coordinate that differs, ``(1 + e^ε)`` times its distance from one adds to delta.
        """
        deviation, distance = law
        epsilon = self.apart.epsilon
        delta = self.apart.delta
        shift = cells / deviation
        with mpmath.workprec(320):
            e = exact.as_mpf(epsilon)
            mu = exact.as_mpf(shift)
            power = mpmath.exp(e)
            favoured = mpmath.ncdf(mu / 2 - e / mu)
            other = mpmath.ncdf(-mu / 2 - e / mu)
            apart = self.apart.moves.count * exact.as_mpf(distance)
            # ncdf is good to nearly 320 bits; 2^-200 of slack covers that many times over.
            slack = mpmath.ldexp(1, -200)
            spent = favoured - power * other + (1 + power) * apart + slack
            passed = bool(spent <= exact.as_mpf(delta))
        return Check(
            name,
            f"δ = {digits(spent)} at ε = {digits(epsilon)}, shift of {float(shift):.9g} deviations",
            digits(delta),
            f"{note}Balle & Wang 2018, Thm 8, plus (1 + e^ε) times the distance from a normal law",
            passed,
        )
