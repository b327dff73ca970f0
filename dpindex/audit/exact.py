"""The exact verifier: the integers that ship, checked against the epsilon that is claimed.

``verify(spec)`` follows the argument from an attribute to the published code and checks each link:

1. *grid*: one beta is at most 2^bits grid steps in the floats that run, and sums are exact;
2. *projection*: the realised map moves one coordinate per repetition by ±1, or all by ±1;
3. *composition*: which share of epsilon each moved coordinate may spend, as a rational;
4. *law*: every ratio (or the hockey-stick divergence) between neighbouring values is within it;
5. *sampler*: replayed words give exactly the table's outcomes, on every coordinate;
6. *stream*: no word is used twice;
7. *definition*: what the law can prove is what the guarantee says; iDP is never DP.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from fractions import Fraction

from dpindex.audit.chain import composition_check, grid_checks, projection_check, stream_check
from dpindex.audit.checks import Check, ExactReport
from dpindex.audit.laws import PROVES, law_checks, law_kind
from dpindex.audit.replay import replay_checks
from dpindex.errors import InputError
from dpindex.methods import methods
from dpindex.noise import IndividualFlips
from dpindex.privatizer import Privatizer
from dpindex.projections import Identity, Oporp, Rademacher
from dpindex.spec import Spec

__all__ = ["default_specs", "verify"]

DEFAULT_EPSILONS = (0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 10.0, 20.0, 50.0)
_DIM = 48
_DENSE_K = 32
_DELTA = 1e-6


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
    promise = spec.guarantee
    if promise.definition == "none":
        raise InputError(f"{spec.method} promises nothing: there is no guarantee to verify.")
    started = time.perf_counter()
    kind = law_kind(spec.law)
    if kind is None or not _covered(spec):
        raise InputError(f"there is no exact check of {spec.method} as stated here yet.")
    checks = grid_checks(spec)
    projection, moved = projection_check(spec)
    composition, share = composition_check(spec, moved)
    checks += [projection, composition, *law_checks(spec, share), *replay_checks(spec)]
    checks += [stream_check(Privatizer(spec)._stream), _definition(spec, PROVES[kind])]
    return ExactReport(spec, tuple(checks), time.perf_counter() - started)


def _covered(spec: Spec) -> bool:
    """Whether the lemmas in use reach this projection with this law.

    They are about ±1 entries: one coordinate for each attribute, or all of them with pure flips.
    """
    if isinstance(spec.projection, Rademacher):
        return spec.row.kind == "bits" and spec.min_norm is None
    if isinstance(spec.law, IndividualFlips):  # its check is about a neighbour moving all signs
        return False
    return isinstance(spec.projection, Identity | Oporp)


def _definition(spec: Spec, proves: str) -> Check:
    promise = spec.guarantee
    same = Fraction(promise.epsilon) == Fraction(spec.budget) and promise.delta == spec.delta
    return Check(
        "definition",
        f"the law proves {proves}",
        f"the guarantee says {promise.definition}",
        "iDP compares the actual vector with its neighbours only and is never called DP",
        promise.definition == proves and same,
    )


def default_specs() -> Iterator[Spec]:
    """Every method that is covered, at twelve budgets from 0.01 to 50, and one of them split."""
    for row in methods():
        if row.definition == "none" or "attribute" not in row.adjacencies or row.norm_bound:
            continue
        for epsilon in DEFAULT_EPSILONS:
            for times in (1, 3) if row.repeats else (1,):
                spec = Spec(
                    method=row.name,
                    dim=_DIM,
                    k=_DIM if row.fixed_k else 24 if row.bins else _DENSE_K,
                    epsilon=epsilon,
                    delta=_DELTA if row.needs_delta else 0.0,
                    repetitions=times,
                    bounds=(0.0, 1.0) if row.bounded else (-1.0, 1.0),
                    entries="rademacher" if "rademacher" in row.entries else None,
                )
                if _covered(spec):
                    yield spec
