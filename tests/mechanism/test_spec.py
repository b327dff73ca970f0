"""The spec: what may be stated, what is refused with which sentence, and its portable text."""

import copy
import json
import math
import pickle
import re
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from helpers.common import (
    attribute_spec,
    codes_of,
    example,
    folded,
    needed,
    projected,
    refuses,
    small,
    with_variant,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from dpindex import Codebook, Dense, Design, Repeated, Spec, attribute, l2, methods
from dpindex.mechanism.method_table import find_method

POSITIVE = st.floats(1e-30, 1e30)


@st.composite
def specs(draw):
    """Any valid spec of any method."""
    row = draw(st.sampled_from(methods()))
    public = row.family.public is not None
    largest = 2**31 - 1 if row.family.bins else 64 if public else 2**20
    dim = draw(st.integers(1, largest))
    arguments = needed(row, dim) | {"dim": dim}
    repetitions = 1
    if isinstance(row.family.variant, Repeated):
        repetitions = draw(st.integers(1, 8))
        arguments["variant"] = Repeated(repetitions)
    if row.family.lengths is not None:
        arguments["k"] = draw(st.none() | st.sampled_from(row.family.lengths))
    elif row.family.public is not Design and not row.family.keeps_all and draw(st.booleans()):
        most = min(arguments["dim"], 2**17) if row.family.bins else 2**20
        arguments["k"] = repetitions * draw(st.integers(1, most))
    if row.definition != "none":
        arguments["epsilon"] = draw(st.floats(1e-3, 64))
    if row.needs_delta:
        arguments["delta"] = draw(st.floats(1e-30, row.calibration.max_delta, exclude_max=True))
    arguments["seed"] = draw(st.integers(0, 2**63 - 1))
    if not row.calibration.rounded:
        return Spec(**arguments)
    kind = draw(st.sampled_from(row.adjacencies))
    size = draw(POSITIVE)
    arguments["adjacency"] = attribute(size) if kind == "attribute" else l2(size)
    if row.calibration.bounded:
        arguments["bounds"] = (0.0, size / 2)
    else:
        low = draw(st.floats(-1e30, 1e30))
        arguments["bounds"] = (low, draw(st.floats(low, 2e30, exclude_min=True)))
    arguments["scale"] = draw(POSITIVE)
    arguments["clip"] = draw(st.booleans())
    arguments["norm"] = draw(st.none() | POSITIVE)
    return Spec(**arguments)


@given(specs())
@settings(max_examples=200)
def test_json_round_trip(spec):
    text = spec.to_json()
    again = Spec.from_json(text)
    assert again == spec
    assert hash(again) == hash(spec)
    assert again.to_json() == text
    assert again.fingerprint == spec.fingerprint
    assert Spec.from_json(text.encode()) == spec
    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


@given(specs(), specs())
@settings(max_examples=100)
def test_fingerprints_differ_exactly_when_specs_do(one, other):
    assert (one == other) == (one.fingerprint == other.fingerprint)
    assert len(one.fingerprint) == 16


BASE = attribute_spec("dp-signoporp-rr", 24, k=8, epsilon=2.0, norm=1.0)


@folded(
    "change",
    [
        {"method": "dp-signoporp-geometric"},
        {"dim": 25},
        {"k": 4},
        {"epsilon": 2.0000000000000004},
        {"adjacency": attribute(0.5)},
        {"variant": Repeated(2)},
        {"scale": 2.0},
        {"bounds": (0.0, 1.0)},
        {"clip": True},
        {"norm": None},
        {"norm": 2.0},
        {"seed": 1},
    ],
)
def test_every_field_counts(change):
    assert replace(BASE, **change).fingerprint != BASE.fingerprint


def test_fingerprint_is_pinned():
    """Published codes carry it: the canonical text of a spec may never change."""
    assert BASE.fingerprint.hex() == "79ab2773f9d488545c6cc2807e5eec3f"
    assert BASE.to_json() == (
        '{"adjacency": {"beta": 1.0, "kind": "attribute"}, "bounds": [-1.0, 1.0], "clip": false, '
        '"delta": 0.0, "dim": 24, "epsilon": 2.0, "format": 1, "k": 8, '
        '"method": "dp-signoporp-rr", "min_norm": null, "norm": 1.0, "repetitions": 1, '
        '"scale": 1.0, "seed": 0}'
    )


def test_equal_numbers_are_equal_specs():
    """However a number is written, the text and so the fingerprint are those of its value."""

    def stated(whole, real):
        return Spec(
            "dp-signoporp-rr", whole(24), k=whole(8), epsilon=real(2),
            variant=Repeated(whole(2)), scale=real(4), bounds=[real(-0.0), real(1)],
            norm=real(1), seed=whole(3),
            adjacency=attribute(real(2)), delta=real(-0.0),
        )  # fmt: skip

    plain = stated(int, float)
    for whole, real in (
        (int, int),
        (np.int64, np.float64),
        (np.int8, np.float32),
        (np.uint16, np.float16),
        (float, np.int32),
        (np.float32, Fraction),
    ):
        other = stated(whole, real)
        assert other == plain
        assert other.to_json() == plain.to_json()
        assert {type(other.dim), type(other.k), type(other.seed)} == {int}
        assert {type(other.epsilon), type(other.scale), type(other.norm)} == {float}


def test_k_is_resolved():
    """A spec that leaves k out equals the one that names the default."""
    spec = attribute_spec("dp-oporp-staircase", 784, epsilon=2.0)
    assert spec.k == spec.code_length == 128
    assert spec == attribute_spec("dp-oporp-staircase", 784, k=128, epsilon=2.0)
    assert attribute_spec("raw-laplace", 3_000_000, epsilon=2.0).k == 3_000_000


NOT_NUMBERS = [math.nan, math.inf, -math.inf, True, "2", None, 1j, [2.0], np.array([2.0]), 10**400]


def refused(words, **changes):
    """The spec is refused with one sentence that holds the words."""
    arguments = {"method": "dp-oporp-staircase", "dim": 24, "k": 8, "epsilon": 2.0}
    arguments |= {"adjacency": attribute(1.0), **changes}
    with refuses() as caught:
        Spec(**with_variant(arguments))
    sentence = str(caught.value)
    assert words in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence


@folded("value", NOT_NUMBERS)
@folded("name", ["epsilon", "delta", "scale", "min_norm", "norm"])
def test_what_is_no_number_is_refused(name, value):
    if value is None and name in ("epsilon", "min_norm", "norm"):
        return
    refused(f"{name} must be a finite number", **{name: value})


@folded("value", [*NOT_NUMBERS, 2.5, -1, 2**63, np.bool_(True), np.array([2, 3]), np.float32(0.5)])
@folded("name", ["dim", "k", "repetitions", "seed"])
def test_what_is_no_whole_number_in_range_is_refused(name, value):
    if value is None and name == "k":
        return
    refused(f"{name} must be a whole number from", **{name: value})


OUTSIDE = [
    *((name, "must be a whole number from 1", [0]) for name in ("dim", "k", "repetitions")),
    *((name, "must be above 0", [0, -1.0]) for name in ("scale", "norm", "epsilon", "min_norm")),
    ("epsilon", "must lie in [0.001, 64]", [9.99e-4, 64.1, 1e-300, 1e300]),
    ("bounds", "bound", [None, 1.0, (1.0,), (0, 1, 2), "01", (1.0, 1.0), (1.0, -1.0)]),
    ("bounds", "bound", [(math.nan, 1.0), (0.0, math.inf), (False, True), {0: 0, 1: 1}]),
    ("clip", "must be true or false", [None, 0, 1, "yes", "false"]),
    ("adjacency", "must be dpindex.attribute(…), dpindex.l2(…) or dpindex.record()",
     [None, 1.0, "attribute", {"kind": "attribute", "beta": 1.0}]),
]  # fmt: skip


@folded("name, words, values", OUTSIDE)
def test_what_lies_outside_is_refused(name, words, values):
    for value in values:
        refused(words, **{name: value})


@folded("size", [1e155, 1e200, 1e300])
def test_squares_beyond_the_largest_float_leave_the_usual_length(size):
    attribute_spec("dp-oporp-staircase", 24, epsilon=2.0, norm=size)
    wide = attribute_spec("dp-oporp-staircase", 24, epsilon=2.0, bounds=(-size, size))
    with refuses("are too wide for beta"):
        projected(wide, np.zeros((1, 24)))


def test_an_l2_ball_smaller_than_a_grid_step_can_be_is_refused():
    ball = Spec("raw-gaussian", 24, epsilon=2.0, delta=1e-6, adjacency=l2(1e-320))
    with refuses("l2 must be at least 1e-30"):
        projected(ball, np.zeros((1, 24)))


def refused_of(row, words, **changes):
    """The same of a method, at ordinary values for the rest."""
    refused(words, **needed(row) | {"k": None, **changes})


@folded("row", methods())
def test_epsilon_is_needed_or_refused(row):
    if row.definition == "none":
        for name, value in (("epsilon", 1.0), ("delta", 0.1)):
            refused_of(row, f"takes no {name} here", **{name: value})
    else:
        refused_of(row, f"{row.name} needs an epsilon", epsilon=None)


@folded("row", [row for row in methods() if row.needs_delta])
@folded("delta", [0, -1e-6, 1.0, 2.0, 1e-31])
def test_gaussian_methods_need_a_delta(row, delta):
    refused_of(row, f"{row.name} needs a delta", delta=delta)


PURE_ONLY = [row for row in methods() if row.calibration.delta == "zero" and row.private]


@folded("row", PURE_ONLY)
@folded("delta", [1e-30, 1e-6, -1e-6, 0.5])
def test_pure_methods_take_none(row, delta):
    refused_of(row, f"{row.name} takes no delta here", delta=delta)


@folded(
    "row",
    [r for r in methods() if r.kind.startswith("pure") and r.adjacencies == ("attribute",)],
)
def test_no_guarantee_under_an_adjacency_it_was_not_analysed_for(row):
    refused_of(row, f"{row.name} has no guarantee under l2(radius=1)", adjacency=l2(1.0))


@folded("row", [row for row in methods() if row.calibration.bounded])
def test_bounds_no_wider_than_beta(row):
    words = "needs bounds no wider than beta = 1, not [0, 1.001]"
    refused_of(row, words, bounds=(0.0, 1.001))
    example(row, bounds=(-0.5, 0.5))
    example(row, bounds=(0.0, 255.0), adjacency=attribute(255))


@folded("row", [r for r in methods() if isinstance(r.family.variant, Dense)])
def test_no_parameter_is_accepted_and_ignored(row):
    refused_of(row, f"{row.name} does not use min_norm", min_norm=1.0)


def test_with_epsilon_changes_epsilon_only():
    other = BASE.with_epsilon(5)
    assert other == replace(BASE, epsilon=5.0)
    x = np.eye(24)
    np.testing.assert_array_equal(projected(BASE, x), projected(other, x))


@folded("text, words", [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        (b"\xff\xfe\xfd", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ('{"format": 1, ADJ, "method": "raw-laplace", "epsilon": 1, "epsilon": 9}', "twice"),
        ('{"format": 1, "adjacency": {"kind": "attribute", "beta": 1, "beta": 2}}', "twice"),
        ("[]", "not a dpindex spec"),
        ("null", "not a dpindex spec"),
        ("{}", "not a dpindex spec"),
        ('{"format": 2, "method": "raw-laplace", "dim": 3}', "not a dpindex spec of format 1"),
        ('{"format": "1"}', "not a dpindex spec"),
        ('{"format": 1, "dim": 3}', "lacks the field 'method'"),
        ('{"format": 1, "method": "raw-laplace"}', "lacks the field 'dim'"),
        ('{"format": 1, "method": "raw-laplace", "dim": 3}', "lacks the field 'adjacency'"),
        ('{"format": 1, "method": "raw-laplace", "dim": 3, "Epsilon": 1}', "field 'Epsilon'"),
        ('{"format": 1, ADJ, "method": "raw-laplace", "dim": 3, "epsilon": NaN}', "epsilon"),
        ('{"format": 1, ADJ, "method": "raw-laplace", "dim": 3, "epsilon": 1e999}', "epsilon"),
        ('{"format": 1, ADJ, "method": "raw-laplace", "dim": true, "epsilon": 1}', "dim"),
        ('{"format": 1, ADJ, "method": ["raw-laplace"], "dim": 3}', "no method"),
        ('{"format": 1, "method": "raw-laplace", "dim": 3, "adjacency": null}', "adjacency"),
        ('{"format": 1, ADJ, "method": "raw-laplace", "dim": {}, "epsilon": 1}', "dim"),
        ('{"format": 1, ADJ, "method": "raw-laplace", "dim": 3, "epsilon": 1, "bounds": [[], 1]}',
         "lower bound"),
    ])  # fmt: skip
def test_foreign_json_is_refused(text, words):
    adjacency = '"adjacency": {"kind": "attribute", "beta": 1.0}'
    with refuses(words):
        Spec.from_json(text.replace("ADJ", adjacency) if isinstance(text, str) else text)


def test_misspelt_names_are_refused():
    with refuses("did you mean 'dp-oporp-staircase'"):
        find_method("dp-oporp-stair")
    refused("there is no method 'dp-oporp-stair'", method="dp-oporp-stair")
    refused("choose one of raw-gaussian, ", method="nothing-like-it")


@folded("row", methods())
def test_a_spec_travels_light(row):
    """To worker processes it goes without what it resolves to, whose tables may take megabytes."""
    spec = small(row)
    drawn = codes_of(spec, np.full((2, 24), 0.6))
    assert drawn.format is spec.format
    data = pickle.dumps(spec)
    book = 0 if spec.codebook is None else spec.codebook.stated.nbytes
    matrix = 0 if spec.design is None else len(spec.design.to_bytes())
    assert len(data) < 2000 + book + matrix
    for again in (pickle.loads(data), copy.copy(spec), copy.deepcopy(spec)):
        assert again == spec
        assert again.to_json() == spec.to_json()
        assert again.method_row is spec.method_row
        assert not {"law", "projection", "grid", "format"} & set(vars(again))


@folded("row", methods())
def test_what_a_spec_resolves_to_is_made_once(row):
    spec = small(row)
    for name in ("projection", "law", "format"):
        assert getattr(spec, name) is getattr(spec, name)
    assert spec.code_length == spec.format.code_length
    assert spec.projection.k == (50 if row.family.public is Codebook else spec.code_length)
    step = spec.projection.scale
    if spec.is_rounded:
        assert spec.grid is spec.grid
        assert spec.grid.bits == spec.law.grid_bits
        step *= spec.grid.step
    assert spec.step == step
    assert spec.fingerprint == spec.format.fingerprint


def test_files_are_read_and_faults_begin_with_their_path(tmp_path):
    path = tmp_path / "spec.json"
    path.write_text(BASE.to_json())
    assert Spec.read(path) == Spec.read(str(path)) == BASE
    path.write_text("{}")
    with refuses(rf"^{re.escape(str(path))}: the spec is not a dpindex spec"):
        Spec.read(path)
    path.write_text(" " * (1 << 21))
    with refuses("2097152 bytes; at most 1048576 are read"):
        Spec.read(path)
    with refuses("cannot be read"):
        Spec.read(tmp_path / "none.json")


def test_low_a_delta_over_the_projection_is_stated():
    """Where delta is also the chance of a bad projection, the guarantee says so."""
    for method, over in (("dp-rp-g-analytic", "projection"), ("dp-rp-g-opt", "noise")):
        spec = attribute_spec(method, 24, k=8, epsilon=1.0, delta=1e-6)
        assert spec.guarantee.delta_over == over
