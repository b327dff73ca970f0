"""The recipe for a kind of code, followed from outside the package in one file.

The toy has a law (a vector reports some of its coins), a decoder and a ranking of its own. It is
found by everything that is given codes: search, plan, publish, evaluate, attacks and audit.
"""

import numpy as np
import pytest
from helpers.common import attribute_spec, filled_index, picked, top
from helpers.toy_database import MADE
from test_recipe import ROW as LAW
from test_recipe import BytePairFormat, listed, spec, vectors

import dpindex as dpi
from dpindex import PrivateIndex, Privatizer, attribute, evaluate, plan, publish
from dpindex.audit import attack
from dpindex.base.arrays import unit
from dpindex.decode import DECODERS, decoder_of
from dpindex.decode.numbers import NumberDecoder
from dpindex.index.backends import SearchBackend
from dpindex.index.ranking import BACKENDS
from dpindex.integrations.database import PLACES

pytestmark = [pytest.mark.usefixtures("known_noise", "listed", "one_row")]
__all__ = ["listed", "spec", "vectors"]


class CoinDecoder(NumberDecoder):
    """Coins are ranked by their counts, of which the first is left out."""

    ranked_as = "counts"

    @classmethod
    def reads(cls, spec):
        return issubclass(spec.format_type, BytePairFormat)

    def __init__(self, spec, metric):
        super().__init__(spec, metric)
        self.width -= 1

    def vectors(self, codes):
        return codes.to_float()[:, 1:]

    def query_vectors(self, queries):
        return queries.to_float()[:, 1:]


class Counts(SearchBackend):
    """Compares every item, and counts its searches."""

    searches = 0

    def __init__(self, width, metric, index_type):
        self.width = width
        self._items = np.empty((0, width))

    def __len__(self):
        return len(self._items)

    def begin(self, sample, count=0):
        self._items = np.empty((0, self.width))

    def add(self, items):
        self._items = np.concatenate([self._items, items])

    def search(self, queries, count):
        Counts.searches += 1
        scores = unit(queries.astype(np.float64)) @ unit(self._items).T
        rows = top(scores, count)
        return picked(scores, rows), rows

    def subset(self, rows):
        part = Counts(self.width, "cosine", "f32")
        part.add(self._items[rows])
        return part


@pytest.fixture
def one_row(monkeypatch):
    """The decoder is first in the table, and its ranking has a name there."""
    monkeypatch.setattr("dpindex.decode.DECODERS", [CoinDecoder, *DECODERS])
    monkeypatch.setitem(BACKENDS, CoinDecoder.ranked_as, Counts)


@pytest.fixture
def index(spec, vectors):
    return filled_index(spec, vectors)


def nearest(index, vectors):
    """What NumPy finds by all coins but the first, for queries that are not rounded."""
    counts = unit(index.codes.to_float()[:, 1:].astype(np.float64))
    return top(unit(vectors[:, 1:]) @ counts.T, 5)


@pytest.mark.parametrize("keep", ["memory", "saved"])
def test_search_ranks_by_its_ranking(index, vectors, keep, tmp_path):
    wanted = nearest(index, vectors[:9])
    before = Counts.searches
    if keep == "saved":
        index.save(tmp_path / "index")
        index = PrivateIndex.open(tmp_path / "index")
    found = index.search(vectors[:9], k=5).ids
    assert (found == wanted).mean() > 0.9
    assert Counts.searches > before
    filtered = index.search(vectors[:9], k=5, filter=range(300))
    assert (filtered.ids < 300).all()
    assert np.isfinite(filtered.similarity).all()


def test_a_published_index_ranks_by_its_vectors(index, vectors, monkeypatch):
    monkeypatch.setitem(PLACES, r"toy://.*", "helpers.toy_database.Toy")
    MADE.clear()
    publish(index, "toy://here", "coins")
    published = dpi.open("toy://here", "coins")
    hits = published.search(vectors[:9], k=5, query="exact")
    wanted = nearest(index, vectors[:9])
    assert (hits.ids == wanted).mean() > 0.9


@pytest.mark.slow
def test_evaluations_and_plans_run_it(vectors, monkeypatch):
    before = Counts.searches
    toy = attribute_spec(LAW.name, 16, epsilon=24.0)
    (curve,) = evaluate(vectors, vectors[:20], [toy], runs=1, neighbours=20)
    assert Counts.searches > before
    for point in curve.points:
        assert 0 < point.mean["recall@10"] <= 1
    planned = []
    plain = CoinDecoder.vectors

    def counted(*arguments):
        planned.append(plain)
        return plain(*arguments)

    monkeypatch.setattr(CoinDecoder, "vectors", counted)
    terms = {"epsilon": 24.0, "adjacency": attribute(1.0)}
    made = plan(vectors, n=10_000, **terms, methods=[LAW.name])
    assert made.best.spec.method == LAW.name
    assert planned


@pytest.mark.slow
def test_attacks_and_the_audit_know_its_law(spec, vectors):
    privatizer = Privatizer(spec)
    known = vectors[:50]
    likelihoods = decoder_of(spec).likelihoods(privatizer, known)
    logs = likelihoods.logs(privatizer.privatize(known))
    likeliest = logs[:-1].argmax(axis=0)
    assert (likeliest == np.arange(50)).mean() > 0.5
    report = attack(spec, trials=20_000)
    assert not report.violated
    assert report.lower_bound > 0
