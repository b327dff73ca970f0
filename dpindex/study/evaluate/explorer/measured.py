"""Measuring specs of any adjacencies: one view of the report for each kind."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from dpindex.base.arrays import in_units_of_largest, row_norms, unit
from dpindex.base.errors import InputError
from dpindex.base.progress import Progress
from dpindex.data import VectorSource, as_source
from dpindex.index.queries import QueryMode
from dpindex.mechanism.spec import Spec
from dpindex.privacy import l2, record
from dpindex.study.evaluate.evaluation import MODES, Evaluation
from dpindex.study.evaluate.explorer.samples import View, examples_of
from dpindex.study.evaluate.runs_file import kept_in
from dpindex.study.measure_options import MeasureOptions

__all__ = ["measured_views"]

_SAME_NORM = 1e-3
_RECORD = "record"


def measured_views(
    base: Any,
    queries: Any,
    specs: Iterable[Spec],
    *,
    examples: int = 6,
    query_modes: Sequence[QueryMode] = MODES,
    report: str | os.PathLike[str] | None = None,
    replace_report: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> list[View]:
    """Measure specs of any adjacencies, and take examples of what the figures count.

    Specs that protect whole records (``record()``, or ``l2(2)`` at norm 1) become one view, for
    which all vectors are brought to norm 1; the others become one view for each kind of adjacency.

    Parameters
    ----------
    base, queries : array, scipy sparse matrix or VectorSource
        Shapes (n, dim) and (nq, dim). Vectors brought to norm 1 are held in memory.
    specs : iterable of Spec
        What to measure; ``none-*`` baselines show the limit without privacy. See
        :func:`dpindex.study.evaluate.spec_grid`.
    examples : int
        Queries and records to take, evenly spaced, [0, ∞).
    query_modes, report, replace_report, progress, **options
        As in :func:`dpindex.study.evaluate.recall_curve`.

    Raises
    ------
    InputError
        If there is nothing to measure, or a vector to be brought to norm 1 is zero; before
        anything is measured.

    >>> from dpindex import attribute
    >>> base = np.random.default_rng(0).random((200, 12))
    >>> specs = [Spec(method="dp-oporp-staircase", dim=12, k=6, epsilon=e,
    ...     adjacency=attribute(1.0)) for e in (1, 8)]
    >>> (view,) = measured_views(base, base[:5], specs, runs=1)
    >>> view.curve.epsilons, len(view.examples.samples)
    ((1.0, 8.0), 2)
    """
    terms = MeasureOptions.of(options)
    groups: dict[str, list[Spec]] = {}
    for spec in specs:
        groups.setdefault(_kind(spec), []).append(spec)
    if not groups:
        raise InputError("there is nothing to evaluate: give at least one spec.")
    sources = dict.fromkeys(groups, (as_source(base, "base"), as_source(queries, "queries")))
    if _RECORD in groups:
        vectors, asked = sources[_RECORD]
        sources[_RECORD] = (at_norm_1(vectors), at_norm_1(asked))
    evaluations = {
        kind: Evaluation(*sources[kind], group, query_modes, terms)
        for kind, group in groups.items()
    }
    keys = {key for evaluation in evaluations.values() for key in evaluation.keys}
    views = []
    with kept_in(report, keys, replace=replace_report) as kept:
        for kind, evaluation in evaluations.items():
            curve = evaluation.measure(kept, progress)
            chosen = None
            if examples:
                is_unit = kind == _RECORD
                chosen = examples_of(
                    curve, *sources[kind], count=examples, unit=is_unit, progress=progress
                )
            views.append(View(curve, chosen))
    return views


def _kind(spec: Spec) -> str:
    """Return the kind of adjacency: "record" for any two vectors, also of norm 1."""
    if hides_records(spec):
        return _RECORD
    return spec.adjacency.kind


def hides_records(spec: Spec) -> bool:
    """Return whether any two vectors are neighbours, once they are at norm 1."""
    return spec.adjacency == record() or (spec.adjacency == l2(2.0) and spec.norm == 1.0)


def at_norm_1(source: VectorSource) -> VectorSource:
    """Return the vectors at norm 1: the source itself if they are, or else in memory.

    Raises InputError for a zero vector, which has no direction.
    """
    unchanged = True
    for first, chunk in source.chunks():
        norms = row_norms(chunk)
        if not (norms > 0).all():
            raise InputError(
                f"{source.name}: row {first + int(np.argmin(norms))} is the zero vector, which has "
                f"no direction; leave it out, or leave the methods for whole records out."
            )
        unchanged = unchanged and bool((np.abs(norms - 1.0) < _SAME_NORM).all())
    if unchanged:
        return source
    chunks: list[Any] = [chunk for _, chunk in source.chunks()]
    if source.is_sparse:
        directions = [sparse.diags(1.0 / row_norms(chunk)) @ chunk for chunk in chunks]
        return as_source(sparse.vstack(directions), source.name)
    directions = [unit(in_units_of_largest(chunk)) for chunk in chunks]
    return as_source(np.concatenate(directions), source.name)
