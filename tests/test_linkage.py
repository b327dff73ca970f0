"""Linkage: chunks add up, own codes are counted once, ties are shared, and the best score wins."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from dpindex import Codebook, Privatizer, Spec, record
from dpindex.study.attacks.linkage import Linkage

pytestmark = pytest.mark.usefixtures("known_noise")

DIM = 16
X = np.random.default_rng(0).uniform(-1, 1, (400, DIM))
SPECS = [
    Spec("raw-staircase", DIM, epsilon=4.0),
    Spec("dp-signoporp-geometric", DIM, k=16, epsilon=1.0),
    Spec("record-cap", DIM, k=64, epsilon=6.0, adjacency=record()),
    Spec("record-codebook", DIM, epsilon=6.0, adjacency=record(), subset=2,
         codebook=Codebook(np.random.default_rng(1).normal(size=(50, DIM)))),
    Spec("none-signrp", DIM, k=16),
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
    for all_pairs, alone in zip(
        linkage.compare(codes), linkage.compare(codes, own=True), strict=True
    ):
        np.testing.assert_array_equal(alone, np.take_along_axis(all_pairs, own, axis=1))


def test_equal_codes_share_the_match() -> None:
    """Four copies of each vector without noise: a fourth of the matches is the own code."""
    spec = Spec("none-oporp", DIM, k=DIM)
    privatizer = Privatizer(spec, allow_unprotected=True)
    codes = privatizer.privatize(np.tile(X[:50], (4, 1)))
    linkage = Linkage(privatizer, X[:50], codes)
    linkage.count(codes)
    assert linkage.share == pytest.approx(0.25)


def test_noise_hides_and_its_absence_tells() -> None:
    """By chance one in 400; six deviations above that is 0.03 of 400 known vectors."""
    for epsilon, low, high in ((0.01, 0.0, 0.03), (60.0, 0.99, 1.0)):
        privatizer = Privatizer(Spec("raw-staircase", DIM, epsilon=epsilon))
        codes = privatizer.privatize(X)
        linkage = Linkage(privatizer, X, codes)
        linkage.count(codes)
        assert low <= linkage.share <= high
