"""The collector: accepted means durable, once, and found by searches."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from collector_contract import CollectorContract

import dpindex as dpi
from dpindex.integrations.collector import (
    Acceptance,
    AcceptedLog,
    Batch,
    Collector,
    UnavailableError,
)

SPEC = dpi.Spec("dp-signoporp-rr", dim=16, k=16, epsilon=4.0, adjacency=dpi.attribute(1.0))
pytestmark = pytest.mark.usefixtures("known_noise")


def submission(*names: str, receipt: bytes | None = None, seed: int = 0) -> Batch:
    vectors = np.random.default_rng(seed).uniform(-1, 1, (len(names), 16))
    return Batch(
        dpi.Privatizer(SPEC).privatize(vectors),
        np.array(names),
        [] if receipt is None else [receipt],
    )


@pytest.fixture
def index(tmp_path: Path) -> dpi.PrivateIndex:
    made = dpi.PrivateIndex(SPEC)
    made.save(tmp_path / "index")
    return made


def collecting(index: dpi.PrivateIndex, **limits: Any) -> Collector:
    path = index.path
    assert path is not None
    return Collector(index, path / ".accepted", lambda: index.save(path), **limits)


def reopened(index: dpi.PrivateIndex) -> dpi.PrivateIndex:
    assert index.path is not None
    return dpi.PrivateIndex.open(index.path)


def done(outcome: Future[Acceptance]) -> Acceptance:
    return outcome.result(timeout=600)


def test_what_is_accepted_is_saved_at_the_end(index: dpi.PrivateIndex) -> None:
    one, two = submission("a", "b"), submission("c")
    with collecting(index) as collector:
        assert [done(collector.submit(s)) for s in (one, two)] == ["stored", "stored"]
    saved = reopened(index)
    assert list(saved) == ["a", "b", "c"]
    assert np.array_equal(saved.codes.stored[:2], one.codes.stored)
    assert index.path is not None
    assert not (index.path / ".accepted").exists()


def test_the_first_to_use_an_id_has_it(index: dpi.PrivateIndex) -> None:
    with collecting(index) as collector:
        first = submission("a")
        assert done(collector.submit(first)) == "stored"
        for names in (["a"], ["b", "a"], ["a", "c"]):
            assert done(collector.submit(submission(*names, seed=1))) == "taken"
        # The very same codes too: whether a guess is right is not told.
        assert done(collector.submit(Batch(first.codes, first.ids))) == "taken"
    assert list(reopened(index)) == ["a"]
    with collecting(index) as collector:
        assert done(collector.submit(submission("a"))) == "taken"


def test_a_submission_that_comes_again_is_known_by_its_receipt(index: dpi.PrivateIndex) -> None:
    one = submission("a", "b", receipt=32 * b"1")
    with collecting(index) as collector:
        both = [collector.submit(Batch(one.codes, one.ids, one.receipts)) for _ in range(2)]
        assert sorted(map(done, both)) == ["repeated", "stored"]
        other = Batch(one.codes, one.ids, [32 * b"2"])
        assert done(collector.submit(other)) == "taken"
    assert len(reopened(index)) == 2


def test_many_share_one_fsync(index: dpi.PrivateIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, synced = threading.Event(), []
    sync = os.fsync

    def slow(handle: int) -> None:
        gate.wait(600)
        synced.append(handle)
        sync(handle)

    with collecting(index) as collector:
        monkeypatch.setattr("dpindex.integrations.collector.os.fsync", slow)
        outcomes = [collector.submit(submission(f"n{i}")) for i in range(100)]
        assert not any(outcome.done() for outcome in outcomes)  # nothing is on the disk yet
        gate.set()
        assert {done(outcome) for outcome in outcomes} == {"stored"}
        assert len(synced) <= 2
        monkeypatch.undo()
    assert sorted(reopened(index)) == sorted(f"n{i}" for i in range(100))


def test_a_start_saves_what_the_last_process_accepted(index: dpi.PrivateIndex) -> None:
    assert index.path is not None
    place, one = index.path / ".accepted", submission("a", "b", receipt=32 * b"1")
    log = AcceptedLog(place)
    log.append(Batch.joined([one, submission("c")]))
    log.close()
    left = place.read_bytes()
    with collecting(index) as collector:
        assert list(reopened(index)) == ["a", "b", "c"]
        assert place.stat().st_size == 0
        again = Batch(one.codes, one.ids, one.receipts)
        assert done(collector.submit(again)) == "repeated"
    # Killed between saving and forgetting: the rows are in the index already.
    place.write_bytes(left)
    with collecting(index):
        assert len(index) == 3
    assert len(reopened(index)) == 3


def test_an_id_that_somebody_else_added_meanwhile_is_reported(index: dpi.PrivateIndex) -> None:
    assert index.path is not None
    log = AcceptedLog(index.path / ".accepted")
    log.append(submission("a"))
    log.close()
    index.add_codes(submission("a", seed=5).codes, ["a"])
    with pytest.raises(dpi.InputError, match=r"under an id which .* \('a'\)"):
        collecting(index)
    assert (index.path / ".accepted").stat().st_size > 0


def test_accepted_codes_join_the_search(index: dpi.PrivateIndex) -> None:
    one = submission("a", "b")
    with collecting(index, join_seconds=0.0) as collector:
        assert done(collector.submit(one)) == "stored"
        assert done(collector.submit(submission("c"))) == "stored"  # the first has joined
        assert set(index.search(one.codes, k=2).ids.ravel()) >= {"a", "b"}
        assert len(reopened(index)) == 0


def test_a_full_segment_is_saved(index: dpi.PrivateIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpindex.integrations.collector.rows_per_segment", lambda spec: 8)
    with collecting(index, group_rows=4) as collector:
        for start in range(0, 20, 4):
            names = (f"n{i}" for i in range(start, start + 4))
            assert done(collector.submit(submission(*names))) == "stored"
        assert len(reopened(index)) in (8, 16)
    assert len(reopened(index)) == 20


def test_after_a_failed_write_nothing_is_accepted(
    index: dpi.PrivateIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(handle: int) -> None:
        raise OSError(28, "No space left on device")

    def failing() -> None:
        with collecting(index) as collector:
            assert done(collector.submit(submission("a"))) == "stored"
            monkeypatch.setattr("dpindex.integrations.collector.os.fsync", fail)
            with pytest.raises(UnavailableError):
                done(collector.submit(submission("b")))
            for thread in threading.enumerate():
                if thread.name == "collector":
                    thread.join(60)
            assert not collector.accepts
            with pytest.raises(UnavailableError):
                collector.submit(submission("c"))
            monkeypatch.undo()

    with pytest.raises(dpi.InputError, match="could not be written"):
        failing()
    again = reopened(index)
    with collecting(again):
        assert "a" in again
        assert "c" not in again


def test_who_does_not_wait_any_more_does_no_harm(
    index: dpi.PrivateIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, sync = threading.Event(), os.fsync
    with collecting(index) as collector:

        def slow(handle: int) -> None:
            gate.wait(600)
            sync(handle)

        monkeypatch.setattr("dpindex.integrations.collector.os.fsync", slow)
        first, second = (collector.submit(submission(name)) for name in "ab")
        second.cancel()
        gate.set()
        assert done(first) == "stored"
        assert done(collector.submit(submission("c"))) == "stored"
    assert {"a", "c"} <= set(reopened(index))


def test_too_many_that_wait_are_sent_away(
    index: dpi.PrivateIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, sync = threading.Event(), os.fsync
    with collecting(index, max_waiting=2) as collector:

        def slow(handle: int) -> None:
            gate.wait(600)
            sync(handle)

        monkeypatch.setattr("dpindex.integrations.collector.os.fsync", slow)
        waiting, refused = [], 0
        for i in range(20):
            try:
                waiting.append(collector.submit(submission(f"n{i}")))
            except UnavailableError:
                refused += 1
        gate.set()
        assert refused >= 1
        assert {done(outcome) for outcome in waiting} == {"stored"}
    assert len(reopened(index)) == 20 - refused


class TestOfAnIndexInAFolder(CollectorContract):
    @pytest.fixture
    def opened(self, filled: dpi.PrivateIndex, tmp_path: Path) -> Callable[[], Any]:
        filled.save(tmp_path / "filled")

        def again() -> Any:
            index = dpi.PrivateIndex.open(tmp_path / "filled")
            return index, lambda: index.save(tmp_path / "filled")

        return again
