"""Files from strangers: whatever they declare, one sentence, exit code 2, little memory, no harm.

What every reader does with damaged bytes is tested beside it (test_codes, test_code_store,
test_directory, test_vectors, test_race_sketch); here are the things that a forger can get right.
"""

import json
import os
import pickle
import sys
from dataclasses import replace

import numpy as np
import pytest
from helpers.common import (
    attribute_spec,
    codes_of,
    filled_index,
    peak_memory,
    refuses,
    reopened,
    with_variant,
)
from independent.by_hand import resealed, write_index_by_hand

from dpindex import Blocks, Dense, Privatizer, Repeated, Spec, attribute, l2
from dpindex.base.files import read_file
from dpindex.base.ids import check_id_lengths
from dpindex.cli import main
from dpindex.cli.shared import print_facts
from dpindex.index.private_index import PrivateIndex
from dpindex.mechanism.codes import NumberFormat, SignFormat
from dpindex.race import PStable, RaceSketch, SketchSpec
from dpindex.storage.code_store import Ids
from dpindex.storage.directory import IndexDirectory
from dpindex.storage.manifest import Settings

SPEC = attribute_spec("dp-oporp-staircase", 6, k=3, epsilon=2.0)
HUGE = 2**31 - 1
MB = 1 << 20


def _forged(path, spec, codes, ids=(1, 2)):
    """An index whose hashes are all right, and which claims to be of ``spec``."""
    write_index_by_hand(path, Settings(spec), [(codes, ids)])
    return path


@pytest.mark.parametrize(
    "fields",
    [
        {"method": "dp-oporp-staircase"},
        {"method": "dp-oporp-staircase", "dim": 2**27, "k": 8},
        {"method": "dp-signoporp-rr", "dim": 2**20, "k": 2**10, "variant": Repeated(1024)},
        {"method": "raw-staircase"},
        {"method": "dp-rp-l", "k": 1},
        {"method": "dp-rp-l", "dim": 2**14, "k": 2**15},
        {"method": "dp-rp-l", "k": 2**20, "variant": Dense("very-sparse")},
        {"method": "dp-rp-l", "variant": Dense("uniform")},
        {"method": "dp-rp-l", "variant": Dense("gaussian")},
        {"method": "dp-sjlt-laplace", "k": 4},
        {"method": "dp-fjlt-gaussian", "delta": 1e-6},
        {"method": "dp-fjlt-gaussian", "delta": 1e-6, "dim": 2**13, "k": 2**20},
        {"method": "dp-signrp-rr"},
        {"method": "row-rp-g-opt", "delta": 1e-6, "adjacency": l2(1.0)},
    ],
)
def test_no_spec_makes_a_projection_that_is_too_large(fields):
    plain = {"adjacency": attribute(1.0), "dim": HUGE, "epsilon": 1.0}
    stated = Spec(**{**plain, **fields})
    spec = Spec.from_json(stated.to_json())
    with peak_memory() as peak, refuses(r"1 GB|2\^31 entries"):
        Privatizer(spec)
    assert peak.bytes < 8 * MB  # modules that are imported late


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"method": "dp-rp-l", "k": 2**20, "epsilon": 1e-3}, "more noise than a code can hold"),
        (
            {"method": "idp-signrp-g", "k": 2**17, "epsilon": 1e-3, "delta": 1e-30},
            "more noise than a code can hold",
        ),
        (
            {"method": "row-rp-g-direct", "epsilon": 1e-3, "delta": 1e-30, "adjacency": l2(1e-6)},
            "more noise than a code can hold|too wide",
        ),
        ({"method": "idp-signrp-rr", "k": 2**17}, "at most 65536 signs"),
        (
            {"method": "dp-rp-l", "entries": "very-sparse", "sparsity": 2**31},
            "from 1 to 65536",
        ),
        (
            {"method": "dp-sjlt-laplace", "k": 2**20, "sparsity": 2**20},
            "from 1 to 1024",
        ),
    ],
)
def test_no_spec_makes_a_table_that_is_too_large(fields, words):
    """Without these limits each of them works for minutes before it is refused."""
    stated = {"adjacency": attribute(1.0), "dim": 2, "epsilon": 1.0, **fields}
    with refuses(words):
        Privatizer(Spec(**with_variant(stated)))


def test_large_projections_that_are_meant_still_pass():
    shuffled = attribute_spec("dp-oporp-staircase", 2**20, k=64, epsilon=2.0)
    blocks = attribute_spec("dp-sjlt-laplace", 2**20, k=64, epsilon=2.0, variant=Blocks(1))
    for spec in (shuffled, blocks):
        assert spec.projection.dim == 2**20


def test_a_norm_that_takes_too_long_is_refused():
    from dpindex.mechanism.projections.dense import operator_norm

    with refuses("too long to bound"):
        ones = np.broadcast_to(np.int8(1), (1 << 14, 1 << 14))
        operator_norm(ones)


def test_an_index_is_read_before_its_projection_is_made(tmp_path):
    """What the manifest declares costs nothing while the codes do not bear it out."""
    other = replace(SPEC, dim=2**26)
    codes = codes_of(SPEC, np.zeros((2, 6)))
    index = _forged(tmp_path / "i", other, codes)
    with peak_memory() as peak, refuses("another spec"):
        PrivateIndex.open(index)
    assert peak.bytes < 8 * MB


def _numbers(k, mark):
    return NumberFormat(k, mark, 1.0, 0.0)


@pytest.mark.parametrize(
    "codes, words",
    [
        (lambda mark: SignFormat(3, mark).codes(np.zeros((2, 1), np.uint8)), "codes of 3 signs"),
        (lambda mark: _numbers(4, mark).codes(np.zeros((2, 4), np.int8)), "codes of 4 numbers"),
        (lambda mark: _numbers(3, mark).codes(np.zeros((1, 3), np.int8)), "rows it should"),
    ],
)
def test_codes_with_a_copied_fingerprint(tmp_path, codes, words):
    """Every hash and the fingerprint are right; only the form is wrong."""
    with refuses(words):
        index = _forged(tmp_path / "i", SPEC, codes(SPEC.fingerprint))
        PrivateIndex.open(index)


def test_a_manifest_of_another_index(tmp_path):
    codes = codes_of(SPEC, np.zeros((2, 6)))
    first = _forged(tmp_path / "a", SPEC, codes, (1, 2))
    second = _forged(tmp_path / "b", SPEC, codes, (3, 4))
    (first / "manifest.json").write_bytes((second / "manifest.json").read_bytes())
    with refuses("changed or damaged"):
        PrivateIndex.open(first)
    assert len(PrivateIndex.open(second)) == 2


def test_a_manifest_stays_small_enough_to_be_read(tmp_path, monkeypatch):
    """What could not be opened again is not committed."""
    index = filled_index(SPEC, np.zeros((1, 6)))
    index.save(tmp_path / "i")
    monkeypatch.setattr("dpindex.storage.manifest.MAX_MANIFEST_BYTES", 2000)
    with refuses("too many for one manifest"):
        _add_and_save(index, tmp_path / "i", times=20)
    assert 1 < len(PrivateIndex.open(tmp_path / "i")) < len(index)
    assert len(reopened(index, tmp_path / "j")) == len(index)


@pytest.mark.slow
def test_a_manifest_takes_memory_in_proportion(tmp_path):
    """The largest that is read has 16 MB: what parsing makes of it stays below 1 GB."""
    lists = b"[]," * (MB // 3 - 2)
    (tmp_path / "manifest.json").write_bytes(b"[" + lists + b"[]]")

    with peak_memory() as peak, refuses("not a manifest"):
        IndexDirectory(tmp_path).manifest()
    assert peak.bytes < 50 * MB


def test_a_declared_size_is_not_allocated(tmp_path):
    codes = codes_of(SPEC, np.zeros((2, 6)))
    index = _forged(tmp_path / "i", SPEC, codes)
    with resealed(index) as manifest:
        manifest["files"]["segments/000000.codes"]["bytes"] = 1 << 32

    with peak_memory() as peak, refuses("cut off"):
        PrivateIndex.open(index)
    assert peak.bytes < 8 * MB


def _add_and_save(index, path, times):
    for _ in range(times):
        index.add(np.zeros((1, 6)))
        index.save(path)


def test_one_long_id_among_many_short_ones():
    """An array of text is as wide as its longest: 1 MB of ids must not become 4 GB."""
    check_id_lengths(np.repeat([4096, 1], [1, 65535]))
    check_id_lengths(np.repeat([320, 20], [1, 10**7 - 1]))
    with refuses("all 300000 would be padded"):
        check_id_lengths(np.repeat([1000, 1], [1, 299_999]))
    with refuses("all 300001 would be padded"):
        Ids().check(["a"] * 300_000 + ["b" * 1000], 300_001)
    ids = Ids().grown(np.array(["x"]))
    same = np.broadcast_to(np.array(["y"]), (70_000,))
    ids = ids.grown(same)
    with refuses("would be padded"):
        ids.grown(np.array(["z" * 4096]))
    assert len(ids) == 70_001


def test_lines_of_ids_of_very_different_lengths(tmp_path):
    from dpindex.data import read_ids

    (tmp_path / "ids.txt").write_text("a\n" * 300_000 + "b" * 1000 + "\n")
    with refuses(r"ids\.txt: the longest id has 1000 characters"):
        read_ids(tmp_path / "ids.txt")


def test_only_plain_files_of_bounded_size(tmp_path):
    (tmp_path / "f").write_bytes(b"12345")
    assert read_file(tmp_path / "f", 5) == b"12345"
    with refuses("has 5 bytes; at most 4 are read"):
        read_file(tmp_path / "f", 4)
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "", "missing"):
        with refuses(r"plain file|cannot be read"):
            read_file(tmp_path / name, 4)
    with refuses("cannot be the name"):
        read_file("a\0b", 4)
    for read in (Spec.read, RaceSketch.open):
        with refuses("plain file"):
            read("/dev/zero" if os.path.exists("/dev/zero") else tmp_path)


class _Bomb:
    """Unpickling this writes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def _write_hostile(folder):
    zeros = np.zeros((4, 6), np.float32)
    np.save(folder / "x.npy", zeros)
    np.save(folder / "x.npy", np.zeros((4, 6), np.float32))
    (folder / "spec.json").write_text(SPEC.to_json())
    data = json.loads(SPEC.to_json())
    for name, change in {
        "huge": {"dim": HUGE, "k": 4},
        "long": {"k": 10**30},
        "deep": {"bounds": [[[]]]},
        "real": {"dim": 6.5},
        "inf": {"epsilon": 1e999},
        "list": {"method": []},
    }.items():
        forged = json.dumps({**data, **change})
        (folder / f"{name}.json").write_text(forged)
    (folder / "binary.json").write_bytes(bytes(range(256)))
    (folder / "nested.json").write_text("[" * 60_000)
    (folder / "vast.json").write_text(" " * 70_000)
    executed = _Bomb(str(folder / "executed"))
    bomb = pickle.dumps(executed)
    for name in ("bomb.npy", "bomb.npz", "bomb.hdf5", "bomb.parquet", "bomb.fvecs", "bomb.txt"):
        (folder / name).write_bytes(bomb)
    np.save(folder / "objects.npy", np.array([executed]), allow_pickle=True)
    np.savez(folder / "objects.npz", a=np.array([[executed]], object))
    (folder / "header.npy").write_bytes(
        b"\x93NUMPY\x01\x00v\x00"
        + b"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 6)}".ljust(117)
        + b"\n"
    )
    codes = codes_of(SPEC, zeros).to_bytes()
    (folder / "short.codes").write_bytes(codes[:-1])
    (folder / "magic.codes").write_bytes(b"DPIX")
    index = filled_index(SPEC, zeros)
    index.save(folder / "index")
    (folder / "faiss").mkdir()
    (folder / "faiss" / "manifest.json").write_bytes(b"IxFI" + bytes(100))
    spec = SketchSpec(6, 4, 8, PStable(1.0), 1.0)
    sketch = RaceSketch(spec).fit(zeros).release().to_bytes()
    (folder / "good.sketch").write_bytes(sketch)
    (folder / "cut.sketch").write_bytes(sketch[:-1])
    (folder / "bomb.sketch").write_bytes(bomb)
    (folder / "loop.npy").symlink_to(folder / "loop.npy")
    (folder / "folder.npy").mkdir()
    os.mkfifo(folder / "pipe.npy")


BUILD = "--method dp-oporp-staircase --epsilon 2"
COMMANDS = [
    *(f"privatize x.npy new --spec {name}.json" for name in ("huge", "long", "deep", "real")),
    *(f"privatize x.npy new --spec {name}.json" for name in ("inf", "list", "binary", "nested")),
    "privatize x.npy new --spec vast.json",
    "privatize x.npy new --spec index",
    "privatize x.npy new --spec pipe.npy",
    "audit huge.json --trials 10",
    "audit binary.json",
    *(f"build bomb.{kind} new {BUILD}" for kind in ("npy", "npz", "hdf5", "parquet", "fvecs")),
    *(f"build {name} new {BUILD}" for name in ("objects.npy", "objects.npz", "header.npy")),
    *(f"build {name}.npy new {BUILD}" for name in ("loop", "folder", "pipe", "missing")),
    f"build x.npy new {BUILD} --ids bomb.txt",
    f"build x.npy new {BUILD} --ids objects.npy",
    f"build x.npy new {BUILD} --ids pipe.npy",
    *(f"add index {name}" for name in ("short.codes", "magic.codes", "bomb.npy", "pipe.npy")),
    *(f"query index {name}" for name in ("short.codes", "objects.npy", "missing.npy")),
    "query faiss x.npy",
    "query . x.npy",
    "query x.npy x.npy",
    "info faiss",
    "info missing",
    "race query cut.sketch x.npy",
    "race query bomb.sketch x.npy",
    "race query pipe.npy x.npy",
    "race query index x.npy",
    "race query missing x.npy",
    "race query good.sketch objects.npy",
    "race build bomb.npy new --epsilon 1 --bandwidth 1",
]


@pytest.mark.slow
def test_every_command_says_one_sentence(tmp_path, monkeypatch, capsys):
    """Exit code 2, one line that names the file; nothing is written, lost or executed."""
    _write_hostile(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    for command in COMMANDS:
        monkeypatch.setattr(sys, "argv", ["dpindex", *command.split()])
        with pytest.raises(SystemExit) as stop:
            main()
        output = capsys.readouterr()
        assert stop.value.code == 2, (command, output)
        assert output.err.startswith("dpindex: "), (command, output.err)
        assert output.err.count("\n") == 1, (command, output.err)
        assert len(output.err) < 800, (command, output.err)
    after = sorted(tmp_path.rglob("*"))
    assert after == before
    assert len(PrivateIndex.open(tmp_path / "index")) == 4


def test_h2_lines_of_facts_are_escaped_where_they_are_printed(
    capsys,
):
    guarantee = attribute_spec("dp-oporp-staircase", 6, k=2, epsilon=60.0).guarantee
    print_facts(
        "x",
        {"payload": "year\n\x1b[2Jguarantee   epsilon = 0.1"},
        guarantee,
        6,
    )
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert not any(line.startswith("guarantee") for line in said.splitlines())
    assert "payload     year\\n\\x1b[2Jguarantee   epsilon = 0.1" in said
