"""Exact checks of what happens to a record before the noise, and of the release of a sketch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from fractions import Fraction
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from dpindex.arrays import AnyArray
from dpindex.audit.replay import Dealt
from dpindex.audit.verdict import Check, Difference
from dpindex.privacy import Neighbouring
from dpindex.projections import Sensitivity
from dpindex.race import PStable, RaceSketch, SketchSpec
from dpindex.race.hashes import MAX_SUM
from dpindex.randomness import PublicStream

__all__ = ["default_sketches", "sketch_checks"]

_PROBES = 12
_DIRECTION_BITS = 16
_MAX_OFFSET = 1 << 28


def default_sketches(epsilons: Iterable[float]) -> Iterator[SketchSpec]:
    """Each law of counts at every budget, under both ways of being neighbours."""
    for epsilon in epsilons:
        for neighbouring in get_args(Neighbouring):
            for delta in (0.0, 1e-6):
                yield SketchSpec(3, 10, 32, PStable(1.0, 2), epsilon, delta, neighbouring)


def sketch_checks(spec: SketchSpec) -> tuple[list[Check], Difference]:
    """Checks of the hashes and the release, and how far apart two neighbours' counts are."""
    moved = spec.rows * (2 if spec.neighbouring == "replace" else 1)
    moves, largest = Sensitivity.of_signs(moved), np.ones(1, dtype=np.int64)
    apart = Difference(Fraction(spec.epsilon), Fraction(spec.delta), moves, 0, largest)
    return [_sums_check(spec), _sensitivity_check(spec), _release_check(spec)], apart


def _sums_check(spec: SketchSpec) -> Check:
    """``|Σ a_j x_j| ≤ max|a_j|·Σ|x_j|``; the hasher refuses or scales what has a larger Σ|x_j|."""
    directions = spec.hasher.directions * 2.0**_DIRECTION_BITS
    whole = bool((directions == np.rint(directions)).all())
    most = int(np.abs(directions).max()) * int(MAX_SUM) + _MAX_OFFSET
    return Check(
        "hash: sums are exact integers",
        f"at most {most}" if whole else "directions that are no integers",
        f"2^53 = {1 << 53}",
        "sums of integers below 2^53 are exact: a record's columns depend on that record alone",
        whole and most <= 1 << 53,
    )


def _sensitivity_check(spec: SketchSpec) -> Check:
    """An experiment on the code that counts: each probe is left out once."""
    probes = _probes(spec)
    silence = np.zeros(spec.rows * spec.columns, dtype=np.int32)
    together = _released(spec, probes, silence).counts.astype(np.int64)
    wrong = []
    for i in range(len(probes)):
        moved = together - _released(spec, np.delete(probes, i, axis=0), silence).counts
        wrong.append((moved < 0).any(axis=1) | (moved.sum(axis=1) != 1))
    return Check.none(
        "sensitivity: what one record moves",
        wrong,
        "rows in which a record moves other than one count by 1",
        f"Coleman & Shrivastava 2020, Thm 3: {spec.rows} in L1, √{spec.rows} in L2 for a record "
        "more or less; a replaced one moves twice as many counts",
    )


def _release_check(spec: SketchSpec) -> Check:
    draws = np.arange(1, spec.rows * spec.columns + 1, dtype=np.int32)
    noisy, exact = (_released(spec, _probes(spec), noise) for noise in (draws, 0 * draws))
    bare = (noisy.counts.astype(np.int64) - exact.counts).ravel() != draws
    return Check.none(
        "release: noise on every count, and the promise that goes with it",
        bare | (noisy.guarantee != spec.guarantee),
        f"counts without a draw of their own and the promise {spec.guarantee}",
        "the counts are independent given the records, so their losses add up",
    )


def _released(spec: SketchSpec, records: AnyArray, draws: AnyArray) -> RaceSketch:
    """A sketch whose law draws prepared numbers."""
    prepared = copy(spec)
    law: Any = copy(spec.law)
    law.source = Dealt(draws)
    object.__setattr__(prepared, "law", law)
    return RaceSketch(prepared).fit(records).release()


def _probes(spec: SketchSpec) -> npt.NDArray[np.float64]:
    """Public records: common ones, the origin, one that is twice the same, tiny and huge ones."""
    words = PublicStream(0, "race/probes").words(_PROBES * spec.dim, np.uint32)
    probes = (words.reshape(_PROBES, spec.dim) * 2.0**-31 - 1.0) * 3.0
    probes *= spec.hash.bandwidth if isinstance(spec.hash, PStable) else 1.0
    probes[0] = 0.0
    probes[1] = probes[2]
    probes[3] *= 1e-9
    probes[4] *= 2.0**18 / spec.dim  # the farthest that PStable lets in is 2^21 bandwidths
    return probes
