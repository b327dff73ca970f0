"""Hashes: known answers, kernels by simulation, and columns that depend on one record alone."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, sparse, stats

from dpindex.base.errors import InputError
from dpindex.race import SRP, Hash, PairedSRP, PStable, kernel_sum
from dpindex.race.hashes import Hasher, hash_from_dict

HASHES: list[Hash] = [SRP(5), SRP(12), PairedSRP(4), PStable(1.5), PStable(0.7, 3)]


def columns(hasher: Hasher, x: object) -> np.ndarray:
    """Columns of all records in all rows, shape (rows, n)."""
    rows = sparse.csr_matrix(x) if sparse.issparse(x) else np.asarray(x)
    out = np.empty((hasher.rows, rows.shape[0]), dtype=np.int64)
    with ThreadPoolExecutor(2) as pool:
        for start, block in hasher.blocks(rows):

            def keep(places: slice, found: np.ndarray, start: int = start) -> None:
                out[places, start : start + found.shape[1]] = found

            hasher.each(block, keep, pool)
    return out


def test_known_answers() -> None:
    """The public hash functions are the same bits for ever: an old sketch must stay readable."""
    x = np.array([[0.5, -1.0, 2.0], [30.0, 7.25, -4.0], [0.0, 0.0, 0.0]])
    assert columns(Hasher(SRP(4), 3, 4, 16, 7), x).tolist() == SRP_ANSWER
    assert columns(Hasher(PairedSRP(3), 3, 4, 4, 7), x).tolist() == PAIRED_ANSWER
    assert columns(Hasher(PStable(2.0, 2), 3, 4, 1000, 7), x).tolist() == P_STABLE_ANSWER
    first = Hasher(SRP(4), 3, 4, 16, 7).directions[0]
    assert (first * 65536).tolist() == DIRECTION_ANSWER


@pytest.mark.parametrize("hash", HASHES, ids=str)
def test_a_record_is_hashed_alike_in_any_company(hash: Hash) -> None:
    """The sensitivity rests on it: no batch, order, or storage may move a record's columns."""
    rng = np.random.default_rng(1)
    x = np.round(rng.normal(size=(700, 40)) * 20, 1)
    x[rng.random(x.shape) < 0.5] = 0
    hasher = Hasher(hash, 40, 30, 64, 3)
    together = columns(hasher, x)
    order = rng.permutation(len(x))
    assert (columns(hasher, x[order]) == together[:, order]).all()
    assert (columns(hasher, sparse.csr_matrix(x)) == together).all()
    assert (columns(hasher, np.asfortranarray(x)) == together).all()
    for i in range(0, 700, 97):
        assert (columns(hasher, x[i : i + 1])[:, 0] == together[:, i]).all()
        assert (columns(hasher, x[i:])[:, 0] == together[:, i]).all()


def test_products_are_exact_integers() -> None:
    """Sums at the very limit of what is let in still lie within 2^53."""
    hasher = Hasher(PStable(1.0), 4, 50, 100, 0)
    most = 2.0**33 / 4096
    (_, block), *_ = hasher.blocks(np.array([[most / 4] * 4, [most, 0, 0, 0]]))
    assert abs(block).sum(axis=1).max() == 2.0**33
    assert abs(hasher.directions).max() * 2**16 < 2**20
    for dim in (1, 2, 3, 784, 5000):
        signs = Hasher(SRP(1), dim, 1, 2, 0)
        (_, block), *_ = signs.blocks(np.full((1, dim), 1.7e300))
        assert abs(block).sum() <= 2.0**33
        assert (block == np.rint(block)).all()


@pytest.mark.parametrize("scale", [1e-300, 1e-3, 1.0, 3.7, 1e300])
def test_signs_do_not_depend_on_length(scale: float) -> None:
    """A zero record, a tiny one and a huge one are all hashed, and only direction counts."""
    x = np.random.default_rng(0).normal(size=(20, 6))
    hasher = Hasher(SRP(6), 6, 40, 64, 0)
    # A factor that is no power of two rounds the last bit: a sign in a billion may turn.
    assert (columns(hasher, x * scale) == columns(hasher, x)).mean() > 0.999
    assert (columns(hasher, np.zeros((1, 6))) == 63).all()


def test_paired_signs_fold_a_vector_onto_its_opposite() -> None:
    x = np.random.default_rng(0).normal(size=(500, 5))
    hasher = Hasher(PairedSRP(3), 5, 60, 4, 0)
    assert (columns(hasher, x) == columns(hasher, -x)).all()
    assert columns(hasher, x).max() == 3


@pytest.mark.parametrize("hash", HASHES, ids=str)
@pytest.mark.parametrize("width", [8, 4096])
def test_collision_probability(hash: Hash, width: int) -> None:
    """Frequency of collisions over 20 000 functions against the kernel, rehashing included.

    Six comparisons of a binomial at 5.5 standard deviations: false alarm below 1e-6 each.
    """
    rng = np.random.default_rng(5)
    x = rng.normal(size=(1, 3))
    steps = np.array([0.0, 0.05, 0.3, 1.0, 2.0, 8.0])
    near = x + steps[:, None] * rng.normal(size=(6, 3)) / math.sqrt(3)
    hasher = Hasher(hash, 3, 20_000, width, 11)
    k = hash.kernel(near, x)[0]
    k = k + (1 - k) / width if hasher.rehashed else k
    same = (columns(hasher, near) == columns(hasher, x)).mean(axis=0)
    slack = 5.5 * np.sqrt(k * (1 - k) / 20_000) + 1e-3
    assert (abs(same - k) <= slack).all()


@given(ratio=st.floats(1e-6, 1e4))
@settings(max_examples=60)
def test_stable_kernel_against_its_integral(ratio: float) -> None:
    """Datar et al. 2004: p(c) = ∫₀^w (2/c) φ(t/c)(1 − t/w) dt, here w = 1, in units of c."""
    far = min(1.0 / ratio, 40.0)
    value, _ = integrate.quad(
        lambda u: 2 * stats.norm.pdf(u) * (1 - u * ratio), 0, far, epsabs=1e-13, limit=200
    )
    found = PStable(1.0).kernel(np.array([[ratio, 0.0]]), np.array([[0.0, 0.0]]))[0, 0]
    assert found == pytest.approx(value, abs=1e-7)


@pytest.mark.slow
def test_kernel_sum_in_parts() -> None:
    rng = np.random.default_rng(2)
    x, q = rng.normal(size=(5000, 3)), rng.normal(size=(1500, 3))
    for hash in HASHES:
        assert kernel_sum(hash, x, q) == pytest.approx(hash.kernel(x, q).sum(axis=1))


def test_far_records_are_refused_by_row() -> None:
    x = np.zeros((3, 2))
    x[2, 1] = 1e12
    with pytest.raises(InputError, match=r"row 12 lies more than 2097152 bandwidths"):
        list(Hasher(PStable(1.0), 2, 3, 10, 0).blocks(x, first_row=10))
    x[1, 0] = np.nan
    for chunk in (x, sparse.csr_matrix(x)):
        with pytest.raises(InputError, match="row 11, column 0 is NaN"):
            list(Hasher(SRP(2), 2, 3, 4, 0).blocks(chunk, first_row=10))
    with pytest.raises(InputError, match="row 0 lies more"):
        list(Hasher(PStable(1e-300), 2, 3, 10, 0).blocks(np.full((1, 2), 1e300)))


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("size", [1e12, 1.7e308])
def test_finding_10_a_far_record_counts_at_the_nearest_point_of_the_box(
    make: Any, size: float
) -> None:
    """Its columns, and those of its neighbours, do not depend on who else is there."""
    hasher = Hasher(PStable(0.5, 2), 3, 20, 50, 0)
    edge = (2**33 // 3) / 2**12 * 0.5
    x = np.array([[1.0, 2.0, 3.0], [size, -size, 0.0], [size, 5.0, -7.0], [0.0, 0.0, 0.25]])
    near = np.clip(x, -edge, edge)
    (_, block), = hasher.blocks(make(x), clip=True)  # fmt: skip
    wanted = np.rint(np.clip(x, -2 * edge, 2 * edge) * 2**13)
    wanted[1:3] = np.clip(wanted[1:3], -(2**33 // 3), 2**33 // 3)
    found = block.toarray() if sparse.issparse(block) else block
    assert (found == wanted).all()
    assert (np.abs(found).sum(axis=1) <= 2**33).all()
    assert (found == np.rint(near * 2**13)).all()
    for row in range(len(x)):
        (_, alone), = hasher.blocks(make(x[row : row + 1]), clip=True)  # fmt: skip
        assert ((alone.toarray() if sparse.issparse(alone) else alone) == wanted[row]).all()


@pytest.mark.parametrize("hash", HASHES, ids=str)
def test_json_round_trip(hash: Hash) -> None:
    assert hash_from_dict(hash.to_dict()) == hash


@pytest.mark.parametrize(
    "make",
    [
        lambda: SRP(0),
        lambda: SRP(32),
        lambda: SRP(True),
        lambda: SRP(2.5),  # type: ignore[arg-type]
        lambda: PairedSRP(1),
        lambda: PStable(0.0),
        lambda: PStable(math.nan),
        lambda: PStable(math.inf),
        lambda: PStable("wide"),  # type: ignore[arg-type]
        lambda: PStable(1.0, 0),
        lambda: PStable(1.0, 17),
        lambda: hash_from_dict({"kind": "srp"}),
        lambda: hash_from_dict({"kind": "srp", "bits": 3, "more": 1}),
        lambda: hash_from_dict({"kind": ["srp"], "bits": 3}),
        lambda: hash_from_dict("srp"),
        lambda: hash_from_dict({"kind": "l2", "bandwidth": 1.0}),
        lambda: hash_from_dict({"kind": "p-stable", "hashes": 2}),
    ],
)
def test_bad_parameters(make: object) -> None:
    with pytest.raises(InputError):
        make()  # type: ignore[operator]


SRP_ANSWER = [[5, 10, 15], [5, 12, 15], [5, 10, 15], [15, 13, 15]]
PAIRED_ANSWER = [[1, 1, 0], [0, 3, 0], [2, 3, 0], [0, 0, 0]]
P_STABLE_ANSWER = [[719, 525, 619], [604, 514, 375], [551, 482, 551], [944, 106, 944]]
DIRECTION_ANSWER = [-42748.0, -62003.0, 114137.0]
