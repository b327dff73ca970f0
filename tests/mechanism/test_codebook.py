"""Codebooks: kept as given, named by a digest, compared exactly on an integer grid."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from helpers.common import folded, normal, record_spec, refuses, travelled
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from dpindex import Codebook, Spec, record
from dpindex.base.arrays import RADIUS, on_sphere_grid
from dpindex.mechanism.projections import CodewordMap
from dpindex.mechanism.public_random import PublicStream

VECTORS = normal(40, 12).astype(np.float32)


def test_vectors_are_kept_as_given_and_compared_by_direction():
    book = Codebook(VECTORS * 7)
    assert len(book) == 40
    assert book.dim == 12
    assert_array_equal(book.stated, VECTORS * 7)
    norms = np.linalg.norm(book.vectors, axis=1)
    assert_allclose(norms, 1, rtol=1e-6)
    assert_allclose(book.vectors, Codebook(VECTORS).vectors, rtol=1e-6)
    assert book != Codebook(VECTORS)
    assert book == Codebook((VECTORS * 7).astype(np.float64))
    assert hash(book) == hash(Codebook(VECTORS * 7))
    assert "40 public codewords of 12" in repr(book)


def test_changing_the_array_later_does_not_change_the_codebook():
    given = VECTORS.copy()
    book = Codebook(given)
    given[:] = 0
    assert_array_equal(book.stated, VECTORS)


def test_bytes_and_names_round_trip(tmp_path):
    book = Codebook(VECTORS)
    assert Codebook.from_bytes(book.to_bytes()) == book
    named = Codebook.named(book.to_dict())
    assert named == book
    assert len(named) == 40
    with refuses("is not here: give its file"):
        named.vectors  # noqa: B018
    assert travelled(book) == book
    np.save(tmp_path / "book.npy", VECTORS)
    assert Codebook.read(tmp_path / "book.npy") == book


@folded(
    "vectors, message",
    [
        (np.ones((1, 3)), "2 to 65536 codewords, not 1"),
        (np.ones((65537, 1), np.int8), "2 to 65536 codewords"),
        (np.array([[1.0, 2], [np.nan, 1]]), "codeword 1 has a value that is not finite"),
        (np.array([[1.0, 2], [1e300, 1]]), "codeword 1 has a value that is not finite in 32 bits"),
        (np.array([[1.0, 2], [0, 0]]), "codeword 1 is zero"),
        (np.array([[1.0, 2], [1e-60, 0]]), "codeword 1 is zero"),
        (np.array([["a", "b"]]), "codewords must be real numbers"),
        (np.ma.masked_array(np.ones((2, 2)), np.eye(2)), "codewords have a mask"),
        (sparse.eye(4, format="csr"), "codewords must be a dense array"),
        (np.ones((2, 2, 2)), "two dimensions"),
        (3.0, "codewords"),
    ],
)
def test_other_vectors_are_refused(vectors, message):
    with refuses(message):
        Codebook(vectors)


@folded(
    "change",
    [{"sha256": "0"}, {"sha256": 7}, {"size": 1}, {"size": True}, {"dim": 0}, {"more": 1}],
)
def test_other_names_are_refused(change):
    with refuses():
        Codebook.named({**Codebook(VECTORS).to_dict(), **change})
    with refuses():
        Codebook.named(None)


def test_foreign_bytes_are_refused():
    data = bytearray(Codebook(VECTORS).to_bytes())
    data[-3] ^= 1
    for broken in (bytes(data), data[:50], b""):
        with refuses():
            Codebook.from_bytes(bytes(broken))


@folded("scale", [1e-38, 1e-30, 1.0, 1e30, 1e37])
def test_lengths_do_not_matter(scale):
    numbers = default_rng(1).integers(-8, 9, (30, 12))
    whole = numbers + np.eye(30, 12)
    one = Codebook(whole)
    other = Codebook(whole * scale)
    assert_allclose(one.vectors, other.vectors, atol=1e-6)
    # Each was rounded to 32 bits by itself.
    assert_allclose(one.grid, other.grid, atol=1)


@pytest.mark.parametrize("dim", [1, 2, 3, 384, 5000])
def test_inner_products_on_the_grid_are_exact(dim):
    """In float32, in any order, and for vectors that add up as far as they can."""
    rng = default_rng(dim)
    far = np.ones((1, dim))
    rows = np.concatenate([rng.normal(size=(20, dim)), far, -far])
    grid = on_sphere_grid(rows)
    exact = grid.astype(np.int64)
    assert_array_equal(grid, exact)
    squares = np.einsum("ij,ij->i", exact, exact)
    assert (squares <= RADIUS**2 * (1 + 1e-9)).all()
    book = Codebook(rows)
    single = rows.astype(np.float32)
    found = CodewordMap(book).apply(single)
    again = on_sphere_grid(single).astype(np.int64) @ book.grid.astype(np.int64)
    assert found.dtype == np.float32
    assert_array_equal(found, again)
    assert np.abs(again).max() <= 1 << 24


def test_grid_of_special_vectors():
    rows = np.array([[0.0, 0], [1e-320, 0], [0, -1e308], [3, 4], [-0.0, 0]])
    wanted = [[0, 0], [4095, 0], [0, -4095], [2457, 3276], [0, 0]]
    assert_array_equal(on_sphere_grid(rows), wanted)


def test_specs_name_their_codebook():
    book = Codebook(VECTORS)
    spec = record_spec("record-codebook", 12, epsilon=4.0, codebook=book)
    read = Spec.from_json(spec.to_json())
    assert read == spec
    assert read.fingerprint == spec.fingerprint
    assert read.subset == spec.subset == 3  # 3·40/e^4 = 2.2, rounded up
    with refuses("is not here"):
        read.projection.apply(VECTORS)
    projection = read.with_public(book).projection
    assert projection.apply(VECTORS).shape == (40, 40)
    other = Codebook(VECTORS + 1)
    with refuses("another codebook"):
        read.with_public(other)
    changed = replace(spec, codebook=other)
    wider = replace(spec, subset=5)
    assert len({spec.fingerprint, changed.fingerprint, wider.fingerprint}) == 3
    back = travelled(spec)
    assert back == spec
    assert_array_equal(back.codebook.vectors, book.vectors)


@folded(
    "change, message",
    [
        ({"scale": 2.0}, "takes no scale"),
        ({"codebook": VECTORS}, "codebook must be a dpindex.Codebook"),
    ],
)
def test_specs_that_do_not_fit_together(change, message):
    plain = {"method": "record-codebook", "dim": 12, "epsilon": 4.0, "adjacency": record()}
    with refuses(message):
        Spec(**{**plain, "codebook": Codebook(VECTORS), **change})


def test_a_query_at_another_epsilon_has_a_set_of_its_own():
    """So large that it is reported about as often: w·e^ε stays."""
    book = Codebook(normal(4000, 8))
    spec = record_spec(
        "record-codebook",
        8,
        epsilon=8.0,
        codebook=book,
        subset=4,
    )
    assert spec.with_epsilon(8.0) == spec
    subsets = {6.0: 30, 7.0: 11, 9.0: 1, 12.0: 1, 0.5: 2000}
    for epsilon, subset in subsets.items():
        assert spec.with_epsilon(epsilon).subset == subset
    asked = spec.with_epsilon(6.0).law.chance_inside
    assert asked == pytest.approx(spec.law.chance_inside, rel=0.01)
    with refuses("epsilon"):
        spec.with_epsilon(1000.0)


def test_finding_38_15_zero_rows_and_no_codewords_are_named(tmp_path):
    """An all-zero sample was "codeword 0", and no codewords were an input without rows."""
    rows = np.eye(6)
    rows[4] = 0
    path = tmp_path / "public.npy"
    np.save(path, rows)
    with refuses(r"public\.npy: row 4 is zero"):
        Codebook.spaced(path, 6)
    with refuses("size of a codebook must be a whole number from 2"):
        Codebook.spaced(path, 0)


# The public stream: the same bits for a seed on every machine and in every version


@folded("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_words_do_not_depend_on_how_they_are_asked_for(dtype):
    sizes = [1, 0, 7, 100_000, 131_072, 200_001]
    parts = PublicStream(1, "split")
    split = np.concatenate([parts.words(size, dtype) for size in sizes])
    whole = PublicStream(1, "split").words(sum(sizes), dtype)
    assert split.dtype == whole.dtype == dtype
    assert_array_equal(split, whole)


def test_permutations_of_four_are_uniform():
    """Chi-square over 24 orders with 23 degrees of freedom: 85 has probability 5e-9. A fixed
    seed, so the test cannot flicker."""
    stream = PublicStream(0, "uniform")
    orders = (tuple(stream.permutation(4).tolist()) for _ in range(4800))
    seen = Counter(orders)
    assert len(seen) == 24
    squares = [(count - 200) ** 2 for count in seen.values()]
    assert sum(squares) / 200 < 85
