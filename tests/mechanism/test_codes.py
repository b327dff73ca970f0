"""Codes and their bytes: a contract for every format, and hostile bytes, which none lets in."""

import hashlib
import json
import struct

import numpy as np
import pytest
from helpers.common import codes_of, folded, refuses, small
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.random import default_rng
from numpy.testing import assert_array_equal

import dpindex as dpi
from dpindex.mechanism.codes import (
    FORMATS,
    BitCodes,
    NumberFormat,
    SignFormat,
    check_format,
    codes_from_bytes,
)

MARK = bytes(range(16))
SHAPES = hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=20)

# What a law may draw, in any number of rows and columns, and the format of such codes.
OUTCOMES = {
    "signs": hnp.arrays(np.bool_, SHAPES),
    "numbers": hnp.arrays(np.int32, SHAPES),
}
NAMES = sorted(OUTCOMES)


def form_of(name, k=11):
    if name == "signs":
        return SignFormat(k, MARK)
    return NumberFormat(k, MARK, 0.125, 0.5)


def test_every_format_is_under_contract():
    """Symbols, whose codes are one number whatever is drawn, have a file of tests of their own."""
    assert set(FORMATS) == {*NAMES, "symbols"}


def made(name, n=3, k=11):
    """Some codes of that format, always the same."""
    rng = default_rng(n)
    drawn = rng.integers(-300, 300, (n, k))
    form = form_of(name, k)
    return form.codes(form.pack(drawn < 0 if name == "signs" else drawn))


# The contract


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@settings(max_examples=60)
def test_what_is_packed_comes_out(name, data):
    outcomes = data.draw(OUTCOMES[name])
    n, k = outcomes.shape
    form = form_of(name, k)
    stored = form.pack(outcomes)
    assert stored.shape == (n, form.width)
    assert stored.nbytes <= n * form.max_row_bytes
    assert form.fault(stored) is None
    decoded = form.decode(stored)
    assert decoded.dtype == np.float32
    assert decoded.shape == (n, k)
    wanted = np.where(outcomes, 1, -1) if name == "signs" else (outcomes + 0.5) * 0.125
    assert_array_equal(decoded, wanted.astype(np.float32))
    codes = form.codes(stored)
    assert len(codes) == n
    assert codes.k == k
    assert codes.fingerprint == MARK
    assert_array_equal(codes.to_float(), decoded)
    signs = np.where(decoded >= 0, 1, -1)
    assert_array_equal(codes.to_signs(), signs)
    assert codes.to_signs().dtype == np.int8


@folded("name", NAMES)
def test_coordinates_are_what_was_packed(name):
    """One integer a coordinate, signs as ±1."""
    codes = made(name)
    values = codes.format.coordinates(codes.stored)
    assert values.shape == (3, 11)
    outcomes = values > 0 if name == "signs" else values
    assert_array_equal(codes.format.pack(outcomes), codes.stored)


@folded("name, share, ratio", [("signs", 0.25, 2.75), ("numbers", 0.5, 44)])
def test_noise_is_measured_in_the_terms_of_the_format(name, share, ratio):
    """A quarter of the signs flipped, or noise of half the deviation of a coordinate."""
    form = form_of(name)
    exact = np.tile([[2.0], [-2.0], [2.0], [-2.0]], 11)
    noise = np.tile([[1.0], [1.0], [-1.0], [-1.0]], 11)
    noisy = exact + noise
    if name == "signs":
        noisy = exact.copy()
        noisy[2] *= -1
    assert form.noise_share(noisy, exact) == share
    assert form.signal_to_noise(share) == ratio
    assert form.signal_to_noise(0.0) > form.signal_to_noise(share)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@settings(max_examples=60)
def test_bytes_round_trip(name, data):
    outcomes = data.draw(OUTCOMES[name])
    form = form_of(name, outcomes.shape[1])
    codes = form.codes(form.pack(outcomes))
    again = codes_from_bytes(codes.to_bytes())
    assert type(again) is type(codes)
    assert again.format == form
    assert again.stored.dtype == codes.stored.dtype
    assert again.stored.dtype.isnative
    assert_array_equal(again.stored, codes.stored)
    assert again.to_bytes() == codes.to_bytes()
    assert type(form).from_dict(form.to_dict()) == form


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@settings(max_examples=40)
def test_parts_put_together_are_the_whole(name, data):
    """However it is cut, packed in parts of different widths, and taken row by row."""
    outcomes = data.draw(OUTCOMES[name])
    cut = data.draw(st.integers(0, len(outcomes)))
    form = form_of(name, outcomes.shape[1])
    whole = form.pack(outcomes)
    parts = [form.pack(outcomes[:cut]), form.pack(outcomes[cut:])]
    joined = form.concatenate(parts)
    assert joined.dtype == whole.dtype
    assert_array_equal(joined, whole)
    order = default_rng(0).permutation(len(outcomes))
    codes = form.codes(whole)
    assert_array_equal(codes.take(order).stored, whole[order])
    # A row alone has the bytes it has when it is taken from many.
    one = form.codes(form.pack(outcomes[:1]))
    assert codes.take(slice(0, 1)).to_bytes() == one.to_bytes()
    assert len(codes.take(slice(0, 0))) == 0


@folded("name", NAMES)
@folded("dtype", [np.uint8, np.int8, np.int16, np.int64, np.uint16, np.float32])
@folded("shape", [(3, 10), (3, 11), (3, 2), (33,), (3, 11, 1)])
def test_foreign_tables_are_refused(name, dtype, shape):
    fits = {
        "signs": dtype == np.uint8 and shape == (3, 2),
        "numbers": dtype in (np.int8, np.int16) and shape == (3, 11),
    }
    fault = form_of(name).fault(np.zeros(shape, dtype))
    assert (fault is None) == fits[name]


@folded("name", NAMES)
def test_codes_of_other_formats_are_told_apart(name):
    codes = made(name)
    check_format(codes, codes.format)
    of_others = [made(other) for other in NAMES if other != name]
    for other in [*of_others, made(name, k=12)]:
        with refuses(r"these are codes of 11 .* are expected"):
            check_format(codes, other.format)


@folded("row", dpi.methods())
def test_a_spec_knows_the_format_of_its_codes(row):
    spec = small(row)
    codes = codes_of(spec, np.full((3, spec.dim), 0.6))
    assert codes.format == spec.format
    assert codes.fingerprint == spec.fingerprint
    assert isinstance(codes, BitCodes) == (row.codes == "signs")
    assert spec.guarantee.definition == row.definition
    assert spec.format.name == row.codes
    assert spec.format.fault(codes.stored) is None
    assert set(spec.format.metrics) <= {"cosine", "ip", "l2"}
    assert codes_from_bytes(codes.to_bytes()).format == spec.format


# Signs and numbers


@folded(
    "values, dtype",
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
@folded("wide", [np.int32, np.int64])
def test_numbers_are_kept_in_the_narrowest_integers(values, dtype, wide):
    form = NumberFormat(len(values), MARK, 1.0, 0.0)
    narrow = form.pack(np.array([values], dtype=wide))
    assert narrow.dtype == dtype
    assert narrow.tolist() == [values]


@folded("value", [np.nan, np.inf, 0.0, -1.0])
def test_a_scale_must_be_a_positive_number(value):
    with pytest.raises(ValueError, match="scale"):
        NumberFormat(2, MARK, value, 0.0)


def test_large_numbers_decode_in_double_precision():
    """2^31 − 1 has no float32: it is scaled before it is rounded."""
    values = np.array([[2**31 - 1, -(2**31)]], dtype=np.int32)
    codes = NumberFormat(2, MARK, 1e-3, 0.5).codes(values)
    wanted = (values.astype(np.float64) + 0.5) * 1e-3
    assert_array_equal(codes.to_float(), wanted.astype(np.float32))


# Bytes from anyone

_FRAME = struct.Struct("<4sHHIQ32s")
"""Magic, version, 0, bytes of the header, bytes of the arrays, SHA-256 of both."""


def framed(header, body):
    """A container whose sizes and digest are right, as anyone can make it.

    What is no container is refused in ``base/test_container.py``.
    """
    if not isinstance(header, bytes):
        header = json.dumps(header, sort_keys=True).encode()
    digest = hashlib.sha256(header + body).digest()
    frame = _FRAME.pack(b"DPIX", 2, 0, len(header), len(body), digest)
    return frame + header + body


def header_of(codes):
    data = codes.to_bytes()
    length = _FRAME.unpack_from(data)[3]
    return json.loads(data[_FRAME.size : _FRAME.size + length])


@folded("name", NAMES)
def test_every_truncation_and_every_addition_is_refused(name):
    codes = made(name)
    data = codes.to_bytes()
    header = header_of(codes)
    body = codes.stored.tobytes()
    for length in range(len(data)):
        for broken in (data[:length], data[length + 1 :]):
            with refuses():
                codes_from_bytes(broken)
    for extra in (b"\0", b"\xff" * 7, data):
        for broken in (data + extra, framed(header, body + extra)):
            with refuses():
                codes_from_bytes(broken)
    for length in range(len(body)):
        with refuses():
            codes_from_bytes(framed(header, body[:length]))


FORGED = [
    {"code_length": 0},
    {"code_length": -11},
    {"code_length": 100},
    {"code_length": 11.0},
    {"code_length": True},
    {"code_length": "11"},
    {"code_length": 10**30},
    {"fingerprint": "00"},
    {"fingerprint": "zz" * 16},
    {"fingerprint": "00 " * 16},
    {"fingerprint": 5},
    {"format": "symbols"},
    {"format": None},
    {"format": ["numbers"]},
    {"more": 1},
    *({name: value} for name in ("scale", "offset")
      for value in (np.nan, np.inf, None, "1", [1.0], 10**400)),
    {"scale": 0.0},
    {"scale": -1.0},
]  # fmt: skip


@folded("facts", FORGED)
@folded("name", NAMES)
def test_forged_facts_are_refused(name, facts):
    codes = made(name)
    header = header_of(codes)
    header["facts"] |= facts
    with refuses(r"no dpindex writes|are not"):
        codes_from_bytes(framed(header, codes.stored.tobytes()))


@folded("name", NAMES)
@folded(
    "arrays",
    [
        [],
        [["stored", "|i1", [0, 10**30]]],
        [["stored", "|i1", [3, 11]], ["more", "|i1", [0]]],
        [["other", "|i1", [3, 11]]],
        [["stored", "<f4", [1, 1]]],
        [["stored", "|O", [3, 11]]],
        [["stored", "<i8", [1, 11]]],
        [["stored", "|i1", [-3, -11]]],
        [["stored", "|i1", [33]]],
        ["stored"],
        None,
    ],
)
def test_forged_arrays_are_refused(name, arrays):
    header = header_of(made(name))
    header["arrays"] = arrays
    for body in (b"", bytes(33), bytes(88)):
        with refuses():
            codes_from_bytes(framed(header, body))


@folded("header", [b"", b"{", b"[]", b"null", b"[" * 100_000, b"\xff", b"{}"])
def test_headers_that_are_no_header_are_refused(header):
    with refuses("no dpindex writes"):
        codes_from_bytes(framed(header, b""))


def test_stray_bits_beyond_k_are_refused():
    """Two byte strings must not stand for the same code."""
    codes = made("signs")
    body = bytearray(codes.stored.tobytes())
    body[-1] |= 0x80
    with refuses("stray bits"):
        codes_from_bytes(framed(header_of(codes), bytes(body)))


def test_any_bytes_like_object_is_read():
    data = made("signs").to_bytes()
    for same in (data, bytearray(data), memoryview(data)):
        assert codes_from_bytes(same).to_bytes() == data


def test_a_row_of_sign_codes_is_an_array_of_truth_values():
    """Without the unused bits of the last byte."""
    positive = default_rng(0).random((5, 13)) < 0.5
    codes = BitCodes.from_signs(positive, bytes(16))
    assert [row.tolist() for row in codes] == positive.tolist()
    assert codes[-1].dtype == np.bool_
    with pytest.raises(IndexError):
        codes[5]
