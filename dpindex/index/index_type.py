"""Index types: how vectors are kept and searched, as a strict subset of Faiss factory strings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from dpindex.errors import InputError

__all__ = ["DEFAULT", "Layout", "parse_index_type"]

DEFAULT = "f32"
"""Exact search; the only index type of codes that are searched as they are."""

_ALIASES = {"f32": "Flat", "f16": "SQfp16", "int8": "SQ8"}
_GRAMMAR = re.compile(
    r"(?:ROT(?P<rotation>\d{1,5}),)?"
    r"(?P<factory>"
    r"(?P<graph>HNSW\d{1,3})(?:,SQ8)?"
    r"|(?:OPQ(?P<opq>\d{1,4}),)?(?:IVF(?P<lists>\d{1,6}),)?"
    r"(?:Flat|SQ4|SQ6|SQ8|SQfp16|PQ(?P<parts>\d{1,4})(?:x(?P<bits>4fs|4|8))?)"
    r")"
)
_MAX_LISTS = 1 << 17
_MAX_NODES = 1024
_ROWS_PER_LIST = 64
_SAMPLE_ROWS = 65536
_SAMPLE_NUMBERS = 1 << 25
_EXACT_SAMPLE_ROWS = 1024


@dataclass(frozen=True)
class Layout:
    """An index type for vectors of one length, taken apart.

    Attributes
    ----------
    width : int
        Length of a vector.
    rotation : int, optional
        Leading directions that are kept.
    factory : str
        The factory string that Faiss gets.
    lists : int
        Lists of an inverted file, 0 without one.
    graph : bool
        Whether it is an HNSW graph.
    """

    width: int
    rotation: int | None
    factory: str
    lists: int
    graph: bool

    @property
    def exact(self) -> bool:
        """Whether a search finds the true neighbours always."""
        return self.factory == "Flat" and self.rotation is None

    @property
    def min_rows(self) -> int:
        """Vectors that training needs: one for each centroid."""
        return max(self.lists, 256 if "PQ" in self.factory else 1)

    @property
    def sample_rows(self) -> int:
        """Vectors that it should be trained on."""
        wanted = max(_SAMPLE_ROWS, _ROWS_PER_LIST * self.lists)
        wanted = _EXACT_SAMPLE_ROWS if self.exact else wanted
        return max(self.min_rows, min(wanted, _SAMPLE_NUMBERS // self.width))

    @property
    def min_effort(self) -> int:
        """Lists or nodes that a search visits at first."""
        return 16 if self.graph else 1

    @property
    def max_effort(self) -> int:
        """All lists; of a graph, as many nodes as still make sense."""
        return _MAX_NODES if self.graph else max(1, self.lists)


def parse_index_type(index_type: Any, width: int) -> Layout:
    """The layout that an index type names, for vectors of length ``width``.

    Raises
    ------
    InputError
        For anything but f32 (Flat), f16 (SQfp16), int8 (SQ8), ``[ROTd,]HNSWm[,SQ8]`` and
        ``[ROTd,][OPQm,][IVFn,]X``, where X is Flat, SQ4, SQ6, SQ8, SQfp16, PQm, PQmx8, PQmx4 or
        PQmx4fs, and for a length that does not divide.

    >>> parse_index_type("ROT64,SQ4", 256).rotation
    64
    >>> parse_index_type("f32", 256).factory
    'Flat'
    """
    factory = _ALIASES.get(index_type, index_type) if isinstance(index_type, str) else ""
    match = _GRAMMAR.fullmatch(factory)
    if match is None:
        raise InputError(
            f"index_type must be one of f32, f16, int8, or a Faiss factory string such as SQ8, "
            f"PQ32x8, ROT64,SQ4, IVF1024,PQ32x4fs or HNSW32, not {index_type!r}."
        )
    rotation = int(match["rotation"]) if match["rotation"] else None
    kept = width if rotation is None else rotation
    if not 1 <= kept <= width:
        raise InputError(f"index_type {index_type!r} rotates to {kept} of {width} directions.")
    for name in ("opq", "parts"):
        parts = int(match[name] or 1)
        if parts < 1 or kept % parts:
            raise InputError(
                f"index_type {index_type!r} cuts {kept} numbers into {parts} equal parts."
            )
    lists = int(match["lists"] or 0)
    if lists > _MAX_LISTS or (match["lists"] and lists < 1):
        raise InputError(
            f"index_type {index_type!r} has {lists} lists; 1 to {_MAX_LISTS} are possible."
        )
    if match["graph"] and not 2 <= int(match["graph"][4:]) <= 256:
        raise InputError(f"index_type {index_type!r}: a graph has 2 to 256 links a node.")
    return Layout(width, rotation, match["factory"], lists, match["graph"] is not None)
