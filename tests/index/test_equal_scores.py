"""Of rows with equal scores the lowest are found, and they come in their order."""

import numpy as np
import pytest
from helpers.common import attribute_spec

import dpindex as dpi
from dpindex.index.exact_vectors import ExactVectors

RNG = np.random.default_rng(0)


def plain(vectors, metric, **options):
    """An index of vectors in [-1, 1] without noise."""
    width = vectors.shape[1]
    spec = attribute_spec("none-oporp", width, k=width, bounds=(-1, 1))
    index = dpi.PrivateIndex(spec, metric=metric, **options)
    index.add(vectors)
    return index


@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
@pytest.mark.parametrize("queries", [1, 7, 300])
def test_each_group_of_equal_vectors_comes_in_row_order(metric, queries):
    """Also where Faiss multiplies matrices, in which the place of a row changes its last digit."""
    kinds = RNG.integers(0, 40, 2000)
    index = plain(RNG.uniform(-1, 1, (40, 32))[kinds], metric)
    asked = RNG.uniform(-1, 1, (queries, 32))
    for count in (4, 60, 200):
        for rows in index.search(asked, count).ids:
            ends = np.flatnonzero(np.diff(kinds[rows])) + 1
            groups = np.split(rows, ends)
            assert len(groups) == len(set(kinds[rows]))
            for group in groups:
                first_rows = np.flatnonzero(kinds == kinds[group[0]])[: len(group)]
                assert group.tolist() == first_rows.tolist()


@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
@pytest.mark.parametrize("index_type", ["f32", "f16", "int8"])
def test_of_vectors_that_are_all_equal_the_first_are_found(metric, index_type):
    index = plain(np.full((500, 8), 0.5), metric, index_type=index_type)
    for queries in (np.ones((1, 8)), np.zeros((1, 8)), np.ones((600, 8))):
        first = index.search(queries, 4).ids.tolist()
        assert first == [[0, 1, 2, 3]] * len(queries)
        kept = index.search(queries, 3, filter=[9, 8, 7, 6]).ids.tolist()
        assert kept == [[6, 7, 8]] * len(queries)


def test_small_distances_are_the_same_in_a_batch_as_alone():
    """In single precision they would be what far larger numbers leave of each other."""
    vectors = RNG.uniform(0.8, 0.9, (500, 32))
    index = plain(vectors, "l2")
    asked = vectors[:300] + 1e-4
    batch = index.search(asked, 1).scores
    alone = np.vstack([index.search(query[None], 1).scores for query in asked])
    assert batch == pytest.approx(alone, rel=1e-3)
    # Scores go with the rows that are put in another order.
    assert (np.diff(index.search(asked, 500).scores) <= 0).all()


@pytest.mark.parametrize(
    "metric, width, large, small",
    [
        ("ip", 62, 0.5, 2.0**-12),
        ("cosine", 126, 0.45, 2.0**-12.5),
    ],
)
def test_scores_that_err_by_as_much_as_they_can_come_in_order(metric, width, large, small):
    """Each small product is less than half of a digit of the sum, and lost, or more, and doubled.

    They come in order where all numbers of a sum may err to one side: up to 62 numbers, and up to
    126 of vectors of norm 1.
    """
    query = np.full(width, small)
    query[:4] = large
    lost = query * (1 - 2.0**-6)
    doubled = query * (1 + 2.0**-6)
    lost[:4] = doubled[:4] = large
    lost[0] += 2.0**-18  # the nearer one
    # All have norm 1, but for the last digits, and what is left of it lies apart.
    left = np.sqrt(1 - (query[:4] ** 2).sum())
    query[4:6] = left, 0
    lost[4:6] = doubled[4:6] = 0, left
    items = np.full((3000, width), 0.1)
    items[[5, 9]] = doubled, lost
    index = ExactVectors(width, metric, "f32")
    index.begin(items, len(items))
    index.add(items)
    _, rows = index.search(np.tile(query, (200, 1)), 2)
    assert (rows == [9, 5]).all()
