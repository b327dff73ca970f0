"""The ledger: nothing is released twice unseen, nobody is named, no crash makes it forget."""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from dpindex import InputError, Ledger, PrivateIndex, Spec, attribute
from dpindex.cli import app
from dpindex.files import lock as locked
from dpindex.index import IndexDirectory, Settings
from dpindex.index.ingest import NewDirectory, ingest
from dpindex.ledger import records
from dpindex.privatizer import Privatizer
from dpindex.vectors import as_source

SPEC = Spec("dp-oporp-staircase", dim=6, k=2, epsilon=1.0)
TWICE = "was released before"
IDS = [f"person-{i}" for i in range(12)]
VECTORS = np.random.default_rng(0).uniform(-1, 1, (12, 6))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "private" / "ledger")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()


def shown(ledger: Ledger) -> list[tuple[int, int, list[float]]]:
    return [(t.ids, t.releases, [g.epsilon for g in t.guarantees]) for t in ledger.totals()]


def test_a_second_release_is_refused_or_counted(ledger: Ledger) -> None:
    assert ledger.record(SPEC, ["a", "b", "c"]) == 0
    for again in (ledger, Ledger(ledger.path)):
        with pytest.raises(InputError, match=r"id 'b' \(row 1\) was released before, as were 1"):
            again.record(SPEC, ["d", "b"])
    assert shown(ledger) == [(3, 1, [1.0])]
    assert ledger.record(SPEC.with_epsilon(0.5), ["d", "b"], allow_rerelease=True) == 1
    assert ledger.record(SPEC, ["b"], allow_rerelease=True) == 1
    assert shown(ledger) == [(1, 3, [2.5]), (2, 1, [1.0]), (1, 1, [0.5])]
    assert [(e.count, e.spec.epsilon) for e in ledger.entries()] == [(3, 1.0), (2, 0.5), (1, 1.0)]
    assert [str(t) for t in ledger.totals(["b"])] == [
        "1 ids, 3 releases each: epsilon = 2.5 (pure DP) under attribute(beta=1)"
    ]


def test_the_order_of_releases_does_not_split_a_total(ledger: Ledger) -> None:
    for ids in (["a"], ["b"]):
        ledger.record(SPEC, ids)
    ledger.record(SPEC.with_epsilon(2.0), ["a", "b"], allow_rerelease=True)
    ledger.record(SPEC, ["a"], allow_rerelease=True)
    ledger.record(SPEC, ["b"], allow_rerelease=True)
    assert shown(ledger) == [(2, 3, [4.0])]


def test_kinds_that_do_not_add_up_stand_side_by_side(ledger: Ledger) -> None:
    others = (
        Spec("dp-oporp-staircase", dim=6, k=2, epsilon=2.0, adjacency=attribute(0.5)),
        Spec("dp-oporp-staircase", dim=6, k=2, epsilon=3.0, scale=255.0),
        Spec("idp-signoporp-rr", dim=6, k=2, epsilon=4.0),
    )
    for spec in (SPEC, *others, SPEC):
        ledger.record(spec, [7], allow_rerelease=True)
    assert shown(ledger) == [(1, 5, [2.0, 2.0, 3.0, 4.0])]


def test_tight_totals(ledger: Ledger) -> None:
    spec = Spec("dp-oporp", dim=6, k=2, epsilon=1.0, delta=1e-6)
    for _ in range(4):
        ledger.record(spec, IDS, allow_rerelease=True)
    assert ledger.totals()[0].guarantees[0].epsilon == 4.0
    tight = ledger.totals(delta=1e-6)[0].guarantees[0]
    assert (tight.delta, tight.epsilon < 2.2) == (1e-6, True)


def test_ids_are_kept_as_keyed_digests(ledger: Ledger) -> None:
    ledger.record(SPEC, IDS)
    data, key = ledger.path.read_bytes(), ledger.key_path.read_bytes()
    for name in IDS:
        digest = hmac.new(key, b"id:" + name.encode(), hashlib.sha256).digest()
        assert digest[:16] in data
        guesses = (name.encode(), b"id:" + name.encode())
        assert all(g not in data and hashlib.sha256(g).digest()[:16] not in data for g in guesses)
    other = Ledger(ledger.path.with_name("other"))
    other.record(SPEC, IDS)
    assert other.key_path.read_bytes() != key
    digests = {bytes(d) for r in other._records() for d in r.digests}
    assert not digests & {bytes(d) for r in ledger._records() for d in r.digests}
    if os.name == "posix":
        modes = [stat.S_IMODE(p.stat().st_mode) for p in (ledger.path, ledger.key_path)]
        assert modes == [0o600, 0o600]


def test_numbers_and_their_text_are_one_id(ledger: Ledger) -> None:
    ledger.record(SPEC, np.array([7, 8]))
    for same in (["7"], 7, np.array(["8"]), [np.int32(8)]):
        with pytest.raises(InputError, match=TWICE):
            ledger.record(SPEC, same)
    ledger.record(SPEC, ["07", "7\0x", ""])


@pytest.mark.parametrize(
    ("ids", "message"),
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
def test_bad_ids_are_refused(ledger: Ledger, ids: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ledger.record(SPEC, ids)


def test_whatever_is_left_of_the_last_entry_it_was_not_released(ledger: Ledger) -> None:
    """A writer that dies before ``record`` returns has published nothing."""
    ledger.record(SPEC, ["a"])
    before = ledger.path.read_bytes()
    ledger.record(SPEC, ["b", "c"])
    after = ledger.path.read_bytes()
    for length in (
        *range(len(before), len(before) + 30, 3),
        *range(len(before) + 40, len(after), 37),
    ):
        ledger.path.write_bytes(after[:length])
        assert shown(ledger) == [(1, 1, [1.0])]
        assert ledger.record(SPEC, ["b", "c"]) == 0
        assert shown(ledger) == [(3, 1, [1.0])]
        assert len(ledger.path.read_bytes()) == len(after)


def test_every_changed_bit_is_noticed(ledger: Ledger) -> None:
    ledger.record(SPEC, ["a"])
    ledger.record(SPEC, ["b", "c"])
    data = bytearray(ledger.path.read_bytes())
    for place in (*range(60), *range(60, len(data), 11)):
        data[place] ^= 1 << place % 8
        ledger.path.write_bytes(data)
        with pytest.raises(InputError, match=r"damaged|not a ledger|not the key"):
            ledger.record(SPEC, ["d"])
        data[place] ^= 1 << place % 8
    ledger.path.write_bytes(data)
    ledger.record(SPEC, ["d"])


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_read_or_refused(tmp_path_factory: Any, data: bytes, ours: bool) -> None:
    path = tmp_path_factory.mktemp("any") / "ledger"
    path.write_bytes(records.MAGIC + bytes(16) + data if ours else data)
    try:
        Ledger(path).totals()
    except InputError:
        assert not ours or len(data) >= 28


def test_a_declared_size_costs_no_memory(ledger: Ledger) -> None:
    ledger.record(SPEC, ["a"])
    with ledger.path.open("r+b") as file:
        file.truncate((1 << 33) + 1)  # a hole, no bytes
    with pytest.raises(InputError, match="larger than a ledger may be"):
        ledger.totals()


def test_a_missing_or_wrong_key_or_ledger(ledger: Ledger, tmp_path: Path) -> None:
    ledger.record(SPEC, ["a"])
    key = ledger.key_path.read_bytes()
    ledger.key_path.write_bytes(bytes(32))
    with pytest.raises(InputError, match="not the key of"):
        ledger.record(SPEC, ["b"])
    ledger.key_path.write_bytes(key[:-1])
    with pytest.raises(InputError, match="not the key of a ledger"):
        ledger.record(SPEC, ["b"])
    ledger.key_path.unlink()
    with pytest.raises(InputError, match=r"ledger\.key cannot be opened"):
        ledger.record(SPEC, ["b"])
    assert shown(ledger) == [(1, 1, [1.0])]  # an auditor needs no key
    ledger.key_path.write_bytes(key)
    ledger.path.unlink()
    with pytest.raises(InputError, match="is missing, but its key is there"):
        ledger.record(SPEC, ["a"])
    with pytest.raises(InputError, match="cannot be opened"):
        ledger.totals()
    with pytest.raises(InputError, match="cannot be written"):
        Ledger(tmp_path / "nowhere" / "ledger").record(SPEC, ["a"])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
def test_only_plain_files(ledger: Ledger) -> None:
    os.mkfifo(ledger.path)
    with pytest.raises(InputError, match="not a plain file"):
        ledger.totals()
    with pytest.raises(InputError):
        ledger.record(SPEC, ["a"])


@pytest.mark.skipif(os.name != "posix", reason="needs advisory locks")
def test_one_writer_at_a_time(ledger: Ledger) -> None:
    ledger.record(SPEC, ["a"])
    with ledger.path.open("rb") as file:
        assert locked(file.fileno())
        with pytest.raises(InputError, match="written by another process"):
            ledger.record(SPEC, ["b"])
    ledger.record(SPEC, ["b"])


@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
def test_what_could_not_be_written_is_taken_back(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, fault: BaseException
) -> None:
    ledger.record(SPEC, ["a"])
    before = ledger.path.read_bytes()

    def fsync(handle: int) -> None:
        raise fault

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises((InputError, KeyboardInterrupt)):
            ledger.record(SPEC, ["b"])
    assert ledger.path.read_bytes() == before


def test_an_index_remembers_removed_ids_by_its_ledger(ledger: Ledger) -> None:
    index = PrivateIndex(SPEC)
    index.add(VECTORS, IDS, ledger=ledger)
    index.remove(IDS[:3])
    with pytest.raises(InputError, match=TWICE):
        index.add(VECTORS[:3], IDS[:3], ledger=ledger)
    with pytest.raises(InputError, match=TWICE):
        PrivateIndex(SPEC).add(VECTORS[3], [IDS[3]], ledger=ledger)
    assert len(index) == 9
    index.add(VECTORS[:3], IDS[:3], ledger=ledger, allow_rerelease=True)
    assert (len(index), shown(ledger)) == (12, [(3, 2, [2.0]), (9, 1, [1.0])])


def test_what_is_refused_costs_nothing(ledger: Ledger) -> None:
    index = PrivateIndex(SPEC)
    for vectors, ids in ((VECTORS * 2, IDS), (VECTORS, IDS[:3]), (VECTORS, None)):
        with pytest.raises(InputError):
            index.add(vectors, ids, ledger=ledger)
    assert not ledger.path.exists()
    with pytest.raises(InputError, match="name the ledger"):
        index.add(VECTORS, IDS, allow_rerelease=True)


def test_counted_before_the_codes_exist(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    def privatize(*_: Any, **__: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(Privatizer, "privatize", privatize)
    with pytest.raises(MemoryError):
        PrivateIndex(SPEC).add(VECTORS, IDS, ledger=ledger)
    assert shown(ledger) == [(12, 1, [1.0])]


def build(path: Path, ledger: Ledger | None, **options: Any) -> int:
    options = {"ids": IDS, "ledger": ledger, **options}
    return ingest(as_source(VECTORS), NewDirectory(path, Settings(SPEC)), **options)


@pytest.mark.parametrize("fail_at", range(6))
def test_a_build_is_counted_once_however_often_it_dies(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fail_at: int
) -> None:
    """Killed before any of its commits; taken up, it is still one release of every id."""
    monkeypatch.setattr("dpindex.index.ingest._CHUNK_BYTES", 3 * 6 * 8)  # three rows
    commits = 0
    commit = IndexDirectory.commit

    def dying(self: IndexDirectory, manifest: Any) -> Any:
        nonlocal commits
        commits += 1
        if commits == fail_at + 1:
            raise KeyboardInterrupt
        return commit(self, manifest)

    monkeypatch.setattr(IndexDirectory, "commit", dying)
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "index", ledger)
    assert ledger.path.exists() == (fail_at > 0)  # counted before the first code
    build(tmp_path / "index", ledger)
    assert shown(ledger) == [(12, 1, [1.0])]
    assert sorted(PrivateIndex.open(tmp_path / "index").ids) == sorted(IDS)
    with pytest.raises(InputError, match=TWICE):
        build(tmp_path / "second", ledger)
    assert not (tmp_path / "second").exists()
    build(tmp_path / "second", ledger, allow_rerelease=True)
    assert shown(ledger) == [(12, 2, [2.0])]


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_killed_builds_are_counted_once(ledger: Ledger, tmp_path: Path) -> None:
    """kill −9 after the first segment, in the middle of the second."""
    script = (
        "import os, signal, sys, numpy as np\n"
        "import dpindex.index.ingest as b\n"
        "from dpindex import Ledger, Privatizer, Spec\n"
        "from dpindex.index import Settings\n"
        "from dpindex.vectors import as_source\n"
        "path, book, spec, left = sys.argv[1:]\n"
        "b._CHUNK_BYTES = 3 * 6 * 8\n"
        "left, privatize = int(left), Privatizer.privatize\n"
        "def dying(self, x, **options):\n"
        "    global left\n"
        "    if not left: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    left -= 1\n"
        "    return privatize(self, x, **options)\n"
        "Privatizer.privatize = dying\n"
        "vectors = np.random.default_rng(0).uniform(-1, 1, (12, 6))\n"
        "ids = [f'person-{i}' for i in range(12)]\n"
        "source, settings = as_source(vectors), Settings(Spec.from_json(spec))\n"
        "b.ingest(source, b.NewDirectory(path, settings), ids=ids, ledger=Ledger(book))\n"
    )
    words = [str(tmp_path / "index"), str(ledger.path), SPEC.to_json()]
    for left, code in (("1", -9), ("9", 0)):
        done = subprocess.run([sys.executable, "-c", script, *words, left], check=False)
        assert done.returncode == code
        assert shown(ledger) == [(12, 1, [1.0])]
    assert len(PrivateIndex.open(tmp_path / "index")) == 12


def test_a_build_needs_ids_and_a_ledger_of_its_own_place(ledger: Ledger, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give every vector an id"):
        build(tmp_path / "index", ledger, ids=None)
    with pytest.raises(InputError, match="meant to be published"):
        build(tmp_path / "index", Ledger(tmp_path / "index" / "ledger"))
    with pytest.raises(InputError, match="name the ledger"):
        build(tmp_path / "index", None, allow_rerelease=True)
    assert not (tmp_path / "index").exists()
    build(tmp_path / "index", ledger)
    index = PrivateIndex.open(tmp_path / "index")
    with pytest.raises(InputError, match="meant to be published"):
        index.add(VECTORS[0], ["new"], ledger=Ledger(tmp_path / "index" / "ledger"))


def test_nothing_of_it_is_published(ledger: Ledger, tmp_path: Path) -> None:
    build(tmp_path / "index", ledger)
    published = b"".join(p.read_bytes() for p in (tmp_path / "index").rglob("*") if p.is_file())
    key = ledger.key_path.read_bytes()
    digests = [bytes(d) for r in ledger._records() for d in r.digests]
    for secret in (key, key.hex().encode(), str(ledger.path).encode(), *digests):
        assert secret not in published
    names = {p.name for p in (tmp_path / "index").rglob("*")}
    assert not any("ledger" in name or "key" in name or "source" in name for name in names)


def test_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", VECTORS)
    Path("ids.txt").write_text("\n".join(IDS))
    Path("new.txt").write_text("\n".join(f"new-{i}" for i in range(12)))
    Path("spec.json").write_text(SPEC.to_json())

    def run(words: str) -> str:
        done = CliRunner().invoke(app, words.split())
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == 0, done.output
        return done.output

    options = "--method dp-oporp-staircase --epsilon 1 --k 2 --ledger book"
    assert "In total" not in run(f"build x.npy ix --ids ids.txt {options}")
    for words in (
        f"build x.npy other --ids ids.txt {options}",
        "privatize x.npy x.codes --spec spec.json --ids ids.txt --ledger book",
    ):
        with pytest.raises(InputError, match=TWICE):
            run(words)
    run("add ix x.npy --ids new.txt --ledger book")
    output = run(
        "privatize x.npy x.codes --spec spec.json --ids ids.txt --ledger book --allow-rerelease"
    )
    assert "12 ids, 2 releases each: epsilon = 2 (pure DP) under attribute(beta=1)." in output
    assert "12 ids, 1 release each: epsilon = 1" in run("ledger book")
    facts = json.loads(run("ledger book --json"))
    assert [total["ids"] for total in facts["totals"]] == [12, 12]
    assert [release["ids"] for release in facts["releases"]] == [12, 12, 12]
    for words, message in (
        (f"build x.npy other {options}", "name a file of ids"),
        ("privatize x.npy y.codes --spec spec.json --ids ids.txt", "name it with --ledger"),
        ("privatize x.npy y.codes --spec spec.json --allow-rerelease", "name it with --ledger"),
        ("add ix x.codes --ids new.txt --ledger book", "holds codes"),
        ("add ix x.npy --ids ids.txt --ledger book", "already in the index"),
        ("add ix x.npy --ids new.txt --ledger ix/book", "meant to be published"),
        ("ledger nowhere", "cannot be opened"),
    ):
        with pytest.raises(InputError, match=message):
            run(words)
    assert [total["ids"] for total in json.loads(run("ledger book --json"))["totals"]] == [12, 12]
