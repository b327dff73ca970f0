"""The projection as it is applied, read entry by entry: no sensitivity is taken on trust."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from dpindex.audit.checks import Check
from dpindex.errors import InputError
from dpindex.spec import Spec

__all__ = ["RealisedMap", "norm_check", "projection_check", "read_map"]

_MAX_ENTRIES = 1 << 32
_CHUNK_ENTRIES = 1 << 22
_MAX_GRAM = 96
_SCALE_BITS = 40


@dataclass(frozen=True)
class RealisedMap:
    """What was read of the map W, one row an attribute.

    Attributes
    ----------
    count, l1, l2_squared : int
        The most non-zero entries, the largest ``Σ|w|`` and ``Σw²`` of any row.
    largest : int array, shape (k,)
        The largest ``|w|`` of each coordinate.
    max_column_l1 : int
        The largest ``Σ|w|`` of any coordinate.
    sound : bool
        Whether all entries are integers, and the dense and the sparse route agree on them.
    gram : int array, optional
        ``WᵀW`` or ``WWᵀ``, the smaller, where the adjacency asks for it.
    """

    count: int
    l1: int
    l2_squared: int
    largest: npt.NDArray[np.int64]
    max_column_l1: int
    sound: bool
    gram: npt.NDArray[np.int64] | None


def read_map(spec: Spec) -> RealisedMap:
    """Apply both routes (dense and sparse) of the projection to every unit vector."""
    dim, k = spec.dim, spec.code_length
    if dim * k > _MAX_ENTRIES:
        raise InputError(
            f"the verifier reads every entry of the projection, and dim × k = {dim * k} is beyond "
            f"{_MAX_ENTRIES}; verify a smaller spec of the same method and epsilon."
        )
    wants_gram = spec.adjacency.kind == "l2"
    if wants_gram and min(dim, k) > _MAX_GRAM:
        raise InputError(
            f"the verifier proves an operator norm for at most {_MAX_GRAM} attributes or "
            f"coordinates; verify a smaller spec of the same method and epsilon."
        )
    count = l1 = l2_squared = 0
    largest, sums = np.zeros(k, dtype=np.int64), np.zeros(k, dtype=np.int64)
    sound, blocks = True, []
    rows = max(1, _CHUNK_ENTRIES // max(dim, k))
    for start in range(0, dim, rows):
        size = min(rows, dim - start)
        unit: Any = sparse.csr_matrix(
            (np.ones(size), (np.arange(size), start + np.arange(size))), shape=(size, dim)
        )
        image = np.asarray(spec.projection.apply(unit.toarray()))
        entries = np.abs(image).astype(np.int64)
        sound &= bool(np.array_equal(image, spec.projection.apply_sparse(unit)))
        sound &= bool(np.array_equal(np.abs(image), entries))
        count = max(count, int(np.count_nonzero(entries, axis=1).max()))
        l1 = max(l1, int(entries.sum(axis=1).max()))
        l2_squared = max(l2_squared, int((entries**2).sum(axis=1).max()))
        largest = np.maximum(largest, entries.max(axis=0))
        sums += entries.sum(axis=0)
        if wants_gram:
            blocks.append(image.astype(np.int64))
    gram = None
    if wants_gram:
        whole = np.concatenate(blocks)
        gram = whole.T @ whole if k <= dim else whole @ whole.T
    return RealisedMap(count, l1, l2_squared, largest, int(sums.max()), sound, gram)


def projection_check(spec: Spec, found: RealisedMap) -> Check:
    """The sensitivities that the law was calibrated for are those of the map that is applied."""
    claimed = spec.projection.sensitivity
    within = (
        found.count <= claimed.count
        and found.l1 <= claimed.l1
        and found.l2_squared <= claimed.l2_squared
        and found.max_column_l1 <= spec.projection.max_column_l1
        and bool((found.largest <= spec.projection.largest).all())
    )
    return Check(
        "projection: what one attribute moves",
        f"{found.count} of {spec.code_length} coordinates, Σ|w| = {found.l1}, Σw² = {found.l2_squared}"
        + ("" if found.sound else ", entries or routes that do not agree"),
        f"{claimed.count}, {claimed.l1}, {claimed.l2_squared}",
        "every other coordinate has the same law on both neighbours and is independent, so only "
        "the coordinates moved count; all attributes are read, by the dense and the sparse route",
        found.sound and within,
    )


def norm_check(spec: Spec, found: RealisedMap) -> tuple[Check, Fraction]:
    """Is the operator norm what it is said to be? Also returns the bound on its square."""
    projection: Any = spec.projection
    assert found.gram is not None
    square = Fraction(float(projection.operator_norm)) ** 2
    check = Check(
        "projection: operator norm",
        f"‖W‖² at most {float(square):.12g}: {'proved' if _bounds(found.gram, square) else 'NOT'}",
        "an upper bound",
        "t·I − WᵀW is positive semidefinite (Sylvester: all leading minors, in exact integers)",
        _bounds(found.gram, square),
    )
    return check, square


def _bounds(gram: npt.NDArray[np.int64], square: Fraction) -> bool:
    """Whether no eigenvalue of an integer matrix exceeds ``square``, decided in integers."""
    diagonal = np.diag(gram)
    if not (gram - np.diag(diagonal)).any():
        return int(diagonal.max()) <= square
    scaled = int(square * (1 << _SCALE_BITS))  # rounded down: a slightly smaller bound is proved
    size = len(gram)
    rows = [[-int(x) << _SCALE_BITS for x in row] for row in gram.tolist()]
    for i in range(size):
        rows[i][i] += scaled
    # Bareiss 1968: without fractions every pivot is a leading minor of the matrix.
    before = 1
    for i in range(size):
        pivot = rows[i][i]
        if pivot <= 0:
            return False
        for r in range(i + 1, size):
            row, lead, top = rows[r], rows[r][i], rows[i]
            for c in range(i + 1, size):
                row[c] = (row[c] * pivot - lead * top[c]) // before
        before = pivot
    return True
