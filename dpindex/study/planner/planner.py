"""Predict what each method finds at an epsilon, from public knowledge alone, and recommend one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from dpindex.base.arrays import limited_threads, whole_number
from dpindex.base.display import Progress, no_progress
from dpindex.base.errors import InputError, NoGuaranteeError
from dpindex.data import as_source
from dpindex.mechanism.spec import Spec
from dpindex.privacy import Record
from dpindex.study.plan_options import PlanOptions
from dpindex.study.planner.attribute_neighbourhood import AttributeNeighbourhood
from dpindex.study.planner.neighbourhood import MAX_EPSILON, Neighbourhood, Request
from dpindex.study.planner.plan_result import Plan, Row
from dpindex.study.planner.public_sample import MAX_DENSE_DIM, Facts
from dpindex.study.planner.record_neighbourhood import RecordNeighbourhood

__all__ = ["plan"]

_PLANNED = ("method", "dim", "k", "epsilon")
"""Fields of a spec that a plan chooses or takes as its own."""


@limited_threads(1)  # several specs at once use the processors better than BLAS does
def plan(
    *,
    public_sample: Any | None = None,
    facts: Facts | None = None,
    groups: Any | None = None,
    public_queries: Any | None = None,
    methods: Sequence[str] | None = None,
    curves: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Plan:
    """Predict what each method would find in a collection, and recommend one.

    The mechanisms are run on public vectors that model the private ones, which are never looked at.
    Whoever passes a ``public_sample`` states that it is public: parameters that are chosen by
    looking at private data reveal something about them.

    Parameters
    ----------
    public_sample : array, sparse matrix or VectorSource, optional
        At least 500 public vectors of the collection's kind; up to 2000 of them are used,
        and of less than 524 attributes as many as have a million numbers, up to 32 768. Under
        ``adjacency=record()`` up to 65 536 of them may become codewords.
    facts : Facts, optional
        Instead of a sample.
    groups : array, shape (rows of the sample,), optional
        A label of each public vector. Vectors of one label resemble each other more than others do,
        such as captions of one picture. Queries are taken to have no siblings in the collection.
    public_queries : array, sparse matrix or VectorSource, optional
        Public vectors like the queries, where those differ from vectors of the collection.
    methods : sequence of str, optional
        Methods to consider; default all that give DP for the published projection. What promises
        less, a delta over the projection too or individual DP, must be named.
    curves : bool
        Predict the best methods at other epsilons too, from a quarter of the plan's to four times
        as much, for a plot.
    progress : callable, optional
        Called with (predictions done, predictions in all, what is predicted now).
    **options
        Two kinds of keywords. The fields of :class:`dpindex.study.plan_options.PlanOptions`:

        dim, n : int
            Attributes of a vector, [2, 2^31), or at most 4096 under ``record()`` and from facts;
            vectors in the collection, [500, 2^40].
        epsilon : float, optional
            Target epsilon.
        recall : float, optional
            Target recall@k of the true k, (0, 1), with k = ``at``. Instead of an epsilon: the plan
            is for the smallest epsilon that reaches it. With an epsilon: it is for the fewest
            candidates that do.
        candidates : int, optional
            Answers of the codes that the owner of the vectors is to put in order, [k, n]: see
            ``search(candidates=…)``. Recall is counted after that. Default under ``record()`` 1000,
            or 5 % of the collection if that is less; otherwise k, which is a search of codes alone.
        at : int
            k: answers, and true neighbours, that recall counts, [1, 50]; default 10. Methods are
            ranked by it.
        query : "exact" or "private"
            The query mode to plan for; default "exact", as of ``search``. Both are predicted.
        metric : "cosine" or "l2"
            What neighbours are ranked by, of the vectors and of their codes; default "cosine". The
            two orders differ where lengths do, as in tables. "l2" takes a dense public sample.
        max_bytes : int, optional
            Maximum size of a published code, [1, 2^20].
        skip_leak_check : bool
            Accept a sample that looks like the private vectors themselves.

        And fields of :class:`dpindex.Spec`: adjacency, scale, bounds, clip, norm, … With ``clip``
        neighbours are those of the clipped vectors. With the default delta of 0 methods that need a
        delta are not considered. Under ``record()`` the delta is for Gaussian noise of radius 2,
        which is shown for contrast.

    Raises
    ------
    InputError
        For unknown or contradictory options, terms that no method can meet, a sample that is too
        small or looks private, and a recall that no epsilon up to 64 reaches.

    >>> facts = Facts(norm=4.0, neighbour_cosine=0.9, typical_cosine=0.4)
    >>> from dpindex import attribute
    >>> outcome = plan(dim=16, n=5000, epsilon=4.0, facts=facts, bounds=(-4, 4),
    ...                adjacency=attribute(1.0), methods=["raw-staircase", "dp-signoporp-rr"])
    >>> outcome.best.method
    'raw-staircase'
    """
    _check_knowledge(public_sample, facts, groups, public_queries)
    target, terms = PlanOptions.split(options)
    whole_record = isinstance(terms.get("adjacency"), Record)
    if whole_record or facts is not None:
        _check_dense(target)
    _check_terms(terms)
    terms.setdefault("delta", 0.0)
    public = facts or as_source(public_sample, "the public sample")
    labels = None
    if groups is not None:
        labels = np.asarray(groups)
    queries = None
    if public_queries is not None:
        queries = as_source(public_queries, "the public queries")
    request = Request(target, public, terms, methods, progress or no_progress, labels, queries)
    neighbourhood: Neighbourhood
    if whole_record:
        neighbourhood = RecordNeighbourhood(request)
    else:
        neighbourhood = AttributeNeighbourhood(request)
    epsilon = target.epsilon
    if epsilon is None:
        epsilon = _smallest_epsilon(neighbourhood, request)
    rows = neighbourhood.ranked(epsilon)
    candidates = request.candidates
    if target.epsilon is not None and target.recall is not None:
        candidates = _fewest_candidates(rows, request)
        rows = tuple(sorted(rows, key=lambda row: -_recall_within(row, request, candidates)))
    contrast = neighbourhood.contrast(epsilon)
    request.progress(1, 1, "done")
    return Plan(
        rows=rows,
        query=target.query,
        n=target.n,
        at=target.at,
        metric=target.metric,
        candidates=candidates,
        shown_candidates=target.shown_candidates,
        refused=neighbourhood.refused,
        from_facts=facts is not None,
        contrast=contrast,
        sample_rows=neighbourhood.sample_rows,
        sample_in_groups=neighbourhood.sample_in_groups,
        curves=neighbourhood.curves(rows) if curves else (),
        exposure=neighbourhood.exposure(rows[0].spec),
    )


def _check_knowledge(sample: Any, facts: Facts | None, groups: Any, queries: Any) -> None:
    """Raise InputError unless a sample or facts are given, and with facts nothing of a sample."""
    if (sample is None) == (facts is None):
        raise InputError("give either a public sample or public facts to plan with.")
    if facts is not None and not (groups is None and queries is None):
        raise InputError("groups and public queries need a public sample.")


def _check_dense(target: PlanOptions) -> None:
    """Raise InputError for what plans for whole records and from facts cannot do."""
    whole_number(target.dim, "dim", 2, MAX_DENSE_DIM)
    if target.metric == "l2":
        raise InputError(
            "a plan for l2 needs a public sample, and neighbours in an attribute or a radius."
        )


def _recall_within(row: Row, request: Request, candidates: int) -> float:
    return row.found(request.options.query).recall_within(candidates)


def _fewest_candidates(rows: Sequence[Row], request: Request) -> int:
    """Return the fewest candidates among which the best spec finds the recall.

    Raises
    ------
    InputError
        If a quarter of the collection is too few.
    """
    options = request.options
    recall = options.recall or 0.0
    enough = (row.found(options.query).candidates_for(recall) for row in rows)
    fewest = min((number for number in enough if number is not None), default=None)
    if fewest is None:
        most = options.ladder[-1]
        best = max(rows, key=lambda row: _recall_within(row, request, most))
        raise InputError(
            f"a recall@{options.at} of {recall:g} is out of reach at epsilon = "
            f"{options.epsilon:g}: among {most} candidates the prediction for {best.method} is "
            f"{_recall_within(best, request, most):.2f}; ask for less, or for a larger epsilon."
        )
    return max(fewest, options.at)


def _check_terms(terms: dict[str, Any]) -> None:
    """Refuse keywords that are no fields of a spec, and under ``record()`` those of no effect."""
    accepted = {field.name for field in fields(Spec)} - set(_PLANNED)
    unknown = sorted(set(terms) - accepted)
    if unknown:
        raise InputError(f"plan has no option {', '.join(unknown)}; see help(dpindex.plan).")
    if not isinstance(terms.get("adjacency"), Record):
        return
    defaults = {field.name: field.default for field in fields(Spec)}
    changed = [
        name
        for name, value in sorted(terms.items())
        if name not in ("adjacency", "delta") and value != defaults[name]
    ]
    if changed:
        raise InputError(
            f"record-level methods take any vectors, of which the direction counts: leave "
            f"{', '.join(changed)} out."
        )


def _smallest_epsilon(neighbourhood: Neighbourhood, request: Request) -> float:
    """Return the smallest epsilon at which the best method reaches the recall, to two digits.

    Raises
    ------
    InputError
        If no epsilon does.
    """
    recall = request.options.recall or 0.0
    smallest = MAX_EPSILON
    best = neighbourhood.quick_best(smallest)
    if request.value(best) < recall:
        raise InputError(
            f"a recall@{request.options.at} of {recall:g} is out of reach: at epsilon = "
            f"{MAX_EPSILON:g} the prediction for {best.method} is {request.value(best):.2f}; "
            f"ask for less."
        )
    for stage in neighbourhood.stages():
        too_small = smallest / stage.span
        for _ in range(stage.steps):
            middle = math.sqrt(too_small * smallest)
            try:
                row = stage.row_at(middle, best)
            except NoGuaranteeError:  # noise that no code can hold
                too_small = middle
                continue
            if request.value(row) >= recall:
                smallest = middle
                best = row
            else:
                too_small = middle
    digits = 10.0 ** (1 - math.floor(math.log10(smallest)))
    return math.ceil(smallest * digits) / digits
