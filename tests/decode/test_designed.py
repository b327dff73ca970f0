"""Codes of designs are compared as the original vectors are, with errors that hold."""

import numpy as np
import pytest
from helpers.common import attribute_spec, filled_index, known_noise, overlap, picked, reopened, top
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import dpindex as dpi
from dpindex.decode.base import exact_similarities
from dpindex.decode.designed import decoded, exact_coordinates

pytestmark = known_noise

RNG = np.random.default_rng(2)
DIM = 40
BOUNDS = (-9.0, 9.0)
CAUSES = RNG.normal(size=(5, DIM)) / 4
MEAN = RNG.normal(size=DIM) / 8


def drawn(count):
    causes = RNG.normal(size=(count, 5)) @ CAUSES
    return MEAN + causes + 0.02 * RNG.normal(size=(count, DIM))


PUBLIC = drawn(600)
BASE = drawn(3000)
QUERIES = drawn(20)


def truth(metric):
    rows = [exact_similarities(query, BASE, metric) for query in QUERIES]
    return np.stack(rows)


def index_of(method, epsilon, metric="cosine"):
    signs = "signdesigned" in method
    design = dpi.design(PUBLIC, epsilon=epsilon, code_length=24, signs=signs)
    terms = {"epsilon": epsilon, "bounds": BOUNDS, "design": design}
    spec = attribute_spec(method, DIM, **terms)
    return filled_index(spec, BASE, metric=metric)


@pytest.mark.parametrize("method", ["dp-designed-laplace", "dp-signdesigned-geometric"])
def test_estimates_are_as_near_as_the_decoder_says(method):
    """Mean squared error within B, against the energy that posterior means lack."""
    index = index_of(method, 3.0)
    coordinates = exact_coordinates(BASE, index.spec)
    inside = coordinates[:, :-1]
    estimates = decoded(index.codes, index.spec)

    def squares(vectors):
        return (vectors**2).sum(axis=1)

    energy = squares(inside).mean()
    claimed = energy - squares(estimates).mean()
    error = squares(estimates - inside).mean()
    assert error == pytest.approx(claimed, rel=0.25)
    assert energy > 3 * claimed
    of_sparse = exact_coordinates(sparse.csr_matrix(BASE), index.spec)
    assert_allclose(of_sparse, coordinates, atol=1e-9)
    assert_allclose(squares(coordinates), squares(BASE), rtol=1e-5)


@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
@pytest.mark.parametrize("query", ["exact", "private"])
def test_stated_errors_hold(metric, query):
    index = index_of("dp-designed-laplace", 3.0, metric)
    hits = index.search(QUERIES, k=50, query=query)
    off = hits.unbiased - picked(truth(metric), hits.ids)
    within = np.abs(off) <= 1.96 * hits.unbiased_stderr
    assert within.mean() > 0.9
    if metric == "cosine":  # of the best of many, too
        assert abs(off[:, :10].mean()) < 0.04
    assert (hits.unbiased_stderr > 0).all()


def test_it_finds_twice_what_oporp_finds():
    """The reason for all of it."""
    near = top(truth("cosine"), 50)

    def found(index):
        return overlap(index.search(QUERIES, 50, query="exact").ids, near)

    plain = attribute_spec("dp-oporp-staircase", DIM, epsilon=1.0, bounds=BOUNDS)
    oporp = filled_index(plain, BASE)
    assert found(index_of("dp-designed-laplace", 1.0)) > 2 * found(oporp)


def test_an_index_keeps_its_design(tmp_path):
    index = index_of("dp-designed-laplace", 3.0)
    index.fit_denoiser()
    again = reopened(index, tmp_path / "index")
    assert again.spec == index.spec
    one = index.search(QUERIES, 5, query="exact")
    two = again.search(QUERIES, 5, query="exact")
    assert_array_equal(one.ids, two.ids)
    assert_array_equal(one.unbiased, two.unbiased)
    again.add(BASE[:3], ids=range(10**6, 10**6 + 3))
    again.save(tmp_path / "index")
