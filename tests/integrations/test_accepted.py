"""The file of what a collector accepted: codes and keys are there again, once, or nothing is."""

import sqlite3
from contextlib import closing

import numpy as np
import pytest
from helpers.common import flipped, refuses

from dpindex.integrations.collector import Accepted, FullError, Submission
from dpindex.mechanism.codes import SignFormat

FORMAT = SignFormat(16, bytes(16))


def submission(start, count=3, receipt=None):
    """Codes whose bytes count on from twice the first number."""
    rows = np.arange(start, start + count)
    stored = np.stack([2 * rows, 2 * rows + 1], axis=1) % 256
    ids = np.array([f"id {row}" for row in rows])
    key = None if receipt is None else bytes([receipt]) * 32
    return Submission(FORMAT.codes(stored.astype(np.uint8)), ids, key)


def stated_ids(accepted):
    return [one.ids.item() for one in accepted.codes()]


def count_in(path):
    """How many codes the file holds."""
    with closing(Accepted(path)) as accepted:
        return len(accepted.codes())


@pytest.fixture
def path(tmp_path):
    """A file with six codes and a key."""
    accepted = Accepted(tmp_path / "accepted")
    assert accepted.codes() == []
    group = [submission(0), submission(10, receipt=1)]
    assert accepted.add(group, []) == ["stored", "stored"]
    accepted.close()
    return accepted.path


def test_codes_are_read_again_in_their_order(accepted):
    assert stated_ids(accepted) == ["id 0", "id 1", "id 2", "id 10", "id 11", "id 12"]
    assert accepted.codes()[1].codes.stored[0].tolist() == [2, 3]
    assert accepted.path.stat().st_mode & 0o777 == 0o600


@pytest.fixture
def accepted(path):
    with closing(Accepted(path)) as opened:
        yield opened


def test_of_a_group_each_id_and_each_key_counts_once(accepted):
    group = [
        submission(10, receipt=1),
        submission(12, receipt=2),
        submission(20, receipt=3),
        submission(20, receipt=3),
        submission(21, receipt=4),
        submission(30),
    ]
    outcomes = accepted.add(group, ["id 32"])
    assert outcomes == ["repeated", "taken", "stored", "repeated", "taken", "taken"]
    assert len(accepted.codes()) == 9


def test_numbers_and_strings_are_different_ids(tmp_path):
    accepted = Accepted(tmp_path / "accepted")
    code = FORMAT.codes(np.zeros((1, 2), np.uint8))
    largest = 2**53
    for id in ("7", 7, largest, str(largest)):
        submitted = Submission(code, np.array([id]))
        assert accepted.add([submitted], []) == ["stored"]
        assert accepted.add([submitted], []) == ["taken"]
    assert stated_ids(accepted) == ["7", 7, largest, str(largest)]
    accepted.close()


def test_keys_stay_when_the_codes_are_in_the_saved_index(path):
    for _ in range(2):
        accepted = Accepted(path)
        accepted.forget_codes()
        assert accepted.codes() == []
        repeated = submission(10, receipt=1)
        assert accepted.add([repeated], ["id 10"]) == ["repeated"]
        accepted.close()


@pytest.fixture
def disk(monkeypatch):
    """Sets how many pages a database may have: SQLite says then that the disk is full."""
    opened = []
    connect = sqlite3.connect

    def connected(*args, **options):
        opened.append(connect(*args, **options))
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", connected)

    def limit(pages):
        opened[-1].execute(f"PRAGMA max_page_count = {pages}")

    return limit


def test_a_full_disk_keeps_nothing_of_a_group_and_takes_it_later(path, disk):
    accepted = Accepted(path)
    disk(1)  # none beyond those that there are
    large = [submission(100 * i, 100, receipt=i) for i in range(100, 120)]
    with pytest.raises(FullError):
        accepted.add(large, [])
    assert len(accepted.codes()) == 6
    disk(1 << 20)
    assert accepted.add(large, []) == ["stored"] * 20
    assert accepted.add(large, []) == ["repeated"] * 20
    accepted.close()
    assert count_in(path) == 6 + 20 * 100


@pytest.mark.parametrize("place", [0, 20, 100])
def test_damage_is_not_passed_over(path, place):
    data = bytearray(path.read_bytes())
    data[place : place + 16] = bytes(range(1, 17))
    path.write_bytes(data)
    with refuses(r"is damaged|cannot be written"):
        count_in(path)
    assert path.read_bytes() == data


def test_a_code_that_changed_on_the_disk_is_damage(path):
    data = path.read_bytes()
    code = submission(1, 1).codes.to_bytes()
    changed = data.replace(code, flipped(code, -1))
    assert changed != data
    path.write_bytes(changed)
    with refuses("is damaged: it may hold accepted codes"):
        count_in(path)


@pytest.mark.parametrize("ending", ["", "-wal", "-journal"])
def test_a_link_is_not_followed(tmp_path, ending):
    (tmp_path / "other").write_bytes(b"mine")
    (tmp_path / f"accepted{ending}").symlink_to(tmp_path / "other")
    with refuses("is a symbolic link"):
        Accepted(tmp_path / "accepted")
    assert (tmp_path / "other").read_bytes() == b"mine"


def test_the_log_beside_the_file_stays_small(path):
    accepted = Accepted(path)
    for start in range(1000, 9000, 400):
        accepted.add([submission(start, 400)], [])
    log = path.with_name(f"{path.name}-wal")
    assert log.stat().st_size < 1_000_000
    accepted.close()
    assert count_in(path) == 6 + 20 * 400
