"""Somebody else's noise: wrong mechanisms are refuted, right ones are not.

Every attack here is made at confidence 1 − 1e-6, so a right mechanism is refuted with probability
at most 1e-6.
"""

import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.common import refuses

import dpindex
from dpindex import attribute, l2

EXAMPLE = Path(dpindex.__file__).parents[1] / "examples" / "foreign_noise.py"
if not EXAMPLE.is_file():
    pytest.skip("the examples are not here", allow_module_level=True)
sys.path.insert(0, str(EXAMPLE.parent))
from foreign_noise import (  # noqa: E402
    Mechanism,
    attack_function,
    half_distance,
    own_norm,
    sound,
)

SURE = 1 - 1e-6
RNG = np.random.default_rng(3)


def laplace(scale):
    def release(x):
        return x + RNG.laplace(0.0, scale, x.shape)

    return release


def response(x):
    """The sign of the first number, right with chance e/(1 + e), as one byte."""
    kept = RNG.random() < np.e / (1 + np.e)
    return bytes([int((x[0] > 0) == kept)])


def bound(mechanism, trials=20_000):
    return attack_function(mechanism, trials=trials, confidence=SURE).lower_bound


@pytest.mark.slow
def test_sensitivity_from_the_own_norm_is_refuted():
    """A short vector is known by its release: every trial says so."""
    mechanism = Mechanism(own_norm, 8, 1.0, 1e-5)
    assert bound(mechanism, 4000) > 4.0


@pytest.mark.slow
def test_half_the_distance_is_refuted():
    """The realised epsilon is 2; found 1.78 ± 0.02."""
    mechanism = Mechanism(half_distance, 2, 1.0, norm=1.0)
    assert 1.5 < bound(mechanism) <= 2.0


@pytest.mark.slow
def test_sound_noise_is_not_refuted():
    assert bound(Mechanism(sound, 2, 1.0, norm=1.0)) <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    "mechanism",
    [
        Mechanism(laplace(2.0), 1, 1.0),
        Mechanism(laplace(1.0), 3, 1.0, adjacency=attribute(1.0)),
        Mechanism(laplace(1.0), 1, 1.0, adjacency=l2(1.0)),
        Mechanism(laplace(1.0), 1, 1.0, adjacency=l2(1.0), batched=True),
        Mechanism(response, 3, 1.0),
    ],
    ids=["record", "attribute", "l2", "batched", "bytes"],
)
def test_right_claims_are_seen_as_nearly_one(mechanism):
    """Found 0.87 to 0.92."""
    assert 0.7 < bound(mechanism) <= 1.0


@pytest.mark.slow
def test_noise_of_another_spread_is_seen():
    """The mean says nothing; the deviation is 1 under one neighbour and 3 under the other."""

    def release(x):
        return RNG.normal(0, 3 if x[0] > 0 else 1, 4)

    mechanism = Mechanism(release, 3, 0.5)
    assert bound(mechanism) > 1.5


@pytest.mark.slow
@pytest.mark.parametrize("release", [lambda x: x, lambda x: x.tobytes()], ids=["array", "bytes"])
def test_no_noise_is_refuted(release):
    assert bound(Mechanism(release, 3, 4.0), 2000) > 4.0


@pytest.mark.parametrize("claimed", [attribute(0.5), l2(0.5)], ids=str)
def test_neighbours_are_those_of_the_claim(claimed):
    def pairs(adjacency, **more):
        mechanism = Mechanism(laplace(1.0), 5, 1.0, adjacency=adjacency, **more)
        for one, other in mechanism.neighbours().values():
            assert np.linalg.norm(one - other) == pytest.approx(0.5)
            yield np.stack([one, other])

    for pair in pairs(claimed):
        assert np.abs(pair).max() <= 1.0
    for pair in pairs(l2(0.5), norm=1):
        norms = np.linalg.norm(pair, axis=1)
        assert norms == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"dim": 0}, "dim must be"),
        ({"epsilon": 0.0}, "epsilon must"),
        ({"delta": 1.0}, "delta must lie"),
        ({"bounds": (1.0, 0.0)}, "LOW below HIGH"),
        ({"norm": 3.0}, "widen the bounds"),
        ({"norm": 1.0, "adjacency": attribute(1.0)}, "leave norm out"),
        ({"function": lambda x: x * np.nan}, "not finite"),
        ({"function": lambda x: "text"}, "array of numbers or bytes, not str"),
        ({"function": lambda x: np.zeros(1 + (x[0] > 0))}, "two lengths"),
        ({"function": lambda x: np.zeros(RNG.integers(1, 9))}, "several lengths"),
        ({"function": lambda x: x[:1], "batched": True}, "gave 1 releases of"),
    ],
)
def test_bad_input_is_refused(changes, message):
    fields = {"function": laplace(1.0), "dim": 2, "epsilon": 1.0} | changes
    with refuses(message):
        attack_function(Mechanism(**fields), trials=200)
