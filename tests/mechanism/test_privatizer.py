"""Projections in, codes out: noise that is never shared, whatever the threads and the width."""

import numpy as np
import pytest
from helpers.specs import example, length, needed
from scipy import sparse

import dpindex as dpi
from dpindex.base.errors import InputError
from dpindex.base.threads import cores
from dpindex.mechanism.codes import NumberFormat
from dpindex.mechanism.spec import block_rows

pytestmark = pytest.mark.usefixtures("known_noise")

EVERY = [pytest.param(row, id=row.name) for row in dpi.methods()]
NOISY_FLOATS = [
    row for row in EVERY if row.values[0].codes == "numbers" and row.values[0].definition == "DP"
]


def plain(**changes):
    arguments = {
        "adjacency": dpi.attribute(1.0),
        "method": "dp-oporp-staircase",
        "dim": 24,
        "k": 8,
        "epsilon": 2.0,
    }
    return dpi.Privatizer(dpi.Spec(**{**arguments, **changes}))


def uniform(n, dim=24, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (n, dim))


@pytest.mark.parametrize("threads", [0, -1])
def test_threads_start_at_one(threads):
    with pytest.raises(InputError, match="threads must be at least 1"):
        plain().privatize(uniform(2), threads=threads)


def test_the_first_of_several_faults_is_reported_with_any_number_of_threads():
    x = np.zeros((40_000, 64))
    x[[39_999, 20_000, 17_000], [1, 2, 3]] = np.nan
    privatizer = plain(dim=64, k=64)
    for threads in (1, 2, 3):
        with pytest.raises(InputError, match=r"^row 17000, column 3 is NaN"):
            privatizer.privatize(x, threads=threads)


@pytest.mark.slow
@pytest.mark.parametrize("row", EVERY)
def test_codes_do_not_depend_on_threads(row):
    """Several tasks: every row gets a code near its projection, and rows keep their order."""
    epsilon = None if row.definition == "none" else 64.0
    spec = example(row, 64, k=length(row, 64), epsilon=epsilon)
    privatizer = dpi.Privatizer(spec, allow_unprotected=True)
    rows = block_rows(spec, sparse=False) + 200
    x = np.random.default_rng(3).uniform(0.2, 1, (rows, 64)).astype(np.float32)
    exact = privatizer.project(x)
    for threads in (1, 2, 5):
        codes = privatizer.privatize(x, threads=threads)
        assert len(codes) == len(x)
        if row.codes == "numbers":
            noise = codes.to_float() - exact * spec.step
            constant, first, second = spec.law.moments.variance_of_x
            stated = (constant + first * exact + second * exact**2) * spec.step**2
            # 30 deviations: below e^−42 a number even for Laplace noise.
            assert (noise**2 <= 900 * stated + 1e-6).all()
            assert (noise**2).mean() <= 1.1 * stated.mean() + 1e-6
        elif row.name == "codebook-softmax":  # at 64 the likeliest is still not certain
            chances = spec.law.chances(exact)
            share = (codes.stored[:, 0] == chances.argmax(axis=1)).mean()
            assert abs(share - chances.max(axis=1).mean()) < 0.02  # seven deviations
        elif row.codes == "symbols":
            assert (codes.stored[:, 0] == exact.argmax(axis=1)).all()
        else:
            used = (exact != 0).any(axis=0)  # a design may leave coordinates out
            agreement = (codes.to_signs() == np.sign(exact))[:, used].mean(axis=1)
            assert agreement.mean() > 0.65
            assert (agreement > 0.5).mean() > 0.99


def test_cores_is_a_count():
    assert cores() >= 1


def distinct(rows):
    """How many different rows."""
    rows = np.ascontiguousarray(rows)
    return len(np.unique(rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1])))))


@pytest.mark.slow
@pytest.mark.parametrize("row", [row for row in EVERY if row.values[0].definition == "DP"])
def test_identical_vectors_never_share_noise(row):
    """40 000 equal vectors, in several tasks, threads and calls, with codes of 128 or more random
    bits: two equal codes would come from noise used twice (by chance: below 1e-27). Of symbols
    forty together have as many.
    """
    spec = dpi.Spec(**(needed(row, 128) | {"dim": 128, "k": length(row, 128), "epsilon": 0.05}))
    x = np.broadcast_to(np.random.default_rng(4).uniform(0, 1, 128), (20_000, 128))
    codes = [dpi.Privatizer(spec, allow_unprotected=True).privatize(x, threads=2) for _ in range(2)]
    both = np.concatenate([np.asarray(part.stored, dtype=np.int32) for part in codes])
    group = 40 if row.codes == "symbols" else 1
    if row.family.public is dpi.Design:  # eight coordinates a code
        group = 16
    assert distinct(both.reshape(len(both) // group, -1)) == len(both) // group


def test_no_stretch_of_noise_comes_twice():
    """Not even shifted: no twelve numbers in a row (at least 90 bits) occur twice in 520 000."""
    spec = dpi.Spec(
        "raw-laplace", 16, epsilon=0.05, bounds=(0.0, 1.0), adjacency=dpi.attribute(1.0)
    )
    privatizer = dpi.Privatizer(spec, allow_unprotected=True)
    zeros = np.zeros((8000, 16))
    noise = [privatizer.privatize(zeros, threads=1).stored.ravel() for _ in range(2)]
    noise += [privatizer.privatize(row).stored.ravel() for row in zeros[:500]]
    noise += [dpi.Privatizer(spec, allow_unprotected=True).privatize(zeros).stored.ravel()]
    noise += [privatizer.privatize(sparse.csr_matrix(zeros)).stored.ravel()]
    flat = np.concatenate([part.astype(np.int16) for part in noise])
    windows = np.lib.stride_tricks.sliding_window_view(flat, 12)
    assert distinct(windows) == len(windows)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["raw-laplace", "raw-staircase", "dp-oporp-staircase"])
@pytest.mark.parametrize("threads", [1, 2])
def test_codes_wider_than_int16(name, threads):
    """At ε = 0.001 and values up to 30 000 β some blocks need int32: nothing is cut or moved.

    Noise beyond 60 000 β has probability e^−60 a number.
    """
    privatizer = plain(
        method=name, dim=64, k=64, epsilon=0.001, bounds=(-3e4, 3e4), adjacency=dpi.attribute(1.0)
    )
    x = np.zeros((33_000, 64))
    x[5000], x[-1] = 3e4, -3e4
    codes = privatizer.privatize(x, threads=threads)
    assert isinstance(codes.format, NumberFormat)
    noise = codes.to_float() - privatizer.project(x) * privatizer.spec.step
    assert np.abs(noise).max() < 60_000
    # 64 draws have a mean within 10 standard errors (1414 β / 8 each) of 0.
    for i in (0, 4999, 5000, 5001, 32_998, 32_999):
        assert abs(noise[i].mean()) < 1800
    assert dpi.codes_from_bytes(codes.to_bytes()).to_float().tolist() == codes.to_float().tolist()


def test_wide_codes_are_exact():
    """At ε = 64 the noise is far below a beta: wide codes decode to what went in."""
    privatizer = plain(method="raw-staircase", dim=64, k=64, epsilon=64.0, bounds=(-3e4, 3e4))
    x = np.random.default_rng(5).uniform(-1e-3, 1e-3, (20_000, 64))
    x[[3, 4096, 19_999]] = 3e4
    codes = privatizer.privatize(x)
    assert isinstance(codes.format, NumberFormat)
    assert codes.stored.dtype == np.int32
    np.testing.assert_allclose(codes.to_float(), x, rtol=1e-4, atol=0.51)


def test_common_codes_are_small():
    assert plain().privatize(uniform(50)).stored.dtype in (np.int8, np.int16)
    assert plain(method="dp-signoporp-rr").privatize(uniform(50)).stored.shape == (50, 1)


@pytest.mark.slow
@pytest.mark.parametrize("row", NOISY_FLOATS)
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_decoded_codes_are_unbiased_with_the_variance_they_state(row, epsilon):
    """20 000 privatizations of one vector.

    Means within 6 standard errors (24 of them), the pooled variance within 6 of its own (from the
    fourth moments): a false alarm has probability below 1e-7. That is 1 to 4 % of the variance, so
    noise 5 % too small is seen.
    """
    changes = {} if row.family.keeps_all or row.family.public is dpi.Design else {"k": 24}
    spec = example(row, epsilon=epsilon, **changes)
    low, high = spec.bounds
    x = np.random.default_rng(6).uniform(low, high, 24)
    privatizer = dpi.Privatizer(spec, allow_unprotected=True)
    codes = privatizer.privatize(np.broadcast_to(x, (20_000, 24)))
    exact = privatizer.project(x)[0].astype(np.float64)
    moments = spec.law.moments
    constant, first, second = moments.variance_of_x
    stated = (constant + first * exact + second * exact**2) * spec.step**2
    errors = codes.to_float().astype(np.float64) - exact * spec.step
    assert (np.abs(errors.mean(axis=0)) < 6 * np.sqrt(stated / 20_000)).all()
    squares = errors**2 / stated
    tolerance = 6 * squares.std() / np.sqrt(squares.size)
    assert tolerance < 0.05
    assert abs(squares.mean() - 1) < tolerance
    if moments.weight == 1.0:  # additive
        fourth = moments.squared[0] + moments.variance[0] ** 2
        kurtosis = fourth * spec.step**4 / stated.mean() ** 2
        assert squares.var() + 1 == pytest.approx(kurtosis, rel=0.2)


class TestFinding8:
    """Nothing leaves a device under a spec that its owner did not agree to."""

    @pytest.mark.parametrize("method", ["none-oporp", "none-signrp"])
    def test_a_spec_that_protects_nothing_is_refused(self, method):
        spec = dpi.Spec(method, dim=8, adjacency=dpi.attribute(1.0))
        with pytest.raises(dpi.InputError, match=r"protects nothing; .*allow_unprotected"):
            dpi.Privatizer(spec)
        assert len(dpi.Privatizer(spec, allow_unprotected=True).privatize(np.zeros(8))) == 1

    @pytest.mark.parametrize(
        ("changes", "most"),
        [
            ({"epsilon": 2.0}, 1.99),
            ({"epsilon": 64.0}, 2.0),
            ({"method": "idp-signoporp-rr", "epsilon": 0.5}, 1.0),
            ({"method": "none-oporp", "epsilon": None}, 64.0),
        ],
    )
    def test_more_than_the_device_accepts_is_refused(self, changes, most):
        spec = dpi.Spec(
            **{"method": "dp-oporp-staircase", "dim": 8, "adjacency": dpi.attribute(1.0), **changes}
        )
        with pytest.raises(dpi.InputError, match=f"at most epsilon = {most:g} of DP is accepted"):
            dpi.Privatizer(spec, allow_unprotected=True, max_epsilon=most)

    def test_as_much_as_the_device_accepts_passes(self):
        spec = dpi.Spec("dp-oporp-staircase", dim=8, epsilon=2.0, adjacency=dpi.attribute(1.0))
        assert len(dpi.Privatizer(spec, max_epsilon=2.0).privatize(np.zeros(8))) == 1
        for wrong in (float("nan"), "2"):
            with pytest.raises(dpi.InputError, match="max_epsilon"):
                dpi.Privatizer(spec, max_epsilon=wrong)
