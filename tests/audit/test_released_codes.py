"""Tests of codes themselves: what noise cannot have made is refuted, what it made never."""

import json

import numpy as np
import pytest
from helpers.common import Seeded, codes_of, filled_index
from typer.testing import CliRunner

from dpindex import PrivateIndex, Spec, attribute, l2
from dpindex.audit import examine
from dpindex.audit.input_checks import code_checks
from dpindex.audit.law_verifiers import law_verifier
from dpindex.cli import app
from dpindex.mechanism.spec import Projector

PLAIN = {"dim": 48, "epsilon": 1.0, "adjacency": attribute(1.0)}
STAIRCASE = Spec("dp-oporp-staircase", k=16, **PLAIN)
SPECS = [
    STAIRCASE,
    Spec("dp-oporp", k=16, delta=1e-6, **PLAIN),
    Spec("dp-rp-l", k=16, **{**PLAIN, "epsilon": 0.1}),  # in two digits
    Spec("row-oporp-g", k=16, delta=1e-6, **{**PLAIN, "adjacency": l2(2.0)}),
    Spec("dp-signoporp-rr", k=48, **PLAIN),
    Spec("dp-signoporp-geometric", k=48, **{**PLAIN, "epsilon": 0.1}),
    Spec("raw-square-wave", bounds=(0.0, 1.0), **PLAIN),
]
by_method = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.method)


def clusters(spec, rows=2000):
    """Vectors that are near one of twenty."""
    random = np.random.default_rng(0)
    low, high = spec.bounds
    centres = random.uniform(low, high, (20, spec.dim))
    chosen = centres[random.integers(0, 20, rows)]
    near = chosen + random.normal(0, 0.01, chosen.shape)
    return np.clip(near, low, high)


def bare(spec, x):
    """Codes without noise, of the format that the spec says."""
    exact = Projector(spec).project(x)
    if spec.method_row.codes == "signs":
        return spec.format.codes(spec.format.pack(exact > 0))
    law = spec.law
    bits = getattr(law, "cell_bits", None) or getattr(law.source, "cell_bits", 0)
    cells = exact.astype(np.int64) >> bits
    return spec.format.codes(cells.astype(np.int32))


@by_method
def test_codes_without_noise_are_refuted(spec):
    assert not examine(bare(spec, clusters(spec)), spec).passed


@pytest.mark.slow
@by_method
def test_codes_with_the_claimed_noise_are_not(spec, known_noise):
    x = clusters(spec)
    equal = np.repeat(x[:1], len(x), axis=0)
    for vectors in (x, equal, x[:1], x[:7]):
        report = examine(codes_of(spec, vectors), spec)
        assert report.passed, str(report)


@pytest.mark.slow
def test_too_little_noise_on_equal_vectors_is_refuted(known_noise):
    """Equal vectors show the noise itself."""
    other = STAIRCASE.with_epsilon(2.0)
    weaker = codes_of(other, np.zeros((20_000, 48)))
    scale = STAIRCASE.law.scale / other.law.scale
    stored = np.rint(weaker.stored / scale).astype(np.int32)
    assert not examine(STAIRCASE.format.codes(stored), STAIRCASE).passed


@pytest.mark.parametrize("spec", SPECS[:4], ids=lambda spec: spec.method)
def test_the_characteristic_function_is_that_of_the_draws(spec):
    """Of a million draws: a mean of n unit numbers is within 6/√n of its expectation."""
    verifier = law_verifier(spec, code_checks(spec)[1])
    source = spec.law.source
    draws = source.sample(1_000_000, Seeded(5)).astype(np.int64)
    cells = draws >> source.cell_bits
    spread = verifier.spread()
    times = np.array([0.3, 1.0, 2.0]) / spread
    found = [abs(np.exp(1j * t * cells).mean()) for t in times]
    np.testing.assert_allclose(verifier.characteristic(times), found, atol=6e-3)


def test_what_cannot_be_tested_is_said():
    spec = Spec("idp-signrp-rr", k=16, **PLAIN)
    report = examine(bare(spec, clusters(spec)), spec)
    assert report.passed
    assert "no test" in str(report)
    assert "cannot be shown" in str(report)


def audited(*words):
    """What the command answers of an index."""
    return CliRunner().invoke(app, ["audit", *map(str, words)])


@pytest.mark.slow
def test_an_index_of_noiseless_codes_does_not_pass_in_silence(tmp_path):
    x = clusters(STAIRCASE)
    index = PrivateIndex(STAIRCASE)
    index.add_codes(bare(STAIRCASE, x))
    place = tmp_path / "bare"
    index.save(place)
    for words in (["--exact"], ["--trials", "100"]):
        done = audited(place, *words)
        assert done.exit_code == 1
        assert "WERE NOT MADE by the claimed law" in done.output
    done = audited(place, "--exact", "--json")
    method, codes = map(json.loads, done.output.splitlines())
    assert method["passed"]
    assert not codes["codes"]["passed"]


def test_an_index_with_noise_passes_with_the_caveat(tmp_path):
    index = filled_index(STAIRCASE, clusters(STAIRCASE, 200))
    index.save(tmp_path / "index")
    done = audited(tmp_path / "index", "--exact")
    assert "these codes: not refuted" in done.output
    assert "cannot be shown" in done.output
