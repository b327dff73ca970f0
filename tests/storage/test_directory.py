"""The directory on disk: whatever is changed in it is noticed, and nothing outside is touched."""

import json
import os
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.common import attribute_spec, codes_of, refuses
from independent.by_hand import resealed, write_index_by_hand

from dpindex.index.private_index import PrivateIndex
from dpindex.mechanism.codes import NumberFormat
from dpindex.mechanism.spec import Spec
from dpindex.storage.code_store import rows_per_segment
from dpindex.storage.contents import IndexFiles
from dpindex.storage.directory import IndexDirectory
from dpindex.storage.manifest import Settings

SPEC = attribute_spec("dp-oporp-staircase", 6, k=3, epsilon=2.0)


def _codes(n=4, spec=SPEC):
    return codes_of(spec, np.full((n, spec.dim), 0.5))


@pytest.fixture
def saved(tmp_path):
    """Two segments of four rows, string ids, and a query epsilon."""
    index = PrivateIndex(SPEC, query_epsilon=3.0)
    for start in (0, 4):
        names = [f"id{i}" for i in range(start, start + 4)]
        index.add_codes(_codes(), ids=names)
        index.save(tmp_path / "index")
    return tmp_path / "index"


def _files(path):
    there = [file for file in sorted(path.rglob("*")) if file.is_file()]
    return [file for file in there if file.name != ".lock"]


def _refused(path):
    with refuses():
        PrivateIndex.open(path)


def _refused_by_reader(path):
    """The quick half of ``open``."""
    directory = IndexDirectory(path)
    with refuses():
        list(IndexFiles(directory.path, directory.manifest()).segments())


def test_only_what_belongs_is_there(saved):
    names = [str(file.relative_to(saved)) for file in _files(saved)]
    assert names == [
        "ids/000000.ids",
        "ids/000001.ids",
        "manifest.json",
        "segments/000000.codes",
        "segments/000001.codes",
    ]
    manifest = json.loads((saved / "manifest.json").read_text())
    assert manifest["count"] == 8
    assert manifest["guarantee"]["epsilon"] == 2.0
    assert Spec.from_json(json.dumps(manifest["spec"])) == SPEC


@pytest.mark.slow
def test_every_flipped_bit_is_noticed(saved):
    for number, file in enumerate(_files(saved)):
        data = bytearray(file.read_bytes())
        for place in range(len(data)):
            bit = 1 << ((place + number) % 8)  # one bit of every byte
            data[place] ^= bit
            file.write_bytes(data)
            _refused_by_reader(saved)
            data[place] ^= bit
        file.write_bytes(data)
    assert len(PrivateIndex.open(saved)) == 8


@pytest.mark.slow
def test_every_truncation_and_extension_is_noticed(saved):
    for file in _files(saved):
        good = file.read_bytes()
        step = 1 if len(good) < 200 else 13
        for size in range(0, len(good), step):
            file.write_bytes(good[:size])
            _refused_by_reader(saved)
        for more in (b"\0", b"\n", b" ", good):
            file.write_bytes(good + more)
            _refused_by_reader(saved)
        file.write_bytes(good)
    assert len(PrivateIndex.open(saved)) == 8


@pytest.mark.parametrize("kind", ["segments/{}.codes", "ids/{}.ids"])
def test_swapped_missing_and_renamed_files_are_noticed(saved, kind):
    first = saved / kind.format("000000")
    second = saved / kind.format("000001")
    spare = saved / "spare"
    first.rename(spare)
    _refused(saved)
    second.rename(first)
    _refused(saved)
    spare.rename(second)
    _refused(saved)
    shutil.copy(second, first)
    _refused(saved)


def test_links_pipes_and_folders_are_not_read(saved, tmp_path):
    for name in ("segments/000000.codes", "ids/000001.ids", "manifest.json"):
        file = saved / name
        aside = tmp_path / "aside"
        file.rename(aside)
        file.symlink_to(aside)
        _refused(saved)
        file.unlink()
        os.mkfifo(file)  # opening one for reading would wait for ever
        _refused(saved)
        file.unlink()
        file.mkdir()
        _refused(saved)
        file.rmdir()
        aside.rename(file)
    assert len(PrivateIndex.open(saved)) == 8
    (saved / "segments").rename(tmp_path / "segments")
    (saved / "segments").symlink_to(tmp_path / "segments")
    _refused(saved)


FORGED = {
    "format": [1, 3, "2"],
    "count": [7, True],
    "next_number": [1, 1.5],
    "metric": ["dot", ["cosine"]],
    "index_type": ["f8", None],
    "query_epsilon": [-1.0, "3", {}],
    "segments": [None, {}, "00", [1]],
    "segments 000000": [0, -4, 4.0, None, 5],
    "segments 000002": [1],
    "files": [[]],
    "files ../secret": [{"bytes": 1, "sha256": "0" * 64}],
    "files ids/000000.ids bytes": [2**62, -1, "9"],
    "files ids/000000.ids sha256": ["0" * 64, None],
    "spec": [None],
    "spec epsilon": [1.0, None],
    "spec seed": [1],
    "spec method": ["none-oporp", ["x"]],
    "spec dim": [-1],
    "spec extra": [1],
    "guarantee": [None],
    "guarantee epsilon": [0.1],
    "denoiser": ["000002", "000000", 2],
    "crowding": [-0.1, float("nan"), "much", True, [0.5]],
}
"""What stands at a place of a manifest instead."""

LEFT_OUT = "spec crowding segments files count metric index_type query_epsilon guarantee format"


def _changed(name, value):
    return lambda folder: folder.update({name: value})


def _without(name):
    return lambda folder: folder.pop(name)


def _renamed(old, new):
    return lambda folder: folder.update({new: folder.pop(old)})


def _forgeries():
    """Where in a manifest something is changed, and how."""
    for place, values in FORGED.items():
        *folders, name = place.split()
        for value in values:
            yield folders, _changed(name, value)
    for name in LEFT_OUT.split():
        yield [], _without(name)
    yield ["segments"], _without("000001")
    yield ["segments"], lambda segments: segments.update({"000000": 5, "000001": 3})
    for name in ("../../etc/passwd", "0", "000000\n", "000005"):
        yield ["segments"], _renamed("000000", name)
    yield ["files"], _without("ids/000000.ids")
    yield ["files"], lambda files: files.update({"ids/000000.ids": files["ids/000001.ids"]})


def test_a_manifest_edited_with_care_is_still_refused(saved):
    whole = (saved / "manifest.json").read_bytes()
    for number, (folders, edit) in enumerate(_forgeries()):
        (saved / "manifest.json").write_bytes(whole)
        with resealed(saved) as data:
            for name in folders:
                data = data[name]
            edit(data)
        with refuses():
            assert not PrivateIndex.open(saved), f"forgery {number}"


@pytest.mark.parametrize("stated", [1.0, 254.0])
def test_finding_3_a_manifest_states_the_adjacency_in_units_of_the_attribute(tmp_path, stated):
    index = PrivateIndex(replace(SPEC, scale=255.0))
    index.save(tmp_path / "i")
    manifest = json.loads((tmp_path / "i/manifest.json").read_text())
    assert manifest["guarantee"]["adjacency"] == {"kind": "attribute", "beta": 255.0}
    assert PrivateIndex.open(tmp_path / "i").spec.guarantee.adjacency.size == 255.0
    with resealed(tmp_path / "i") as data:
        data["guarantee"]["adjacency"]["beta"] = stated
    _refused(tmp_path / "i")


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "null", "1" * 10_000, "[" * 100_000, '{"format": 1}', "\xff", '{"a": NaN}'],
)
def test_a_manifest_that_is_none_is_refused(saved, text):
    (saved / "manifest.json").write_bytes(text.encode("latin-1"))
    _refused(saved)


def test_duplicate_ids_across_segments_are_refused(tmp_path):
    segment = (_codes(2), [1, 2])
    write_index_by_hand(tmp_path / "i", Settings(SPEC), [segment, segment])
    with refuses("have the same id"):
        PrivateIndex.open(tmp_path / "i")


def test_unnamed_files_are_discarded_unread_and_others_are_left(saved):
    (saved / "segments" / "000002.codes").write_bytes(b"half a segm")
    (saved / "ids" / "000002.ids.tmp").write_bytes(b"")
    (saved / "segments" / "README").write_text("mine")
    index = PrivateIndex.open(saved)
    index.add_codes(_codes(1), ids=["new"])
    index.save(saved)
    assert len(PrivateIndex.open(saved)) == 9
    assert (saved / "segments" / "README").read_text() == "mine"
    assert not list(saved.rglob("*.tmp"))


def test_saving_follows_no_link_out_of_the_directory(saved, tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "000009.codes").write_text("mine")
    (precious / "letter").write_text("mine")
    index = PrivateIndex.open(saved)
    for name in ("manifest.json.tmp", "segments/000002.codes.tmp", "ids/000002.ids.tmp"):
        (saved / name).symlink_to(precious / "letter")
    index.add_codes(_codes(1), ids=["new"])
    index.save(saved)
    assert (precious / "letter").read_text() == "mine"

    shutil.rmtree(saved / "segments")
    (saved / "segments").symlink_to(precious)
    index.add_codes(_codes(1), ids=["newer"])
    with refuses("symbolic link"):
        index.save(saved)
    left = {file.name for file in precious.iterdir()}
    assert left == {"000009.codes", "letter"}


@pytest.mark.parametrize("there", [True, False])
def test_finding_9_a_planted_lock_is_not_followed(saved, tmp_path, there):
    """Neither opened, nor made where a dangling link points."""
    victim = tmp_path / "letter"
    if there:
        victim.write_text("mine")
    (saved / ".lock").unlink(missing_ok=True)
    (saved / ".lock").symlink_to(victim)
    index = PrivateIndex.open(saved)
    index.add_codes(_codes(1), ids=["new"])
    with refuses("cannot be written"):
        index.save(saved)
    assert victim.exists() == there
    assert not there or victim.read_text() == "mine"


def test_an_index_that_was_moved_while_open_is_saved_elsewhere(saved, tmp_path):
    index = PrivateIndex.open(saved)
    index.add_codes(_codes(1), ids=["more"])
    os.rename(saved, tmp_path / "moved")
    with refuses("was moved or removed since this index was opened; save it at another place"):
        index.save(saved)
    index.save(tmp_path / "another")
    assert len(PrivateIndex.open(tmp_path / "another")) == len(index)


def test_segments_stay_small():
    wide = attribute_spec("raw-staircase", 50_000, epsilon=1.0)
    assert rows_per_segment(wide) * 4 * wide.code_length <= 1 << 25
    assert rows_per_segment(SPEC) == 65536


@pytest.mark.slow
def test_a_segment_has_a_row():
    numbers = NumberFormat(9 << 20, bytes(16), 1.0, 0.0)  # a spec of so many takes seconds
    huge = SimpleNamespace(format=numbers)
    assert rows_per_segment(huge) == 1
