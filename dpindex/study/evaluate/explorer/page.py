"""The explorer: one HTML file, for people without an installation, a server or a network."""

from __future__ import annotations

import hashlib
import json
import math
import os
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpindex.base.arrays import AnyArray, unit
from dpindex.base.errors import InputError
from dpindex.base.extras import import_extra
from dpindex.base.files import write_file
from dpindex.mechanism.spec import Spec
from dpindex.privacy import Guarantee
from dpindex.study.evaluate.curve import Point
from dpindex.study.evaluate.explorer.samples import FOUND, Rebuilt, Sample, View
from dpindex.study.evaluate.explorer.sheet import Sheet, picture_shape, strip_shape
from dpindex.vectors import VectorSource, dense_rows
from dpindex.version import __version__

__all__ = ["TITLE", "Shown", "require_libraries", "write_page"]

TITLE = "What an epsilon hides, and what it finds"

_RECALL = f"recall@{FOUND}"
_MAX_TEXT = 200
_DIGITS = 4
_FILES = Path(__file__).parent


class Shown:
    """How single vectors are shown: as pictures, by their texts, or by number or id.

    Parameters
    ----------
    base, queries : VectorSource
        The original vectors.
    image_shape : (height, width) or (height, width, 3), optional
        Shows vectors as pictures of that shape.
    texts, query_texts : sequence of str, optional
        A text for each vector of the base, and for each query.
    ids : sequence, optional
        An id for each vector of the base, shown where there are no texts.

    Raises
    ------
    InputError
        If the shape does not fit, or there is not one text for each vector.
    """

    def __init__(
        self,
        base: VectorSource,
        queries: VectorSource,
        *,
        image_shape: tuple[int, ...] | None = None,
        texts: Sequence[str] | None = None,
        query_texts: Sequence[str] | None = None,
        ids: Sequence[Any] | AnyArray | None = None,
    ) -> None:
        for source, lines in ((base, texts), (queries, query_texts), (base, ids)):
            if lines is not None and len(lines) != source.shape[0]:
                raise InputError(
                    f"{source.name} has {source.shape[0]} vectors, and there are {len(lines)} "
                    f"texts or ids; give one line for each vector."
                )
        self.base = base
        self.queries = queries
        dim = base.shape[1]
        self.pictures = image_shape is not None
        self.shape = strip_shape(dim) if image_shape is None else picture_shape(image_shape, dim)
        self.has_texts = texts is not None
        self._names = texts if texts is not None else ids
        self._query_names = query_texts

    def names(self, rows: AnyArray) -> list[str]:
        """What the vectors of some rows are called."""
        return _names(self._names, rows, "row")

    def query_names(self, rows: AnyArray) -> list[str]:
        """What the queries of some rows are called."""
        return _names(self._query_names, rows, "query")


def _names(lines: Sequence[Any] | AnyArray | None, rows: AnyArray, what: str) -> list[str]:
    if lines is None:
        return [f"{what} {row}" for row in rows]
    texts = [str(lines[row]) for row in rows]
    return [text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…" for text in texts]


def write_page(
    path: str | os.PathLike[str],
    views: Sequence[View],
    shown: Shown,
    *,
    title: str = TITLE,
    notes: Sequence[str] = (),
) -> Path:
    """Write the explorer as one HTML file, whole or not at all.

    Parameters
    ----------
    path : path
        A file that is there is replaced.
    views : sequence of View
        One for each adjacency, at least one, all of one base and the same queries.
    shown : Shown
        How vectors are shown.
    title : str
        Heading.
    notes : sequence of str
        Sentences on what was not measured.

    Raises
    ------
    InputError
        If Jinja2 or Pillow is missing, or the file cannot be written.
    """
    text = _render(title, page_data(views, shown, notes)).encode()
    place = Path(path)
    try:
        write_file(place, text)
    except OSError as error:
        raise InputError(f"{place}: {error.strerror or error}; choose another file.") from error
    return place


def page_data(views: Sequence[View], shown: Shown, notes: Sequence[str] = ()) -> dict[str, Any]:
    """Everything that the page shows, as JSON values: numbers, texts, and one sheet of pictures."""
    first = views[0]
    rows = np.unique(np.concatenate([_rows(view) for view in views]))
    number = {int(row): i for i, row in enumerate(rows)}
    originals = dense_rows(shown.base, first.records)
    pictured = rows if shown.pictures else first.records
    sheet = Sheet(shown.shape, (float(originals.min()), float(originals.max())))
    first_tile = sheet.add(dense_rows(shown.base, pictured))
    tiles = {int(row): first_tile + i for i, row in enumerate(pictured)}
    asked = None
    if shown.pictures:
        asked = sheet.add(dense_rows(shown.queries, first.queries))
    sizes = np.linalg.norm(originals.astype(np.float64), axis=1)
    curve = first.curve
    return {
        "version": __version__,
        "base": {"name": curve.base[0], "count": curve.base[1], "dim": curve.dim},
        "queries": {
            "name": curve.queries[0],
            "count": curve.queries[1],
            "shown": shown.query_names(first.queries),
            "tile": asked,
        },
        "metric": curve.metric,
        "denoise": curve.denoise,
        "found": FOUND,
        "kind": "picture" if shown.pictures else "text" if shown.has_texts else "id",
        "items": {
            "names": shown.names(rows),
            "tiles": [tiles.get(int(row)) for row in rows],
        },
        "records": [number[int(row)] for row in first.records],
        "views": [_view(view, number, sheet, sizes) for view in views],
        "notes": list(notes),
        "sheet": sheet.to_dict(),
    }


def _rows(view: View) -> AnyArray:
    """Every row of the base that one view shows."""
    found = [rows.ravel() for sample in view.samples for rows in sample.found.values()]
    picked = [s.rebuilt.nearest for s in view.samples if s.rebuilt is not None]
    every: AnyArray = np.unique(np.concatenate([view.truth.ravel(), view.records, *found, *picked]))
    return every[every >= 0]


def _view(view: View, number: Mapping[int, int], sheet: Sheet, sizes: AnyArray) -> dict[str, Any]:
    curve = view.curve
    private = [sample.spec for sample in view.samples if sample.spec.epsilon is not None]
    weakest = None
    if private:
        weakest = max(private, key=lambda spec: spec.budget)
    return {
        "adjacency": _adjacency(view),
        "epsilons": list(curve.epsilons),
        "queryEpsilon": curve.query_epsilon,
        "modes": list(curve.query_modes),
        "runs": curve.runs_per_point,
        "truth": [[number[int(row)] for row in line] for line in view.truth],
        "limits": [
            line[:1].upper() + line[1:] + "."
            for line in ([] if weakest is None else weakest.guarantee.does_not_protect(curve.dim))
        ],
        "methods": [
            _method(view, name, number, sheet, sizes) for name in curve.series(curve.query_modes[0])
        ],
    }


def _adjacency(view: View) -> dict[str, str]:
    """The kind of adjacency, and in words what a guarantee of this view hides."""
    guarantees = [s.spec.guarantee for s in view.samples]
    kinds = {guarantee.adjacency.kind for guarantee in guarantees}
    kind = "record"
    if "record" not in kinds:
        kind = min(kinds)
    stated = next(g for g in guarantees if g.adjacency.kind == kind)
    return {"kind": kind, "words": stated.adjacency.describe()}


def _method(
    view: View, name: str, number: Mapping[int, int], sheet: Sheet, sizes: AnyArray
) -> dict[str, Any]:
    """One line of the chart with its samples, all by epsilon."""
    curve = view.curve
    lines = {mode: curve.series(mode)[name] for mode in curve.query_modes}
    line = lines[curve.query_modes[0]]
    samples = {sample.spec: sample for sample in view.samples}
    ordered = [samples[point.spec] for point in line]
    spec = line[0].spec
    return {
        "label": name,
        "method": spec.method,
        "summary": spec.method_row.summary,
        "definition": spec.guarantee.definition,
        "promise": promise(spec.guarantee),
        "bytes": line[0].mean["bytes_per_vector"],
        "epsilons": [point.spec.epsilon for point in line],
        "recall": {mode: _means(points, _RECALL) for mode, points in lines.items()},
        "spread": {mode: _spreads(points, _RECALL) for mode, points in lines.items()},
        # The error of the best guess without codes is 1: what is missing to it was recovered.
        "exposed": [
            None if error is None else round(min(1.0, max(0.0, 1.0 - error)), _DIGITS)
            for error in _means(line, "rebuilt_error")
        ],
        "linked": _means(line, "linked"),
        "hits": {
            mode: [_hits(sample, mode, number) for sample in ordered] for mode in curve.query_modes
        },
        "rebuilt": [
            None if s.rebuilt is None else _rebuilt(s.rebuilt, spec, view, number, sheet, sizes)
            for s in ordered
        ],
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
    rebuilt: Rebuilt,
    spec: Spec,
    view: View,
    number: Mapping[int, int],
    sheet: Sheet,
    sizes: AnyArray,
) -> dict[str, Any]:
    vectors = rebuilt.vectors
    if view.unit:  # directions, shown as bright as the originals
        vectors = unit(vectors) * sizes[:, None].astype(np.float32)
    return {
        "tile": sheet.add(vectors),
        "cosine": [round(float(cosine), 2) for cosine in rebuilt.cosines],
        "nearest": [None if row < 0 else number[int(row)] for row in rebuilt.nearest],
    }


def _render(title: str, data: Mapping[str, Any]) -> str:
    """The page; a policy in it forbids everything but its own two scripts, style and pictures."""
    jinja = _library("jinja2")
    environment = jinja.Environment(
        loader=jinja.FileSystemLoader(_FILES),
        autoescape=True,
        undefined=jinja.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    licence = _read("uplot/LICENSE").replace("*/", "* /")
    style = _read("uplot/uPlot.min.css") + _read("page.css")
    chart = f"/*\n{licence}*/\n" + _read("uplot/uPlot.iife.min.js")
    script = _read("page.js")
    return str(
        environment.get_template("page.html.j2").render(
            title=title,
            data=jinja.utils.htmlsafe_json_dumps(data, dumps=json_text),
            style=style,
            scripts=(chart, script),
            style_hash=_hash(style),
            script_hashes=(_hash(chart), _hash(script)),
        )
    )


def json_text(data: Any, **options: Any) -> str:
    """JSON without spaces; ValueError for NaN, which JSON has not."""
    del options  # Jinja asks for sorted keys
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def require_libraries() -> None:
    """Raise InputError unless Jinja2 and Pillow are installed: check before hours of work."""
    _library("jinja2")
    _library("PIL.Image")


def _library(module: str) -> Any:
    return import_extra(module, "an explorer needs jinja2 and pillow", "eval")


def _read(name: str) -> str:
    return (_FILES / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
