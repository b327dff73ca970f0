"""Spec in hand, vectors in, codes out: all that a device needs, and the engine of every ingest."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import numpy as np
from scipy import sparse

from dpindex.arrays import AnyArray, Floats, Integers, Vectors, canonical_csr
from dpindex.codes import BitCodes, Codes, FloatCodes, narrowest
from dpindex.errors import InputError
from dpindex.randomness import BitSource, secret_stream
from dpindex.spec import Spec

__all__ = ["Privatizer", "cores"]

_CACHE_NUMBERS = 1 << 18
"""Numbers handled at a time: a megabyte of float32, so that a block stays in L2."""

_TASK_NUMBERS = 1 << 19
"""Projected numbers that a thread is handed at a time, and that get their noise together: enough
that the few draws which need a second look are handled in one go, as small steps make threads wait
for each other."""

_CHECK_ROWS = 4096

_MAX_SUM, _MAX_CODE = 2**46, 2**30
"""Bounds on projected grid integers, and on what of them is left in a float code, an int32."""

_MAX_DEVIATION = 2**24
"""Bound on the deviation of the noise in a float code, which then never leaves an int32."""

# Freeing one large block tells glibc's malloc to keep blocks of that size instead of handing every
# freed array back to the kernel and faulting it in again, page by page: a third of the ingest time.
# Untouched memory costs nothing, and elsewhere this does nothing.
np.empty(31 << 20, dtype=np.uint8)
_NORM_TOLERANCE = 0.01


def cores() -> int:
    """Processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Privatizer:
    """Turns vectors into private codes under one spec. Each call spends the budget of each vector.

    Privatizing the same vector twice is two releases: the epsilons add up.

    Parameters
    ----------
    spec : Spec
        The public description of the mechanism.

    >>> spec = Spec(method="dp-oporp-staircase", dim=6, k=2, epsilon=2.0)
    >>> codes = Privatizer(spec).privatize(np.zeros((3, 6)))
    >>> codes.to_float().shape
    (3, 2)
    """

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self._check_capacity()
        # The seam through which tests, and tests alone, put a stream of their own.
        self._stream: Callable[[], BitSource] = secret_stream

    def _check_capacity(self) -> None:
        if self.spec.row.kind == "bits":
            return self.spec.grid.check_capacity(_MAX_SUM)
        gain, deviation = self.decoder.gain, math.sqrt(self.decoder.variance[0])
        self.spec.grid.check_capacity(min(_MAX_SUM, int(_MAX_CODE * gain)))
        if deviation > _MAX_DEVIATION * gain:
            raise InputError(
                f"epsilon = {self.spec.budget:g} asks {self.spec.method} for more noise than a "
                f"code can hold; raise epsilon or lower k."
            )
        return None

    def privatize(self, x: Vectors, *, first_row: int = 0, threads: int | None = None) -> Codes:
        """Private codes of vectors.

        Parameters
        ----------
        x : array or scipy sparse matrix, shape (n, dim)
            Any real dtype. A single vector of shape (dim,) is one row.
        first_row : int
            Number of the first row, used in messages only.
        threads : int, optional
            Worker threads; default all cores.

        Returns
        -------
        BitCodes or FloatCodes of length n.

        Raises
        ------
        InputError
            For a wrong shape or dtype, no rows, NaN, infinities, and values outside the bounds.
        """
        if threads is not None and threads < 1:
            raise InputError(f"threads must be at least 1, not {threads}.")
        rows = self._checked(x)
        out = np.empty((rows.shape[0], self._width), dtype=self._usual)
        step = max(1, _TASK_NUMBERS // self.spec.code_length)
        starts = range(0, len(out), step)

        def task(start: int) -> list[tuple[int, Integers]]:
            return self._fill(out, rows, slice(start, start + step), first_row)

        workers = min(threads or cores(), len(starts))
        if workers == 1:
            unusual = [task(start) for start in starts]
        else:
            with ThreadPoolExecutor(workers) as pool:
                unusual = list(pool.map(task, starts))
        return self.codes_from_storage(
            _patched(out, [block for blocks in unusual for block in blocks])
        )

    def project(self, x: Vectors, *, first_row: int = 0) -> Floats:
        """The exact projection, in grid integers held in floats, shape (n, k): *not private*.

        For the searcher who keeps the query. Times ``step``: in units of the scaled attributes.
        """
        return self._project(self._checked(x), first_row)

    def check(self, x: Vectors, *, first_row: int = 0) -> None:
        """Raise the InputError that ``privatize`` would raise, if any; spends nothing."""
        rows = self._checked(x)
        for start in range(0, rows.shape[0], _CHECK_ROWS):
            self._check_values(rows[start : start + _CHECK_ROWS], first_row + start)

    @property
    def step(self) -> float:
        """Units of the scaled attributes per grid step of a projected coordinate."""
        return self.spec.grid.step * self.spec.projection.gain

    def _checked(self, x: Vectors) -> Any:
        if np.ma.isMaskedArray(x):
            raise InputError("vectors have a mask, which would be lost; fill the missing values.")
        if sparse.issparse(x):
            if np.dtype(x.dtype).kind not in "biuf":
                raise InputError(f"vectors must be real numbers, not {x.dtype}.")
            try:
                rows: Any = canonical_csr(x) if x.ndim == 2 else x
            except ValueError as error:
                raise InputError(f"the sparse matrix is malformed: {error}.") from None
            if self.spec.bounds[0] > 0 or self.spec.bounds[1] < 0:
                raise InputError("sparse vectors hold zeros, which lie outside the public bounds.")
        else:
            try:
                rows = np.asarray(x)
            except ValueError:
                raise InputError("vectors must all be equally long, and numbers.") from None
            if rows.dtype.kind not in "biuf":
                raise InputError(f"vectors must be real numbers, not {rows.dtype}.")
            if rows.ndim == 1:
                rows = rows[None, :]
        if rows.ndim != 2:
            raise InputError(f"vectors must form a table of two dimensions, not {rows.ndim}.")
        if rows.shape[0] == 0:
            raise InputError("there are no vectors: the input has no rows.")
        if rows.shape[1] != self.spec.dim:
            raise InputError(
                f"vectors have {rows.shape[1]} columns where the spec says dim = {self.spec.dim}."
            )
        return rows

    def _project(self, rows: Any, first_row: int) -> Floats:
        """Projected rows, made a cacheful at a time."""
        width = (
            self.spec.code_length
            if sparse.issparse(rows)
            else max(self.spec.dim, self.spec.code_length)
        )
        step = max(16, _CACHE_NUMBERS // width)
        parts = [
            self._project_block(_rows(rows, start, start + step), first_row + start)
            for start in range(0, rows.shape[0], step)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _project_block(self, block: Any, first_row: int) -> Floats:
        grid, projection = self.spec.grid, self.spec.projection
        self._check_values(block, first_row)
        if not sparse.issparse(block):
            return projection.apply(grid.round(block))
        data = grid.round(block.data)
        rounded = sparse.csr_matrix((data, block.indices, block.indptr), shape=block.shape)
        return projection.apply_sparse(rounded)

    def _check_values(self, block: Any, first_row: int) -> None:
        if sparse.issparse(block):
            if fault := self.spec.grid.first_fault(block.data):
                (place,), what = fault
                row = int(np.searchsorted(block.indptr, place, side="right")) - 1
                _refuse(first_row + row, int(block.indices[place]), what)
        elif fault := self.spec.grid.first_fault(block):
            (row, column), what = fault
            _refuse(first_row + row, column, what)
        self._check_norms(block, first_row)

    def _check_norms(self, block: Any, first_row: int) -> None:
        declared, least = self.spec.norm, self.spec.min_norm
        if least is not None:
            # Norms that are right but for their last digits pass: the guarantee allows for them.
            norms = self._norms(block, clip=True)  # as they will be rounded
            short = np.flatnonzero(~(norms >= least - self.spec.norm_slack))
            if short.size:
                raise InputError(
                    f"row {first_row + int(short[0])} is shorter than min_norm = {least:g}, on "
                    f"which the guarantee rests; leave such vectors out or lower min_norm."
                )
        if declared is None:
            return
        norms = self._norms(block)
        wrong = np.flatnonzero(~(np.abs(norms - declared) <= _NORM_TOLERANCE * declared))
        if wrong.size:
            raise InputError(
                f"row {first_row + int(wrong[0])} does not have the declared norm {declared:g}; "
                f"normalise the vectors or leave norm out."
            )

    def _norms(self, block: Any, clip: bool = False) -> AnyArray:
        """Norms of the scaled rows, before or after clipping."""
        wide: Any = block.astype(np.float64)
        if clip:
            low, high = (bound * self.spec.scale for bound in self.spec.bounds)
            values: AnyArray = wide.data if sparse.issparse(wide) else wide
            np.clip(values, low, high, out=values)
        squares = wide.multiply(wide).sum(axis=1) if sparse.issparse(wide) else (wide**2).sum(1)
        norms: AnyArray = np.sqrt(np.asarray(squares).ravel()) / self.spec.scale
        return norms

    @property
    def _width(self) -> int:
        """Columns of the stored form: bytes of packed bits, or numbers."""
        return (
            -(-self.spec.code_length // 8)
            if self.spec.row.kind == "bits"
            else self.spec.code_length
        )

    @property
    def _usual(self) -> type[np.uint8] | type[np.int16]:
        """What nearly every code fits into: bytes of packed bits, or int16."""
        return np.uint8 if self.spec.row.kind == "bits" else np.int16

    def _fill(
        self, out: Integers, rows: Any, part: slice, first_row: int
    ) -> list[tuple[int, Integers]]:
        """Codes of some rows into ``out``; returns the block if it needs wider integers."""
        stream = self._stream()
        projected = self._project(_rows(rows, part.start, part.stop), first_row + part.start)
        noisy: AnyArray = self.spec.law.perturb(projected, stream)
        place = out[part]
        if self.spec.row.kind == "bits":
            place[...] = np.packbits(noisy, axis=1, bitorder="little")
        elif narrowest(noisy).dtype.itemsize > place.dtype.itemsize:
            return [(part.start, noisy)]
        else:
            place[...] = noisy
        return []

    def codes_from_storage(self, values: Integers) -> Codes:
        """Stored codes (packed bits or small integers, shape (n, …)) with what decodes them."""
        if self.spec.row.kind == "bits":
            return BitCodes(
                values.astype(np.uint8, copy=False), self.spec.code_length, self.spec.fingerprint
            )
        decoder = self.decoder
        return FloatCodes(values, decoder.gain * self.step, decoder.offset, self.spec.fingerprint)

    @property
    def decoder(self) -> Any:
        """How float codes decode, in grid steps."""
        law: Any = self.spec.law
        return law.decoder


def _rows(x: Any, start: int, stop: int) -> Any:
    """Some rows of a table; scipy's own slices copy every entry, these copy none."""
    if not sparse.issparse(x):
        return x[start:stop]
    bounds = x.indptr[start : stop + 1]
    inside = slice(bounds[0], bounds[-1])
    parts = (x.data[inside], x.indices[inside], bounds - bounds[0])
    return sparse.csr_matrix(parts, shape=(len(bounds) - 1, x.shape[1]), copy=False)


def _refuse(row: int, column: int, what: str) -> NoReturn:
    raise InputError(f"row {row}, column {column} {what}.")


def _patched(values: Integers, unusual: list[tuple[int, Integers]]) -> Integers:
    """``values`` in the smallest integers that hold them and the blocks that did not fit."""
    if unusual:
        values = values.astype(np.int32)
        for start, block in unusual:
            values[start : start + len(block)] = block
    return values if values.dtype == np.uint8 else narrowest(values)
