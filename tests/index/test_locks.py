"""Locks: readers together, a writer alone, and nobody waits for ever."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from dpindex.base.errors import InputError
from dpindex.base.files import holding_lock
from dpindex.index.private_index import ReadWriteLock

SOON = 600.0
"""Seconds after which a thread that has not come back counts as stuck."""


def _thread(lock: ReadWriteLock, kind: str, log: list[str], name: str) -> threading.Thread:
    def run() -> None:
        with getattr(lock, kind)():
            log.append(name)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def _wait_until_waiting(lock: ReadWriteLock) -> None:
    limit = time.monotonic() + SOON
    while not lock.waiting and time.monotonic() < limit:
        time.sleep(0.001)
    assert lock.waiting


def test_readers_share() -> None:
    lock, log = ReadWriteLock(), list[str]()
    with lock.read():
        thread = _thread(lock, "read", log, "other")
        thread.join(SOON)
        assert log == ["other"]


def test_a_writer_is_alone() -> None:
    lock, log = ReadWriteLock(), list[str]()
    with lock.write():
        threads = [_thread(lock, kind, log, kind) for kind in ("read", "write")]
        time.sleep(0.05)
        assert log == []
    for thread in threads:
        thread.join(SOON)
    assert sorted(log) == ["read", "write"]


def test_a_waiting_writer_goes_before_new_readers() -> None:
    lock, log = ReadWriteLock(), list[str]()
    with lock.read():
        writer = _thread(lock, "write", log, "writer")
        _wait_until_waiting(lock)
        reader = _thread(lock, "read", log, "reader")
        time.sleep(0.05)
        assert log == []
    writer.join(SOON)
    reader.join(SOON)
    assert log == ["writer", "reader"]


@pytest.mark.parametrize("kind", ["read", "write"])
def test_an_exception_releases(kind: str) -> None:
    lock, log = ReadWriteLock(), list[str]()
    for error in (KeyboardInterrupt, ValueError):
        with pytest.raises(error), getattr(lock, kind)():
            raise error
    _thread(lock, "write", log, "w").join(SOON)
    _thread(lock, "read", log, "r").join(SOON)
    assert log == ["w", "r"]


def test_a_writer_that_gives_up_waiting_lets_readers_in(monkeypatch: pytest.MonkeyPatch) -> None:
    lock, log = ReadWriteLock(), list[str]()
    plain = threading.Condition.wait

    def interrupted(condition: threading.Condition) -> bool:
        monkeypatch.setattr(threading.Condition, "wait", plain)
        reader.append(_thread(lock, "read", log, "reader"))
        condition.wait(0.1)  # lets the reader begin to wait for us
        raise KeyboardInterrupt

    reader: list[threading.Thread] = []
    with lock.read():
        monkeypatch.setattr(threading.Condition, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt), lock.write():
            pass
        reader[0].join(SOON)
        assert log == ["reader"], "a reader still waits for a writer that is gone"


def test_one_writer_of_a_directory(tmp_path: Path) -> None:
    place = tmp_path / ".lock"
    with holding_lock(place, "it"):
        with pytest.raises(InputError, match="it is being written"), holding_lock(place, "it"):
            pass
        code = (
            "import sys; from pathlib import Path; from dpindex.base.files import holding_lock\n"
            "with holding_lock(Path(sys.argv[1]), 'it'): pass"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(place)], capture_output=True, text=True, check=False
        )
        assert "it is being written by another process" in done.stderr
    with holding_lock(place, "it"):
        pass


def test_finding_11_a_system_without_fcntl_locks_or_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With msvcrt its lock is used; without either no one is told that a directory is locked."""
    held: list[int] = []

    def locking(handle: int, mode: int, count: int) -> None:
        assert (mode, count) == (2, 1)
        if held:
            raise PermissionError(13, "Permission denied")
        held.append(handle)

    monkeypatch.setitem(sys.modules, "fcntl", None)
    windows = SimpleNamespace(LK_NBLCK=2, locking=locking)
    monkeypatch.setitem(sys.modules, "msvcrt", windows)
    place = tmp_path / ".lock"
    with holding_lock(place, "it"):
        assert len(held) == 1
        with pytest.raises(InputError, match="it is being written"), holding_lock(place, "it"):
            pass
    monkeypatch.setitem(sys.modules, "msvcrt", None)
    with pytest.raises(InputError, match="no file locks"), holding_lock(place, "it"):
        pass
