"""Weaknesses of 5 % in designed projections, which the exact verifier reads off what is applied."""

import numpy as np
import pytest
from helpers.common import designed, example

import dpindex as dpi
from dpindex.audit import verify
from dpindex.base.files import pack, unpack
from dpindex.mechanism import public_parts as designs
from dpindex.mechanism.method_table import find_method
from dpindex.mechanism.noise.response import FlipsByLevel
from dpindex.mechanism.projections import Sensitivity
from dpindex.mechanism.projections.dense import Designed

pytestmark = pytest.mark.usefixtures("one_stream_check")
METHODS = ["dp-designed-laplace", "dp-designed-gaussian", "dp-signdesigned-geometric"]


def bins():
    """Signs of a design of one entry a column."""
    design = designed(24, signs=True)
    assert np.count_nonzero(design.entries, axis=0).max() == 1
    return example(
        find_method("dp-signdesigned-geometric"),
        epsilon=1.0,
        design=design,
    )


@pytest.fixture(params=[*METHODS, "bins"])
def spec(request):
    if request.param == "bins":
        return bins()
    return example(find_method(request.param), epsilon=1.0)


def altered(design, entries):
    facts, arrays = unpack(design.to_bytes(), "design")
    arrays["entries"] = entries.astype(np.int16)
    return pack("design", facts, arrays)


def test_what_ships_is_proved(spec):
    report = verify(spec)
    assert report.passed, str(report)
    assert "design: columns of the matrix, and the centre on the grid" in str(report)


@pytest.mark.parametrize("narrower", [0.95, 1 / 256])
def test_levels_of_signs_in_bins_are_as_wide_as_an_attribute_moves_them(narrower):
    """Narrower ones flip less far from 0 than they may."""
    spec = bins()
    law = spec.law
    assert isinstance(law, FlipsByLevel)
    weights = np.trunc(narrower * law.weights)
    spec.__dict__["law"] = FlipsByLevel([*law.thresholds], weights, law.grid_bits)
    assert any(name.startswith("law: ") for name in verify(spec).failed)


def test_levels_as_wide_as_one_entry_are_for_bins_alone(monkeypatch):
    """Where an attribute moves two coordinates, each of such levels costs it a whole epsilon."""
    spec = example(find_method("dp-signdesigned-geometric"), epsilon=1.0)
    made = spec.projection
    assert made.sensitivity.count > 1
    alone = Sensitivity(1, made.sensitivity.l1, made.sensitivity.l2_squared)
    monkeypatch.setattr(made, "sensitivity", alone)
    assert any(name.startswith("law: ") for name in verify(spec).failed)


def test_a_heavy_design_is_refused_whatever_was_checked_before(spec, monkeypatch):
    """Its law is told of the 5 %, and still: a design states that its columns cost one beta."""
    design = spec.design
    heavy = altered(design, np.trunc(1.05 * design.entries))
    with pytest.raises(dpi.NoGuaranteeError):
        dpi.Design.from_bytes(heavy)
    monkeypatch.setattr(designs, "column_weight", lambda entries, norm: 0)
    slipped = dpi.Design.from_bytes(heavy)
    weak = example(spec.method_row, epsilon=1.0, design=slipped)
    failed = verify(weak).failed
    assert failed == ("design: columns of the matrix, and the centre on the grid",)


def test_another_matrix_than_the_one_that_is_named(spec):
    """The applied map is that of another design, a permutation of columns, as heavy as this one."""
    design = spec.design
    turned = altered(design, design.entries[:, ::-1])
    other = dpi.Design.from_bytes(turned)
    vars(spec)["projection"] = Designed(other)
    assert "design: columns of the matrix, and the centre on the grid" in verify(spec).failed
    del vars(spec)["projection"]


@pytest.mark.parametrize("change", [0.05, np.nan, 1e9], ids=["between steps", "none", "far out"])
def test_a_centre_that_is_not_on_the_grid(spec, change):
    vars(spec)["offset"] = spec.offset + change
    assert "design: columns of the matrix, and the centre on the grid" in verify(spec).failed
