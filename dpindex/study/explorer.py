"""What moves on the page of a report: figures by epsilon, single vectors and their pictures.

The originals that are shown are as private as they are: make a page of public data before it is
sent around.
"""

from __future__ import annotations

import io
import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpindex.base.arrays import AnyArray, Doubles, row_norms, unit
from dpindex.base.errors import InputError, import_extra
from dpindex.data import VectorSource, dense_rows
from dpindex.data.source import check_one_each
from dpindex.index.search import QueryMode
from dpindex.privacy import Guarantee
from dpindex.study.curve import Curve, Point, recall_within
from dpindex.study.examples import ANSWERS, ExampleBuild, Examples
from dpindex.study.specs import common_adjacency, hides_records
from dpindex.study.trial import LINKED
from dpindex.version import __version__

NEED = "a report needs jinja2 and pillow"
"""What an error says about a missing library."""

_DIGITS = 4
_MAX_TEXT = 200
_MAX_SIDE = 32
_MAX_STRIPES = 64
MAX_PNG_BYTES = 2_500_000


@dataclass(frozen=True, eq=False)
class Shown:
    """How single vectors are shown: as pictures, by their texts, or by number or id.

    Attributes
    ----------
    base, queries : VectorSource
        The original vectors.
    image_shape : (height, width) or (height, width, 3), optional
        Shows vectors as pictures of that shape; otherwise as a stripe for each of the first 64
        attributes.
    texts, query_texts : sequence of str, optional
        A text for each vector of the base, and for each query.
    ids : sequence, optional
        An id for each vector of the base, shown where there are no texts.

    Raises
    ------
    InputError
        If the shape does not fit, or there is not one text for each vector.

    >>> from dpindex.data import as_source
    >>> vectors = as_source(np.eye(3))
    >>> Shown(vectors, vectors, texts=["one", "two", "three"]).names(np.array([2]))
    ['three']
    """

    base: VectorSource
    queries: VectorSource
    image_shape: tuple[int, ...] | None = None
    texts: Sequence[str] | None = None
    query_texts: Sequence[str] | None = None
    ids: Sequence[Any] | AnyArray | None = None

    def __post_init__(self) -> None:
        check_one_each(self.base, self.texts, "texts")
        check_one_each(self.queries, self.query_texts, "texts")
        check_one_each(self.base, self.ids, "ids")
        shape = self.image_shape
        if shape is None:
            return
        named = "x".join(map(str, shape))
        if len(shape) < 2 or min(shape) < 1 or shape[2:] not in ((), (3,)):
            raise InputError(
                f"the shape of an image is HEIGHTxWIDTH or HEIGHTxWIDTHx3, not {named}."
            )
        dim = self.base.shape[1]
        values = math.prod(shape)
        if values != dim:
            raise InputError(
                f"an image of {named} has {values} values and a vector has {dim} attributes; "
                f"state the shape of your images."
            )

    @property
    def kind(self) -> str:
        """What stands for a vector: "picture", "text" or "id"."""
        if self.image_shape is not None:
            return "picture"
        return "id" if self.texts is None else "text"

    @property
    def tile_shape(self) -> tuple[int, ...]:
        """The shape of what is drawn of a vector."""
        return self.image_shape or (1, min(self.base.shape[1], _MAX_STRIPES))

    def names(self, rows: AnyArray) -> list[str]:
        """Return what the vectors of some rows are called."""
        lines = self.ids if self.texts is None else self.texts
        return _names(lines, rows, "row")

    def query_names(self, rows: AnyArray) -> list[str]:
        """Return what the queries of some rows are called."""
        return _names(self.query_texts, rows, "query")


def _names(lines: Sequence[Any] | AnyArray | None, rows: AnyArray, what: str) -> list[str]:
    if lines is None:
        return [f"{what} {row}" for row in rows]
    texts = (str(lines[row]) for row in rows)
    return [text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…" for text in texts]


class Sheet:
    """Small pictures of one shape in a large one, which a page cuts into tiles.

    Parameters
    ----------
    shape : (height, width) or (height, width, 3)
        Of a tile; the first values of a vector fill it row by row. Tiles wider or higher than 32
        are made smaller.
    limits : (float, float)
        Values that are black and white.
    """

    def __init__(self, shape: tuple[int, ...], limits: tuple[float, float]) -> None:
        self._shape = shape
        self._limits = limits
        self._tiles: list[Any] = []
        self._image = import_extra("PIL.Image", NEED, "eval")

    def add(self, vectors: AnyArray) -> int:
        """Add a tile for each vector; returns the number of the first."""
        first = len(self._tiles)
        low, high = self._limits
        share = (np.asarray(vectors, dtype=np.float64) - low) / ((high - low) or 1.0)
        grey = np.rint(255 * np.clip(share, 0, 1)).astype(np.uint8)
        values = math.prod(self._shape)
        for row in grey:
            tile = self._image.fromarray(row[:values].reshape(self._shape))
            if tile.height > 1:
                tile.thumbnail((_MAX_SIDE, _MAX_SIDE), self._image.Resampling.BOX, None)
            self._tiles.append(tile)
        return first

    def to_dict(self) -> dict[str, Any]:
        """Return the sheet as JSON values: columns, width and height of a tile, and a data address.

        A PNG; WebP, which loses detail, if a PNG would be larger than 2.5 MB.
        """
        count = len(self._tiles)
        width, height = self._tiles[0].size
        columns = max(1, math.isqrt(count * height // width))
        size = (columns * width, math.ceil(count / columns) * height)
        picture = self._image.new(self._tiles[0].mode, size)
        for place, tile in enumerate(self._tiles):
            line, column = divmod(place, columns)
            picture.paste(tile, (column * width, line * height))
        kind = "png"
        buffer = io.BytesIO()
        picture.save(buffer, kind, optimize=True)
        if buffer.tell() > MAX_PNG_BYTES:
            kind = "webp"
            buffer = io.BytesIO()
            picture.save(buffer, kind, quality=70)
        text = b64encode(buffer.getvalue()).decode()
        return {
            "columns": columns,
            "width": width,
            "height": height,
            "src": f"data:image/{kind};base64,{text}",
        }


def page_data(curves: Sequence[Curve], shown: Shown | None = None) -> dict[str, Any]:
    """Return everything that the page moves, as JSON values; of curves with an epsilon each.

    Numbers by epsilon always; and, of curves with examples, texts and one sheet of pictures.
    """
    curve = curves[0]
    views = [_view(curve) for curve in curves]
    # The page opens on whole records, unless it is of pictures: one coordinate of an embedding is
    # nobody's secret, and one pixel may be.
    kinds = [view["adjacency"]["kind"] for view in views]
    pictures = shown is not None and shown.kind == "picture"
    data: dict[str, Any] = {
        "version": __version__,
        "base": {"name": curve.base[0], "count": curve.base[1], "dim": curve.dim},
        "queries": {"count": curve.queries[1], "tile": None},
        "found": ANSWERS,
        "candidates": list(curve.candidates),
        "views": views,
        "opens": kinds.index("record") if "record" in kinds and not pictures else 0,
        "kind": None,
    }
    if shown is not None and all(each.examples for each in curves):
        _add_examples(data, curves, shown)
    return data


def _view(curve: Curve) -> dict[str, Any]:
    """Return the figures of one curve."""
    modes = curve.query_modes
    # In words, what a guarantee of this curve hides.
    adjacency = common_adjacency([point.spec for point in curve.points])
    return {
        "adjacency": {"kind": adjacency.kind, "words": adjacency.describe()},
        "epsilons": list(curve.epsilons),
        "modes": list(modes),
        "runs": curve.runs_per_point,
        "methods": [_method(curve, label) for label in curve.series(modes[0])],
    }


def _method(curve: Curve, label: str) -> dict[str, Any]:
    """Return one line of the charts: its figures by epsilon."""
    levels = [recall_within(level) for level in curve.candidates]
    within = {}
    spread = {}
    for mode in curve.query_modes:
        line = curve.series(mode)[label]
        within[mode] = [_means(line, level) for level in levels]
        spread[mode] = [_number(point.std[levels[0]]) for point in line]
    spec = line[0].spec
    # The error of the best guess without codes is 1: what is missing to it was recovered.
    errors = [point.mean.get("reconstruction_error", math.nan) for point in line]
    return {
        "label": label,
        "method": spec.method,
        "summary": spec.method_row.summary,
        "definition": spec.guarantee.definition,
        "promise": promise(spec.guarantee),
        "bytes": line[0].mean["bytes_per_vector"],
        "epsilons": [point.spec.epsilon for point in line],
        "within": within,
        "spread": spread,
        "exposed": [_number(1.0 - error) for error in errors],
        "linked": _means(line, LINKED),
    }


def promise(guarantee: Guarantee) -> str:
    """How far the sentence about odds holds for codes with this guarantee."""
    if guarantee.definition == "none":
        return "No noise and no promise: this is the most that a search on such codes can find."
    if guarantee.definition == "iDP":
        return (
            "The odds above do not hold for it: its promise (individual differential privacy) is "
            "weaker, and vectors can be reconstructed from its codes."
        )
    if not guarantee.delta:
        return "The odds above hold without exception."
    chance = f"a probability governed by δ = {guarantee.delta:g}"
    if guarantee.delta_over == "projection":
        chance += ", a chance over the public projection too"
    return f"The odds above hold except with {chance}."


def _means(line: Sequence[Point], measure: str) -> list[float | None]:
    return [_number(point.mean.get(measure, math.nan)) for point in line]


def _number(value: float) -> float | None:
    """A number as JSON has it; None for NaN."""
    if math.isnan(value):
        return None
    return round(float(value), _DIGITS)


def _add_examples(data: dict[str, Any], curves: Sequence[Curve], shown: Shown) -> None:
    """Add what is shown of single vectors to the data of a page."""
    several = [curve.examples for curve in curves if curve.examples]
    records = several[0].records
    queries = several[0].queries
    rows = np.unique(np.concatenate([*map(_rows, several)]))
    places = {row: place for place, row in enumerate(rows.tolist())}  # an item of the page is one
    originals = dense_rows(shown.base, records)
    sheet = Sheet(shown.tile_shape, (float(originals.min()), float(originals.max())))
    pictured = records
    if shown.kind == "picture":
        pictured = rows
        data["queries"]["tile"] = sheet.add(dense_rows(shown.queries, queries))
    first = sheet.add(dense_rows(shown.base, pictured))
    tiles = {row: tile for tile, row in enumerate(pictured.tolist(), first)}
    data["kind"] = shown.kind
    data["queries"]["shown"] = shown.query_names(queries)
    data["items"] = {"names": shown.names(rows), "tiles": [tiles.get(row) for row in places]}
    data["records"] = [places[row] for row in records.tolist()]
    norms = row_norms(originals)
    for curve, examples, view in zip(curves, several, data["views"], strict=True):
        view["truth"] = np.searchsorted(rows, examples.truth).tolist()
        builds = {build.spec: build for build in examples.builds}
        lines = curve.series(curve.query_modes[0]).values()
        for line, method in zip(lines, view["methods"], strict=True):
            ordered = [builds[point.spec] for point in line]
            method["hits"] = {
                mode: [_hits(build, mode, rows) for build in ordered] for mode in curve.query_modes
            }
            method["rebuilt"] = [_reconstructed(build, places, sheet, norms) for build in ordered]
    data["sheet"] = sheet.to_dict()


def _rows(examples: Examples) -> AnyArray:
    """Return every row of the base that the examples of one curve show."""
    shown = [examples.truth, examples.records]
    for build in examples.builds:
        shown += build.found.values()
        if build.reconstructed is not None:
            shown.append(build.reconstructed.nearest)
    rows = np.concatenate([part.ravel() for part in shown])
    return rows[rows >= 0]


def _hits(build: ExampleBuild, mode: QueryMode, rows: AnyArray) -> Any:
    """The answers by candidates and query; one that is not a true neighbour is −1 − item."""
    items = np.searchsorted(rows, build.found[mode])
    return np.where(build.true[mode], items, -1 - items).tolist()


def _reconstructed(
    build: ExampleBuild,
    places: Mapping[int, int],
    sheet: Sheet,
    norms: Doubles,
) -> dict[str, Any] | None:
    """Return what comes back from the codes of the records, with their tiles."""
    found = build.reconstructed
    if found is None:
        return None
    vectors = found.vectors
    if hides_records(build.spec):  # directions, shown as bright as the originals
        vectors = unit(vectors) * norms[:, None].astype(np.float32)
    return {
        "tile": sheet.add(vectors),
        "cosine": found.cosines.round(2).tolist(),
        "nearest": [places.get(row) for row in found.nearest.tolist()],
    }
