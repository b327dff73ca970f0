"""Searches while codes arrive: each ends, and sees the rows of one moment."""

import threading

import numpy as np
import pytest
from helpers.common import attribute_spec, filled_index, record_spec, unit

import dpindex as dpi
from dpindex.index.ranking import Ranking

DIM = 16
SOON = 600.0
SIZES = (1, 1, 1, 2, 700, 1, 5, 9000, 1, 1, 3000, 6000, 1, 20000, 1)
"""How many vectors are added at a time, so that parts are joined again and again."""
"""Against a hang only."""
RNG = np.random.default_rng(0)
SPECS = {
    "numbers": attribute_spec("none-oporp", DIM, k=DIM, bounds=(-1, 1)),
    "bits": attribute_spec("none-signrp", DIM, k=64, bounds=(-1, 1)),
    "symbols": record_spec(
        "record-codebook",
        DIM,
        epsilon=60.0,
        codebook=dpi.Codebook(RNG.normal(size=(40, DIM))),
    ),
}


def vectors(count):
    made = RNG.uniform(-1, 1, (count, DIM))
    return unit(made)


@pytest.fixture(params=SPECS)
def index(request):
    return filled_index(SPECS[request.param], vectors(300))


def codes_of_row(index, row):
    return index.codes.take(slice(row, row + 1))


def begun(call):
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def ended(thread):
    thread.join(SOON)
    assert not thread.is_alive()


def test_a_search_ends_although_a_code_comes_whenever_it_has_all(index, monkeypatch):
    """The worst that writers can do, without a clock: they are faster than every search."""
    one = codes_of_row(index, 0)
    sync = Ranking.sync

    def syncing(ranking, store):
        sync(ranking, store)
        ended(begun(lambda: index.add_codes(one)))

    monkeypatch.setattr(Ranking, "sync", syncing)
    queries = index.codes.take(slice(0, 3))
    for _ in range(3):
        before = len(index)
        found = index.search(queries, before + 5).ids
        assert np.sort(found, axis=1).tolist() == [list(range(before))] * 3
        assert len(index) == before + 1


def test_a_search_does_not_wait_for_an_addition_that_takes_long(index):
    is_under_way = threading.Event()
    may_end = threading.Event()

    def report(*_):
        is_under_way.set()
        may_end.wait(SOON)

    adding = begun(lambda: index.add(vectors(50), progress=report))
    assert is_under_way.wait(SOON)
    asked = codes_of_row(index, 0)
    assert index.search(asked, 400).ids.shape == (1, 300)
    index.range_search(asked, -2.0)
    assert 0 in index
    assert len(index.codes) == len(index.ids) == 300
    may_end.set()
    ended(adding)
    assert index.search(asked, 400).ids.shape == (1, 350)


@pytest.mark.slow
def test_what_is_added_piece_by_piece_ranks_as_if_it_came_at_once(index):
    """Also after removals."""
    queries = vectors(7)
    private = index.codes.take(slice(0, 5))
    for step, size in enumerate(SIZES):
        index.add(vectors(size))
        if step in (4, 9):
            index.remove(index.ids[5 : len(index) : 7])
        at_once = dpi.PrivateIndex(index.spec)
        at_once.add_codes(index.codes, index.ids)
        kept = index.ids[:: 1 + step]
        for asked in (queries, queries[:1], private):
            for options in ({}, {"filter": kept}, {"filter": kept[:50]}):
                here = index.search(asked, 40, **options)
                there = at_once.search(asked, 40, **options)
                assert here.ids.tolist() == there.ids.tolist()
                np.testing.assert_array_equal(here.scores, there.scores)


def test_many_threads_search_and_change(index):
    """Each search finds rows of one moment: an id, and the code that was under it."""
    pool = index.codes
    index.remove(index.ids)
    index.add_codes(pool.take(slice(0, 200)), range(200))
    is_over = threading.Event()
    failures = []

    def change(first):
        """Row i of the pool comes and goes under ids i, 1000 + i, 2000 + i."""
        while not is_over.is_set():
            ids = np.arange(first, first + 10)
            rows = pool.take(ids % 1000)
            index.add_codes(rows, ids)
            index.remove(ids)

    def search():
        for row in range(60):
            asked = pool.take(slice(row, row + 1))
            hits = index.search(asked, 20)
            of_all = alone.search(asked, 300)
            rows = of_all.ids[0].tolist()
            score_of = dict(zip(rows, of_all.scores[0].tolist(), strict=True))
            found = hits.ids[0].tolist()
            expected = [score_of[id % 1000] for id in found]
            if hits.scores[0].tolist() != expected or len(set(found)) != 20:
                failures.append(f"row {row}")

    alone = dpi.PrivateIndex(index.spec)
    alone.add_codes(pool, range(300))
    writers = [begun(lambda first=first: change(first)) for first in (1000, 2000)]
    searchers = [begun(search) for _ in range(3)]
    for thread in searchers:
        thread.join(SOON)
    is_over.set()
    for thread in (*searchers, *writers):
        ended(thread)
    assert failures == []
