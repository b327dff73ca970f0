"""``explore``: measure specs of any adjacencies, and write the page."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from dpindex.arrays import in_units_of_largest, unit
from dpindex.errors import InputError
from dpindex.estimators.denoise import Kind
from dpindex.evaluate.curve import Progress, recall_curve
from dpindex.evaluate.explorer.page import Shown, write_page
from dpindex.evaluate.explorer.samples import View, view
from dpindex.index import Metric, QueryMode
from dpindex.privacy import l2, record
from dpindex.spec import Spec
from dpindex.vectors import VectorSource, as_source

__all__ = ["explore"]


def explore(
    path: str | os.PathLike[str],
    base: Any,
    queries: Any,
    specs: Iterable[Spec],
    *,
    image_shape: tuple[int, ...] | None = None,
    texts: Sequence[str] | None = None,
    query_texts: Sequence[str] | None = None,
    count: int = 6,
    title: str = "What an epsilon hides, and what it finds",
    notes: Sequence[str] = (),
    runs: int = 1,
    query_modes: Sequence[QueryMode] = ("private", "exact"),
    neighbours: int = 50,
    metric: Metric = "cosine",
    denoise: Kind | None = None,
    max_queries: int | None = None,
    skip_leak_check: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Measure specs and write one self-contained HTML page on which epsilon is a slider.

    The page shows, by epsilon: how many true neighbours are found, how much an attacker rebuilds,
    what the guarantee means in odds, the answers to some queries, and some rebuilt records. It
    needs no server and no network. It shows originals beside reconstructions, so it is as private
    as the vectors it was made of: make it of public data before it is sent around.

    Specs that protect whole records (``record()``, or ``l2(2)`` at norm 1) become one view of the
    page, for which all vectors are brought to norm 1; the others become one view for each kind of
    adjacency. See :func:`dpindex.evaluate.recall_curve` for the parameters that are not listed.

    Parameters
    ----------
    path : path
        The HTML file; one that is there is replaced.
    base, queries : array, scipy sparse matrix or VectorSource
        Shapes (n, dim) and (nq, dim). Vectors at norm 1 are held in memory.
    specs : iterable of Spec
        What to measure; ``none-*`` baselines show the limit without privacy. See
        :func:`dpindex.evaluate.spec_grid`.
    image_shape : (height, width) or (height, width, 3), optional
        Shows vectors as pictures of that shape.
    texts, query_texts : sequence of str, optional
        A text or an id for each vector of the base, and for each query, to be shown for it.
    count : int
        Queries and records to show, evenly spaced, [1, ∞).
    title : str
        Heading of the page.
    notes : sequence of str
        Sentences on what was not measured, for example ``SpecGrid.refused``.

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
    ...     page = explore(f"{folder}/explorer.html", base, base[:5], specs)
    ...     page.read_text(encoding="utf-8")[:15]
    '<!doctype html>'
    """
    base, queries = as_source(base, "base"), as_source(queries, "queries")
    shown = Shown(base, queries, image_shape=image_shape, texts=texts, query_texts=query_texts)
    groups: dict[str, list[Spec]] = {}
    for spec in specs:
        groups.setdefault(_view_of(spec), []).append(spec)
    if not groups:
        raise InputError("there is nothing to explore: give at least one spec.")
    directions = None
    if "record" in groups:  # before hours of work on the others
        directions = _at_norm_1(base), _at_norm_1(queries)
    views: list[View] = []
    for kind, group in groups.items():
        vectors = (base, queries) if kind != "record" or directions is None else directions
        curve = recall_curve(
            *vectors,
            group,
            runs=runs,
            query_modes=query_modes,
            neighbours=neighbours,
            metric=metric,
            denoise=denoise,
            max_queries=max_queries,
            skip_leak_check=skip_leak_check,
            progress=progress,
        )
        views.append(view(curve, *vectors, count=count, unit=kind == "record", progress=progress))
    return write_page(path, views, shown, title=title, notes=notes)


def _view_of(spec: Spec) -> str:
    """The kind of adjacency: "record" for any two vectors, also of norm 1."""
    if spec.adjacency == record() or (spec.adjacency == l2(2.0) and spec.norm == 1.0):
        return "record"
    return spec.adjacency.kind


def _at_norm_1(source: VectorSource) -> VectorSource:
    """The vectors at norm 1, in memory; InputError for a zero vector, which has no direction."""
    parts: list[Any] = []
    for first, chunk in source.chunks():
        if source.is_sparse:
            norms = sparse.linalg.norm(chunk.astype(np.float64), axis=1)
            lit = norms > 0
            part = sparse.diags(1.0 / np.where(lit, norms, 1.0)) @ chunk
        else:
            part = unit(in_units_of_largest(chunk))
            lit = part.any(axis=1)
        if not lit.all():
            raise InputError(
                f"{source.name}: row {first + int(np.argmin(lit))} is the zero vector, which has "
                f"no direction; leave it out, or explore single attributes only."
            )
        parts.append(part)
    joined = sparse.vstack(parts) if source.is_sparse else np.concatenate(parts)
    return as_source(joined, source.name)
