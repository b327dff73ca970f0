"""Vectors in, codes out: every kind of input and of fault, and noise that is never shared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from specs import example, needed

import dpindex as dpi
from dpindex.arrays import cores
from dpindex.codes import FloatCodes
from dpindex.errors import InputError

EVERY = [pytest.param(row, id=row.name) for row in dpi.methods()]
NOISY_FLOATS = [
    row for row in EVERY if row.values[0].codes == "numbers" and row.values[0].definition == "DP"
]

DTYPES = [
    *(np.dtype(kind + str(size)) for kind in "iu" for size in (1, 2, 4, 8)),
    *(np.dtype(order + "f" + str(size)) for order in "<>" for size in (2, 4, 8)),
    np.dtype(">i4"),
    np.dtype(">u2"),
    np.dtype(np.longdouble),
]


def plain(**changes: Any) -> dpi.Privatizer:
    arguments: dict[str, Any] = {"method": "dp-oporp-staircase", "dim": 24, "k": 8, "epsilon": 2.0}
    return dpi.Privatizer(dpi.Spec(**{**arguments, **changes}))


def uniform(n: int, dim: int = 24, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, (n, dim))


# Input of every kind


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("method", ["dp-oporp-staircase", "dp-oporp-laplace", "idp-signrp-rr"])
def test_every_dtype_gives_the_same_bits(dtype: Any, method: str) -> None:
    """Steps of ⅛ in [0, 1] are exact in every type that holds 0 … 8, with scale 8."""
    numbers = np.random.default_rng(1).integers(0, 9, (30, 24))
    privatizer = plain(method=method, scale=8.0)
    wanted = privatizer.project(numbers.astype(np.float64))
    x = numbers.astype(dtype)
    before = x.copy()
    np.testing.assert_array_equal(privatizer.project(x), wanted)
    assert len(privatizer.privatize(x)) == 30
    np.testing.assert_array_equal(x, before)
    if dtype.isnative and dtype.kind + str(dtype.itemsize) not in ("f2", "f16"):
        for kind in (sparse.csr_matrix, sparse.csc_matrix, sparse.csr_array):
            np.testing.assert_array_equal(privatizer.project(kind(x)), wanted)


def test_booleans() -> None:
    x = uniform(30) > 0
    privatizer = plain()
    wanted = privatizer.project(x.astype(float))
    np.testing.assert_array_equal(privatizer.project(x), wanted)
    np.testing.assert_array_equal(privatizer.project(sparse.csr_matrix(x)), wanted)
    privatizer.privatize(x)


@pytest.mark.parametrize("row", EVERY)
def test_projections_agree_across_layouts_splits_and_instances(row: Any) -> None:
    """A phone with one vector and a server with a million have the same bits (n spans blocks)."""
    spec = example(row, **({"k": 12} if not row.family.keeps_all else {}))
    rng = np.random.default_rng(2)
    x = rng.uniform(0, 1, (9000, 24)).astype(np.float32)
    x[rng.random(x.shape) < 0.6] = 0
    x[:, :4] = 1  # norms of at least 2
    wanted = dpi.Privatizer(spec).project(x)
    assert wanted.shape == (9000, spec.k)
    assert (wanted == np.rint(wanted)).all()
    again = dpi.Privatizer(dpi.Spec.from_json(spec.to_json()))
    wide = np.zeros((9000, 48), dtype=np.float32)
    wide[:, ::2] = x
    for same in (
        x.astype(np.float64),
        x.astype(">f8"),
        np.asfortranarray(x),
        x[::-1][::-1],
        wide[:, ::2],
        sparse.csr_matrix(x),
        sparse.csc_matrix(x),
        sparse.coo_matrix(x),
        sparse.lil_matrix(x),
    ):
        np.testing.assert_array_equal(again.project(same), wanted)
    for i in (0, 1, 5460, 5461, 8999):
        np.testing.assert_array_equal(again.project(x[i]), wanted[i : i + 1])
        np.testing.assert_array_equal(again.project(sparse.csr_matrix(x)[i]), wanted[i : i + 1])
    parts = [again.project(x[start : start + 700]) for start in range(0, 9000, 700)]
    np.testing.assert_array_equal(np.concatenate(parts), wanted)


def test_memory_maps_and_read_only_arrays(tmp_path: Path) -> None:
    x = uniform(100).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    privatizer = plain()
    np.testing.assert_array_equal(privatizer.project(mapped), privatizer.project(x))
    assert len(privatizer.privatize(mapped)) == 100
    x.flags.writeable = False
    privatizer.privatize(x)
    clipping = plain(bounds=(-0.5, 0.5), clip=True)
    np.testing.assert_array_equal(
        clipping.project(mapped), plain().project(np.clip(x.astype(float), -0.5, 0.5))
    )


def test_one_vector_and_lists() -> None:
    privatizer = plain()
    assert len(privatizer.privatize(uniform(1)[0])) == 1
    assert len(privatizer.privatize(uniform(3).tolist())) == 3


def test_duplicate_and_unsorted_sparse_entries_are_one_attribute() -> None:
    """Entries given twice count as their sum, also against the bounds; the input stays as it is."""
    data = np.array([0.25, 0.5, -0.5, 0.75, -0.5])
    matrix = sparse.csr_matrix((data, [7, 3, 7, 3, 3], [0, 3, 3, 5]), shape=(3, 24))
    dense = np.zeros((3, 24))
    dense[0, 7], dense[0, 3], dense[2, 3] = -0.25, 0.5, 0.25
    privatizer = plain()
    np.testing.assert_array_equal(privatizer.project(matrix), privatizer.project(dense))
    privatizer.privatize(matrix)
    assert matrix.nnz == 5
    assert matrix.indices.tolist() == [7, 3, 7, 3, 3]
    coordinates = sparse.coo_matrix(([0.75, 0.75], ([1, 1], [5, 5])), shape=(2, 24))
    with pytest.raises(InputError, match=r"row 1, column 5 lies outside"):
        privatizer.privatize(coordinates)


# Faults


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (np.zeros((3, 23)), "23 columns where 24 are expected"),
        (np.zeros((3, 25)), "25 columns"),
        (np.zeros(23), "23 columns"),
        (sparse.csr_matrix((3, 25)), "25 columns"),
        (np.zeros((0, 24)), "no rows"),
        (sparse.csr_matrix((0, 24)), "no rows"),
        ([], "0 columns"),
        (np.zeros((2, 3, 24)), "two dimensions, not 3"),
        (np.float64(1.0), "two dimensions, not 0"),
        (np.zeros((2, 24), dtype=complex), "real numbers, not complex128"),
        (sparse.csr_matrix((2, 24), dtype=complex), "real numbers, not complex128"),
        (np.zeros((2, 24), dtype=object), "real numbers, not object"),
        (np.zeros((2, 24), dtype="U1"), "real numbers"),
        (np.zeros((2, 24), dtype="M8[s]"), "real numbers"),
        (None, "real numbers"),
        ("vector", "real numbers"),
        ([[0.0] * 24, [0.0] * 23], "equally long"),
    ],
)
def test_wrong_tables_are_refused(x: Any, words: str) -> None:
    for act in (plain().privatize, plain().project, plain().check):
        with pytest.raises(InputError, match=words):
            act(x)


PLACES = [(0, 0), (5460, 23), (5461, 0), (11_999, 7)]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.nan, "is NaN"),
        (np.inf, "is infinite"),
        (-np.inf, "is infinite"),
        (1.001, r"lies outside the public bounds \[-1, 1\]"),
        (-7.25, "lies outside"),
        (1e300, "lies outside"),
    ],
)
@pytest.mark.parametrize(("row", "column"), PLACES)
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csc_matrix])
def test_faults_are_named_by_row_and_column(
    value: float, words: str, row: int, column: int, kind: Any
) -> None:
    """The first faulty row counts from ``first_row``; the value, which is private, is not shown."""
    x = np.zeros((12_000, 24))
    x[::3, ::5] = 0.5
    x[row, column] = value
    privatizer = plain(epsilon=2.5)
    for act in (privatizer.privatize, privatizer.project, privatizer.check):
        with pytest.raises(InputError, match=rf"^row {row}, column {column} {words}") as caught:
            act(kind(x))
        assert "7.25" not in str(caught.value)
        assert "1.001" not in str(caught.value)
    with pytest.raises(InputError, match=rf"^row {row + 1_000_000}, column {column} "):
        privatizer.privatize(kind(x), first_row=1_000_000)


def test_the_first_of_several_faults_is_reported_with_any_number_of_threads() -> None:
    x = np.zeros((40_000, 64))
    x[[39_999, 20_000, 17_000], [1, 2, 3]] = np.nan
    privatizer = plain(dim=64, k=64)
    for threads in (1, 2, 3):
        with pytest.raises(InputError, match=r"^row 17000, column 3 is NaN"):
            privatizer.privatize(x, threads=threads)


def test_bounds_are_of_scaled_values_and_belong_to_the_range() -> None:
    bytes_ = np.arange(240, dtype=np.uint8).reshape(10, 24) + 16
    privatizer = plain(scale=255, bounds=(0.0, 1.0))
    privatizer.privatize(bytes_)
    with pytest.raises(InputError, match=r"bounds \[0, 1\] after division by scale 255"):
        privatizer.privatize(bytes_.astype(np.int16) + 1)
    plain(bounds=(-0.25, 0.5)).privatize([[-0.25] * 12 + [0.5] * 12])
    with pytest.raises(InputError, match="column 12 lies outside"):
        plain(bounds=(-0.25, 0.5)).privatize([[-0.25] * 12 + [np.nextafter(0.5, 1)] * 12])


def test_sparse_zeros_must_lie_within_the_bounds() -> None:
    with pytest.raises(InputError, match="sparse vectors hold zeros"):
        plain(bounds=(0.5, 1.0)).privatize(sparse.csr_matrix(np.full((2, 24), 0.75)))


def test_clip_moves_values_to_the_bounds_but_not_nan() -> None:
    x = 3 * uniform(50)
    clipping, strict = plain(clip=True), plain()
    wanted = strict.project(np.clip(x, -1, 1))
    np.testing.assert_array_equal(clipping.project(x), wanted)
    np.testing.assert_array_equal(clipping.project(sparse.csr_matrix(x)), wanted)
    clipping.privatize(x)
    for value in (np.nan, np.inf):
        x[4, 5] = value
        with pytest.raises(InputError, match=r"^row 4, column 5 is"):
            clipping.privatize(x)


def test_declared_norms_are_checked() -> None:
    x = uniform(9000)
    x *= 0.5 / np.linalg.norm(x, axis=1, keepdims=True)
    privatizer = plain(norm=1.0, scale=0.5)
    x[70] *= 1.009
    for kind in (np.asarray, sparse.csr_matrix):
        privatizer.privatize(kind(x))
    x[8000] *= 1.011
    x[8500] = 0
    for kind in (np.asarray, sparse.csr_matrix):
        for act in (privatizer.privatize, privatizer.check):
            with pytest.raises(InputError, match=r"^row 8010 does not have the declared norm 1;"):
                act(kind(x), first_row=10)


@pytest.mark.parametrize("threads", [0, -1])
def test_threads_start_at_one(threads: int) -> None:
    with pytest.raises(InputError, match="threads must be at least 1"):
        plain().privatize(uniform(2), threads=threads)


@pytest.mark.parametrize(
    "changes",
    [
        {"bounds": (-1e9, 1e9)},
        {"scale": 1e-40},
        {"adjacency": dpi.attribute(1e-25), "bounds": (0.0, 1e-26), "scale": 1e-10},
        {"scale": 1e31},
    ],
)
def test_parameters_that_strain_the_arithmetic_are_refused_at_once(changes: Any) -> None:
    with pytest.raises(InputError):
        plain(**changes)


# Noise


@pytest.mark.parametrize("row", EVERY)
def test_codes_do_not_depend_on_threads(row: Any) -> None:
    """Several tasks: every row gets a code near its projection, and rows keep their order."""
    epsilon = None if row.definition == "none" else 64.0
    spec = example(row, 64, k=64, epsilon=epsilon)
    privatizer = dpi.Privatizer(spec)
    x = np.random.default_rng(3).uniform(0.2, 1, (33_000, 64)).astype(np.float32)
    exact = privatizer.project(x)
    for threads in (None, 1, 2, 5):
        codes = privatizer.privatize(x, threads=threads)
        assert len(codes) == len(x)
        if row.codes == "numbers":
            noise = codes.to_float() - exact * spec.step
            constant, first, second = spec.law.moments.variance_of_x
            stated = (constant + first * exact + second * exact**2) * spec.step**2
            # 30 deviations: below e^−42 a number even for Laplace noise.
            assert (noise**2 <= 900 * stated + 1e-6).all()
            assert (noise**2).mean() <= 1.1 * stated.mean() + 1e-6
        else:
            agreement = (codes.to_signs() == np.sign(exact)).mean(axis=1)
            assert agreement.mean() > 0.65
            assert (agreement > 0.5).mean() > 0.99


def test_cores_is_a_count() -> None:
    assert cores() >= 1


def distinct(rows: Any) -> int:
    """How many different rows."""
    rows = np.ascontiguousarray(rows)
    return len(np.unique(rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1])))))


@pytest.mark.parametrize("row", [row for row in EVERY if row.values[0].definition == "DP"])
def test_identical_vectors_never_share_noise(row: Any) -> None:
    """40 000 equal vectors, in several tasks, threads and calls, with codes of 128 or more random
    bits: two equal codes would come from noise used twice (by chance: below 1e-27)."""
    spec = dpi.Spec(**(needed(row) | {"dim": 128, "k": 128, "epsilon": 0.05}))
    x = np.broadcast_to(np.random.default_rng(4).uniform(0, 1, 128), (20_000, 128))
    codes = [dpi.Privatizer(spec).privatize(x, threads=2) for _ in range(2)]
    both = np.concatenate([np.asarray(part.stored, dtype=np.int32) for part in codes])
    assert distinct(both) == len(both)


def test_no_stretch_of_noise_comes_twice() -> None:
    """Not even shifted: no twelve numbers in a row (at least 90 bits) occur twice in 520 000."""
    spec = dpi.Spec("raw-laplace", 16, epsilon=0.05, bounds=(0.0, 1.0))
    privatizer = dpi.Privatizer(spec)
    zeros = np.zeros((8000, 16))
    noise = [privatizer.privatize(zeros, threads=1).stored.ravel() for _ in range(2)]
    noise += [privatizer.privatize(row).stored.ravel() for row in zeros[:500]]
    noise += [dpi.Privatizer(spec).privatize(zeros).stored.ravel()]
    noise += [privatizer.privatize(sparse.csr_matrix(zeros)).stored.ravel()]
    flat = np.concatenate([part.astype(np.int16) for part in noise])
    windows = np.lib.stride_tricks.sliding_window_view(flat, 12)
    assert distinct(windows) == len(windows)


@pytest.mark.parametrize("name", ["raw-laplace", "raw-staircase", "dp-oporp-staircase"])
@pytest.mark.parametrize("threads", [1, 2])
def test_codes_wider_than_int16(name: str, threads: int) -> None:
    """At ε = 0.001 and values up to 30 000 β some blocks need int32: nothing is cut or moved.

    Noise beyond 60 000 β has probability e^−60 a number.
    """
    privatizer = plain(
        method=name, dim=64, k=64, epsilon=0.001, bounds=(-3e4, 3e4), adjacency=dpi.attribute(1.0)
    )
    x = np.zeros((33_000, 64))
    x[5000], x[-1] = 3e4, -3e4
    codes = privatizer.privatize(x, threads=threads)
    assert isinstance(codes, FloatCodes)
    noise = codes.to_float() - privatizer.project(x) * privatizer.spec.step
    assert np.abs(noise).max() < 60_000
    # 64 draws have a mean within 10 standard errors (1414 β / 8 each) of 0.
    for i in (0, 4999, 5000, 5001, 32_998, 32_999):
        assert abs(noise[i].mean()) < 1800
    assert dpi.codes_from_bytes(codes.to_bytes()).to_float().tolist() == codes.to_float().tolist()


def test_wide_codes_are_exact() -> None:
    """At ε = 64 the noise is far below a beta: wide codes decode to what went in."""
    privatizer = plain(method="raw-staircase", dim=64, k=64, epsilon=64.0, bounds=(-3e4, 3e4))
    x = np.random.default_rng(5).uniform(-1e-3, 1e-3, (20_000, 64))
    x[[3, 4096, 19_999]] = 3e4
    codes = privatizer.privatize(x)
    assert isinstance(codes, FloatCodes)
    assert codes.values.dtype == np.int32
    np.testing.assert_allclose(codes.to_float(), x, rtol=1e-4, atol=0.51)


def test_common_codes_are_small() -> None:
    assert plain().privatize(uniform(50)).stored.dtype in (np.int8, np.int16)
    assert plain(method="dp-signoporp-rr").privatize(uniform(50)).stored.shape == (50, 1)


@pytest.mark.parametrize("row", NOISY_FLOATS)
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_decoded_codes_are_unbiased_with_the_variance_they_state(row: Any, epsilon: float) -> None:
    """20 000 privatizations of one vector.

    Means within 6 standard errors (24 of them), the pooled variance within 6 of its own (from the
    fourth moments): a false alarm has probability below 1e-7. That is 1 to 4 % of the variance, so
    noise 5 % too small is seen.
    """
    changes = {} if row.family.keeps_all else {"k": 24}
    spec = example(row, epsilon=epsilon, **changes)
    low, high = spec.bounds
    x = np.random.default_rng(6).uniform(low, high, 24)
    privatizer = dpi.Privatizer(spec)
    codes = privatizer.privatize(np.broadcast_to(x, (20_000, 24)))
    exact = privatizer.project(x)[0].astype(np.float64)
    moments = spec.law.moments
    constant, first, second = moments.variance_of_x
    stated = (constant + first * exact + second * exact**2) * spec.step**2
    errors = codes.to_float().astype(np.float64) - exact * spec.step
    assert (np.abs(errors.mean(axis=0)) < 6 * np.sqrt(stated / 20_000)).all()
    squares = errors**2 / stated
    tolerance = 6 * squares.std() / np.sqrt(squares.size)
    assert tolerance < 0.05
    assert abs(squares.mean() - 1) < tolerance
    if moments.weight == 1.0:  # additive
        fourth = moments.squared[0] + moments.variance[0] ** 2
        kurtosis = fourth * spec.step**4 / stated.mean() ** 2
        assert squares.var() + 1 == pytest.approx(kurtosis, rel=0.2)


def test_scale_is_divided_out_before_the_projection() -> None:
    """Codes are in units of scaled attributes: 255 with scale 255 is 1."""
    x = np.random.default_rng(7).integers(0, 256, (40, 24)).astype(np.uint8)
    scaled = plain(scale=255.0)
    np.testing.assert_allclose(
        scaled.project(x) * scaled.spec.step,
        plain().project(x / 255.0) * plain().spec.step,
        atol=24 * plain().spec.step,
    )


def test_projection_in_units_is_close_to_the_real_one() -> None:
    """Rounding to the grid moves an attribute by half a step, so a bin of three by 1.5."""
    x = uniform(500)
    privatizer = plain()
    matrix = privatizer.project(np.eye(24)) * privatizer.spec.step
    np.testing.assert_allclose(
        privatizer.project(x) * privatizer.spec.step,
        x @ np.rint(matrix),
        atol=1.6 * privatizer.spec.step,
    )


def test_duplicate_entries_are_added_before_they_are_checked_and_rounded() -> None:
    """Apart, each of the 0.75 would pass the bounds, and each piece would be rounded on its own: a
    change of beta spread over many pieces would move the attribute by more than its sensitivity."""
    over = sparse.csr_matrix((np.full(2, 0.75), [5, 5], [0, 0, 2]), shape=(2, 24))
    with pytest.raises(InputError, match=r"row 1, column 5 lies outside"):
        plain().privatize(over)
    piece = 0.4 * plain().spec.step
    pieces = sparse.csr_matrix((np.full(100, piece), np.full(100, 5), [0, 100]), shape=(1, 24))
    whole = np.zeros((1, 24))
    whole[0, 5] = 100 * piece
    assert np.abs(plain().project(pieces)).max() == np.abs(plain().project(whole)).max() == 40


def test_a_mask_is_not_lost() -> None:
    """NumPy would hand out what lies under the mask, and it would be published."""
    from dpindex.race import L2, RaceSketch

    hidden = np.ma.masked_array(np.zeros((2, 24)), mask=True)
    spec = dpi.Spec(method="dp-oporp-staircase", dim=24, epsilon=1.0)
    with pytest.raises(InputError, match="have a mask, which would be lost"):
        dpi.Privatizer(spec).privatize(hidden)
    with pytest.raises(InputError, match="have a mask, which would be lost"):
        RaceSketch(24, 4, 8, L2(1.0), 1.0).fit(hidden)


def test_malformed_sparse_matrices_are_refused() -> None:
    """An index beyond the last column would otherwise be taken for another attribute."""
    rows = sparse.csr_matrix(np.eye(3, 6))
    rows.indices[1] = 6
    for method in ("dp-oporp-staircase", "dp-rp-l", "dp-sjlt-laplace"):
        spec = dpi.Spec(method, dim=6, k=2, epsilon=1.0)
        with pytest.raises(InputError, match="malformed"):
            dpi.Privatizer(spec).privatize(rows)
