"""The nearest items of many queries, against a plain sort of all scores."""

import numpy as np
from helpers.common import folded, picked, top

from dpindex.base.arrays import nearest_items


@folded("copies", [1, 10_000])  # of so many, items are read in blocks of 34
@folded("count", [1, 7, 50])
@folded("by_distance", [False, True])
def test_are_those_of_a_plain_sort_and_of_equal_ones_the_first(copies, count, by_distance):
    random = np.random.default_rng(0)
    # Small whole numbers: products are exact, and many are equal.
    queries = random.integers(-2, 3, (6, 3)).astype(np.float32)
    items = random.integers(-2, 3, (50, 3)).astype(np.float32)
    scores = queries @ items.T
    if by_distance:
        differences = queries[:, None] - items
        scores = -np.square(differences).sum(axis=2)
    order = top(scores, count)
    many = np.tile(queries, (copies, 1))
    found, rows = nearest_items(many, items, count, by_distance=by_distance)
    assert (rows.reshape(copies, 6, count) == order).all()
    assert (found.reshape(copies, 6, count) == picked(scores, order)).all()
