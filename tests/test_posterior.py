"""Posteriors against an independent quadrature, and against known truths."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from dpindex.estimators.posterior import EDGES, GRID, ObservationLaw, PosteriorTable, Prior

Array = npt.NDArray[np.float64]
ONES, NONE = np.ones(len(GRID)), np.zeros(len(GRID))


def _law(deviation: float) -> ObservationLaw:
    return ObservationLaw(GRID, NONE, deviation**2 * ONES)


def _truths(count: int, seed: int) -> Array:
    """Most about 0.1, one in a hundred a near neighbour about 0.6."""
    rng = np.random.default_rng(seed)
    near = rng.random(count) < 0.01
    return np.where(near, rng.normal(0.6, 0.1, count), rng.normal(0.1, 0.1, count)).clip(-1, 1)


@pytest.mark.parametrize("deviation", [0.05, 0.15, 0.3])
def test_the_best_of_many_are_stated_as_they_are(deviation: float) -> None:
    """The ten best of each of 100 times 5000: unbiased ones are far too high."""
    rng = np.random.default_rng(1)
    learned = _truths(400_000, 2)
    law = _law(deviation)
    value = learned + deviation * rng.normal(size=learned.shape)
    prior = Prior.learn(value, np.ones_like(value), law, 5000)
    truth = _truths(500_000, 3).reshape(100, 5000)
    seen = truth + deviation * rng.normal(size=truth.shape)
    best = np.argsort(-seen, axis=1)[:, :10]
    truth, seen = np.take_along_axis(truth, best, 1), np.take_along_axis(seen, best, 1)
    mean, error = PosteriorTable(prior, law)(seen, np.ones_like(seen))
    assert abs(mean.mean() - truth.mean()) < 0.02
    assert 0.9 <= np.mean(np.abs(mean - truth) <= 2 * error) <= 0.99
    assert seen.mean() - truth.mean() > 0.4 * deviation
    assert (np.diff(mean, axis=1) <= 1e-12).all()


def test_the_prior_is_recovered() -> None:
    """Deconvolved: the share of near neighbours, and the width of the others."""
    truth = _truths(400_000, 4)
    value = truth + 0.15 * np.random.default_rng(5).normal(size=truth.shape)
    density = Prior.learn(value, np.ones_like(value), _law(0.15), 10**6).density
    mean = density @ GRID
    assert mean == pytest.approx(truth.mean(), abs=0.002)
    assert density @ (GRID - mean) ** 2 == pytest.approx(truth.var(), rel=0.05)
    assert density[GRID > 0.45].sum() == pytest.approx(np.mean(truth > 0.45), rel=0.25)


def test_without_information_the_default_is_stated() -> None:
    value = 30.0 * np.random.default_rng(6).normal(size=200_000)
    prior = Prior.learn(value, np.ones_like(value), _law(30.0), 1000)
    mean, error = PosteriorTable(prior, _law(30.0))(np.array([100.0]), np.ones(1))
    assert abs(mean[0]) < 0.25
    assert error[0] == pytest.approx(0.125, abs=0.03)


def test_without_noise_observations_are_the_truth() -> None:
    truth = np.linspace(-0.99, 0.99, 501)
    law = ObservationLaw(GRID, NONE, NONE)
    prior = Prior.learn(_truths(1000, 7), np.ones(1000), _law(1e-6), 1000)
    mean, error = PosteriorTable(prior, law)(truth, np.ones_like(truth))
    np.testing.assert_allclose(mean, truth, atol=1e-9)
    assert error.max() < 1e-8


@pytest.mark.parametrize("scale", [0.3, 1.0, 2.7])
def test_against_a_quadrature(scale: float) -> None:
    """A fine grid in place of the table, for noise that depends on pair and truth."""
    prior = Prior.learn(_truths(20_000, 8), np.ones(20_000), _law(0.01), 20_000)
    law = ObservationLaw(GRID, 0.02 * (1 - 0.5 * GRID**2), 0.002 * ONES)
    fine = np.linspace(-1, 1, 20_001)
    density = np.interp(fine, GRID, prior.density)
    variance = scale * 0.02 * (1 - 0.5 * fine**2) + 0.002
    value = np.linspace(-0.8, 1.5, 47)
    weight = density * np.exp(-((value[:, None] - fine) ** 2) / variance / 2) / np.sqrt(variance)
    weight /= weight.sum(axis=1, keepdims=True)
    mean = weight @ fine
    deviation = np.sqrt(weight @ fine**2 - mean**2)
    found = PosteriorTable(prior, law)(value, np.full_like(value, scale))
    np.testing.assert_allclose(found[0], mean, atol=6e-3)
    np.testing.assert_allclose(found[1], deviation, atol=6e-3)


def test_observations_on_a_lattice() -> None:
    """Agreements of 40 signs: bins hold equally many possible values."""
    truth = _truths(200_000, 9)
    agreed = np.random.default_rng(10).binomial(40, (1 + 0.5 * truth) / 2) / 20.0 - 1
    law = ObservationLaw(0.5 * GRID, NONE, (1 - 0.25 * GRID**2) / 40, 0.05)
    density = Prior.learn(agreed, np.ones_like(agreed), law, 10**6).density
    assert density @ GRID == pytest.approx(truth.mean(), abs=0.005)
    assert density @ GRID**2 == pytest.approx(np.mean(truth**2), rel=0.15)


@pytest.mark.parametrize("pairs", [0, 1, 3])
def test_few_pairs(pairs: int) -> None:
    prior = Prior.learn(np.full(pairs, 0.4), np.ones(pairs), _law(0.1), pairs)
    mean, error = PosteriorTable(prior, _law(0.1))(np.array([[-3.0, 0.9, 5.0]]), np.ones((1, 3)))
    assert (np.abs(mean) <= 1).all()
    assert np.isfinite(error).all()
    assert EDGES[0] == -1.0
