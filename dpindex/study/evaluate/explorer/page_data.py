"""What the page moves, as JSON values: figures by epsilon, and examples of what they count."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpindex.base.arrays import AnyArray, row_norms, unit
from dpindex.data import dense_rows
from dpindex.privacy import Guarantee
from dpindex.study.evaluate.curve import Curve, Point, linked_within, recall_within
from dpindex.study.evaluate.explorer.samples import FOUND, Examples, Rebuilt, Sample, View
from dpindex.study.evaluate.explorer.sheet import Sheet
from dpindex.study.evaluate.explorer.shown import Shown
from dpindex.study.linkage import LINKED
from dpindex.version import __version__

__all__ = ["page_data", "promise"]

_RECALL = f"recall@{FOUND}"
_DIGITS = 4


def page_data(views: Sequence[View], shown: Shown | None = None) -> dict[str, Any]:
    """Return everything that the page moves, as JSON values; of views with an epsilon each.

    Numbers by epsilon always; and, of views with examples, texts and one sheet of pictures.
    """
    curve = views[0].curve
    data: dict[str, Any] = {
        "version": __version__,
        "base": {"name": curve.base[0], "count": curve.base[1], "dim": curve.dim},
        "queries": {"name": curve.queries[0], "count": curve.queries[1]},
        "metric": curve.metric,
        "denoise": curve.denoise,
        "found": FOUND,
        "candidates": list(curve.candidates),
        "views": [_view(view) for view in views],
        "opens": _opening(views, shown),
        "kind": None,
    }
    chosen = [view.examples for view in views if view.examples is not None]
    if shown is not None and len(chosen) == len(views):
        _add_examples(data, views, chosen, shown)
    return data


def _opening(views: Sequence[View], shown: Shown | None) -> int:
    """Return the number of the view that the page opens on: whole records, unless of pictures.

    One coordinate of an embedding is nobody's secret; one pixel may be.
    """
    if shown is not None and shown.pictures:
        return 0
    kinds = [_adjacency(view.curve)["kind"] for view in views]
    if "record" in kinds:
        return kinds.index("record")
    return 0


def _add_examples(
    data: dict[str, Any], views: Sequence[View], chosen: Sequence[Examples], shown: Shown
) -> None:
    """Add what is shown of single vectors to the data of a page."""
    first = chosen[0]
    rows = np.unique(np.concatenate([_rows(examples) for examples in chosen]))
    number = {int(row): i for i, row in enumerate(rows)}
    originals = dense_rows(shown.base, first.records)
    pictured = rows if shown.pictures else first.records
    sheet = Sheet(shown.shape, (float(originals.min()), float(originals.max())))
    first_tile = sheet.add(dense_rows(shown.base, pictured))
    tiles = {int(row): first_tile + i for i, row in enumerate(pictured)}
    data["queries"]["shown"] = shown.query_names(first.queries)
    data["queries"]["tile"] = None
    if shown.pictures:
        data["queries"]["tile"] = sheet.add(dense_rows(shown.queries, first.queries))
    data["kind"] = shown.kind
    data["items"] = {
        "names": shown.names(rows),
        "tiles": [tiles.get(int(row)) for row in rows],
    }
    data["records"] = [number[int(row)] for row in first.records]
    sizes = row_norms(originals)
    for view, examples, lines in zip(views, chosen, data["views"], strict=True):
        lines["truth"] = [[number[int(row)] for row in line] for line in examples.truth]
        samples = {sample.spec: sample for sample in examples.samples}
        series = view.curve.series(view.curve.query_modes[0])
        for line, method in zip(series.values(), lines["methods"], strict=True):
            ordered = [samples[point.spec] for point in line]
            method["hits"] = {
                mode: [_hits(sample, mode, number) for sample in ordered]
                for mode in view.curve.query_modes
            }
            method["rebuilt"] = [
                _rebuilt(sample.rebuilt, examples, number, sheet, sizes) for sample in ordered
            ]
    data["sheet"] = sheet.to_dict()


def _rows(examples: Examples) -> AnyArray:
    """Return every row of the base that the examples of one view show."""
    found = [rows.ravel() for sample in examples.samples for rows in sample.found.values()]
    picked = [s.rebuilt.nearest for s in examples.samples if s.rebuilt is not None]
    shown = [examples.truth.ravel(), examples.records, *found, *picked]
    every: AnyArray = np.unique(np.concatenate(shown))
    return every[every >= 0]


def _view(view: View) -> dict[str, Any]:
    curve = view.curve
    return {
        "adjacency": _adjacency(curve),
        "epsilons": list(curve.epsilons),
        "queryEpsilon": curve.query_epsilon,
        "modes": list(curve.query_modes),
        "runs": curve.runs_per_point,
        "methods": [_method(curve, name) for name in curve.series(curve.query_modes[0])],
    }


def _adjacency(curve: Curve) -> dict[str, str]:
    """Return the kind of adjacency, and in words what a guarantee of this view hides."""
    adjacencies = {point.spec.guarantee.adjacency for point in curve.points}
    by_kind = {adjacency.kind: adjacency for adjacency in adjacencies}
    kind = "record" if "record" in by_kind else min(by_kind)
    return {"kind": kind, "words": by_kind[kind].describe()}


def _method(curve: Curve, name: str) -> dict[str, Any]:
    """Return one line of the charts: its figures by epsilon."""
    lines = {mode: curve.series(mode)[name] for mode in curve.query_modes}
    line = lines[curve.query_modes[0]]
    spec = line[0].spec
    within = {
        mode: [_means(points, recall_within(level)) for level in curve.candidates]
        for mode, points in lines.items()
    }
    return {
        "label": name,
        "method": spec.method,
        "summary": spec.method_row.summary,
        "definition": spec.guarantee.definition,
        "promise": promise(spec.guarantee),
        "bytes": line[0].mean["bytes_per_vector"],
        "epsilons": [point.spec.epsilon for point in line],
        "recall": {mode: _means(points, _RECALL) for mode, points in lines.items()},
        "within": within,
        "spread": {mode: _spreads(points, _RECALL) for mode, points in lines.items()},
        # The error of the best guess without codes is 1: what is missing to it was recovered.
        "exposed": [
            None if error is None else round(min(1.0, max(0.0, 1.0 - error)), _DIGITS)
            for error in _means(line, "rebuilt_error")
        ],
        "linked": _means(line, LINKED),
        "linkedWithin": [_means(line, linked_within(level)) for level in curve.candidates],
    }


def promise(guarantee: Guarantee) -> str:
    """How far the sentence about odds holds for codes with this guarantee."""
    if guarantee.definition == "none":
        return "No noise and no promise: this is the most that a search on such codes can find."
    chance = f"except with a probability governed by δ = {guarantee.delta:g}"
    if guarantee.delta_over == "projection":
        chance += ", a chance over the public projection too"
    if guarantee.definition == "iDP":
        return (
            "The odds above do not hold for it: its promise (individual differential privacy) is "
            "weaker, and vectors can be rebuilt from its codes."
        )
    if guarantee.delta:
        return f"The odds above hold {chance}."
    return "The odds above hold without exception."


def _means(line: Sequence[Point], measure: str) -> list[float | None]:
    return [_number(point.mean.get(measure, math.nan)) for point in line]


def _spreads(line: Sequence[Point], measure: str) -> list[float | None]:
    return [_number(point.std[measure]) for point in line]


def _number(value: float) -> float | None:
    """A number as JSON has it; None for NaN."""
    if math.isnan(value):
        return None
    return round(float(value), _DIGITS)


def _hits(sample: Sample, mode: Any, number: Mapping[int, int]) -> list[list[int]]:
    """The answers to each query; one that is not a true neighbour is given as −1 − item."""
    return [
        [
            number[int(row)] if hit else -1 - number[int(row)]
            for row, hit in zip(*answer, strict=True)
        ]
        for answer in zip(sample.found[mode], sample.true[mode], strict=True)
    ]


def _rebuilt(
    rebuilt: Rebuilt | None,
    examples: Examples,
    number: Mapping[int, int],
    sheet: Sheet,
    sizes: AnyArray,
) -> dict[str, Any] | None:
    if rebuilt is None:
        return None
    vectors = rebuilt.vectors
    if examples.unit:  # directions, shown as bright as the originals
        vectors = unit(vectors) * sizes[:, None].astype(np.float32)
    return {
        "tile": sheet.add(vectors),
        "cosine": [round(float(cosine), 2) for cosine in rebuilt.cosines],
        "nearest": [None if row < 0 else number[int(row)] for row in rebuilt.nearest],
    }
