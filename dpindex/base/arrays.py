"""Arrays: names of types, products and norms, directions, blocks and parts, the best of many."""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy

AnyArray: TypeAlias = npt.NDArray[Any]
Bools: TypeAlias = npt.NDArray[np.bool_]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Doubles: TypeAlias = npt.NDArray[np.float64]
Singles: TypeAlias = npt.NDArray[np.float32]
Ints: TypeAlias = npt.NDArray[np.int32]
Longs: TypeAlias = npt.NDArray[np.int64]
Words: TypeAlias = npt.NDArray[np.uint64]
Indices: TypeAlias = npt.NDArray[np.intp]
Floats: TypeAlias = npt.NDArray[np.floating[Any]]
Integers: TypeAlias = npt.NDArray[np.integer[Any]]
Rows: TypeAlias = Longs
"""Numbers of rows."""
Vectors: TypeAlias = Any
"""What a user hands over: an ndarray of any real dtype, a memory map, or a scipy CSR/CSC matrix."""
Table: TypeAlias = Any
"""A ``pyarrow.Table``."""


def issparse(array: Any) -> bool:
    """Whether this is a scipy sparse matrix, which nothing can be before scipy.sparse is loaded.

    Devices and searchers of dense vectors never load it: importing it takes a quarter of a second.
    """
    return "scipy.sparse" in sys.modules and bool(scipy.sparse.issparse(array))


def is_masked(array: Any) -> bool:
    """Whether this is a masked array, which nothing can be before numpy.ma is loaded."""
    return "numpy.ma" in sys.modules and isinstance(array, np.ma.MaskedArray)


def canonical_csr(matrix: Any) -> scipy.sparse.csr_matrix:
    """A sparse table as CSR with sorted, unique indices; entries given twice become their sum.

    Checked before it is converted, as scipy's own routines trust the indices: ValueError. A sum
    that a narrow type cannot hold is in a wide one; ValueError where none holds it.
    """
    if hasattr(matrix, "check_format"):
        matrix.check_format(full_check=True)
    csr = scipy.sparse.csr_matrix(matrix)
    canonical = csr.has_canonical_format
    # Other formats add up as they are converted, in their own type: 200 + 100 are 44 in a byte.
    if canonical and csr.nnz == matrix.nnz:
        return csr
    wide = _WIDE.get(csr.dtype.kind, csr.dtype)
    csr = scipy.sparse.csr_matrix(matrix.astype(wide), copy=True)
    csr.sum_duplicates()
    size = scipy.sparse.csr_matrix(abs(matrix.astype(np.float64)), copy=True)
    size.sum_duplicates()
    if csr.dtype.kind in "iu" and size.nnz and size.data.max() >= np.iinfo(csr.dtype).max:
        raise ValueError("the sum of entries that are given several times is too large")
    return csr


_WIDE = {"i": np.int64, "u": np.uint64, "f": np.float64}
"""Types in which entries of one place are added up, by the kind of theirs."""


def row_norms(vectors: Vectors) -> Doubles:
    """Return the norm of each row of an array or a sparse matrix, float64, shape (n,)."""
    wide = vectors.astype(np.float64)
    if issparse(wide):
        return np.asarray(scipy.sparse.linalg.norm(wide, axis=1))
    return np.asarray(np.linalg.norm(wide, axis=1))


_SMALL_NORM = 1e-15
_LARGE_NORM = 1e18


def unit(vectors: Floats) -> Singles:
    """Rows brought to norm 1, float32; those of norm 0 stay.

    >>> unit(np.array([[3e30, 4e30], [3e-30, 4e-30], [0, 0]], np.float32)).round(3).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    with np.errstate(over="ignore"):
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    # Squares of single precision over- and underflow beyond these.
    is_far = ~((norms > _SMALL_NORM) & (norms < _LARGE_NORM))
    any_far = is_far.any()
    if any_far:
        norms[is_far] = 1.0
    out = np.empty(vectors.shape, dtype=np.float32)
    np.divide(vectors, norms, out=out, casting="same_kind")
    if any_far:
        far = is_far[:, 0]
        wide = in_units_of_largest(vectors[far])
        lengths = np.linalg.norm(wide, axis=1, keepdims=True)
        out[far] = wide / np.maximum(lengths, 1.0)  # of which one number is 1, or all are 0
    return out


_HELD_NUMBERS = 1 << 18
"""Numbers that are handled together in double precision, so that they stay in the cache."""


def of_norm_1(vectors: Floats) -> Singles:
    """Rows of numbers of any size brought to norm 1, float32; those of norm 0 stay."""
    out = np.empty(vectors.shape, dtype=np.float32)
    for rows in row_blocks(len(vectors), _HELD_NUMBERS // max(1, vectors.shape[1])):
        near_one = in_units_of_largest(vectors[rows])
        out[rows] = unit(near_one)
    return out


def stacked(parts: Sequence[Vectors]) -> Any:
    """Return arrays or sparse matrices of one width as one."""
    if issparse(parts[0]):
        from scipy.sparse import vstack

        return vstack(parts)
    return np.concatenate(parts)


def products(x: Floats, y: Floats) -> Doubles:
    """Inner products, shape (n, count), of x, shape (n or 1, count, k), and y, shape (n, k)."""
    if len(x) == 1:
        return np.asarray(y @ x[0].T, dtype=np.float64)
    together = np.matmul(x, y[:, :, None])
    return np.asarray(together[:, :, 0], dtype=np.float64)


_FEW_PRODUCTS = 1 << 20
"""Multiplications that take less time than it may take to wake a thread: half a millisecond."""


def matrix_product(x: Floats, y: Floats) -> AnyArray:
    """Return ``x @ y`` of matrices, in the calling thread where it is small.

    BLAS shares out any product of more than some ten thousand multiplications. Where a processor is
    busy with something else, its other threads come late: a tenth of a millisecond becomes 16.
    """
    if len(x) * y.size > _FEW_PRODUCTS:
        return np.asarray(x @ y)
    return np.asarray(np.einsum("ij,jk->ik", x, y))


def in_units_of_largest(vectors: Floats) -> Doubles:
    """Rows divided by their largest magnitude, so that no square over- or underflows."""
    wide = vectors.astype(np.float64)
    highest = wide.max(axis=1, keepdims=True, initial=0.0)
    largest = np.maximum(highest, -wide.min(axis=1, keepdims=True, initial=0.0))
    np.divide(wide, largest, out=wide, where=largest > 0)
    return wide


RADIUS = 4095.0
"""Norm of a vector on the integer grid: inner products stay below 2^24 and are exact in float32."""

_STEPS = float(1 << 20)


def on_sphere_grid(vectors: Floats) -> Singles:
    """Directions of vectors as integers of norm about 4095, float32; a zero vector stays zero.

    ``Σ|u_i c_i| ≤ ‖u‖‖c‖ ≤ 2^24`` for two such vectors, so their inner product is exact in float32
    in any order: which codeword is nearest does not depend on the machine or the batch.
    """
    # Whole numbers first: their squares add exactly for up to 8192 attributes, and square root and
    # division are correctly rounded, so the grid is the same on every machine.
    wide = in_units_of_largest(vectors)
    wide *= _STEPS
    np.rint(wide, out=wide)
    squares = np.einsum("ij,ij->i", wide, wide)
    norms = np.sqrt(squares)[:, None]
    wide *= RADIUS
    np.divide(wide, norms, out=wide, where=norms > 0)
    # Towards zero: rounding must not make a vector longer.
    return np.trunc(wide, out=wide).astype(np.float32)


def row_blocks(
    stop: int,
    size: int,
    start: int = 0,
) -> Iterator[slice]:
    """Yield slices of the rows from ``start`` to ``stop``, each of at most ``size`` rows.

    A size below 1 counts as 1.

    >>> list(row_blocks(5, 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = max(1, size)
    for first in range(start, stop, step):
        yield slice(first, min(first + step, stop))


def spaced(rows: int, count: int) -> Indices:
    """Return ``count`` row numbers at equal distances, or all if there are no more.

    >>> spaced(9, 3).tolist()
    [0, 4, 8]
    """
    return np.linspace(0, rows - 1, min(rows, count)).astype(np.intp)


def unfilled(
    queries: int,
    count: int = 0,
    dtype: npt.DTypeLike = np.float64,
) -> tuple[AnyArray, Rows]:
    """Room for scores and rows of ``count`` items for each query."""
    shape = (queries, count)
    return np.empty(shape, dtype), np.empty(shape, np.int64)


def best_of(parts: Sequence[tuple[AnyArray, Rows]], count: int) -> tuple[AnyArray, Rows]:
    """The best ``count`` of each line, best first; of equal scores the lower row comes first.

    Scores and rows come in parts that lie side by side.
    """
    scores, rows = parts[0]
    if len(parts) > 1:
        scores, rows = map(np.hstack, zip(*parts, strict=True))
    if (scores[:, 1:] < scores[:, :-1]).all():  # as Faiss found them
        return scores[:, :count], rows[:, :count]
    if scores.dtype.kind == "i":
        return _best_of_integers(scores, rows, count)
    order = np.argsort(-scores, axis=1)  # several times as fast as a sort that keeps rows in order
    in_order = np.take_along_axis(scores, order, axis=1)
    rows = np.take_along_axis(rows, order, axis=1)
    differs = in_order[:, 1:] != in_order[:, :-1]
    tied = ~differs.all(axis=1)
    if tied.any():
        # Where a score is the how-manyth, and a row, in one number: half the time of a lexsort.
        span = 2 + int(rows.max(initial=0))
        keys = rows[tied] + 1
        keys[:, 1:] += span * np.cumsum(differs[tied], axis=1)
        keys.sort(axis=1)
        rows[tied] = keys % span - 1
    return in_order[:, :count], rows[:, :count]


def release_pages(array: Any) -> None:
    """Let go of the memory of a mapped file that ``array`` shows a part of.

    The pages are read again when they are next used. Any other array is left as it is.
    """
    source: Any = array
    while isinstance(source, np.ndarray | memoryview):
        source = source.obj if isinstance(source, memoryview) else source.base
    if isinstance(source, mmap.mmap):
        source.madvise(mmap.MADV_DONTNEED)


class RowParts:
    """Arrays of one width, one below the other, which are never changed.

    Parameters
    ----------
    arrays : sequence of arrays, shapes (n_i, …)
        Anything that has a length and gives an array for a slice or an array of rows.

    >>> parts = RowParts([np.arange(3), np.arange(10, 12)])
    >>> len(parts), parts.take(np.array([4, 0, 3])), parts.take(slice(2, 4))
    (5, array([11,  0, 10]), array([ 2, 10]))
    """

    def __init__(self, arrays: Sequence[Any] = ()) -> None:
        self.arrays = list(arrays)
        lengths = map(len, self.arrays)
        self._starts = np.cumsum([0, *lengths])
        self.count = int(self._starts[-1])

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        """Yield the number of the first row of each array, and the array."""
        return zip(self._starts.tolist(), self.arrays, strict=False)

    def within(
        self,
        start: int,
        stop: int,
        rows: int = 1 << 62,
    ) -> Iterator[tuple[int, Any]]:
        """Yield rows ``start`` to ``stop`` as views of at most ``rows`` rows.

        Each comes with the number of its first row.
        """
        stop = min(stop, self.count)
        while start < stop:
            part = int(np.searchsorted(self._starts, start, side="right")) - 1
            first, beyond = self._starts[part : part + 2].tolist()
            end = min(start + rows, stop, beyond)
            yield start, self.arrays[part][start - first : end - first]
            start = end

    def take(self, rows: slice | Rows) -> AnyArray:
        """Return some rows: a view where a slice lies in one array, else a copy."""
        if isinstance(rows, slice):
            first, stop, _ = rows.indices(self.count)
            if first >= stop:
                return np.asarray(self.arrays[0][:0])
            pieces = [piece for _, piece in self.within(first, stop)]
            if len(pieces) == 1:
                return np.asarray(pieces[0])
            return np.concatenate(pieces)
        flat = rows.ravel()
        if len(self.arrays) == 1 or not len(flat):
            values = np.asarray(self.arrays[0][flat])
        else:
            values = self._gathered(flat)
        return values.reshape(rows.shape + values.shape[1:])

    def _gathered(self, rows: Rows) -> AnyArray:
        """Return rows of several arrays; the rows of each array are read at once."""
        parts = np.searchsorted(self._starts, rows, side="right") - 1
        order = np.argsort(parts, kind="stable")
        cuts = np.flatnonzero(np.diff(parts[order])) + 1
        pieces = []
        for places in np.split(order, cuts):
            part = parts[places[0]]
            array = self.arrays[part]
            within = rows[places] - self._starts[part]
            pieces.append(array[within])
            release_pages(array)  # the system maps sixteen pages about each row
        joined = np.concatenate(pieces)
        values = np.empty_like(joined)
        values[order] = joined
        return values

    def where(self, kept: Bools) -> RowParts:
        """Return the rows of a mask; an array of which all rows are kept is not copied."""
        arrays = []
        for start, array in self:
            chosen = kept[start : start + len(array)]
            if not chosen.all():
                array = array[chosen]
            arrays.append(array)
        return RowParts(arrays)


_SCORES = 1 << 21
"""Scores of items that are held at a time: 8 MB."""

_STRIPES = 4
"""Stripes of items for each one that is wanted: a seventh more items than that are then sorted."""


def nearest_items(
    queries: Singles,
    items: Singles,
    count: int,
    *,
    by_distance: bool = False,
) -> tuple[Singles, Rows]:
    """The ``count`` items of the highest products with each of many queries, best first.

    Scores are inner products, or negated squared distances. It takes a tenth to a half of the time
    of Faiss, whose own BLAS is an old one.

    Parameters
    ----------
    queries, items : float32 arrays, shapes (nq, d) and (n, d)
        At least one query. Finite, and so are all products and squares.
    count : int
        [1, n].
    """
    best = np.empty((len(queries), 0), np.int64)
    least = np.full((len(queries), 1), -np.inf, np.float32)
    for block in row_blocks(len(items), _SCORES // len(queries)):
        part = items[block]
        scores = matrix_product(queries, part.T)
        if by_distance:  # −|q − x|² grows as q·x − |x|²/2 does
            scores -= np.einsum("nd,nd->n", part, part) / 2
        # Of as many stripes as items are wanted, each has an item that reaches the last of them.
        stripes = min(_STRIPES * count, len(part))
        if stripes >= count:
            highest = scores[:, :stripes].copy()
            for start in range(stripes, len(part) - stripes + 1, stripes):
                np.maximum(highest, scores[:, start : start + stripes], out=highest)
            last = stripes - count
            highest.partition(last, axis=1)
            np.maximum(least, highest[:, last, None], out=least)
        query, places = np.divmod(np.flatnonzero(scores >= least), len(part))
        found = np.bincount(query, minlength=len(queries))
        columns = np.arange(len(query)) - np.repeat(np.cumsum(found) - found, found)
        near = np.full((len(queries), found.max()), _LAST)
        near[query, columns] = _keys(scores[query, places], block.start + places)
        best = np.sort(np.hstack([best, near]), axis=1)[:, :count]
        if best.shape[1] == count:  # items that are as near and come later have higher rows
            lowest, _ = _of_keys(best[:, -1:])
            least = np.nextafter(lowest, np.float32(np.inf))
    nearness, rows = _of_keys(best)
    if by_distance:
        squares = np.einsum("qd,qd->q", queries, queries)[:, None]
        nearness = np.minimum(2 * nearness - squares, 0)
    return nearness, rows


_LAST = np.iinfo(np.int64).max
"""The key of no item: it comes after all others."""


def _keys(scores: Singles, rows: Rows) -> Longs:
    """Whole numbers that rise as scores fall, and where these are equal, as rows rise.

    The bits of a float are those of a whole number that rises with it, if it is not negative. To
    sort them takes a fifth of the time of an order of scores and rows by it.
    """
    bits = (scores + np.float32(0)).view(np.int32)  # −0 is 0
    rising = np.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return ~rising.astype(np.int64) << 32 | rows


def _of_keys(keys: Longs) -> tuple[Singles, Rows]:
    rising = (~(keys >> 32)).astype(np.int32)
    bits = np.where(rising < 0, rising ^ 0x7FFFFFFF, rising)
    return bits.view(np.float32), keys & 0xFFFFFFFF


def _best_of_integers(
    scores: AnyArray,
    rows: Rows,
    count: int,
) -> tuple[AnyArray, Rows]:
    """Sort whole scores and rows, none negative, as one number each."""
    span = 1 + int(rows.max(initial=0))
    keys = rows - span * scores.astype(np.int64)
    keys.sort(axis=1)
    negated, ordered = np.divmod(keys[:, :count], span)
    return -negated, ordered
