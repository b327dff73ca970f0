"""Checks of arguments: one mistake, one sentence, wherever it is made."""

import math
from fractions import Fraction

import numpy as np
import pytest
from helpers.common import attribute_spec, codes_of, folded, refuses, uniform
from scipy import sparse

from dpindex import PrivateIndex, Privatizer
from dpindex.base import errors
from dpindex.base.checks import (
    checked_delta,
    checked_epsilon,
    finite_number,
    real_matrix,
    whole_number,
)
from dpindex.base.display import progress_bar
from dpindex.base.errors import InputError, import_extra
from dpindex.base.files import map_file, read_file, unpack
from dpindex.decode.fit import fit_denoiser


@folded("value", [2, 2.0, np.float32(2), np.int8(2), np.uint64(2), Fraction(2)])
def test_numbers_of_every_kind_are_taken_by_value(value):
    assert finite_number(value, "x") == 2.0
    assert type(finite_number(value, "x")) is float
    assert whole_number(value, "x", 2, 2) == 2
    assert type(whole_number(value, "x", 2, 2)) is int


def test_minus_zero_is_zero():
    assert str(finite_number(-0.0, "x")) == "0.0"


NO_NUMBERS = [math.nan, math.inf, -math.inf, True, np.bool_(True), "2", None, 1j, [2.0], 10**400]


@folded("value", NO_NUMBERS)
def test_what_is_no_number_is_refused(value):
    with refuses(r"^the width must be a finite number, not .*\.$"):
        finite_number(value, "the width")
    with refuses(r"^the width must be a whole number from 1 to 9, not"):
        whole_number(value, "the width", 1, 9)


@folded("value", [0, 10, 2.5, Fraction(5, 2)])
def test_whole_numbers_lie_in_their_range(value):
    with refuses("from 1 to 9"):
        whole_number(value, "x", 1, 9)
    assert whole_number(1, "x", 1, 9) == 1
    assert whole_number(9.0, "x", 1, 9) == 9


def test_bounds_of_budgets():
    assert checked_epsilon(0.001) == 0.001
    assert checked_epsilon(64) == 64.0
    for value in (0.0009, 64.1):
        with refuses(r"epsilon must lie in \[0.001, 64\]"):
            checked_epsilon(value)
    assert checked_delta(1e-30, "it") == 1e-30
    for value, most in {0.0: 1.0, 1.0: 1.0, 1e-31: 1.0, 0.5: 0.5}.items():
        with refuses("it needs a delta in"):
            checked_delta(value, "it", most)


@folded("x", [[[1, 2], [3, 4]], np.eye(2, dtype=np.uint8), sparse.eye(2)])
def test_tables_keep_their_values(x):
    rows = real_matrix(x, 2)
    assert rows.shape == (2, 2)
    if sparse.issparse(x):
        rows = rows.toarray()
        x = x.toarray()
    np.testing.assert_array_equal(rows, x)


def test_a_single_vector_is_one_row():
    assert real_matrix([1.0, 2.0], 2).shape == (1, 2)


MASKED = np.ma.masked_array(np.zeros((2, 2)), mask=True)


@folded(
    "x, words",
    [
        (MASKED, "queries have a mask"),
        (np.zeros((2, 3)), "queries have 3 columns where 2 are expected"),
        (np.zeros((0, 2)), "there are no queries"),
        (np.zeros((1, 2, 2)), "queries must form a table of two dimensions, not 3"),
        (np.zeros((2, 2), complex), "queries must be real numbers, not complex128"),
        ([[0.0, 1.0], [2.0]], "queries must all be equally long"),
    ],
)
def test_other_tables_are_refused(x, words):
    with refuses(words):
        real_matrix(x, 2, "queries")


# Progress of long work where no terminal is


def test_a_pipe_gets_a_line_for_each_quarter(capsys):
    with progress_bar("planning", quarters=True) as report:
        for done in range(101):
            report(done, 100, "ε = 4")
        for done in range(101):
            report(done, 100, "ε = 8")
    assert capsys.readouterr().err.splitlines() == [
        "planning: 25 %; ε = 4",
        "planning: 50 %; ε = 4",
        "planning: 75 %; ε = 4",
        "planning: ε = 8",  # and not back to 0 %
    ]
    with progress_bar("building") as report:
        report(50, 100)
    assert capsys.readouterr().err == ""


# A caller that must tell a cause apart finds it in the class of the error


SPEC = attribute_spec("dp-oporp-staircase", 6, epsilon=20.0)
X = uniform(20, 6)


ERRORS = [name for name in vars(errors) if name.endswith("Error")]


@folded("name", ERRORS)
def test_every_error_is_an_input_error_that_says_when(name):
    error = getattr(errors, name)
    assert issubclass(error, InputError)
    assert error.__doc__


def test_naming_keeps_the_class():
    with pytest.raises(errors.BusyError, match=r"^x: busy\.$"), errors.naming("x"):
        raise errors.BusyError("busy.")


def test_too_few_codes():
    with pytest.raises(errors.NoDenoiserError, match="too few"):
        fit_denoiser(codes_of(SPEC, X), SPEC)


def test_no_denoiser():
    bare = attribute_spec("none-oporp", 6)
    codes = Privatizer(bare, allow_unprotected=True).privatize(X)
    with pytest.raises(errors.NoDenoiserError, match="no noise"):
        fit_denoiser(codes, bare)


def test_damaged(tmp_path):
    with pytest.raises(errors.DamagedError):
        unpack(b"no container", "codes")
    with pytest.raises(errors.DamagedError):
        PrivateIndex.open(tmp_path)


def test_storage(tmp_path):
    for read in (read_file, map_file):
        with pytest.raises(errors.StorageError, match="check the path"):
            read(tmp_path / "none", 10)


def test_missing_package():
    with pytest.raises(errors.MissingPackageError, match="pip install"):
        import_extra("no_such_module", "this needs it", "io")
