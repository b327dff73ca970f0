"""Locks: searches together, in the order in which they came; and one writer of a directory."""

import os
import sys
import threading
from types import SimpleNamespace

import pytest
from helpers.common import finished, needs_posix, refuses

from dpindex.base.files import holding_lock
from dpindex.decode import Learned
from dpindex.index.ranking import Door

SOON = 600.0
"""Seconds after which a thread that has not come back counts as stuck."""


def _thread(door, log, name, *, ready=True):
    def run():
        with door.passed(lambda: ready, lambda: log.append(f"{name} prepares")):
            log.append(name)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


class Counted(threading.Condition):
    """Tells how many threads wait."""

    def __init__(self):
        super().__init__()
        self.waiting = 0
        self.more = threading.Condition()

    def wait(self, timeout=None):
        with self.more:
            self.waiting += 1
            self.more.notify_all()
        try:
            return super().wait(timeout)
        finally:
            with self.more:
                self.waiting -= 1

    def until(self, count):
        """Return when so many threads wait."""
        with self.more:
            assert self.more.wait_for(lambda: self.waiting >= count, SOON)


def _watched(monkeypatch):
    """A door, and who waits at it."""
    counted = Counted()
    with monkeypatch.context() as patched:
        patched.setattr(threading, "Condition", lambda: counted)
        return Door(), counted


def test_searches_are_inside_together():
    door = Door()
    log = []
    with door.passed(lambda: True, list):
        _thread(door, log, "other").join(SOON)
        assert log == ["other"]


def test_who_prepares_is_alone_and_nobody_overtakes(monkeypatch):
    door, waits = _watched(monkeypatch)
    log = []
    with door.passed(lambda: True, list):
        first = _thread(door, log, "first", ready=False)
        waits.until(1)
        second = _thread(door, log, "second")
        waits.until(2)
        assert log == []
    first.join(SOON)
    second.join(SOON)
    assert sorted(log) == ["first", "first prepares", "second"]
    assert log[0] == "first prepares"


def test_an_exception_lets_the_next_in():
    door = Door()
    log = []

    def fail():
        raise KeyboardInterrupt

    for is_ready, prepare in ((fail, list), (lambda: False, fail)):
        with pytest.raises(KeyboardInterrupt), door.passed(is_ready, prepare):
            pass
    with pytest.raises(ValueError, match="inside"), door.passed(lambda: True, list):
        raise ValueError("inside")
    _thread(door, log, "next", ready=False).join(SOON)
    assert log == ["next prepares", "next"]


def test_who_gives_up_waiting_leaves_the_queue(monkeypatch):
    door = Door()
    log = []

    def interrupted(condition):
        raise KeyboardInterrupt

    with door.passed(lambda: True, list):
        with monkeypatch.context() as patched:
            patched.setattr(threading.Condition, "wait", interrupted)
            with pytest.raises(KeyboardInterrupt), door.passed(lambda: False, list):
                pass
        _thread(door, log, "next").join(SOON)
        assert log == ["next"]


def test_one_writer_of_a_directory(tmp_path):
    place = tmp_path / ".lock"
    with holding_lock(place, "it"):
        with refuses("it is being written"), holding_lock(place, "it"):
            pass
        code = (
            "import sys; from pathlib import Path; from dpindex.base.files import holding_lock\n"
            "with holding_lock(Path(sys.argv[1]), 'it'): pass"
        )
        done = finished(sys.executable, "-c", code, place)
        assert "it is being written by another process" in done.stderr
    with holding_lock(place, "it"):
        pass


def test_finding_11_a_system_without_fcntl_locks_or_refuses(tmp_path, monkeypatch):
    """With msvcrt its lock is used; without either no one is told that a directory is locked."""
    held = []

    def locking(handle, mode, count):
        assert mode == 2
        assert count == 1
        if held:
            raise PermissionError(13, "Permission denied")
        held.append(handle)

    monkeypatch.setitem(sys.modules, "fcntl", None)
    windows = SimpleNamespace(LK_NBLCK=2, locking=locking)
    monkeypatch.setitem(sys.modules, "msvcrt", windows)
    place = tmp_path / ".lock"
    with holding_lock(place, "it"):
        assert len(held) == 1
        with refuses("it is being written"), holding_lock(place, "it"):
            pass
    monkeypatch.setitem(sys.modules, "msvcrt", None)
    with refuses("no file locks"), holding_lock(place, "it"):
        pass


@needs_posix
def test_a_child_that_is_forked_while_a_thread_learns_reads_what_was_learned():
    began = threading.Event()
    known = SimpleNamespace(rows=500)

    def learn():
        began.set()
        threading.Event().wait(0.2)
        return known

    learned = Learned(SimpleNamespace(), 500, learn, 0)
    thread = threading.Thread(target=lambda: learned.calibration)
    thread.start()
    assert began.wait(SOON)
    child = os.fork()
    if not child:
        os._exit(0 if learned.calibration is known else 1)
    thread.join(SOON)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
