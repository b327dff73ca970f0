"""A second reading of the words of noise, by the kind of law: what each must make of integers.

From the words and a law's integers follows what must be released; nothing of it calls a sampler.
Words on either side of every threshold show that the table that was verified is the one that runs.
"""

from contextlib import suppress
from fractions import Fraction

import numpy as np

from dpindex.audit import verify
from dpindex.audit.exact_arithmetic import UNIT
from dpindex.audit.input_checks import code_checks, sketch_checks
from dpindex.audit.record_verifiers import (
    SHARE_BITS,
    UNSEEN,
    SoftmaxVerifier,
    at_least,
    completions_by_side,
    minority_shares,
)
from dpindex.base.arrays import spaced
from dpindex.mechanism.noise.additive import CellTable, TwoDigitLaplace
from dpindex.mechanism.noise.cap import CapResponse
from dpindex.mechanism.noise.gaussian import TwoDigitGaussian
from dpindex.mechanism.noise.response import FlipsByLevel, SquareWave
from dpindex.mechanism.noise.symbols import CodebookResponse, SoftmaxResponse
from dpindex.mechanism.papers.signs import IndividualFlips, IndividualGaussian
from dpindex.mechanism.public_random import PublicStream
from dpindex.race import SketchSpec
from self_test.words import (
    UnexplainedError,
    flips,
    magnitude,
    replay_faults,
    table_draws,
    uniform_below,
)

REPLAY = "sampler: outcomes of replayed words"
_MAX_NUMBERS = 1 << 22
_WALKS = 64
_NEAR_ROWS = 16
_PROBES = 24
_NUMBERS = 1 << 20


class Reader:
    """Reads the words of one law; of an unknown law, it explains nothing."""

    def __init__(self, spec, apart):
        self.spec = spec
        self.law = spec.law
        self.apart = apart

    def probes(self):
        """Integers, shape (n, k), on which the sampler is compared with the second reading."""
        yield np.zeros((1, 1))

    def outcomes(self, x, words):
        """The release of exact integers ``x`` under these words, shape (n, k)."""
        raise UnexplainedError


def replay_fails(spec):
    """Whether the sampler leaves the integers of the law, on any coordinate.

    Words on either side of every threshold must give the outcome that it belongs to.
    """
    reader = law_reader(spec)
    faults = [True]
    with suppress(UnexplainedError):
        faults = [replay_faults(reader.law, x, reader.outcomes) for x in reader.probes()]
    return any(np.any(fault) for fault in faults)


def refuted(spec):
    """The checks that do not hold: those of the exact verifier, and the replay of the sampler."""
    failed = verify(spec).failed
    return (*failed, REPLAY) if replay_fails(spec) else failed


class AdditiveReader(Reader):
    """Integer noise from a table, or several."""

    def __init__(self, spec, apart):
        super().__init__(spec, apart)
        self.source = self.law.source
        self.bits = self.source.cell_bits

    def draws(self, count, words):
        """Return so many draws of the source, in grid steps."""
        return table_draws(self.source, count, words)

    def outcomes(self, x, words):
        draws = self.draws(x.size, words).reshape(x.shape)
        return (x + draws) >> self.bits

    def probes(self):
        """As many as the largest table has cells: every boundary is met, and missed by one."""
        count = max(len(table.masses) for table in self.tables())
        eights = count // 8 + 1
        yield np.resize([-9, 0, 5, 6, 7, 4096], (eights, 8))

    def tables(self):
        return [self.source]


class TwoDigitGaussianReader(AdditiveReader):
    """Normal noise in two digits."""

    def tables(self):
        return [self.source.coarse, self.source.fine]

    def draws(self, count, words):
        shift = self.source.digit + self.bits
        coarse = table_draws(self.source.coarse, count, words)
        return (coarse << shift) + table_draws(self.source.fine, count, words)


class TwoDigitLaplaceReader(AdditiveReader):
    """Laplace noise in two digits of its magnitude."""

    def tables(self):
        return [self.source.high, self.source.low]

    def draws(self, count, words):
        high = table_draws(self.source.high, count, words)
        low = table_draws(self.source.low, count, words)
        shift = self.source.digit + self.bits
        size = (magnitude(high) << shift) + low
        return np.where(high < 0, -1 - size, size)


class SquareWaveReader(Reader):
    """A window about the value and the rest of an interval."""

    def __init__(self, spec, apart):
        super().__init__(spec, apart)
        self.window = 2 * self.law.half_width + 1

    def outcomes(self, x, words):
        law = self.law
        read = words.take(x.size, np.uint8).reshape(x.shape)
        dither = read.astype(np.int64) % (1 << law.cell_bits)
        cell = ((x - law.low + dither) >> law.cell_bits).clip(0, law.cells)
        chances = np.full(x.shape, law.inside, dtype=np.uint64)
        inside = flips(chances, words)
        limits = np.where(inside, self.window, law.cells)
        drawn = uniform_below(limits, words)
        # Points left free by the window are counted from below, over the window.
        beyond = np.where(drawn < cell, 0, self.window)
        return drawn + np.where(inside, cell, beyond)

    def probes(self):
        """At both ends of the interval, between, and a step beyond, which rounding may lead to."""
        law = self.law
        top = law.cells << law.cell_bits
        ends = law.low + np.array([-1, 0, 1, top // 3, top - 1, top, top + 1])
        yield np.resize(ends, (self.window + law.cells, len(ends)))


class FlipsReader(Reader):
    """Flips of signs, by the level of a coordinate."""

    def outcomes(self, x, words):
        width = self.law.weights.astype(np.int64) << self.spec.grid.bits
        levels = np.array(self.law.thresholds, dtype=np.uint64)
        level = -(-np.abs(x) // width)
        chances = levels[level.clip(1, len(levels)) - 1]
        chances[x == 0] = UNIT // 2
        return (x > 0) ^ flips(chances, words)

    def probes(self):
        """At both ends of every level of every coordinate, which may have levels of its own."""
        weights = self.law.weights
        if len(weights) == 1:  # of every coordinate
            weights = np.repeat(weights, 8)
        width = weights.astype(np.int64)[None, :] << self.apart.bits
        first = np.arange(len(self.law.thresholds))[:, None] * width + 1
        final = first + width - 1
        final[-1] *= 2  # the last level goes on for ever
        ends = [first, final, -first, -final, np.zeros_like(width)]
        yield np.concatenate(ends)


class _Individual(Reader):
    """Noise inside the perturbed set A only."""

    def sized(self, count):
        """Rows with several sizes of A, one beta and −1 inside; ``count`` numbers of the last."""
        length = self.spec.code_length
        width = 1 << self.apart.bits
        column = np.arange(length)
        near = np.where(column % 2, -1, width)
        rows = []
        for size in sorted({1, 2, length // 2, length} - {0}):
            if size > length:
                continue
            row = np.where(column < size, near, width + 1)
            copies = _NEAR_ROWS if size < length else count // length + 1
            rows += copies * [row]
        return np.array(rows)


class IndividualFlipsReader(_Individual):
    """Flips inside the perturbed set A."""

    def outcomes(self, x, words):
        near = np.abs(x) <= 1 << self.spec.grid.bits
        by_size = self.law.table[1 + np.count_nonzero(near, axis=1)]
        chances = np.where(near, by_size[:, None], np.uint64(0))
        chances[x == 0] = UNIT // 2
        return (x > 0) ^ flips(chances, words)

    def probes(self):
        yield self.sized(1)


class IndividualGaussianReader(_Individual):
    """Normal noise inside the perturbed set A."""

    def outcomes(self, x, words):
        bits = self.spec.grid.bits
        near = np.abs(x) <= 1 << bits
        sizes = np.count_nonzero(near, axis=1)
        factors = np.array(self.law.multipliers)[sizes]
        magnified = (x * factors[:, None])[near]
        read = words.take(len(magnified), np.uint16)
        dither = read.astype(np.int64) % (1 << bits)
        bare = (magnified + dither) >> bits
        # Every second draw nearly undoes what a coordinate was multiplied by.
        table = self.law.table
        turns = np.arange(len(bare))
        undone = turns // 2 % 4 - 3 - bare - table.first
        cells = np.where(turns % 2, turns // 2, undone)
        noisy = bare + table_draws(table, len(bare), words, cells)
        coins = words.take(len(magnified), np.uint8) % 2 == 1
        signs = x > 0
        signs[near] = np.where(noisy == 0, coins, noisy > 0)
        return signs

    def probes(self):
        """So many that every cell is drawn."""
        yield self.sized(2 * len(self.law.table.masses))


def cap_probes(k):
    """Coordinates of different records: sorted, in any order and size, tied, and zero."""
    stream = PublicStream(0, "audit/cap")
    shape = (_WALKS, k)
    ordered = np.tile(np.arange(k, 0, -1.0), (_WALKS, 1))
    yield ordered
    keys = stream.words(_WALKS * k, np.uint32).reshape(shape)
    signs = stream.signs(_WALKS * k).reshape(shape)
    mixed = np.take_along_axis(ordered, np.argsort(keys, axis=1), axis=1)
    sizes = 2.0 ** (mixed % 120 - 60)
    yield (signs * sizes).astype(np.float32)
    yield (signs * (keys % 4)).astype(np.float32)
    yield np.zeros(shape) * signs


def _outcomes(x, agrees):
    """Signs by coordinate: magnitudes rank from the largest, ties by index; 0 is positive."""
    kept = np.empty_like(agrees)
    ranked = _descending(np.abs(x))
    np.put_along_axis(kept, ranked, agrees, axis=1)
    return np.equal(kept, x >= 0)


def _descending(values):
    """Columns of each row from the largest value on, ties by column."""
    columns = np.broadcast_to(np.arange(values.shape[1]), values.shape)
    return np.lexsort((columns, -values.astype(np.float64)), axis=1)


def cap_codes(cap, x, words):
    """The signs that words make of coordinates, shape (n, k)."""
    parts = []
    while len(x):
        rows = min(words.ahead, len(x))
        inside = _chosen(cap.inside, rows, words)
        kept = _kept(cap, inside, words)
        parts.append(_outcomes(x[:rows], kept))
        x = x[rows:]
    return np.concatenate(parts)


def _kept(cap, inside, words):
    """Whether signs are kept, in rank order, shape (n, k)."""
    shares = minority_shares(tuple(cap.weights), cap.threshold)
    count = len(inside)
    k = len(cap.weights)
    tied = {0, 1, k // 3, k // 2, k - 2}
    tops = words.take(count * k, np.uint16).reshape(k, count)
    side = inside.astype(np.intp)
    sums = np.zeros(count, dtype=np.int64)
    agrees = np.empty((count, k), dtype=np.bool_)
    for i, weight in enumerate(cap.weights):
        share = shares[side, i, sums]
        if (share == UNSEEN).any():
            raise UnexplainedError
        # Next to the share; seldom at it, where further digits decide, which takes long.
        beside = words.beside(share + 1)
        aim = np.abs(2 * beside - share - 1)  # 1 beside 0
        if i in tied:
            aim[i % count] = share[i % count]
        if words.aims:
            tops[i] = aim >> 32
        number = tops[i].astype(np.int64) << 32
        close = np.flatnonzero(tops[i] == share >> 32)
        low_halves = aim[close] & 0xFFFF_FFFF
        number[close] |= words.take(len(close), np.uint32, low_halves)
        minority = number < share
        for row in close[number[close] == share[close]]:
            # The exact share of the minority sign, by counts of completions.
            later = at_least(tuple(cap.weights[i + 1 :]))
            missing = np.array([cap.threshold - sums[row]])
            sides = completions_by_side(later, missing, weight)
            (few,), (either,) = sides[side[row]]
            left = Fraction(few << SHARE_BITS, either) % 1
            minority[row] = _below(left, words)
        agrees[:, i] = minority != inside
        sums += weight * agrees[:, i]
    return agrees


def _below(left, words):
    """Whether further words of 16 bits lie below further digits; the first that differs decides."""
    tied = 0
    while left:
        digit = int(left * 2**16)
        aimed = None
        if tied < 2:  # or a share without end is never decided
            aimed = words.beside(np.array([digit])).clip(min=0)
        (word,) = words.take(1, np.uint16, aimed).tolist()
        if word != digit:
            return word < digit
        left = left * 2**16 - digit
        tied += 1
    return False


def _chosen(chance, count, words):
    """Whether each word lies below a chance, in units of 2^-64."""
    aim = words.beside(np.full(count, chance, np.uint64))
    return words.take(count, np.uint64, aim) < np.uint64(chance)


def uniform_draws(limit, count, words):
    """``⌊word·limit/2^64⌋`` of words."""
    # The first word that leads to each of the outcomes, evenly spaced if there are too many.
    outcomes = _object(np.resize(spaced(limit, count), count))
    first = -(-(outcomes << 64) // limit)
    aim = np.maximum(words.beside(first), 0)
    read = _object(words.take(count, np.uint64, aim))
    drawn = read * limit >> 64
    return drawn.astype(np.intp)


def symbols(law, x, words):
    """The symbols that words make of similarities, shape (n,)."""
    count = len(x)
    uniform = _chosen(law.uniform, count, words)
    near = uniform_draws(law.subset, count, words)
    other = uniform_draws(law.size, count, words)
    # Equal rows, as probes are, are sorted once.
    are_equal = (x == x[:1]).all()
    order = _descending(x[:1] if are_equal else x)
    order = np.broadcast_to(order, (count, order.shape[1]))
    return np.where(uniform, other, order[np.arange(count), near])


def symbol_probes(size):
    """Similarities to all codewords, whole numbers: all tied, sorted, some tied, far apart."""
    count = max(8, min(2 * size, _MAX_NUMBERS // size))
    words = PublicStream(0, "audit/codebook").words(size, np.uint32).astype(np.int64)
    far_apart = words % (1 << 24) - (1 << 23)
    for x in (0 * words, np.arange(size), words % 5 - 2, far_apart):
        yield np.tile(x, (count, 1))


def _object(values):
    """Whole numbers of any size."""
    return np.array(values.tolist(), dtype=object)


class CapReader(Reader):
    """Signs inside or outside the cap of a record."""

    def outcomes(self, x, words):
        return cap_codes(self.law.cap, x, words)

    def probes(self):
        return cap_probes(len(self.law.cap.weights))


class CodebookReader(Reader):
    """A codeword near a record, or a uniform one."""

    def outcomes(self, x, words):
        return symbols(self.law, x, words)

    def probes(self):
        return symbol_probes(self.law.size)


class SoftmaxReader(Reader):
    """A symbol drawn by whole-number weights, or a uniform one."""

    def __init__(self, spec, apart):
        super().__init__(spec, apart)
        self.verifier = SoftmaxVerifier(spec, apart)

    def outcomes(self, x, words):
        law = self.law
        count = len(x)
        size = len(law.codebook)
        chosen = _chosen(law.uniform, count, words)
        ends = self.verifier.ends(x.astype(np.int64))
        total = ends[:, -1].astype(object)
        # The first word of each symbol in turn.
        aimed = np.resize(spaced(size, count), count)
        ends_before = ends[np.arange(count), aimed - 1]
        before = np.where(aimed > 0, ends_before, 0)
        first = -(-(before.astype(object) << 64) // total)
        aim = np.maximum(words.beside(first), 0)
        read = words.take(count, np.uint64, aim).astype(object)
        places = (read * total >> 64).astype(np.int64)
        drawn = (ends <= places[:, None]).sum(axis=1)
        return np.where(chosen, uniform_draws(size, count, words), drawn)

    def probes(self):
        """Mixed scores, all tied, spread over the table and beyond it."""
        size = self.law.size
        span = len(self.law.table) << self.law.shift
        count = max(_PROBES, min(2 * size, _NUMBERS // size))
        yield self.verifier.scores(count)
        yield np.zeros((count, size), dtype=np.int64)
        step = min(span // size + 1, (1 << 21) // size)
        yield np.tile(step * np.arange(size), (count, 1))


READERS = {
    CellTable: AdditiveReader,
    TwoDigitGaussian: TwoDigitGaussianReader,
    TwoDigitLaplace: TwoDigitLaplaceReader,
    FlipsByLevel: FlipsReader,
    SquareWave: SquareWaveReader,
    IndividualFlips: IndividualFlipsReader,
    IndividualGaussian: IndividualGaussianReader,
    CapResponse: CapReader,
    CodebookResponse: CodebookReader,
    SoftmaxResponse: SoftmaxReader,
}
"""By the class of a law, or of the source that an additive law draws from."""


def law_reader(spec):
    """The second reading of the law of ``spec``."""
    checks = sketch_checks if isinstance(spec, SketchSpec) else code_checks
    _, apart = checks(spec)
    for kind, reader in READERS.items():
        if isinstance(spec.law.drawn_from, kind):
            return reader(spec, apart)
    return Reader(spec, apart)
