"""Tests that tell neighbours apart: counts of events bound epsilon from below.

A row of a pair holds many independent trials (:mod:`dpindex.audit.pairs`). Two tests do without
that premise: each coordinate is also tested by itself, and the command line is attacked with pairs
that differ in one attribute.
"""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy import special

from dpindex.audit.confidence_bounds import epsilon_lower_bound, gaussian_epsilon
from dpindex.audit.pairs import Counts, Pair
from dpindex.base.arrays import Floats
from dpindex.base.errors import InputError
from dpindex.index.private_index import PrivateIndex
from dpindex.mechanism.codes import Codes, codes_from_bytes
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.spec import Spec

_TRAINING = 0.2
_BATCH_NUMBERS = 1 << 22
_COMMAND_NUMBERS = 1 << 23
_COMMAND_ROWS = 20_000
_REPEAT_ROWS = 8192
_MAX_CANDIDATES = 1024
_REACH = 1 << 16

Histogram = tuple[Counts, Counts, Counts]
"""Values observed, and how often under the first neighbour and under the second."""


@dataclass(frozen=True)
class Finding:
    """One test.

    Attributes
    ----------
    name : str
        What was tested.
    lower_bound : float
        Every claim of a smaller epsilon is refuted, [0, ∞).
    evidence : str
        The counts behind it: under the neighbour that favours the event, then under the other.
    trials : int
        Independent observations of each neighbour.

    >>> Finding("sign of the first number", 0.9, "800 against 300 of 1000", trials=1000).lower_bound
    0.9
    """

    name: str
    lower_bound: float
    evidence: str
    trials: int

    def __str__(self) -> str:
        return f"{self.lower_bound:8.4f}  {self.name}: {self.evidence} in {self.trials} trials"


@dataclass(frozen=True)
class Tally:
    """Hits of several events under two neighbours, shape (events, 2), of ``trials`` each.

    ``pooled`` is false where every event belongs to one coordinate.
    """

    name: str
    hits: Counts
    trials: int
    pooled: bool = True

    def finding(self, delta: float, alpha: float) -> Finding:
        """The strongest event; alpha is divided among all of them (Bonferroni)."""
        trials = (self.trials, self.trials)
        bounds = epsilon_lower_bound(self.hits.T, trials, delta, alpha / len(self.hits))
        best = int(np.argmax(bounds))
        first, second = self.hits[best].tolist()
        return Finding(self.name, float(bounds[best]), f"{first} against {second}", self.trials)


@dataclass
class Run:
    """One attack under way: what it may spend, and what it has spent.

    Attributes
    ----------
    releases : callable
        Makes a number of releases of one vector.
    width : int
        Numbers that one release takes, which bounds the size of a batch.
    delta : float
        Of the claim.
    """

    releases: Callable[[Floats, int], Any]
    width: int
    delta: float
    trials: int | None
    seconds: float
    alpha: float
    vectors: int = 0
    histograms: list[Histogram] = field(default_factory=list)

    def release(self, row: Floats, count: int) -> Any:
        """``count`` releases of one vector."""
        self.vectors += count
        return self.releases(row, count)

    def batches(self, share: float) -> Iterator[int]:
        """Sizes of batches that together are ``share`` of what the run may spend."""
        size = max(64, min(1 << 18, _BATCH_NUMBERS // self.width))
        if self.trials is not None:
            total = max(1, round(self.trials * share))
            for start in range(0, total, size):
                yield min(size, total - start)
            return
        end = time.perf_counter() + self.seconds * share
        yield size
        while time.perf_counter() < end:
            yield size


def attack_pair(run: Run, pair: Pair, part: float) -> list[Tally]:
    """Choose thresholds from the first fifth of the trials, count the rest against them."""
    histograms = _histograms(run, pair, part * _TRAINING)
    run.histograms.append(histograms[0])
    thresholds = [_thresholds(run, histogram) for histogram in histograms]
    below, above = np.array(thresholds)[pair.group].T
    hits = np.zeros((2, 2, len(pair.group)), dtype=np.int64)  # event, neighbour, integer
    count = 0
    for size in run.batches(part * (1 - _TRAINING)):
        for neighbour, row in enumerate(pair.rows):
            seen = pair.observe(run.release(row, size))
            hits[0, neighbour] += np.count_nonzero(seen <= below, axis=0)
            hits[1, neighbour] += np.count_nonzero(seen >= above, axis=0)
        count += size
    hits[1] = hits[1, ::-1].copy()  # a large value speaks for the second neighbour
    tallies = []
    for name, members in pair.pools():
        pooled = hits[:, :, members].sum(axis=2)
        tallies.append(Tally(name, pooled, count * int(np.count_nonzero(members))))
    if len(pair.group) > 1:
        alone = hits.transpose(0, 2, 1).reshape(-1, 2)
        name = f"{pair.name}, each coordinate by itself"
        tallies.append(Tally(name, alone, count, pooled=False))
    return tallies


def _histograms(run: Run, pair: Pair, part: float) -> list[Histogram]:
    """Return a histogram of the observations under the two neighbours for each group."""
    groups = int(pair.group.max()) + 1
    width = 2 * _REACH + 1
    counts = np.zeros((2, groups * width), dtype=np.int64)
    for size in run.batches(part):
        for neighbour, row in enumerate(pair.rows):
            seen = pair.observe(run.release(row, size)).clip(-_REACH, _REACH)
            places = seen + (_REACH + pair.group * width)
            counts[neighbour] += np.bincount(places.ravel(), minlength=groups * width)
    histograms = []
    for first, second in counts.reshape(2, groups, width).swapaxes(0, 1):
        values = np.flatnonzero(first + second)
        histograms.append((values - _REACH, first[values], second[values]))
    return histograms


def _thresholds(run: Run, histogram: Histogram) -> tuple[int, int]:
    """The limits of the two events, below and above, with the largest bound on epsilon.

    The bound is the one that the training counts alone would give, for all candidates at once:
    among a thousand events, some rare one looks strong by luck.
    """
    values, *counts = histogram

    def best(order: slice, favoured: int) -> int:
        sums = [np.cumsum(side[order]) for side in counts]
        places = np.unique(np.linspace(0, len(values) - 1, _MAX_CANDIDATES).astype(np.intp))
        hits = [sums[favoured][places], sums[1 - favoured][places]]
        trials = [sums[favoured][-1], sums[1 - favoured][-1]]
        bounds = epsilon_lower_bound(hits, trials, run.delta, run.alpha / len(places))
        return int(values[order][places[np.argmax(bounds)]])

    return best(slice(None), 0), best(slice(None, None, -1), 1)


def code_releases(privatizer: Privatizer, row: Floats, count: int) -> Codes:
    """``count`` codes of one vector."""
    return privatizer.privatize(np.broadcast_to(row, (count, len(row))))


def repeats(run: Run, privatizer: Privatizer, pair: Pair) -> Tally:
    """The event that two releases are equal, one of which is of a known vector.

    If both used the same noise, they would differ by no noise at all. The second release is always
    of the pair's first row, so only the first one depends on which neighbour it is. Releases are
    compared within one call, whose halves different threads serve, and between two calls.
    """
    half = _REPEAT_ROWS // 2
    first_row = pair.rows[0]
    equal = []
    for row in pair.rows:
        rows = np.repeat([row, first_row], half, axis=0)
        seen = pair.observe(privatizer.privatize(rows, threads=2))
        again = pair.observe(run.release(first_row, half))
        run.vectors += len(rows)
        comparisons = [pair.equal(seen[:half], other) for other in (seen[half:], again)]
        equal.append([np.count_nonzero(same) for same in comparisons])
    return Tally("the same noise twice", np.array(equal).T, comparisons[0].size)


def command_line(run: Run, spec: Spec, pair: Pair) -> Tally:
    """``dpindex privatize`` → file → index → reopen, on a pair that differs in one unit."""
    count = max(100, min(run.trials or _COMMAND_ROWS, _COMMAND_ROWS, _COMMAND_NUMBERS // spec.dim))
    releases = partial(_through_files, spec)
    through = Run(releases, 1, run.delta, count, run.seconds, run.alpha)
    first = attack_pair(through, pair, 1.0)[0]
    run.vectors += through.vectors
    return replace(first, name=f"{pair.unit} through the command line, a file and an index")


def _through_files(spec: Spec, row: Floats, count: int) -> Codes:
    with TemporaryDirectory(prefix="dpindex-audit-") as name:
        folder = Path(name)
        np.save(folder / "vectors.npy", np.tile(row, (count, 1)))
        (folder / "spec.json").write_text(spec.to_json())
        words = ["privatize", "vectors.npy", "out.codes", "--spec", "spec.json"]
        if spec.codebook is not None:
            np.save(folder / "codebook.npy", spec.codebook.stated)
            words += ["--codebook", "codebook.npy"]
        command = [sys.executable, "-c", "from dpindex.cli import main; main()", *words]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise InputError(f"the command line failed: {done.stderr.strip()}")
        index = PrivateIndex(spec)
        index.add_codes(codes_from_bytes((folder / "out.codes").read_bytes()))
        index.save(folder / "index")
        return PrivateIndex.open(folder / "index").codes


def gaussian_finding(histogram: Histogram, delta: float, alpha: float) -> Finding:
    """Lower bound from the deviation and the shift of the noise, *if* the noise is normal.

    A delta of 1e-6 shows itself in tails that take 10⁹ trials to count. If the noise is taken for
    what the method says it is, normal, a thousandth of that measures its deviation to a per mille.
    Exact limits for normal samples, a third of alpha each for the variance and the two means.
    Rounding and dither only widen the observed noise, which errs on the safe side.
    """
    values, *counts = histogram
    sizes = [int(side.sum()) for side in counts]
    means = [float(side @ values) / size for side, size in zip(counts, sizes, strict=True)]
    squares = [side @ (values - mean) ** 2 for side, mean in zip(counts, means, strict=True)]
    deviation = math.sqrt(sum(squares) / special.chdtri(sum(sizes) - 2, 1 - alpha / 3))
    margin = sum(-special.ndtri(alpha / 3) * deviation / math.sqrt(size) for size in sizes)
    shift = max(0.0, means[1] - means[0] - margin)
    bound = 0.0
    if shift > 0:
        bound = gaussian_epsilon(shift / deviation, delta)
    evidence = f"deviation at most {deviation / shift if shift else np.inf:.6g} shifts"
    return Finding("if the noise is normal: its deviation", bound, evidence, min(sizes))
