"""Index types that suit a spec and a number of vectors, and the memory that each takes."""

from __future__ import annotations

import math
from typing import NamedTuple

from dpindex.index.kinds import kind_of
from dpindex.index.ranking import Ranking
from dpindex.index.search_backend import EXACT
from dpindex.mechanism.spec import Spec
from dpindex.similarity.similarity import Metric

_LISTS_BY_ROOT = 4
_ROWS_FOR_LISTS = 10_000


class Structure(NamedTuple):
    """An index type, with the memory that its search structure takes.

    Attributes
    ----------
    index_type : str
    row_bytes : float
        Bytes of memory a vector; the codes themselves are mapped from their files.
    exact : bool
        Whether a search finds the true neighbours among the codes always.
    """

    index_type: str
    row_bytes: float
    exact: bool


def structures(
    spec: Spec, rows: int, metric: Metric = "cosine", *, denoised: bool = False
) -> list[Structure]:
    """Index types for so many codes of a spec, the exact one first.

    Others of the grammar of :func:`dpindex.index.faiss_vectors.parse_index_type` may be used too.

    >>> from dpindex import attribute
    >>> spec = Spec("dp-oporp-staircase", dim=768, k=128, epsilon=3.0, adjacency=attribute(1.0))
    >>> [(s.index_type, s.row_bytes) for s in structures(spec, 10**6)[:3]]
    [('f32', 512), ('f16', 256), ('SQ8', 128)]
    >>> structures(Spec("dp-signoporp-rr", dim=768, k=256, epsilon=3.0,
    ...     adjacency=attribute(1.0)), 10**6)
    [Structure(index_type='f32', row_bytes=32, exact=True)]
    """
    backend_type = kind_of(spec).ranking.backend_type
    if denoised:
        backend_type = Ranking.backend_type
    if not backend_type.of_vectors:
        names = [EXACT]
    else:
        width = spec.code_length
        fine, coarse = (_largest_divisor(width, width // part) for part in (2, 8))
        names = [EXACT, "f16", "SQ8", "SQ6", "SQ4", f"PQ{fine}x4fs", f"PQ{coarse}"]
        if rows >= _ROWS_FOR_LISTS:
            lists = 1 << min(17, round(math.log2(_LISTS_BY_ROOT * math.sqrt(rows))))
            names += [f"IVF{lists},SQ8", f"IVF{lists},PQ{fine}x4fs", "HNSW32", "HNSW32,SQ8"]
    backends = {name: backend_type(spec.code_length, metric, name) for name in names}
    return [Structure(name, made.row_bytes, made.exact) for name, made in backends.items()]


def _largest_divisor(number: int, limit: int) -> int:
    return next(part for part in range(max(1, limit), 0, -1) if number % part == 0)
