"""What codes show of cosines: its law, and posteriors of whole indexes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpindex import PrivateIndex, Privatizer, Spec, attribute
from dpindex.mechanism.codes import for_format
from dpindex.similarity.learned import OBSERVERS, LearnedSimilarity, learned_similarity
from dpindex.similarity.observation_law import GRID
from dpindex.similarity.similarity import ExactQueries, PrivateQueries, Queries

pytestmark = pytest.mark.usefixtures("known_noise")

DIM = 96
SIGNS: dict[str, Any] = {"method": "dp-signoporp-geometric", "k": 32, "norm": 1.0}
FLOATS: dict[str, Any] = {"method": "dp-oporp-staircase", "k": 48, "norm": 1.0}


def _clustered(count: int, seed: int) -> Any:
    """Unit vectors about 60 centres: few are near each other."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(0).normal(size=(60, DIM))
    x = centres[rng.integers(60, size=count)] + 0.8 * rng.normal(size=(count, DIM))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def _spec(epsilon: float, **facts: Any) -> Spec:
    return Spec(dim=DIM, epsilon=epsilon, adjacency=attribute(0.5), **facts)


def _sides(spec: Spec, base: Any, asked: Any, kind: str) -> tuple[Any, Queries]:
    codes = Privatizer(spec).privatize(base)
    if kind == "exact":
        return codes, ExactQueries(Privatizer(spec).project(asked), spec)
    other = spec if kind == "private" else spec.with_epsilon(3.0)
    return codes, PrivateQueries(Privatizer(other).privatize(asked), other)


@pytest.mark.parametrize("kind", ["exact", "private", "cheaper"])
@pytest.mark.parametrize(
    ("facts", "shortest"),
    [(SIGNS, 1.0), (FLOATS, 1.0), ({**FLOATS, "norm": None}, 1.0), ({**FLOATS, "norm": None}, 0.5)],
)
def test_observations_follow_their_law(facts: dict[str, Any], shortest: float, kind: str) -> None:
    """300 000 pairs: standardised by their law they have mean 0 and variance 1 within 8 %."""
    base, asked = _clustered(3000, 1), _clustered(100, 2)
    spec = _spec(5.0, **facts)
    lengths = np.random.default_rng(3).uniform(shortest, 1.0, (3000, 1))
    codes, queries = _sides(spec, lengths * base, asked * lengths[:100], kind)
    observes = for_format(OBSERVERS, spec.format_type)
    assert observes is not None
    observer = observes(spec, codes)
    law = observer.law(queries.spec, isinstance(queries, PrivateQueries))
    value, scale = observer.of(codes.to_float()[None], queries)
    truth = asked @ base.T
    own, common = (np.interp(truth, GRID, part) for part in (law.own, law.common))
    z = (value - np.interp(truth, GRID, law.expected)) / np.sqrt(scale * own + common)
    assert abs(z.mean()) < 0.1
    assert z.std() == pytest.approx(1.0, abs=0.08)


def test_what_looks_the_same_is_stated_as_it_is() -> None:
    """1 600 000 pairs of 32 private signs: the mean truth of all that are stated alike."""
    base, asked = _clustered(8000, 1), _clustered(200, 2)
    codes, queries = _sides(_spec(4.0, **SIGNS), base, asked, "private")
    mean, _ = LearnedSimilarity(queries.spec, codes, len(codes)).of_all(codes, queries)
    stated, truth = np.floor(mean / 0.05), asked @ base.T
    for some in np.unique(stated):
        alike = stated == some
        if np.count_nonzero(alike) >= 1000:
            assert abs(mean[alike].mean() - truth[alike].mean()) < 0.03


# Wrong clusters come ten at a time to a private query of 32 signs: see docs/similarities.md.
LONGER = {**SIGNS, "k": 64}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("facts", "epsilon", "mode"),
    [
        (SIGNS, 4.0, "exact"),
        (SIGNS, 8.0, "exact"),
        (LONGER, 4.0, "private"),
        (LONGER, 8.0, "private"),
        (FLOATS, 8.0, "exact"),
        (FLOATS, 8.0, "private"),
    ],
)
def test_the_ten_best_are_stated_as_they_are(
    facts: dict[str, Any], epsilon: float, mode: Any
) -> None:
    base, asked = _clustered(8000, 1), _clustered(200, 2)
    index = PrivateIndex(_spec(epsilon, **facts))
    index.add(base)
    hits = index.search(asked, k=10, query=mode)
    truth = np.einsum("qkd,qd->qk", base[hits.ids], asked)
    assert abs(hits.similarity.mean() - truth.mean()) < 0.03
    assert 0.9 <= np.mean(np.abs(hits.similarity - truth) <= 2 * hits.stderr) <= 0.99
    assert hits.unbiased.mean() > truth.mean() + 0.03
    assert (np.diff(hits.similarity, axis=1) <= 1e-9).all()


def test_equal_norms_need_not_be_declared() -> None:
    """At much noise the norm of a code says nothing, and that of all codes everything."""
    base, asked = _clustered(8000, 1), _clustered(200, 2)
    index = PrivateIndex(_spec(2.0, method="raw-staircase"))
    index.add(base)
    hits = index.search(asked, k=10, query="exact")
    truth = np.einsum("qkd,qd->qk", base[hits.ids], asked)
    assert abs(hits.similarity.mean() - truth.mean()) < 0.05
    assert np.mean(np.abs(hits.similarity - truth) <= 2 * hits.stderr) > 0.9


@pytest.mark.parametrize("facts", [SIGNS, FLOATS, {**FLOATS, "norm": None}])
def test_equal_codes_give_equal_numbers_and_new_ones_are_learned(facts: dict[str, Any]) -> None:
    spec = _spec(4.0, **facts)
    codes = Privatizer(spec).privatize(_clustered(700, 1))
    first, second = PrivateIndex(spec), PrivateIndex(spec)
    for index in (first, second):
        index.add_codes(codes.take(slice(0, 600)))
    asked = _clustered(3, 2)
    before = first.search(asked)
    np.testing.assert_array_equal(before.similarity, second.search(asked).similarity)
    first.add_codes(codes.take(slice(600, 700)))
    after = first.search(asked, k=700)
    assert not np.isin(before.similarity, after.similarity).all()
    np.testing.assert_allclose(
        np.sort(after.unbiased[0])[-3:],
        np.sort(first.range_search(asked[:1], -1.0)[0].unbiased)[-3:],
        rtol=1e-6,
    )


@pytest.mark.parametrize("facts", [FLOATS, {"method": "raw-staircase", "norm": 1.0}])
def test_codes_of_next_to_no_noise(facts: dict[str, Any]) -> None:
    """The score of a law that is narrower than its table would be 0/0."""
    index = PrivateIndex(_spec(64.0, **facts))
    index.add(base := _clustered(700, 1))
    hits = index.search(base[:20], k=1, query="exact")
    np.testing.assert_array_equal(hits.ids[:, 0], np.arange(20))
    assert (np.abs(1.0 - hits.similarity) <= 4 * hits.stderr + 0.05).all()


@pytest.mark.parametrize("rows", [1, 2, 3, 20])
@pytest.mark.parametrize("facts", [SIGNS, FLOATS, {**FLOATS, "norm": None}])
def test_small_indexes(rows: int, facts: dict[str, Any]) -> None:
    index = PrivateIndex(_spec(20.0, **facts))
    index.add(_clustered(rows, 1))
    for mode in ("exact", "private"):
        hits = index.search(_clustered(rows, 1), k=1, query=mode)  # type: ignore[arg-type]
        assert (np.abs(hits.similarity) <= 1).all()
        assert np.isfinite(hits.stderr).all()
    if facts is FLOATS:
        assert hits.similarity.mean() > 0.8


def test_what_has_no_posterior_states_the_unbiased_estimate() -> None:
    spec = _spec(4.0, **FLOATS)
    for metric in ("ip", "l2"):
        index = PrivateIndex(spec, metric=metric)  # type: ignore[arg-type]
        index.add(_clustered(50, 1))
        hits = index.search(_clustered(2, 2))
        np.testing.assert_array_equal(hits.similarity, hits.unbiased)
        np.testing.assert_array_equal(hits.stderr, hits.unbiased_stderr)
    signs = _spec(4.0, **{**SIGNS, "norm": None})
    codes = Privatizer(signs).privatize(_clustered(50, 1))
    assert learned_similarity(signs, "cosine", None, lambda: codes, 50) is None


def test_a_vector_of_zeros_is_answered() -> None:
    spec = _spec(4.0, method="dp-oporp-staircase", k=48)
    learned = LearnedSimilarity(spec, Privatizer(spec).privatize(np.zeros((40, DIM))), 40)
    codes, queries = _sides(spec, np.zeros((5, DIM)), np.zeros((5, DIM)), "exact")
    mean, error = learned.of_found(codes, queries)
    assert np.isfinite(mean).all()
    assert np.isfinite(error).all()
