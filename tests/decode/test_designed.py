"""Codes of designs are compared as the original vectors are, with errors that hold."""

import numpy as np
import pytest
from helpers.common import filled_index, known_noise, reopened
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import dpindex as dpi
from dpindex import Spec, attribute
from dpindex.decode.base import exact_similarities
from dpindex.decode.designed import decoded, exact_coordinates

pytestmark = known_noise

RNG = np.random.default_rng(2)
DIM = 40
CAUSES = RNG.normal(size=(5, DIM)) / 4
MEAN = RNG.normal(size=DIM) / 8


def drawn(count):
    return MEAN + RNG.normal(size=(count, 5)) @ CAUSES + 0.02 * RNG.normal(size=(count, DIM))


PUBLIC = drawn(600)
BASE = drawn(3000)
QUERIES = drawn(20)


def index_of(method, epsilon, metric="cosine"):
    signs = "signdesigned" in method
    design = dpi.design(PUBLIC, epsilon=epsilon, code_length=24, signs=signs)
    terms = {
        "adjacency": attribute(1.0),
        "bounds": (-9.0, 9.0),
        "design": design,
    }
    return filled_index(
        Spec(method, DIM, epsilon=epsilon, **terms),
        BASE,
        metric=metric,
    )


@pytest.mark.parametrize("method", ["dp-designed-laplace", "dp-signdesigned-geometric"])
def test_estimates_are_as_near_as_the_decoder_says(method):
    """Mean squared error within B, against the energy that posterior means lack."""
    index = index_of(method, 3.0)
    truth = exact_coordinates(BASE, index.spec)
    estimates = decoded(index.codes, index.spec)
    error = estimates - truth[:, :-1]
    claimed = float((truth[:, :-1] ** 2).sum(axis=1).mean() - (estimates**2).sum(axis=1).mean())
    assert float((error**2).sum(axis=1).mean()) == pytest.approx(claimed, rel=0.25)
    assert float((truth[:, :-1] ** 2).sum(axis=1).mean()) > 3 * claimed
    assert_allclose(
        exact_coordinates(sparse.csr_matrix(BASE), index.spec),
        truth,
        atol=1e-9,
    )
    assert_allclose((truth**2).sum(axis=1), (BASE**2).sum(axis=1), rtol=1e-5)


@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
@pytest.mark.parametrize("query", ["exact", "private"])
def test_stated_errors_hold(metric, query):
    index = index_of("dp-designed-laplace", 3.0, metric)
    hits = index.search(QUERIES, k=50, query=query)
    true = np.stack([exact_similarities(q, BASE, metric) for q in QUERIES])
    true = np.take_along_axis(true, hits.ids.astype(int), axis=1)
    within = np.abs(hits.unbiased - true) <= 1.96 * hits.unbiased_stderr
    assert within.mean() > 0.9
    if metric == "cosine":  # of the best of many, too
        assert abs(float((hits.unbiased - true)[:, :10].mean())) < 0.04
    assert (hits.unbiased_stderr > 0).all()


def test_it_finds_twice_what_oporp_finds():
    """The reason for all of it."""
    near = np.argsort(-np.stack([exact_similarities(q, BASE, "cosine") for q in QUERIES]))[:, :50]

    def found(index):
        ids = index.search(QUERIES, 50, query="exact").ids
        return float(np.mean([len({*i} & {*n}) / 50 for i, n in zip(ids, near, strict=True)]))

    terms = {"adjacency": attribute(1.0), "bounds": (-9.0, 9.0)}
    plain = Spec("dp-oporp-staircase", DIM, epsilon=1.0, **terms)
    oporp = filled_index(plain, BASE)
    assert found(index_of("dp-designed-laplace", 1.0)) > 2 * found(oporp)


def test_an_index_keeps_its_design(tmp_path):
    index = index_of("dp-designed-laplace", 3.0)
    index.fit_denoiser()
    again = reopened(index, tmp_path / "index")
    assert again.spec == index.spec
    assert (again.search(QUERIES, 5).ids == index.search(QUERIES, 5).ids).all()
    one, two = (each.search(QUERIES, 5, query="exact") for each in (index, again))
    assert_array_equal(one.unbiased, two.unbiased)
    again.add(BASE[:3], ids=[10**6, 10**6 + 1, 10**6 + 2])
    again.save(tmp_path / "index")
