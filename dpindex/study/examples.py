"""Examples of what the figures of a curve count: single queries and records, and how to show them.

The originals that are shown are as private as they are: make a page of public data before it is
sent around.
"""

from __future__ import annotations

import io
import math
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpindex.base.arrays import AnyArray, Bools, Bytes, Doubles, Singles, spaced
from dpindex.base.errors import InputError, import_extra
from dpindex.data import VectorSource, dense_rows
from dpindex.index.search import QueryMode
from dpindex.mechanism.spec import Spec
from dpindex.similarity.similarity import Metric, exact_similarities
from dpindex.storage.ids import Rows
from dpindex.study.reconstruction import can_be_reconstructed, cosines
from dpindex.study.trial import Trial, attacked_rows
from dpindex.study.truth import GroundTruth, ground_truth

SHOWN = 10
"""Answers shown for each query."""

_MAX_TEXT = 200
_MAX_SIDE = 32
_MAX_STRIPES = 64
MAX_PNG_BYTES = 2_500_000


@dataclass(frozen=True, eq=False)
class Reconstructed:
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
    cosines: Doubles
    nearest: Rows


@dataclass(frozen=True, eq=False)
class ExampleBuild:
    """One build of one spec.

    Attributes
    ----------
    spec : Spec
    found : mapping from query mode to int64 array, shape (levels, queries, 10)
        Rows of the base, best first, by :attr:`Curve.candidates`; the first ones as codes order
        them, the others after the first R were ordered by their vectors.
    true : mapping from query mode to bool array, shape (levels, queries, 10)
        Whether each of them is among the ten true neighbours, ties included.
    reconstructed : Reconstructed or None
        None if the projection is too large to invert.
    """

    spec: Spec
    found: Mapping[QueryMode, Rows]
    true: Mapping[QueryMode, Bools]
    reconstructed: Reconstructed | None


@dataclass(frozen=True, eq=False)
class Examples:
    """Single queries and records, and what each spec of a curve makes of them.

    Attributes
    ----------
    queries, records : int64 arrays
        Rows of the queries that are asked, and of the base that are attacked.
    truth : int64 array, shape (queries, 10)
        The true neighbours of each query, best first.
    samples : tuple of ExampleBuild
        One for each spec of the curve.

    >>> rows = np.zeros(0, dtype=np.int64)
    >>> Examples(rows, rows, rows[:, None], ()).samples
    ()
    """

    queries: Rows
    records: Rows
    truth: Rows
    samples: tuple[ExampleBuild, ...]


class Gallery:
    """Queries and records that are shown, evenly spaced, and what each build makes of them.

    Parameters
    ----------
    base, queries : VectorSource
        The queries are held in memory.
    truth : GroundTruth
        Of all queries.
    metric : "cosine", "ip" or "l2"
        That answers are ordered by.
    levels : sequence of int
        Numbers of candidates, ascending.
    count : int
        Queries and records to show, [1, ∞).
    """

    def __init__(
        self,
        base: VectorSource,
        queries: VectorSource,
        truth: GroundTruth,
        metric: Metric,
        levels: Sequence[int],
        count: int,
    ) -> None:
        self._base = base
        self._levels = levels
        self._rows = spaced(queries.shape[0], count)
        attacked = attacked_rows(base.shape[0])
        self._records: Rows = attacked[spaced(len(attacked), count)]
        self._queries = dense_rows(queries, self._rows)
        self._truth = truth.of_queries(self._rows)
        self._scores = _scores(base, self._queries, metric)

    def sample(self, trial: Trial, modes: Iterable[QueryMode]) -> ExampleBuild:
        """Return what searches of a build find, and what attacks on its codes give back."""
        spec = trial.index.spec
        found = {}
        true = {}
        for mode in modes:
            rows = trial.nearest(self._queries, self._levels[-1], mode)
            answers = [rows[:, :SHOWN]]
            answers += [_ordered(rows[:, :level], self._scores) for level in self._levels[1:]]
            found[mode] = np.stack(answers)
            true[mode] = np.stack([self._truth.relevant(answer, SHOWN) for answer in answers])
        reconstructed = None
        if can_be_reconstructed(spec):
            vectors = trial.attacker(trial.index.codes.take(self._records))
            nearest = _nearest(self._base, vectors)
            originals = dense_rows(self._base, self._records)
            reconstructed = Reconstructed(vectors, cosines(vectors, originals), nearest)
        return ExampleBuild(spec, found, true, reconstructed)

    def examples(self, samples: Iterable[ExampleBuild]) -> Examples:
        """Return samples, with what they are of."""
        truth = self._truth.ids[:, :SHOWN]
        return Examples(self._rows, self._records, truth, tuple(samples))


def _scores(base: VectorSource, queries: AnyArray, metric: Metric) -> Doubles:
    """Return the similarity of each vector to each query, higher is nearer, shape (queries, n)."""
    sign = -1.0 if metric == "l2" else 1.0
    parts = [
        [sign * exact_similarities(query, chunk, metric) for query in queries.astype(np.float64)]
        for _, chunk in base.chunks()
    ]
    return np.concatenate(parts, axis=1)


def _ordered(rows: AnyArray, scores: Doubles) -> Rows:
    """Return the first ten of each line of rows after their owner put them in order."""
    order = np.argsort(-np.take_along_axis(scores, rows, axis=1), axis=1, kind="stable")
    return np.take_along_axis(rows, order[:, :SHOWN], axis=1)


def _nearest(base: VectorSource, vectors: Singles) -> Rows:
    """Return the row of the base nearest to each vector by cosine; −1 for a zero vector."""
    nearest = np.full(len(vectors), -1, dtype=np.int64)
    lit = vectors.any(axis=1)
    if lit.any():
        nearest[lit] = ground_truth(base, vectors[lit], 1).ids[:, 0]
    return nearest


class Shown:
    """How single vectors are shown: as pictures, by their texts, or by number or id.

    Parameters
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
        self.pictures = image_shape is not None
        self.kind = "id" if texts is None else "text"
        self.shape: tuple[int, ...] = (1, min(base.shape[1], _MAX_STRIPES))
        if image_shape is not None:
            _check_shape(image_shape, base.shape[1])
            self.kind = "picture"
            self.shape = image_shape
        self._names = texts if texts is not None else ids
        self._query_names = query_texts

    def names(self, rows: AnyArray) -> list[str]:
        """What the vectors of some rows are called."""
        return _named(self._names, rows, "row")

    def query_names(self, rows: AnyArray) -> list[str]:
        """What the queries of some rows are called."""
        return _named(self._query_names, rows, "query")


def _check_shape(shape: tuple[int, ...], dim: int) -> None:
    named = "x".join(map(str, shape))
    if len(shape) not in (2, 3) or min(shape) < 1 or shape[2:] not in ((), (3,)):
        raise InputError(f"the shape of an image is HEIGHTxWIDTH or HEIGHTxWIDTHx3, not {named}.")
    if math.prod(shape) != dim:
        raise InputError(
            f"an image of {named} has {math.prod(shape)} values and a vector has {dim} attributes; "
            f"state the shape of your images."
        )


def _named(lines: Sequence[Any] | AnyArray | None, rows: AnyArray, what: str) -> list[str]:
    if lines is None:
        return [f"{what} {row}" for row in rows]
    texts = [str(lines[row]) for row in rows]
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
        self._tiles: list[Bytes] = []
        self._image = import_extra("PIL.Image", "a report needs jinja2 and pillow", "eval")

    def add(self, vectors: AnyArray) -> int:
        """Add a tile for each vector; returns the number of the first."""
        first = len(self._tiles)
        low, high = self._limits
        share = (np.asarray(vectors, dtype=np.float64) - low) / ((high - low) or 1.0)
        grey = np.rint(255 * np.clip(share, 0, 1)).astype(np.uint8)
        height, width = self._shape[:2]
        shrink = max(height, width) / _MAX_SIDE
        for values in grey:
            tile = values[: math.prod(self._shape)].reshape(self._shape)
            if height > 1 and shrink > 1:
                size = (max(1, round(width / shrink)), max(1, round(height / shrink)))
                picture = self._image.fromarray(tile)
                tile = np.asarray(picture.resize(size, self._image.Resampling.BOX))
            self._tiles.append(tile)
        return first

    def to_dict(self) -> dict[str, Any]:
        """Return the sheet as JSON values: columns, width and height of a tile, and a data address.

        A PNG; WebP, which loses detail, if a PNG would be larger than 2.5 MB.
        """
        height, width = self._tiles[0].shape[:2]
        columns = max(1, math.isqrt(len(self._tiles) * height // width))
        lines = -(-len(self._tiles) // columns)
        blank = np.zeros((lines * columns - len(self._tiles), *self._tiles[0].shape), np.uint8)
        tiles = np.concatenate([np.stack(self._tiles), blank])
        rows = tiles.reshape(lines, columns, *self._tiles[0].shape).swapaxes(1, 2)
        pixels = rows.reshape(lines * height, columns * width, *self._tiles[0].shape[2:])
        picture = self._image.fromarray(np.ascontiguousarray(pixels))
        kind = "png"
        buffer = io.BytesIO()
        picture.save(buffer, "PNG", optimize=True)
        if buffer.tell() > MAX_PNG_BYTES:
            kind = "webp"
            buffer = io.BytesIO()
            picture.save(buffer, "WEBP", quality=70)
        return {
            "columns": columns,
            "width": width,
            "height": height,
            "src": f"data:image/{kind};base64,{b64encode(buffer.getvalue()).decode()}",
        }
