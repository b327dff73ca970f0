"""The public stream: the same bits for a seed on every machine and in every version."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from dpindex.mechanism.public_random import PublicStream


def test_known_answers() -> None:
    """Pinned: if one of these changes, every published index changes its meaning."""
    assert PublicStream(7, "example").words(4, np.uint8).tolist() == [235, 146, 141, 62]
    assert PublicStream(7, "example").words(3, np.uint16).tolist() == [37611, 16013, 31541]
    assert PublicStream(7, "example").words(2, np.uint32).tolist() == [1049465579, 3230563125]
    assert PublicStream(7, "example").words(2, np.uint64).tolist() == [
        13875162970588025579,
        935534822844947304,
    ]
    assert PublicStream(0, "oporp").signs(12).tolist() == [-1, 1, -1, 1, -1, -1, 1, 1, 1, 1, 1, -1]
    assert PublicStream(0, "oporp").permutation(10).tolist() == [0, 7, 6, 3, 5, 1, 8, 2, 4, 9]
    assert PublicStream(2**63 - 1, "").permutation(8).tolist() == [1, 2, 4, 0, 7, 5, 6, 3]
    far = PublicStream(7, "example")
    far.words((1 << 20) - 2, np.uint8)
    assert far.words(4, np.uint8).tolist() == [67, 174, 242, 49]


def test_is_shake_256_of_the_label_in_blocks() -> None:
    stream = b"".join(
        hashlib.shake_256(f"dpindex/1|some purpose|42|{block}".encode()).digest(1 << 20)
        for block in range(3)
    )
    assert PublicStream(42, "some purpose").words(3 << 20, np.uint8).tobytes() == stream
    words = PublicStream(42, "some purpose").words(3 << 17, np.uint64)
    assert words.tolist() == np.frombuffer(stream, "<u8").tolist()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_words_do_not_depend_on_how_they_are_asked_for(dtype: Any) -> None:
    sizes = [1, 0, 7, 100_000, 131_072, 200_001]
    parts = PublicStream(1, "split")
    split = np.concatenate([parts.words(size, dtype) for size in sizes])
    whole = PublicStream(1, "split").words(sum(sizes), dtype)
    assert split.dtype == whole.dtype == dtype
    assert np.array_equal(split, whole)


def test_seed_and_purpose_name_the_page() -> None:
    pages = {
        PublicStream(seed, purpose).words(4, np.uint64).tobytes()
        for seed in (0, 1, 2, 10, 2**63 - 1)
        for purpose in ("", "a", "a/1", "a/11", "b")
    }
    assert len(pages) == 25


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1000])
def test_signs_are_plus_and_minus_one(count: int) -> None:
    signs = PublicStream(3, "signs").signs(count)
    assert signs.dtype == np.int8
    assert signs.shape == (count,)
    assert set(signs.tolist()) <= {-1, 1}
    words = PublicStream(3, "signs").words(-(-count // 8), np.uint8)
    expected = [1 - 2 * (int(words[i // 8]) >> i % 8 & 1) for i in range(count)]
    assert signs.tolist() == expected


@pytest.mark.parametrize("count", [0, 1, 2, 784, 5000])
def test_a_permutation_holds_every_number_once(count: int) -> None:
    order = PublicStream(3, "order").permutation(count)
    assert sorted(order.tolist()) == list(range(count))


def test_permutations_of_four_are_uniform() -> None:
    """Chi-square over 24 orders with 23 degrees of freedom: 85 has probability 5e-9. A fixed
    seed, so the test cannot flicker."""
    stream = PublicStream(0, "uniform")
    seen: dict[tuple[int, ...], int] = {}
    for _ in range(4800):
        order = tuple(stream.permutation(4).tolist())
        seen[order] = seen.get(order, 0) + 1
    assert len(seen) == 24
    assert sum((count - 200) ** 2 / 200 for count in seen.values()) < 85


def test_signs_are_fair_and_independent_of_their_place() -> None:
    signs = PublicStream(5, "fair").signs(1 << 20).astype(np.int64)
    for lag in (0, 1, 7, 8, 64):
        series = signs if lag == 0 else signs[lag:] * signs[:-lag]
        assert abs(series.sum()) < 5 * 1024
