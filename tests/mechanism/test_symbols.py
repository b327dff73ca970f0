"""Symbol codes: what is stored, what foreign bytes are refused, what is never in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpindex import InputError, codes_from_bytes
from dpindex.mechanism.codes import CodeFormat, SymbolCodes, SymbolFormat, check_format

MARK = bytes(range(16))
WORDS = np.random.default_rng(0).normal(size=(70, 5)).astype(np.float32)
FORMAT = SymbolFormat(1, MARK, 70, WORDS)


def _codes(symbols: Any, format_: SymbolFormat = FORMAT) -> SymbolCodes:
    return format_.codes(format_.pack(np.array(symbols)))


def test_bytes_round_trip_without_the_codewords() -> None:
    codes = _codes([3, 69, 0, 3])
    data = codes.to_bytes()
    assert WORDS[3].tobytes() not in data
    back = codes_from_bytes(data)
    assert isinstance(back, SymbolCodes)
    assert back.symbols.tolist() == [3, 69, 0, 3]
    assert back.format == FORMAT
    assert back.fingerprint == MARK
    with pytest.raises(InputError, match="codebook, which was not given"):
        back.to_float()
    np.testing.assert_array_equal(codes.to_float(), WORDS[[3, 69, 0, 3]])


def test_all_symbols_fit() -> None:
    full = SymbolFormat(1, MARK, 1 << 16)
    codes = _codes([0, 65535], full)
    assert codes.stored.dtype == np.uint16
    assert codes_from_bytes(codes.to_bytes()).symbols.tolist() == [0, 65535]  # type: ignore[attr-defined]
    assert (full.width, full.max_row_bytes, codes.k) == (1, 2, 1)


@pytest.mark.parametrize(
    ("stored", "fault"),
    [
        (np.zeros((2, 1), np.uint8), "are not symbols"),
        (np.zeros((2, 2), np.uint16), "are not symbols"),
        (np.full((2, 1), 70, np.uint16), "beyond the codebook"),
        (np.full((2, 1), 69, np.uint16), None),
        (np.zeros((0, 1), np.uint16), None),
    ],
)
def test_foreign_symbols(stored: Any, fault: str | None) -> None:
    found = FORMAT.fault(stored)
    assert found == fault if fault is None else fault in str(found)
    if fault is not None:
        broken = SymbolCodes(FORMAT, stored).to_bytes()
        with pytest.raises(InputError):
            codes_from_bytes(broken)


@pytest.mark.parametrize("size", [1, 65537, 2.0, True, "9"])
def test_sizes(size: Any) -> None:
    with pytest.raises(ValueError, match="symbols"):
        SymbolFormat(1, MARK, size)
    with pytest.raises(ValueError, match="symbols"):
        SymbolFormat(2, MARK, 70)


def test_formats_as_data() -> None:
    data = FORMAT.to_dict()
    assert data == {"code_length": 1, "fingerprint": MARK.hex(), "size": 70, "format": "symbols"}
    assert SymbolFormat.from_dict(data) == FORMAT
    with pytest.raises(ValueError, match="not what to_dict writes"):
        SymbolFormat.from_dict({**data, "codewords": None})


def test_other_formats_are_told_apart() -> None:
    wanted: CodeFormat = SymbolFormat(1, MARK, 70)
    check_format(_codes([1]), wanted)
    with pytest.raises(InputError, match="of one of 71 symbols; codes of one of 70 symbols are"):
        check_format(_codes([1], SymbolFormat(1, MARK, 71)), wanted)


def test_parts() -> None:
    codes = _codes([5, 6, 7])
    assert codes.take(slice(1, 3)).symbols.tolist() == [6, 7]  # type: ignore[attr-defined]
    joined = FORMAT.concatenate([codes.stored, codes.stored[:1]])
    assert joined.tolist() == [[5], [6], [7], [5]]
