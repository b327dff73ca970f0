"""Worst-case neighbours of a spec, and tests that tell them apart: counts bound epsilon from below.

One row holds many independent trials. Coordinates that different attributes move are noised
independently, each by a law that sees its own projected integer only. So in a row where *many*
attributes change, each in a coordinate of its own, every such coordinate is distributed as in the
adjacent pair that changes its attribute alone, and the coordinates are independent trials of it.
Two tests do without that premise: each coordinate is also tested by itself, and the command line is
attacked with pairs that differ in one attribute. Of a law that hides whole records the pair is a
record and its opposite, and a code is one trial.
"""

from __future__ import annotations

import math
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import optimize, sparse, special

from dpindex.base.arrays import AnyArray, Floats
from dpindex.base.errors import InputError
from dpindex.index.private_index import PrivateIndex
from dpindex.mechanism.codes import (
    BitCodes,
    Codes,
    SignFormat,
    SymbolFormat,
    codes_from_bytes,
    for_format,
)
from dpindex.mechanism.noise.cap import CapResponse
from dpindex.mechanism.noise.law import SignLaw
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.spec import Spec
from dpindex.privacy import Attribute, Record
from dpindex.randomness import PublicStream

_TRAINING = 0.2
_BATCH_NUMBERS = 1 << 22
_COMMAND_NUMBERS = 1 << 23
_COMMAND_ROWS = 20_000
_REPEAT_ROWS = 8192
_MAX_CANDIDATES = 1024
_MAX_POOLS = 3
_CHUNK_ENTRIES = 1 << 22
_MAX_ATTRIBUTES = 1 << 16
_MAX_GROUPS = 8
_MAX_SYMBOLS = 32
_REACH = 1 << 16

_Moves = dict[int, npt.NDArray[np.intp]]
Counts = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]
Histogram = tuple[Counts, Counts, Counts]
"""Values observed, and how often under the first neighbour and under the second."""


@dataclass(frozen=True)
class Pair(ABC):
    """Two neighbouring rows of attributes, and how a code is read to tell them apart.

    Attributes
    ----------
    name : str
        Where in the law the pair lies.
    rows : (array, array), each of shape (dim,)
        The neighbours.
    group : int array, shape (m,)
        What is observed of a code is m integers; thresholds are chosen for each group of them.
    """

    name: str
    rows: tuple[Floats, Floats]
    group: npt.NDArray[np.intp]

    unit: ClassVar[str]
    """What one row differs in from the other, for ``single``."""

    @abstractmethod
    def observe(self, codes: Any) -> Counts:
        """Integers of every code, shape (n, m), each larger for the second row."""

    @abstractmethod
    def single(self) -> Pair:
        """The adjacent pair proper, observed by its first integer."""

    @abstractmethod
    def pools(self) -> Iterator[tuple[str, Booleans]]:
        """Observed integers that are independent trials of one event, by name."""

    @abstractmethod
    def equal(self, one: Counts, other: Counts) -> Booleans:
        """Independent comparisons of what was observed of two lists of codes, as booleans."""


@dataclass(frozen=True)
class AttributePair(Pair):
    """Rows that differ in every carrier, by at most beta · scale.

    Attributes
    ----------
    group : int array, shape (carriers,)
        Carriers with equal projected values before and after share a group, the largest is 0; what
        is left over shares the last. Pooling any of them is sound: each keeps (ε, δ), so do means.
    carriers : tuple of int
        Attributes that differ; ``single`` leaves only the first of them different.
    coordinates : int array, shape (carriers, m)
        What each carrier moves.
    signs : int8 array, same shape
        +1 where the second row's projection is the larger.
    """

    carriers: tuple[int, ...]
    coordinates: npt.NDArray[np.intp]
    signs: npt.NDArray[np.int8]

    unit = "one attribute"

    def observe(self, codes: Codes) -> Counts:
        """One integer per row and carrier, shape (n, carriers), larger for the second row.

        For numbers it is the code, for signs the sum of those that moved, turned to one side: the
        log-likelihood ratio is monotone in it, so a threshold on it is the best test.
        """
        values = codes.to_signs() if isinstance(codes, BitCodes) else codes.stored
        moved = values[:, self.coordinates.ravel()].astype(np.int32) * self.signs.ravel()
        observed: Counts = moved.reshape(-1, *self.coordinates.shape).sum(axis=2, dtype=np.int64)
        return observed

    def single(self) -> AttributePair:
        """The adjacent pair proper: only the first carrier differs."""
        other = self.rows[0].copy()
        other[self.carriers[0]] = self.rows[1][self.carriers[0]]
        fields = ("carriers", "coordinates", "signs", "group")
        first: dict[str, Any] = {name: getattr(self, name)[:1] for name in fields}
        return replace(self, rows=(self.rows[0], other), **first)

    def pools(self) -> Iterator[tuple[str, Booleans]]:
        for group, size in enumerate(np.bincount(self.group)[:_MAX_POOLS].tolist()):
            moved = f"{size} × {self.coordinates.shape[1]} coordinates"
            yield f"{self.name}, pool {group + 1} of {moved}", self.group == group

    def equal(self, one: Counts, other: Counts) -> Booleans:
        return np.equal(one, other)


@dataclass(frozen=True)
class RecordPair(Pair):
    """Two records of which neither shares a code's larger chance with the other.

    Coordinates of one code are not independent, so none are pooled: the first integer is a score of
    the whole code, the others are coordinates or symbols by themselves.

    Attributes
    ----------
    read : callable
        What is observed of codes.
    """

    read: Callable[[Codes], Counts]

    unit = "one record"

    def observe(self, codes: Codes) -> Counts:
        return self.read(codes)

    def single(self) -> RecordPair:
        return self

    def pools(self) -> Iterator[tuple[str, Booleans]]:
        yield f"{self.name}, the score of a code", np.arange(len(self.group)) == 0

    def equal(self, one: Counts, other: Counts) -> Booleans:
        same: Booleans = np.logical_and.reduce(np.equal(one, other), axis=1)
        return same


def worst_pairs(spec: Spec) -> Sequence[Pair]:
    """The pairs to attack: across zero, and for flips that depend on size across two levels too."""
    if isinstance(spec.adjacency, Record):
        return [_record_pair(spec)]
    if not isinstance(spec.adjacency, Attribute):
        raise InputError(f"there is no attack under {spec.adjacency} yet.")
    if spec.min_norm is not None:
        raise InputError(
            "there is no attack on vectors of a least norm yet; leave min_norm out.",
            parameters=["min_norm"],
        )
    columns = _columns(spec)
    moves = _moves(columns)
    # Everything moved, or a spec whose bins overlap over repetitions: no room to place helpers.
    helped = spec.repetitions == 1 and len(moves) > 1
    targets = {"across zero": -0.5}
    if helped and isinstance(spec.law, SignLaw) and spec.law.depends_on_size:
        targets |= {f"level {level} against {level + 1}": float(level) for level in (1, 2)}
    near = {name: spec.adjacency.size * place for name, place in targets.items()}
    return [_pair(spec, name, moves, columns, helped, target) for name, target in near.items()]


_RecordScores: TypeAlias = Callable[[Spec, Sequence[Floats]], tuple[Callable[[Codes], Counts], int]]


def _record_pair(spec: Spec) -> RecordPair:
    """A record and its opposite: their caps, or sets of codewords, have nothing in common."""
    words = PublicStream(0, "audit/record").words(spec.dim, np.uint16)
    row = words - 2.0**15 + 0.5
    rows = row, -row
    near = [Privatizer(spec).project(one)[0] for one in rows]
    score = for_format(_RECORD_SCORES, spec.format_type)
    read, count = score(spec, near)
    group = np.minimum(np.arange(count), 1)
    return RecordPair("a record and its opposite", rows, group, read)


def _sign_score(spec: Spec, near: Sequence[Floats]) -> tuple[Callable[[Codes], Counts], int]:
    """``⟨V, x̃′ − x̃⟩``, and every sign."""
    if not isinstance(spec.law, CapResponse):
        raise InputError(f"there is no attack on the records of {spec.method} yet.")
    encoded = []
    for y in near:
        x = np.empty(len(y), dtype=np.int64)
        x[np.argsort(-np.abs(y), kind="stable")] = spec.law.cap.weights
        encoded.append(np.where(y >= 0, x, -x))
    weights = (encoded[1] - encoded[0]).astype(np.float32)
    towards = np.where(near[1] >= 0, 1, -1).astype(np.int8)

    def read(codes: Codes) -> Counts:
        signs = codes.to_signs()
        score = signs.astype(np.float32) @ weights  # whole numbers below 2^24
        return np.column_stack([score.astype(np.int64), signs * towards])

    return read, 1 + len(towards)


def _symbol_score(spec: Spec, near: Sequence[Floats]) -> tuple[Callable[[Codes], Counts], int]:
    """1 for the symbols near the second record, −1 near the first, and some of them each."""
    subset = spec.symbol_law.subset
    sets = [np.argsort(-y, kind="stable")[:subset] for y in near]
    each = [symbols[:_MAX_SYMBOLS] for symbols in sets]
    table = np.zeros((len(near[0]), 1 + len(each[0]) + len(each[1])), dtype=np.int64)
    for sign, symbols in zip((-1, 1), sets, strict=True):
        table[symbols, 0] += sign
    for column, symbol in enumerate(np.concatenate(each), 1):
        table[symbol, column] = -1 if column <= len(each[0]) else 1

    def read(codes: Codes) -> Counts:
        counts: Counts = table[codes.stored[:, 0]]
        return counts

    return read, table.shape[1]


_RECORD_SCORES: dict[type[object], _RecordScores] = {
    SignFormat: _sign_score,
    SymbolFormat: _symbol_score,
}
"""By code format: what is counted in the codes of a record and its opposite."""


def _columns(spec: Spec) -> AnyArray:
    """Signs of the map, attribute by attribute, of the first attributes: shape (attributes, k)."""
    count = min(spec.dim, _MAX_ATTRIBUTES, max(1, (1 << 28) // spec.code_length))
    rows = max(1, _CHUNK_ENTRIES // spec.code_length)
    parts = []
    for start in range(0, count, rows):
        unit = sparse.eye(min(rows, count - start), spec.dim, start, np.float32, "csr")
        parts.append(np.sign(spec.projection.apply_sparse(unit)).astype(np.int8))
    return np.concatenate(parts)


def _moves(columns: AnyArray) -> _Moves:
    """Attributes that move no coordinate in common, and what each moves.

    Of maps whose attributes move more and less, only those that move the most.
    """
    free = np.ones(columns.shape[1], dtype=np.bool_)
    found = {}
    counts = np.count_nonzero(columns, axis=1)
    for attribute in np.flatnonzero(counts == counts.max()).tolist():
        places = np.flatnonzero(columns[attribute])
        if free[places].all():
            free[places] = False
            found[attribute] = places
        if not free.any():
            break
    # In the order of what they move, so that whole codes are read without picking.
    return dict(sorted(found.items(), key=lambda item: int(item[1][0])))


def _pair(
    spec: Spec, name: str, moves: _Moves, columns: AnyArray, helped: bool, target: float
) -> AttributePair:
    """Carriers from end to end; if helped, the others of a coordinate bring it near ``target``."""
    low, high = spec.bounds
    first, second = _ends(spec)
    rest = min(max(0.0, low), high)
    one = np.full(spec.dim, rest)
    other = one.copy()
    for carrier, places in moves.items():
        column = columns[:, places[0]]
        # With one coordinate the projection grows from the first row to the second.
        rising = len(places) > 1 or column[carrier] > 0
        before, after = (first, second) if rising else (second, first)
        helpers = [a for a in np.flatnonzero(column).tolist() if helped and a != carrier]
        missing = target - column[carrier] * before - rest * column[helpers].sum()
        for helper in helpers:
            value = min(max(rest + column[helper] * missing, low), high)
            missing -= column[helper] * (value - rest)
            one[helper] = other[helper] = value
        one[carrier], other[carrier] = before, after
    one = one * spec.scale
    other = other * spec.scale
    projected = [Privatizer(spec).project(row)[0] for row in (one, other)]
    coordinates = np.array(list(moves.values()))
    signs = np.sign(projected[1] - projected[0]).astype(np.int8)[coordinates]
    ends = np.concatenate([(row[coordinates] * signs) for row in projected], axis=1)
    _, kind, sizes = np.unique(ends, axis=0, return_inverse=True, return_counts=True)
    rank = np.argsort(np.argsort(-sizes, kind="stable"))[kind.ravel()]
    group = np.minimum(rank, _MAX_GROUPS - 1)
    return AttributePair(name, (one, other), group, tuple(moves), coordinates, signs)


def _ends(spec: Spec) -> tuple[float, float]:
    """Two values of an attribute one beta apart, about zero where the bounds allow it."""
    low, high = spec.bounds
    half = spec.adjacency.size / 2
    if low <= -half and half <= high:
        return -half, half
    top = min(high, low + spec.adjacency.size)
    while Fraction(top) - Fraction(low) > Fraction(spec.adjacency.size):
        top = float(np.nextafter(top, low))
    return low, top


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
    """What is observed under the two neighbours, group by group."""
    groups = int(pair.group.max()) + 1
    width = 2 * _REACH + 1
    counts = np.zeros((2, groups * width), dtype=np.int64)
    for size in run.batches(part):
        for neighbour, row in enumerate(pair.rows):
            seen = pair.observe(run.release(row, size)).clip(-_REACH, _REACH)
            places = seen + (_REACH + pair.group * width)
            counts[neighbour] += np.bincount(places.ravel(), minlength=groups * width)
    found = []
    for first, second in counts.reshape(2, groups, width).swapaxes(0, 1):
        values = np.flatnonzero(first + second)
        found.append((values - _REACH, first[values], second[values]))
    return found


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
    known = pair.rows[0]
    equal = []
    for row in pair.rows:
        rows = np.repeat([row, known], half, axis=0)
        seen = pair.observe(privatizer.privatize(rows, threads=2))
        again = pair.observe(run.release(known, half))
        run.vectors += len(rows)
        found = [pair.equal(seen[:half], other) for other in (seen[half:], again)]
        equal.append([np.count_nonzero(same) for same in found])
    return Tally("the same noise twice", np.array(equal).T, found[0].size)


def command_line(run: Run, spec: Spec, pair: Pair) -> Tally:
    """``dpindex privatize`` → file → index → reopen, on a pair that differs in one unit."""
    count = max(100, min(run.trials or _COMMAND_ROWS, _COMMAND_ROWS, _COMMAND_NUMBERS // spec.dim))
    run.vectors += 2 * count
    seen = np.array([pair.observe(_through_files(spec, row, count))[:, 0] for row in pair.rows])
    first, rest = np.split(seen, [round(count * _TRAINING)], axis=1)
    values = np.unique(seen)
    counts = (first[:, :, None] == values).sum(axis=1)
    below, above = _thresholds(run, (values, counts[0], counts[1]))
    hits = np.array([(rest <= below).sum(axis=1), (rest >= above).sum(axis=1)[::-1]])
    name = f"{pair.unit} through the command line, a file and an index"
    return Tally(name, hits, rest.shape[1])


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


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The least epsilon at which normal noise of deviation ``shift/mu`` is (ε, δ), [0, ∞).

    Balle & Wang 2018, Thm 8: ``δ(ε) = Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ)``, decreasing in ε.

    >>> round(gaussian_epsilon(1 / 4.22467889, 1e-6), 6)
    1.0
    """

    def excess(epsilon: float) -> float:
        first, second = (special.log_ndtr(s * mu / 2 - epsilon / mu) for s in (1, -1))
        return math.exp(first) - math.exp(epsilon + second) - delta

    # At this epsilon the first term alone is delta.
    most = mu**2 / 2 - mu * float(special.ndtri(delta))
    if excess(0.0) > 0:
        return float(optimize.brentq(excess, 0.0, most))
    return 0.0


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


def binomial_bounds(hits: Any, trials: Any, alpha: float) -> tuple[Any, Any]:
    """Lower and upper bound of a probability, each wrong with probability at most ``alpha``.

    Clopper & Pearson 1934: exact for every number of trials, never approximate. Numbers or arrays.

    >>> low, high = binomial_bounds(0, 1000, 0.001)
    >>> float(low), round(float(high), 5)
    (0.0, 0.00688)
    """
    hits = np.asarray(hits, dtype=np.float64)
    trials = np.asarray(trials, dtype=np.float64)
    missed = trials - hits
    # Not a number where there are no hits, or nothing else.
    low = np.nan_to_num(special.betaincinv(hits, missed + 1, alpha), nan=0.0)
    return low, np.nan_to_num(special.betainccinv(hits + 1, missed, alpha), nan=1.0)


def epsilon_lower_bound(hits: Any, trials: Any, delta: float, alpha: float) -> Any:
    """The least epsilon that counts of one event allow, in [0, ∞), wrong at most ``alpha``.

    ``hits[i]`` of ``trials[i]`` releases of neighbour i fell into the event. Under (ε, δ)
    ``P₀ ≤ e^ε·P₁ + δ``, so ``ε ≥ log((P₀ − δ) / P₁)``; alpha is halved between the two bounds.

    >>> round(float(epsilon_lower_bound((7500, 2500), (10000, 10000), 0.0, 0.001)), 2)
    1.02
    """
    low, _ = binomial_bounds(hits[0], trials[0], alpha / 2)
    _, high = binomial_bounds(hits[1], trials[1], alpha / 2)
    return np.log(np.maximum((low - delta) / high, 1.0))
