"""Inversion: the attack is the least-squares linear one, shown by what characterises that."""

import numpy as np
import pytest
from helpers.common import (
    attribute_spec,
    codes_of,
    directions,
    known_noise,
    normal,
    record_spec,
    refuses,
    top,
)
from numpy.random import default_rng

from dpindex import Codebook, Privatizer, Repeated, Spec, l2
from dpindex.base.arrays import on_sphere_grid
from dpindex.study import invert
from dpindex.study.reconstruction import Reconstructor, cosines, highest_cosine

pytestmark = known_noise

DIM = 12
LOW = -0.25
HIGH = 0.75
SCALE = 10.0
MEAN = 0.25
VARIANCE = 1 / 12


def public(method, **terms):
    return attribute_spec(
        method,
        DIM,
        bounds=(LOW, HIGH),
        scale=SCALE,
        **terms,
    )


SPECS = [
    public("raw-laplace", epsilon=2.0),
    public("raw-square-wave", epsilon=2.0),
    public("dp-oporp", k=5, epsilon=5.0, delta=1e-3, seed=3),
    public("dp-oporp-staircase", k=4, epsilon=3.0),
    public("dp-signoporp-rr", k=12, variant=Repeated(4), epsilon=6.0, seed=2),
    public("dp-signoporp-geometric", k=3, epsilon=1.0),
    public("idp-signrp-g", k=24, epsilon=2.0, delta=1e-4, seed=5),
    public("none-signrp", k=16),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.method)
def test_no_other_scaling_of_the_estimate_is_nearer(spec):
    """Under the prior, regressing the truth on the estimate has slope 1.

    That orthogonality is what makes a linear estimate the best; a wrong noise variance, gain or
    sign shows as another slope (1.05 to 1.25 for a noise variance 1.3 times too large). Six
    deviations are a false alarm of 2e-9; 0.01 is left to clipping and to Bussgang's normality.
    """
    truth = default_rng(7).uniform(LOW, HIGH, (20_000, DIM)) * SCALE
    estimate = invert(codes_of(spec, truth), spec)
    assert estimate.dtype == np.float32
    assert estimate.min() >= LOW * SCALE
    assert estimate.max() <= HIGH * SCALE
    x = (estimate - MEAN * SCALE).ravel()
    y = (truth - MEAN * SCALE).ravel()
    slope = (x @ y) / (x @ x)
    errors = y - slope * x
    deviation = np.sqrt(np.var(errors) / (x @ x))
    assert abs(slope - 1) < 6 * deviation + 0.01
    # It beats the public guess and does not claim more than there is.
    assert np.mean((y - x) ** 2) < VARIANCE * SCALE**2


def test_cosines_of_nothing_are_zero():
    vectors = np.array([[0.0, 0.0], [3.0, 4.0]])
    others = np.array([[1.0, 0.0], [4.0, 3.0]])
    assert cosines(vectors, others) == pytest.approx([0.0, 0.96])


def test_what_cannot_be_inverted_is_refused():
    spec = attribute_spec("raw-laplace", 3, epsilon=1.0)
    codes = codes_of(spec, np.zeros((1, 3)))
    with refuses("another spec"):
        invert(codes, spec.with_epsilon(2.0))
    wide = attribute_spec(
        "dp-oporp-staircase",
        1 << 20,
        k=1 << 10,
        epsilon=1.0,
    )
    with refuses("too many to invert"):
        codes = codes_of(wide, np.zeros((1, 1 << 20)))
        invert(codes, wide)


def slope_of(truth, spec):
    """Of the truth on its estimate."""
    estimate = invert(codes_of(spec, truth), spec).astype(np.float64)
    return (estimate * truth).sum() / np.square(estimate).sum()


@pytest.mark.parametrize("method", ["record-cap", "record-codebook"])
@pytest.mark.parametrize("epsilon", [2.0, 6.0, 12.0])
def test_record_level_codes_are_rebuilt_as_large_as_is_best(method, epsilon):
    """The slope of the truth on the estimate is 1, up to what is approximate in either."""
    book = Codebook(directions(400, DIM, 1)) if method == "record-codebook" else None
    spec = record_spec(method, DIM, epsilon=epsilon, codebook=book)
    truth = directions(20_000, DIM, 2)
    assert abs(slope_of(truth, spec) - 1) < 0.1
    # Lengths do not count, neither of the vectors nor in what is measured.
    codes = codes_of(spec, 50 * truth[:2000])
    exposed = Reconstructor(spec).exposure(50 * truth[:2000], codes)
    assert 0.0 < exposed["reconstruction_error"] < 1.0
    assert 0.0 < exposed["reconstruction_cosine"] < 1.0


def test_a_declared_norm_is_the_prior():
    spec = Spec(
        "raw-gaussian",
        DIM,
        epsilon=8.0,
        delta=1e-6,
        adjacency=l2(2.0),
        norm=1.0,
    )
    slope = slope_of(directions(20_000, DIM, 2), spec)
    assert slope == pytest.approx(1.0, abs=0.05)


def correlated(rows, seed):
    """Vectors of covariance C about the middle of the bounds, of three directions."""
    rng = default_rng(seed)
    axes = normal(3, DIM) / 20
    causes = rng.normal(size=(rows, 3)) @ axes
    return (MEAN + causes).clip(LOW, HIGH) * SCALE


def learned_of(rows):
    """Those that an attacker learns from, and not the fourth that is kept to compare estimates."""
    return np.delete(rows, np.s_[::4], axis=0)


def test_public_vectors_make_the_attack_as_strong_as_bayes():
    """For normal vectors and Laplace noise of known moments the best linear error is closed form.

    ``trace(C − C(C + R)⁻¹C)`` is that of an attacker who knows mean and covariance exactly; the one
    who learns them from 2000 public vectors comes within 5 % of it, and one without them does not.
    """
    spec = public("raw-laplace", epsilon=2.0)
    truth = correlated(4000, 1)
    learned = correlated(2000, 2)
    codes = codes_of(spec, truth)
    covariance = np.cov(truth.T / SCALE)
    noise = 2 / spec.budget**2 * np.eye(DIM)
    explained = covariance @ np.linalg.solve(covariance + noise, covariance)
    best = np.trace(covariance - explained) / np.trace(covariance)
    exposed = Reconstructor(spec, learned).exposure(truth, codes)
    assert exposed["reconstruction_error"] == pytest.approx(best, rel=0.05)
    # Without them it does worse than a guess, and guesses.
    exposed = Reconstructor(spec).exposure(truth, codes)
    assert exposed["reconstruction_error"] == 1.0


@pytest.mark.parametrize("spec", SPECS[2:], ids=lambda spec: spec.method)
def test_the_guess_is_the_public_mean_and_codes_add_to_it(spec):
    """One baseline for every method; no method falls below what is known without a code."""
    truth = correlated(2000, 1)
    codes = codes_of(spec, truth)
    learned = correlated(2000, 2)
    exposed = Reconstructor(spec, learned).exposure(truth, codes)
    mean = learned_of(learned).mean(axis=0)
    everywhere = np.tile(mean, (len(truth), 1))
    guess = cosines(everywhere, truth).mean()
    assert exposed["guess_cosine"] == pytest.approx(guess)
    assert exposed["reconstruction_cosine"] > guess - 0.01
    assert exposed["reconstruction_error"] < 1.01


def test_a_symbol_stands_for_the_public_vectors_that_may_give_it(
    monkeypatch,
):
    """Bayes' rule, written out, for public vectors as the only ones there are."""
    book = Codebook(directions(30, DIM, 1))
    spec = record_spec(
        "record-codebook",
        DIM,
        epsilon=3.0,
        codebook=book,
        subset=4,
    )
    learned = np.concatenate([book.vectors, directions(170, DIM, 2)])
    kept = learned_of(learned)
    nearest = (kept @ book.vectors.T).max(axis=1)
    kept = kept[nearest < 1 - 1e-5]  # codewords recognise themselves
    codes = codes_of(spec, directions(50, DIM, 3))
    inside = spec.law.chance_inside
    # The other estimate, from codewords, is at times as near.
    monkeypatch.setattr(Reconstructor, "symbol_estimate", lambda _: lambda codes: 9.0)
    near = top(on_sphere_grid(kept) @ book.grid, 4)
    estimates = invert(codes, spec, None, learned)
    for code, estimate in zip(codes.stored.ravel(), estimates, strict=True):
        reports = (near == code).any(axis=1)
        chances = np.where(reports, inside / 4, (1 - inside) / 26)
        expected = np.average(kept, axis=0, weights=chances)
        assert estimate == pytest.approx(expected, abs=1e-5)


def test_no_cosine_is_above_one():
    """Of codes with little noise a plan said 1.01."""
    spec = public("raw-laplace", epsilon=60.0)
    vectors = topics(600, 1)
    highest = highest_cosine(Privatizer(spec), vectors, codes_of(spec, vectors), topics(200, 2))
    assert 0.999 < highest <= 1.0


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_who_knows_the_whole_population_stays_below_the_highest_cosine(epsilon):
    """Topics with near duplicates: 600 vectors tell little of them, and 10 000 all that 30 000 do.

    The stated value holds for both, and is not 1 where noise hides the topic.
    """
    spec = public("raw-laplace", epsilon=epsilon)
    codes = codes_of(spec, topics(600, 1))
    highest = highest_cosine(
        Privatizer(spec),
        topics(600, 1),
        codes,
        topics(200, 2),
    )
    reached = []
    for others in (300, 10_000):
        attacker = Reconstructor(spec, topics(others, 3))
        exposed = attacker.exposure(topics(600, 1), codes)
        reached.append(exposed["reconstruction_cosine"])
    assert reached[1] > reached[0] - 0.01
    assert max(reached) <= highest + 0.01
    if epsilon == 0.3:
        assert highest < 0.9


def topics(rows, seed):
    """Vectors near one of 200 centres."""
    rng = default_rng(seed)
    centres = default_rng(0).normal(MEAN, 0.3, size=(200, DIM))
    chosen = centres[rng.integers(200, size=rows)]
    vectors = chosen + 0.02 * rng.normal(size=(rows, DIM))
    return vectors.clip(LOW, HIGH) * SCALE
