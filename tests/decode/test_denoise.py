"""Denoising: the laws seen from the code's side, what is learned, and that only codes are seen."""

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import scipy.special
from helpers.common import (
    Seeded,
    attribute_spec,
    filled_index,
    low_rank,
    normal,
    overlap,
    photographs,
    projected,
    refuses,
    reopened,
    top,
    unit,
)
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

from dpindex import Privatizer, Spec, attribute
from dpindex.base.files import pack, unpack
from dpindex.decode import fit as fitting
from dpindex.decode.denoiser import Channel, Denoiser, denoiser_from_bytes, denoiser_to_bytes
from dpindex.decode.fit import TrainingCodes, calibrated_bins, fit_denoiser
from dpindex.decode.iteration import ScoreTable, ValueTable
from dpindex.decode.mixture import SCALES, Mixture, MixtureFilter, signal_directions, spiked
from dpindex.mechanism.spec import Projector

DIM = 24


def made(spec, x, seed):
    """Codes with reproducible noise."""
    stream = Seeded(seed)
    with mock.patch("dpindex.mechanism.privatizer.secret_stream", return_value=stream):
        return Privatizer(spec, allow_unprotected=True).privatize(x, threads=1)


PROMISE = {"adjacency": attribute(1.0), "bounds": (0.0, 1.0)}


def spec_of(method, epsilon=3.0, dim=DIM, **more):
    return Spec(method, dim, epsilon=epsilon, seed=5, **{**PROMISE, **more})


def error(a, b):
    apart = np.asarray(a, dtype=np.float64) - b
    return float(np.mean(apart**2))


def read(spec, x, seed):
    """Numbers that codes of these vectors stand for, by the channel that reads them."""
    channel = Channel(spec)
    return channel.format.decode(made(spec, x, seed).stored)


def placed(table, variance, likelihood, y, prediction):
    """The row of a table for a variance, and the places of codes in it."""
    (row,) = table.row(np.array([variance]))
    return row, table.place(row, likelihood.locate(y) - np.float32(prediction))


LAWS = [
    spec_of("raw-staircase"),
    spec_of("raw-staircase", 1.0),
    spec_of("raw-square-wave"),
    spec_of("raw-square-wave", 1.0),
    spec_of("raw-laplace"),
    spec_of("raw-gaussian", delta=1e-6),
]


@pytest.mark.parametrize("spec", LAWS, ids=lambda s: f"{s.method}-{s.epsilon:g}")
class TestChannel:
    def test_score_is_the_posterior_mean(self, spec):
        """``m + v·g`` against a simulation that knows x: calibrated in every part of its range.

        In each of 20 parts with 20 000 draws the mean error is within 6 standard errors.
        """
        likelihood = Channel(spec).likelihood
        table = ScoreTable(likelihood, 1.0)
        rng = default_rng(3)
        m = 0.5
        v = 0.01
        x = m + np.sqrt(v) * rng.normal(size=(100_000, 4))
        inside = (x > 0) & (x < 1)
        x = np.clip(x, 0, 1)
        y = read(spec_of_dim(spec, 4), x, 2)
        row, place = placed(table, v, likelihood, y, m)
        score = np.take(table.scores, place)
        estimate = m + table.variances[row] * score
        grid_error = abs(table.variances[row] / v - 1)
        order = np.argsort(estimate[inside])
        sorted_errors = (estimate - x)[inside][order]
        for off in np.array_split(sorted_errors, 20):
            allowed = 6 * off.std() / np.sqrt(len(off))
            assert abs(off.mean()) < allowed + 0.05 * grid_error + 0.002

    def test_information_is_that_of_the_scores(self, spec):
        likelihood = Channel(spec).likelihood
        table = ScoreTable(likelihood, 1.0)
        rng = default_rng(4)
        (row,) = table.row(np.array([0.004]))
        v = float(table.variances[row])
        x = 0.5 + np.sqrt(v) * rng.normal(size=(60_000, 4))
        y = read(spec_of_dim(spec, 4), np.clip(x, 0, 1), 3)
        _, place = placed(table, v, likelihood, y, 0.5)
        score = np.take(table.scores, place).astype(np.float64)
        information = table.information[row]
        assert np.mean(score**2) == pytest.approx(information, rel=0.03)
        growth = np.take(table.growth, place).astype(np.float64)
        # Tails end somewhere: few codes in a million lie beyond.
        low, high = np.quantile(growth, (1e-5, 1 - 1e-5))
        growth = growth.clip(low, high)
        information = table.growth_information[row]
        assert np.mean(growth**2) == pytest.approx(information, rel=0.05)
        assert abs(growth.mean()) < 5 * np.sqrt(information / growth.size)


def spec_of_dim(spec, dim):
    return replace(spec, dim=dim, k=dim)


@pytest.fixture(scope="module")
def of_values():
    """True coordinates, a table, and the codes' places in it: .7 of them 0, .2 are 1, .1 .5."""
    spec = spec_of_dim(spec_of("raw-square-wave", 2.0), 4)
    channel = Channel(spec)
    values = [0.0, 0.5, 1.0]
    x = default_rng(0).choice(values, p=[0.7, 0.1, 0.2], size=(50_000, 4))
    y = channel.format.decode(made(spec, x, 1).stored)
    table = ValueTable.of(channel.likelihood)
    bins = np.zeros(y.shape, dtype=np.intp)
    return x, table, bins, channel.likelihood.locate(y)


class TestValues:
    """Coordinates of an interval, which lie in few places of it."""

    def test_chances_are_found_in_codes(self, of_values):
        _, table, bins, location = of_values
        cells = table.place(bins, location).ravel()
        counts = np.bincount(cells, minlength=table.cells)
        (chances,) = table.fitted(counts[None].astype(float), np.full((1, 33), 1.0))
        low = chances[table.values < 0.2].sum()
        high = chances[table.values > 0.8].sum()
        assert low == pytest.approx(0.7, abs=0.02)
        assert high == pytest.approx(0.2, abs=0.02)
        assert chances.sum() == pytest.approx(1.0, abs=1e-5)

    def test_posterior_means_are_those_of_bayes(self, of_values):
        """Between prediction and message, right on average in every cell, and of least error."""
        x, table, bins, location = of_values
        prior = np.zeros((1, 33), dtype=np.float32)
        prior[0, [0, 16, 32]] = 0.7, 0.1, 0.2
        messages, (weight,), (noise,) = table.read(prior)
        cell = table.place(bins, location)
        usual = x.mean()
        estimate = usual + weight * (np.take(messages, cell) - usual)
        for at in range(table.cells):
            off = (estimate - x)[cell == at]
            allowed = 6 * x.std() / np.sqrt(len(off))
            assert abs(off.mean()) < allowed
        variance = x.var()
        assert error(estimate, x) == pytest.approx(variance * (1 - weight), rel=0.02)
        assert noise == pytest.approx(variance * (1 / weight - 1), rel=0.02)

    def test_values_tell_more_than_a_normal_prior(self):
        """Dark or bright all over, in unequal parts: .89 of the error that scores leave."""
        rng = default_rng(2)
        kind = rng.random((6000, 1)) < 0.5
        chance = np.where(kind, 0.2, 0.5)
        x = (rng.random((6000, DIM)) < chance).astype(float)
        spec = spec_of("raw-square-wave", 3.0)
        codes = made(spec, x, 3)

        def left():
            return error(fit_denoiser(codes, spec, "score")(codes), x)

        found = left()
        with mock.patch.object(ValueTable, "of", return_value=None):
            assert found < 0.93 * left()

    def test_values_near_a_prediction_that_none_was_learned_of(self, of_values):
        """Where nothing was held out, they are about the prediction, not about zero."""
        x, table, _, _ = of_values
        spec = spec_of_dim(spec_of("raw-square-wave", 2.0), 4)
        rows = TrainingCodes(made(spec, x, 1).stored, Channel(spec))
        held = rows.held_codes[::2]
        prediction = np.full(held.shape, 0.1, dtype=np.float32)
        prediction[::2] = 0.9
        bins = calibrated_bins(prediction, np.full_like(held, 0.01), rows, table)
        means = bins.chances @ table.values
        near = np.full((1, 1), 0.6, np.float32)
        (place,) = bins.place(near, np.full((1, 1), 0.01, np.float32))
        assert means[place] == pytest.approx(0.6, abs=0.05)

    def test_laws_without_limits_and_narrow_windows_have_none(self):
        for spec in (spec_of("raw-staircase"), spec_of("raw-square-wave", 6.0)):
            assert ValueTable.of(spec.likelihood) is None


class TestSpectrum:
    @pytest.mark.slow
    def test_spikes_are_unbiased(self):
        """Sample eigenvalues of known spikes map back to them (2 % at 20 000 rows, k/n = 0.02)."""
        rng = default_rng(0)
        k = 400
        n = 20_000
        strength = np.array([20.0, 5.0, 1.0])
        x = rng.normal(size=(n, k))
        x[:, :3] *= np.sqrt(1 + strength)
        covariance = x.T @ x / n
        eigenvalues = np.linalg.eigvalsh(covariance)[::-1]
        signal, trust = spiked(eigenvalues, k / n)
        assert signal[:3] == pytest.approx(strength, rel=0.08)
        assert np.all(signal[3:] < 0.25)
        assert 0.9 < trust[2] < 1.0

    def test_noise_alone_has_no_directions(self):
        x = normal(4000, 200, 1)
        basis, strength = signal_directions(x.T @ x / 4000, 4000, 50)
        assert basis.shape[1] == len(strength) <= 1


def of_two_kinds():
    rng = default_rng(5)
    centre = rng.choice([-1.2, 1.2], (4000, 1))
    rows = centre + 1.2 * rng.normal(size=(4000, 5))
    return rows.astype(np.float32)


def sizes(z):
    """One Gaussian in several sizes, from rows whose coordinates are independent."""
    signal = z.var(axis=0, dtype=np.float64) - 1
    return Mixture.of_scales(z, np.maximum(signal, 0))


class TestMixture:
    def test_two_kinds_are_told_apart(self):
        rng = default_rng(2)
        kind = rng.integers(0, 2, 6000)
        centre = np.where(kind[:, None] == 0, 3.0, -3.0)
        x = centre + 0.3 * rng.normal(size=(6000, 8))
        z = (x + rng.normal(size=x.shape)).astype(np.float32)
        basis, signal = signal_directions(np.cov(z.T), len(z), 8)
        single = Mixture.gaussian(signal)
        double = Mixture.fit(z, 2)
        linear, *_ = single.posterior(z @ basis)
        estimate, *_ = double.posterior(z)
        assert error(estimate, x) < 0.9 * error(linear @ basis.T, x)
        assert double.weight.sum() == pytest.approx(1.0, abs=1e-3)

    @pytest.mark.parametrize("fit", [lambda z: Mixture.fit(z, 3), sizes])
    def test_a_prediction_is_made_of_the_other_coordinates(self, fit):
        """Against the law of a code's coordinate given the others, integrated along a line.

        Its density follows from posterior means: they are the code and its noise's variance times
        the slope of the logarithm (Tweedie).
        """
        z = of_two_kinds()
        basis, _ = np.linalg.qr(normal(8, 5))
        basis = basis.astype(np.float32)
        mixture = fit(z)
        noise = np.linspace(0.5, 2.0, 8, dtype=np.float32)
        mean = np.arange(8, dtype=np.float32)
        filter_ = MixtureFilter(mean, noise, basis, mixture, mixture.leverage(basis))
        rows = (z[:30] @ filter_.synthesis.T + mean).astype(np.float32)
        prediction, claim, _ = filter_.predict(rows)
        line = np.arange(-15, 15, 0.05, dtype=np.float32)
        for j in range(8):
            points = mean[j] + line
            moved = np.repeat(rows, len(line), axis=0)
            moved[:, j] = np.tile(points, len(rows))
            inner, _ = filter_.inner(moved)
            estimate = inner @ filter_.synthesis.T + mean
            slope = (estimate - moved)[:, j] / noise[j]
            slope = slope.reshape(len(rows), -1)
            log = 0.05 * (np.cumsum(slope, axis=1) - slope / 2)
            chances = scipy.special.softmax(log, axis=1)
            wanted = chances @ points
            spread = chances @ points**2 - wanted**2 - noise[j]
            assert_allclose(prediction[:, j], wanted, atol=0.01)
            assert_allclose(claim[:, j], spread, rtol=0.05)

    def test_rows_between_components_get_no_estimate_that_nobody_reads(self, monkeypatch):
        z = of_two_kinds()
        mixture = Mixture.fit(z, 3)
        basis = np.eye(5, dtype=np.float32)
        leverage = mixture.leverage(basis)
        filter_ = MixtureFilter(np.zeros(5), np.ones(5), basis, mixture, leverage)
        means = Mixture.means
        estimated = []

        def counted(mixture, rows, share):
            estimated.append(len(rows))
            return means(mixture, rows, share)

        monkeypatch.setattr(Mixture, "means", counted)
        _, _, share = filter_.predict(z)
        read = np.count_nonzero(share.max(axis=1) >= 1 - 1e-3)
        assert sum(estimated) == read
        assert read < len(z)


class TestSizes:
    """One Gaussian in several sizes."""

    def rows(self, count):
        """Vectors of two sizes, and what is seen of them through unit noise."""
        rng = default_rng(6)
        sizes = np.where(rng.random((count, 1)) < 0.3, 2.0, 0.5)
        shape = np.geomspace(3, 0.3, 40)
        x = sizes * rng.normal(size=(count, 40)) * shape
        return x, (x + rng.normal(size=x.shape)).astype(np.float32)

    def test_near_the_best_that_knows_the_sizes_there_are(self):
        """Against the Bayes estimate of the two true sizes, by hand; one size loses a tenth."""
        x, z = self.rows(12_000)
        spread = np.geomspace(3, 0.3, 40) ** 2 * np.array([[0.25], [4.0]])
        terms = z[:, None] ** 2 / (1 + spread) + np.log1p(spread)
        log = np.log([0.7, 0.3]) - 0.5 * terms.sum(axis=2)
        odds = scipy.special.softmax(log, axis=1)
        factor = odds @ (spread / (1 + spread))
        best = error(factor * z, x)

        def left(mixture):
            estimate, *_ = mixture.posterior(z)
            return error(estimate, x)

        found = left(sizes(z))
        assert found < 1.03 * best
        of_one_size = Mixture.gaussian(z.var(axis=0) - 1)
        assert found < 0.9 * left(of_one_size)

    def test_weights_and_covariance_are_those_of_the_collection(self):
        x, z = self.rows(12_000)
        mixture = sizes(z)
        assert mixture.weight.sum() == pytest.approx(1.0, abs=1e-3)
        assert mixture.weight @ SCALES == pytest.approx(1.0, abs=0.1)
        squares = (x**2).mean(axis=0)
        variance = np.diag(mixture.covariance())
        assert variance == pytest.approx(squares, rel=0.1, abs=0.1)

    def test_claims_the_error_that_it_makes(self):
        """Posterior variance by size, on average and vector by vector."""
        x, z = self.rows(12_000)
        mixture = sizes(z)
        leverage = mixture.leverage(np.eye(40, dtype=np.float32))
        errors = leverage.sum(axis=1)
        claimed = mixture.responsibilities(z) @ errors
        estimate, *_ = mixture.posterior(z)
        made = ((estimate - x) ** 2).sum(axis=1)
        assert claimed.mean() == pytest.approx(made.mean(), rel=0.05)
        assert np.corrcoef(claimed, made)[0, 1] > 0.6


@pytest.fixture(scope="module")
def learned():
    """Vectors, codes and a denoiser of each law, made once."""
    kept = {}

    def get(kind="score", method="raw-staircase", epsilon=3.0):
        key = (method, epsilon, kind)
        if key not in kept:
            delta = 1e-6 if "gaussian" in method else 0.0
            spec = spec_of(method, epsilon, delta=delta)
            x = low_rank(6000)
            codes = made(spec, x, 7)
            kept[key] = x, codes, fit_denoiser(codes, spec, kind)
        return kept[key]

    return get


class TestFit:
    @pytest.mark.parametrize(
        "method, epsilon",
        [
            ("raw-staircase", 3.0),
            ("raw-square-wave", 3.0),
            ("raw-gaussian", 12.0),
        ],
    )
    def test_linear_is_near_the_best_linear(self, learned, method, epsilon):
        """Within 5 % of the Wiener filter that knows the vectors' own covariance."""
        x, codes, denoiser = learned("linear", method, epsilon)
        y = codes.to_float().astype(np.float64)
        mean = x.mean(0)
        covariance = np.cov(x.T)
        noise = np.diag(((y - x) ** 2).mean(0))
        filter_ = np.linalg.solve(covariance + noise, covariance)
        best = mean + (y - mean) @ filter_
        assert error(denoiser(codes), x) < 1.05 * error(best, x)

    @pytest.mark.parametrize(
        "method, share",
        [
            ("raw-staircase", 0.8),
            ("raw-square-wave", 0.8),
            ("raw-laplace", 0.9),
        ],
    )
    def test_score_beats_linear(self, learned, method, share):
        x, codes, linear = learned("linear", method)
        _, _, score = learned("score", method)
        assert score.error < linear.error
        assert error(score(codes), x) < share * error(linear(codes), x)

    def test_score_is_linear_for_gaussian_noise(self, learned):
        x, codes, linear = learned("linear", "raw-gaussian", 12.0)
        _, _, score = learned("score", "raw-gaussian", 12.0)
        assert error(score(codes), x) < 1.03 * error(linear(codes), x)

    @pytest.mark.parametrize("method", ["raw-staircase", "raw-square-wave"])
    @pytest.mark.parametrize("epsilon", [1.0, 1.5, 3.0, 6.0])
    def test_auto_is_never_worse(self, learned, method, epsilon):
        """Chosen from codes alone; the vectors say whether rightly (within 2 %)."""
        x, codes, linear = learned("linear", method, epsilon)
        _, _, auto = learned("auto", method, epsilon)
        assert error(auto(codes), x) < 1.02 * error(linear(codes), x)

    def test_error_is_what_the_vectors_say(self, learned):
        """The held-out error against the true one, within 5 standard errors of 18 000 squares."""
        x, codes, linear = learned("linear")
        prediction, _, _ = linear.linear.predict(codes.to_float())
        noise = Channel(linear.spec).noise(codes.to_float())
        true = error(prediction, x) / noise.mean()
        assert linear.error == pytest.approx(true, abs=0.08)

    def test_holds_for_new_codes(self, learned):
        x, codes, score = learned()
        later = low_rank(2000, seed=50)
        fresh = made(score.spec, later, 51)
        assert error(score(fresh), later) < 1.1 * error(score(codes), x)

    def test_other_budgets_go_through_a_linear_filter(self, learned):
        _, _, score = learned()
        other = score.spec.with_epsilon(2.0)
        later = low_rank(2000, seed=60)
        codes = made(other, later, 61)
        left = error(score(codes, other), later)
        assert left < 0.2 * error(codes.to_float(), later)
        strange = spec_of("raw-laplace")
        codes = made(strange, later, 62)
        with refuses("more than epsilon"):
            score(codes, strange)

    def test_signs(self):
        x = low_rank(6000, dim=48) - 0.5
        spec = attribute_spec("dp-signoporp-rr", 48, k=48, epsilon=2.0)
        codes = made(spec, x, 9)
        denoiser = fit_denoiser(codes, spec)
        truth = np.sign(projected(spec, x))
        assert denoiser.kind == "linear"
        agree = np.mean(np.sign(denoiser(codes)) == truth)
        assert agree > np.mean(codes.to_float() == truth) + 0.02
        with refuses("linear denoiser only"):
            fit_denoiser(codes, spec, "score")

    def test_wide_laws(self):
        x = low_rank(3000)
        spec = attribute_spec(
            "dp-rp-l",
            DIM,
            k=16,
            epsilon=60.0,
            bounds=(0, 1),
        )
        codes = made(spec, x, 10)
        truth = projected(spec, x) * spec.step
        left = error(fit_denoiser(codes, spec)(codes), truth)
        assert left < error(codes.to_float(), truth)


@pytest.fixture(scope="module")
def sized():
    """A denoiser that was made to tell sizes, whether or not that is clearly better."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "MIN_Z_OF_PRIORS", {"scales": -1e9, "mixture": 1e9})
        spec = spec_of("raw-square-wave", 4.0, dim=96)
        x = photographs(10_000, 0)
        codes = made(spec, x, 9)
        return x, codes, fit_denoiser(codes, spec, "score")


def errors_of(denoiser, codes, ranked=None):
    """The squared error that is counted for each code, read off the norms that rank."""
    estimate = denoiser(codes).astype(np.float64)
    ranked = denoiser.to_rank(codes) if ranked is None else ranked
    squares = (estimate**2).sum(axis=1)
    ratio = np.linalg.norm(ranked, axis=1) / np.sqrt(squares)
    scaled = estimate * ratio[:, None]
    assert np.abs(ranked - scaled).max() < 1e-5
    return 1 / ratio**2 - squares


class TestRanking:
    def test_without_sizes_by_cosine(self, learned):
        _, codes, denoiser = learned()
        assert denoiser.error_variance.size == 0
        apart = denoiser.to_rank(codes) - unit(denoiser(codes))
        assert np.abs(apart).max() < 1e-6

    @pytest.mark.parametrize("growth", [0.0, 1e-6])
    def test_codes_that_say_nothing_of_sizes_leave_errors_as_claimed(self, growth, learned):
        _, codes, denoiser = learned()
        nothing = (
            None,
            None,
            lambda: (np.full((8, 3), growth), np.full(8, 5 * growth)),
        )
        with mock.patch.object(type(denoiser), "_last_iteration", return_value=nothing):
            sized = denoiser.sized(codes.to_float())
        assert sized.sizes.tolist() == [0, 0, 0]

    def test_by_what_codes_say_of_the_size_of_their_errors(self, monkeypatch):
        """Vectors leave one subspace by a part of their own, which no estimate shows."""
        spec = spec_of("raw-square-wave", 6.0, dim=64)
        rng = default_rng(6)
        size = rng.choice([0.02, 0.12], size=8000)
        apart = size[:, None] * rng.normal(size=(8000, 64))
        x = np.clip(low_rank(8000, dim=64) + apart, 0, 1)
        codes = made(spec, x, 7)
        monkeypatch.setattr(
            fitting,
            "MIN_Z_OF_PRIORS",
            {"scales": 1e9, "mixture": 1e9},
        )
        denoiser = fit_denoiser(codes, spec, "score")
        off = denoiser(codes) - x
        really = (off**2).sum(axis=1)
        # One Gaussian claims the same error for all, and estimates under a design count it, too.
        mapped = denoiser.mapped_to_rank(
            codes,
            np.eye(64, dtype=np.float32),
            np.zeros(64),
        )
        claimed = errors_of(denoiser, codes, mapped)
        assert np.corrcoef(claimed, really)[0, 1] > 0.6
        assert np.corrcoef(claimed, size)[0, 1] > 0.6
        # Of other codes, which the denoiser has not seen, the same is learned.
        other = made(spec, x, 8)
        again = denoiser.sized(other.to_float())
        assert again.sizes == pytest.approx(denoiser.sizes, abs=0.1)

    def test_of_several_kinds_by_what_the_error_is_too(self, monkeypatch):
        """Also of vectors that are a linear map of what is estimated."""
        monkeypatch.setattr(
            fitting,
            "MIN_Z_OF_PRIORS",
            {"scales": 1e9, "mixture": -1e9},
        )
        spec = spec_of("raw-staircase")
        codes = made(spec, low_rank(5000), 7)
        denoiser = fit_denoiser(codes, spec, "score")
        errors = denoiser.error_variance
        assert errors.size == denoiser.iterations[-1].filter.prior.components
        ranked = denoiser.to_rank(codes)
        alike = replace(denoiser, sizes=np.zeros(3))
        claimed = errors_of(alike, codes)
        assert 0.9 * errors.min() < claimed.min()
        assert claimed.min() < claimed.max()
        assert claimed.max() < 1.1 * errors.max()
        mapped = denoiser.mapped_to_rank(
            codes,
            2 * np.eye(DIM, dtype=np.float32),
            np.zeros(DIM),
        )
        assert np.abs(mapped - ranked).max() < 1e-5

    @pytest.mark.slow
    def test_with_sizes_by_what_the_error_is_too(self, sized):
        """The norm divided by is that of the estimate and of its error, as the filter claims it.

        Filters overrate themselves: what counts is which vectors they are surer of.
        """
        x, codes, denoiser = sized
        assert denoiser.error_variance.size == len(SCALES)
        assert np.all(np.diff(denoiser.error_variance) > 0)
        estimate = denoiser(codes)
        claimed = errors_of(denoiser, codes)
        really = ((estimate - x) ** 2).sum(axis=1)
        assert 0.5 < claimed.mean() / really.mean() < 1.1
        assert np.corrcoef(claimed, really)[0, 1] > 0.5

    @pytest.mark.slow
    def test_finds_more_true_neighbours(self, sized):
        x, codes, denoiser = sized
        asked = photographs(300, 1)
        true = top(asked @ unit(x).T, 50)

        def precision(ranked):
            return overlap(top(asked @ ranked.T, 10), true)

        by_norms = precision(denoiser.to_rank(codes))
        assert by_norms > precision(unit(denoiser(codes)))

    @pytest.mark.slow
    def test_chosen_where_by_far_better(self, monkeypatch):
        spec = spec_of("raw-square-wave", 4.0, dim=96)
        codes = made(spec, photographs(20_000, 0), 8)

        def kinds_of_error(codes, spec):
            return fit_denoiser(codes, spec, "score").error_variance.size

        assert kinds_of_error(codes, spec) == len(SCALES)
        monkeypatch.setattr(
            fitting,
            "MIN_Z_OF_PRIORS",
            {"scales": 50.0, "mixture": 1e9},
        )
        assert kinds_of_error(codes, spec) == 0
        plain = spec_of("raw-square-wave")
        assert kinds_of_error(made(plain, low_rank(6000), 7), plain) == 0


class TestDeclines:
    def test_nothing_but_noise(self):
        spec = spec_of("raw-staircase", 0.05)
        x = np.full((3000, DIM), 0.5)
        with refuses("nothing is above the noise"):
            fit_denoiser(made(spec, x, 11), spec)

    @pytest.mark.parametrize(
        "spec",
        [
            spec_of("dp-signoporp-rr", 64.0),
            spec_of("raw-staircase", 64.0),
            spec_of("raw-laplace", 64.0, bounds=(0.0, 300.0)),
        ],
        ids=lambda spec: f"{spec.method}",
    )
    def test_hardly_any_noise(self, spec):
        with refuses("hardly any noise"):
            x = low_rank(1000) * spec.bounds[1]
            fit_denoiser(made(spec, x, 1), spec)

    def test_no_noise(self):
        spec = attribute_spec("none-oporp", DIM, k=8, bounds=(0, 1))
        with refuses("nothing to denoise"):
            fit_denoiser(made(spec, low_rank(1000), 1), spec)

    def test_kind(self, learned):
        _, codes, linear = learned("linear")
        with refuses("kind must be one of"):
            fit_denoiser(codes, linear.spec, "best")

    def test_other_codes(self, learned):
        _, codes, linear = learned("linear")
        with refuses("another spec"):
            fit_denoiser(codes, spec_of("raw-laplace"))
        with refuses("another spec"):
            codes = made(spec_of("raw-staircase", 2.0), low_rank(5), 1)
            linear(codes)


class TestOnlyCodes:
    """Post-processing: what is learned is a function of codes and public parameters."""

    def test_vectors_are_refused(self, learned):
        array = low_rank(600)
        _, _, linear = learned("linear")
        for call in (lambda: fit_denoiser(array, linear.spec), lambda: linear(array)):
            with refuses("never vectors"):
                call()

    def test_an_index_keeps_no_vector_to_learn_from(self, tmp_path, monkeypatch):
        """Learned the same by the index that saw the vectors and by one that opened the codes.

        While it learns, nothing may project, round or privatize.
        """
        spec = spec_of("raw-staircase")
        index = filled_index(spec, low_rank(1000))
        opened = reopened(index, tmp_path / "index")

        def forbidden(*_, **__):
            raise AssertionError("a vector was read")

        monkeypatch.setattr(Privatizer, "privatize", forbidden)
        for name in ("project", "check", "rows"):
            monkeypatch.setattr(Projector, name, forbidden)
        mine = index.fit_denoiser()
        theirs = opened.fit_denoiser()
        monkeypatch.undo()
        apart = mine(index.codes) - theirs(index.codes)
        assert np.abs(apart).max() < 1e-3


def refused(data, spec):
    with refuses("not a denoiser of this index"):
        denoiser_from_bytes(data, spec)


def without(stated, name):
    return {other: value for other, value in stated.items() if other != name}


def changed_arrays(arrays):
    """Every array in turn missing, cut, of other dimensions or another type, or not finite."""
    for name, array in arrays.items():
        other_type = "<f4" if array.dtype == np.float64 else "<f8"
        wrong = [
            array[:-1],
            array[None],
            array[..., None],
            array.ravel()[:0],
            array.astype("<i4"),
            array.astype(other_type),
            np.full_like(array, np.nan),
            np.full_like(array, np.inf),
        ]
        if array.ndim > 1:
            wrong += [array.ravel(), array[:, :-1]]
        yield without(arrays, name)
        for values in wrong:
            same = values.shape == array.shape and values.dtype == array.dtype
            if array.size or not same:
                yield {**arrays, name: values}


class TestBytes:
    @pytest.mark.parametrize("kind", ["linear", "score"])
    def test_round_trip(self, learned, kind):
        _, codes, denoiser = learned(kind)
        data = denoiser_to_bytes(denoiser)
        again = denoiser_from_bytes(data, denoiser.spec)
        assert_array_equal(again(codes), denoiser(codes))
        assert again.kind == kind
        assert again.error == denoiser.error
        assert again.rows == denoiser.rows
        assert denoiser_to_bytes(again) == data

    def test_scales_round_trip(self, sized):
        _, codes, denoiser = sized
        again = denoiser_from_bytes(denoiser_to_bytes(denoiser), denoiser.spec)
        assert_array_equal(again.to_rank(codes), denoiser.to_rank(codes))

    @pytest.mark.slow
    def test_damage_is_refused(self, learned):
        _, _, denoiser = learned()
        data = denoiser_to_bytes(denoiser)
        facts, arrays = unpack(data, "denoiser")
        spec = denoiser.spec

        def forged(arrays=arrays, facts=facts):
            return pack("denoiser", facts, arrays)

        assert denoiser_from_bytes(forged(), spec).kind == "score"
        flipped = bytearray(data)
        flipped[-3] ^= 1
        noise = arrays["linear.noise"]
        wrong_arrays = [
            {"more": np.zeros(1)},
            {"linear.noise": 0 * noise},
            {"linear.noise": -noise},
            {"error_variance": np.ones(7)},
            {"error_variance": -np.ones(1)},
            {"sizes": -np.ones(3)},
        ]
        bad = [
            data[:-4],
            data + bytes(4),
            bytes(flipped),
            pack("codes", facts, arrays),
            *(forged({**arrays, **wrong}) for wrong in wrong_arrays),
            *(forged(changed) for changed in changed_arrays(arrays)),
        ]
        meant = (("error", -1), ("error", 2**70), ("max_variance", 2**70))
        for name in facts:
            bad.append(forged(facts=without(facts, name)))
            for value in ("x", None, -1, True, [], {}, 10**400, 2**70):
                if (name, value) not in meant:
                    bad.append(forged(facts={**facts, name: value}))
        for data in bad:
            refused(data, denoiser.spec)
        refused(denoiser_to_bytes(denoiser), spec_of("raw-staircase", dim=DIM + 1))

    def test_chances_of_values_are_checked(self, learned):
        _, codes, denoiser = learned("score", "raw-square-wave")
        data = denoiser_to_bytes(denoiser)
        again = denoiser_from_bytes(data, denoiser.spec)
        assert_array_equal(again(codes), denoiser(codes))
        facts, arrays = unpack(data, "denoiser")
        chances = arrays["0.bins.chances"]
        for wrong in (-chances, chances[:, :-1], chances[:, :0]):
            names = [name for name in arrays if name.endswith("chances")]
            forged = {**arrays, **dict.fromkeys(names, wrong)}
            refused(pack("denoiser", facts, forged), denoiser.spec)


def test_no_error_is_said_to_be_negative():
    """The unbiased estimate of an error that is nearly zero may be."""
    spec = attribute_spec("raw-laplace", 4, epsilon=1.0)
    linear = None  # not looked at
    nothing = Denoiser(spec, -0.389, 600, linear)
    assert nothing.error_in_words == "too small to be measured"
    quarter = Denoiser(spec, 0.25, 600, linear)
    assert quarter.error_in_words == "0.25 times the variance of the noise"
