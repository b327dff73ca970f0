"""Codebook response: the exact law of every symbol, and the draws that make it."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from helpers.common import codes_of, folded, normal, record_spec, refuses
from numpy.random import default_rng
from numpy.testing import assert_array_equal

from dpindex import Codebook, codes_from_bytes
from dpindex.audit.exact_arithmetic import loss_within
from dpindex.mechanism.codes import Codes, SymbolFormat, check_format
from dpindex.mechanism.noise.base import uniform_share
from dpindex.mechanism.noise.symbols import nearest

ONE = 1 << 64


def _book(size, dim=4):
    return Codebook(normal(size, dim, size))


@folded("size, subset", [(2, 1), (5, 1), (5, 4), (40, 12), (90, 40)])
@folded("epsilon", [0.001, 1.0, 5.0, 64.0])
def test_the_ratio_is_within_epsilon_and_as_large_as_can_be(size, subset, epsilon):
    uniform = uniform_share(size, epsilon, subset)

    def words(limit):
        """The exact number of words that draw each."""
        ends = [-(-(j << 64) // limit) for j in range(limit + 1)]
        return [b - a for a, b in pairwise(ends)]

    fair = words(size)
    least = Fraction(uniform * min(fair))
    most = (ONE - uniform) * max(words(subset)) + uniform * max(fair)
    ratio = most / least
    assert loss_within(ratio.as_integer_ratio(), Fraction(epsilon))
    if epsilon < 40:
        assert float(ratio) == pytest.approx(math.exp(epsilon), rel=1e-12)


@folded("subset", [1, 2, 5, 31, 32, 33, 39])
@folded("levels", [1, 3, 1 << 24])
def test_nearest_are_the_largest_and_ties_go_to_the_smaller_symbol(subset, levels):
    x = default_rng(subset).integers(0, levels, (60, 40)).astype(np.float32)
    x -= levels // 2
    before = x.copy()
    found = nearest(x, subset)
    for row, symbols in zip(x.tolist(), found.tolist(), strict=True):
        order = sorted(range(40), key=lambda symbol: (-row[symbol], symbol))
        assert symbols == order[:subset]
    assert_array_equal(x, before)


def test_zero_vectors_and_any_others_are_encoded():
    book = _book(9)
    spec = record_spec("record-codebook", 4, epsilon=60.0, codebook=book, subset=1)
    x = np.zeros((4, 4))
    x[1, 0] = 5e-324
    x[2] = 1e308
    x[3, 0] = -1e-300
    found = codes_of(spec, x).stored[:, 0]
    scores = np.sign(x) @ book.vectors.T
    assert_array_equal(found, scores.argmax(axis=1))
    for value in (np.nan, np.inf):
        x[2, 1] = value
        with pytest.raises(ValueError, match="row 2, column 1 is"):
            codes_of(spec, x)


def test_the_default_subset():
    """(ε − 1)·K/e^ε, 2K/e^ε below ε = 3, from 1 to half of the codebook."""
    book = _book(1000)
    for epsilon, subset in ((0.1, 500), (4.0, 55), (6.0, 13), (12.0, 1)):
        spec = record_spec("record-codebook", 4, epsilon=epsilon, codebook=book)
        assert spec.law.subset == subset


# Symbol codes: what is stored, what foreign bytes are refused, what is never in them


MARK = bytes(range(16))
WORDS = normal(70, 5).astype(np.float32)
FORMAT = SymbolFormat(1, MARK, 70, WORDS)


def _codes(symbols, format_=FORMAT):
    return format_.codes(format_.pack(np.array(symbols)))


def symbols_of(codes):
    return codes.stored.ravel().tolist()


def test_bytes_round_trip_without_the_codewords():
    stated = [3, 69, 0, 3]
    codes = _codes(stated)
    data = codes.to_bytes()
    assert WORDS[3].tobytes() not in data
    back = codes_from_bytes(data)
    assert isinstance(back.format, SymbolFormat)
    assert symbols_of(back) == stated
    assert back.format == FORMAT
    assert back.fingerprint == MARK
    with refuses("codebook, which was not given"):
        back.to_float()
    assert_array_equal(codes.to_float(), WORDS[stated])


def test_all_symbols_fit():
    full = SymbolFormat(1, MARK, 1 << 16)
    codes = _codes([0, 65535], full)
    assert codes.stored.dtype == np.uint16
    assert symbols_of(codes_from_bytes(codes.to_bytes())) == [0, 65535]
    assert full.width == 1
    assert full.max_row_bytes == 2
    assert codes.k == 1


@folded(
    "stored, fault",
    [
        (np.zeros((2, 1), np.uint8), "are not symbols"),
        (np.zeros((2, 2), np.uint16), "are not symbols"),
        (np.full((2, 1), 70, np.uint16), "beyond the codebook"),
        (np.full((2, 1), 69, np.uint16), None),
        (np.zeros((0, 1), np.uint16), None),
    ],
)
def test_foreign_symbols(stored, fault):
    found = FORMAT.fault(stored)
    assert found == fault if fault is None else fault in str(found)
    if fault is not None:
        broken = Codes(FORMAT, stored).to_bytes()
        with refuses():
            codes_from_bytes(broken)


@folded("size", [1, 65537, 2.0, True, "9"])
def test_sizes(size):
    with pytest.raises(ValueError, match="symbols"):
        SymbolFormat(1, MARK, size)
    with pytest.raises(ValueError, match="symbols"):
        SymbolFormat(2, MARK, 70)


def test_formats_as_data():
    data = FORMAT.to_dict()
    assert data == {"code_length": 1, "fingerprint": MARK.hex(), "size": 70, "format": "symbols"}
    assert SymbolFormat.from_dict(data) == FORMAT
    with pytest.raises(ValueError, match="not what to_dict writes"):
        SymbolFormat.from_dict({**data, "codewords": None})


def test_other_formats_are_told_apart():
    wanted = SymbolFormat(1, MARK, 70)
    check_format(_codes([1]), wanted)
    with refuses("of one of 71 symbols; codes of one of 70 symbols are"):
        check_format(_codes([1], SymbolFormat(1, MARK, 71)), wanted)
