"""A claim knows its own input and no other, and says nothing about it without its key."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from dpindex.index.claim import Claim
from scipy import sparse

from dpindex.base.errors import InputError

ROWS = np.random.default_rng(0).integers(0, 3, (7, 5))
INPUTS = [
    ROWS,
    ROWS[::-1],
    ROWS[:-1],
    ROWS.reshape(5, 7),
    ROWS.astype(np.int32),
    ROWS.astype(np.float64),
    np.where(np.arange(35).reshape(7, 5) == 34, ROWS + 1, ROWS),
    sparse.csr_matrix(ROWS),
    sparse.csr_matrix(ROWS[::-1]),
    ROWS[:0],
]


@pytest.mark.parametrize("kept", [False, True])
def test_finding_5_every_other_input_is_noticed(kept: bool) -> None:
    for (i, one), (j, other) in itertools.product(enumerate(INPUTS), repeat=2):
        claim = Claim()
        assert claim.recognises(3, one)
        if kept:
            claim = Claim.from_bytes(claim.to_bytes())
        assert claim.recognises(3, other) == (i == j)
        assert claim.recognises(4, one) != kept  # a place of its own, or beyond the end


def test_finding_5_rows_that_change_places_are_noticed() -> None:
    """Equal chunks at other places have other tags, so that a tag cannot be moved."""
    claim = Claim()
    assert claim.recognises(0, ROWS)
    assert claim.recognises(7, ROWS)
    assert len(set(claim.tags.values())) == 2


def test_finding_5_tags_say_nothing_without_the_key() -> None:
    one, other = Claim(), Claim()
    for claim in (one, other):
        assert claim.recognises(0, ROWS)
    assert one.tags != other.tags
    assert one.key != other.key
    assert one.token != other.token


def test_what_is_no_claim_is_refused() -> None:
    with pytest.raises(InputError, match="not a dpindex claim"):
        Claim.from_bytes(b"")
