"""The verifier of sketches: what ships passes. Broken ones are in ``test_mutations.py``."""

from dataclasses import replace
from itertools import product

import pytest
from helpers.common import fails, normal, refuses
from self_test.second_reading import refuted

from dpindex.audit import attack, default_specs, read_claim, verify
from dpindex.race import SRP, PairedSRP, PStable, RaceSketch, SketchSpec

pytestmark = pytest.mark.usefixtures("one_stream_check")
PURE = SketchSpec(3, 20, 16, PStable(1.0, 2), 1.0)


@pytest.mark.slow
def test_every_default_sketch_passes():
    specs = [spec for spec in default_specs() if isinstance(spec, SketchSpec)]
    promises = {(spec.neighbouring, spec.delta) for spec in specs}
    assert promises == set(product(("add-remove", "replace"), (0.0, 1e-6)))
    some = [spec for spec in specs if spec.epsilon in (1.0, 50.0)]  # all of them: audit --exact
    for spec in some:
        assert refuted(spec) == (), spec


@pytest.mark.parametrize("hash", [SRP(4), SRP(9), PairedSRP(3), PStable(0.5)], ids=str)
def test_every_hash_passes(hash):
    spec = replace(PURE, hash=hash, dim=50)
    assert verify(spec).failed == ()


@pytest.mark.slow
def test_one_row_and_a_wide_law_pass():
    narrow = replace(PURE, rows=1)
    wide = replace(PURE, rows=300, epsilon=0.01, delta=1e-6)
    for spec in (narrow, replace(narrow, delta=1e-6), wide):
        assert verify(spec).failed == ()


@pytest.mark.slow
def test_many_rows_leave_each_count_little():
    """20 000 rows at ε = 1: an earlier table, its tail too heavy, lost 2.3e-4 here for 5e-5."""
    spec = SketchSpec(2, 1000, 2, SRP(1), 0.05)
    assert verify(spec).failed == ()


def test_on_the_command_line(run, tmp_path):
    path = tmp_path / "s.race"
    merged = tmp_path / "m.race"
    x = normal(50, 3)
    a = RaceSketch(PURE).fit(x).release()
    b = RaceSketch(PURE).fit(x).release()
    a.save(path)
    assert read_claim(path) == (PURE, None)
    with refuses("no attack on a sketch"):
        attack(PURE)
    code, out, err = run("audit s.race --exact")
    assert code == 0, err
    claim = "RACE, 20 × 16 counts: epsilon = 1 (pure DP) under records(add-remove): holds"
    assert claim in out
    assert '"passed": true' in run("audit s.race --exact --json")[1]
    fails(run("audit s.race"), "--exact")
    a.merge(b).save(merged)
    with refuses("verify each of them"):
        read_claim(merged)
