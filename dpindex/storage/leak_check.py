"""The leak check of codebooks: a codebook that holds private vectors is refused.

A codebook is published, whole and without noise, so no epsilon covers private vectors in it. The
check is against accidents: a private file, or a part of one, that was named as the public one. It
looks for codewords that lie in the direction of a private vector, and refuses a codebook with at
least two of them that are more than 1 % of it; a few coincide by chance wherever people say the
same things.

*What the refusal itself reveals.* Whether it comes depends on the private vectors. It is shown to
whoever holds them, and nothing is published by it; an index does not tell whether the check ran.
But an index that is published after a check tells that the check passed: that few codewords were
private vectors. One vector by itself is never refused, so no device falls silent because of what
its vector is. Do not drop the codewords that were found and try again: which ones are missing then
would tell which vectors there are. Take a codebook of another origin.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dpindex.base.arrays import Doubles, Floats, in_units_of_largest, issparse, unit
from dpindex.base.errors import InputError
from dpindex.mechanism.codebook import Codebook
from dpindex.randomness import PublicStream

__all__ = ["refuse_shared_rows", "refuse_shared_words", "shared_words"]

_SHARE = 0.01
_FEWEST = 2
_BLOCK_ROWS = 1024
# Rows are compared if they are equal when rounded to 2^-8 of their largest magnitude, in one of two
# ways; they are equal if their cosine is 1 up to the rounding of float32.
_STEPS = 256.0
# Values such as 0, 1/2 and 1 must not lie at the edge of an interval.
_OFFSETS = (0.29, 0.79)
_SAME = 1.0 - 1e-6


class _Directions:
    """The directions of some vectors, among which equal ones are found."""

    def __init__(self, vectors: Floats, offset: float) -> None:
        wide = in_units_of_largest(vectors)
        self._offset = offset
        self._unit = unit(wide)
        self._factors = PublicStream(0, "leak check").words(vectors.shape[1], np.uint64)
        keys = self._keys(wide)
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]

    def _keys(self, wide: Doubles) -> npt.NDArray[np.uint64]:
        steps = np.floor(wide * _STEPS + self._offset).astype(np.int64).view(np.uint64)
        return np.asarray(steps @ self._factors)

    def pairs(self, vectors: Floats) -> Iterator[tuple[int, int]]:
        """Yield rows of vectors, each with the row of a direction that equals it."""
        wide = in_units_of_largest(vectors)
        rows = unit(wide)
        keys = self._keys(wide)
        first = np.searchsorted(self._sorted, keys, "left")
        last = np.searchsorted(self._sorted, keys, "right")
        for row in np.flatnonzero(first < last):
            close = self._order[first[row] : last[row]]
            for word in close[self._unit[close] @ rows[row] >= _SAME]:
                yield int(row), int(word)


def refuse_shared_rows(codebook: Codebook, chunks: Iterable[tuple[int, Any]]) -> None:
    """Refuse a codebook of which more than 1 % lie in the direction of a private vector.

    Parameters
    ----------
    codebook : Codebook
    chunks : iterable of (int, array or sparse matrix)
        Private vectors with the number of their first row; memory is that of a block of them.

    Raises
    ------
    InputError
        With the first such codeword and the row that it equals.

    >>> rows = np.random.default_rng(0).normal(size=(100, 8))
    >>> refuse_shared_rows(Codebook(rows[:50]), [(0, rows[50:])])
    >>> try:
    ...     refuse_shared_rows(Codebook(rows[:50]), [(0, 3 * rows)])
    ... except InputError as error:
    ...     print(str(error)[:75])
    50 of the 50 codewords are private vectors too (codeword 0 is row 0), and a
    """
    refuse_shared_words(codebook, shared_words(codebook, chunks))


def shared_words(codebook: Codebook, chunks: Iterable[tuple[int, Any]]) -> dict[int, int]:
    """Return codewords that lie in the direction of a private vector, each with a row of one."""
    indexes = [_Directions(codebook.stated, offset) for offset in _OFFSETS]
    shared: dict[int, int] = {}
    for first, chunk in chunks:
        for start in range(0, chunk.shape[0], _BLOCK_ROWS):
            rows = chunk[start : start + _BLOCK_ROWS]
            if issparse(rows):
                rows = rows.toarray()
            for index in indexes:
                for row, word in index.pairs(rows):
                    shared.setdefault(word, first + start + row)
    return shared


def refuse_shared_words(codebook: Codebook, shared: Mapping[int, int]) -> None:
    """Refuse a codebook for the shared codewords, as :func:`refuse_shared_rows` does."""
    if len(shared) >= _FEWEST and len(shared) > _SHARE * len(codebook):
        word, row = min(shared.items())
        raise InputError(
            f"{len(shared)} of the {len(codebook)} codewords are private vectors too (codeword "
            f"{word} is row {row}), and a codebook is published as it is: no epsilon covers what "
            f"is in it. Take public vectors of another origin, or pass skip_leak_check=True "
            f"if these are public after all.",
            parameters=["skip_leak_check=True"],
        )
