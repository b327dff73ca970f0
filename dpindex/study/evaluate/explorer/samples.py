"""What single queries find and what single records give back, for each spec of a curve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dpindex.base.arrays import Singles, spaced
from dpindex.base.progress import Progress, no_progress
from dpindex.data import VectorSource, dense_rows
from dpindex.index.queries import QueryMode
from dpindex.index.search_backend import Rows
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.spec import Spec
from dpindex.study.evaluate.curve import Curve
from dpindex.study.evaluate.evaluation import fit_where_possible, new_index
from dpindex.study.evaluate.grid import label
from dpindex.study.evaluate.ground_truth import ground_truth
from dpindex.study.reconstruction import (
    can_be_reconstructed,
    cosines,
    public_rows,
    reconstructor_of,
)

__all__ = ["FOUND", "Examples", "Rebuilt", "Sample", "View", "examples_of"]

FOUND = 10
"""Answers shown for each query."""


@dataclass(frozen=True, eq=False)
class Rebuilt:
    """What an attacker makes of the codes of some records.

    Attributes
    ----------
    vectors : float32 array, shape (records, dim)
        The reconstructions, in the units of the base.
    cosines : float64 array, shape (records,)
        Their cosines to the originals.
    nearest : int64 array, shape (records,)
        Row of the base nearest to each: what an attacker takes it for who has a list of all
        originals. −1 for a reconstruction that is zero.
    """

    vectors: Singles
    cosines: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
    nearest: Rows


@dataclass(frozen=True, eq=False)
class Sample:
    """One build of one spec.

    Attributes
    ----------
    spec : Spec
    found : mapping from query mode to int64 array, shape (queries, 10)
        Rows of the base, best first.
    true : mapping from query mode to bool array, shape (queries, 10)
        Whether each of them is among the ten true neighbours, ties included.
    rebuilt : Rebuilt or None
        None if the projection is too large to invert.
    """

    spec: Spec
    found: Mapping[QueryMode, Rows]
    true: Mapping[QueryMode, np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]
    rebuilt: Rebuilt | None


@dataclass(frozen=True, eq=False)
class Examples:
    """Single queries and records, and what each spec of a curve makes of them.

    Attributes
    ----------
    queries, records : int64 arrays
        Rows of the queries that are asked, and of the base that are attacked.
    truth : int64 array, shape (queries, 10)
        The true neighbours of each query, best first.
    samples : tuple of Sample
        One for each spec of the curve.
    unit : bool
        Whether reconstructions are directions, of norm 1.

    >>> rows = np.zeros(0, dtype=np.int64)
    >>> Examples(rows, rows, rows[:, None], ()).unit
    False
    """

    queries: Rows
    records: Rows
    truth: Rows
    samples: tuple[Sample, ...]
    unit: bool = False


@dataclass(frozen=True, eq=False)
class View:
    """A curve and examples of what it counts: what a report says of one kind of adjacency.

    Attributes
    ----------
    curve : Curve
    examples : Examples, optional

    >>> curve = Curve((), ("base", 9), ("queries", 2), 4, 10, "cosine", "f32", None)
    >>> View(curve).examples is None
    True
    """

    curve: Curve
    examples: Examples | None = None


def examples_of(
    curve: Curve,
    base: VectorSource,
    queries: VectorSource,
    *,
    count: int = 6,
    unit: bool = False,
    progress: Progress | None = None,
) -> Examples:
    """Build every spec of a curve once more, ask a few queries, and attack a few records.

    Parameters
    ----------
    curve : Curve
        What was measured on the same base and queries.
    base, queries : VectorSource
        As they were measured. The queries are held in memory.
    count : int
        Queries and records to show, evenly spaced, [1, ∞).
    unit : bool
        Whether reconstructions are directions; recorded in the examples.
    progress : callable, optional
        As in :func:`dpindex.study.evaluate.recall_curve`.
    """
    query_rows = spaced(curve.queries[1], count)
    records = spaced(base.shape[0], count)
    shown = dense_rows(queries, query_rows)
    originals = dense_rows(base, records)
    public = dense_rows(base, public_rows(base.shape[0], base.shape[1], records))
    truth = ground_truth(base, shown, FOUND, curve.metric)
    specs = tuple(dict.fromkeys(point.spec for point in curve.points))
    report = progress or no_progress
    samples = []
    for i, spec in enumerate(specs):
        report(i, len(specs), f"examples of {label(spec)}")
        index = new_index(spec, curve)
        encoder = Privatizer(spec, allow_unprotected=True)  # discarded, never published
        for first, chunk in base.chunks():
            index.add_codes(encoder.privatize(chunk, first_row=first))
        denoiser = fit_where_possible(index, curve.denoise)
        found: dict[QueryMode, Rows] = {
            mode: index.nearest(shown, FOUND, mode, allow_unprotected=True)
            for mode in curve.query_modes
        }
        rebuilt = None
        if can_be_reconstructed(spec):
            rebuild = reconstructor_of(spec, public, index.codes, denoiser)
            vectors = rebuild(index.codes.take(records))
            rebuilt = Rebuilt(vectors, cosines(vectors, originals), _nearest(base, vectors))
        true = {mode: truth.relevant(rows, FOUND) for mode, rows in found.items()}
        samples.append(Sample(spec, found, true, rebuilt))
    report(len(specs), len(specs), "done")
    return Examples(query_rows, records, truth.ids[:, :FOUND], tuple(samples), unit)


def _nearest(base: VectorSource, vectors: Singles) -> Rows:
    """The row of the base nearest to each vector by cosine; −1 for a zero vector."""
    nearest = np.full(len(vectors), -1, dtype=np.int64)
    lit = vectors.any(axis=1)
    if lit.any():
        nearest[lit] = ground_truth(base, vectors[lit], 1).ids[:, 0]
    return nearest
