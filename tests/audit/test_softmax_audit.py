"""The exact verifier of the softmax codebook, on the law that ships and on weakened ones.

``bench/mutants.py`` plants others: tables, shares, weights and samplers.
"""

import numpy as np
import pytest
from helpers.common import dp, normal

import dpindex as dpi
from dpindex import Codebook, Guarantee, Spec, attribute, l2
from dpindex.audit import verify
from dpindex.mechanism.noise import symbols
from dpindex.mechanism.noise.symbols import steps_apart

pytestmark = pytest.mark.usefixtures("one_stream_check", "new_maps")
DIM = 12
BOOK = Codebook(normal(30, DIM, 3).clip(-1, 1))
BETA = attribute(0.5)


def spec(**terms):
    ordinary = {"epsilon": 2.0, "adjacency": BETA, "record_epsilon": 6.0}
    return Spec(
        "codebook-softmax",
        DIM,
        codebook=BOOK,
        **{**ordinary, **terms},
    )


ADJACENCIES = (BETA, l2(0.5), l2(2.0))
RECORDS = (None, 0.5, 8.0)


# Every epsilon with every adjacency, and each of the two with every second promise.
@pytest.mark.parametrize(
    "epsilon, adjacency, record",
    [
        (epsilon, adjacency, RECORDS[(place + turn) % 3])
        for turn, epsilon in enumerate((0.01, 0.5, 3.0, 20.0))
        for place, adjacency in enumerate(ADJACENCIES)
    ],
)
def test_what_ships_is_proved(epsilon, adjacency, record):
    report = verify(spec(epsilon=epsilon, adjacency=adjacency, record_epsilon=record))
    assert report.passed, report
    named = [check.name for check in report.checks if "whatever the record" in check.name]
    assert len(named) == (record is not None)


def rising(made):
    table = made.law.table.copy()
    table[7] = table[6] + np.uint64(1)
    made.law.table = table


def thin(made):
    made.law.uniform = int(made.law.uniform * 0.95)


def opposite(made):
    made.projection.single[4, 1] -= 1.0
    made.projection.single[4, 2] = 1.0
    made.projection.single[4, 3] = -1.0


def half_offsets(made):
    made.law.offsets = made.law.offsets + np.float32(0.5)


def vast_offsets(made):
    made.law.offsets = made.law.offsets + np.float32(2**23)


def refused(made, check):
    assert any(check in name for name in verify(made).failed)


@pytest.mark.parametrize(
    "weaken, check",
    [
        (rising, "law: 4096 steps"),
        (thin, "whatever the record"),
        (opposite, "steps of the table"),
        (half_offsets, "scores"),
        (vast_offsets, "scores"),
    ],
)
def test_weaker_integers_are_refused(weaken, check):
    made = spec()
    assert made.law.size == made.projection.k  # it is calibrated before it is weakened
    weaken(made)
    refused(made, check)


def test_a_ball_is_proved_by_the_distance_of_the_weights_that_are_used():
    """Two codewords at opposite ends of every attribute, whose range is what it was."""
    made = spec(adjacency=l2(0.5))
    assert made.law.size == made.projection.k
    weights = made.projection.single
    low = weights.min(axis=1)
    high = weights.max(axis=1)
    weights[:, 3] = low
    weights[:, 4] = high
    refused(made, "steps of the table")


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_a_table_for_one_step_less_is_refused(monkeypatch, adjacency):
    """Two quotients are rounded up, and what is held back for draws is far below one step."""
    monkeypatch.setattr(
        symbols,
        "steps_apart",
        lambda moved, shift: steps_apart(moved, shift) - 1,
    )
    refused(spec(adjacency=adjacency), "steps of the table")


def test_a_promise_beside_the_proved_ones_is_refused(monkeypatch):
    made = spec()
    more = dp(1.0, dpi.record())
    promise = Guarantee(2.0, 0.0, "DP", BETA, also=(more,))
    monkeypatch.setattr(Spec, "guarantee", property(lambda self: promise))
    assert verify(made).failed == ("definition",)
