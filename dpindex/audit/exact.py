"""The exact verifier: the integers that ship, checked against the epsilon that is claimed.

``verify(spec)`` follows the argument from an attribute to the published code and checks each link:

1. *grid*: one beta is at most 2^bits grid steps in the floats that run, and sums are exact;
2. *projection*: the map in use, read entry by entry, moves no more than was counted on;
3. *composition*: which share of epsilon each moved coordinate may spend, as a rational, or which
   distance all of them together have;
4. *law*: every ratio (or the hockey-stick divergence) between neighbouring values is within it;
5. *sampler*: replayed words give exactly the table's outcomes, on every coordinate;
6. *stream*: no word is used twice;
7. *definition*: what the law can prove is what the guarantee says; iDP is never DP.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from fractions import Fraction
from itertools import product

from dpindex.audit.chain import code_distance, composition_check, grid_checks, stream_check
from dpindex.audit.checks import Check, ExactReport
from dpindex.audit.laws import PROVES, Part, law_checks, law_kind
from dpindex.audit.maps import norm_check, projection_check, read_map
from dpindex.audit.replay import replay_checks
from dpindex.errors import InputError
from dpindex.method_table import Method, methods
from dpindex.privacy import attribute, l2
from dpindex.privatizer import Privatizer
from dpindex.spec import Spec

__all__ = ["default_specs", "not_covered", "uncovered", "verify"]

_EPSILONS = (0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 10.0, 20.0, 50.0)
_FEWER = (0.1, 1.0, 8.0)
_DIM = 48
_DENSE_K = 32
_DELTA = 1e-6
_NORM = 4.0


def verify(spec: Spec) -> ExactReport:
    """Check the guarantee of ``spec`` in exact arithmetic on the integers that its sampler uses.

    Raises
    ------
    InputError
        If the method promises nothing, or there is no exact check for its law or adjacency. A
        guarantee that is claimed and does not hold is a report that says so, not an error.

    >>> report = verify(Spec(method="dp-oporp-staircase", dim=6, k=2, epsilon=1.0))
    >>> report.passed
    True
    >>> [check.name for check in report.checks][:2]
    ['grid: steps of one beta', 'grid: sums are exact integers']
    """
    if (reason := uncovered(spec)) is not None:
        raise InputError(f"{spec.method} is not covered by the exact verifier: {reason}.")
    started = time.perf_counter()
    found = read_map(spec)
    checks, reach = grid_checks(spec, found)
    checks.append(projection_check(spec, found))
    square = Fraction(found.l2_squared)
    if spec.adjacency.kind == "l2":
        norm, square = norm_check(spec, found)
        checks.append(norm)
    composition, share = composition_check(spec, found.count)
    part = Part(found, share, code_distance(spec, found, square, reach))
    checks += [composition, *law_checks(spec, part), *replay_checks(spec)]
    checks += [stream_check(Privatizer(spec)._stream), _definition(spec)]
    return ExactReport(spec, tuple(checks), time.perf_counter() - started)


def uncovered(spec: Spec) -> str | None:
    """Why there is no exact check of this guarantee, or None if there is one."""
    promise = spec.guarantee
    if promise.definition == "none":
        return "it promises nothing"
    if promise.delta_over == "projection" and spec.adjacency.kind == "l2":
        return (
            "its delta is also the chance, over the public projection, that one pair of vectors is "
            "stretched too far; no map in use keeps that bound for all pairs at once"
        )
    return None


def _definition(spec: Spec) -> Check:
    promise, kind = spec.guarantee, law_kind(spec.law)
    proves = "nothing, as it is unknown" if kind is None else PROVES[kind]
    same = Fraction(promise.epsilon) == Fraction(spec.budget) and promise.delta == spec.delta
    return Check(
        "definition",
        f"the law proves {proves}",
        f"the guarantee says {promise.definition}",
        "iDP compares the actual vector with its neighbours only and is never called DP",
        promise.definition == proves and same,
    )


def default_specs() -> Iterator[Spec]:
    """Every guarantee that is covered, at budgets from 0.01 to 50: see :func:`not_covered`."""
    return (spec for spec in _candidates() if uncovered(spec) is None)


def not_covered() -> dict[str, str]:
    """Methods with a guarantee that the verifier does not cover, and why."""
    reasons = ((spec, uncovered(spec)) for spec in _candidates())
    return {spec.method: reason for spec, reason in reasons if reason is not None}


def _candidates() -> Iterator[Spec]:
    """Every method with a promise, under every adjacency, with every kind of entries."""
    for row in methods():
        if row.definition == "none":
            continue
        deltas = (
            (0.0, _DELTA)
            if row.calibration.delta == "optional"
            else (_DELTA if row.needs_delta else 0.0,)
        )
        for kind, entries, delta in product(row.adjacencies, row.family.entries or (None,), deltas):
            bounded = row.calibration.norm_bound and delta > 0
            if bounded and entries != "gaussian":
                continue
            for epsilon in _budgets(row, kind, entries):
                for times in (1, 3) if row.family.repeats else (1,):
                    yield Spec(
                        method=row.name,
                        dim=_DIM,
                        k=_DIM if row.family.keeps_all else 24 if row.family.bins else _DENSE_K,
                        epsilon=epsilon,
                        delta=delta,
                        adjacency=attribute(1.0) if kind == "attribute" else l2(2.0),
                        repetitions=times,
                        bounds=(0.0, 1.0) if row.calibration.bounded else (-1.0, 1.0),
                        entries=entries,
                        min_norm=_NORM if bounded else None,
                    )


def _budgets(row: Method, adjacency: str, entries: str | None) -> tuple[float, ...]:
    """Twelve where one coordinate moves or bits flip; fewer where the tables are large."""
    single = adjacency == "attribute" and (row.family.keeps_all or row.family.bins)
    usual = entries in (None, "rademacher")
    if row.definition == "iDP" and row.needs_delta:
        return _FEWER
    if usual and (single or row.codes == "signs"):
        return _EPSILONS
    return _FEWER if usual else (1.0,)
