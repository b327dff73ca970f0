"""The verifier that those of all laws derive from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import accumulate, takewhile
from typing import Any, ClassVar

import mpmath
import numpy as np
import numpy.typing as npt

from dpindex.audit import exact_arithmetic as exact
from dpindex.audit.decoding import Ints, Replay, Words
from dpindex.audit.replay import THIRD, Constant, Fixed
from dpindex.audit.verdict import Check, Difference, digits
from dpindex.base.arrays import AnyArray


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

    words: ClassVar[tuple[Fixed, Fixed]] = (Constant(THIRD), Constant(2 * THIRD))
    """Two sources that must lead to different outcomes at the grid integer ``start``."""

    start: int = 0

    def __init__(self, spec: Any, apart: Difference) -> None:
        self.spec = spec
        self.law = spec.law
        self.apart = apart

    def check(self) -> Check:
        """The exact check of the law."""
        return Check("law", "a law of an unknown kind", "", "there is no check of it", False)

    def replay(self) -> Iterator[Any]:
        """Whether outcomes of words at both ends of every probability were wrong, in arrays."""
        yield True

    def replay_check(self) -> Check:
        """The sampler follows the integers of the law."""
        return Check.none(
            "sampler: outcomes of replayed words",
            np.concatenate([np.ravel(faults) for faults in self.replay()]),
            "wrong",
            "words at both ends of every probability give the outcome that it belongs to",
        )

    def outcomes(self, x: Ints, words: Replay) -> AnyArray:
        """Return the release of exact integers ``x`` under these words, shape (n, k).

        Subclasses decode the words themselves. Where there is no decoder, the sampler is believed.
        """
        released: AnyArray = self.law.perturb(x.astype(np.float64), words)
        return released

    def rows_drawn(self, x: Ints, reads: Sequence[Words]) -> list[int]:
        """How many rows of ``x`` may have had their noise from these reads, the likeliest first."""
        same = takewhile(lambda read: read.dtype == reads[0].dtype, reads)
        counts = [total // x.shape[1] for total in accumulate(map(len, same))]
        return [count for count in reversed(counts) if 0 < count <= len(x)]

    def likeliest(self) -> tuple[float, float]:
        """Bounds on the chance of one value of a coordinate, and of two coordinates being equal."""
        return 1.0, 1.0

    def spread(self) -> float | None:
        """The deviation of additive noise in cells; None of other laws."""
        return None

    def characteristic(self, times: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """``|E e^{itz}|`` of additive noise z in cells."""
        return np.ones(len(times))

    def coverage_check(self) -> Check:
        """No coordinate of a code is left without noise."""
        x = np.full((3, self.spec.projection.k), float(self.start))
        one, other = (self.law.perturb(x.copy(), source) for source in self.words)
        return Check.none(
            "sampler: noise on every coordinate",
            (one == other).any(axis=0),
            "without",
            "two words that lead to different outcomes must change every coordinate",
        )

    def _ratio(self, name: str, ratio: exact.Ratio, epsilon: Fraction, theorem: str) -> Check:
        """The loss ``log(ratio)`` is at most ``epsilon``."""
        with mpmath.workprec(512):
            loss = "∞"
            if ratio[1] != 0:
                loss = digits(mpmath.log(mpmath.mpf(ratio[0]) / ratio[1]))
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
            e, mu = (mpmath.mpf(x.numerator) / x.denominator for x in (epsilon, shift))
            power = mpmath.exp(e)
            normal = mpmath.ncdf(mu / 2 - e / mu) - power * mpmath.ncdf(-mu / 2 - e / mu)
            apart = self.apart.moves.count * mpmath.mpf(distance.numerator) / distance.denominator
            # ncdf is good to nearly 320 bits; 2^-200 of slack covers that many times over.
            spent = normal + (1 + power) * apart + mpmath.ldexp(1, -200)
            passed = bool(spent <= mpmath.mpf(delta.numerator) / delta.denominator)
        return Check(
            name,
            f"δ = {digits(spent)} at ε = {digits(epsilon)}, shift of {float(shift):.9g} deviations",
            digits(delta),
            f"{note}Balle & Wang 2018, Thm 8, plus (1 + e^ε) times the distance from a normal law",
            passed,
        )
