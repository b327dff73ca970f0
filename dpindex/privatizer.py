"""Spec in hand, vectors in, codes out: all that a device needs, and the engine of every ingest."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
from scipy import sparse

from dpindex.arrays import AnyArray, Floats, Integers, Vectors
from dpindex.codes import BitCodes, Codes, FloatCodes, narrowest
from dpindex.errors import InputError
from dpindex.randomness import BitSource, secret_stream
from dpindex.spec import Spec

__all__ = ["Privatizer", "cores"]

_CACHE_NUMBERS = 1 << 17
"""Numbers handled at a time: half a megabyte of float32, so that a block stays in L2."""

_TASK_ROWS = 4096
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
        spec.grid.check_capacity()
        # The seam through which tests, and tests alone, put a stream of their own.
        self._stream: Callable[[], BitSource] = secret_stream

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
        rows = self._checked(x)
        starts = range(0, rows.shape[0], _TASK_ROWS)

        def task(start: int) -> Integers:
            return self._block(rows[start : start + _TASK_ROWS], first_row + start)

        workers = min(threads or cores(), len(starts))
        if workers == 1:
            blocks = [task(start) for start in starts]
        else:
            with ThreadPoolExecutor(workers) as pool:
                blocks = list(pool.map(task, starts))
        return self._codes(blocks)

    def project(self, x: Vectors, *, first_row: int = 0) -> Floats:
        """The exact projection, in grid integers held in floats, shape (n, k): *not private*.

        For the searcher who keeps the query. Multiply by ``step`` to get the data's units.
        """
        rows = self._checked(x)
        parts = [part for _, part in self._projected(rows, first_row)]
        return np.concatenate(parts)

    def check(self, x: Vectors, *, first_row: int = 0) -> None:
        """Raise the InputError that ``privatize`` would raise, if any; spends nothing."""
        rows = self._checked(x)
        for start in range(0, rows.shape[0], _TASK_ROWS):
            self._check_values(rows[start : start + _TASK_ROWS], first_row + start)

    @property
    def step(self) -> float:
        """Units of the data per grid step of a projected coordinate."""
        return self.spec.grid.step * self.spec.projection.gain

    def _checked(self, x: Vectors) -> Any:
        if sparse.issparse(x):
            if np.dtype(x.dtype).kind not in "biuf":
                raise InputError(f"vectors must be real numbers, not {x.dtype}.")
            rows: Any = x.tocsr()
            if not rows.has_canonical_format:  # entries given twice are one attribute: their sum
                rows = rows.copy()
                rows.sum_duplicates()
            if self.spec.bounds[0] > 0 or self.spec.bounds[1] < 0:
                raise InputError("sparse vectors hold zeros, which lie outside the public bounds.")
        else:
            rows = np.asarray(x)
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

    def _projected(self, rows: Any, first_row: int) -> Iterator[tuple[int, Floats]]:
        width = self.spec.dims if sparse.issparse(rows) else max(self.spec.dim, self.spec.dims)
        step = max(16, _CACHE_NUMBERS // width)
        for start in range(0, rows.shape[0], step):
            yield start, self._project_block(rows[start : start + step], first_row + start)

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
        declared = self.spec.norm
        if declared is None:
            return
        wide: Any = block.astype(np.float64)
        squares = wide.multiply(wide).sum(axis=1) if sparse.issparse(wide) else (wide**2).sum(1)
        norms = np.sqrt(np.asarray(squares).ravel()) / self.spec.scale
        wrong = np.flatnonzero(~(np.abs(norms - declared) <= _NORM_TOLERANCE * declared))
        if wrong.size:
            raise InputError(
                f"row {first_row + int(wrong[0])} does not have the declared norm {declared:g}; "
                f"normalise the vectors or leave norm out."
            )

    def _block(self, rows: Any, first_row: int) -> Integers:
        """Codes of a few thousand rows in their stored form: packed bits or small integers."""
        stream = self._stream()
        law = self.spec.law
        parts: list[Integers] = []
        for _, projected in self._projected(rows, first_row):
            noisy: AnyArray = law.perturb(projected, stream)
            if self.spec.row.kind == "bits":
                parts.append(np.packbits(noisy, axis=1, bitorder="little"))
            else:
                parts.append(narrowest(noisy))
        return np.concatenate(parts)

    def _codes(self, blocks: list[Integers]) -> Codes:
        values: npt.NDArray[Any] = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
        return self.wrap(values)

    def wrap(self, values: Integers) -> Codes:
        """Stored codes (packed bits or small integers, shape (n, …)) with what decodes them."""
        if self.spec.row.kind == "bits":
            return BitCodes(
                values.astype(np.uint8, copy=False), self.spec.dims, self.spec.fingerprint
            )
        decoder = self.decoder
        return FloatCodes(values, decoder.gain * self.step, decoder.offset, self.spec.fingerprint)

    @property
    def decoder(self) -> Any:
        """How float codes decode, in grid steps."""
        law: Any = self.spec.law
        return law.decoder


def _refuse(row: int, column: int, what: str) -> NoReturn:
    raise InputError(f"row {row}, column {column} {what}.")
