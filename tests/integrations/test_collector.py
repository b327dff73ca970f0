"""The collector: accepted means durable, once, and found by searches."""

import sqlite3
import threading

import numpy as np
import pytest
from collector_contract import CollectorContract
from helpers.common import attribute_spec, codes_of, known_noise, refuses, uniform

import dpindex as dpi
from dpindex.base.errors import StorageError
from dpindex.integrations.collector import (
    Accepted,
    Collector,
    FullError,
    Submission,
    UnavailableError,
)

SPEC = attribute_spec("dp-signoporp-rr", 16, k=16, epsilon=4.0)
pytestmark = known_noise


def submission(*names, receipt=None, seed=0):
    codes = codes_of(SPEC, uniform(len(names), 16, seed))
    return Submission(codes, np.array(names), receipt)


@pytest.fixture
def index(tmp_path):
    made = dpi.PrivateIndex(SPEC)
    made.save(tmp_path / "index")
    return made


def collecting(index, **limits):
    path = index.path

    def save():
        index.save(path)

    return Collector(index, path / ".accepted", save, **limits)


def reopened(index):
    return dpi.open(index.path)


def done(outcome):
    return outcome.result(timeout=600)


def sent(collector, *names, **options):
    return done(collector.submit(submission(*names, **options)))


def test_the_first_to_use_an_id_has_it(index):
    with collecting(index) as collector:
        first = submission("a")
        assert done(collector.submit(first)) == "stored"
        for names in (["a"], ["b", "a"], ["a", "c"]):
            assert sent(collector, *names, seed=1) == "taken"
        # The very same codes too: whether a guess is right is not told.
        guess = Submission(first.codes, first.ids)
        assert done(collector.submit(guess)) == "taken"
    assert list(reopened(index)) == ["a"]
    with collecting(index) as collector:
        assert sent(collector, "a") == "taken"


class Held:
    """Lets additions to the file of accepted codes wait until the gate opens."""

    def __init__(self, monkeypatch):
        self.gate = threading.Event()
        self.groups = []
        add = Accepted.add

        def held(accepted, submissions, known):
            self.gate.wait(600)
            self.groups.append(len(submissions))
            return add(accepted, submissions, known)

        monkeypatch.setattr(Accepted, "add", held)


def test_many_share_one_sync(index, monkeypatch):
    with collecting(index) as collector:
        held = Held(monkeypatch)
        names = [f"n{i}" for i in range(100)]
        outcomes = [collector.submit(submission(name)) for name in names]
        assert not any(outcome.done() for outcome in outcomes)  # nothing is on the disk yet
        held.gate.set()
        assert {done(outcome) for outcome in outcomes} == {"stored"}
        assert len(held.groups) <= 2
    assert sorted(reopened(index)) == sorted(names)


def left_over(index, *submissions):
    """The file of a collector that was killed after it accepted."""
    accepted = Accepted(index.path / ".accepted")
    accepted.add(submissions, index)
    accepted.close()
    return accepted.path


def test_a_key_is_known_after_every_kind_of_end(index):
    """So a device learns that its own code is stored, and not that somebody has its id."""
    one = submission("a", receipt=32 * b"1")
    with collecting(index) as collector:
        assert done(collector.submit(one)) == "stored"
    other = submission("b", receipt=32 * b"2")
    for _ in range(3):
        index = reopened(index)
        with collecting(index) as collector:
            assert done(collector.submit(one)) == "repeated"
            without_key = Submission(one.codes, one.ids)
            assert done(collector.submit(without_key)) == "taken"
        left_over(index, other)  # a kill
    index = reopened(index)
    with collecting(index) as collector:
        assert done(collector.submit(other)) == "repeated"
    assert sorted(reopened(index)) == ["a", "b"]


def test_an_id_that_somebody_else_added_meanwhile_is_reported(index):
    place = left_over(index, submission("a"))
    index.add_codes(submission("a", seed=5).codes, ["a"])
    with refuses(r"under an id which .* \('a'\)"):
        collecting(index)
    accepted = Accepted(place)
    assert len(accepted.codes()) == 1
    accepted.close()


def test_accepted_codes_join_the_search(index):
    one = submission("a", "b")
    with collecting(index, join_seconds=0.0) as collector:
        assert done(collector.submit(one)) == "stored"
        assert sent(collector, "c") == "stored"  # the first has joined
        found = index.search(one.codes, k=2).ids.ravel()
        assert {"a", "b"} <= set(found)
        assert len(reopened(index)) == 0


def test_a_full_segment_is_saved(index, monkeypatch):
    monkeypatch.setattr("dpindex.integrations.collector.rows_per_segment", lambda spec: 8)
    with collecting(index, group_rows=4) as collector:
        for start in range(0, 20, 4):
            names = (f"n{i}" for i in range(start, start + 4))
            assert sent(collector, *names) == "stored"
        assert len(reopened(index)) in (8, 16)
    assert len(reopened(index)) == 20


def test_a_full_disk_refuses_and_takes_again_when_there_is_room(index, monkeypatch):
    def full(accepted, submissions, known):
        raise FullError

    with collecting(index) as collector:
        assert sent(collector, "a") == "stored"
        with monkeypatch.context() as patched:
            patched.setattr(Accepted, "add", full)
            for _ in range(2):
                with pytest.raises(UnavailableError):
                    sent(collector, "b")
            assert collector.accepts
            assert not collector.has_room
        assert sent(collector, "b") == "stored"
        assert collector.has_room
    assert list(reopened(index)) == ["a", "b"]


def test_a_save_without_room_is_made_later(index, monkeypatch):
    monkeypatch.setattr("dpindex.integrations.collector.rows_per_segment", lambda spec: 1)
    path = index.path
    failures = ["first", "second"]

    def save():
        if failures:
            failures.pop()
            raise StorageError("there is no room")
        index.save(path)

    times = {"join_seconds": 0.0, "retry_seconds": 0.0}
    with Collector(index, path / ".accepted", save, **times) as collector:
        for name in "abc":
            assert sent(collector, name) == "stored"
    assert not failures
    assert list(reopened(index)) == ["a", "b", "c"]


def test_after_any_other_failed_write_nothing_is_accepted(index, monkeypatch):
    def fail(accepted, submissions, known):
        raise sqlite3.OperationalError("disk I/O error")

    def failing():
        with collecting(index) as collector:
            assert sent(collector, "a") == "stored"
            monkeypatch.setattr(Accepted, "add", fail)
            with pytest.raises(UnavailableError):
                sent(collector, "b")
            for thread in threading.enumerate():
                if thread.name == "collector":
                    thread.join(600)
            assert not collector.accepts
            with pytest.raises(UnavailableError):
                collector.submit(submission("c"))
            monkeypatch.undo()

    with refuses("could not be written"):
        failing()
    again = reopened(index)
    with collecting(again):
        assert "a" in again
        assert "c" not in again


def test_who_does_not_wait_any_more_does_no_harm(index, monkeypatch):
    with collecting(index) as collector:
        held = Held(monkeypatch)
        first, second = (collector.submit(submission(name)) for name in "ab")
        second.cancel()
        held.gate.set()
        assert done(first) == "stored"
        assert sent(collector, "c") == "stored"
    assert {"a", "c"} <= set(reopened(index))


def test_too_many_that_wait_are_sent_away(index, monkeypatch):
    with collecting(index, max_waiting=2) as collector:
        held = Held(monkeypatch)
        waiting = []
        refused = 0
        for i in range(20):
            try:
                waiting.append(collector.submit(submission(f"n{i}")))
            except UnavailableError:
                refused += 1
        held.gate.set()
        assert refused >= 1
        assert {done(outcome) for outcome in waiting} == {"stored"}
    assert len(reopened(index)) == 20 - refused


class TestOfAnIndexInAFolder(CollectorContract):
    @pytest.fixture
    def opened(self, filled, tmp_path):
        filled.save(tmp_path / "filled")

        def again():
            index = dpi.open(tmp_path / "filled")
            return index, lambda: index.save(tmp_path / "filled")

        return again


def test_codes_are_kept_until_the_index_is_saved(index):
    """A collector that dies while it saves has every code that it confirmed."""
    path = index.path

    def save():
        raise OSError("the disk is full")

    collector = Collector(index, path / ".accepted", save)
    with refuses(), collector:
        assert sent(collector, "a", "b") == "stored"
    with collecting(reopened(index)):
        pass
    assert list(reopened(index)) == ["a", "b"]
