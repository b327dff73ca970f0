"""Plans that hide the whole record: cap codes, codebooks and, for contrast, Gaussian noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from dpindex.base.arrays import Floats
from dpindex.base.errors import InputError, NoGuaranteeError
from dpindex.exposure.exposure import Prior, predicted_exposure
from dpindex.index.asked import QueryMode
from dpindex.mechanism.method_table import find_method
from dpindex.mechanism.method_table import methods as all_methods
from dpindex.mechanism.spec import Spec
from dpindex.privacy import l2, record
from dpindex.study.evaluate.curve import Progress
from dpindex.study.planner.plan_result import Plan, Row, nearby
from dpindex.study.planner.record_model import RecordModel, promising_subsets

__all__ = ["MAX_CODEBOOK", "record_plan"]

MAX_CODEBOOK = 1 << 16
CONTRAST = "raw-gaussian"
"""Radius 2 holds any two vectors of norm 1, so its epsilon is comparable there."""

_LENGTHS = (64, 128, 256, 512)
_SHARES, _MIN_CODEWORDS = (1, 2, 4, 8), 64
_MIN_EPSILON, _MAX_EPSILON, _STEPS = 0.5, 64.0, 8
_COMPARED = 4000


def record_plan(
    sample: Floats,
    *,
    n: int,
    epsilon: float | None,
    recall: float | None,
    at: int,
    query: QueryMode,
    delta: float,
    max_bytes: int | None,
    methods: Sequence[str] | None,
    from_facts: bool,
    rows: int,
    curves: bool,
    progress: Progress,
) -> Plan:
    """See :func:`dpindex.plan`: its arguments, checked, under the adjacency ``record``.

    ``sample`` has at most 65 536 vectors, all of which may become codewords; its source ``rows``.
    """
    names, refused = _names(methods, from_facts, delta)
    model = RecordModel(sample, n)
    dim = sample.shape[1]

    def specs(epsilon: float, quick: bool = False) -> list[Spec]:
        terms: dict[str, Any] = {"dim": dim, "epsilon": epsilon, "adjacency": record()}
        found = []
        for name in names:
            if find_method(name).family.codebook:
                sizes = {len(sample) // share for share in ((1, 4) if quick else _SHARES)}
                for size in sorted({max(_MIN_CODEWORDS, size) for size in sizes}, reverse=True):
                    book = model.codebook(min(size, len(sample)))
                    for subset in promising_subsets(size, epsilon)[-2 if quick else 0 :]:
                        found.append(Spec(name, codebook=book, subset=subset, **terms))
            else:
                found += [Spec(name, k=k, **terms) for k in ((128,) if quick else _LENGTHS)]
        return [s for s in found if max_bytes is None or s.format.max_row_bytes <= max_bytes]

    def ranked(specs: list[Spec]) -> list[Row]:
        if not specs:
            raise InputError(f"no method makes codes of at most {max_bytes} bytes.")
        rows = []
        for done, spec in enumerate(specs):
            progress(done, len(specs), f"{spec.method}, ε = {spec.budget:.3g}")
            rows.append(model.predict(spec, at))
        return sorted(rows, key=lambda row: row.found(query).recall, reverse=True)

    if epsilon is None:
        epsilon = _smallest(lambda e: ranked(specs(e, quick=True))[0], recall or 0.0, at, query)
    found = ranked(specs(epsilon))
    contrast: tuple[Row, ...] = ()
    if delta > 0:
        with suppress(NoGuaranteeError):  # noise that no code can hold
            spec = Spec(CONTRAST, dim, epsilon=epsilon, delta=delta, adjacency=l2(2.0))
            contrast = (model.predict(spec, at),)
    progress(1, 1, "done")
    lines: dict[str, list[Row]] = {}
    for e in nearby(epsilon) if curves else ():
        rows_at = found if e == epsilon else ranked(specs(e, quick=True))
        for row in {row.method: row for row in reversed(rows_at)}.values():  # the best of each
            lines.setdefault(row.method, []).append(row)
    exposed = predicted_exposure(
        found[0].spec, n, Prior.of_sample(sample[:_COMPARED], found[0].spec)
    )
    return Plan(
        tuple(found),
        query,
        n,
        at,
        refused,
        from_facts,
        contrast,
        rows,
        exposed,
        tuple(tuple(line) for line in lines.values()),
    )


def _names(
    methods: Sequence[str] | None, from_facts: bool, delta: float
) -> tuple[list[str], tuple[str, ...]]:
    """The methods that hide any two vectors, and why others are left out."""
    stated = [row.name for row in all_methods()] if methods is None else methods
    rows = [find_method(name) for name in dict.fromkeys(stated)]
    if bare := [row.name for row in rows if not row.private and methods is not None]:
        raise InputError(f"{bare[0]} is not private, so there is nothing to plan with it.")
    names, refused = [], []
    for row in rows:
        if "record" not in row.adjacencies or not row.private:
            if methods is not None and not (row.name == CONTRAST and delta > 0):
                refused.append(f"{row.name} has no guarantee under {record()}.")
        elif row.family.codebook and from_facts:
            refused.append(f"{row.name} needs a public sample: facts hold no codewords.")
        else:
            names.append(row.name)
    if not names:
        why = f": {refused[0]}" if refused else "."
        raise InputError(f"no method has a guarantee under these terms{why}")
    return names, tuple(refused)


def _smallest(best_at: Callable[[float], Row], recall: float, at: int, query: QueryMode) -> float:
    """The smallest epsilon at which the best method reaches the recall, to two digits."""
    low, high = _MIN_EPSILON, _MAX_EPSILON
    best = best_at(high)
    if best.found(query).recall < recall:
        raise InputError(
            f"a recall@{at} of {recall:g} is out of reach: at epsilon = {high:g} the prediction "
            f"for {best.method} is {best.found(query).recall:.2f}; ask for less."
        )
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        if best_at(middle).found(query).recall >= recall:
            high = middle
        else:
            low = middle
    digits = 10.0 ** (1 - math.floor(math.log10(high)))
    return math.ceil(high * digits) / digits
