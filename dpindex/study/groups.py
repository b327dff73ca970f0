"""Groups of rows that resemble each other more than others do, such as captions of one picture."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from dpindex.base.arrays import AnyArray, Integers, row_norms, spaced
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
_TINY = 1e-30


def found_groups(vectors: Any, metric: Metric) -> Integers | None:
    """Return the groups that rows come in, numbered, or None if rows may be independent.

    Of independent rows that have k others near, (k + 1) P(k + 1) / P(k) more are expected in
    another sample, and no fewer for a larger k (Robbins 1956). Rows that come in whole groups, as
    captions of pictures do, break that: none has more near ones than the others of its group. The
    size of the sample does not matter.

    Groups are sets of rows that are the nearest of each other: of the size that shows it, or of a
    smaller one before a leap.

    >>> things = np.random.default_rng(0).normal(size=(400, 1, 8))
    >>> rows = things + np.random.default_rng(1).normal(scale=0.01, size=(400, 3, 8))
    >>> np.bincount(found_groups(rows.reshape(1200, 8), "l2")).tolist() == [3] * 400
    True
    >>> found_groups(rows[:, 0], "l2") is None
    True
    """
    if metric == "cosine":
        factors = 1.0 / np.maximum(row_norms(vectors), _TINY)
        vectors = scipy.sparse.diags(factors, dtype=np.float32) @ vectors
    count = vectors.shape[0]
    some = spaced(count, _TESTED)
    others = np.arange(1, _NEAREST)
    leaps, _ = _leaps(vectors, some, _NEAREST)
    rows = np.bincount(leaps, minlength=1 + _NEAREST) + 1.0
    rows[0] = 2 * rows[1 + _NEAREST // 2 :].sum()  # where none is near, a leap is anywhere
    most = np.sqrt(rows[others - 1] * rows[others + 1] * (others + 1) / others)
    # A group shows it once, however many of its rows are looked at.
    repeated = np.maximum((others + 1) * len(some) / count, 1.0)
    deviations = (rows[others] - most) / np.sqrt(repeated * (rows[others] + most))
    if deviations.max() < _BEYOND_CHANCE:
        return None
    largest = int(others[deviations.argmax()])
    leaps, nearest = _leaps(vectors, np.arange(count), 2 * largest)
    labels = np.arange(count)
    for size in range(1, 1 + largest):
        near = nearest[:, :size]
        sets = np.sort(np.hstack([np.arange(count)[:, None], near]), axis=1)
        are_groups = (sets[near] == sets[:, None]).all(axis=(1, 2))
        if size < largest:
            are_groups &= leaps == size
        labels[sets[are_groups]] = sets[are_groups, :1]
    numbers: Integers = np.unique(labels, return_inverse=True)[1]
    return numbers if numbers.max() + 1 >= _FEWEST_GROUPS else None


def _leaps(vectors: Any, rows: Integers, ranks: int) -> tuple[Integers, Integers]:
    """Return how many others are nearer to some rows than a leap of distances, and the nearest.

    Spacings of logarithms of distances times ranks are alike (Rényi 1953), but at a leap.
    """
    truth = ground_truth(vectors, vectors[rows], 2 + ranks, "l2")
    ids, distances = truth.ids[:, : 2 + ranks], -truth.scores[:, 1 : 2 + ranks]
    others_last = np.argsort(ids != rows[:, None], axis=1, kind="stable")
    nearest = np.take_along_axis(ids, others_last, axis=1)[:, 1:]
    least = max(_SAME * float(np.median(distances)), _TINY)
    # Where all are the same there is no leap, and the last rank is the largest.
    spacings = np.diff(np.log(np.maximum(distances, least)), axis=1) + _TINY
    return 1 + np.argmax(np.arange(1, 1 + ranks) * spacings, axis=1), nearest


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
    numbers: Integers = np.unique(labels, return_inverse=True)[1]
    if numbers.max() + 1 < _FEWEST_GROUPS:
        raise InputError(
            f"{source.name} is of {numbers.max() + 1} groups; a plan needs at least "
            f"{_FEWEST_GROUPS}, as no query sees its own."
        )
    return numbers[spaced(len(numbers), count)]
