"""Signs of a design are read by the public vectors that it holds."""

import math

import numpy as np
import pytest
from helpers.common import filled_index, known_noise, normal, picked, top
from numpy.random import default_rng
from numpy.testing import assert_allclose

import dpindex as dpi
from dpindex import Privatizer, Spec, attribute
from dpindex.base.arrays import unit
from dpindex.decode.base import ExactQueries, exact_similarities
from dpindex.decode.designed import decoded, linear_estimate, reader_of
from dpindex.decode.signs import expected_signs
from dpindex.study import ground_truth

pytestmark = known_noise

DIM = 64
TOPICS = normal(60, DIM)


def collection(count, seed):
    """Sixty topics, of vectors that lie about them in many directions."""
    rng = default_rng(seed)
    topics = TOPICS[rng.integers(60, size=count)]
    rows = topics + 0.9 * rng.normal(size=(count, DIM))
    return unit(rows.astype(np.float32))


PUBLIC = collection(2000, 1)


def spec_of(epsilon=2.0, length=DIM, beta=0.5, public=PUBLIC, **terms):
    made = dpi.design(
        public,
        epsilon=epsilon,
        beta=beta,
        code_length=length,
        signs=True,
        **terms,
    )
    promise = {"adjacency": attribute(beta), "epsilon": epsilon, "design": made}
    return Spec("dp-signdesigned-geometric", DIM, **promise)


def test_an_estimate_is_the_tempered_mean_of_public_vectors_and_the_linear_one():
    """Computed another way: code by code, from the levels of the law in whole numbers."""
    spec = spec_of(length=8, public=collection(4700, 1))
    known = reader_of(spec)
    made = spec.design
    tested = len(made.products)
    assert tested == 512
    assert len(made.projected) == 4608  # no point between others is needed
    codes = Privatizer(spec).privatize(collection(2, 2))
    signs = codes.to_float().tolist()
    linear = linear_estimate(spec).of(codes.to_float())
    flips = [threshold / 2**64 for threshold in spec.law.thresholds]
    weights = np.broadcast_to(spec.law.weights, 8)
    one_level = [int(weight) << 8 for weight in weights]
    steps = np.rint(made.projected[tested:].astype(float) / spec.step)
    vectors = [[int(x) for x in row] for row in steps - np.asarray(spec.offset, float)]

    def log_chance(x, place, sign):
        if x == 0:
            return math.log(0.5)
        level = max(1, -(-abs(x) // one_level[place]))
        flip = flips[min(level, len(flips)) - 1]
        return math.log(1 - flip if (x > 0) == (sign > 0) else flip)

    def log_of(vector, signs):
        pairs = zip(vector, signs, strict=True)
        return sum(log_chance(x, place, sign) for place, (x, sign) in enumerate(pairs))

    for row, estimate in enumerate(decoded(codes, spec)):
        logs = np.array([log_of(vector, signs[row]) for vector in vectors])
        weights = np.exp(known.power * (logs - logs.max()))
        mean = weights @ made.inside[tested:] / weights.sum()
        wanted = known.of_public * mean + known.of_linear * linear[row]
        assert_allclose(estimate, wanted, atol=1e-4)


def test_it_finds_what_signs_alone_do_not():
    base = collection(4000, 3)
    queries = collection(100, 4)
    truth = ground_truth(base, queries, 50)
    index = filled_index(spec_of(1.0), base)

    def precision(ids):
        return float(truth.precision(ids, 10, 50).mean())

    alone = linear_estimate(index.spec).of(index.codes.to_float())
    design = index.spec.design
    inside = queries[:, design.attributes] @ design.basis.T
    by_signs = top(inside @ unit(alone).T, 10)
    found = precision(index.search(queries, 10, query="exact").ids)
    assert found > precision(by_signs) + 0.05
    oporp = Spec(
        "dp-signoporp-rr",
        DIM,
        DIM,
        epsilon=1.0,
        adjacency=attribute(0.5),
    )
    of_oporp = filled_index(oporp, base).search(queries, 10, query="exact")
    assert found > precision(of_oporp.ids) + 0.1


@pytest.mark.parametrize("epsilon, gain", [(1.5, 0.1), (10.0, 0.0)])
def test_private_queries_find_what_the_better_reading_does(epsilon, gain):
    """With much noise public vectors say most of a query, with little its own signs do."""
    base = collection(4000, 3)
    queries = collection(200, 4)
    truth = ground_truth(base, queries, 50)
    index = filled_index(spec_of(epsilon), base)
    asked = Privatizer(index.spec).privatize(queries)
    reading = linear_estimate(index.spec)
    items = unit(reading.of(index.codes.to_float()))
    by_signs = unit(reading.of(asked.to_float()))
    alone = top(by_signs @ items.T, 10)
    found = index.search(queries, 10, query="private").ids
    better, plain = (truth.precision(ids, 10, 50).mean() for ids in (found, alone))
    assert better > plain + gain - 0.02


def test_power_and_shares_are_those_of_the_public_vectors_alone():
    one = reader_of(spec_of(0.5))
    two = reader_of(spec_of(4.0))
    assert one.power > two.power  # signs with less noise tell vectors apart that are alike
    assert one.of_linear < two.of_linear
    reader_of.cache_clear()
    again = reader_of(spec_of(0.5))
    assert again.power == one.power
    assert again.of_public == one.of_public
    assert again.apart == one.apart
    assert again.asked_apart == one.asked_apart


def test_few_public_vectors_will_do():
    repeated = np.repeat(PUBLIC[:5], 10, axis=0)
    for public in (PUBLIC[:2], PUBLIC[:3], repeated):
        spec = spec_of(public=public, window=0.0)
        index = filled_index(spec, collection(200, 3))
        hits = index.search(PUBLIC[:3], 5, query="exact")
        assert np.isfinite(hits.scores).all()


@pytest.mark.parametrize("query", ["exact", "private"])
def test_stated_errors_hold(query):
    """Vectors that tell what estimates are worth are not among those that estimates are made of."""
    base = collection(3000, 3)
    queries = collection(50, 4)
    index = filled_index(spec_of(4.0), base)
    hits = index.search(queries, k=20, query=query)
    asked = queries.astype(np.float64)
    true = np.stack([exact_similarities(one, base, "cosine") for one in asked])
    off = hits.unbiased - picked(true, hits.ids.astype(int))
    within = np.abs(off) <= 1.96 * hits.unbiased_stderr
    assert within.mean() > 0.9


def test_likelihoods_count_windows():
    """Of a change by half a unit, too: one beta is then a window, and not half of one."""
    spec = spec_of(0.5, length=8, window=0.3, beta=0.5)
    privatizer = Privatizer(spec)
    vectors = np.stack([PUBLIC.min(axis=0), PUBLIC.max(axis=0), PUBLIC[0]])
    projected = ExactQueries(privatizer.project(vectors), spec).to_float()
    many = np.repeat(vectors, 20_000, axis=0)
    drawn = privatizer.privatize(many).to_float()
    found = drawn.reshape(3, 20_000, -1).mean(axis=1)
    off = np.abs(found - expected_signs(spec, projected))
    assert off.max() < 5 / math.sqrt(20_000)
