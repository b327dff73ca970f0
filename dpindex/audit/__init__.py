"""Audit of guarantees: an exact verifier of the integers that run, and an attack on releases.

The verifier checks the integers that ship against the epsilon that is claimed. ``verify(spec)``
follows the argument from an attribute to the published code, or from a record to
the released sketch, and checks each link:

1. *grid* and *projection*: one beta is at most 2^bits grid steps in the floats that run, sums are
   exact, and the map in use, read entry by entry, moves no more than was counted on; of a sketch,
   *hash* and *sensitivity*: a record adds 1 to one count of each row;
2. *composition*: which share of epsilon each moved coordinate may spend, as a rational, or which
   distance all of them together have;
3. *law*: every ratio (or the hockey-stick divergence) between neighbouring values is within it;
4. *known answer*: samplers of that kind of law make of public words what they made when they were
   tested; of a sketch, *release*: every count gets a draw of its own;
5. *stream*: no word is used twice;
6. *definition*: what the law can prove is what the guarantee says; iDP is never DP.

Two things are tested by the package's tests, by a second reading of the words of noise, and not
proved here: that words on either side of every threshold of a law give the outcome that it belongs
to, and that codes which are released, by every route, are what the sampler drew.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import product
from typing import Any, get_args

import numpy as np

from dpindex.audit.attack import AttackReport, Finding, attack, attack_releases
from dpindex.audit.input_checks import code_checks, sketch_checks
from dpindex.audit.law_verifiers import law_verifier
from dpindex.audit.outcomes import CodesReport, examine, known_answers, self_test
from dpindex.audit.pairs import Pair
from dpindex.audit.verdict import Check, ExactReport, LawVerifier, Report
from dpindex.base.errors import InputError
from dpindex.base.files import MAGIC, AnyPath, read_file
from dpindex.index.private_index import PrivateIndex
from dpindex.mechanism.codes import Codes, NumberFormat
from dpindex.mechanism.method import Method
from dpindex.mechanism.method_table import methods
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.public_random import BitSource
from dpindex.mechanism.spec import Spec
from dpindex.privacy import L2, Attribute, Neighbouring, VectorAdjacency, attribute, l2, record
from dpindex.race import PStable, RaceSketch, SketchSpec
from dpindex.race.sketch import MAX_BYTES

__all__ = [
    "AttackReport", "Check", "CodesReport", "ExactReport", "Finding", "Pair", "Report",
    "attack", "attack_releases", "default_specs", "examine", "not_covered",
    "read_claim", "self_test", "verify", "verify_each",
]  # fmt: skip


_EPSILONS = (0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 10.0, 20.0, 50.0)
_FEWER = (0.1, 1.0, 8.0)
_DIM = 48
_BINS = 24
_DENSE_K = 32
_DELTAS = {"zero": (0.0,), "required": (1e-6,), "optional": (0.0, 1e-6)}
_NORM = 4.0
_UNIT_ROUNDING = 1e-11
"""Sizes in the units of the data are rounded to twelve digits, for which the grid has room."""

_ADJACENCIES: dict[str, VectorAdjacency] = {
    "attribute": attribute(1.0),
    "l2": l2(2.0),
    "record": record(),
}


def verify(spec: Spec | SketchSpec) -> ExactReport:
    """Check the guarantee of ``spec`` in exact arithmetic on the integers that its sampler uses.

    Raises
    ------
    InputError
        If the method promises nothing, or there is no exact check for its law or adjacency. A
        guarantee that is claimed and does not hold is a report that says so, not an error.

    >>> spec = Spec(method="dp-oporp-staircase", dim=6, k=2, epsilon=1.0, adjacency=attribute(1.0))
    >>> report = verify(spec)
    >>> report.passed
    True
    >>> [check.name for check in report.checks][:2]
    ['grid: steps of one beta', 'grid: sums are exact integers']
    """
    (report,) = verify_each([spec])
    return report


def _report(
    spec: Spec | SketchSpec,
    streams: dict[type[Any], Check],
    answers: Callable[[type[LawVerifier]], list[Check]],
) -> ExactReport:
    started = time.perf_counter()
    source: RaceSketch | Privatizer
    if isinstance(spec, SketchSpec):
        source = RaceSketch(spec)
        checks, apart = sketch_checks(spec)
    else:
        spec = spec.without_ranges()  # a public map of each value, before anything is released
        if reason := uncovered(spec):
            raise InputError(f"{spec.method} is not covered by the exact verifier: {reason}.")
        source = Privatizer(spec)
        checks, apart = code_checks(spec)
    verifier = law_verifier(spec, apart)
    difference = f"{apart.moves.count} coordinates differ at most"
    theorem = verifier.composition
    if verifier.whole_code:
        difference = "any two vectors differ in everything"
    elif apart.moves.count == 1:
        theorem = "one coordinate differs: its loss is the loss of the release"
    checks.append(Check("composition", difference, f"ε = {spec.epsilon!r}", theorem, True))
    checks += verifier.checks()
    checks += answers(type(verifier))
    if type(source) not in streams:
        streams[type(source)] = stream_check(source.stream)
    checks.append(streams[type(source)])
    checks.append(_definition(spec, verifier))
    seconds = time.perf_counter() - started
    return ExactReport(tuple(checks), spec, seconds)


def stream_check(stream: Callable[[], BitSource]) -> Check:
    """A second read of the stream, new threads and forked children all get other words.

    This is an experiment; 256 bits agree by chance with probability 2^-256.
    """

    def read() -> bytes:
        return stream().words(32, np.uint8).tobytes()

    reads = [read(), read()]
    for _ in range(2):  # two that are new: a shared first state shows whatever was read before
        thread = threading.Thread(target=lambda: reads.append(read()))
        thread.start()
        thread.join()
    if "fork" in multiprocessing.get_all_start_methods():
        reads += [_in_fork(read), _in_fork(read), read()]
    repeated = [read in reads[:place] for place, read in enumerate(reads)]
    return Check.none(
        "stream: noise is used once",
        repeated,
        "reads seen before (again, two threads, two forks)",
        "releases compose only if their noise is independent",
    )


def _in_fork(read: Callable[[], bytes]) -> bytes:
    """Return what a forked child reads."""
    process = multiprocessing.get_context("fork")
    receive, send = process.Pipe(duplex=False)
    child = process.Process(target=lambda: send.send_bytes(read()))
    with warnings.catch_warnings():
        # The child only reads the stream, so forking with threads about is harmless.
        warnings.simplefilter("ignore", DeprecationWarning)
        child.start()
    send.close()
    words = receive.recv_bytes()
    child.join()
    return words


def verify_each(specs: Iterable[Spec | SketchSpec]) -> Iterator[ExactReport]:
    """Reports on several specs, as :func:`verify`; what they share is checked once.

    Raises
    ------
    InputError
        If one of them is not covered.

    >>> spec = Spec("dp-oporp-staircase", dim=6, epsilon=1.0, adjacency=attribute(1.0))
    >>> [report.passed for report in verify_each([spec, spec])]
    [True, True]
    """
    # All encoders ask one stream, and all sketches: forks take longer than many a proof.
    streams: dict[type[Any], Check] = {}
    answers_once = cache(known_answers)
    for spec in specs:
        yield _report(spec, streams, answers_once)  # type: ignore[arg-type]


def read_claim(path: AnyPath) -> tuple[Spec | SketchSpec, Codes | None]:
    """Return what is claimed at a path, and the codes of an index; None if there are none.

    Parameters
    ----------
    path : path
        The JSON file of a spec, the file of a released sketch, or the directory of an index.

    Raises
    ------
    InputError
        If there is none, or if several releases were merged into the sketch.

    >>> import tempfile
    >>> from pathlib import Path
    >>> spec = Spec("dp-oporp-staircase", dim=6, k=2, epsilon=1.0, adjacency=attribute(1.0))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "spec.json")
    ...     _ = path.write_text(spec.to_json())
    ...     read_claim(path) == (spec, None)
    True
    """
    if os.path.isdir(path):
        index = PrivateIndex.open(path)
        return index.spec, index.codes if len(index) else None
    if read_file(path, MAX_BYTES)[:4] != MAGIC:
        return Spec.read(path), None
    sketch = RaceSketch.open(path)
    if sketch.guarantee != sketch.spec.guarantee:
        name = os.fspath(path)
        raise InputError(f"{name} was merged from several releases; verify each of them.")
    return sketch.spec, None


def uncovered(spec: Spec) -> str | None:
    """Why there is no exact check of this guarantee, or None if there is one."""
    promise = spec.guarantee
    if promise.definition == "none":
        return "it promises nothing"
    if promise.delta_over == "projection" and spec.adjacency.kind == "l2":
        return (
            "its delta is also the chance, over the public projection, that one pair of vectors is "
            "stretched too far; no map in use keeps that bound for all pairs at once"
        )
    return None


def _definition(spec: Spec | SketchSpec, verifier: LawVerifier) -> Check:
    promise = spec.guarantee
    stated = (promise.definition, promise.epsilon, promise.delta)
    same = stated == (verifier.proves, spec.epsilon, spec.delta)
    also = [(one.adjacency, one.epsilon, one.delta) for one in promise.also]
    same &= verifier.proves_too == also
    kinds = [f"{one.definition} under {one.adjacency}" for one in promise.promises]
    if isinstance(spec, Spec) and isinstance(promise.adjacency, Attribute | L2):
        # Vectors are divided by the scale before anything is proved about them.
        proved = spec.adjacency.size * spec.scale
        same &= math.isclose(promise.adjacency.size, proved, rel_tol=_UNIT_ROUNDING)
    return Check(
        "definition",
        f"the law proves {verifier.proves}",
        f"the guarantee says {' and '.join(kinds)}",
        "iDP compares the actual vector with its neighbours only and is never called DP",
        same,
    )


def default_specs() -> Iterator[Spec | SketchSpec]:
    """Every guarantee that is covered, at budgets from 0.01 to 50: see :func:`not_covered`.

    >>> len(list(default_specs())) > 100
    True
    """
    for spec in _candidates():
        if uncovered(spec) is None:
            yield spec
    kernel = PStable(1.0, 2)
    for epsilon, neighbouring, delta in product(_EPSILONS, get_args(Neighbouring), (0.0, 1e-6)):
        yield SketchSpec(3, 10, 32, kernel, epsilon, delta, neighbouring)


def not_covered() -> dict[str, str]:
    """Methods with a guarantee that the verifier does not cover, and why.

    >>> all(isinstance(reason, str) for reason in not_covered().values())
    True
    """
    reasons = {}
    for spec in _candidates():
        reason = uncovered(spec)
        if reason is not None:
            reasons[spec.method] = reason
    return reasons


def _candidates() -> Iterator[Spec]:
    """Every method with a promise, under every adjacency, with every kind of entries."""
    for row in methods():
        if not row.private:
            continue
        family = row.family
        calibration = row.calibration
        fields = row.example(_DIM)
        fields["k"] = family.length_near(_BINS if family.bins else _DENSE_K)
        record_epsilons: tuple[float | None, ...] = (None,)
        if calibration.joint:
            record_epsilons = (None, 4.0)
        deltas = _DELTAS[calibration.delta]
        for kind, delta, form in product(row.adjacencies, deltas, family.variant.forms):
            variant = form
            if calibration.check_norm and delta > 0:
                if form.entries != "gaussian":
                    continue
                variant = form.with_norm(_NORM)
            budgets = _budgets(row, kind, form.entries)
            for epsilon, second in product(budgets, record_epsilons):
                stated = {
                    "epsilon": epsilon,
                    "delta": delta,
                    "adjacency": _ADJACENCIES[kind],
                    "variant": variant,
                    "record_epsilon": second,
                }
                yield Spec(**fields | stated)


def _budgets(row: Method, adjacency: str, entries: str | None) -> tuple[float, ...]:
    """Twelve where one coordinate moves or bits flip; fewer where the tables are large."""
    one_coordinate = adjacency == "attribute" and (row.family.keeps_all or row.family.bins)
    large_tables = row.calibration.format is NumberFormat and not one_coordinate
    if row.definition == "iDP" and row.needs_delta:
        return _FEWER
    if entries not in (None, "rademacher"):
        return (1.0,)
    if large_tables:
        return _FEWER
    return _EPSILONS
