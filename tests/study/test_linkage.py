"""Linkage: blocks add up, own codes are counted once, ties are shared, and the law is used."""

import numpy as np
import pytest
import scipy.sparse
import scipy.special
from helpers.common import attribute_spec, known_noise, normal, record_spec, uniform
from numpy.random import default_rng

from dpindex import Codebook, Privatizer
from dpindex.base.arrays import unit
from dpindex.decode import decoder_of
from dpindex.study.trial import measure_linkage

pytestmark = known_noise

DIM = 16
X = uniform(400, DIM)
SPECS = [
    attribute_spec("raw-staircase", DIM, epsilon=4.0),
    attribute_spec("dp-signoporp-geometric", DIM, k=16, epsilon=1.0),
    record_spec("record-cap", DIM, k=64, epsilon=6.0),
    record_spec("record-codebook", DIM, epsilon=6.0, subset=2,
         codebook=Codebook(normal(50, DIM, 1))),
    attribute_spec("none-signrp", DIM, k=16),
]  # fmt: skip


def linked(privatizer, known, codes):
    """The share of known vectors, whose codes come first, that pick out their own."""
    own = codes.take(slice(known.shape[0]))
    return measure_linkage(privatizer, known, own, codes).share


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.method)
def test_blocks_of_any_size_and_vectors_of_any_kind_count_the_same(spec, monkeypatch):
    privatizer = Privatizer(spec, allow_unprotected=True)
    codes = privatizer.privatize(X)
    dense = linked(privatizer, X[:100], codes)
    monkeypatch.setattr("dpindex.study.trial.MAX_SCORES", 150 * 100)
    sparse = linked(privatizer, scipy.sparse.csr_matrix(X[:100]), codes)
    assert dense == pytest.approx(sparse, abs=1e-9)
    assert 0.0 <= dense <= 1.0


def test_equal_codes_share_the_match():
    """Four copies of each vector without noise: a fourth of the matches is the own code."""
    spec = attribute_spec("none-oporp", DIM, k=DIM)
    privatizer = Privatizer(spec, allow_unprotected=True)
    known = X[:50]
    codes = privatizer.privatize(np.tile(known, (4, 1)))
    assert linked(privatizer, known, codes) == pytest.approx(0.25)


def test_noise_hides_and_its_absence_tells():
    """By chance one in 400; six deviations above that is 0.03 of 400 known vectors."""
    for epsilon, low, high in ((0.01, 0.0, 0.03), (60.0, 0.99, 1.0)):
        spec = attribute_spec("raw-staircase", DIM, epsilon=epsilon)
        privatizer = Privatizer(spec)
        codes = privatizer.privatize(X)
        assert low <= linked(privatizer, X, codes) <= high


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec",
    [
        attribute_spec("raw-staircase", 2, epsilon=3.0, bounds=(-1.0, 1.0)),
        attribute_spec("raw-gaussian", 2, epsilon=3.0, delta=1e-6),
        attribute_spec("raw-square-wave", 2, epsilon=1.0, bounds=(-0.5, 0.5)),
        attribute_spec("dp-signoporp-rr", 2, k=2, epsilon=1.0),
        record_spec("record-codebook", 2, epsilon=3.0, subset=2,
             codebook=Codebook(normal(9, 2, 1))),
    ],
    ids=lambda spec: spec.method,
)  # fmt: skip
def test_chances_are_frequencies(spec):
    """Of codes with the same odds of two vectors, as many are of the first as the odds say."""
    vectors = np.array([[0.3, -0.2], [-0.4, 0.1]])
    privatizer = Privatizer(spec)
    codes = privatizer.privatize(np.repeat(vectors, 20_000, axis=0))
    likelihoods = decoder_of(privatizer.spec).likelihoods(privatizer, vectors)
    logs = likelihoods.logs(codes).astype(np.float64)
    is_first = np.arange(40_000) < 20_000
    odds = logs[0] - logs[1]
    chance = scipy.special.expit(odds)
    levels = np.quantile(odds, np.linspace(0.05, 0.95, 19))
    places = np.searchsorted(levels, odds)
    for place in np.unique(places):
        group = places == place
        expected = chance[group]
        deviation = np.sqrt((expected * (1 - expected)).sum())
        assert is_first[group].sum() == pytest.approx(expected.sum(), abs=5.5 * deviation)


@pytest.mark.parametrize("method, k", [("raw-square-wave", 256), ("dp-signoporp-rr", 256)])
def test_the_crowd_is_part_of_the_odds(method, k):
    """Vectors of a few directions: cosines find the codes that fit everyone, odds do not."""
    rng = default_rng(3)
    plane = rng.normal(size=(2000, 8)) @ rng.normal(size=(8, 256))
    x = (plane / 8 + 0.5).clip(0.0, 1.0)
    spec = attribute_spec(method, 256, k=k, epsilon=2.0, bounds=(0.0, 1.0))
    privatizer = Privatizer(spec)
    codes = privatizer.privatize(x)
    known = x[:200]
    heads = unit(privatizer.project(known) * 1.0)
    cosines = heads @ unit(codes.to_float()).T
    by_search = (cosines.argmax(axis=1) == np.arange(200)).mean()
    assert linked(privatizer, known, codes) > by_search + 0.1
