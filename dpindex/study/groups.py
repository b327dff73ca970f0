"""Groups of rows that resemble each other more than others do, such as captions of one picture."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy

from dpindex.base.arrays import AnyArray, Bools, Integers, row_norms, spaced
from dpindex.base.errors import InputError
from dpindex.data import VectorSource
from dpindex.data.source import check_one_each
from dpindex.decode.base import Metric
from dpindex.study.truth import ground_truth

# Groups that a plan needs, if there are any: a quarter of a half of them predicts the rest.
_FEWEST_GROUPS = 100
# Rows whose nearest vectors tell groups, how many of these, standard deviations that are beyond
# chance, and the share of a distance up to which rows are the same.
_TESTED = 500
_NEAREST = 32
_BEYOND_CHANCE = 3.5
_SAME = 1e-6
# Near-copies lie before a leap of so many usual spacings, which one independent row in five
# thousand has, at half the distance or less of what is behind it (logarithm of its square), and so
# many rows have some: those of fewer hardly change what a search finds.
_CLEAR = 12.0
_HALF_AS_FAR = math.log(4.0)
_CLEAR_SHARE = 0.1
_TINY = 1e-30


class NearRows:
    """Which rows of a sample lie near others: whether they come in groups, or have near-copies.

    Parameters
    ----------
    vectors : array or CSR matrix, shape (n, dim)
    metric : "cosine", "ip" or "l2"
    """

    def __init__(self, vectors: Any, metric: Metric) -> None:
        self._vectors = _as_compared(vectors, metric)

    @cached_property
    def _tested(self) -> _Leaps:
        """Leaps of some rows, of which both are first looked for."""
        return _leaps(self._vectors, spaced(self._vectors.shape[0], _TESTED), _NEAREST)

    def groups(self) -> Integers | None:
        """Return the groups that rows come in, numbered, or None if rows may be independent.

        Of independent rows that have k others near, (k + 1) P(k + 1) / P(k) more are expected in
        another sample, and no fewer for a larger k (Robbins 1956). Rows that come in whole groups,
        as captions of pictures do, break that: none has more near ones than the others of its
        group. The size of the sample does not matter.

        Groups are sets of rows that are the nearest of each other: of the size that shows it, or of
        a smaller one before a leap.

        >>> things = np.random.default_rng(0).normal(size=(400, 1, 8))
        >>> rows = things + np.random.default_rng(1).normal(scale=0.01, size=(400, 3, 8))
        >>> np.bincount(NearRows(rows.reshape(1200, 8), "l2").groups()).tolist() == [3] * 400
        True
        >>> NearRows(rows[:, 0], "l2").groups() is None
        True
        """
        count = self._vectors.shape[0]
        others = np.arange(1, _NEAREST)
        leaps = self._tested.others
        rows = np.bincount(leaps, minlength=1 + _NEAREST) + 1.0
        rows[0] = 2 * rows[1 + _NEAREST // 2 :].sum()  # where none is near, a leap is anywhere
        most = np.sqrt(rows[others - 1] * rows[others + 1] * (others + 1) / others)
        # A group shows it once, however many of its rows are looked at.
        repeated = np.maximum((others + 1) * len(leaps) / count, 1.0)
        deviations = (rows[others] - most) / np.sqrt(repeated * (rows[others] + most))
        if deviations.max() < _BEYOND_CHANCE:
            return None
        largest = int(others[deviations.argmax()])
        leaps, nearest, _ = _leaps(self._vectors, np.arange(count), 2 * largest)
        labels = np.arange(count)
        for size in range(1, 1 + largest):
            near = nearest[:, :size]
            sets = np.sort(np.hstack([np.arange(count)[:, None], near]), axis=1)
            are_groups = (sets[near] == sets[:, None]).all(axis=(1, 2))
            if size < largest:
                are_groups &= leaps == size
            labels[sets[are_groups]] = sets[are_groups, :1]
        return _numbered(labels)

    def copies(self) -> Integers | None:
        """Return sets of near-copies, numbered, or None if few rows have any.

        They may be groups of any sizes, or independent rows of kinds that are more or less common:
        both look the same. Rows that repeat are no copies, as those of a table of whole numbers do
        by chance.

        >>> rng = np.random.default_rng(0)
        >>> things = np.repeat(rng.normal(size=(300, 16)), rng.geometric(0.3, size=300), axis=0)
        >>> copies = NearRows(things + rng.normal(scale=0.01, size=things.shape), "l2").copies()
        >>> len(set(copies.tolist()))
        300
        >>> NearRows(rng.normal(size=(1000, 16)), "l2").copies() is None
        True
        """
        count = self._vectors.shape[0]
        if self._tested.are_clear.mean() < _CLEAR_SHARE:
            return None
        leaps, nearest, are_clear = _leaps(self._vectors, np.arange(count), _NEAREST)
        rows, places = np.nonzero(are_clear[:, None] & (np.arange(_NEAREST) < leaps[:, None]))
        pairs = scipy.sparse.csr_matrix(
            (np.ones(len(rows)), (rows, nearest[rows, places])), shape=(count, count)
        )
        return _numbered(scipy.sparse.csgraph.connected_components(pairs, directed=False)[1])


def _as_compared(vectors: Any, metric: Metric) -> Any:
    """Return vectors whose distances are those that neighbours are ranked by."""
    if metric == "l2":
        return vectors
    factors = 1.0 / np.maximum(row_norms(vectors), _TINY)
    return scipy.sparse.diags(factors, dtype=np.float32) @ vectors


def _numbered(labels: Integers) -> Integers | None:
    """Return groups by their numbers, or None if they are too few."""
    numbers: Integers = np.unique(labels, return_inverse=True)[1]
    return numbers if numbers.max() + 1 >= _FEWEST_GROUPS else None


class _Leaps(NamedTuple):
    """Leaps of distances: how many others are nearer to rows, the nearest, and which are clear."""

    others: Integers
    nearest: Integers
    are_clear: Bools


def _leaps(vectors: Any, rows: Integers, ranks: int) -> _Leaps:
    """Return the largest leap of the distances from some rows to the nearest of others.

    Spacings of logarithms of distances times ranks are alike (Rényi 1953), but at a leap.
    """
    truth = ground_truth(vectors, vectors[rows], 2 + ranks, "l2")
    ids, distances = truth.ids[:, : 2 + ranks], -truth.scores[:, 1 : 2 + ranks]
    others_last = np.argsort(ids != rows[:, None], axis=1, kind="stable")
    nearest = np.take_along_axis(ids, others_last, axis=1)[:, 1:]
    least = max(_SAME * float(np.median(distances)), _TINY)
    # Where all are the same there is no leap, and the last rank is the largest.
    spacings = np.diff(np.log(np.maximum(distances, least)), axis=1) + _TINY
    scaled = np.arange(1, 1 + ranks) * spacings
    leaps = 1 + scaled.argmax(axis=1)
    before = np.arange(len(rows)), leaps - 1
    usual = (scaled.sum(axis=1) - scaled[before]) / (ranks - 1)
    are_clear = (scaled[before] > _CLEAR * usual) & (spacings[before] > _HALF_AS_FAR)
    return _Leaps(leaps, nearest, are_clear & (distances[before] > least))


def numbered_groups(groups: AnyArray | None, source: VectorSource, count: int) -> Integers | None:
    """Return the groups of the ``count`` rows that a plan takes, as whole numbers.

    Raises
    ------
    InputError
        For another number of groups than vectors, or too few groups.
    """
    if groups is None:
        return None
    labels = np.asarray(groups)
    check_one_each(source, labels, "groups")
    is_missing = labels.dtype.kind == "f" and np.isnan(labels).any()
    try:
        numbers: Integers = np.unique(labels, return_inverse=True)[1]
    except TypeError:  # None, or numbers among text
        is_missing = True
    if is_missing or labels.ndim != 1:
        raise InputError(
            f"the groups of {source.name} must be labels of one type, one for each vector, none of "
            f"them missing."
        )
    if numbers.max() + 1 < _FEWEST_GROUPS:
        raise InputError(
            f"{source.name} is of {numbers.max() + 1} groups; a plan needs at least "
            f"{_FEWEST_GROUPS}, as no query sees its own."
        )
    return numbers[spaced(len(numbers), count)]
