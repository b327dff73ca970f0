"""Arrays: names of their types, checks of what users hand over, and work shared among threads."""

from __future__ import annotations

import ctypes
import json
import math
import numbers
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import MISSING, fields
from functools import cache
from threading import Lock
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import scipy

from dpindex.base.errors import InputError

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


_THREAD = threading.local()


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

    Checked before it is converted, as scipy's own routines trust the indices: ValueError.
    """
    if hasattr(matrix, "check_format"):
        matrix.check_format(full_check=True)
    csr = scipy.sparse.csr_matrix(matrix)
    if not csr.has_canonical_format:
        csr = csr.copy()  # it may still share the caller's arrays
        csr.sum_duplicates()
    return csr


def cores() -> int:
    """Processors this process may use; 1 in a thread that shares them with others of ours."""
    if getattr(_THREAD, "shares", False):
        return 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def share_cores() -> None:
    """Use one processor in this thread from now on: others like it use the rest."""
    _THREAD.shares = True


def row_norms(vectors: Vectors) -> Doubles:
    """Return the norm of each row of an array or a sparse matrix, float64, shape (n,)."""
    wide = vectors.astype(np.float64)
    if issparse(wide):
        return np.asarray(scipy.sparse.linalg.norm(wide, axis=1))
    return np.asarray(np.linalg.norm(wide, axis=1))


def unit(vectors: Floats) -> Singles:
    """Rows brought to norm 1, float32; those of norm 0 stay."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    norms[norms == 0] = 1.0
    out = np.empty(vectors.shape, dtype=np.float32)
    np.divide(vectors, norms, out=out, casting="same_kind")
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
    largest = np.abs(wide).max(axis=1, keepdims=True, initial=0.0)
    np.divide(wide, largest, out=wide, where=largest > 0)
    return wide


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
    """Return ``count`` row numbers at equal distances, all of them if there are so many.

    >>> spaced(9, 3).tolist()
    [0, 4, 8]
    """
    return np.linspace(0, rows - 1, min(rows, count)).astype(np.intp)


_MIN_EPSILON = 1e-3
_MAX_EPSILON = 64.0
_MIN_DELTA = 1e-30
MAX_TEXT = 1 << 20
"""Bytes of the JSON text of a spec, which may name the ranges of some ten thousand columns."""

_Object = TypeVar("_Object")

Fault = tuple[tuple[int, ...], str]
"""The index of a value, and what is wrong with it."""


def finite_number(
    value: Any,
    name: str,
    above: float | None = None,
) -> float:
    """``value`` as a float, if it is a real number (NumPy's too), finite and large enough."""
    number = math.nan
    if _is_real(value):
        with suppress(OverflowError):  # a whole number that no float holds
            number = float(value)
    if not math.isfinite(number):
        raise InputError(f"{name} must be a finite number, not {value!r}.", field=name)
    if above is not None and not number > above:
        raise InputError(f"{name} must be above {above:g}, not {value!r}.", field=name)
    return number + 0.0  # −0 becomes 0: equal numbers have equal text


def whole_number(
    value: Any,
    name: str,
    low: int,
    high: int,
) -> int:
    """``value`` as an int, if it is a whole number in [low, high]."""
    whole = low - 1
    if _is_real(value):
        with suppress(ValueError, OverflowError):  # NaN and infinity
            whole = int(value)
    if not low <= whole <= high or whole != value:
        raise InputError(
            f"{name} must be a whole number from {low} to {high}, not {value!r}.",
            field=name,
        )
    return whole


def _is_real(value: Any) -> bool:
    """Whether it is a real number, NumPy's too, and no truth value."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def checked_epsilon(value: Any) -> float:
    """An epsilon as a float in [0.001, 64]."""
    epsilon = finite_number(value, "epsilon", above=0.0)
    if not _MIN_EPSILON <= epsilon <= _MAX_EPSILON:
        raise InputError(
            f"epsilon must lie in [{_MIN_EPSILON:g}, {_MAX_EPSILON:g}], not {epsilon:g}."
        )
    return epsilon


def checked_delta(
    value: Any,
    name: str,
    max_delta: float = 1.0,
) -> float:
    """A delta that a mechanism called ``name`` needs, as a float in [1e-30, max_delta)."""
    delta = finite_number(value, "delta")
    if not _MIN_DELTA <= delta < max_delta:
        raise InputError(
            f"{name} needs a delta in [{_MIN_DELTA:g}, {max_delta:g}), for example 1e-6, not "
            f"{delta:g}: its guarantee is an approximate one."
        )
    return delta


def not_finite(values: AnyArray) -> Fault | None:
    """The index of the first NaN or infinity, and which of them it is; None if there is none."""
    finite = np.isfinite(values)
    if finite.all():
        return None
    place = tuple(np.argwhere(~finite)[0].tolist())
    kind = "infinite"
    if np.isnan(values[place]):
        kind = "NaN"
    return place, f"is {kind}; every value must be a finite number"


def check_values(
    rows: Any,
    first_row: int = 0,
    find: Callable[[AnyArray], Fault | None] = not_finite,
) -> None:
    """Refuse an ndarray or CSR matrix with a value in which ``find`` finds a fault, naming it.

    By default NaN and infinities are refused.
    """
    is_sparse = issparse(rows)
    if fault := find(rows.data if is_sparse else rows):
        place, what = fault
        if is_sparse:
            row = int(np.searchsorted(rows.indptr, place[0], side="right")) - 1
            place = (row, int(rows.indices[place]))
        raise InputError(f"row {first_row + place[0]}, column {place[1]} {what}.")


def json_value(text: str | bytes, name: str) -> Any:
    """The value of a JSON text of at most 1 MiB."""
    if len(text) > MAX_TEXT:
        raise InputError(f"{name} is not valid JSON: it has over {MAX_TEXT} characters.")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is not valid JSON: {error}.") from None


def json_columns(columns: Mapping[str, AnyArray]) -> dict[str, list[Any]]:
    """Return arrays by name as lists of plain values: JSON has no NaN, so None is in its place.

    >>> json_columns({"score": np.array([0.5, np.nan]), "id": np.array([7, 9])})
    {'score': [0.5, None], 'id': [7, 9]}
    """
    lists = {}
    for name, column in columns.items():
        values = column.astype(object)
        if column.dtype.kind == "f":
            values[~np.isfinite(column)] = None
        elif column.dtype.kind == "O":
            is_bad = [isinstance(one, float) and not math.isfinite(one) for one in column.flat]
            values[np.reshape(is_bad, column.shape).astype(np.bool_)] = None
        lists[name] = values.tolist()
    return lists


def checked_fields(data: Any, cls: Any, name: str) -> dict[str, Any]:
    """``data``, if it is a dict of fields of the dataclass ``cls`` and lacks no required one."""
    if not isinstance(data, dict):
        raise InputError(f"{name} must be an object with fields.")
    strange = set(data) - {field.name for field in fields(cls)}
    if strange:
        raise InputError(f"{name} has an unknown field {min(strange, key=str)!r}.")
    for field in fields(cls):
        if field.default is MISSING and field.name not in data:
            raise InputError(f"{name} lacks the field {field.name!r}.")
    return data


def from_kind(
    data: Any,
    kinds: Mapping[str, type[_Object]],
    name: str,
) -> _Object:
    """The object of a dataclass in the table ``kinds`` that ``{"kind": …, field: …}`` describes."""
    kind = None
    if isinstance(data, dict):
        kind = data.get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        raise InputError(f"{name} must be an object whose kind is {' or '.join(kinds)}.")
    rest = {field: value for field, value in data.items() if field != "kind"}
    return kinds[kind](**checked_fields(rest, kinds[kind], f"{name} {kind}"))


_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@cache
def keep_freed_memory() -> None:
    """Let glibc keep freed blocks of up to 32 MB for the next arrays of this process.

    Else every array is handed to the kernel and faulted in again, page by page, a third of the time
    of privatizing. It holds under the environment of Dask's workers too, which asks for that.
    """
    with suppress(AttributeError, OSError, TypeError):  # another C library
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 25)
        libc.mallopt(_M_TRIM_THRESHOLD, 1 << 27)


def map_from_both_ends(
    task: Callable[[_Item], _Result],
    items: Sequence[_Item],
    workers: int,
) -> list[_Result]:
    """Return the results of all items in their order, computed by ``workers`` threads.

    The calling thread works too, from the last item backwards, until it meets the others: a thread
    that only waits for each result in turn is woken by every one, and takes the interpreter's lock
    from those that work. The first exception stops what has not begun and is raised.

    >>> map_from_both_ends(abs, [-1, 2, -3], workers=2)
    [1, 2, 3]
    """
    if workers == 1:
        return list(map(task, items))
    with ThreadPoolExecutor(workers - 1) as pool:
        others = [pool.submit(task, item) for item in items]
        last: list[_Result] = []
        try:
            for item, other in zip(reversed(items), reversed(others), strict=True):
                if not other.cancel():
                    break
                last.append(task(item))
            rest = others[: len(items) - len(last)]
            first = [other.result() for other in rest]
        finally:
            pool.shutdown(cancel_futures=True)
    return [*first, *reversed(last)]


def idle_cores() -> int:
    """Processors that this process may use and that others left idle in the last minute, [1, ∞)."""
    try:
        busy = os.getloadavg()[0]
    except (AttributeError, OSError):  # not on this system
        busy = 0.0
    return max(1, round(cores() - busy))


_lock = Lock()
_limits: list[int] = []
_before: dict[str, tuple[Any, int]] = {}
"""By file: pools of the process, and their threads before the first of the active limits."""


@contextmanager
def limited_threads(most: int | None = None) -> Iterator[None]:
    """Let BLAS and OpenMP have at most so many threads; by default, as many as idle processors.

    Threads of these pools wait for each other after every small operation. Where one of them has no
    processor, the others spin, and the work takes several times as long as with a single thread.
    Pools are never enlarged, so ``OMP_NUM_THREADS`` and other limits hold.

    NumPy's pool is that of the whole process, so this is for commands and long operations, and not
    for a search in a server. Limits may overlap, nested or in several threads: the lowest of them
    holds, and the last to end gives the pool back what it had before the first. OpenMP, which Faiss
    uses, is limited in the calling thread alone. A pool that is loaded later is not limited.

    >>> with limited_threads():
    ...     _ = sum(range(10))
    """
    from threadpoolctl import ThreadpoolController  # long operations alone need it

    limit = most or idle_cores()
    pools = ThreadpoolController()
    openmp = pools.select(user_api="openmp", threading_layer="openmp").lib_controllers
    own = [(pool, pool.num_threads or 1) for pool in openmp]
    with _lock:
        for pool in pools.lib_controllers:
            if pool not in openmp:
                _before.setdefault(pool.filepath, (pool, pool.num_threads or 1))
        _limits.append(limit)
        _set_pools(pools)
    try:
        for pool, threads in own:
            pool.set_num_threads(min(threads, limit))
        yield
    finally:
        for pool, threads in own:
            pool.set_num_threads(threads)
        with _lock:
            _limits.remove(limit)
            _set_pools(pools)
            if not _limits:
                _before.clear()


def _set_pools(pools: Any) -> None:
    """Let pools of the process have what they had before, or the lowest limit if that is less."""
    # threadpoolctl lets no other thread set OpenBLAS until the one that did leaves such a block.
    with pools.select().limit():
        for pool, threads in _before.values():
            pool.set_num_threads(min([threads, *_limits]))
