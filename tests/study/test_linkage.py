"""Linkage: chunks add up, own codes are counted once, ties are shared, and the law is used."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import scipy.special

from dpindex import Codebook, Privatizer, Spec, attribute, record
from dpindex.base.arrays import unit
from dpindex.index.kinds import kind_of
from dpindex.study.linkage import Linkage

pytestmark = pytest.mark.usefixtures("known_noise")

DIM = 16
X = np.random.default_rng(0).uniform(-1, 1, (400, DIM))
SPECS = [
    Spec("raw-staircase", DIM, epsilon=4.0, adjacency=attribute(1.0)),
    Spec("dp-signoporp-geometric", DIM, k=16, epsilon=1.0, adjacency=attribute(1.0)),
    Spec("record-cap", DIM, k=64, epsilon=6.0, adjacency=record()),
    Spec("record-codebook", DIM, epsilon=6.0, adjacency=record(), subset=2,
         codebook=Codebook(np.random.default_rng(1).normal(size=(50, DIM)))),
    Spec("none-signrp", DIM, k=16, adjacency=attribute(1.0)),
]  # fmt: skip


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.method)
def test_chunks_of_any_size_and_kind_count_the_same(spec: Spec) -> None:
    privatizer = Privatizer(spec, allow_unprotected=True)
    codes = privatizer.privatize(X)
    shares = []
    for known, step in ((X[:100], 400), (scipy.sparse.csr_matrix(X[:100]), 150)):
        linkage = Linkage(privatizer, known, codes)
        for start in range(0, 400, step):
            linkage.count(codes.take(slice(start, start + step)))
        shares.append(linkage.share)
    assert shares[0] == pytest.approx(shares[1], abs=1e-9)
    assert 0.0 <= shares[0] <= 1.0


def test_codes_of_each_known_vector_are_compared_with_it_alone() -> None:
    privatizer = Privatizer(SPECS[0])
    codes = privatizer.privatize(X)
    linkage = Linkage(privatizer, X[:100], codes)  # with four codes for each
    own = np.arange(400).reshape(100, 4)
    alone = linkage.lead(codes, own=True)
    np.testing.assert_array_equal(alone, np.take_along_axis(linkage.lead(codes), own, axis=1))


def test_equal_codes_share_the_match() -> None:
    """Four copies of each vector without noise: a fourth of the matches is the own code."""
    spec = Spec("none-oporp", DIM, k=DIM, adjacency=attribute(1.0))
    privatizer = Privatizer(spec, allow_unprotected=True)
    codes = privatizer.privatize(np.tile(X[:50], (4, 1)))
    linkage = Linkage(privatizer, X[:50], codes)
    linkage.count(codes)
    assert linkage.share == pytest.approx(0.25)


def test_noise_hides_and_its_absence_tells() -> None:
    """By chance one in 400; six deviations above that is 0.03 of 400 known vectors."""
    for epsilon, low, high in ((0.01, 0.0, 0.03), (60.0, 0.99, 1.0)):
        privatizer = Privatizer(
            Spec("raw-staircase", DIM, epsilon=epsilon, adjacency=attribute(1.0))
        )
        codes = privatizer.privatize(X)
        linkage = Linkage(privatizer, X, codes)
        linkage.count(codes)
        assert low <= linkage.share <= high


@pytest.mark.parametrize(
    "spec",
    [
        Spec("raw-staircase", 2, epsilon=3.0, bounds=(-1.0, 1.0), adjacency=attribute(1.0)),
        Spec("raw-gaussian", 2, epsilon=3.0, delta=1e-6, adjacency=attribute(1.0)),
        Spec("raw-square-wave", 2, epsilon=1.0, bounds=(-0.5, 0.5), adjacency=attribute(1.0)),
        Spec("dp-signoporp-rr", 2, k=2, epsilon=1.0, adjacency=attribute(1.0)),
        Spec("record-codebook", 2, epsilon=3.0, adjacency=record(), subset=2,
             codebook=Codebook(np.random.default_rng(1).normal(size=(9, 2)))),
    ],
    ids=lambda spec: spec.method,
)  # fmt: skip
def test_chances_are_frequencies(spec: Spec) -> None:
    """Of codes with the same odds of two vectors, as many are of the first as the odds say."""
    vectors = np.array([[0.3, -0.2], [-0.4, 0.1]])
    privatizer = Privatizer(spec)
    codes = privatizer.privatize(np.repeat(vectors, 20_000, axis=0))
    logs = kind_of(privatizer.spec).likelihoods(privatizer, vectors).logs(codes).astype(np.float64)
    is_first = np.arange(40_000) < 20_000
    odds = logs[0] - logs[1]
    chance = scipy.special.expit(odds)
    places = np.searchsorted(np.quantile(odds, np.linspace(0.05, 0.95, 19)), odds)
    for place in np.unique(places):
        group = places == place
        expected = chance[group]
        error = 5.5 * np.sqrt((expected * (1 - expected)).sum())
        assert is_first[group].sum() == pytest.approx(expected.sum(), abs=error)


@pytest.mark.parametrize(("method", "k"), [("raw-square-wave", 256), ("dp-signoporp-rr", 256)])
def test_the_crowd_is_part_of_the_odds(method: str, k: int) -> None:
    """Vectors of a few directions: cosines find the codes that fit everyone, odds do not."""
    rng = np.random.default_rng(3)
    x = np.clip(rng.normal(size=(2000, 8)) @ rng.normal(size=(8, 256)) / 8 + 0.5, 0.0, 1.0)
    privatizer = Privatizer(
        Spec(method, 256, k=k, epsilon=2.0, bounds=(0.0, 1.0), adjacency=attribute(1.0))
    )
    codes = privatizer.privatize(x)
    linkage = Linkage(privatizer, x[:200], codes)
    linkage.count(codes)
    decoded = codes.to_float()
    cosines = unit(privatizer.project(x[:200]) * 1.0) @ unit(decoded).T
    by_search = (cosines.argmax(axis=1) == np.arange(200)).mean()
    assert linkage.share > by_search + 0.1
