"""Projections in, codes out: noise that is never shared, whatever the threads and the width."""

import numpy as np
import pytest
from helpers.common import attribute_spec, codes_of, known_noise, refuses, uniform
from scipy import sparse
from test_projector import plain

from dpindex import Privatizer, Spec, attribute

pytestmark = known_noise


@pytest.mark.parametrize("threads", [0, -1])
def test_threads_start_at_one(threads):
    with refuses("threads must be at least 1"):
        plain().privatize(uniform(2, 24), threads=threads)


def test_the_first_of_several_faults_is_reported_with_any_number_of_threads():
    x = np.zeros((40_000, 64))
    for row, column in ((39_999, 1), (20_000, 2), (17_000, 3)):
        x[row, column] = np.nan
    privatizer = plain(dim=64, k=64)
    for threads in (1, 2, 3):
        with refuses(r"^row 17000, column 3 is NaN"):
            privatizer.privatize(x, threads=threads)


def distinct(rows):
    """How many different rows."""
    rows = np.ascontiguousarray(rows)
    whole = np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))
    return len(np.unique(rows.view(whole)))


def test_no_stretch_of_noise_comes_twice():
    """Not even shifted: no twelve numbers in a row (at least 90 bits) occur twice in 520 000."""
    spec = attribute_spec("raw-laplace", 16, epsilon=0.05, bounds=(0.0, 1.0))
    privatizer = Privatizer(spec, allow_unprotected=True)
    zeros = np.zeros((8000, 16))
    codes = [privatizer.privatize(zeros, threads=1) for _ in range(2)]
    codes += [privatizer.privatize(row) for row in zeros[:500]]
    codes += [codes_of(spec, zeros)]
    codes += [privatizer.privatize(sparse.csr_matrix(zeros))]
    flat = np.concatenate([part.stored.ravel().astype(np.int16) for part in codes])
    windows = np.lib.stride_tricks.sliding_window_view(flat, 12)
    assert distinct(windows) == len(windows)


def test_common_codes_are_small():
    numbers = plain().privatize(uniform(50, 24))
    assert numbers.stored.dtype in (np.int8, np.int16)
    signs = plain(method="dp-signoporp-rr").privatize(uniform(50, 24))
    assert signs.stored.shape == (50, 1)


class TestFinding8:
    """Nothing leaves a device under a spec that its owner did not agree to."""

    @pytest.mark.parametrize("method", ["none-oporp", "none-signrp"])
    def test_a_spec_that_protects_nothing_is_refused(self, method):
        spec = attribute_spec(method, 8)
        with refuses(r"protects nothing; .*allow_unprotected"):
            Privatizer(spec)
        assert len(codes_of(spec, np.zeros(8))) == 1

    @pytest.mark.parametrize(
        "changes, most",
        [
            ({"epsilon": 2.0}, 1.99),
            ({"epsilon": 64.0}, 2.0),
            ({"method": "idp-signoporp-rr", "epsilon": 0.5}, 1.0),
            ({"method": "none-oporp", "epsilon": None}, 64.0),
        ],
    )
    def test_more_than_the_device_accepts_is_refused(self, changes, most):
        stated = {"method": "dp-oporp-staircase", "dim": 8, "adjacency": attribute(1.0)}
        spec = Spec(**{**stated, **changes})
        with refuses(f"at most epsilon = {most:g} of DP is accepted"):
            Privatizer(spec, allow_unprotected=True, max_epsilon=most)

    def test_as_much_as_the_device_accepts_passes(self):
        spec = attribute_spec("dp-oporp-staircase", 8, epsilon=2.0)
        accepted = Privatizer(spec, max_epsilon=2.0)
        assert len(accepted.privatize(np.zeros(8))) == 1
        for wrong in (float("nan"), "2"):
            with refuses("max_epsilon"):
                Privatizer(spec, max_epsilon=wrong)
