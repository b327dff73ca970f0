"""Predict what each method finds at an epsilon, by trials on public vectors, and recommend one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from dpindex.base.display import Progress, no_progress
from dpindex.base.errors import InputError, NoGuaranteeError
from dpindex.base.threads import limited_threads
from dpindex.data import Ranges, as_source
from dpindex.decode.base import Metric
from dpindex.index.search import QueryMode
from dpindex.mechanism.variants import Variant
from dpindex.privacy import Record, VectorAdjacency
from dpindex.study.candidates import SpecsToTry
from dpindex.study.comparison import MAX_EPSILON, Comparison
from dpindex.study.goal import FOUND, Goal, Measure
from dpindex.study.plan_plot import plan_png
from dpindex.study.plan_result import Plan
from dpindex.study.predictor import LAST
from dpindex.study.remarks import remarks_on
from dpindex.study.row import FoundShares, Row
from dpindex.study.sample import new_sample
from dpindex.study.sample_source import checked_queries, checked_sample, refuse_outside

__all__ = ["FoundShares", "Measure", "Plan", "Row", "plan", "plan_png"]

_MIN_EPSILON = 0.05
# Bisections of epsilon: the ratio of the ends, their number, and whether denoisers are fitted.
_BISECTIONS = ((MAX_EPSILON / _MIN_EPSILON, 6, False), (4.0, 6, True))


@limited_threads(1)  # several specs at once use the processors better than BLAS does
def plan(
    public: Any,
    *,
    n: int,
    adjacency: VectorAdjacency,
    epsilon: float | None = None,
    recall: float | None = None,
    candidates: int | str | None = None,
    at: int = FOUND,
    query: QueryMode = "exact",
    metric: Metric = "cosine",
    max_bytes: int | None = None,
    methods: Sequence[str] | None = None,
    groups: Any | None = None,
    public_queries: Any | None = None,
    scale: float = 1.0,
    ranges: Ranges | None = None,
    bounds: tuple[float, float] = (-1.0, 1.0),
    clip: bool = False,
    norm: float | None = None,
    delta: float = 0.0,
    record_epsilon: float | None = None,
    seed: int = 0,
    variant: Variant = Variant(),  # noqa: B008 (frozen)
    curves: bool = False,
    skip_leak_check: bool = False,
    progress: Progress | None = None,
) -> Plan:
    """Predict what each method would find in a collection, and recommend one.

    Codes of public vectors are built and searched as the evaluator does it with the vectors
    themselves, which are never looked at. Whoever passes vectors as ``public`` states that they
    are: parameters that are chosen by looking at private data reveal something about them.

    Parameters
    ----------
    public : array, sparse matrix or VectorSource, shape (m, dim)
        At least 500 public vectors of the collection's kind, with dim in [2, 2^31), or at most 4096
        under ``record()``. Up to 2000 of them are used, and of less than 524 attributes as many as
        have a million numbers, up to 8192. Under ``adjacency=record()`` up to 65 536 of them may
        become codewords.
    n : int
        Vectors in the collection, [500, 2^40].
    adjacency : Attribute, L2 or Record
        What neighbouring vectors may differ in: the promise.
    epsilon : float, optional
        Target epsilon.
    recall : float, optional
        Target recall@k of the true k, (0, 1), with k = ``at``. Instead of an epsilon: the plan is
        for the smallest epsilon that reaches it. With an epsilon: for the fewest candidates that
        do.
    candidates : int or str, optional
        Answers of the codes that the holder is to put in order, [k, n], or a share of the
        collection such as "5%": see ``search(candidates=…)``. Recall is counted after that. Default
        under ``record()`` 1000, or 5 % of the collection if that is less; otherwise k, a search of
        codes alone.
    at : int
        k: answers, and true neighbours, that recall counts, [1, 50]. Methods are ranked by it.
    query : "exact" or "private"
        The query mode to plan for. Both are predicted.
    metric : "cosine" or "l2"
        What neighbours are ranked by, of the vectors and of their codes. The two orders differ
        where lengths do, as in tables. "l2" takes a dense public sample.
    max_bytes : int, optional
        Maximum size of a published code, [1, 2^20].
    methods : sequence of str, optional
        Methods to consider; default all that give DP for the published projection. What only
        papers name (``dpindex methods --all``), and what promises less, a delta over the projection
        too or individual DP, must be named.
    groups : array, shape (m,), optional
        A label of each public vector. Vectors of one label resemble each other more than others do,
        such as captions of one picture. Queries are taken to have no siblings in the collection,
        and to be like the vector in the middle of a group. At least 100 groups. By default they
        are found, if rows come in whole groups of near-copies. If it cannot be told whether they
        do, the plan says so, and its range covers both.
    public_queries : array, sparse matrix or VectorSource, optional
        Public vectors like the queries, where those differ from vectors of the collection.
    ranges, scale, bounds, clip, norm, delta, record_epsilon, seed, variant : optional
        As of :class:`dpindex.Spec`. With ``clip`` neighbours are those of the clipped vectors. With
        a delta of 0 methods that need one are not considered. Under ``record()`` the delta is for
        Gaussian noise of radius 2, which is shown for contrast, and the others must be left out.
    curves : bool
        Predict the best methods at other epsilons too, from a quarter of the plan's to four times
        as much, for a plot.
    skip_leak_check : bool
        Accept a sample that looks like the private vectors themselves.
    progress : callable, optional
        Called with (predictions done, predictions in all, what is predicted now).

    Raises
    ------
    InputError
        For contradictory options, terms that no method can meet, a sample that is too small or
        looks private, and a recall that no epsilon up to 64 reaches.

    >>> import numpy as np
    >>> from dpindex import attribute
    >>> public = np.random.default_rng(0).uniform(-1, 1, (600, 16))
    >>> outcome = plan(public, n=5000, epsilon=60.0, adjacency=attribute(1.0),
    ...                methods=["raw-staircase", "dp-signoporp-rr"])
    >>> outcome.spec.method
    'raw-staircase'
    """
    source = as_source(public, "the public sample")
    dim = source.shape[1]
    goal = Goal(
        dim, n, adjacency, epsilon, recall, candidates, at, query, metric, max_bytes, methods
    )
    terms = {
        "scale": scale,
        "bounds": bounds,
        "clip": clip,
        "norm": norm,
        "delta": delta,
        "record_epsilon": record_epsilon,
        "seed": seed,
        "variant": variant,
    }
    checked_sample(source, n, skip_leak_check)
    sources = [source]
    if public_queries is not None:
        sources.append(checked_queries(public_queries, dim))
    deciding: tuple[tuple[str, float], ...] = ()
    if ranges is not None:
        deciding = tuple(ranges.deciding(source))
        sources = [ranges.source(each) for each in sources]
    if not clip and not isinstance(adjacency, Record):
        for each in sources:
            refuse_outside(each, bounds, scale)
    if clip and adjacency.largest_change(bounds) == adjacency.size:
        sources = [each.clipped(scale * bounds[0], scale * bounds[1]) for each in sources]
    sample = new_sample(goal, groups, *sources)
    to_try = SpecsToTry(goal, terms, sources[0], sample)
    comparison = Comparison(goal, to_try, sample, progress or no_progress)
    chosen = epsilon or _smallest_epsilon(comparison, goal, recall or 0.0)
    rows = comparison.ranked(chosen)
    if epsilon is not None and recall is not None:
        fewest = _fewest_candidates(rows, goal, recall, epsilon)
        goal = replace(goal, recall=None, candidates=fewest)
        rows = tuple(goal.ranked(rows))
    best = rows[0]
    tried = comparison.predictor.promised_of(best, sample).vectors.shape[0]
    sample.forget()
    published = (replace(best, spec=to_try.published(best.spec)), *rows[1:])
    if ranges is not None:  # a promise counts in ranges, and not in the units of the data
        published = tuple(replace(row, spec=row.spec.with_ranges(ranges)) for row in published)
    remarks = remarks_on(
        published[0],
        goal,
        sample,
        tried=tried,
        public_rows=source.shape[0],
        narrowed=best.spec.bounds != bounds,
        deciding=deciding,
    )
    return Plan(
        goal,
        published,
        tuple(to_try.refused),
        tuple(remarks),
        contrast=comparison.contrast(chosen),
        attacks=comparison.predictor.attacks(best),
        curves=comparison.curves(rows) if curves else (),
    )


def _fewest_candidates(rows: Sequence[Row], goal: Goal, recall: float, epsilon: float) -> int:
    """Return the fewest candidates among which the best spec finds the recall.

    Raises
    ------
    InputError
        If a quarter of the collection is too few.
    """
    every = [row.found(goal.query).candidates_for(recall) for row in rows]
    enough = [number for number in every if number is not None]
    if enough:
        return max(min(enough), goal.at)
    of_most = replace(goal, recall=None, candidates=goal.ladder[-1])
    best = of_most.ranked(rows)[0]
    raise _out_of_reach(of_most, recall, epsilon, best, "a larger epsilon")


def _smallest_epsilon(comparison: Comparison, goal: Goal, recall: float) -> float:
    """Return the smallest epsilon at which the best method reaches the recall, to two digits.

    Raises
    ------
    InputError
        If no epsilon does.
    """
    smallest = MAX_EPSILON
    best = comparison.quick_best(smallest)
    if goal.value(best) < recall:
        raise _out_of_reach(goal, recall, smallest, best, "more candidates")
    for span, steps, denoise in _BISECTIONS:
        too_small = smallest / span
        for _ in range(steps):
            middle = math.sqrt(too_small * smallest)
            value = 0.0
            with suppress(NoGuaranteeError):  # noise that no code can hold
                best = comparison.quick_best(middle)
                again = comparison.predictor.again(best, LAST, "auto" if denoise else None)
                value = goal.value(again)
            if value >= recall:
                smallest = middle
            else:
                too_small = middle
    digits = 10.0 ** (1 - math.floor(math.log10(smallest)))
    return math.ceil(smallest * digits) / digits


def _out_of_reach(goal: Goal, recall: float, epsilon: float, best: Row, remedy: str) -> InputError:
    return InputError(
        f"a recall@{goal.at} of {recall:g} is out of reach at epsilon = {epsilon:g}: among "
        f"{goal.counted_candidates} candidates the prediction for {best.method} is "
        f"{goal.value(best):.2f}; ask for less, or for {remedy}."
    )
