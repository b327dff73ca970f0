"""The ledger: nothing is released twice unseen, nobody is named, no crash makes it forget."""

import hashlib
import hmac
import json
import math
import os
import shutil
import sqlite3
import stat
import struct
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from helpers import releases
from helpers.common import (
    all_bytes,
    attribute_spec,
    counted,
    fails,
    names_in,
    needs_posix,
    record_spec,
    refuses,
    uniform,
)

from dpindex import InputError, Ledger, PrivateIndex, Spec, attribute, l2, record
from dpindex.base.errors import DamagedError

SPEC = attribute_spec("dp-oporp-staircase", 6, k=2, epsilon=1.0)
TWICE = "was released before"
IDS = [f"person-{i}" for i in range(12)]
VECTORS = uniform(12, 6)


def told(ledger, *ids, **options):
    """Record one release of some ids, and return how many of them were released before."""
    return ledger.record(SPEC, list(ids), **options)


@pytest.fixture
def ledger(tmp_path):
    """A ledger in a folder of its own, in which there is nothing yet."""
    (tmp_path / "private").mkdir()
    return Ledger(tmp_path / "private" / "ledger")


def digests(ledger):
    """The digests in a ledger, read by SQLite alone."""
    with closing(sqlite3.connect(ledger.path)) as db:
        rows = db.execute("SELECT hi, lo FROM ids")
        return {struct.pack(">qq", *row) for row in rows}


def changed(ledger, *statements):
    """Somebody changes the ledger with SQLite."""
    with closing(sqlite3.connect(ledger.path)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()


def refused(ledger, words):
    """Whatever is asked of the ledger, of an id that is in it or of another."""
    for use in (
        ledger.entries,
        ledger.totals,
        lambda: ledger.check(["a"]),
        lambda: told(ledger, "d"),
    ):
        with refuses(words):
            use()


def shown(ledger):
    """How many ids were released how often, and what that costs."""
    totals = ledger.totals()
    return [(total.ids, total.releases, epsilons_of(total)) for total in totals]


def epsilons_of(total):
    return [promise.epsilon for promise in total.guarantees]


def test_a_second_release_is_refused_or_counted(ledger):
    assert told(ledger, "a", "b", "c") == 0
    for again in (ledger, Ledger(ledger.path)):
        with refuses(r"id 'b' \(row 1\) was released before, as were 1"):
            told(again, "d", "b")
    assert shown(ledger) == [(3, 1, [1.0])]
    half = SPEC.with_epsilon(0.5)
    assert ledger.record(half, ["d", "b"], allow_rerelease=True) == 1
    assert told(ledger, "b", allow_rerelease=True) == 1
    assert shown(ledger) == [(1, 3, [2.5]), (2, 1, [1.0]), (1, 1, [0.5])]
    entries = [(entry.count, entry.spec.epsilon) for entry in ledger.entries()]
    assert entries == [(3, 1.0), (2, 0.5), (1, 1.0)]
    (total,) = ledger.totals(["b"])
    words = "1 id, 3 releases each: epsilon = 2.5 (pure DP) under attribute(beta=1)"
    assert str(total) == words


def test_the_order_of_releases_does_not_split_a_total(ledger):
    for ids in (["a"], ["b"]):
        ledger.record(SPEC, ids)
    double = SPEC.with_epsilon(2.0)
    ledger.record(double, ["a", "b"], allow_rerelease=True)
    told(ledger, "a", allow_rerelease=True)
    told(ledger, "b", allow_rerelease=True)
    assert shown(ledger) == [(2, 3, [4.0])]


def at(epsilon, beta, **changes):
    stated = {"dim": 6, "k": 2, "adjacency": attribute(beta), **changes}
    return Spec("dp-oporp-staircase", epsilon=epsilon, **stated)


def recorded(ledger, *specs):
    """The total of one id that was released under these specs."""
    for spec in specs:
        ledger.record(spec, [7], allow_rerelease=True)
    (found,) = ledger.totals()
    return found


def by_adjacency(guarantees):
    return {promise.adjacency: promise.epsilon for promise in guarantees}


def test_finding_2_mixed_betas_are_bounded_jointly_at_each(ledger):
    """At change c the truth is at most the sum of ceil(c / beta) · epsilon, in the data's units."""
    specs = [at(1.0, 1.0), at(1.0, 0.5), at(3.0, 0.01, scale=255.0)]
    found = recorded(ledger, *specs)
    assert found.apart == ""
    assert by_adjacency(found.guarantees) == {
        attribute(1.0): 1.0 + 2.0 + 3.0,
        attribute(0.5): 1.0 + 1.0 + 3.0,
        attribute(2.55): 3.0 + 6.0 + 3.0,
    }
    for promise in found.guarantees:
        assert promise.delta == 0
        assert promise.definition == "DP"
        assert promise.exact


def test_finding_2_the_joint_bound_is_no_smaller_than_an_attack_finds(ledger):
    """Two staircase releases of one attribute, told apart optimally, by their exact laws."""
    specs = [at(1.0, 1.0), at(1.0, 0.5)]
    found = recorded(ledger, *specs)
    bounds = by_adjacency(found.guarantees)
    cells = np.arange(-2000, 2000) + 0.5
    law = -np.floor((np.abs(cells) + 8) / 16)  # log of a staircase, 16 cells a beta
    for change in (0.5, 1.0):
        worst = 0.0
        for spec in specs:
            shift = round(change / spec.adjacency.size * 16)
            ratios = law - np.roll(law, shift)
            worst += ratios[1100:2900].max()
        assert worst <= bounds[attribute(change)] + 1e-9
        assert worst > 1.0  # more than either of the promises that once stood side by side


def test_finding_2_what_cannot_be_compared_has_no_joint_number(ledger):
    weak = [Spec("idp-signoporp-rr", 6, k=2, epsilon=4.0, adjacency=attribute(b)) for b in (1, 2)]
    found = recorded(ledger, SPEC, weak[0], SPEC)
    kinds = "DP under attribute(beta=1) or iDP under attribute(beta=1)"
    assert found.guarantees == ()
    assert [(g.definition, g.epsilon) for g in found.alone] == [("DP", 2.0), ("iDP", 4.0)]
    assert found.apart == f"not every release promises {kinds}"
    assert f"({found.apart}), and one change may cost all; each kind alone: epsilon" in str(found)
    assert str(found).startswith("1 id, 3 releases each: no joint number")
    assert found.to_dict()["apart"] == found.apart
    twice = recorded(Ledger(ledger.path.with_name("weak")), *weak)
    assert [(g.epsilon, g.adjacency) for g in twice.guarantees] == [(8.0, attribute(1.0))]
    assert [(g.epsilon, g.adjacency) for g in twice.alone] == [(4.0, attribute(2.0))]
    assert "iDP under attribute(beta=2)" in twice.apart


WHOLE = record_spec("record-cap", 6, k=64, epsilon=3.0)
BALL = Spec("raw-gaussian", 6, epsilon=0.5, delta=1e-6, adjacency=l2(1.0))


@pytest.mark.parametrize(
    "specs, together, alone",
    [
        ([SPEC, WHOLE], {attribute(1.0): 4.0}, {record(): 3.0}),
        ([WHOLE, BALL], {l2(1.0): 3.5}, {record(): 3.0}),
        ([SPEC, BALL], {attribute(1.0): 1.5}, {l2(1.0): 0.5}),
        ([at(1.0, 2.5), BALL], {attribute(2.5): 1.0 + 3 * 0.5}, {l2(1.0): 0.5}),
        ([SPEC, WHOLE, BALL], {attribute(1.0): 4.5}, {record(): 3.0, l2(1.0): 3.5}),
        ([WHOLE, WHOLE], {record(): 6.0}, {}),
    ],
)
def test_a_larger_change_bounds_a_smaller_one_and_never_the_other_way(
    ledger, specs, together, alone
):
    """Whoever hides a whole vector hides each of its attributes, and no attribute a vector."""
    found = recorded(ledger, *specs)
    assert by_adjacency(found.guarantees) == together
    assert by_adjacency(found.alone) == alone
    assert bool(found.apart) == bool(alone)
    assert ("; and no joint number" in str(found)) == bool(alone)
    written = json.loads(json.dumps(found.to_dict()))
    assert written["alone"] == [promise.to_dict() for promise in found.alone]


def test_a_joint_number_of_records_and_attributes_is_no_smaller_than_exact_laws_lose(ledger):
    """A cap of a whole record and staircase noise of an attribute, each by its own integers."""
    (joint,) = recorded(ledger, SPEC, WHOLE).guarantees
    cap = math.log(WHOLE.law.cap.ratio())
    cells = np.array(SPEC.law.source.masses[1:-1], dtype=np.float64)
    beta = 1 << (SPEC.law.grid_bits - SPEC.law.cell_bits)
    staircase = np.abs(np.log(cells[beta:] / cells[:-beta])).max()
    lost = cap + staircase
    assert joint.epsilon - 0.01 < lost <= joint.epsilon + 1e-9
    assert lost > 1.0


def test_finding_2_a_release_without_protection_leaves_no_promise(ledger):
    found = recorded(ledger, SPEC, attribute_spec("none-oporp", 6, k=2))
    assert "each: no guarantee: the codes are not private" in str(found)


def test_finding_3_totals_count_in_the_units_of_the_data(ledger):
    same = recorded(
        ledger,
        at(1.0, 1.0),
        at(1.0, 1 / 255, scale=255.0),
        at(1.0, 100, scale=0.01),
    )
    assert [str(g) for g in same.guarantees] == ["epsilon = 3 (pure DP) under attribute(beta=1)"]
    other = recorded(
        Ledger(ledger.path.with_name("other")),
        at(1.0, 1.0),
        at(1.0, 1.0, scale=0.01),
    )
    bounds = by_adjacency(other.guarantees)
    assert bounds == {attribute(1.0): 101.0, attribute(0.01): 2.0}


def test_ids_are_kept_as_keyed_digests(ledger):
    ledger.record(SPEC, IDS)
    data = ledger.path.read_bytes()
    key = ledger.key_path.read_bytes()
    kept = digests(ledger)
    for name in IDS:
        stored = hmac.digest(key, b"id:" + name.encode(), "sha256")
        assert stored[:16] in kept
        for guess in (name.encode(), b"id:" + name.encode()):
            assert guess not in data
            assert hashlib.sha256(guess).digest()[:16] not in kept
    other = Ledger(ledger.path.with_name("other"))
    other.record(SPEC, IDS)
    assert other.key_path.read_bytes() != key
    assert not digests(other) & kept
    if os.name == "posix":
        for file in (ledger.path, ledger.key_path):
            assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_numbers_and_their_text_are_one_id(ledger):
    ledger.record(SPEC, np.array([7, 8]))
    for same in (["7"], 7, np.array(["8"]), [np.int32(8)]):
        with refuses(TWICE):
            ledger.record(SPEC, same)
    told(ledger, "07", "7\0x", "")


@pytest.mark.parametrize(
    "ids, message",
    [
        (None, "give every vector an id"),
        ([], "no ids"),
        ([1.5], "whole numbers or strings"),
        ([True], "whole numbers or strings"),
        (["a", "a"], "given twice"),
        ([7, "7"], "given twice"),
        (["\ud800"], "not text"),
    ],
)
def test_bad_ids_are_refused(ledger, ids, message):
    with refuses(message):
        ledger.record(SPEC, ids)


def test_a_process_that_dies_leaves_the_ledger_as_it_was(ledger, tmp_path, monkeypatch):
    """The files as they are before every statement, some of them in the middle of a page's way."""
    pictures = []

    class Photographer(sqlite3.Connection):
        def execute(self, statement, *parameters):
            picture = tmp_path / f"picture{len(pictures)}"
            shutil.copytree(ledger.path.parent, picture)
            pictures.append(picture)
            done = super().execute(statement, *parameters)
            if statement.startswith("BEGIN"):
                super().execute("PRAGMA cache_size = 1")  # pages are written before the commit
            return done

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Photographer))
        told(ledger, "a")
        first = len(pictures)
        ledger.record(SPEC, [f"b{i}" for i in range(2000)])
    assert shown(ledger) == [(2001, 1, [1.0])]
    midway = [picture for picture in pictures if (picture / "ledger-journal").exists()]
    sizes = [(picture / "ledger").stat().st_size for picture in midway]
    assert max(sizes) > 40_000
    for number, picture in enumerate(pictures):
        left = Ledger(picture / "ledger")
        left.check(["c"])
        before = int(number >= first)
        if before:
            assert shown(left) == [(1, 1, [1.0])]
        again = [f"b{row}" for row in range(5)]
        assert left.record(SPEC, again) == 0
        assert sum(total.ids for total in left.totals()) == before + 5


@pytest.mark.slow
def test_every_changed_bit_is_noticed_or_means_nothing(ledger):
    told(ledger, "a", token="t")
    ledger.record(SPEC.with_epsilon(2.0), ["b", "c"])
    before = ledger.entries(), ledger.totals()
    whole = ledger.path.read_bytes()
    noticed = 0
    used = [place for place in range(100, len(whole)) if whole[place]]
    rest = range(100, len(whole), 101)
    for place in (*range(100), *used[::4], *rest):
        data = bytearray(whole)
        data[place] ^= 1 << place % 8
        ledger.path.write_bytes(data)
        try:
            ledger.check(["d"])
        except InputError:
            noticed += 1
            refused(ledger, r"damaged|not a ledger|newer|cannot be opened")
            continue
        assert (ledger.entries(), ledger.totals()) == before
        for name in "abc":
            with refuses(TWICE):
                ledger.check([name])
    assert noticed > 100
    ledger.path.write_bytes(whole)
    told(ledger, "d")


def test_a_ledger_that_is_cut_off_is_refused(ledger):
    ledger.record(SPEC, [f"a{i}" for i in range(1000)])
    whole = ledger.path.read_bytes()
    lengths = [*range(0, 100, 9), *range(100, len(whole), 999)]
    for length in lengths:
        ledger.path.write_bytes(whole[:length])
        refused(ledger, r"damaged|not a ledger|is missing")


@pytest.mark.parametrize("left", [b"", b"\0"])
def test_an_empty_file_beside_its_key_is_no_new_ledger(ledger, left):
    ledger.path.write_bytes(left)
    assert ledger.entries() == ()
    assert ledger.totals() == []
    assert ledger.totals(["a"]) == []
    ledger.check(["a"])
    assert ledger.path.read_bytes() == left
    told(ledger, "a")
    ledger.path.write_bytes(left)
    refused(ledger, "is missing, but its key is there; restore")


def test_a_database_of_somebody_else_is_refused_and_not_changed(ledger):
    changed(ledger, "CREATE TABLE releases (id)", "CREATE TABLE ids (hi)")
    for application in (0, 0x44504C46):
        changed(
            ledger,
            f"PRAGMA application_id = {application}",
            "PRAGMA user_version = 1",
        )
        before = ledger.path.read_bytes()
        refused(ledger, "is not a ledger")
        assert ledger.path.read_bytes() == before
    ledger.path.write_bytes(b"DPLG\x01\x00\x00\x00" + bytes(100))
    refused(ledger, "is not a ledger")


def test_a_row_of_impossible_length_is_damage(ledger):
    """SQLite calls it a lack of memory. Found by fuzzing."""
    page = bytearray(512)
    for place, data in {
        0: b"SQLite format 3\0\2",
        21: b"@  ",
        100: b"\r\0\0\0\2\0\0\0\1R",
        338: b"\xff\xff\xff\xff\xff\xff\xffs\0 \0\0\0\0G",
    }.items():
        page[place : place + len(data)] = data
    ledger.path.write_bytes(page)
    refused(ledger, "damaged")


def test_a_ledger_of_a_newer_version_is_refused(ledger):
    told(ledger, "a")
    changed(ledger, "PRAGMA user_version = 2", "CREATE TABLE news (id)")
    refused(ledger, "newer version of dpindex; update")


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER t AFTER INSERT ON releases BEGIN DELETE FROM ids; END",
        "CREATE VIEW v AS SELECT * FROM ids",
        "CREATE INDEX i ON ids (release)",
        "ALTER TABLE releases ADD COLUMN more TEXT",
        "DELETE FROM ids",
        "DELETE FROM releases WHERE id = 1",
        "DELETE FROM releases WHERE id = 2",
        "UPDATE ids SET release = 3 - release",
        "INSERT INTO ids VALUES (1, 2, 3)",
        "UPDATE releases SET token = 'u'",
        "UPDATE releases SET time = 7",
        "UPDATE releases SET spec = CAST(spec AS BLOB)",
        "UPDATE releases SET seal = 'x'",
        "PRAGMA journal_mode = WAL",
    ],
)
def test_a_ledger_that_was_changed_with_sqlite_is_damaged(ledger, statement):
    told(ledger, "a")
    told(ledger, "b", "c")
    changed(ledger, statement)
    refused(ledger, r"is damaged; restore it .* -journal beside it\.$")


def test_a_declared_size_costs_no_memory(ledger):
    told(ledger, "a")
    with ledger.path.open("r+b") as file:
        file.truncate((1 << 33) + 1)  # a hole, no bytes
    refused(ledger, "not a plain file of at most")


@needs_posix
def test_a_link_is_another_name_of_one_ledger(ledger, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(ledger.path)
    Ledger(link).record(SPEC, ["a"])
    assert ledger.path.exists()
    assert ledger.key_path.exists()
    assert names_in(tmp_path) == ["link", "private"]
    for known in (ledger, Ledger(link)):
        with refuses(TWICE):
            told(known, "a")
    with refuses("meant to be published"):
        Ledger(link).refuse_inside(ledger.path.parent)
    link.unlink()
    link.symlink_to(link)
    with refuses("cannot be opened"):
        Ledger(link).totals()


@needs_posix
@pytest.mark.parametrize("ending", ["-journal", "-wal", "-shm"])
def test_finding_9_no_link_beside_a_ledger_is_followed(ledger, tmp_path, ending):
    told(ledger, "a")
    for victim in (tmp_path / "letter", tmp_path / "missing"):
        planted = Path(f"{ledger.path}{ending}")
        planted.symlink_to(victim)
        refused(ledger, f"ledger{ending} beside it is a symbolic link")
        assert not victim.exists() or victim.read_text() == "mine"
        planted.unlink()
        (tmp_path / "letter").write_text("mine")
    assert shown(ledger) == [(1, 1, [1.0])]


def test_a_missing_or_wrong_key_or_ledger(ledger, tmp_path):
    told(ledger, "a")
    key = ledger.key_path.read_bytes()
    for wrong in (bytes(32), key[:-1]):
        ledger.key_path.write_bytes(wrong)
        with refuses("not the key of"):
            told(ledger, "b")
    ledger.key_path.unlink()
    with refuses(r"ledger\.key cannot be read"):
        told(ledger, "b")
    assert shown(ledger) == [(1, 1, [1.0])]  # an auditor needs no key
    ledger.key_path.write_bytes(key)
    ledger.path.unlink()
    refused(ledger, "is missing, but its key is there")
    ledger.key_path.unlink()
    with refuses(r"ledger: No such file or directory; check the path\.$"):
        ledger.totals()
    ledger.check(["a"])
    assert not list(ledger.path.parent.iterdir())
    with refuses("ledger: No such file or directory; check the path"):
        Ledger(tmp_path / "nowhere" / "ledger").record(SPEC, ["a"])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
def test_only_plain_files(ledger):
    os.mkfifo(ledger.path)
    with refuses("not a plain file"):
        ledger.totals()
    with refuses():
        told(ledger, "a")


def test_one_writer_at_a_time(ledger, monkeypatch):
    told(ledger, "a")
    monkeypatch.setattr("dpindex.accounting.ledger.BUSY_SECONDS", 0.0)
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with refuses("written by another process; wait"):
            told(ledger, "b")
        assert shown(ledger) == [(1, 1, [1.0])]  # whoever only prepares to write stops no reader
        other.execute("COMMIT")
        other.execute("BEGIN EXCLUSIVE")
        with refuses("written by another process; wait"):
            ledger.totals()
    told(ledger, "b")


@pytest.mark.slow
def test_two_processes_that_record_at_once_are_both_booked(ledger):
    """They begin a ledger at the same time, and then take turns."""
    script = (
        "import sys\n"
        "import dpindex.accounting.ledger\n"
        "from dpindex import Ledger, Spec\n"
        "dpindex.accounting.ledger.BUSY_SECONDS = 600.0\n"
        "ledger, spec, name = Ledger(sys.argv[1]), Spec.from_json(sys.argv[2]), sys.argv[3]\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "for number in range(10):\n"
        "    assert ledger.record(spec, [f'{name}-{number}']) == 0\n"
        "    ledger.record(spec, [f'both-{number}'], allow_rerelease=True)\n"
    )
    words = [sys.executable, "-c", script, str(ledger.path), SPEC.to_json()]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    children = [subprocess.Popen([*words, name], **pipes) for name in "xy"]
    for child in children:
        assert child.stdout.readline() == "ready\n"
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        child.communicate()
        assert child.returncode == 0
    assert len(ledger.entries()) == 40
    assert shown(ledger) == [(10, 2, [2.0]), (20, 1, [1.0])]
    assert names_in(ledger.path.parent) == ["ledger", "ledger.key"]


@pytest.mark.parametrize("fault", ["full", "interrupted"])
def test_what_could_not_be_written_is_taken_back(ledger, monkeypatch, fault):
    told(ledger, "a")
    before = ledger.path.read_bytes()

    class Failing(sqlite3.Connection):
        def execute(self, statement, *parameters):
            if statement == "COMMIT" and fault == "interrupted":
                raise KeyboardInterrupt
            done = super().execute(statement, *parameters)
            if statement.startswith("BEGIN") and fault == "full":
                super().execute("PRAGMA max_page_count = 4")
            return done

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Failing))
        words = r"ledger cannot be .* disk is full|^$"
        with pytest.raises((InputError, KeyboardInterrupt), match=words):
            ledger.record(SPEC, [f"b{i}" for i in range(1000)])
    assert ledger.path.read_bytes() == before
    assert names_in(ledger.path.parent) == ["ledger", "ledger.key"]


def test_work_that_is_resumed_is_recorded_once(ledger):
    assert told(ledger, "a", "b", token="t") == 0
    for ids in (["a", "b"], ["b", "a"]):
        assert ledger.record(SPEC, ids, token="t") == 0
    for spec, ids, token in (
        (SPEC, ["a", "b"], "u"),
        (SPEC, ["a", "c"], "t"),
        (SPEC, ["a"], "t"),
        (SPEC.with_epsilon(2.0), ["a", "b"], "t"),
    ):
        with refuses(TWICE):
            ledger.record(spec, ids, token=token)
    assert shown(ledger) == [(2, 1, [1.0])]


def test_an_index_remembers_removed_ids_by_its_ledger(ledger, tmp_path):
    index = saved(tmp_path / "index")
    index.add(VECTORS, IDS, ledger=ledger)
    index.remove(IDS[:3])
    with refuses(TWICE):
        index.add(VECTORS[:3], IDS[:3], ledger=ledger)
    other = saved(tmp_path / "other")
    with refuses(TWICE):
        other.add(VECTORS[3], [IDS[3]], ledger=ledger)
    assert len(index) == 9
    index.add(VECTORS[:3], IDS[:3], ledger=ledger, allow_rerelease=True)
    assert len(index) == 12
    assert shown(ledger) == [(3, 2, [2.0]), (9, 1, [1.0])]


def saved(path):
    """An empty index with a folder, as a ledger wants."""
    index = PrivateIndex(SPEC)
    index.save(path)
    return index


def test_what_is_refused_costs_nothing(ledger, tmp_path):
    index = saved(tmp_path / "index")
    wrong = [(VECTORS * 2, IDS), (VECTORS, IDS[:3]), (VECTORS, None)]
    for vectors, ids in wrong:
        with refuses():
            index.add(vectors, ids, ledger=ledger)
    assert not ledger.path.exists()
    with refuses("name the ledger"):
        index.add(VECTORS, IDS, allow_rerelease=True)


def test_nothing_of_it_is_published(ledger, tmp_path):
    releases.build(tmp_path / "index", SPEC, VECTORS, ids=IDS, ledger=ledger, rows=3)
    published = all_bytes(tmp_path / "index")
    key = ledger.key_path.read_bytes()
    secrets = [key, key.hex().encode(), str(ledger.path).encode(), *digests(ledger)]
    for secret in secrets:
        assert secret not in published
    for path in (tmp_path / "index").rglob("*"):
        for word in ("ledger", "key", "source"):
            assert word not in path.name


def test_command_line(run, prints, tmp_path):
    np.save(tmp_path / "x.npy", VECTORS)
    for name in ("", "new", "newer"):
        lines = "\n".join(f"{name}-{i}" for i in range(12))
        (tmp_path / f"{name or 'ids'}.txt").write_text(lines)
    (tmp_path / "spec.json").write_text(SPEC.to_json())
    options = "--method dp-oporp-staircase --epsilon 1 --beta 1 --code-length 2 --ledger book"
    assert "In total" not in prints(f"build x.npy ix --ids ids.txt {options}")
    privatize = "privatize x.npy x.codes --spec spec.json"
    again = f"{privatize} --ids ids.txt --ledger book"
    for words in (f"build x.npy other --ids ids.txt {options}", again):
        fails(run(words), TWICE)
    prints("add ix x.npy --ids new.txt --ledger book")
    output = prints(f"{again} --allow-rerelease")
    assert "12 ids, 2 releases each: epsilon = 2 (pure DP) under attribute(beta=1)." in output
    assert "12 ids, 1 release each: epsilon = 1" in prints("ledger book")
    booked = prints("ledger book --json")
    facts = json.loads(booked)
    assert [total["ids"] for total in facts["totals"]] == [12, 12]
    assert [release["ids"] for release in facts["releases"]] == [12, 12, 12]
    privatize = privatize.replace("x.codes", "y.codes")
    for words, message in (
        (f"build x.npy other {options}", "give every vector an id (--ids)"),
        (f"{privatize} --ids ids.txt", "name the ledger (--ledger)"),
        (f"{privatize} --allow-rerelease", "name the ledger (--ledger)"),
        ("add ix x.codes --ids new.txt --ledger book", "holds codes"),
        ("add ix x.npy --ids ids.txt --ledger book", "already in the index"),
        ("add ix x.npy --ids newer.txt --ledger ix/book", "meant to be published"),
        ("ledger nowhere", "check the path"),
    ):
        fails(run(words), message)
    assert prints("ledger book --json") == booked


def test_low_constraints_of_a_foreign_ledger_do_not_run(ledger):
    told(ledger, "a")
    with closing(sqlite3.connect(ledger.path)) as db, db:
        (text,) = db.execute("SELECT sql FROM sqlite_master WHERE name = 'releases'").fetchone()
        db.execute("PRAGMA writable_schema = ON")
        # It overflows when it runs, which ends in another error than that of a foreign schema.
        foreign = text[:-1] + ", CHECK (abs(id - 1 - 9223372036854775807 - 1) > 0))"
        db.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'releases'", (foreign,))
    with pytest.raises(DamagedError, match="is damaged; restore it"):
        ledger.totals()


def test_persons_whose_names_are_nearly_alike_are_told_apart(tmp_path):
    """Capitals, what follows a space, accents written in two ways, and long names."""
    names = ["Ann", "ann", "ann smith", "ann jones", "ann ", "Ren\u00e9", "Rene\u0301"]
    names += ["\ufb01n", "fin", *("x" * 200 + end for end in "ab")]
    ledger = Ledger(tmp_path / "ledger")
    for name in names:
        assert told(ledger, name) == 0
        with refuses(TWICE):
            told(ledger, name)
    assert counted(ledger) == [(len(names), 1)]
