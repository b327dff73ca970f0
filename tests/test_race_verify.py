"""The verifier of sketches: what ships passes, and every way of breaking it is caught."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from streams import Seeded
from typer.testing import CliRunner

import dpindex.race.verify as module
from dpindex.cli import app
from dpindex.errors import InputError
from dpindex.noise.gaussian import gaussian_table, optimal_sigma
from dpindex.noise.geometric import geometric_table
from dpindex.race import SRP, PairedSRP, PStable, RaceSketch, SketchSpec
from dpindex.race.verify import default_sketches, verify_file, verify_sketch

PURE = SketchSpec(3, 20, 16, PStable(1.0, 2), 1.0)
SLACK = replace(PURE, delta=1e-6)


def test_every_default_sketch_passes() -> None:
    specs = list(default_sketches())
    assert {(s.neighbouring, s.as_published, s.delta) for s in specs} == {
        (n, *law)
        for n in ("add-remove", "replace")
        for law in ((False, 0.0), (True, 0.0), (False, 1e-6))
    }
    some = [spec for spec in specs if spec.epsilon in (1.0, 50.0)]  # all of them: audit --exact
    assert [(spec, verify_sketch(spec).failed) for spec in some] == [(spec, ()) for spec in some]


@pytest.mark.parametrize("hash", [SRP(4), SRP(9), PairedSRP(3), PStable(0.5)], ids=str)
def test_every_hash_passes(hash: Any) -> None:
    assert verify_sketch(replace(PURE, hash=hash, dim=50)).failed == ()


@pytest.mark.slow
def test_many_rows_leave_each_count_little() -> None:
    """20 000 rows at ε = 1: an earlier table, its tail too heavy, lost 2.3e-4 here for 5e-5."""
    spec = SketchSpec(2, 1000, 2, SRP(1), 0.05)
    assert verify_sketch(spec).failed == ()


# Mutants: each is one seam of the sketch replaced, and the name of the check that must fail.

LAW = "law: ratio of neighbouring counts"
NORMAL = "law: Gaussian noise on the counts that move"
SUMS = "hash: sums are exact integers"
MOVES = "sensitivity: what one record moves"
REPLAY = "sampler: outcomes of replayed words"
DRAWS = "sampler: what is made of the table's draws"
RELEASE = "release: noise on every count, and the promise that goes with it"
STREAM = "stream: noise is used once"


def weak_ratio(sketch: RaceSketch) -> None:
    table = geometric_table(mpmath.mpf("1.05") / 20, 1, 1, 0)
    sketch._noise = replace(sketch._noise, table=table)


def one_row_short(sketch: RaceSketch) -> None:
    sketch._noise = replace(sketch._noise, table=geometric_table(mpmath.mpf(1) / 19, 1, 1, 0))


def small_sigma(sketch: RaceSketch) -> None:
    sigma = 0.95 * optimal_sigma(1.0, 1e-6) * math.sqrt(20)
    sketch._noise = replace(sketch._noise, table=gaussian_table(sigma, 1.0, 1e-6, 320, 0))


def other_outcomes(sketch: RaceSketch) -> None:
    table = geometric_table(mpmath.mpf(1) / 20, 1, 1, 0)
    table._values = table._values // 2
    table._buckets = table._bucket_table()
    sketch._noise = replace(sketch._noise, table=table)


def sum_of_draws(sketch: RaceSketch) -> None:
    class Summed(type(sketch._noise)):  # type: ignore[misc]
        def sample(self, count: int, stream: Any) -> Any:
            return self.table.sample(count, stream) + self.table.sample(count, stream)

    law = sketch._noise
    sketch._noise = Summed(law.table, law.two_sided, law.offset, law.variance)


def bare_count(sketch: RaceSketch) -> None:
    release = sketch.release

    def keep_one() -> RaceSketch:
        first = sketch._secret()[0, 0].copy()
        release()
        assert sketch._released is not None
        sketch._released.counts[0, 0] = first
        return sketch

    sketch.release = keep_one  # type: ignore[method-assign]


def says_less(sketch: RaceSketch) -> None:
    release = sketch.release

    def boast() -> RaceSketch:
        release()
        assert sketch._released is not None
        weaker = replace(sketch.guarantee, epsilon=0.5)
        sketch._released = replace(sketch._released, guarantee=weaker)
        return sketch

    sketch.release = boast  # type: ignore[method-assign]


def same_noise(sketch: RaceSketch) -> None:
    sketch._stream = lambda: Seeded(1)


def counted_twice(sketch: RaceSketch) -> None:
    fit = sketch.fit

    def twice(x: Any) -> RaceSketch:
        fit(x)
        sketch._secret()[3] *= 2
        return sketch

    sketch.fit = twice  # type: ignore[method-assign]


def fine_directions(sketch: RaceSketch) -> None:
    sketch.spec.hasher._directions += 2.0**-8


MUTANTS: list[tuple[SketchSpec, Callable[[RaceSketch], None], str]] = [
    (PURE, weak_ratio, LAW),
    (PURE, one_row_short, LAW),
    (replace(PURE, as_published=True), weak_ratio, LAW),
    (SLACK, small_sigma, NORMAL),
    (PURE, other_outcomes, REPLAY),
    (PURE, sum_of_draws, DRAWS),
    (PURE, bare_count, RELEASE),
    (PURE, says_less, RELEASE),
    (PURE, same_noise, STREAM),
    (PURE, counted_twice, MOVES),
    (PURE, fine_directions, SUMS),
]


@pytest.mark.parametrize(
    ("spec", "spoil", "check"), MUTANTS, ids=[mutant[1].__name__ for mutant in MUTANTS]
)
def test_mutants_are_caught(
    spec: SketchSpec,
    spoil: Callable[[RaceSketch], None],
    check: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shipped = module._empty

    def broken(spec: SketchSpec) -> RaceSketch:
        sketch = shipped(spec)
        spoil(sketch)
        return sketch

    monkeypatch.setattr(module, "_empty", broken)
    fresh = replace(spec)  # its hash functions are its own
    assert check in verify_sketch(fresh).failed


def test_replaced_records_need_twice_the_noise() -> None:
    """The law of add-remove under replace: half of what that promise takes."""
    law = PURE.noise
    assert module._pure_check(PURE, law).passed
    assert not module._pure_check(replace(PURE, neighbouring="replace"), law).passed


def test_on_the_command_line(tmp_path: Path) -> None:
    path, merged = tmp_path / "s.race", tmp_path / "m.race"
    x = np.random.default_rng(0).normal(size=(50, 3))
    a, b = (RaceSketch(PURE).fit(x).release() for _ in range(2))
    a.save(path)
    assert verify_file(path).passed
    shown = CliRunner().invoke(app, ["audit", str(path), "--exact"])
    assert shown.exit_code == 0, shown.output
    assert "RACE, 20 × 16 counts: epsilon = 1 (pure DP) under records(add-remove): holds" in (
        shown.output
    )
    assert (
        '"passed": true'
        in CliRunner().invoke(app, ["audit", str(path), "--exact", "--json"]).output
    )
    attacked = CliRunner().invoke(app, ["audit", str(path)])
    assert isinstance(attacked.exception, InputError)
    assert "--exact" in str(attacked.exception)
    a.merge(b).save(merged)
    with pytest.raises(InputError, match="verify each of them"):
        verify_file(merged)
