"""Tests of codes that were released already: whether the claimed noise can be in them.

A proof or an attack is about a method, run here with fresh noise. Of codes that someone else made,
only their values are known. The tests below hold for every possible collection of vectors, so codes
that fail one were not made by the claimed law. Codes that pass may still lack noise: data that vary
as widely and as smoothly as the noise look like noise, and no test of the codes alone can tell.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from scipy import special

from dpindex.audit.law_verifiers import law_verifier
from dpindex.audit.verdict import Check, Difference, LawVerifier
from dpindex.base.arrays import AnyArray
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.projections import Projection, Sensitivity
from dpindex.mechanism.spec import Spec

_ALPHA = 1e-7
_MOST_ROWS = 1 << 17
_PAIRED_ROWS = 1500
_MOST_NUMBERS = 1 << 20
_FREQUENCIES = 48

CAVEAT = (
    "All of the above but the checks of codes is about the method, with fresh noise of this "
    "installation. That noise is in these codes cannot be shown, only that it is not: trust in "
    "codes is trust in whoever made them."
)


@dataclass(frozen=True)
class CodesReport:
    """Whether released codes are possible under the law that is claimed.

    Attributes
    ----------
    checks : tuple of Check
        Each wrong about codes that the claimed law made with probability at most 1e-7.

    >>> CodesReport(()).passed
    True
    """

    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether the codes are possible under the claimed law."""
        return all(check.passed for check in self.checks)

    def __str__(self) -> str:
        verdict = "not refuted" if self.passed else "WERE NOT MADE by the claimed law"
        return "\n".join([f"these codes: {verdict}", *(f"  {c}" for c in self.checks), CAVEAT])

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        checks = [asdict(check) for check in self.checks]
        return {"passed": self.passed, "checks": checks, "caveat": CAVEAT}


def examine(codes: Codes, spec: Spec) -> CodesReport:
    """Test whether ``codes`` can have been released under ``spec``, whatever the vectors were.

    >>> from dpindex import attribute
    >>> from dpindex.mechanism.privatizer import Privatizer
    >>> spec = Spec(method="dp-oporp-staircase", dim=6, k=2, epsilon=1.0, adjacency=attribute(1.0))
    >>> examine(Privatizer(spec).privatize(np.zeros((500, 6))), spec).passed
    True
    """
    verifier = law_verifier(spec, _nothing_apart(spec))
    rows = max(1, min(_MOST_ROWS, _MOST_NUMBERS // codes.k))
    sample = codes.take(slice(rows))
    values = np.asarray(sample.format.coordinates(sample.stored))
    max_chance, alike = verifier.likeliest()
    if max_chance >= 1.0:
        reason = "far from zero this law adds no noise that must show: any codes are possible"
        return CodesReport(
            (Check("codes: no test of this method's codes", "–", "–", reason, True),)
        )
    checks = [_frequency_check(values, max_chance), _pairs_check(values[:_PAIRED_ROWS], alike)]
    spread = verifier.spread()
    if spread is not None:
        checks.append(_spread_check(verifier, values.astype(np.float64), spread))
    return CodesReport(tuple(checks))


def _nothing_apart(spec: Spec) -> Difference:
    """No neighbours are compared here: only the law's own integers are asked for."""
    moves = Sensitivity.of_signs(1)
    if isinstance(spec.projection, Projection):
        moves = spec.projection.sensitivity
    none = Fraction(0)
    return Difference(none, none, moves, spec.grid.bits, np.ones(1, dtype=np.int64))


def _frequency_check(values: AnyArray, max_chance: float) -> Check:
    """The most frequent value of each coordinate, by Hoeffding's inequality."""
    rows, k = values.shape
    counts = [int(np.unique(column, return_counts=True)[1].max()) for column in values.T]
    tries = k * max(2, rows)
    bound = max_chance + math.sqrt(math.log(tries / _ALPHA) / (2 * rows))
    return Check(
        "codes: most frequent value of a coordinate",
        f"{max(counts)} of {rows} rows",
        f"{min(bound, 1.0):.4g} of them",
        f"given its vector, a coordinate takes no value with more than {max_chance:.4g} chance",
        bool(max(counts) <= bound * rows),
    )


def _pairs_check(values: AnyArray, alike: float) -> Check:
    """Rows that agree in many coordinates: even of equal vectors the codes differ.

    A pair agrees in t coordinates or more with at most a binomial chance p, so c of P pairs do with
    at most P·p/c (Markov's inequality). The error is divided among all t.
    """
    rows, k = values.shape
    equal = np.zeros((rows, rows), dtype=np.int32)
    for column in values.T:
        equal += column[:, None] == column[None, :]
    agreements = equal[np.triu_indices(rows, 1)]
    at_least = np.cumsum(np.bincount(agreements, minlength=k + 1)[::-1])[::-1][1:]
    expected = len(agreements) * special.bdtrc(np.arange(k), k, alike)
    with np.errstate(divide="ignore", invalid="ignore"):
        chances = np.where(at_least > 0, k * expected / at_least, 1.0)
    worst = int(np.argmin(chances))
    return Check(
        "codes: rows that agree",
        f"{at_least[worst]} of {len(agreements)} pairs in {worst + 1} of {k} coordinates or more, "
        f"chance at most {min(1.0, float(chances[worst])):.3g}",
        f"chance {_ALPHA:g}",
        f"given their vectors, two codes agree in a coordinate with at most {alike:.4g} chance",
        float(chances[worst]) >= _ALPHA,
    )


def _spread_check(verifier: LawVerifier, values: AnyArray, spread: float) -> Check:
    """``|mean e^{itc}| ≤ |φ(t)|``, the noise's own, for any vectors and every t.

    Given the vectors, codes are sums of independent noise and of integers, so the expectation is a
    mean of numbers of size one, times φ. The mean of n terms exceeds its expected size, which is at
    most ``|φ| + 1/√n``, by s with probability at most e^(−ns²/2) (McDiarmid 1989).
    """
    times = np.minimum(np.geomspace(0.3, 30.0, _FREQUENCIES) / spread, math.pi)
    limits = verifier.characteristic(times)
    worst = -math.inf
    where = ""
    tries = _FREQUENCIES * (values.shape[1] + 1)
    for t, limit in zip(times, limits, strict=True):
        means = np.exp(1j * t * values).mean(axis=0)
        for name, size, n in (
            ("all coordinates", abs(means.mean()), values.size),
            ("one coordinate", np.abs(means).max(), len(values)),
        ):
            allowed = limit + math.sqrt(2 * math.log(tries / _ALPHA) / n) + 1 / math.sqrt(n)
            if size - allowed > worst:
                worst = float(size - allowed)
                where = f"mean of {size:.4f} over {name}, where noise leaves {allowed:.4f}"
    return Check(
        "codes: spread and low-order cells",
        where,
        "no more structure than the noise leaves",
        "the sum of any vectors and the noise is no less spread than the noise, at every scale",
        bool(worst <= 0),
    )
