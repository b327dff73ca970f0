"""Posteriors against an independent quadrature, and against known truths."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import scipy

from dpindex.similarity.observation_law import EDGES, GRID, AgreementLaw, ObservationLaw
from dpindex.similarity.posterior import in_ranking_order, posterior
from dpindex.similarity.prior import Priors

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
    prior = Priors.of_pairs(value, np.ones_like(value), law, 5000)
    truth = _truths(500_000, 3).reshape(100, 5000)
    seen = truth + deviation * rng.normal(size=truth.shape)
    best = np.argsort(-seen, axis=1)[:, :10]
    truth, seen = np.take_along_axis(truth, best, 1), np.take_along_axis(seen, best, 1)
    mean, error = posterior(prior, law, seen, np.ones_like(seen))
    assert abs(mean.mean() - truth.mean()) < 0.02
    assert 0.9 <= np.mean(np.abs(mean - truth) <= 2 * error) <= 0.99
    assert seen.mean() - truth.mean() > 0.4 * deviation
    assert (np.diff(mean, axis=1) <= 1e-12).all()


def test_the_prior_is_recovered() -> None:
    """Deconvolved: the share of near neighbours, and the width of the others."""
    truth = _truths(400_000, 4)
    value = truth + 0.15 * np.random.default_rng(5).normal(size=truth.shape)
    density = Priors.of_pairs(value, np.ones_like(value), _law(0.15), 10**6).density[0]
    mean = density @ GRID
    assert mean == pytest.approx(truth.mean(), abs=0.002)
    assert density @ (GRID - mean) ** 2 == pytest.approx(truth.var(), rel=0.05)
    assert density[GRID > 0.45].sum() == pytest.approx(np.mean(truth > 0.45), rel=0.25)


def test_without_information_the_default_is_stated() -> None:
    value = 30.0 * np.random.default_rng(6).normal(size=200_000)
    prior = Priors.of_pairs(value, np.ones_like(value), _law(30.0), 1000)
    mean, error = posterior(prior, _law(30.0), np.array([[100.0]]), np.ones((1, 1)))
    assert abs(mean[0]) < 0.25
    assert error[0] == pytest.approx(0.125, abs=0.03)


def test_without_noise_observations_are_the_truth() -> None:
    truth = np.linspace(-0.99, 0.99, 501)
    law = ObservationLaw(GRID, NONE, NONE)
    prior = Priors.of_pairs(_truths(1000, 7), np.ones(1000), _law(1e-6), 1000)
    mean, error = posterior(prior, law, truth[None], np.ones((1, 501)))
    np.testing.assert_allclose(mean[0], truth, atol=1e-9)
    assert error.max() < 1e-8


@pytest.mark.parametrize("scale", [0.3, 1.0, 2.7])
def test_against_a_quadrature(scale: float) -> None:
    """A fine grid in place of the table, for noise that depends on pair and truth."""
    prior = Priors.of_pairs(_truths(20_000, 8), np.ones(20_000), _law(0.01), 20_000)
    law = ObservationLaw(GRID, 0.02 * (1 - 0.5 * GRID**2), 0.002 * ONES)
    fine = np.linspace(-1, 1, 20_001)
    density = np.interp(fine, GRID, prior.density[0])
    variance = scale * 0.02 * (1 - 0.5 * fine**2) + 0.002
    value = np.linspace(-0.8, 1.5, 47)
    weight = density * np.exp(-((value[:, None] - fine) ** 2) / variance / 2) / np.sqrt(variance)
    weight /= weight.sum(axis=1, keepdims=True)
    mean = weight @ fine
    deviation = np.sqrt(weight @ fine**2 - mean**2)
    found = posterior(prior, law, value[None], np.full((1, len(value)), scale))
    np.testing.assert_allclose(found[0][0], mean, atol=6e-3)
    np.testing.assert_allclose(found[1][0], deviation, atol=6e-3)


@pytest.mark.parametrize("own", [0.0, 0.02])
def test_the_table_is_near_what_it_tabulates(own: float) -> None:
    prior = Priors.of_pairs(_truths(20_000, 8), np.ones(20_000), _law(0.01), 20_000)
    law = ObservationLaw(GRID, own * ONES, 0.01 * ONES, excess=0.5)
    value = np.linspace(-0.9, 1.5, 600)[None].repeat(2, 0)
    scale = np.random.default_rng(14).uniform(0.5, 2.0, value.shape)
    mean, error = posterior(prior, law, value, scale)
    for part in (slice(0, 300), slice(300, 600)):
        exact = posterior(prior, law, value[:, part], scale[:, part])
        np.testing.assert_allclose(mean[:, part], exact[0], atol=5e-3)
        np.testing.assert_allclose(error[:, part], exact[1], atol=5e-3)


@pytest.mark.slow
def test_the_collection_is_not_mistaken_for_the_law_of_agreements() -> None:
    """Agreements of 40 signs: the binomial law's own skewness is half of what is seen.

    Mean, deviation and third moment are recovered from four million pairs.
    """
    rng = np.random.default_rng(9)
    truth = np.clip(0.3 + 0.1 * (rng.gamma(4.0, 0.5, 4_000_000) - 2.0), -1, 1)
    agreed = 2.0 * rng.binomial(40, (1 + 0.5 * truth) / 2) - 40
    law = AgreementLaw(20 * GRID, NONE, 40 * (1 - 0.25 * GRID**2), bits=40, trusted=np.inf)
    density = Priors.of_counts(law.count(agreed[None]), law, 10**6).density[0]
    mean = density @ GRID
    assert mean == pytest.approx(truth.mean(), abs=0.002)
    assert density @ (GRID - mean) ** 2 == pytest.approx(truth.var(), rel=0.1)
    third = np.mean((truth - truth.mean()) ** 3)
    assert density @ (GRID - mean) ** 3 == pytest.approx(third, rel=0.35)


def test_agreements_are_binomial() -> None:
    """Against SciPy's; below the binomial variance, what is left has about that variance."""
    law = AgreementLaw(60 * GRID, NONE, 60 * (1 - GRID**2), bits=60)
    for i in (10, 64, 100):
        expected = scipy.stats.binom.pmf(np.arange(61), 60, (1 + GRID[i]) / 2)
        np.testing.assert_allclose(law.chances(1.0)[i], expected, atol=1e-12)
    narrow = AgreementLaw(60 * GRID, NONE, 20 * (1 - GRID**2), bits=60)
    chance, off = narrow.chances(1.0)[64], narrow.values - 60 * GRID[64]
    assert chance @ off**2 == pytest.approx(20, rel=0.05)
    assert law.count(np.array([[-60.0, 58.0, 60.0, 60.0]]))[0, [0, 59, 60]].tolist() == [1, 1, 2]


@pytest.mark.parametrize("pairs", [0, 1, 3])
def test_few_pairs(pairs: int) -> None:
    prior = Priors.of_pairs(np.full(pairs, 0.4), np.ones(pairs), _law(0.1), pairs)
    mean, error = posterior(prior, _law(0.1), np.array([[-3.0, 0.9, 5.0]]), np.ones((1, 3)))
    assert (np.abs(mean) <= 1).all()
    assert np.isfinite(error).all()
    assert EDGES[0] == -1.0


def test_queries_have_their_own_distributions() -> None:
    """Half of the queries have near neighbours, twice the usual number, and half have none."""
    rng = np.random.default_rng(11)
    law = _law(0.15)
    usual = _truths(400_000, 12)
    usual += 0.15 * rng.normal(size=usual.shape)
    prior = Priors.of_pairs(usual, np.ones_like(usual), law, 5000)
    truth = rng.normal(0.1, 0.1, (100, 5000))
    truth[:50, :100] = rng.normal(0.6, 0.1, (50, 100))
    seen = truth + 0.15 * rng.normal(size=truth.shape)
    own = prior.of_queries(seen, law)
    assert own.density.shape == (100, 128)
    best = np.argsort(-seen, axis=1)[:, :10]
    truth, seen = np.take_along_axis(truth, best, 1), np.take_along_axis(seen, best, 1)
    ones = np.ones_like(seen)
    mean, error = posterior(own, law, seen, ones)
    for some in (slice(0, 50), slice(50, 100)):
        assert abs(mean[some].mean() - truth[some].mean()) < 0.06  # shrunk to the usual
    assert 0.9 <= np.mean(np.abs(mean - truth) <= 2 * error) <= 0.99
    common = posterior(prior, law, seen, ones)[0]
    assert common[50:].mean() > truth[50:].mean() + 0.05
    alone = posterior(prior.of_queries(seen[:1], law), law, seen[:1], ones[:1])
    both = posterior(prior.of_queries(seen[:2], law), law, seen[:2], ones[:2])
    np.testing.assert_allclose(alone[0], both[0][:1], rtol=1e-9)


def test_moments_of_queries_give_their_own_distributions() -> None:
    """Normal truths, about 0.1 for all, about 0.3 and wider for one: mean, deviation, and alone."""
    rng = np.random.default_rng(15)
    value = rng.normal(0.1, np.hypot(0.1, 0.3), 400_000)
    prior = Priors.of_pairs(value, np.ones_like(value), _law(0.3), 10**6)
    means, deviations = np.array([0.1, 0.3, -0.1]), np.array([0.1, 0.15, 0.1])
    square = means**2 + deviations**2 + 0.3**2
    seen = np.stack([means, square], axis=1)
    own = prior.of_moments(seen, _law(0.3), 10**6)
    found = own.density @ GRID
    np.testing.assert_allclose(found, means, atol=0.005)
    np.testing.assert_allclose(np.sqrt(own.density @ GRID**2 - found**2), deviations, atol=0.01)
    alone = prior.of_moments(seen[1:2], _law(0.3), 10**6)
    np.testing.assert_allclose(alone.density, own.density[1:2], atol=1e-9)
    few = prior.of_moments(seen, _law(0.3), 1)  # observations that say nothing
    np.testing.assert_allclose(few.density @ GRID, 0.1, atol=0.05)
    wild = prior.of_moments(np.array([[40.0, -3.0], [-9.0, 1e4]]), _law(0.3), 10**6)
    assert np.isfinite(wild.density).all()


@pytest.mark.parametrize("excess", [0.0, 0.8, 2.0])
def test_the_law_has_its_moments(excess: float) -> None:
    law = ObservationLaw(GRID, NONE, 0.04 * ONES, excess=excess)
    z = np.linspace(-4, 4, 8001)
    middle = 64
    log = law.log_density(z + GRID[middle], law.variance(np.ones(len(z))))[:, middle]
    density = np.exp(log - log.max())
    density /= density.sum()
    assert density @ z**2 == pytest.approx(0.04, rel=0.01)
    assert density @ z**4 / 0.04**2 - 3 == pytest.approx(excess, abs=0.05)
    assert (np.diff(log, 2) <= 1e-9).all()  # log-concave
    inside = law.chances(1.0)[middle]
    edges = law.edges - GRID[middle]
    for i in range(1, len(inside) - 1):
        expected = density[(z >= edges[i]) & (z < edges[i + 1])].sum()
        assert inside[i] == pytest.approx(expected, abs=2e-3)


def test_pools_along_the_ranking() -> None:
    rng = np.random.default_rng(13)
    cosine, error = rng.random((20, 30)), rng.random((20, 30))
    pooled, wider = in_ranking_order(cosine, error)
    assert (np.diff(pooled, axis=1) <= 1e-12).all()
    np.testing.assert_allclose(pooled.mean(axis=1), cosine.mean(axis=1))
    np.testing.assert_allclose(
        (pooled**2 + wider**2).mean(axis=1), (cosine**2 + error**2).mean(axis=1)
    )
    ordered = -np.sort(-cosine, axis=1)
    np.testing.assert_array_equal(in_ranking_order(ordered, error)[0], ordered)
