"""The log of accepted codes: what was appended is read again, what was cut off is not."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from dpindex import InputError
from dpindex.integrations.collector import AcceptedLog, Batch
from dpindex.mechanism.codes import SignFormat

FORMAT = SignFormat(16, bytes(16))


def batch(start: int, count: int = 3, receipts: int = 1) -> Batch:
    stored = np.arange(2 * start, 2 * (start + count), dtype=np.uint8).reshape(count, 2)
    ids = np.array([f"id {i}" for i in range(start, start + count)])
    return Batch(FORMAT.codes(stored), ids, [bytes([start]) * 32] * receipts)


def read(path: Path) -> list[tuple[list[str], list[list[int]], list[bytes]]]:
    log = AcceptedLog(path)
    log.close()
    return [(b.ids.tolist(), b.codes.stored.tolist(), b.receipts) for b in log.recovered]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log of two batches, closed as by a process that was killed."""
    log = AcceptedLog(tmp_path / "log")
    assert log.recovered == []
    log.append(batch(0))
    log.append(batch(10, receipts=2))
    log.close()
    return log.path


def test_batches_are_read_again(path: Path) -> None:
    first, second = read(path)
    assert first == (["id 0", "id 1", "id 2"], [[0, 1], [2, 3], [4, 5]], [bytes(32)])
    assert second[2] == [bytes([10]) * 32] * 2
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_short_write_is_gone_on_with(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a disk takes in two pieces would be dropped by the next start, after it was answered."""
    log, real = AcceptedLog(path), os.write
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda file, data: real(file, data[:50]))
        log.append(batch(20))
    log.close()
    assert [names[0] for names, _, _ in read(path)] == ["id 0", "id 10", "id 20"]


def test_an_end_cut_off_anywhere_is_dropped_and_written_over(path: Path) -> None:
    whole = path.read_bytes()
    first = 12 + int.from_bytes(whole[:8], "little")
    for length in (first + 1, first + 12, first + 40, len(whole) - 1):
        path.write_bytes(whole[:length])
        log = AcceptedLog(path)
        assert (len(log.recovered), log.bytes) == (1, first)
        log.append(batch(20))
        log.close()
        assert [names[0] for names, _, _ in read(path)] == ["id 0", "id 20"]


@pytest.mark.parametrize("end", [bytes(100), b"\x05"])
def test_what_a_power_failure_leaves_at_the_end(path: Path, end: bytes) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole + end)
    assert len(read(path)) == 2
    assert path.read_bytes() == whole
    path.write_bytes(whole[:-20] + bytes(20))  # as long as it should be, and not written
    assert len(read(path)) == 1


@pytest.mark.parametrize("place", [0, 8, 12, 40, 200])
def test_damage_before_the_end_is_not_passed_over(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match="damaged at byte 0"):
        AcceptedLog(path)
    assert path.read_bytes() == data


def test_an_empty_log_leaves_no_file(tmp_path: Path) -> None:
    log = AcceptedLog(tmp_path / "log")
    log.append(batch(0))
    log.clear()
    log.close()
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"mine")
    (tmp_path / "log").symlink_to(tmp_path / "other")
    with pytest.raises(InputError):
        AcceptedLog(tmp_path / "log")
    assert (tmp_path / "other").read_bytes() == b"mine"
