"""Designs: whole numbers whose columns are no heavier than one, whatever the sample is."""

import itertools
import json
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from helpers.common import (
    FAMILIES,
    attribute_spec,
    codes_of,
    folded,
    needed,
    normal,
    projected,
    refuses,
)
from numpy.random import default_rng
from numpy.testing import assert_array_equal
from scipy import sparse
from self_test.second_reading import refuted

import dpindex as dpi
from dpindex import Design, PrivateIndex, Privatizer, Spec
from dpindex.audit import verify_each
from dpindex.base.errors import DamagedError, NoGuaranteeError
from dpindex.base.files import pack, unpack
from dpindex.decode.designed import decoded
from dpindex.mechanism.method_table import TABLE
from dpindex.mechanism.noise.base import Moves
from dpindex.mechanism.public_parts import column_weight

pytestmark = pytest.mark.usefixtures("one_stream_check")
RNG = default_rng(5)
CAUSES = RNG.normal(size=(300, 3)) @ RNG.normal(size=(3, 12))
PUBLIC = CAUSES + 0.1 * RNG.normal(size=(300, 12))


def design_of(public=PUBLIC, **terms):
    return dpi.design(public, **{"epsilon": 1.0} | terms)


MADE = design_of(code_length=4)


def spec_of(design=MADE, **terms):
    stated = {"adjacency": dpi.attribute(1.0), "epsilon": 1.0, "bounds": (-9.0, 9.0)}
    return Spec("dp-designed-laplace", 12, design=design, **stated | terms)


def altered(design, **changes):
    """A design with other arrays or facts in its bytes."""
    facts, arrays = unpack(design.to_bytes(), "design")
    arrays |= {name: value for name, value in changes.items() if name in arrays}
    facts |= {name: value for name, value in changes.items() if name not in arrays}
    return Design.from_bytes(pack("design", facts, arrays))


# What one attribute moves, counted another way: by releasing every change of it


@pytest.mark.parametrize("method", ["dp-designed-laplace", "dp-signdesigned-geometric"])
@pytest.mark.parametrize("sparse_rows", [False, True])
def test_released_integers_move_by_no_more_than_the_law_was_told(method, sparse_rows):
    """All changes of one attribute by one beta, from several vectors, in whole numbers."""
    spec = attribute_spec(method, 12, epsilon=1.0, design=MADE, bounds=(-9.0, 9.0))
    rows = np.clip(PUBLIC[:6], -8, 8)

    def integers(x):
        form = sparse.csr_matrix if sparse_rows else np.asarray
        return projected(spec, form(x)).astype(np.int64)

    moved = []
    for attribute, change in itertools.product(range(12), (-1.0, -0.3, 0.7, 1.0)):
        other = rows.copy()
        other[:, attribute] += change
        difference = integers(other) - integers(rows)
        moved.append(np.abs(difference).sum(axis=1).max())
    units = max(moved) / 2**8
    weights = np.abs(MADE.entries.astype(int)).sum(axis=0)
    heaviest = int(weights.max())
    assert heaviest <= 256
    assert 0.9 * heaviest < units <= heaviest
    # The law: so many units cost epsilon.
    assert spec.projection.sensitivity.l1 == heaviest


def test_the_centre_is_subtracted_in_whole_steps():
    spec = spec_of()
    step = spec.grid.step
    centre = np.rint(MADE.centre.clip(-9, 9).astype(float) / step)
    grid = np.rint(PUBLIC[:5] / step)
    wanted = (grid - centre) @ MADE.entries.T.astype(float)
    found = projected(spec, PUBLIC[:5])
    assert_array_equal(found, np.rint(found))
    assert np.abs(found - wanted).max() <= 256
    centre = np.asarray(MADE.centre, np.float64)
    near = projected(spec, centre[None])
    assert np.abs(near).max() <= 256 * 12


def test_differences_from_a_far_centre_are_exact():
    """Vectors at one end of the bounds and a centre at the other: sums are twice as large."""
    made = design_of(code_length=1)
    signs = np.sign(made.entries)
    odd = (made.entries - signs).astype(np.int16)  # 255 where 256 was
    made = altered(made, entries=odd)
    ends = np.where(made.entries[0] >= 0, 1.0, -1.0)
    weight = int(np.abs(made.entries[0].astype(int)).sum())
    step = spec_of(made).grid.step
    bound = 0.99 * 2**24 * step / weight  # one side alone would fit into single precision
    centre = (-bound * ends).astype(np.float32)
    far = altered(made, centre=centre)
    spec = spec_of(far, bounds=(-bound, bound))
    near = 1 - 0.01 * RNG.random((200, 12))
    rows = bound * ends * near
    steps = spec.grid.round(rows).astype(np.int64)
    middle = spec.grid.round(far.centre[None]).astype(np.int64)
    wanted = (steps - middle) @ far.entries.astype(np.int64).T
    assert np.abs(wanted).max() > 2**24
    found = projected(spec, rows).astype(np.int64)
    assert_array_equal(found, wanted)


def test_a_centre_outside_the_bounds_counts_as_the_nearest_point_within():
    """Else a projected vector, less its centre, is larger than its code has room for."""
    rows = RNG.uniform(-0.5, 0.5, (20, 12))
    found = []
    for value in (40.0, 0.5):
        centre = np.full(12, value, np.float32)
        far = altered(MADE, centre=centre)
        spec = spec_of(far, bounds=(-0.5, 0.5))
        assert refuted(spec) == ()
        found.append(projected(spec, rows))
    assert_array_equal(*found)


# Any sample gives a sound design


@pytest.mark.parametrize(
    "public, length",
    [
        (PUBLIC, 1),
        (PUBLIC, 12),
        (PUBLIC, 30),
        (PUBLIC[:2], 3),
        (np.hstack([PUBLIC, np.ones((300, 5))]), 4),
        (np.hstack([PUBLIC, PUBLIC, 2 * PUBLIC]), 4),
        (np.hstack([PUBLIC, 1e-6 * PUBLIC, 1e6 * PUBLIC]), 4),
        ((RNG.random((400, 40)) < 0.004).astype(float), 6),
        (RNG.integers(0, 2, (50, 1)).astype(float), 2),
        (sparse.random(200, 60, 0.05, "csr", random_state=1), 5),
    ],
    ids=["one", "all", "more", "two vectors", "constant", "duplicate", "units", "rare", "single",
         "sparse"],
)  # fmt: skip
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_columns_are_never_heavier_than_one(public, length, delta):
    made = design_of(public, code_length=length, delta=delta)
    assert made.entries.shape == (length, len(made.attributes))
    norm = 2 if delta else 1
    most = 256**norm
    assert 0.9 * most < column_weight(made.entries, norm) <= most
    assert made.dim == public.shape[1]
    for again in (
        Design.from_bytes(made.to_bytes()),
        design_of(public, code_length=length, delta=delta),
    ):
        assert again == made
        assert hash(again) == hash(made)


def test_what_varies_together_adds_up():
    """Ten copies of one attribute are worth ten times the signal; OPORP would have √10 of it."""
    signal = RNG.normal(size=(500, 1))
    made = design_of(np.repeat(signal, 10, axis=1), code_length=2)
    sums = made.entries.astype(int).sum(axis=1)
    assert np.abs(sums).max() >= 0.9 * 2560


def test_many_half_floats_are_summed_as_wider_ones():
    """Sums of thousands of them, in their own precision, stop growing."""
    causes = RNG.normal(size=(6000, 3)) @ RNG.normal(size=(3, 12))
    public = (0.5 + causes / 16).clip(0, 1).astype(np.float16)
    assert design_of(public) == design_of(public.astype(np.float32))


@pytest.mark.parametrize(
    "public", [np.ones((50, 4)), np.zeros((1, 4)), np.full((9, 2), np.nan), np.full((600, 4), 0.1)]
)
def test_samples_that_show_nothing_are_refused(public):
    with refuses():
        design_of(public)


@folded(
    "name, value",
    [("epsilon", 0.0), ("beta", 0.0), ("delta", 2.0), ("code_length", 0), ("scale", -1.0)],
)
def test_wrong_options_are_refused(name, value):
    with refuses():
        design_of(**{name: value})


# Files of strangers


def test_one_entry_too_many_is_refused_whatever_the_file_claims():
    entries = MADE.entries.copy()
    weights = np.abs(entries.astype(int)).sum(axis=0)
    assert weights.max() == 256
    column = entries[:, weights.argmax()]  # a view
    row = np.abs(column).argmin()
    column[row] += 1 if column[row] >= 0 else -1
    with pytest.raises(NoGuaranteeError, match="weighs 257 where 256 is allowed"):
        altered(MADE, entries=entries)
    column[row] = -(2**15)  # its magnitude does not fit into sixteen bits
    with pytest.raises(NoGuaranteeError):
        altered(MADE, entries=entries)
    gaussian = design_of(code_length=4, delta=1e-6)
    with pytest.raises(NoGuaranteeError):  # columns of L2 norm 1 are too heavy for Laplace noise
        altered(gaussian, norm=1)


@pytest.mark.parametrize(
    "changes",
    [
        {"dim": 11},
        {"dim": 0},
        {"norm": 3},
        {"norm": True},
        {"norm": None},
        {"dim": "12"},
        {"more": 1},
        {"attributes": np.arange(12, dtype=np.int32)[::-1].copy()},
        {"attributes": np.arange(-1, 11, dtype=np.int32)},
        {"centre": np.full(12, np.nan, np.float32)},
        {"centre": np.zeros(11, np.float32)},
        {"entries": np.zeros((4, 12), np.int32)},
        {"basis": np.zeros((4, 12), np.float32)},
        {"products": np.zeros((1, 1), np.float32)},
        {"products": np.zeros((301, 301), np.float32)},
        {"projected": np.zeros((1, 4), np.float32)},
    ],
    ids=str,
)
def test_other_bytes_are_refused(changes):
    with pytest.raises((DamagedError, NoGuaranteeError)):
        altered(MADE, **changes)


@pytest.mark.parametrize("dim", [1 << 28, (1 << 31) - 1])
def test_a_small_file_cannot_ask_for_gigabytes(dim):
    """A few hundred bytes may say any number of attributes, of which one is used."""
    far = altered(design_of(code_length=1), dim=dim)
    spec = attribute_spec("dp-designed-laplace", dim, epsilon=1.0, design=far)
    for use in (PrivateIndex, Privatizer):
        with pytest.raises(NoGuaranteeError, match=r"more than 1 GB \(2\^30 bytes\)"):
            use(spec)


def test_a_spec_names_its_design_by_digest(tmp_path):
    MADE.save(tmp_path / "made.design")
    assert Design.read(tmp_path / "made.design") == MADE
    spec = spec_of()
    stated = json.loads(spec.to_json())["design"]
    assert stated == {"sha256": MADE.digest, "dim": 12, "code_length": 4, "norm": 1}
    named = Spec.from_json(spec.to_json())
    assert named == spec
    with refuses("is not here"):
        Privatizer(named)
    assert Privatizer(named.with_public(MADE)).spec == spec
    whole = json.loads(spec.to_json())
    for change in ({"sha256": "x"}, {"dim": -1}, {"k": 1}):
        wrong = {**whole, "design": {**stated, **change}}
        with refuses():
            Spec.from_json(json.dumps(wrong))
    with refuses():
        Spec.from_json(json.dumps({**whole, "design": {}}))


# Every law with every family


LAWS = {row.calibration: row for row in TABLE.values() if row.private and row.calibration.rounded}


@pytest.mark.parametrize("row", LAWS.values(), ids=lambda row: row.name)
def test_the_table_refuses_a_law_that_a_family_does_not_allow(row, monkeypatch):
    """Any pair that the table takes is proved by the verifier, which trusts no table."""
    specs = []
    wider = get_args(Moves).index
    for name, family in FAMILIES.items():
        if wider(family.moves) > wider(row.calibration.moves):
            with pytest.raises(TypeError, match="no guarantee for such a projection"):
                replace(row, family=family)
            continue
        pair = replace(row, name=name, family=family)
        if family.lengths or row.adjacencies != ("attribute",) or row.needs_delta:
            continue  # record encoders; and Gaussian laws, by their own tests
        monkeypatch.setitem(TABLE, name, pair)
        free = not family.keeps_all and family.public is not Design
        specs.append(Spec(dim=12, k=4 if free else None, **needed(pair, 12)))
    failed = {report.spec.method: report.failed for report in verify_each(specs)}
    assert not any(failed.values()), failed  # the table takes what has no proof


# Windows


MIX = normal(8, 40, 6)


def narrow(count):
    """Attributes that vary by much less than a beta, of a few causes: windows pay."""
    causes = 0.1 * RNG.normal(size=(count, 8)) @ MIX
    rows = causes + 0.02 * RNG.normal(size=(count, 40))
    return np.clip(rows, -8, 8)


def test_the_window_that_is_chosen_is_one_of_those_that_may_be_stated():
    public = narrow(600)
    terms = {"epsilon": 0.5, "code_length": 8}
    chosen = design_of(public, **terms)
    stated = (0.0, 0.3, 0.7, 1.0, 1.4)
    assert chosen in [design_of(public, **terms, window=window) for window in stated]
    assert chosen.windows is not None


def test_a_window_is_not_chosen_where_noise_costs_nothing():
    assert design_of(epsilon=60.0, code_length=12).windows is None


@pytest.mark.parametrize("wrong", [-0.1, np.nan, np.inf, "0.7", True])
def test_other_windows_are_refused(wrong):
    with refuses("window"):
        design_of(window=wrong)


@pytest.mark.parametrize("window", [0.3, 1.0])
@pytest.mark.parametrize("rows", ["dense", "sparse"])
def test_f_is_what_its_definition_says(window, rows):
    """``W(f(x) − f(c))`` in real numbers, to the steps that rounding may cost."""
    public = PUBLIC if rows == "dense" else sparse.csr_matrix(PUBLIC)
    made = design_of(public, code_length=4, beta=2.0, window=window)
    spec = spec_of(made, adjacency=dpi.attribute(2.0))
    assert "each clipped to a window of its own" in made.contents
    windows = made.windows
    step = 2.0 / 2**16
    low = windows.low * step
    width = windows.width * step
    middle = low + width / 2
    stated = np.maximum(2 * window * PUBLIC.std(axis=0), 2 / 64)
    assert np.allclose(width, stated, atol=1e-3)
    apart = np.abs(middle - PUBLIC.mean(axis=0))
    assert (apart < 1e-3).mean() > 0.7  # but at the ends

    def f(x):
        inside = np.clip(x - low, 0, width)
        return inside / np.minimum(width, 2.0)

    centre = f(made.centre)
    exact = (f(PUBLIC[:50]) - centre) @ made.entries.T / 256
    found = projected(spec, public[:50]) * spec.step
    assert np.abs(found - exact).max() < 12 / 256
    assert np.allclose(centre, f(PUBLIC).mean(axis=0), atol=1e-5)


def test_the_decoder_estimates_vectors_as_they_were_before_they_were_clipped():
    """At hardly any noise, the linear estimate of least squares from what was clipped."""
    public = narrow(4000)
    private = narrow(400)
    made = design_of(public, epsilon=50.0, code_length=40, beta=1.0, window=0.5)
    bounds = (-8.0, 8.0)
    spec = attribute_spec("dp-designed-laplace", 40, epsilon=50.0, design=made, bounds=bounds)

    def with_ones(x):
        y = projected(spec, x) * spec.step
        return np.column_stack([y, np.ones(len(y))])

    def error(guess):
        return np.square(guess - private).mean()

    estimate = decoded(codes_of(spec, private), spec) @ made.basis
    best, *_ = np.linalg.lstsq(with_ones(public), public, rcond=None)
    found = error(estimate)
    assert found < 1.1 * error(with_ones(private) @ best)
    low, high = np.quantile(public, [0.3, 0.7])
    assert found < 0.5 * error(private.clip(low, high))
