"""``explore``: measure specs of any adjacencies, and write the page."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from dpindex.base.arrays import AnyArray, in_units_of_largest, unit
from dpindex.base.errors import InputError
from dpindex.mechanism.spec import Spec
from dpindex.privacy import l2, record
from dpindex.study.evaluate.curve import Progress, recall_curve
from dpindex.study.evaluate.explorer.page import TITLE, Shown, require_libraries, write_page
from dpindex.study.evaluate.explorer.samples import View, view
from dpindex.vectors import VectorSource, as_source

__all__ = ["check_range", "explore", "measured_views"]


def explore(
    path: str | os.PathLike[str],
    base: Any,
    queries: Any,
    specs: Iterable[Spec],
    *,
    image_shape: tuple[int, ...] | None = None,
    texts: Sequence[str] | None = None,
    query_texts: Sequence[str] | None = None,
    ids: Sequence[Any] | AnyArray | None = None,
    title: str = TITLE,
    notes: Sequence[str] = (),
    count: int = 6,
    progress: Progress | None = None,
    **measured: Any,
) -> Path:
    """Measure specs and write one self-contained HTML page on which epsilon is a slider.

    The page shows, by epsilon: how many true neighbours are found, how much an attacker rebuilds,
    what the guarantee means in odds, the answers to some queries, and some rebuilt records. It
    needs no server and no network. It shows originals beside reconstructions, so it is as private
    as the vectors that it was made of: make it of public data before it is sent around.

    Specs that protect whole records (``record()``, or ``l2(2)`` at norm 1) become one view of the
    page, for which all vectors are brought to norm 1; the others become one view for each kind of
    adjacency.

    Parameters
    ----------
    path : path
        The HTML file; one that is there is replaced.
    base, queries : array, scipy sparse matrix or VectorSource
        Shapes (n, dim) and (nq, dim). Vectors brought to norm 1 are held in memory.
    specs : iterable of Spec
        What to measure, each kind of adjacency at two or more epsilons; ``none-*`` baselines show
        the limit without privacy. See :func:`dpindex.study.evaluate.spec_grid`.
    image_shape : (height, width) or (height, width, 3), optional
        Shows vectors as pictures of that shape.
    texts, query_texts : sequence of str, optional
        A text for each vector of the base, and for each query, to be shown for it.
    ids : sequence, optional
        An id for each vector of the base, shown where there are no texts.
    title : str
        Heading of the page.
    notes : sequence of str
        Sentences on what was not measured, for example ``SpecGrid.refused``.
    count : int
        Queries and records to show, evenly spaced, [1, ∞).
    progress : callable, optional
        As in :func:`dpindex.study.evaluate.recall_curve`.
    **measured
        Other parameters of :func:`dpindex.study.evaluate.recall_curve`: runs, neighbours, metric, …

    Returns
    -------
    The path.

    Raises
    ------
    InputError
        If there is nothing to measure, texts or shape do not fit, a vector to be brought to norm 1
        is zero, or Jinja2 or Pillow is missing.

    >>> import tempfile
    >>> base = np.random.default_rng(0).random((200, 12))
    >>> specs = [Spec(method="dp-oporp-staircase", dim=12, k=6, epsilon=e) for e in (1, 8)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = explore(f"{folder}/explorer.html", base, base[:5], specs, runs=1)
    ...     page.read_text(encoding="utf-8")[:15]
    '<!doctype html>'
    """
    require_libraries()
    base = as_source(base, "base")
    queries = as_source(queries, "queries")
    shown = Shown(
        base, queries, image_shape=image_shape, texts=texts, query_texts=query_texts, ids=ids
    )
    views = measured_views(base, queries, specs, count=count, progress=progress, **measured)
    return write_page(path, views, shown, title=title, notes=notes)


def measured_views(
    base: VectorSource,
    queries: VectorSource,
    specs: Iterable[Spec],
    *,
    count: int = 6,
    progress: Progress | None = None,
    **measured: Any,
) -> list[View]:
    """Measure specs of any adjacencies, one view for each; parameters as in :func:`explore`."""
    groups: dict[str, list[Spec]] = {}
    for spec in specs:
        groups.setdefault(_kind(spec), []).append(spec)
    check_range(groups.values())
    vectors = dict.fromkeys(groups, (base, queries))
    if "record" in groups:  # refused before hours of work on the others
        vectors["record"] = _at_norm_1(base), _at_norm_1(queries)
    views = []
    for kind, group in groups.items():
        curve = recall_curve(*vectors[kind], specs=group, progress=progress, **measured)
        unit = kind == "record"
        views.append(view(curve, *vectors[kind], count=count, unit=unit, progress=progress))
    return views


def check_range(groups: Iterable[Iterable[Spec]]) -> None:
    """InputError unless there is a group, and each has two epsilons: else nothing can be dragged.

    Called before anything is measured.
    """
    ranges = [{spec.epsilon for spec in group} - {None} for group in groups]
    if not ranges or min(map(len, ranges)) < 2:
        raise InputError(
            "an explorer needs private methods at two or more epsilons, so that there is something "
            "to drag; give more epsilons."
        )


def _kind(spec: Spec) -> str:
    """The kind of adjacency: "record" for any two vectors, also of norm 1."""
    if spec.adjacency == record() or (spec.adjacency == l2(2.0) and spec.norm == 1.0):
        return "record"
    return spec.adjacency.kind


def _at_norm_1(source: VectorSource) -> VectorSource:
    """The vectors at norm 1, in memory; InputError for a zero vector, which has no direction."""
    parts: list[Any] = []
    for first, chunk in source.chunks():
        norms = _norms(chunk)
        if not (norms > 0).all():
            raise InputError(
                f"{source.name}: row {first + int(np.argmin(norms))} is the zero vector, which has "
                f"no direction; leave it out, or leave the methods for whole records out."
            )
        parts.append(
            sparse.diags(1.0 / norms) @ chunk
            if source.is_sparse
            else unit(in_units_of_largest(chunk))
        )
    joined = sparse.vstack(parts) if source.is_sparse else np.concatenate(parts)
    return as_source(joined, source.name)


def _norms(chunk: Any) -> AnyArray:
    if sparse.issparse(chunk):
        return np.asarray(sparse.linalg.norm(chunk.astype(np.float64), axis=1))
    return np.asarray(np.linalg.norm(chunk.astype(np.float64), axis=1))
