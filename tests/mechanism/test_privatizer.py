"""Projections in, codes out: noise that is never shared, whatever the threads and the width."""

import numpy as np
import pytest
from helpers.common import attribute_spec, known_noise, refuses, uniform
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
    x[[39_999, 20_000, 17_000], [1, 2, 3]] = np.nan
    privatizer = plain(dim=64, k=64)
    for threads in (1, 2, 3):
        with refuses(r"^row 17000, column 3 is NaN"):
            privatizer.privatize(x, threads=threads)


def distinct(rows):
    """How many different rows."""
    rows = np.ascontiguousarray(rows)
    return len(np.unique(rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1])))))


def test_no_stretch_of_noise_comes_twice():
    """Not even shifted: no twelve numbers in a row (at least 90 bits) occur twice in 520 000."""
    spec = attribute_spec("raw-laplace", 16, epsilon=0.05, bounds=(0.0, 1.0))
    privatizer = Privatizer(spec, allow_unprotected=True)
    zeros = np.zeros((8000, 16))
    noise = [privatizer.privatize(zeros, threads=1).stored.ravel() for _ in range(2)]
    noise += [privatizer.privatize(row).stored.ravel() for row in zeros[:500]]
    noise += [Privatizer(spec, allow_unprotected=True).privatize(zeros).stored.ravel()]
    noise += [privatizer.privatize(sparse.csr_matrix(zeros)).stored.ravel()]
    flat = np.concatenate([part.astype(np.int16) for part in noise])
    windows = np.lib.stride_tricks.sliding_window_view(flat, 12)
    assert distinct(windows) == len(windows)


def test_common_codes_are_small():
    assert plain().privatize(uniform(50, 24)).stored.dtype in (np.int8, np.int16)
    assert plain(method="dp-signoporp-rr").privatize(uniform(50, 24)).stored.shape == (50, 1)


class TestFinding8:
    """Nothing leaves a device under a spec that its owner did not agree to."""

    @pytest.mark.parametrize("method", ["none-oporp", "none-signrp"])
    def test_a_spec_that_protects_nothing_is_refused(self, method):
        spec = attribute_spec(method, 8)
        with refuses(r"protects nothing; .*allow_unprotected"):
            Privatizer(spec)
        assert len(Privatizer(spec, allow_unprotected=True).privatize(np.zeros(8))) == 1

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
        spec = Spec(
            **{"method": "dp-oporp-staircase", "dim": 8, "adjacency": attribute(1.0), **changes}
        )
        with refuses(f"at most epsilon = {most:g} of DP is accepted"):
            Privatizer(spec, allow_unprotected=True, max_epsilon=most)

    def test_as_much_as_the_device_accepts_passes(self):
        spec = attribute_spec("dp-oporp-staircase", 8, epsilon=2.0)
        assert len(Privatizer(spec, max_epsilon=2.0).privatize(np.zeros(8))) == 1
        for wrong in (float("nan"), "2"):
            with refuses("max_epsilon"):
                Privatizer(spec, max_epsilon=wrong)
