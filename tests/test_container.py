"""The common container and its files: what is refused, and in which words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dpindex.errors import InputError
from dpindex.files import create_file, pack, parse_file, unpack

DATA = {"x": np.arange(6, dtype=np.int16).reshape(2, 3), "y": np.ones(2)}


def test_round_trip() -> None:
    facts, arrays = unpack(pack("sketch", {"a": [1, None]}, DATA), "sketch")
    assert facts == {"a": [1, None]}
    assert all((arrays[name] == array).all() for name, array in DATA.items())


@pytest.mark.parametrize(
    ("kind", "not_one", "damaged"),
    [
        ("codes", "these bytes are not dpindex codes", "these codes are damaged"),
        ("sketch", "these bytes are not a dpindex sketch", "this sketch is damaged"),
    ],
)
def test_words_for_one_and_for_several(kind: str, not_one: str, damaged: str) -> None:
    raw = pack(kind, {}, DATA)
    with pytest.raises(InputError, match=not_one):
        unpack(b"x" * 100, kind)
    with pytest.raises(InputError, match=damaged):
        unpack(raw[:-1] + bytes([raw[-1] ^ 1]), kind)
    with pytest.raises(InputError, match=r"cut off or ha(s|ve) bytes too many"):
        unpack(raw + b"x", kind)
    with pytest.raises(InputError, match="format version 9; this is version 2"):
        unpack(raw[:4] + b"\t" + raw[5:], kind)
    with pytest.raises(InputError, match="these bytes are dpindex ids, not"):
        unpack(pack("ids", {}, {}), kind)


@pytest.mark.parametrize("kind", ["a\nb", "", "x" * 10**6])
def test_a_foreign_kind_does_not_flood_the_message(kind: str) -> None:
    with pytest.raises(InputError) as caught:
        unpack(pack(kind, {}, {}), "codes")
    assert len(str(caught.value)) < 200
    assert "\n" not in str(caught.value)


def test_a_new_file_never_replaces_one(tmp_path: Path) -> None:
    path = tmp_path / "a"
    create_file(path, b"first")
    with pytest.raises(InputError, match=r"a already exists; choose another name"):
        create_file(path, b"second")
    assert path.read_bytes() == b"first"
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="already exists"):
        create_file(tmp_path / "link", b"third")
    assert not (tmp_path / "elsewhere").exists()


def test_a_fault_in_a_file_names_it(tmp_path: Path) -> None:
    create_file(tmp_path / "a", b"bytes")
    assert parse_file(tmp_path / "a", 5, len) == 5
    with pytest.raises(InputError, match=r"a: these bytes are not dpindex codes"):
        parse_file(tmp_path / "a", 5, lambda data: unpack(data, "codes"))
