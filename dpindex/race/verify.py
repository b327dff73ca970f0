"""The exact verifier of a sketch: what ships, checked link by link against what it promises.

``verify_sketch(spec)`` follows the argument from a record to the released counts:

1. *hash*: every sum is an exact integer, so no record can move another one's column;
2. *sensitivity*: a record adds 1 to one count of each row, and changes no other count;
3. *composition*: which share of epsilon (or of L2 distance) one count may cost;
4. *law*: every ratio between neighbouring values, or the normal law's delta, is within it;
5. *sampler*: replayed words give the table's outcomes, and differences are formed from two draws;
6. *release*: every count gets a draw of its own;
7. *stream*: no word is used twice.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt

from dpindex.audit.chain import stream_check
from dpindex.audit.checks import Check, ExactReport, digits
from dpindex.audit.laws import _ratio_check, worst_table_ratio
from dpindex.audit.replay import _table_faults
from dpindex.audit.rounded import distance_to_rounded, gaussian_delta
from dpindex.errors import InputError
from dpindex.noise.gaussian import optimal_sigma
from dpindex.noise.tables import CellTable
from dpindex.race.hashes import MAX_SUM, PStable
from dpindex.race.noise import CHANGES, CountNoise
from dpindex.race.sketch import RaceSketch
from dpindex.race.spec import SketchSpec
from dpindex.randomness import BitSource, PublicStream

__all__ = ["SketchReport", "default_sketches", "verify_file", "verify_sketch"]

_EPSILONS = (0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 10.0, 20.0, 50.0)
_PROBES = 12
_SIGNS = range(-4, 4)


class SketchReport(ExactReport):
    """The verdict on one sketch: every check, and how long it took (seconds)."""

    spec: SketchSpec  # type: ignore[assignment]

    def __str__(self) -> str:
        verdict = "holds" if self.passed else "DOES NOT HOLD: " + ", ".join(self.failed)
        size = f"{self.spec.rows} × {self.spec.columns} counts"
        head = f"RACE, {size}: {self.spec.guarantee}: {verdict} ({self.seconds:.2f} s)"
        return "\n".join([head, *(f"  {check}" for check in self.checks)])

    def to_json(self) -> str:
        """The report for programs."""
        return json.dumps(
            {
                "spec": self.spec.to_dict(),
                "guarantee": self.spec.guarantee.to_dict(),
                "passed": self.passed,
                "seconds": self.seconds,
                "checks": [asdict(check) for check in self.checks],
            },
            ensure_ascii=False,
        )


def verify_sketch(spec: SketchSpec) -> SketchReport:
    """Check the guarantee of ``spec`` in exact arithmetic on the integers that its release uses.

    A guarantee that does not hold is a report that says so, not an error.

    >>> from dpindex.race import SRP, SketchSpec
    >>> report = verify_sketch(SketchSpec(3, 10, 16, SRP(4), epsilon=1.0))
    >>> report.passed
    True
    >>> [check.name for check in report.checks][:2]
    ['hash: sums are exact integers', 'sensitivity: what one record moves']
    """
    started = time.perf_counter()
    sketch = _empty(spec)
    law = sketch._noise
    checks = [_sums_check(sketch), _sensitivity_check(spec)]
    checks += [_gaussian_check(spec, law) if spec.delta else _pure_check(spec, law)]
    checks += [*_sampler_checks(law), _release_check(sketch), stream_check(sketch._stream)]
    return SketchReport(spec, tuple(checks), time.perf_counter() - started)  # type: ignore[arg-type]


def verify_file(path: str | os.PathLike[str]) -> SketchReport:
    """Check the guarantee that a released sketch states; InputError if it is no sketch."""
    sketch = RaceSketch.open(path)
    if sketch.guarantee != sketch.spec.guarantee:
        raise InputError(
            f"{os.fspath(path)} was merged from several releases; verify each of them."
        )
    return verify_sketch(sketch.spec)


def default_sketches() -> Iterator[SketchSpec]:
    """Each law at twelve budgets, under both ways of being neighbours."""
    for epsilon in _EPSILONS:
        for neighbouring in CHANGES:
            for rest in ({}, {"as_published": True}, {"delta": 1e-6}):
                options: dict[str, Any] = {"neighbouring": neighbouring, **rest}
                yield SketchSpec(3, 10, 32, PStable(1.0, 2), epsilon, **options)


def _empty(spec: SketchSpec) -> RaceSketch:
    """The seam through which tests put broken sketches."""
    return RaceSketch(spec)


def _sums_check(sketch: RaceSketch) -> Check:
    """|Σ a_j x_j| ≤ max|a_j|·Σ|x_j|, and the hasher refuses or scales what has a larger Σ|x_j|."""
    directions = sketch.spec.hasher._directions
    whole = bool((directions == np.rint(directions)).all())
    most = int(np.abs(directions).max()) * int(MAX_SUM) + (1 << 28)  # offsets are below 2^28
    return Check(
        "hash: sums are exact integers",
        f"at most {most}" if whole else "directions that are no integers",
        f"2^53 = {1 << 53}",
        "sums of integers below 2^53 are exact in any order: a record's columns depend on that "
        "record alone",
        whole and most <= 1 << 53,
    )


def _sensitivity_check(spec: SketchSpec) -> Check:
    """An experiment on the code that counts: each probe is left out once."""
    probes = _probes(spec)

    def counts(records: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        return _empty(spec).fit(records)._secret()

    together = counts(probes)
    wrong = 0
    for i in range(len(probes)):
        moved = together - counts(np.delete(probes, i, axis=0))
        alone = (moved >= 0).all(axis=1) & (moved.sum(axis=1) == 1)
        wrong += int(np.count_nonzero(~alone))
    return Check(
        "sensitivity: what one record moves",
        f"other than one count by 1 in {wrong} of {len(probes) * spec.rows} rows",
        "0",
        f"Coleman & Shrivastava 2020, Thm 3: {spec.rows} in L1, √{spec.rows} in L2 for a record "
        "more or less; a replaced one moves twice as many counts",
        wrong == 0,
    )


def _probes(spec: SketchSpec) -> npt.NDArray[np.float64]:
    """Public records: common ones, the origin, one that is twice the same, tiny and huge ones."""
    words = PublicStream(0, "race/probes").words(_PROBES * spec.dim, np.uint32)
    probes = (words.reshape(_PROBES, spec.dim) * 2.0**-31 - 1.0) * 3.0
    reach = spec.hash.bandwidth if isinstance(spec.hash, PStable) else 1.0
    probes *= reach
    probes[0] = 0.0
    probes[1] = probes[2]
    probes[3] *= 1e-9
    probes[4] *= 2.0**18 / spec.dim  # the farthest that PStable lets in is 2^21 bandwidths
    return probes


def _share(spec: SketchSpec) -> Fraction:
    return Fraction(spec.epsilon) / (spec.rows * CHANGES[spec.neighbouring])


def _pure_check(spec: SketchSpec, law: CountNoise) -> Check:
    """``worst_table_ratio`` is over all neighbouring values of the unbounded table.

    Read directly (as published) the table is the law. Of two magnitudes the difference has
    ``P(k) = Σ_b g(k+b)·g(b)`` for k ≥ 0 and the same below: a ratio of g within r holds for P.
    """
    ratio = worst_table_ratio(law.table, 1) if law.table.tails else (1, 0)
    moved = spec.rows * CHANGES[spec.neighbouring]
    form = "difference of two magnitudes, term by term" if law.two_sided else "the table itself"
    return _ratio_check(
        "law: ratio of neighbouring counts",
        ratio,
        _share(spec),
        f"{form}; {moved} counts move by 1 and each may cost ε/{moved}: sequential composition",
    )


def _gaussian_check(spec: SketchSpec, law: CountNoise) -> Check:
    """Balle & Wang's delta of the normal law, plus what the table's distance from it can cost.

    Counts that do not move have the same law on both neighbours and drop out.
    """
    moved = spec.rows * CHANGES[spec.neighbouring]
    deviation = optimal_sigma(spec.epsilon, spec.delta) * math.sqrt(moved)
    table = law.table
    symmetric = not table.tails and table.masses == table.masses[::-1] and not law.two_sided
    with mpmath.workprec(320):
        mu = mpmath.sqrt(moved) / mpmath.mpf(deviation)
        distance = distance_to_rounded(table, Fraction(deviation))
        found = gaussian_delta(mu, mpmath.mpf(spec.epsilon), moved, distance)
        passed = symmetric and bool(found <= mpmath.mpf(spec.delta))
    return Check(
        "law: Gaussian noise on the counts that move",
        f"δ = {digits(found)} at ε = {digits(Fraction(spec.epsilon))}",
        digits(Fraction(spec.delta)),
        f"Balle & Wang 2018, Thm 8, at L2 distance √{moved}, in 320 bits; rounding to integers is "
        "post-processing; the table's distance from the normal law is added",
        passed,
    )


def _sampler_checks(law: CountNoise) -> Iterator[Check]:
    tried, wrong = _table_faults(law.table)
    yield Check(
        "sampler: outcomes of replayed words",
        f"{wrong} wrong of {tried}",
        "0 wrong",
        "words at both ends of every probability give the outcome that it belongs to",
        wrong == 0,
    )
    pairs = [(a, b) for a in _SIGNS for b in _SIGNS]
    first, second = np.array(pairs, dtype=np.int32).T
    dealt: Any = _Dealt([first.copy(), second.copy()])
    found = replace(law, table=dealt).sample(len(pairs), dealt)
    wanted = np.maximum(first, ~first) - np.maximum(second, ~second) if law.two_sided else first
    wrong = int(np.count_nonzero(found != wanted))
    yield Check(
        "sampler: what is made of the table's draws",
        f"{wrong} wrong of {len(pairs)}",
        "0 wrong",
        "the difference of two magnitudes, a and −1−a having magnitude a"
        if law.two_sided
        else "the draw itself",
        wrong == 0,
    )


class _Dealt:
    """In place of a table (or of a law): deals out prepared draws."""

    offset = variance = 0.0

    def __init__(self, draws: list[npt.NDArray[np.int32]]) -> None:
        self._draws = draws

    def sample(self, count: int, stream: BitSource | CellTable) -> npt.NDArray[np.int32]:
        return self._draws.pop(0)[:count]


def _release_check(sketch: RaceSketch) -> Check:
    spec = sketch.spec
    draws = np.arange(1, spec.rows * spec.columns + 1, dtype=np.int32)
    law: Any = _Dealt([draws.copy()])  # release overwrites what it is given
    exact = sketch.fit(_probes(spec))._secret().copy()
    sketch._noise = law
    bare = int(np.count_nonzero((sketch.release().counts - exact).ravel() != draws))
    promised = sketch.guarantee
    return Check(
        "release: noise on every count, and the promise that goes with it",
        f"{bare} of {exact.size} without a draw of their own; it says {promised}",
        f"0; {spec.guarantee}",
        "the counts are independent given the records, so their losses add up",
        bare == 0 and promised == spec.guarantee,
    )
