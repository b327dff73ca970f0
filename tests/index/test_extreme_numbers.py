"""Numbers at the ends of what a spec allows are ranked as those of usual size."""

import numpy as np
import pytest
from helpers.common import attribute_spec, filled_index, known_noise, refuses
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import dpindex as dpi
from dpindex.base.arrays import unit

pytestmark = known_noise

AXES = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
SIZES = [2e-28, 1e-23, 1e-19, 1.0, 2e19, 1e30, 1e32]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("method", ["raw-staircase", "raw-laplace", "dp-oporp-staircase"])
def test_the_first_hit_is_not_the_opposite_vector(method, size):
    """At 2e19 and at 1e-23 every score was 0."""
    change = dpi.attribute(min(max(size / 100, 1e-30), 1e30))
    spec = dpi.Spec(
        method,
        2,
        epsilon=60.0,
        bounds=(-size, size),
        adjacency=change,
    )
    index = filled_index(spec, size * AXES)
    asked = size * np.array([[1.0, 0.1], [-0.1, 1.0]])
    for mode in ("exact", "private"):
        hits = index.search(asked, k=3, query=mode)
        assert hits.ids.tolist() == [[0, 1, 2], [1, 2, 0]]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_rows_of_any_size_have_norm_1_and_rows_of_zeros_stay(kind):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(7, 5))
    for power in range(-36, 37, 3):
        rows[3] = 0
        found = unit((rows * 10.0**power).astype(kind))
        assert found.dtype == np.float32
        kept = np.delete(np.arange(7), 3)
        wanted = rows[kept] / np.linalg.norm(rows[kept], axis=1, keepdims=True)
        assert_allclose(found[kept], wanted, atol=2e-3 if power < -35 else 1e-6)
        assert not found[3].any()


def given_twice(values, form):
    """A matrix of two rows, of which the first has two values at one place."""
    rows = [0, 0, 1]
    columns = [1, 1, 2]
    if form == "coo":
        return sparse.coo_matrix((values, (rows, columns)), shape=(2, 3))
    if form == "csr":
        return sparse.csr_matrix((values, columns, [0, 2, 3]), shape=(2, 3))
    return sparse.csc_matrix((values, rows, [0, 0, 2, 3]), shape=(2, 3))


@pytest.mark.parametrize("form", ["coo", "csr", "csc"])
@pytest.mark.parametrize("kind", ["u1", "i1", "u2", "i2", "u4", "i4", "f4"])
def test_entries_given_twice_are_added_up_exactly(form, kind, tmp_path):
    """200 + 100 in bytes was privatized as 44."""
    half = 2**24 if kind == "f4" else int(np.iinfo(kind).max) // 2 + 2
    values = np.array([half, half - 1, 3], kind)
    total = 2 * half - 1
    matrix = given_twice(values, form)
    spec = dpi.Spec(
        "none-oporp", 3, k=3, bounds=(0, total), adjacency=dpi.attribute(max(total / 100, 1))
    )
    dense = np.array([[0, float(half) + float(values[1]), 0], [0, 0, 3]])
    privatizer = dpi.Privatizer(spec, allow_unprotected=True)
    wanted = privatizer.privatize(dense).to_float()
    assert_array_equal(privatizer.privatize(matrix).to_float(), wanted)
    if form != "csr":
        return
    sparse.save_npz(tmp_path / "x.npz", matrix)
    with dpi.open_dataset(tmp_path / "x.npz") as dataset:
        index = filled_index(spec, dataset)
    assert_array_equal(index.codes.to_float(), wanted)


@pytest.mark.parametrize("form", ["coo", "csr", "csc"])
@pytest.mark.parametrize("kind", ["i8", "u8"])
def test_a_sum_that_no_number_holds_is_refused(form, kind):
    values = np.array([np.iinfo(kind).max, 5, 1], np.dtype(kind))
    spec = attribute_spec("raw-staircase", 3, epsilon=2.0, bounds=(0, 9))
    with refuses():
        dpi.Privatizer(spec).privatize(given_twice(values, form))
