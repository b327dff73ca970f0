"""How single vectors are shown: as pictures, by their texts, or by number or id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpindex.base.arrays import AnyArray
from dpindex.base.errors import InputError
from dpindex.data import VectorSource
from dpindex.study.evaluate.explorer.sheet import picture_shape, strip_shape

__all__ = ["Shown"]

_MAX_TEXT = 200


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

    >>> import numpy as np
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
        dim = base.shape[1]
        self.pictures = image_shape is not None
        self.kind = "id"
        if texts is not None:
            self.kind = "text"
        if self.pictures:
            self.kind = "picture"
        self.shape = strip_shape(dim) if image_shape is None else picture_shape(image_shape, dim)
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
