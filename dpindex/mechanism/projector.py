"""Checks of vectors against a spec, and their exact projection: public, without any noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from dpindex.base.arrays import AnyArray, Floats, Vectors, issparse, row_blocks
from dpindex.base.checks import check_values, real_matrix
from dpindex.base.errors import InputError
from dpindex.mechanism.noise.randomized_response import norm_slack
from dpindex.mechanism.spec import Spec

__all__ = ["Projector", "block_rows", "rows_of"]

_CHECK_ROWS = 4096
_NORM_TOLERANCE = 0.01


def block_rows(spec: Spec, sparse: bool) -> int:
    """Vectors that are projected at a time, and get their noise together."""
    codes = 2 * spec.projection.k  # noise takes twice the memory of what it is added to
    return max(16, spec.projection.block_numbers // (codes if sparse else max(spec.dim, codes)))


class Projector:
    """Checks vectors against a spec and projects them, as an exact query needs.

    Parameters
    ----------
    spec : Spec
        The public description of the mechanism.

    >>> from dpindex import attribute
    >>> spec = Spec(method="dp-oporp-staircase", dim=6, k=2, epsilon=2.0, adjacency=attribute(1.0))
    >>> Projector(spec).project(np.zeros((3, 6))).shape
    (3, 2)
    """

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        spec.grid.check_capacity(spec.law.max_sum)

    def project(self, x: Vectors, *, first_row: int = 0) -> Floats:
        """The exact projection, in grid integers held in floats, shape (n, k): *not private*.

        Times ``spec.step`` it is in units of the scaled attributes.
        """
        rows = self.rows(x)
        step = block_rows(self.spec, issparse(rows))
        starts = range(0, rows.shape[0], step)
        return np.concatenate(
            [self._project_block(rows_of(rows, i, i + step), first_row + i) for i in starts]
        )

    def check(self, x: Vectors, *, first_row: int = 0) -> None:
        """Raise the InputError that projecting would raise, if any."""
        rows = self.rows(x)
        for block in row_blocks(rows.shape[0], _CHECK_ROWS):
            self._check_values(rows[block], first_row + block.start)

    def rows(self, x: Vectors) -> Any:
        """Vectors as an ndarray or CSR matrix of shape (n, dim); values are not looked at yet."""
        rows = real_matrix(x, self.spec.dim)
        if issparse(rows) and (self.spec.bounds[0] > 0 or self.spec.bounds[1] < 0):
            raise InputError("sparse vectors hold zeros, which lie outside the public bounds.")
        return rows

    def _project_block(self, block: Any, first_row: int, checked: bool = False) -> Floats:
        grid = self.spec.grid
        projection = self.spec.projection
        if not checked:
            self._check_values(block, first_row)
        if not issparse(block):
            return projection.apply(grid.round(block))
        data = grid.round(block.data)
        rounded = scipy.sparse.csr_matrix((data, block.indices, block.indptr), shape=block.shape)
        return projection.apply_sparse(rounded)

    def _check_values(self, block: Any, first_row: int) -> None:
        check_values(block, first_row, self.spec.grid.first_fault)
        self._check_norms(block, first_row)

    def _check_norms(self, block: Any, first_row: int) -> None:
        declared = self.spec.norm
        least = self.spec.min_norm
        if least is not None:
            # Norms that are right but for their last digits pass: the guarantee allows for them.
            norms = self._norms(block, clip=True)  # as they will be rounded
            short = np.flatnonzero(~(norms >= least - norm_slack(self.spec)))
            if short.size:
                raise InputError(
                    f"row {first_row + int(short[0])} is shorter than min_norm = {least:g}, on "
                    f"which the guarantee rests; leave such vectors out or lower min_norm.",
                    field="min_norm",
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
            values: AnyArray = wide.data if issparse(wide) else wide
            np.clip(values, low, high, out=values)
        squares = wide.multiply(wide).sum(axis=1) if issparse(wide) else (wide**2).sum(1)
        norms: AnyArray = np.sqrt(np.asarray(squares).ravel()) / self.spec.scale
        return norms


def rows_of(x: Any, start: int, stop: int) -> Any:
    """Some rows of a table; scipy's own slices copy every entry, these copy none."""
    if not issparse(x):
        return x[start:stop]
    bounds = x.indptr[start : stop + 1]
    inside = slice(bounds[0], bounds[-1])
    parts = (x.data[inside], x.indices[inside], bounds - bounds[0])
    return scipy.sparse.csr_matrix(parts, shape=(len(bounds) - 1, x.shape[1]), copy=False)
