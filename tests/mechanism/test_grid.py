"""The grid: sensitivity in exact rational arithmetic, and refusals that never show a value."""

from fractions import Fraction

import numpy as np
from helpers.common import folded, refuses
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng

from dpindex.mechanism.grid import Grid, grid_point, grid_step

DTYPES = (np.float32, np.float64)
BETAS = (0.1, 1 / 3, 1.0, 255.0, 7e-9)


PLAIN = {
    "beta": 1.0,
    "bits": 12,
    "scale": 1.0,
    "bounds": (-1.0, 1.0),
    "clip": False,
    "max_column_l1": 1,
}


def _grid(**changes):
    return Grid(**{**PLAIN, **changes})


def _within_one_beta(x, grid, dtype):
    """The largest number of ``dtype`` whose attribute is at most one beta above that of x."""
    beta = Fraction(grid.beta) * Fraction(grid.scale)
    limit = Fraction(x) + beta
    other = dtype(float(limit))
    while Fraction(float(other)) > limit:
        other = np.nextafter(other, dtype(-np.inf))
    return other


def _worst_move(grid, x):
    """Largest exact change of a rounded attribute between each x and its furthest neighbour."""
    kind = x.dtype.type
    furthest = [_within_one_beta(value, grid, kind) for value in x.tolist()]
    before = grid.round(x).astype(np.float64)
    after = grid.round(np.array(furthest, kind)).astype(np.float64)
    return int((after - before).max())


def _near_ties(grid, dtype, reach, count):
    """Inputs around half-steps, where the roundings of floats can tip the result."""
    half = Fraction(grid.step) * Fraction(grid.scale) / 2
    places = default_rng(0).integers(0, int(reach / grid.step), count)
    exact = [(2 * place + 1) * half for place in places.tolist()]
    ties = np.array(list(map(float, exact)), dtype)
    around = [ties]
    for target in (-np.inf, np.inf):
        moved = ties
        for _ in range(3):
            moved = np.nextafter(moved, dtype(target))
            around.append(moved)
    both = np.concatenate(around)
    return np.concatenate([both, -both])


@folded("dtype", DTYPES)
@folded("beta", BETAS)
@folded("scale", [1.0, 255.0, 1e-5])
@folded("bits, reach", [(12, 1), (12, 31), (14, 31), (12, 3e4), (12, 1e10)])
def test_one_beta_moves_at_most_two_to_the_bits_near_ties(dtype, beta, scale, bits, reach):
    end = (reach + 1) * beta
    bounds = (-end, end)
    grid = _grid(beta=beta, bits=bits, scale=scale, bounds=bounds)
    grid.check_capacity(2**46)
    x = _near_ties(grid, dtype, reach * beta, 60)
    assert _worst_move(grid, x) <= 1 << bits


@folded(
    "changes, dtype",
    [
        ({}, np.float32),
        ({"bounds": (-32.0, 32.0)}, np.float32),
        ({"bounds": (0.0, 32.0001)}, np.float64),
        ({"bounds": (-33.0, 1.0)}, np.float64),
        ({"max_column_l1": 4094}, np.float32),
        ({"max_column_l1": 4097}, np.float64),
        ({"bits": 14, "max_column_l1": 1100}, np.float64),
        ({"beta": 0.01}, np.float64),
        ({"beta": 0.01, "bounds": (-0.3, 0.3)}, np.float32),
        ({"scale": 255.0}, np.float32),
    ],
)
def test_float_type_follows_from_public_parameters_only(changes, dtype):
    grid = _grid(**changes)
    assert grid.dtype == dtype
    for kind in DTYPES:
        assert grid.round(np.zeros(2, kind)).dtype == dtype


@folded("most", [2**30, 2**46])
def test_capacity(most):
    edge = most / 4096

    def check(low, high, columns=1):
        _grid(bounds=(low, high), max_column_l1=columns).check_capacity(most)

    check(0.0, edge * 0.999)
    check(0.0, edge * 0.99 / 100, 100)
    edge *= 1.001
    with refuses("are too wide for beta = 1"):
        check(-edge, 0.0)
    with refuses("are too wide for beta = 1"):
        check(0.0, edge / 100, 100)


@folded("changes", [{"scale": 1e-31}, {"scale": 1e31}, {"beta": 1e-200}])
def test_units_where_floats_lose_bits_are_refused(changes):
    """Subnormal float32 input is rounded coarsely: a change of beta could move much further."""
    grid = _grid(bounds=(-1e-300, 1e-300), **changes)
    with refuses("beta × scale must lie in"):
        grid.check_capacity(2**46)


@folded("scale", [1e-30, 1e30])
@folded("dtype", DTYPES)
def test_units_at_the_edge_are_exact(scale, dtype):
    grid = _grid(scale=scale, bounds=(-3.0, 3.0))
    grid.check_capacity(2**46)
    x = _near_ties(grid, dtype, 2.0, 60)
    assert _worst_move(grid, x) <= 1 << 12


@folded("dtype", [np.float16, np.float32, np.float64])
@folded("clip", [False, True])
def test_first_fault_names_place_and_kind(dtype, clip):
    grid = _grid(clip=clip)
    for bad, words in ((np.nan, "NaN"), (np.inf, "infinite"), (-np.inf, "infinite")):
        x = np.zeros((3, 4), dtype)
        x[1, 2] = bad
        place, said = grid.first_fault(x)
        assert place == (1, 2)
        assert words in said


@folded("dtype", [np.int8, np.int64, np.float16, np.float32, np.float64])
@folded("bad", [77, -77])
def test_a_value_out_of_bounds_is_placed_and_never_shown(dtype, bad):
    x = np.zeros((3, 4), dtype)
    x[2, 1] = bad
    place, said = _grid().first_fault(x)
    assert place == (2, 1)
    assert "[-1, 1]" in said
    assert "77" not in said
    assert _grid(clip=True).first_fault(x) is None
    assert _grid(scale=77.0).first_fault(x) is None
    _, said = _grid(scale=6.0).first_fault(x)
    assert "after division by scale 6" in said


def test_no_fault_in_nothing_and_at_the_bounds():
    grid = _grid(bounds=(-0.5, 1.0), scale=255.0)
    assert grid.first_fault(np.empty((0, 3))) is None
    assert grid.first_fault(np.array([[-127.5, 255.0]])) is None
    assert grid.first_fault(np.array([[0, 255]], np.uint8)) is None
    assert grid.first_fault(np.array([[True]])) is None


def test_clip_moves_to_the_bounds_and_leaves_its_input_alone():
    grid = _grid(clip=True, bounds=(-0.5, 1.0), scale=2.0)
    x = np.array([-5.0, -1.0, 0.5, 2.0, 1e300])
    before = x.copy()
    assert grid.round(x).tolist() == [-2048, -2048, 1024, 4096, 4096]
    assert np.array_equal(x, before)
    assert grid.round(np.array([-100, 100], np.int8)).tolist() == [-2048, 4096]


def test_grid_point_agrees_with_round():
    step = grid_step(0.5, 12)
    values = [-1.0, -0.25, 0.0, 0.1, 1 / 3, 1.0]
    points = [grid_point(value, 0.5, 12) for value in values]
    assert points == _grid(beta=0.5).round(np.array(values)).tolist()
    stated = np.array(points) * step
    np.testing.assert_allclose(stated, values, rtol=0, atol=step / 2)


@folded("dtype", [np.float16, np.float32, np.float64])
@folded("bounds", [(-0.1, 0.1), (0.1, 0.7), (-1 / 3, 1e-3), (0.0, 1.0)])
@folded("clip", [False, True])
def test_a_bound_in_the_data_own_precision_is_no_fault(dtype, bounds, clip):
    """float32(0.1) > 0.1. Such values count as the bound itself, so that the sums of the grid and
    its sensitivity are those of the bounds; the next float further out is refused.
    """
    grid = _grid(beta=0.01, bounds=bounds, clip=clip)
    x = np.array(bounds, dtype=dtype)
    assert grid.first_fault(x) is None
    ends = grid.round(np.array(bounds))
    own = grid.round(x).astype(np.float64)
    assert (own >= ends[0]).all()
    assert (own <= ends[1]).all()
    above = np.nextafter(x[1], dtype(np.inf))
    beyond = np.array([x[0], above])
    if not clip:
        fault = grid.first_fault(beyond)
        if above > bounds[1]:
            assert fault[0] == (1,)


def test_a_bound_beyond_the_data_own_range_lets_no_infinity_in():
    grid = _grid(beta=1e4, bounds=(-1e5, 1e5))
    assert grid.first_fault(np.array([6e4], np.float16)) is None
    _, said = grid.first_fault(np.array([0, np.inf], np.float16))
    assert "infinite" in said


@given(
    st.floats(1e-3, 1e3), st.floats(1e-4, 1.0), st.sampled_from([np.float16, np.float32]), st.data()
)
def test_neighbours_at_a_bound_stay_neighbours(high, share, dtype, data):
    """Of two values a beta apart, one of which rounding moved past the bound."""
    beta = high * share
    grid = _grid(beta=beta, bounds=(-high, high))
    one = dtype(high)
    other = dtype(data.draw(st.floats(high - beta, high)))
    pair = np.array([one, other])
    apart = abs(float(one) - float(other))
    if apart <= beta and grid.first_fault(pair) is None:
        first, second = grid.round(pair).astype(np.float64)
        assert abs(first - second) <= 1 << 12
