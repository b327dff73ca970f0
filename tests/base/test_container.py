"""The common container and its files: what is refused, and in which words."""

import errno
import gc
import os
from pathlib import Path

import numpy as np
import pytest
from helpers.common import flipped, needs_posix, python, refuses

from dpindex.base.arrays import release_pages
from dpindex.base.files import (
    create_file,
    map_file,
    pack,
    parse_file,
    unpack,
    write_file,
)

DATA = {"x": np.arange(6, dtype=np.int16).reshape(2, 3), "y": np.ones(2)}


def test_round_trip():
    packed = pack("sketch", {"a": [1, None]}, DATA)
    facts, arrays = unpack(packed, "sketch")
    assert facts == {"a": [1, None]}
    for name, array in DATA.items():
        assert (arrays[name] == array).all()


@pytest.mark.parametrize(
    "kind, not_one, damaged",
    [
        ("codes", "these bytes hold no dpindex codes", "the bytes of the codes are damaged"),
        ("sketch", "these bytes hold no dpindex sketch", "the bytes of the sketch are damaged"),
    ],
)
def test_words_for_one_and_for_several(kind, not_one, damaged):
    raw = pack(kind, {}, DATA)
    with refuses(not_one):
        unpack(b"x" * 100, kind)
    with refuses(damaged):
        unpack(flipped(raw, -1), kind)
    with refuses("are cut off or too many"):
        unpack(raw + b"x", kind)
    with refuses("format version 9; this is version 2"):
        unpack(raw[:4] + b"\t" + raw[5:], kind)
    with refuses("these bytes are dpindex ids, no"):
        unpack(pack("ids", {}, {}), kind)


@pytest.mark.parametrize("kind", ["a\nb", "", "x" * 10**6])
def test_a_foreign_kind_does_not_flood_the_message(kind):
    with refuses() as caught:
        unpack(pack(kind, {}, {}), "codes")
    assert len(str(caught.value)) < 200
    assert "\n" not in str(caught.value)


def test_a_new_file_never_replaces_one(tmp_path):
    path = tmp_path / "a"
    create_file(path, b"first")
    with refuses(r"a already exists; choose another name"):
        create_file(path, b"second")
    assert path.read_bytes() == b"first"
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with refuses("already exists"):
        create_file(tmp_path / "link", b"third")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("write", [create_file, write_file])
def test_a_full_disk_is_told_by_the_name_of_the_file(tmp_path, monkeypatch, write):
    def full(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: .*my\.plan"):
        write(tmp_path / "my.plan", b"bytes")
    assert not [*tmp_path.iterdir()]


def test_a_fault_in_a_file_names_it(tmp_path):
    create_file(tmp_path / "a", b"bytes")
    assert parse_file(tmp_path / "a", 5, len) == 5
    with refuses(r"a: these bytes hold no dpindex codes"):
        parse_file(tmp_path / "a", 5, lambda data: unpack(data, "codes"))


@pytest.mark.slow
def test_a_mapped_file_stays_as_it_was_when_it_is_replaced_or_deleted(tmp_path):
    path = tmp_path / "a"
    other = tmp_path / "b"
    path.write_bytes(pack("codes", {}, DATA))
    other.write_bytes(b"x" * 10_000)
    _, arrays = unpack(map_file(path, 10_000), "codes")
    assert not arrays["x"].flags.writeable
    os.replace(other, path)
    path.unlink()
    gc.collect()
    for _ in range(2):
        assert (arrays["x"] == DATA["x"]).all()
        release_pages(arrays["x"])


def test_other_arrays_keep_their_pages():
    for array in (np.arange(9)[2:], np.frombuffer(b"12345678", np.uint8)):
        before = array.copy()
        release_pages(array)
        assert (array == before).all()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at this process's files")
def test_a_mapped_file_and_its_descriptor_are_given_back(tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 10_000)

    def seen():
        maps = Path("/proc/self/maps").read_text()
        return len(os.listdir("/proc/self/fd")), str(tmp_path / "a") in maps

    files, _ = seen()
    view = map_file(tmp_path / "a", 10_000)
    assert seen() == (files + 1, True)
    del view
    gc.collect()
    assert seen() == (files, False)


_MANY = """
import resource, sys
from dpindex.base.files import map_file
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
views = [map_file(sys.argv[1], 10) for _ in range(200)]
print(sum(len(view) for view in views))
"""


@needs_posix
def test_more_files_are_mapped_than_the_soft_limit_allows(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    assert python("-c", _MANY, tmp_path / "a") == "1000\n"


def test_what_cannot_be_mapped_is_refused_in_the_words_of_reading(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "empty").write_bytes(b"")
    assert bytes(map_file(tmp_path / "a", 5)) == b"12345"
    assert bytes(map_file(tmp_path / "empty", 5)) == b""
    with refuses("at most 4"):
        map_file(tmp_path / "a", 4)
    with refuses("symbolic link"):
        map_file(tmp_path / "link", 5, links=False)
    with refuses("cannot be read"):
        map_file(tmp_path / "none", 5)
