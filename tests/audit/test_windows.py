"""Windows: what ships is proved, and weaknesses in them are refuted by the exact verifier."""

import numpy as np
import pytest
from helpers.common import designed, example, known_noise, projected, refuses
from scipy import sparse

import dpindex as dpi
from dpindex.audit import verify
from dpindex.audit.attack import attack
from dpindex.base.files import pack, unpack
from dpindex.mechanism.grid import Placed
from dpindex.mechanism.method_table import find_method
from dpindex.mechanism.public_parts import Design

pytestmark = pytest.mark.usefixtures("one_stream_check", "new_maps")
STEPS = "windows: steps of one attribute"
WIDE = 0.05


def spec_of(method, beta=1.0):
    terms = {"epsilon": 1.0, "adjacency": dpi.attribute(beta)}
    if method == "codebook-softmax":
        return example(find_method(method), window=0.3, **terms)
    gaussian = method == "dp-designed-gaussian"
    signs = method == "dp-signdesigned-geometric"
    design = designed(24, gaussian, None, signs, 0.7, beta)
    return example(find_method(method), design=design, **terms)


METHODS = [
    "dp-designed-laplace",
    "dp-designed-gaussian",
    "dp-signdesigned-geometric",
    "codebook-softmax",
]


@pytest.fixture(params=METHODS)
def spec(request):
    return spec_of(request.param)


def place(spec, **changes):
    """Other windows than those that the spec states, in the grid that rounds."""
    stated = spec.grid.placed
    names = ("factor", "low", "top")
    placed = Placed(*(changes.get(name, getattr(stated, name)) for name in names))
    vars(spec.grid)["placed"] = placed


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("beta", [1.0, WIDE])
def test_what_ships_is_proved(method, beta):
    """With windows narrower than a beta, and wider ones."""
    report = verify(spec_of(method, beta))
    assert report.passed, str(report)
    assert STEPS in str(report)


@pytest.mark.parametrize("method", METHODS[:3])
def test_windows_of_the_design_that_no_vector_is_clipped_to(method):
    spec = spec_of(method)
    spec.projection.windows = None
    assert STEPS in verify(spec).failed


def test_windows_that_the_spec_does_not_state():
    spec = example(find_method("dp-designed-laplace"), epsilon=1.0)
    spec.projection.windows = spec_of("dp-designed-laplace").projection.windows
    assert STEPS in verify(spec).failed


@pytest.mark.parametrize(
    "low, width",
    [
        (0, 0),
        (0, -5),
        (0, 1),
        (0, 2**63 - 1),
        (2**63 - 1, 5),
        (-(2**63), -1),
        (2**62, 2**62),
    ],
)
def test_windows_of_a_stranger_are_proved_however_they_lie(low, width):
    """Empty, negative, beyond the bounds, and where their ends overflow."""
    facts, arrays = unpack(designed(24, window=0.7).to_bytes(), "design")
    arrays["low"] = np.full_like(arrays["low"], low)
    arrays["width"] = np.full_like(arrays["width"], width)
    design = Design.from_bytes(pack("design", facts, arrays))
    report = verify(example(find_method("dp-designed-laplace"), epsilon=1.0, design=design))
    assert report.passed, str(report)


def test_windows_for_another_beta_are_refused():
    design = designed(24, window=0.7, beta=2.0)
    with refuses("made for beta = 2, not 1"):
        example(find_method("dp-designed-laplace"), design=design)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("beta", [1.0, WIDE])
def test_no_change_of_an_attribute_moves_integers_by_more_than_the_law_was_told(method, beta):
    """Every attribute of several vectors set to every end, in whole numbers, by both routes."""
    spec = spec_of(method, beta)
    rng = np.random.default_rng(3)
    values = np.linspace(-1.0, 1.0, 21)
    rows = rng.uniform(-1, 1, (3, spec.dim)) * rng.choice([0.1, 0.5, 1.0], (3, 1))
    told = spec.projection.sensitivity.l1 << spec.grid.bits
    if method == "codebook-softmax":
        told = 1 << spec.grid.bits
    moved = 0
    for attribute in range(spec.dim):
        one = np.repeat(rows, len(values), axis=0)
        other = one.copy()
        one[:, attribute] = np.tile(values, len(rows))
        other[:, attribute] = np.clip(one[:, attribute] + spec.change, -1, 1)
        pair = [projected(spec, x).astype(np.int64) for x in (one, other)]
        assert np.array_equal(pair[0], projected(spec, sparse.csr_matrix(one)).astype(np.int64))
        apart = pair[1] - pair[0]
        if method == "codebook-softmax":
            most = np.ptp(apart, axis=1).max()  # scores are compared with each other
        else:
            most = np.abs(apart).sum(axis=1).max()
        moved = max(moved, int(most))
    assert 0.5 * told < moved <= told


@known_noise
@pytest.mark.parametrize("method", ["dp-designed-laplace", "codebook-softmax"])
def test_an_attack_finds_nearly_epsilon_and_no_more(method):
    report = attack(spec_of(method), trials=20_000)
    assert not report.violated
    assert report.lower_bound > 0.2
