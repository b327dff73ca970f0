"""Vectors in, exact projections out: every kind of input and of fault."""

from operator import attrgetter

import numpy as np
import pytest
from helpers.common import attribute_spec, example, folded, length, refuses, uniform, unit
from numpy.random import default_rng
from numpy.testing import assert_array_equal
from scipy import sparse

from dpindex import Privatizer, Spec, attribute, methods
from dpindex.mechanism.spec import Projector

NAME = attrgetter("name")
DTYPES = [
    *(np.dtype(kind + str(size)) for kind in "iu" for size in (1, 2, 4, 8)),
    *(np.dtype(order + "f" + str(size)) for order in "<>" for size in (2, 4, 8)),
    np.dtype(">i4"),
    np.dtype(">u2"),
    np.dtype(np.longdouble),
]


def plain(**changes):
    arguments = {
        "adjacency": attribute(1.0),
        "method": "dp-oporp-staircase",
        "dim": 24,
        "k": 8,
        "epsilon": 2.0,
    }
    return Privatizer(Spec(**{**arguments, **changes}))


# Input of every kind


@folded("dtype", DTYPES)
@folded("method", ["dp-oporp-staircase", "dp-oporp-laplace", "idp-signrp-rr"])
def test_every_dtype_gives_the_same_bits(dtype, method):
    """Steps of ⅛ in [0, 1] are exact in every type that holds 0 … 8, with scale 8."""
    numbers = default_rng(1).integers(0, 9, (30, 24))
    privatizer = plain(method=method, scale=8.0)
    wanted = privatizer.project(numbers.astype(np.float64))
    x = numbers.astype(dtype)
    before = x.copy()
    assert_array_equal(privatizer.project(x), wanted)
    assert len(privatizer.privatize(x)) == 30
    assert_array_equal(x, before)
    if dtype.isnative and dtype.kind + str(dtype.itemsize) not in ("f2", "f16"):
        for kind in (sparse.csr_matrix, sparse.csc_matrix, sparse.csr_array):
            assert_array_equal(privatizer.project(kind(x)), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("row", {row.family: row for row in methods()}.values(), ids=NAME)
def test_projections_agree_across_layouts_splits_and_instances(row):
    """A phone with one vector and a server with a million have the same bits (n spans blocks)."""
    spec = example(row, k=length(row, 12))
    rng = default_rng(2)
    x = rng.uniform(0, 1, (9000, 24)).astype(np.float32)
    x[rng.random(x.shape) < 0.6] = 0
    x[:, :4] = 1  # norms of at least 2
    wanted = Privatizer(spec, allow_unprotected=True).project(x)
    assert wanted.shape == (9000, spec.projection.k)
    if row.calibration.rounded:
        assert (wanted == np.rint(wanted)).all()
    described = Spec.from_json(spec.to_json())
    if spec.public is not None:
        described = described.with_public(spec.public)
    again = Privatizer(described, allow_unprotected=True)
    wide = np.zeros((9000, 48), dtype=np.float32)
    wide[:, ::2] = x
    forms = [x.astype(">f8"), np.asfortranarray(x), x[::-1][::-1], wide[:, ::2]]
    kinds = (sparse.csr_matrix, sparse.coo_matrix, sparse.lil_matrix)
    for same in [*forms, *(kind(x) for kind in kinds)]:
        assert_array_equal(again.project(same), wanted)
    for i in (0, 5460, 5461):
        alone = wanted[i : i + 1]
        assert_array_equal(again.project(x[i]), alone)
        assert_array_equal(again.project(sparse.csr_matrix(x[i])), alone)
    starts = range(0, 9000, 2500)
    parts = [again.project(x[start : start + 2500]) for start in starts]
    assert_array_equal(np.concatenate(parts), wanted)


def test_memory_maps_and_read_only_arrays(tmp_path):
    x = uniform(100, 24).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    privatizer = plain()
    assert_array_equal(privatizer.project(mapped), privatizer.project(x))
    assert len(privatizer.privatize(mapped)) == 100
    x.flags.writeable = False
    privatizer.privatize(x)
    clipping = plain(bounds=(-0.5, 0.5), clip=True)
    clipped = x.astype(float).clip(-0.5, 0.5)
    assert_array_equal(clipping.project(mapped), plain().project(clipped))


def test_duplicate_and_unsorted_sparse_entries_are_one_attribute():
    """Added before they are checked and rounded; the input stays as it is.

    Apart, each of the 0.75 would pass the bounds, and each piece would be rounded on its own: a
    change of beta spread over many pieces would move the attribute by more than its sensitivity.
    """
    data = np.array([0.25, 0.5, -0.5, 0.75, -0.5])
    rows = ([7, 3, 7, 3, 3], [0, 3, 3, 5])
    matrix = sparse.csr_matrix((data, *rows), shape=(3, 24))
    dense = np.zeros((3, 24))
    dense[0, 7] = -0.25
    dense[0, 3] = 0.5
    dense[2, 3] = 0.25
    privatizer = plain()
    assert_array_equal(privatizer.project(matrix), privatizer.project(dense))
    privatizer.privatize(matrix)
    assert matrix.nnz == 5
    assert matrix.indices.tolist() == [7, 3, 7, 3, 3]
    twice = ([1, 1], [5, 5])
    over = sparse.coo_matrix(([0.75, 0.75], twice), shape=(2, 24))
    for kind in (over, over.tocsc()):
        with refuses(r"row 1, column 5 lies outside"):
            privatizer.privatize(kind)
    piece = 0.4 * privatizer.spec.step
    hundred = (np.full(100, piece), np.full(100, 5), [0, 100])
    pieces = sparse.csr_matrix(hundred, shape=(1, 24))
    assert np.abs(privatizer.project(pieces)).max() == 40


def test_a_searcher_projects_as_a_device_does():
    """The projector alone, which knows no secret stream, has the privatizer's checks and bits."""
    device = plain()
    searcher = Projector(device.spec)
    assert not hasattr(searcher, "privatize")
    x = uniform(40, 24)
    assert_array_equal(searcher.project(x), device.project(x))
    with refuses("column 3 is NaN"):
        row = np.zeros((1, 24))
        row[0, 3] = np.nan
        searcher.project(row)


# Faults


@folded(
    "x, words",
    [
        (np.zeros((3, 23)), "23 columns where 24 are expected"),
        (sparse.csr_matrix((3, 25)), "25 columns"),
        (np.zeros((0, 24)), "no rows"),
        ([], "0 columns"),
        (sparse.csr_matrix((2, 24), dtype=complex), "real numbers, not complex128"),
        (np.zeros((2, 24), dtype=object), "real numbers, not object"),
        (None, "real numbers"),
        ("vector", "real numbers"),
    ],
)
def test_wrong_tables_are_refused(x, words):
    for act in (plain().privatize, plain().project, plain().check):
        with refuses(words):
            act(x)


PLACES = [(0, 0), (5460, 23), (5461, 0), (11_999, 7)]


@folded(
    "value, words",
    [
        (np.nan, "is NaN"),
        (np.inf, "is infinite"),
        (-np.inf, "is infinite"),
        (1.001, r"lies outside the public bounds \[-1, 1\]"),
        (-7.25, "lies outside"),
        (1e300, "lies outside"),
    ],
)
@folded("row, column", PLACES)
@folded("kind", [np.asarray, sparse.csr_matrix, sparse.csc_matrix])
def test_faults_are_named_by_row_and_column(value, words, row, column, kind):
    """The first faulty row counts from ``first_row``; the value, which is private, is not shown."""
    x = np.zeros((12_000, 24))
    x[::3, ::5] = 0.5
    x[row, column] = value
    privatizer = plain(epsilon=2.5)
    for act in (privatizer.privatize, privatizer.project, privatizer.check):
        with refuses(rf"^row {row}, column {column} {words}") as caught:
            act(kind(x))
        assert "7.25" not in str(caught.value)
        assert "1.001" not in str(caught.value)
    with refuses(rf"^row {row + 1_000_000}, column {column} "):
        privatizer.privatize(kind(x), first_row=1_000_000)


def test_bounds_are_of_scaled_values_and_belong_to_the_range():
    bytes_ = np.arange(240, dtype=np.uint8).reshape(10, 24) + 16
    privatizer = plain(scale=255, bounds=(0.0, 1.0))
    privatizer.privatize(bytes_)
    with refuses(r"bounds \[0, 1\] after division by scale 255"):
        privatizer.privatize(bytes_.astype(np.int16) + 1)
    narrow = plain(bounds=(-0.25, 0.5))
    ends = np.repeat([-0.25, 0.5], 12)
    narrow.privatize(ends)
    ends[12:] = np.nextafter(0.5, 1)
    with refuses("column 12 lies outside"):
        narrow.privatize(ends)


def test_declared_norms_are_checked():
    x = uniform(9000, 24)
    x = 0.5 * unit(x)
    privatizer = plain(norm=1.0, scale=0.5)
    x[70] *= 1.009
    for kind in (np.asarray, sparse.csr_matrix):
        privatizer.privatize(kind(x))
    x[8000] *= 1.011
    x[8500] = 0
    for kind in (np.asarray, sparse.csr_matrix):
        for act in (privatizer.privatize, privatizer.check):
            with refuses(r"^row 8010 does not have the declared norm 1;"):
                act(kind(x), first_row=10)


@folded(
    "changes",
    [
        {"bounds": (-1e9, 1e9)},
        {"scale": 1e-40},
        {"adjacency": attribute(1e-25), "bounds": (0.0, 1e-26), "scale": 1e-10},
        {"scale": 1e31},
    ],
)
def test_parameters_that_strain_the_arithmetic_are_refused_at_once(changes):
    with refuses():
        plain(**changes)


def test_a_mask_is_not_lost():
    """NumPy would hand out what lies under the mask, and it would be published."""
    hidden = np.ma.masked_array(np.zeros((2, 24)), mask=True)
    spec = attribute_spec("dp-oporp-staircase", 24, epsilon=1.0)
    with refuses("have a mask, which would be lost"):
        Privatizer(spec, allow_unprotected=True).privatize(hidden)


def test_malformed_sparse_matrices_are_refused():
    """An index beyond the last column would otherwise be taken for another attribute."""
    rows = sparse.csr_matrix(np.eye(3, 6))
    rows.indices[1] = 6
    for method in ("dp-oporp-staircase", "dp-rp-l", "dp-sjlt-laplace"):
        spec = attribute_spec(method, 6, k=2, epsilon=1.0)
        with refuses("malformed"):
            Privatizer(spec, allow_unprotected=True).privatize(rows)
