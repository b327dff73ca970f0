"""The softmax codebook: its law, word by word, against exact and 60-digit arithmetic."""

from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from helpers.common import attribute_spec, normal, refuses, uniform
from numpy.random import default_rng
from numpy.testing import assert_array_equal
from scipy import sparse

import dpindex as dpi
from dpindex import Codebook, Spec, attribute, l2, record
from dpindex.base.errors import NoGuaranteeError
from dpindex.mechanism.noise.base import high_product, uniform_share
from dpindex.mechanism.noise.symbols import SoftmaxResponse, falling_weights
from dpindex.mechanism.spec import Projector

pytestmark = pytest.mark.usefixtures("new_maps")
ONE = 1 << 64
DIM = 6
PUBLIC = normal(9, DIM, 7).clip(-1, 1).astype(np.float32)
PROMISES = [
    pytest.param({"epsilon": 0.02, "adjacency": attribute(0.5)}, id="0.02"),
    pytest.param({"epsilon": 1.0, "adjacency": attribute(0.5)}, id="1"),
    pytest.param({"epsilon": 7.0, "adjacency": attribute(1.5)}, id="7"),
    pytest.param({"epsilon": 2.0, "adjacency": attribute(0.5), "record_epsilon": 5.0}, id="both"),
    pytest.param({"epsilon": 3.0, "adjacency": l2(0.5)}, id="l2"),
    pytest.param({"epsilon": 9.0, "adjacency": l2(0.25), "record_epsilon": 9.5}, id="l2-both"),
]


def spec(**terms):
    """At epsilon = 1 and half a unit of one attribute, unless others are named."""
    stated = {"codebook": Codebook(PUBLIC), "epsilon": 1.0, "adjacency": attribute(0.5)}
    return Spec("codebook-softmax", DIM, **stated | terms)


def law_of(made):
    assert isinstance(made.law, SoftmaxResponse)
    return made.law


def words_of(made, x):
    """Words, of 2^128, that each symbol has for one vector: from its grid integers on by hand."""
    law = law_of(made)
    integers = [int(v) for v in made.grid.round(np.asarray(x)[None])[0]]
    weights = made.projection.single
    scores = [
        sum(u * int(w) for u, w in zip(integers, column, strict=True)) + int(offset)
        for column, offset in zip(weights.T, law.offsets, strict=True)
    ]
    steps = [(max(scores) - score) // 2**law.shift for score in scores]
    masses = [int(law.table[min(step, len(law.table) - 1)]) for step in steps]
    size = len(masses)
    ends = [sum(masses[:c]) for c in range(size + 1)]
    drawn = [-(-end * ONE // ends[-1]) for end in ends]
    fair = [-(-end * ONE // size) for end in range(size + 1)]
    return [
        (ONE - law.uniform) * (drawn[c + 1] - drawn[c]) + law.uniform * (fair[c + 1] - fair[c])
        for c in range(size)
    ]


def neighbours(made, count=60):
    """Vectors within the bounds, as far apart as the adjacency allows, in random places."""
    rng = default_rng(1)
    size = made.adjacency.size
    pairs = []
    while len(pairs) < count:
        one = rng.uniform(-1, 1, DIM) * rng.choice([0.1, 1.0])
        other = one.copy()
        if isinstance(made.adjacency, dpi.privacy.L2):
            step = rng.normal(size=DIM)
            other += step * size * (1 - 1e-9) / np.linalg.norm(step)
        else:
            other[rng.integers(DIM)] += size * rng.choice([-1, 1])
        if np.abs(other).max() <= 1:
            pairs.append((one, other))
    return pairs


@pytest.mark.parametrize("terms", PROMISES)
def test_no_symbol_tells_neighbours_apart_by_more_than_epsilon(terms):
    """Every word of 128 bits counted, in integers; e^ε to sixty digits."""
    if terms["adjacency"] == attribute(1.5):
        terms = {**terms, "bounds": (-1.0, 1.0)}
    made = spec(**terms)
    largest = Fraction(1)
    with mpmath.workdps(60):
        for one, other in neighbours(made):
            before = words_of(made, one)
            after = words_of(made, other)
            assert sum(before) == sum(after) == ONE * ONE
            for a, b in zip(before, after, strict=True):
                largest = max(largest, Fraction(a, b), Fraction(b, a))
        loss = mpmath.log(mpmath.mpf(largest.numerator) / largest.denominator)
        assert loss <= mpmath.mpf(made.budget)
        assert loss > made.budget / 3  # what is proved is not far from what is lost


@pytest.mark.parametrize("terms", PROMISES)
def test_chances_are_those_of_the_words(terms):
    made = spec(**terms)
    x = uniform(20, DIM, 3)
    chances = law_of(made).chances(Projector(made).project(x))
    exact = [[float(Fraction(n, ONE * ONE)) for n in words_of(made, row)] for row in x]
    np.testing.assert_allclose(chances, exact, rtol=1e-9)


def test_the_law_is_the_softmax_of_the_scores():
    """To a thousandth: ``exp(ε/β·⟨1[c > median], x⟩ + b)``, b minus the mean score."""
    made = spec(epsilon=3.0)
    rng = default_rng(4)
    x = rng.uniform(-1, 1, (50, DIM))
    a = 3.0 / 0.5 * (np.median(PUBLIC, axis=0) < PUBLIC)
    logits = x @ a.T - (PUBLIC @ a.T).mean(axis=0)
    ideal = np.exp(logits - logits.max(axis=1, keepdims=True))
    ideal /= ideal.sum(axis=1, keepdims=True)
    chances = law_of(made).chances(Projector(made).project(x))
    assert np.abs(chances - ideal).max() < 0.001
    likely = ideal > 1e-4  # where the table falls no more, weights are 10^-6 of the largest
    assert np.abs(np.log(chances / ideal))[likely].max() < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("loss", [Fraction(1, 5000), Fraction(1, 7), Fraction(3)])
def test_the_table_never_falls_by_more_than_its_loss(loss):
    table = falling_weights(loss).tolist()
    with mpmath.workdps(60):
        factor = mpmath.exp(-mpmath.mpf(loss.numerator) / loss.denominator)
        for weight, following in pairwise(table):
            assert following >= weight * factor
            assert following < weight * factor + 1.000001
            assert 0 < following < weight
        last = table[-1]
        assert len(table) == 1 << 19 or mpmath.ceil(last * factor) == last


@pytest.mark.parametrize("size", [2, 3, 100, 1 << 16])
@pytest.mark.parametrize("epsilon", [0.001, 1.0, 8.0, 64.0])
def test_the_uniform_share_keeps_records_apart_by_no_more(size, epsilon):
    share = uniform_share(size, epsilon)
    least = share * (ONE // size)
    most = (ONE - share) * ONE + share * -(-ONE // size)
    with mpmath.workdps(60):
        assert mpmath.log(mpmath.mpf(most) / least) <= mpmath.mpf(epsilon)
        ideal = size / (mpmath.exp(epsilon) + size - 1) * ONE
        assert ideal <= share <= ideal * (1 + mpmath.mpf(10) ** -12) + 2


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_scores_are_exact_in_any_layout(kind):
    for adjacency in (attribute(0.5), l2(0.5)):
        made = spec(adjacency=adjacency).projection
        x = default_rng(9).integers(-5000, 5000, (30, DIM)).astype(kind)
        exact = x.astype(np.int64) @ made.single.astype(np.int64)
        assert_array_equal(made.apply(x), exact)
        assert_array_equal(made.apply_sparse(sparse.csr_matrix(x)), exact)


def test_what_neighbours_move_is_read_off_the_map():
    made = spec(adjacency=l2(0.5)).projection
    columns = made.single.T.astype(np.float64)
    apart = max(np.linalg.norm(a - b) for a in columns for b in columns)
    assert apart <= made.distance <= apart * (1 + 1e-12)
    signs = spec().projection
    assert signs.spread == 1
    assert set(np.unique(signs.single)) == {0.0, 1.0}
    constant = spec(codebook=Codebook(np.ones((3, DIM)))).projection
    assert constant.spread == 1  # no score ever moves, which costs less than is counted


def test_products_of_64_bits():
    rng = default_rng(10)
    words = np.append(rng.integers(0, ONE - 1, 500, np.uint64), [np.uint64(ONE - 1)] * 2)
    limits = np.append(rng.integers(1, ONE - 1, 500, np.uint64), [np.uint64(ONE - 1), np.uint64(1)])
    exact = [int(w) * int(n) >> 64 for w, n in zip(words, limits, strict=True)]
    assert high_product(words, limits).tolist() == exact


def test_a_spec_says_what_it_promises():
    both = spec(epsilon=2.0, record_epsilon=8.0)
    assert Spec.from_json(both.to_json()) == both
    assert str(both.guarantee) == (
        "epsilon = 2 (pure DP) under attribute(beta=0.5), and epsilon = 8 (pure DP) under record "
        "(any two vectors)"
    )
    one = spec(epsilon=2.0)
    assert one.fingerprint != both.fingerprint
    assert "record_epsilon" not in one.to_dict()
    assert both.with_epsilon(1.0).record_epsilon == 8.0
    with refuses("takes no record_epsilon"):
        attribute_spec(
            "dp-oporp-staircase",
            DIM,
            epsilon=1.0,
            record_epsilon=8.0,
        )
    with pytest.raises(NoGuaranteeError, match="no guarantee under record"):
        spec(adjacency=record())
    with refuses("takes no subset"):
        spec(subset=2)
    with refuses("needs a codebook"):
        spec(codebook=None)
    for wrong in (0.0, -1.0, 1000.0, True, "8"):
        with refuses("epsilon"):
            spec(record_epsilon=wrong)
