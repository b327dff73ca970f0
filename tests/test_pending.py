"""Releases that publish everything in one step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from dpindex.index.pending import PendingRelease

from dpindex import Spec
from dpindex.accounting.ledger import Ledger

SPEC = Spec("dp-oporp-staircase", dim=4, k=2, epsilon=1.0)


def test_work_that_died_is_counted_once(tmp_path: Path) -> None:
    ledger, ids = Ledger(tmp_path / "ledger"), np.arange(3)
    first = PendingRelease(tmp_path / "codes", ids, ledger)
    assert not first.begun
    assert ledger.record(SPEC, ids, token=first.token()) == 0
    again = PendingRelease(tmp_path / "codes", ids, ledger)
    assert again.begun
    assert again.token() == first.token()
    assert ledger.record(SPEC, ids, token=again.token()) == 0
    assert len(ledger.entries()) == 1
    again.seen()
    assert not PendingRelease(tmp_path / "codes", ids, ledger).begun


def test_other_ids_and_other_places_are_other_work(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    PendingRelease(tmp_path / "codes", np.arange(3), ledger).token()
    assert not PendingRelease(tmp_path / "codes", np.arange(4), ledger).begun
    assert not PendingRelease(tmp_path / "others", np.arange(3), ledger).begun
