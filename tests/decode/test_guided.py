"""As many candidates as a query needs: a public threshold, codes, and nothing else decides."""

from collections import Counter
from contextlib import closing
from functools import cache

import numpy as np
import pytest
from helpers.common import (
    codes_of,
    fails,
    filled_index,
    known_noise,
    overlap,
    record_spec,
    refuses,
    seed_noise,
    top,
    unit,
)
from helpers.toy_database import MADE, Toy
from numpy.testing import assert_array_equal

import dpindex as dpi
from dpindex import Answers, PrivateIndex, fit_codebook, publish
from dpindex.base.errors import DamagedError, InputError
from dpindex.base.files import pack, unpack
from dpindex.decode import decoder_of
from dpindex.decode.base import PrivateQueries
from dpindex.decode.guided import worth_of
from dpindex.integrations.database import PLACES
from dpindex.mechanism.codebooks import Codebook
from dpindex.mechanism.spec import Projector
from dpindex.study.prediction import predicted_rows
from dpindex.study.sample import Sample

pytestmark = known_noise

RNG = np.random.default_rng(11)
TOPICS = RNG.normal(size=(30, 24))


def vectors(count, spread=0.6):
    """Vectors of topics that lie near each other in part."""
    topics = TOPICS[RNG.integers(0, 30, count)]
    rows = topics + spread * RNG.normal(size=(count, 24))
    return unit(rows).astype(np.float32)


both_queries = pytest.mark.parametrize("query", ["exact", "private"])
PUBLIC = vectors(1500)
PRIVATE = vectors(4000)
QUERIES = vectors(300)


def spec_of(book, epsilon=7.0):
    return record_spec("record-codebook", 24, epsilon=epsilon, subset=1, codebook=book)


@cache
def index(epsilon=7.0, size=60, book=None):
    spec = spec_of(book or fit_codebook(PUBLIC, size), epsilon)
    with pytest.MonkeyPatch.context() as patch:
        seed_noise(patch)  # whichever test asks for it first
        return filled_index(spec, PRIVATE)


class Counting:
    """An owner of the vectors, as a function of ids, who counts what each query asks for."""

    def __init__(self):
        self.asked = []

    def __call__(self, query, ids):
        self.asked.append(len(ids))
        return PRIVATE[np.asarray(ids, int)] @ query


def counts_of(index, query, candidates):
    owner = Counting()
    answers = Answers(owner)
    index.search(QUERIES, 10, query, candidates=candidates, rerank=answers)
    return np.array(owner.asked)


def recall(index, query, candidates):
    truth = top(QUERIES @ PRIVATE.T, 10)
    hits = index.search(QUERIES, 10, query, candidates=candidates, rerank=PRIVATE)
    return overlap(hits.ids, truth)


def sizes_of(index, size):
    """How many vectors each of so many codewords stands for."""
    return np.bincount(index.codes.stored[:, 0], minlength=size)


@pytest.mark.parametrize("epsilon", [7.0, 45.0])
@both_queries
def test_all_are_taken_if_all_are_asked_for(query, epsilon):
    for size in (10, 20, 30, 60):
        made = index(epsilon, size)
        taken = made.to_lookup(QUERIES[:1], query, candidates="100%")
        assert taken.count >= len(PRIVATE)
        sizes = sizes_of(made, size)
        assert sizes[taken.codes].sum() == len(PRIVATE)


@both_queries
def test_a_share_is_a_mean_with_a_cap_of_twice_as_many(query):
    counts = counts_of(index(), query, "5%")
    assert counts.max() <= 400
    assert len(set(counts.tolist())) > 2
    assert 0.7 * 200 < counts.mean() < 1.2 * 200


@pytest.mark.parametrize("size", [15, 40])  # a cell of 15 is larger than what is wanted
@both_queries
def test_the_mean_is_right_for_vectors_like_the_public_ones(query, size):
    """Within .1 points, and four errors of what 12000 queries and 1500 players say."""
    made = index(size=size)
    counts = sizes_of(made, size)
    others = vectors(12000)
    spec = made.spec
    queries = PrivateQueries(codes_of(spec, others), spec)
    if query == "exact":
        queries = decoder_of(spec).exact_queries(Projector(spec), others)
    worth = worth_of(spec, queries, counts, 200)
    order = np.argsort(-worth.scores, axis=1)
    cells = np.maximum((worth.scores >= worth.least).sum(axis=1), 1)
    reached = np.cumsum(counts[order], axis=1)
    sizes = reached[np.arange(len(order)), cells - 1]
    taken = np.minimum(sizes, worth.most)
    error = taken.std() * (1 / 12000 + 1 / 1500) ** 0.5
    assert abs(taken.mean() - 200) < 4 + 4 * error


@both_queries
def test_a_published_index_takes_the_same_share(query, monkeypatch):
    monkeypatch.setitem(PLACES, r"toy://.*", "helpers.toy_database.Toy")

    def counted(toy):
        return Counter(row["code"] for row in MADE[toy.place].values())

    monkeypatch.setattr(Toy, "code_counts", counted)
    publish(index(), "toy://guided", query)
    with closing(dpi.open("toy://guided", query)) as published:
        counts = counts_of(published, query, "5%")
        assert counts.max() <= 400
        assert len(set(counts.tolist())) > 2
        if query == "exact":
            assert_array_equal(counts, counts_of(index(), query, "5%"))


def test_a_number_stays_a_number():
    counts = counts_of(index(), "exact", 200)
    assert set(counts.tolist()) == {200}


def test_more_is_found_among_as_many():
    counts = counts_of(index(), "exact", "5%")
    fixed = recall(index(), "exact", round(counts.mean()))
    assert recall(index(), "exact", "5%") > fixed + 0.005


@both_queries
def test_a_plan_counts_what_a_search_for_a_share_finds(query):
    sample = Sample(PUBLIC, len(PRIVATE), guides=True)
    made = index(book=sample.book_of_centroids(25))
    population = sample.population_of(made.spec, 300)

    def predicted(number):
        rows = predicted_rows(
            made.spec,
            population,
            12,
            (10, 200),
            0.5,
            on_average=number,
        )
        return rows[0].found(query).recall_within(200)

    assert predicted(200) > predicted(None) + 0.04
    assert abs(predicted(200) - recall(made, query, "5%")) < 0.06


def test_a_codebook_without_a_guide_gives_each_query_its_share():
    book = Codebook(fit_codebook(PUBLIC, 60).stated)
    made = filled_index(spec_of(book), PRIVATE)
    counts = counts_of(made, "exact", "5%")
    assert set(counts.tolist()) == {200}


@both_queries
def test_how_many_candidates_depends_on_the_query_and_public_things_alone(query):
    """Two collections with the same codes, of other vectors: the counts are the same."""
    made = index()
    other = PrivateIndex(made.spec)
    other.add_codes(made.codes)
    if query == "exact":
        counts = counts_of(made, query, "5%")
        assert_array_equal(counts, counts_of(other, query, "5%"))
        return
    codes = codes_of(made.spec, QUERIES)
    counts = {}
    queries = PrivateQueries(codes, made.spec)
    worth = worth_of(made.spec, queries, sizes_of(made, 60), 200)
    taken = (worth.scores >= worth.least).sum(axis=1)
    symbols = codes.stored[:, 0].tolist()
    for symbol, number in zip(symbols, taken.tolist(), strict=True):
        assert counts.setdefault(symbol, number) == number


@pytest.mark.parametrize("wrong", ["", "5", "0%", "101%", "-1%", "nan%", "five%", "5 %%", "1e3"])
def test_other_texts_are_refused(wrong):
    with refuses("candidates must be a whole number or a share"):
        index().search(QUERIES[:2], candidates=wrong, rerank=PRIVATE)


def test_a_filter_keeps_its_share():
    owner = Counting()
    kept = list(range(0, 4000, 2))
    hits = index().search(
        QUERIES,
        k=5,
        candidates="5%",
        rerank=Answers(owner),
        filter=kept,
    )
    assert (hits.ids.astype(int) % 2 == 0).all()
    assert max(owner.asked) <= 400


def test_the_guide_travels_with_the_codebook(tmp_path, run, prints):
    index().save(tmp_path / "index")
    again = PrivateIndex.open(tmp_path / "index")
    counts = counts_of(again, "exact", "5%")
    assert_array_equal(counts, counts_of(index(), "exact", "5%"))
    np.save(tmp_path / "public.npy", PUBLIC)
    np.save(tmp_path / "vectors.npy", PRIVATE)
    np.save(tmp_path / "queries.npy", QUERIES[:5])
    prints("codebook public.npy public.codebook --size 60 --centroids")
    made = Codebook.read(tmp_path / "public.codebook")
    assert made == index().spec.codebook
    assert made.guide is not None
    made_of = "--method record-codebook --epsilon 7 --record --subset 1"
    prints(f"build vectors.npy built {made_of} --codebook public.codebook")
    ask = "query built queries.npy -k 3 --rerank vectors.npy --candidates"
    prints(f"{ask} 5%")
    fails(run(f"{ask} 0%"), "share of the index", "above 0 % and at most 100 %")


@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": -1.0},
        {"temperature": "hot"},
        {"moves": np.zeros((20, 20), np.float32)},
        {"moves": np.ones((20, 19), np.float32)},
        {"players": np.ones((0, 20), np.float32)},
        {"players": np.ones((5, 20), np.float64)},
        {"more": np.ones(3, np.float32)},
    ],
    ids=str,
)
def test_a_guide_of_a_stranger_is_read_carefully(changes):
    facts, arrays = unpack(fit_codebook(PUBLIC, 20).to_bytes(), "codebook")
    for name, value in changes.items():
        place = facts if name == "temperature" else arrays
        place[name] = value
    with pytest.raises((DamagedError, InputError)):
        Codebook.from_bytes(pack("codebook", facts, arrays))
