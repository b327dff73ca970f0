"""Predicted exposure, compared with attacks on codes of vectors that are as the prior says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from dpindex import Codebook, Privatizer, Spec, attribute, record
from dpindex.study.exposure import Prior, predicted_exposure
from dpindex.study.linkage import Linkage
from dpindex.study.reconstruction import cosines, invert

pytestmark = pytest.mark.usefixtures("known_noise")

DIM, ROWS, KNOWN = 64, 3000, 250


def uniform(low: float) -> Any:
    return np.random.default_rng(1).uniform(low, 1, (ROWS, DIM))


def directions(rows: int, seed: int = 2) -> Any:
    x = np.random.default_rng(seed).normal(size=(rows, DIM))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


BOOK = Codebook(directions(500, 3))
CASES: list[tuple[Spec, Any]] = [
    (Spec("raw-staircase", DIM, epsilon=2.0, bounds=(0, 1), adjacency=attribute(1.0)), uniform(0)),
    (Spec("raw-square-wave", DIM, epsilon=1.0, bounds=(0, 1), adjacency=attribute(1.0)),
     uniform(0)),
    (Spec("dp-oporp-staircase", DIM, k=32, epsilon=2.0, bounds=(0, 1), adjacency=attribute(1.0)),
     uniform(0)),
    (Spec("dp-oporp", DIM, k=32, epsilon=5.0, delta=1e-6, adjacency=attribute(1.0)), uniform(-1)),
    (Spec("dp-rp-g-opt", DIM, k=128, epsilon=5.0, delta=1e-6, adjacency=attribute(1.0)),
     uniform(-1)),
    (Spec("dp-signoporp-rr", DIM, k=64, epsilon=1.0, adjacency=attribute(1.0)), uniform(-1)),
    (Spec("dp-signoporp-geometric", DIM, k=32, epsilon=1.0, adjacency=attribute(1.0)), uniform(-1)),
    (Spec("dp-signoporp-rr", DIM, k=128, repetitions=4, epsilon=3.0, adjacency=attribute(1.0)),
     uniform(-1)),
    (Spec("dp-signoporp-rr-smooth", DIM, k=32, epsilon=1.0, norm=1.0, adjacency=attribute(0.5)),
     directions(ROWS)),
    (Spec("record-cap", DIM, k=64, epsilon=12.0, adjacency=record()), directions(ROWS)),
    (Spec("record-codebook", DIM, epsilon=9.0, adjacency=record(), codebook=BOOK, subset=2),
     directions(ROWS)),
]  # fmt: skip


def fits(spec: Spec, x: Any, codes: Any) -> Any:
    """Scores of all codes for known vectors, (known, rows), by definitions of this test's own."""
    decoded = codes.to_float().astype(np.float64)
    if spec.format.name == "symbols":
        return x @ decoded.T
    projector = Privatizer(spec)
    y = np.asarray(projector.project(x), dtype=np.float64) * spec.step
    if spec.format.name == "numbers":
        mean = decoded.mean(axis=0)
        centred = decoded - mean
        return (y - mean) @ (centred / np.linalg.norm(centred, axis=1, keepdims=True)).T
    beta = spec.projection.scale * spec.adjacency.size
    rms = math.sqrt(float(np.square(y).mean())) / beta
    law: Any = spec.law
    flips = law.flip_probability(np.abs(y) / beta, rms)
    plus = np.where(y >= 0, 1 - flips, flips)  # chance of +1
    logs = np.log(plus) - np.log(1 - plus)
    return logs @ (decoded > 0).T


@pytest.mark.slow
@pytest.mark.parametrize(("spec", "x"), CASES, ids=lambda value: getattr(value, "method", ""))
def test_predictions_are_what_attacks_reach(spec: Spec, x: Any) -> None:
    """With 250 known vectors a share has a deviation of at most 0.032."""
    told = predicted_exposure(spec, ROWS)
    codes = Privatizer(spec).privatize(x)
    scores = fits(spec, x[:KNOWN], codes)
    own = np.diagonal(scores)[:, None]
    first = ~(scores > own + 1e-9).any(axis=1)
    linked = (first / np.isclose(scores, own, rtol=0, atol=1e-9).sum(axis=1)).mean()
    assert abs(told.linked - linked) < 0.12
    rebuilt = invert(codes.take(slice(1000)), spec).astype(np.float64)
    guess = sum(spec.bounds) / 2
    error = np.square(rebuilt - x[:1000]).mean() / np.square(x[:1000] - guess).mean()
    assert told.rebuilt_error == pytest.approx(error, abs=0.04)
    assert told.rebuilt_cosine == pytest.approx(cosines(rebuilt, x[:1000]).mean(), abs=0.04)


def test_uniform_flips_are_binomial() -> None:
    """The closed form against the sum over agreements, ties broken at random."""
    spec, n = Spec("dp-signoporp-rr", 256, k=256, epsilon=0.5, adjacency=attribute(1.0)), 10_000
    law: Any = spec.law
    flip = float(law.flip_probability(np.ones(1), 1.0)[0])
    agree = np.arange(257)
    below = binom.cdf(agree - 1, 256, 0.5)
    up_to = binom.cdf(agree, 256, 0.5)
    # E[1/(1 + ties)] over the others, given that none is above.
    equal = np.maximum(up_to - below, 1e-300)
    first = (up_to**n - below**n) / (n * equal)
    exact = float((binom.pmf(agree, 256, 1 - flip) * first).sum())
    assert predicted_exposure(spec, n).linked == pytest.approx(exact, abs=0.03)


def test_more_epsilon_reveals_more_and_more_vectors_hide_better() -> None:
    spec = Spec("raw-staircase", DIM, epsilon=2.0, bounds=(0, 1), adjacency=attribute(1.0))
    weak, same, strong = (predicted_exposure(spec.with_epsilon(e), 1000) for e in (1.0, 2.0, 4.0))
    assert weak.linked < same.linked < strong.linked
    assert weak.rebuilt_error > same.rebuilt_error > strong.rebuilt_error
    assert weak.rebuilt_cosine < same.rebuilt_cosine < strong.rebuilt_cosine
    assert predicted_exposure(spec, 10**6).linked < same.linked
    for method in ("none-oporp", "none-signrp"):
        assert (
            predicted_exposure(Spec(method, DIM, k=64, adjacency=attribute(1.0)), 1000).linked
            > 0.99
        )
    assert predicted_exposure(spec, 0).linked <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("method", ["raw-square-wave", "dp-signoporp-rr"])
def test_vectors_that_resemble_each_other_are_recognised_less(method: str) -> None:
    """Thirty topics: the sample's cosines tell, and what is measured agrees.

    Signs of one topic depend on each other, so of sign codes the prediction is somewhat too high.
    """
    rng = np.random.default_rng(5)
    topics = rng.uniform(0.3, 0.7, (30, DIM))
    x = np.clip(topics[rng.integers(0, 30, 2 * ROWS)] + rng.normal(0, 0.03, (2 * ROWS, DIM)), 0, 1)
    x, low = (2 * x - 1, -1.0) if method == "dp-signoporp-rr" else (x, 0.0)
    sample, base = x[:ROWS].astype(np.float32), x[ROWS:]
    k = 16 if method == "dp-signoporp-rr" else None
    spec = Spec(method, DIM, k, epsilon=4.0, bounds=(low, 1.0), adjacency=attribute(1.0 - low))
    told = predicted_exposure(spec, ROWS, Prior.of_sample(sample, spec))
    scores = fits(spec, base[:KNOWN], Privatizer(spec).privatize(base))
    linked = (scores.argmax(axis=1) == np.arange(KNOWN)).mean()
    assert -0.12 < told.linked - linked < (0.2 if method == "dp-signoporp-rr" else 0.12)
    assert told.linked < predicted_exposure(spec, ROWS).linked - 0.2


def test_a_sample_of_bytes_is_that_of_its_numbers() -> None:
    sample = np.random.default_rng(0).integers(0, 256, (300, 20), dtype=np.uint8)
    spec = Spec(
        "dp-oporp-staircase",
        dim=20,
        k=20,
        epsilon=3.0,
        scale=255.0,
        bounds=(0, 1),
        adjacency=attribute(1.0),
    )
    told, wide = (Prior.of_sample(x, spec) for x in (sample, sample.astype(np.float64)))
    assert (told.mean, told.variance) == (wide.mean, wide.variance)
    np.testing.assert_array_equal(told.cosines, wide.cosines)


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_zeros_that_signs_tell_are_foreseen(epsilon: float) -> None:
    """Within bounds of 0 and 1 a sign tells whether an attribute is 0, and nothing else."""
    rng = np.random.default_rng(0)
    x = rng.random((1000, 400)) * (rng.random((1000, 400)) < 0.5)
    spec = Spec(
        "dp-signoporp-rr", 400, k=400, epsilon=epsilon, bounds=(0.0, 1.0), adjacency=attribute(1.0)
    )
    privatizer = Privatizer(spec)
    codes = privatizer.privatize(x)
    linkage = Linkage(privatizer, x[:200], codes)
    linkage.count(codes)
    assert linkage.share > 0.1
    assert predicted_exposure(spec, len(x)).linked >= linkage.share
