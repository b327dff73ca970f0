"""Codes and their bytes: what goes in comes out, and nothing else is let in."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dpindex.codes import BitCodes, Codes, FloatCodes, codes_from_bytes, narrowest
from dpindex.errors import InputError

MARK = bytes(range(16))
HEADER = 4 + 1 + 1 + 2 + 4 + 8 + 8 + 8 + 16 + 16
"""magic, version, kind, reserved, k, n, gain, offset, fingerprint, digest."""

SHAPES = hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=20)


def some_bits(n: int = 3, k: int = 11) -> BitCodes:
    return BitCodes.from_signs(np.random.default_rng(n).random((n, k)) < 0.5, MARK)


def some_floats(dtype: Any = np.int16, n: int = 2, k: int = 3) -> FloatCodes:
    limits = np.iinfo(dtype)
    values = np.random.default_rng(n).integers(limits.min, limits.max, (n, k)).astype(dtype)
    values[0, 0], values[-1, -1] = limits.min, limits.max
    return FloatCodes(values, 0.125, 0.5, MARK)


def sealed(data: bytes) -> bytes:
    """The bytes with the digest that belongs to them: what an attacker can always compute."""
    blank = data[: HEADER - 16] + bytes(16)
    digest = hashlib.sha256(blank + data[HEADER:]).digest()[:16]
    return data[: HEADER - 16] + digest + data[HEADER:]


@given(hnp.arrays(np.bool_, SHAPES), st.binary(min_size=16, max_size=16))
@settings(max_examples=60, deadline=None)
def test_bits_round_trip(positive: Any, mark: bytes) -> None:
    codes = BitCodes.from_signs(positive, mark)
    again = codes_from_bytes(codes.to_bytes())
    assert isinstance(again, BitCodes)
    np.testing.assert_array_equal(again.to_signs(), np.where(positive, 1, -1))
    np.testing.assert_array_equal(again.packed, codes.packed)
    assert (again.k, again.fingerprint, len(again)) == (positive.shape[1], mark, len(positive))
    assert again.to_signs().dtype == np.int8
    assert again.to_float().dtype == np.float32


@given(
    hnp.arrays(st.sampled_from([np.int8, np.int16, np.int32]), SHAPES),
    st.floats(1e-300, 1e300),
    st.floats(-1e300, 1e300),
)
@settings(max_examples=60, deadline=None)
def test_floats_round_trip(values: Any, gain: float, offset: float) -> None:
    codes = FloatCodes(values, gain, offset, MARK)
    again = codes_from_bytes(codes.to_bytes())
    assert isinstance(again, FloatCodes)
    np.testing.assert_array_equal(again.values, values)
    assert again.values.dtype == narrowest(values).dtype
    assert again.values.dtype.isnative
    assert (again.gain, again.offset, again.fingerprint) == (gain, offset, MARK)
    assert again.k == values.shape[1]
    assert again.stored is again.values


def test_bytes_are_pinned() -> None:
    """Published codes must be readable for ever: format version 1, byte by byte."""
    bits = BitCodes.from_signs(np.array([[True, False, True] + [False] * 6 + [True]]), MARK)
    head = "44504958" + "01" + "00" + "0000" + "0a000000" + "0100000000000000"
    decode = "000000000000f03f" + "0000000000000000"
    assert bits.to_bytes() == sealed(bytes.fromhex(head + decode) + MARK + bytes(16) + b"\x05\x02")
    floats = FloatCodes(np.array([[1, -2, 300]]), 0.25, 0.5, MARK)
    head = "44504958" + "01" + "02" + "0000" + "03000000" + "0100000000000000"
    decode = "000000000000d03f" + "000000000000e03f"
    body = bytes.fromhex("0100" + "feff" + "2c01")
    assert floats.to_bytes() == sealed(bytes.fromhex(head + decode) + MARK + bytes(16) + body)


ALL = [
    pytest.param(some_bits(), id="bits"),
    pytest.param(some_bits(1, 8), id="byte"),
    pytest.param(some_floats(np.int8), id="int8"),
    pytest.param(some_floats(np.int16), id="int16"),
    pytest.param(some_floats(np.int32), id="int32"),
]


@pytest.mark.parametrize("codes", ALL)
def test_every_change_of_one_byte_is_refused(codes: Codes) -> None:
    data = codes.to_bytes()
    codes_from_bytes(data)
    for place in range(len(data)):
        for value in range(256):
            if value != data[place]:
                broken = data[:place] + bytes([value]) + data[place + 1 :]
                with pytest.raises(InputError):
                    codes_from_bytes(broken)


@pytest.mark.parametrize("codes", ALL)
def test_every_truncation_and_every_addition_is_refused(codes: Codes) -> None:
    data = codes.to_bytes()
    for length in range(len(data)):
        for broken in (data[:length], data[length + 1 :], sealed(data[:length])):
            with pytest.raises(InputError):
                codes_from_bytes(broken)
    for extra in (b"\0", b"\xff" * 7, data):
        for broken in (data + extra, sealed(data + extra)):
            with pytest.raises(InputError):
                codes_from_bytes(broken)


@given(st.integers(0, HEADER - 17), st.binary(min_size=1, max_size=16), st.sampled_from(ALL))
@settings(max_examples=300, deadline=None)
def test_a_forged_header_is_refused_or_harmless(place: int, patch: bytes, param: Any) -> None:
    """Whoever fixes the digest too gets an InputError or codes whose size is what they sent."""
    (codes,) = param.values
    data = bytearray(codes.to_bytes())
    data[place : min(place + len(patch), HEADER - 16)] = patch[: HEADER - 16 - place]
    try:
        forged = codes_from_bytes(sealed(bytes(data)))
    except InputError:
        return
    assert forged.stored.nbytes == len(data) - HEADER
    assert len(forged) * forged.k > 0 or len(data) == HEADER
    forged.to_signs()


@pytest.mark.parametrize(
    ("place", "field", "words"),
    [
        (0, b"dpix", "not dpindex codes"),
        (4, b"\x00", "format version 0"),
        (4, b"\x02", "format version 2"),
        (5, b"\x03", "no dpindex writes"),
        (6, b"\x01", "no dpindex writes"),
        (8, bytes(4), "no dpindex writes"),  # k = 0
        (12, b"\xff" * 8, "declare"),  # n
        (20, np.float64(np.nan).tobytes(), "no dpindex writes"),  # gain
        (20, np.float64(np.inf).tobytes(), "no dpindex writes"),
        (20, np.float64(0.0).tobytes(), "no dpindex writes"),
        (20, np.float64(-1.0).tobytes(), "no dpindex writes"),
        (28, np.float64(np.nan).tobytes(), "no dpindex writes"),  # offset
        (28, np.float64(np.inf).tobytes(), "no dpindex writes"),
    ],
)
def test_forged_fields_are_named(place: int, field: bytes, words: str) -> None:
    data = some_floats().to_bytes()
    with pytest.raises(InputError, match=words):
        codes_from_bytes(sealed(data[:place] + field + data[place + len(field) :]))


def test_stray_bits_beyond_k_are_refused() -> None:
    """Two byte strings must not stand for the same code."""
    data = bytearray(some_bits(3, 11).to_bytes())
    data[-1] |= 0x80
    with pytest.raises(InputError, match="stray bits"):
        codes_from_bytes(sealed(bytes(data)))


@pytest.mark.parametrize("data", [b"", b"DPIX", b"x" * 200, bytes(HEADER)])
def test_foreign_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(InputError, match="not dpindex codes"):
        codes_from_bytes(data)


def test_any_bytes_like_object_is_read() -> None:
    data = some_bits().to_bytes()
    for same in (data, bytearray(data), memoryview(data)):
        assert codes_from_bytes(same).to_bytes() == data


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([0], np.int8),
        ([127, -128], np.int8),
        ([128], np.int16),
        ([-129], np.int16),
        ([32767, -32768], np.int16),
        ([32768], np.int32),
        ([-32769], np.int32),
        ([2**31 - 1, -(2**31)], np.int32),
    ],
)
@pytest.mark.parametrize("wide", [np.int32, np.int64])
def test_narrowest_keeps_every_value(values: list[int], dtype: Any, wide: Any) -> None:
    narrow = narrowest(np.array([values], dtype=wide))
    assert narrow.dtype == dtype
    assert narrow.tolist() == [values]


@pytest.mark.parametrize("k", [1, 7, 8, 9, 64, 65])
def test_hamming_counts_differing_signs(k: int) -> None:
    rng = np.random.default_rng(k)
    one, other = (BitCodes.from_signs(rng.random((n, k)) < 0.5, MARK) for n in (5, 4))
    wanted = (one.to_signs()[:, None] != other.to_signs()[None]).sum(axis=2)
    np.testing.assert_array_equal(one.hamming(other), wanted)
    assert one.hamming(other.take(slice(0, 0))).shape == (5, 0)
    assert (np.diag(one.hamming(one)) == 0).all()


def test_codes_of_different_specs_are_not_compared() -> None:
    codes = some_bits(3, 8)
    for other in (some_bits(3, 9), BitCodes(codes.packed, 8, bytes(16))):
        with pytest.raises(InputError, match="different specs"):
            codes.hamming(other)


@pytest.mark.parametrize("k", [1, 7, 8, 9, 16, 17])
def test_rows_are_bitarrays_first_bit_first(k: int) -> None:
    positive = np.random.default_rng(k).random((4, k)) < 0.5
    codes = BitCodes.from_signs(positive, MARK)
    assert codes.packed.shape == (4, -(-k // 8))
    for i in range(4):
        assert codes.row(i).tolist() == positive[i].tolist()


@pytest.mark.parametrize("codes", [some_bits(6, 11), some_floats(n=6, k=5)])
@pytest.mark.parametrize("rows", [slice(1, 4), slice(0, 0), np.array([5, 0, 0])])
def test_take_keeps_all_but_the_rows(codes: Codes, rows: Any) -> None:
    part = codes.take(rows)
    np.testing.assert_array_equal(part.stored, codes.stored[rows])
    np.testing.assert_array_equal(part.to_float(), codes.to_float()[rows])
    assert (part.k, part.fingerprint) == (codes.k, codes.fingerprint)
    assert len(codes_from_bytes(part.to_bytes())) == len(part)


def test_decoding_of_numbers() -> None:
    codes = FloatCodes(np.array([[-2, -1, 0, 1]], dtype=np.int8), 0.25, 0.5, MARK)
    assert codes.to_float().tolist() == [[-0.375, -0.125, 0.125, 0.375]]
    assert codes.to_signs().tolist() == [[-1, -1, 1, 1]]
    zero = FloatCodes(np.array([[0]], dtype=np.int8), 0.25, 0.0, MARK)
    assert zero.to_signs().tolist() == [[1]]


def test_large_numbers_decode_in_double_precision() -> None:
    """2^31 − 1 has no float32: it is scaled before it is rounded."""
    codes = FloatCodes(np.array([[2**31 - 1, -(2**31)]], dtype=np.int32), 1e-3, 0.5, MARK)
    wanted = (np.array([[2**31 - 1, -(2**31)]]) + 0.5) * 1e-3
    np.testing.assert_array_equal(codes.to_float(), wanted.astype(np.float32))
