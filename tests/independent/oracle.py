"""The whole encoder a second time: plain integers and fractions, slow, without a line of dpindex.

From a spec as JSON text, exact input values and secret words in the order in which the encoder asks
for them, :class:`Oracle` computes the codes that must be released, bit for bit, and their bytes.
The file follows the chain: words, grid, public stream, projection, tables, draws, calibration,
release, container. Where integers need a rounding rule, the rule is stated beside the formula.

Numbers that are a root or a bound and not a formula (the optimal Gaussian deviation, an operator
norm) are stated to the oracle as floats, which it certifies in exact or high-precision arithmetic.
"""

import hashlib
import json
import math
import random
import struct
from bisect import bisect_right
from collections import Counter
from fractions import Fraction
from functools import cache
from itertools import accumulate, combinations, pairwise
from statistics import NormalDist

from mpmath import MPContext

MP = MPContext()
MP.prec = 420
ROOT_2 = MP.sqrt(2)


class DisagreementError(AssertionError):
    """The encoder did not read the words, or did not release the codes, that it must."""


# Words


class Words:
    """Uniform words, chosen when they are asked for and kept in that order.

    With ``edges`` most of them are critical values or next to one, all zeros or all ones: ``near``
    names a critical value of the i-th word, at and just below which the outcome differs.
    """

    def __init__(self, seed, edges=False):
        self._random = random.Random(seed)
        self._edges = edges
        self.dealt = []
        self.chosen = []
        """Words of the request that is being answered, so far."""
        self.events = Counter()

    def take(self, bits, count, near=None):
        """``count`` words of so many bits."""
        self.chosen = words = []
        for i in range(count):
            words.append(self._choose(bits, near, i))
        if words:
            self.dealt.append((bits, words))
        return words

    def number(self, size, near):
        """``size`` bytes, the lowest first, as one number."""
        value = self._choose(8 * size, near, 0)
        self.dealt.append((8, list(value.to_bytes(size, "little"))))
        return value

    def _choose(self, bits, near, i):
        kind = self._random.random() if self._edges else 1.0
        if kind < 0.05:
            return 0
        if kind < 0.1:
            return (1 << bits) - 1
        if kind < 0.8 and near is not None:
            critical = near(self._random, i) - self._random.randrange(2)
            return min(max(critical, 0), (1 << bits) - 1)
        return self._random.getrandbits(bits)


# Floats, rounded correctly


def rounded(x, bits):
    """The float of so many significant bits next to x, ties to even (IEEE 754)."""
    if not x:
        return x
    # Divided by 2^exponent x lies between 2^(bits − 1) and 2^(bits + 1). In integers, as fractions
    # take seven times as long.
    exponent = x.numerator.bit_length() - x.denominator.bit_length() - bits
    size, unit = abs(x.numerator) << max(0, -exponent), x.denominator << max(0, exponent)
    if size >= unit << bits:
        exponent += 1
        unit <<= 1
    whole, left = divmod(size, unit)
    whole += 2 * left > unit or (2 * left == unit and whole % 2 == 1)
    value = Fraction(whole << max(0, exponent), 1 << max(0, -exponent))
    return value if x > 0 else -value


def ceil_log2(x):
    return math.ceil(math.log2(x))


# Grid (floating-point attacks: Mironov 2012; Haney et al. 2022)


class Grid:
    """``rint(u·c)``, ``c = 2^bits·(1 − 2⁻¹⁶)/(β·scale)``; u, c and the product are rounded floats.

    float32 where public bounds lie within 32β and no sum reaches 2²⁴, else float64.
    """

    def __init__(
        self,
        spec,
        beta,
        bits,
        most_summed,
        windows=None,
    ):
        self.step = beta / ((1 << bits) * (1 - 2.0**-16))
        low, high = spec["bounds"]
        reach = max(abs(low), abs(high))
        largest = Fraction(reach) / Fraction(self.step) + 1
        ends = []
        if windows is not None:
            ends = windows.ends((low, high))
            widest = max(end - start for start, end in ends)
            largest = max(Fraction(1 << bits), Fraction(widest) / Fraction(self.step) + 1)
        sums = largest * most_summed
        self.precision = 24 if reach <= 32 * beta and sums < 1 << 24 else 53
        self.limits = [Fraction(bound * spec["scale"]) for bound in (low, high)]
        self.factor = rounded(Fraction(1.0 / (self.step * spec["scale"])), self.precision)
        self.placed = [self._placed(beta, bits, spec["scale"], *both) for both in ends]
        self.unit_step = 2.0**-bits if self.placed else self.step

    def _placed(self, beta, bits, scale, low, high):
        """Factor, low end and width of a window: 2^bits steps if it is no wider than beta."""
        width = high - low
        if width <= beta * 2.0**-20:
            return self.factor, 1 << 50, 1 << bits
        factor = self.factor
        narrow = width <= beta
        if narrow:
            factor = rounded(Fraction((1 << bits) / scale / width), self.precision)
        start, across = (round(Fraction(end * float(factor * scale))) for end in (low, width))
        return factor, start, 1 << bits if narrow else across

    def row(self, values):
        if not self.placed:
            return [self.integer(value) for value in values]
        windows = zip(values, self.placed, strict=True)
        return [self.in_window(value, *window) for value, window in windows]

    def integer(self, value):
        """Grid integer of an attribute before division by scale; half steps go to the even one."""
        inside = min(max(value, self.limits[0]), self.limits[1])
        product = rounded(inside, self.precision) * self.factor
        return round(rounded(product, self.precision))

    def in_window(self, value, factor, low, top):
        """Steps above the low end of the window, at most ``top``."""
        steps = round(rounded(rounded(value, self.precision) * factor, self.precision))
        return min(max(steps - low, 0), top)


class Windows:
    """Windows as integers in 2^-16 of a beta, from the bytes of a design or from codewords."""

    def __init__(self, low, width, beta):
        self.low = low
        self.width = width
        self.beta = beta

    @classmethod
    def of_codewords(cls, codewords, half_width, beta, scale):
        """So many deviations to either side of the median, within the codewords' values."""
        step = beta / (1 << 16)
        lows = []
        widths = []
        for column in zip(*codewords, strict=True):
            steps = sorted(round(Fraction(float(value) / scale / step)) for value in column)
            count = len(steps)
            mean = sum(steps) / count
            square = sum(s * s for s in steps) / count
            deviation = math.sqrt(max(square - mean * mean, 0.0))
            middle = (steps[(count - 1) // 2] + steps[count // 2]) // 2
            width = round(2.0 * half_width * deviation)
            least = 1 << 10
            width = min(max(width, least), max(steps[-1] - steps[0], least))
            low = max(min(middle - width // 2, steps[-1] - width), steps[0])
            lows.append(low)
            widths.append(width)
        return cls(lows, widths, beta)

    def ends(self, bounds):
        """Both ends of every window, within the bounds."""
        step = self.beta / (1 << 16)
        found = []
        for low, width in zip(self.low, self.width, strict=True):
            first, last = (min(max(n * step, bounds[0]), bounds[1]) for n in (low, low + width))
            found.append((first, max(first, last)))
        return found


class LargestOne:
    """A vector in units of its largest magnitude, rounded to doubles and then to singles."""

    def row(self, values):
        largest = max(map(abs, values)) or Fraction(1)
        return [rounded(rounded(value / largest, 53), 24) for value in values]


class Sphere:
    """Directions as integers of norm at most 4095: at 2^20 steps of the largest, then shortened."""

    def row(self, values):
        largest = max(map(abs, values)) or Fraction(1)
        wide = [round(rounded(value / largest, 53) * (1 << 20)) for value in values]
        norm = math.sqrt(sum(w * w for w in wide))
        return [int(w * 4095 / norm) if norm else 0 for w in wide]


# The public stream


class Public:
    """SHAKE-256 of ``dpindex/1|purpose|seed|block``, blocks of 1 MiB, little-endian words."""

    def __init__(self, seed, purpose):
        self._label = f"dpindex/1|{purpose}|{seed}|"
        self._at = 0

    def _bytes(self, count):
        if not count:
            return b""
        first = self._at >> 20
        last = (self._at + count - 1) >> 20
        start = self._at - (first << 20)
        self._at += count
        joined = b"".join(
            hashlib.shake_256(f"{self._label}{block}".encode()).digest(
                1 << 20 if block < last else self._at - (last << 20)
            )
            for block in range(first, last + 1)
        )
        return joined[start : start + count]

    def words(self, bits, count):
        size = bits // 8
        data = self._bytes(size * count)
        return [int.from_bytes(data[i : i + size], "little") for i in range(0, len(data), size)]

    def signs(self, count):
        """One bit each, the lowest first; 1 stands for −1."""
        data = self._bytes(-(-count // 8))
        return [1 - 2 * (data[i // 8] >> i % 8 & 1) for i in range(count)]

    def permutation(self, count):
        """The order of so many 64-bit keys."""
        keys = self.words(64, count)
        return sorted(range(count), key=lambda i: (keys[i], i))

    def normals(self, count, bits):
        """``round(2^bits·N(0, 1))``: the lowest bit of a word is the sign, the rest the size.

        The size is the number of n ≥ 1 with ``u < 2^63·P(size ≥ n)``, nearest integers.
        """
        sizes = rounded_normal(float(1 << bits), 64)
        entries = []
        for word in self.words(64, count):
            size = sizes.above(word >> 1)
            entries.append(-size if word & 1 else size)
        return entries

    def places(self, total, s):
        """Places that are chosen with chance 1/s each, by geometric jumps.

        The jump is above n when a 64-bit word is at least ``2^64·(1 − (1 − 1/s)^n)``; above 4s it
        is a step of 4s that chooses nothing. Words are read in batches: 64, and one for every s
        places that are left.
        """
        left = 1 << 128
        limits = []
        for _ in range(4 * s):
            left -= left // s
            limits.append(min((1 << 64) - 1, (1 << 64) - (left >> 64)))
        at = -1
        chosen = []
        while at < total:
            for word in self.words(64, 64 + (total - at) // s):
                jump = bisect_right(limits, word)
                at += min(jump + 1, 4 * s)
                if jump < 4 * s:
                    chosen.append(at)
        return [place for place in chosen if place < total]


# Projections: the realised integer matrix W, dim × k, and its public properties


class Map:
    """A realised projection, what it can sum, and the numbers that turn it into data units.

    ``largest_sum`` bounds ``Σ_i |w_ij|``, on the way to a coordinate too; ``rms2`` is the mean
    square of a coordinate of a unit vector; √scale2 makes inner products unbiased.
    """

    grid_bits = 12
    windows = None

    def __init__(self, matrix, largest_sum, rms2, scale2):
        self.matrix = matrix
        self.k = len(matrix[0])
        columns = list(zip(*matrix, strict=True))
        summed = max(sum(map(abs, column)) for column in columns)
        self.largest_sum = max(1, summed) if largest_sum is None else largest_sum
        self.rms2 = rms2
        self.scale2 = scale2
        # Sensitivities to one attribute (Li & Li 2023, Eqs. 12 and 13), of the realised map.
        self.count = max(1, max(sum(map(bool, row)) for row in matrix))
        self.l1 = max(1, max(sum(map(abs, row)) for row in matrix))
        self.l2_squared = max(1, max(sum(w * w for w in row) for row in matrix))
        self.largest = [max(1, max(map(abs, column))) for column in columns]

    def apply(self, x):
        sums = [0] * self.k
        for value, row in zip(x, self.matrix, strict=True):
            if value:
                sums = [total + value * w for total, w in zip(sums, row, strict=True)]
        return sums


def identity(spec):
    dim = spec["dim"]
    matrix = [[int(i == j) for j in range(dim)] for i in range(dim)]
    return Map(matrix, 1, Fraction(1, dim), Fraction(1))


def table_of(entries, k):
    return [list(entries[start : start + k]) for start in range(0, len(entries), k)]


def rademacher(spec):
    """Independent fair signs (Li & Li 2023, Alg. 3)."""
    dim = spec["dim"]
    k = spec["k"]
    entries = Public(spec["seed"], f"rademacher/{dim}/{k}").signs(dim * k)
    return Map(table_of(entries, k), None, Fraction(1), Fraction(1, k))


def gaussian(spec, bits=4):
    """Normal entries rounded to 2^-bits (Li & Li 2023, Alg. 1); ``E w² = 4^bits + 1/12``."""
    dim = spec["dim"]
    k = spec["k"]
    entries = Public(spec["seed"], f"gaussian/{bits}/{dim}/{k}").normals(dim * k, bits)
    square = Fraction(4.0**bits + 1 / 12)
    return Map(table_of(entries, k), None, square, 1 / (k * square))


def uniform(spec):
    """Odd integers from −63 to 63 (Li & Li 2023, Sec. 3.4)."""
    dim = spec["dim"]
    k = spec["k"]
    words = Public(spec["seed"], f"uniform/{dim}/{k}").words(8, dim * k)
    square = Fraction(64 * 64 - 1, 3)
    return Map(
        table_of([2 * (w & 63) - 63 for w in words], k),
        None,
        square,
        1 / (k * square),
    )


def very_sparse(spec):
    """±1 with chance 1/2s each, else 0 (Li, Hastie & Church 2006; Li & Li 2023, Eq. 18)."""
    dim = spec["dim"]
    k = spec["k"]
    s = spec["sparsity"]
    stream = Public(spec["seed"], f"very-sparse/{dim}/{k}/{s}")
    places = stream.places(dim * k, s)
    entries = [0] * (dim * k)
    for place, sign in zip(places, stream.signs(len(places)), strict=True):
        entries[place] = sign
    return Map(table_of(entries, k), None, Fraction(1, s), Fraction(s, k))


def sparse_jl(spec):
    """One ±1 in each of s blocks (Kane & Nelson 2014): 31 bits for the place, one for the sign."""
    dim = spec["dim"]
    k = spec["k"]
    s = spec["sparsity"]
    matrix = [[0] * k for _ in range(dim)]
    for block in range(s):
        stream = Public(spec["seed"], f"sparse-jl/{dim}/{k}/{s}/{block}")
        for row, word in zip(matrix, stream.words(32, dim), strict=True):
            row[block * (k // s) + ((word >> 1) * (k // s) >> 31)] = 1 - 2 * (word & 1)
    return Map(matrix, None, Fraction(s, k), Fraction(1, s))


def fast_jl(spec):
    """``P·H·D`` (Ailon & Chazelle 2009): signs, Walsh–Hadamard, normal entries with chance 1/s."""
    dim = spec["dim"]
    k = spec["k"]
    padded = 1 << (dim - 1).bit_length()
    s = max(1, round(padded / max(1.0, math.log(padded)) ** 2))
    stream = Public(spec["seed"], f"fast-jl/4/{dim}/{k}")
    signs = stream.signs(dim)
    places = stream.places(k * padded, s)
    sparse = [[0] * padded for _ in range(k)]
    for place, entry in zip(places, stream.normals(len(places), 4), strict=True):
        sparse[place // padded][place % padded] = entry
    matrix = [
        [
            signs[i] * sum(p * (-1) ** (i & place).bit_count() for place, p in enumerate(row) if p)
            for row in sparse
        ]
        for i in range(dim)
    ]
    square = Fraction(padded, s) * Fraction(256 + 1 / 12)
    largest_sum = max(1, max(sum(map(abs, row)) for row in sparse)) * padded
    return Map(matrix, largest_sum, square, 1 / (k * square))


def oporp(spec):
    """Padded attributes permuted into bins of fixed length, with signs (Li & Li 2023, Alg. 4)."""
    dim = spec["dim"]
    repetitions = spec["repetitions"]
    bins = spec["k"] // repetitions
    length = -(-dim // bins)
    matrix = [[0] * spec["k"] for _ in range(dim)]
    for repetition in range(repetitions):
        stream = Public(spec["seed"], f"oporp/{dim}/{bins}/{repetition}")
        order = stream.permutation(bins * length)
        signs = stream.signs(dim)
        for place, attribute in enumerate(order):
            if attribute < dim:
                matrix[attribute][repetition * bins + place // length] = signs[attribute]
    return Map(matrix, length, Fraction(1, bins), Fraction(1, repetitions))


def rotation(spec):
    """k places of ``H·D₂·H·D₁`` on vectors padded to a power of two; D are random signs.

    The entries are integers before a public factor, ``1/√padded``. Only where that is a power of
    two are the floats that ship the real numbers, for few attributes of few bits.
    """
    dim = spec["dim"]
    k = spec["k"]
    padded = 1 << (max(dim, k) - 1).bit_length()
    assert math.isqrt(padded) ** 2 == padded, "the oracle rotates in 4^n places only"
    stream = Public(spec["seed"], f"rotation/{dim}/{k}")
    first = stream.signs(padded)
    second = stream.signs(padded)
    places = sorted(stream.permutation(padded)[:k])
    # Of place i in place j: Σ_m D₂(m)·(−1)^(i·m + m·j), a function of the bits that differ.
    apart = [
        sum(sign * (-1) ** (d & m).bit_count() for m, sign in enumerate(second))
        for d in range(padded)
    ]
    matrix = [[first[i] * apart[i ^ j] for j in places] for i in range(dim)]
    return Map(matrix, None, Fraction(1), Fraction(1, k))


def codeword_map(codewords):
    """Inner products with the codewords on the integer sphere."""
    rows = [Sphere().row([Fraction(value) for value in word]) for word in codewords]
    return Map(
        [list(column) for column in zip(*rows, strict=True)],
        None,
        Fraction(1),
        Fraction(1),
    )


def softmax_map(codewords, ball):
    """Weights of scores: codewords in 31 levels for a ball, else 1 above the public median.

    The median of an even number is the mean of the two in the middle, in singles. A score is summed
    with an offset as large as itself, and the difference of two is taken.
    """
    exact = [[Fraction(value) for value in word] for word in codewords]
    if ball:
        wide = [Sphere().row(word) for word in exact]
        top = max(abs(value) for row in wide for value in row)
        rows = [[round(Fraction(31 * value, top)) for value in row] for row in wide]
    else:
        middles = []
        for column in zip(*exact, strict=True):
            ordered = sorted(column)
            half = len(column) // 2
            middle = (ordered[half] + ordered[-half - 1]) / 2
            middles.append(rounded(middle, 24))
        rows = [[int(v > m) for v, m in zip(word, middles, strict=True)] for word in exact]
    matrix = [list(column) for column in zip(*rows, strict=True)]
    summed = max(sum(map(abs, row)) for row in rows)
    return Map(matrix, 4 * max(1, summed), Fraction(1), Fraction(1))


class Designed(Map):
    """The map of a design, read from its bytes: whole numbers, and a public centre.

    The container is a frame of 52 bytes, a header in JSON, and the arrays one after the other.
    """

    grid_bits = 8

    def __init__(self, spec, data):
        if hashlib.sha256(data).hexdigest() != spec["design"]["sha256"]:
            raise DisagreementError("this is not the design that the spec names")
        size = struct.unpack_from("<4sHHIQ32s", data)[3]
        at = 52 + size
        arrays = {}
        header = json.loads(data[52:at])
        facts = header["facts"]
        for name, kind, shape in header["arrays"]:
            code = {"<i8": "q", "<i4": "i", "<i2": "h", "<f4": "f", "<f8": "d"}[kind]
            count = math.prod(shape)
            arrays[name] = struct.unpack_from(f"<{count}{code}", data, at)
            at += struct.calcsize(f"<{count}{code}")
        used = arrays["attributes"]
        k = spec["k"]
        matrix = [[0] * k for _ in range(spec["dim"])]
        for i, attribute in enumerate(used):
            matrix[attribute] = [arrays["entries"][j * len(used) + i] for j in range(k)]
        power = spec["design"]["norm"]
        if max(sum(abs(w) ** power for w in row) for row in matrix) > 256**power:
            raise DisagreementError("a column of the design is too heavy")
        mean_square = Fraction(sum(w * w for row in matrix for w in row), spec["dim"] * k)
        super().__init__(matrix, None, mean_square, Fraction(1, 1 << 16))
        self.centre = dict(zip(used, arrays["centre"], strict=True))
        self.largest_sum *= 2  # a vector and the centre
        if arrays["width"]:
            low, width = ([0] * spec["dim"] for _ in range(2))
            for i, attribute in enumerate(used):
                low[attribute] = arrays["low"][i]
                width[attribute] = arrays["width"][i]
            self.windows = Windows(low, width, facts["beta"])

    def offset(self, spec, grid):
        """The centre, brought within the bounds and the windows, in whole steps, projected."""
        low, high = spec["bounds"]
        inside = [min(max(self.centre.get(i, 0.0), low), high) for i in range(spec["dim"])]
        return self.apply(grid.row([Fraction(value * spec["scale"]) for value in inside]))


def by_entries(spec):
    """The entries that the spec names (Li & Li 2023, Sec. 3.4)."""
    maps = {"rademacher": rademacher, "uniform": uniform, "very-sparse": very_sparse}
    return maps.get(spec["entries"], gaussian)(spec)


def by_entries_fine(spec):
    """The same with normal entries of twelve bits."""
    return gaussian(spec, 12) if spec["entries"] == "gaussian" else by_entries(spec)


def semidefinite(matrix):
    """Whether a symmetric matrix has no negative eigenvalue: elimination in exact arithmetic."""
    rest = [list(row) for row in matrix]
    for j, pivot in enumerate(rest):
        if pivot[j] < 0 or (pivot[j] == 0 and any(pivot[j:])):
            return False
        for row in rest[j + 1 :]:
            share = row[j] / pivot[j] if pivot[j] else Fraction(0)
            for column in range(j, len(row)):
                row[column] -= share * pivot[column]
    return True


def certify_norm(matrix, norm):
    """``norm``, if it is ‖W‖ or above it by less than 1e-8 (exactly: norm²·I − Gram)."""
    columns = list(zip(*matrix, strict=True))
    narrow = columns if len(columns) <= len(matrix) else matrix
    gram = [[sum(a * b for a, b in zip(x, y, strict=True)) for y in narrow] for x in narrow]

    def bounded_by(bound):
        square = bound * bound
        return semidefinite(
            [[square * (i == j) - g for j, g in enumerate(row)] for i, row in enumerate(gram)]
        )

    if not bounded_by(Fraction(norm)) or bounded_by(Fraction(norm) * (1 - Fraction(1, 10**8))):
        raise DisagreementError(f"{norm!r} is not the operator norm of the map, rounded up")
    return norm


# Laws of integers, given by the ends of their cells: P(value ≤ v) = end(v) / 2^bits


class Table:
    """Masses of the values ``first, first + 1, …``; with ``tails`` the outermost mean "beyond"."""

    def __init__(self, masses, first, bits, tails=False):
        self._ends = list(accumulate(masses))
        if self._ends[-1] != 1 << bits or min(masses) < 0:
            raise ValueError("masses must add up")
        self.bits = bits
        self.first = first
        self.last = first + len(masses) - 1
        self.tails = tails
        self.period = len(masses) // 2 - 1

    def value(self, number):
        return self.first + bisect_right(self._ends, number)

    def end(self, value):
        return self._ends[value - self.first]


class RoundedNormal:
    """``round(N(0, σ²))``: ``P(value ≥ z)``, z ≥ 1, is the nearest multiple of 2^-bits; mirrored.

    Boundaries are computed when they are asked for: a draw needs a few of thousands.
    """

    tails = False

    def __init__(self, sigma, bits):
        self.sigma = sigma
        self.bits = bits
        self._known = {}

    def beyond(self, z):
        """``2^bits·P(N(0, σ²) > z − ½)`` for z ≥ 1, to the nearest integer."""
        if z not in self._known:
            with MP.workprec(self.bits + 128):
                tail = MP.erfc((z - MP.mpf(0.5)) / (MP.mpf(self.sigma) * ROOT_2)) / 2
                self._known[z] = int(MP.nint(MP.ldexp(tail, self.bits)))
        return self._known[z]

    def above(self, number):
        """How many z ≥ 1 have a tail above the number."""
        chance = (2 * number + 1) / (2 << self.bits)
        guess = -NormalDist().inv_cdf(chance) if 2 * chance < 1 else 0.0
        z = max(0, round(self.sigma * guess))
        while self.beyond(z + 1) > number:
            z += 1
        while z and self.beyond(z) <= number:
            z -= 1
        return z

    def value(self, number):
        below = self.above(number)
        return -below if below else self.above((1 << self.bits) - 1 - number)

    def end(self, value):
        return self.beyond(-value) if value < 0 else (1 << self.bits) - self.beyond(value + 1)


@cache
def rounded_normal(sigma, bits):
    """One for all that draw from it: its boundaries are computed once."""
    return RoundedNormal(sigma, bits)


def times(ratio):
    """A function that multiplies a whole mass by a ratio, and rounds up.

    In integers: the ratio is rounded up at 2^-400, which changes no product of a mass below 2^64.
    """
    factor = int(MP.ceil(MP.ldexp(ratio, 400)))
    return lambda mass: -(-mass * factor >> 400)


def falling_masses(first, ratio, count):
    """So many whole masses, each the one before times the ratio, rounded up."""
    lower = times(ratio)
    masses = [first]
    for _ in range(count - 1):
        masses.append(lower(masses[-1]))
    return masses


def geometric(drop, width, inner):
    """Masses e^−drop·level on either side of −½: staircase (Geng & Viswanath 2014) and Laplace.

    Level 0 has ``inner`` cells a side, each further level ``width``. From the level-0 mass each
    level's mass is e^−drop times the one above, rounded up. The table ends where 2^-20 is left;
    there it starts again, so what is left over must not fall short of the level that it replaces:
    the level-0 mass is lowered by what is missing over what each unit of it brings, until it does
    not.
    """
    ratio = MP.exp(-drop)
    half = 1 << 63
    start = int(MP.floor(half * (1 - ratio) / (inner + (width - inner) * ratio)))
    levels = max(1, int(MP.ceil(20 * MP.log(2) / drop)))
    cells = [inner, *[width] * (levels - 1), width - inner]
    lowered = 1
    while True:
        masses = falling_masses(start - lowered, ratio, levels + 1)
        tail = half - sum(n * mass for n, mass in zip(cells, masses, strict=True))
        missing = Fraction(masses[-1] * half - tail * masses[0], half - tail)
        if missing <= 0:
            break
        lowered += math.ceil(missing)
    side = [mass for n, mass in zip(cells, masses, strict=True) for _ in range(n)]
    return Table(
        [tail, *reversed(side), *side, tail],
        -len(side) - 1,
        64,
        tails=True,
    )


def falling(drop, count):
    """The low digit of a geometric law: each mass e^−drop times the one before, rounded up.

    The first is lowered by 1, 2, 4, … until all fit; the last gets what is left.
    """
    ratio = MP.exp(-drop)
    start = int(MP.floor(MP.ldexp(1 - ratio, 64) / (1 - ratio**count)))
    lowered = 1
    while True:
        masses = falling_masses(start - lowered, ratio, count)
        if sum(masses) <= 1 << 64:
            masses[-1] += (1 << 64) - sum(masses)
            return Table(masses, 0, 64)
        lowered *= 2


def discrete_gaussian(sigma, bits):
    """``P(c) ∝ e^{−c²/2σ²}``, each mass but the middle one the nearest multiple of 2^-bits."""
    reach = math.ceil(sigma * math.sqrt(1.5 * bits)) + 1
    # Each weight is the one before times a ratio that falls, in units of 2^-420: what is rounded
    # stays below 2^-380.
    ratio = int(MP.ldexp(MP.exp(-1 / (2 * MP.mpf(sigma) ** 2)), MP.prec))
    fall = ratio**2 >> MP.prec
    weights = [ratio]
    for _ in range(reach - 1):
        ratio = ratio * fall >> MP.prec
        weights.append(weights[-1] * ratio >> MP.prec)
    total = (1 << MP.prec) + 2 * sum(weights)
    masses = [((weight << bits + 1) + total) // (2 * total) for weight in weights]
    side = [mass for mass in masses if mass]
    middle = (1 << bits) - 2 * sum(side)
    return Table([*reversed(side), middle, *side], -len(side), bits)


# Draws


def draw_cells(law, cell_bits, count, words):
    """Values of a law times 2^cell_bits, each with a uniform offset inside its cell.

    A draw is a uniform number of ``bits`` bits: sixteen from a 32-bit word, whose lowest bits are
    the offset; 48 more, the upper ones of a 64-bit word, where those sixteen leave the value open
    or may mean a tail; the rest where a boundary begins with the same 64 bits. In a tail the sign
    stays, and the magnitude (the law is symmetric about −½) is one period plus a new draw's.
    """
    shift = law.bits - 16

    def some_boundary(source, i):
        number = source.getrandbits(law.bits) >> source.choice([0, 0, 4, 16, 40, law.bits - 2])
        if source.randrange(2):
            number = (1 << law.bits) - 1 - number
        inside = min(max(law.value(number), lowest), highest)
        return (law.end(inside) >> shift) << 16

    lowest = law.value(0)
    highest = law.value((1 << law.bits) - 1) - 1
    first = words.take(32, count, some_boundary)
    offsets = [word & ((1 << cell_bits) - 1) for word in first]
    draws = [0] * count
    unclear = []
    for i, word in enumerate(first):
        number = word >> 16 << shift
        low = law.value(number)
        high = law.value(number + (1 << shift) - 1)
        draws[i] = (low << cell_bits) + offsets[i]
        if low != high or (law.tails and low in (law.first, law.last)):
            unclear.append((i, number, low, high))
    words.events["refined"] += len(unclear)

    def boundary_inside(source, j):
        _, number, low, high = unclear[j]
        if low == high:
            return 0
        value = source.choice([low, high - 1, source.randrange(low, high)])
        return (law.end(value) - number >> shift - 48) << 16

    tails = {}
    rest = law.bits - 64
    numbers = [
        number | word >> 16 << rest
        for (_, number, _, _), word in zip(
            unclear, words.take(64, len(unclear), boundary_inside), strict=True
        )
    ]
    for (i, *_), number in zip(unclear, numbers, strict=True):
        last = number + (1 << rest) - 1
        tied = law.value(last)
        found = number
        if rest and law.value(max(number - 1, 0)) < tied:
            words.events["tied"] += 1
            found += words.number(rest // 8, lambda s, _, v=tied, n=number: law.end(v - 1) - n)
        value = law.value(found)
        draws[i] = (value << cell_bits) + offsets[i]
        if law.tails and value in (law.first, law.last):
            tails.setdefault(value, []).append(i)
    for value in sorted(tails):
        words.events["tail"] += len(tails[value])
        again = draw_cells(law, cell_bits, len(tails[value]), words)
        for i, new in zip(tails[value], again, strict=True):
            magnitude = (-1 - new if new < 0 else new) + (law.period << cell_bits)
            draws[i] = magnitude if value > 0 else -1 - magnitude
    return draws


def draw_flips(thresholds, words):
    """True where a uniform 64-bit number lies below its threshold; 48 bits are read when 16 tie."""
    tops = words.take(16, len(thresholds), lambda _, i: thresholds[i] >> 48)
    tied = [i for i, top in enumerate(tops) if top == thresholds[i] >> 48]
    low = (1 << 48) - 1
    rest = words.take(64, len(tied), lambda _, j: (thresholds[tied[j]] & low) << 16)
    words.events["flip tied"] += len(tied)
    numbers = [top << 48 for top in tops]
    for i, word in zip(tied, rest, strict=True):
        numbers[i] |= word >> 16
    return [number < limit for number, limit in zip(numbers, thresholds, strict=True)]


def draw_below(limits, words):
    """Uniform integers below limits: the high half of word·limit, or another word (Lemire 2019)."""

    def first_word(source, i):
        """Of those that lead to one outcome; word 0 is refused unless the limit divides 2^32."""
        return (source.randrange(limits[i] + 1) << 32) // limits[i]

    drawn = [0] * len(limits)
    unfair = range(len(limits))
    while unfair:
        asked = list(unfair)
        read = words.take(32, len(asked), lambda s, j, asked=asked: first_word(s, asked[j]))
        products = [word * limits[i] for i, word in zip(asked, read, strict=True)]
        unfair = []
        for i, product in zip(asked, products, strict=True):
            drawn[i] = product >> 32
            if product & 0xFFFFFFFF < (1 << 32) % limits[i]:
                unfair.append(i)
        words.events["refused"] += len(unfair)
    return drawn


# Calibration of Gaussian noise; the deviation is a public double, rounded up by 1e-9


def safe(delta):
    """Delta less the share 2^-30 that pays for the finite precision of tables."""
    return delta * (1 - 2.0**-30)


@cache
def optimal(epsilon, delta):
    """``σ·(1 + 1e-9)``, σ the least of 32 bits with ``Φ(1/2σ − εσ) − e^ε·Φ(−1/2σ − εσ) ≤ δ``.

    Balle & Wang 2018, Thm 8.
    """

    def enough(s):
        half = MP.mpf(0.5) / s
        middle = MP.mpf(epsilon) * s
        spent = MP.ncdf(half - middle) - MP.exp(epsilon) * MP.ncdf(-half - middle)
        return bool(spent <= safe(delta))

    sigma = 2.0**-20
    while not enough(2 * sigma):
        sigma *= 2
    step = sigma
    for _ in range(31):
        step /= 2
        if not enough(sigma + step):
            sigma += step
    return (sigma + step) * (1 + 1e-9)


def kenthapadi(epsilon, delta):
    """``√(2(log(1/2δ) + ε))/ε`` (Kenthapadi et al. 2013, Lemma 1)."""
    return math.sqrt(2 * (math.log(1 / (2 * safe(delta))) + epsilon)) / epsilon * (1 + 1e-9)


def chi(k, surprise):
    """Bound on the norm of k normals (Laurent & Massart 2000, Lemma 1)."""
    return math.sqrt(k + 2 * math.sqrt(k * surprise) + 2 * surprise)


def table_bits(epsilon, delta, k):
    """Bits of a table, a multiple of 64, such that k coordinates cost less than 2^-30 of delta.

    Of this release, or of all that it may be added up with: up to epsilon = 40 at 1e-15.
    """
    exponent = 1.4427 * max(epsilon, 40.0) + math.log2(1 / min(delta, 1e-15))
    return 64 * math.ceil((exponent + math.log2(k) + 54) / 64)


# Calibration of flips: chances times 2^64, rounded up


def response(epsilon, signs=1):
    """``1/(1 + e^{ε/N})`` (Warner 1965)."""
    return int(MP.ceil(MP.ldexp(1, 64) / (1 + MP.exp(MP.mpf(epsilon) / signs))))


@cache
def chain(epsilon, smooth):
    """Thresholds of levels 1, 2, …, each at least e^−ε times the one before, until they stay put.

    Geometric (Ghosh, Roughgarden & Sundararajan 2009), or no less than ``1/(1 + e^{Lε})``
    (Li & Li 2023, Alg. 7), of which ⌈46/ε⌉ + 1 are looked at; at most 2^16 levels.
    """
    lower = times(MP.exp(-MP.mpf(epsilon)))
    found = [response(epsilon)]
    while len(found) < 1 << 16:
        level = len(found) + 1
        least = lower(found[-1])
        if least == found[-1]:
            break
        if smooth and level <= math.ceil(46 / epsilon) + 1:
            least = max(least, response(MP.mpf(epsilon) * level))
        found.append(least)
    return found


def share(epsilon, count):
    """ε/count as a double, rounded down where count of them would exceed ε."""
    part = epsilon / count
    return math.nextafter(part, 0) if Fraction(part) * count > Fraction(epsilon) else part


# How many signs can change: N₊ of Li & Li 2023, Prop. 4.5


def phi(t):
    return math.erfc(-t / math.sqrt(2)) / 2


def integral(f, low, high, pieces=600):
    """Simpson's rule."""
    h = (high - low) / pieces
    inner = sum((4 if i % 2 else 2) * f(low + i * h) for i in range(1, pieces))
    return (f(low) + inner + f(high)) * h / 3


def change_chance(p, r):
    """``P₊ = ∫ 2p(2Φ(t)−1)^{p−1}(2Φ(rt)−1)φ(t) dt``, rounded up by 1e-9."""

    def density(t):
        bell = math.exp(-t * t / 2) / math.sqrt(2 * math.pi)
        return 2 * p * math.erf(t / math.sqrt(2)) ** (p - 1) * math.erf(r * t / math.sqrt(2)) * bell

    middle = math.sqrt(2 * math.log(2 * p))
    ends = (0.0, middle, middle + 2, middle + 12)
    total = sum(integral(density, *pair) for pair in pairwise(ends))
    return min(1.0, total + 1e-9)


def changes(dim, k, beta, min_norm, delta):
    """The least N with ``P(Binomial(k, P₊) > N) ≤ δ``, for entries rounded to 2^-12 on the grid.

    Rounding to the grid shortens the norm by half a step a coordinate, and vectors may fall short
    of ``min_norm`` by as much. Rounding entries moves a projection by (r + min(√p, 8))·2^-13, to be
    divided by the largest entry, which is at least some μ = 2^-10, …, 2^2.5: the best is taken.
    """
    step = beta / ((1 << 12) * (1 - 2.0**-16))
    ratio = step * (1 << 12) / (min_norm - 2.001 * step * math.sqrt(dim) / 2)
    moved = (ratio + min(math.sqrt(dim), 8.0)) * 2.0**-13
    rare = 2 * math.exp(-32.0) + dim * 2.0**-48
    bounds = []
    for quarter in range(-40, 11):
        least = 2.0 ** (quarter / 4)
        bounds.append(change_chance(dim, ratio + moved / least) + (2 * phi(least) - 1) ** dim)
    chance = MP.mpf(min(1.0, min(bounds) + rare))
    exceeded = MP.mpf(1)
    n = -1
    while exceeded * (1 + MP.mpf(10) ** -9) > delta:
        n += 1
        exceeded -= MP.binomial(k, n) * chance**n * (1 - chance) ** (k - n)
    return max(1, n)


# Laws: from a spec and its map to a function from exact rows and words to released rows


class NumberLaw:
    """``(x + noise) >> cell_bits``, decoded as ``(code + offset)·2^cell_bits`` grid steps."""

    def __init__(
        self,
        digits,
        cell_bits,
        grid_bits,
        *,
        magnitudes=False,
    ):
        self.grid_bits = grid_bits
        self.scale = Fraction(1 << cell_bits)
        self.offset = Fraction(int(magnitudes or digits[0][0].tails), 2)
        self.digits = digits
        self._magnitudes = magnitudes
        self._cell_bits = cell_bits

    def noise(self, count, words):
        """One digit, or a high one and a low one that carries the offset."""
        if len(self.digits) == 1:
            return draw_cells(self.digits[0][0], self._cell_bits, count, words)
        (high_law, shift), (low_law, _) = self.digits
        high = draw_cells(high_law, 0, count, words)
        low = draw_cells(low_law, self._cell_bits, count, words)
        shift += self._cell_bits
        if not self._magnitudes:
            return [(h << shift) + n for h, n in zip(high, low, strict=True)]
        # Digits of a magnitude: −1 − h mirrors h.
        return [
            -1 - ((-1 - h << shift) + n) if h < 0 else (h << shift) + n
            for h, n in zip(high, low, strict=True)
        ]

    def release(self, rows, words):
        noise = iter(self.noise(sum(map(len, rows)), words))
        return [[(x + next(noise)) >> self._cell_bits for x in row] for row in rows]


class Exact:
    """No noise: the baseline of number codes."""

    grid_bits = 12
    scale = Fraction(1)
    offset = Fraction(0)

    def release(self, rows, words):
        return rows


class SquareWave:
    """Within B cells of x with chance ``inside/2^64``, else one of G others (Li et al. 2020)."""

    grid_bits = 12

    def __init__(self, epsilon, low, high, narrow):
        self.low = low
        self.cells = max(1, -(-(high - low) // 32))
        odds = [MP.exp(MP.mpf(epsilon)) * (2 * b + 1) / self.cells for b in range(self.cells + 1)]
        # Rounded down: p/q ≤ e^ε for each of the 2B + 1 points of the window.
        self._inside = [min(int(MP.floor(MP.ldexp(o / (1 + o), 64))), (1 << 64) - 1) for o in odds]
        places = [Fraction(i * (high - low), 8 * 32) for i in range(9)]

        def variance(half):
            """Of the decoded value, in squared cells, over nine places of the interval."""
            slope = self._moments(half, Fraction(1))[0] - self._moments(half, Fraction(0))[0]
            mean = sum(self._moments(half, place)[1] for place in places) / 9
            return mean / slope**2 + Fraction(1, 6) / slope

        best = min(range(self.cells + 1), key=variance)
        self.half = round(Fraction(best, 2)) if narrow else best
        at_zero, at_one = (self._moments(self.half, Fraction(c))[0] for c in (0, 1))
        self.scale = 32 / (at_one - at_zero)
        self.offset = low / self.scale - at_zero

    def _moments(self, half, x):
        """Mean and variance of y given x in cells, which need not be a whole number."""
        inside = self._inside[half]
        outside = (1 << 64) - inside
        window = 2 * half + 1
        top = self.cells + 2 * half
        # Numerators over the denominators d, 3d², 1 and 1: fractions would take five times as long.
        d = x.denominator
        middle = x.numerator + half * d
        inner = (middle, 3 * middle**2 + half * (half + 1) * d**2)
        all_ = (top * (top + 1) // 2 * d, top * (top + 1) * (2 * top + 1) // 2 * d**2)
        mean, square = (
            inside * self.cells * i + outside * (a - window * i)
            for i, a in zip(inner, all_, strict=True)
        )
        unit = self.cells << 64
        return Fraction(mean, unit * d), Fraction(square * unit - 3 * mean**2, 3 * (unit * d) ** 2)

    def release(self, rows, words):
        flat = [x for row in rows for x in row]
        offsets = words.take(8, len(flat), lambda source, _: 32 * source.randrange(8))
        cells = [
            min(max((x - self.low + (offset & 31)) >> 5, 0), self.cells)
            for x, offset in zip(flat, offsets, strict=True)
        ]
        window = 2 * self.half + 1
        near = draw_flips([self._inside[self.half]] * len(flat), words)
        drawn = draw_below([window if n else self.cells for n in near], words)
        # The window is the points x … x + 2B; others are counted without it.
        codes = iter(
            cell + d if n else (d if d < cell else d + window)
            for cell, n, d in zip(cells, near, drawn, strict=True)
        )
        return [[next(codes) for _ in row] for row in rows]


class Flips:
    """Signs flipped by ``L = max(1, ⌈|x_j|/(β·max_i|w_ij|)⌉)``; an exact zero is a fair coin."""

    def __init__(self, thresholds, weights, grid_bits=12):
        self.thresholds = thresholds
        self._weights = weights
        self.grid_bits = grid_bits

    def _threshold(self, x, weight):
        level = -(-abs(x) // (weight << self.grid_bits))
        return self.thresholds[min(level, len(self.thresholds)) - 1] if x else 1 << 63

    def release(self, rows, words):
        limits = [
            self._threshold(x, w) for row in rows for x, w in zip(row, self._weights, strict=True)
        ]
        flips = iter(draw_flips(limits, words))
        return [[int((x > 0) != next(flips)) for x in row] for row in rows]


class IndividualFlips:
    """Flips in ``A = {j: |x_j| ≤ β}`` alone, which share ε (Li & Li 2023, Alg. 11): iDP."""

    grid_bits = 12

    def __init__(self, epsilon, changes):
        self.thresholds = [response(epsilon, size + 1) for size in range(changes)]

    def release(self, rows, words):
        limits = []
        for row in rows:
            size = sum(abs(x) <= 4096 for x in row)
            inside = self.thresholds[min(size, len(self.thresholds)) - 1] if size else 0
            limits += [1 << 63 if x == 0 else inside if abs(x) <= 4096 else 0 for x in row]
        flips = iter(draw_flips(limits, words))
        return [[int((x > 0) != next(flips)) for x in row] for row in rows]


class IndividualGaussian:
    """The sign of x + noise in A alone (Li & Li 2023, Alg. 9): iDP.

    Coordinates of A are multiplied by ``⌊S/(σ√N_A)⌋``, divided by a beta with a uniform dither, and
    get noise of the one deviation S; what comes out as zero is a fair coin.
    """

    grid_bits = 12

    def __init__(self, sigma, bits, changes):
        self._sigma = sigma
        self._changes = changes
        self._deviation = max(1024.0, sigma * math.sqrt(changes))
        self.table = rounded_normal(self._deviation, bits)

    def release(self, rows, words):
        moved = []
        places = []
        for i, row in enumerate(rows):
            inside = [j for j, x in enumerate(row) if abs(x) <= 4096]
            size = min(max(len(inside), 1), self._changes)
            factor = math.floor(self._deviation / (self._sigma * math.sqrt(size)))
            moved += [row[j] * factor for j in inside]
            places += [(i, j) for j in inside]
        dithers = words.take(16, len(moved), lambda source, _: 4096 * source.randrange(16))
        noise = draw_cells(self.table, 0, len(moved), words)
        coins = words.take(8, len(moved))
        codes = [[int(x > 0) for x in row] for row in rows]
        for (i, j), x, dither, n, coin in zip(places, moved, dithers, noise, coins, strict=True):
            noisy = (x + (dither & 4095) >> 12) + n
            codes[i][j] = int(noisy > 0) if noisy else coin & 1
        return codes


class Cap:
    """Uniform on the signs v with ``⟨v, x̃⟩`` above a threshold, or on the others.

    x̃ has weights by rank, quantiles of ``|N(0, 1)|`` in 31 levels. ``counts[i][s]`` is the number
    of subsets of the weights from i on that add up to s.
    """

    grid_bits = 0
    grid = LargestOne()

    def __init__(self, k, epsilon):
        with MP.workprec(200):
            quantiles = [MP.erfinv(MP.mpf(2 * (k - i) - 1) / (2 * k)) for i in range(k)]
        self.weights = [int(MP.nint(31 * q / quantiles[0])) for q in quantiles]
        self.k = k
        self.total = sum(self.weights)
        self.counts = [[1]]
        for weight in reversed(self.weights):
            old = self.counts[0]
            pairs = zip([*old, *[0] * weight], [*[0] * weight, *old], strict=True)
            self.counts.insert(0, [a + b for a, b in pairs])
        halfway = (self.total + 1) // 2
        met = [t for t in range(halfway, self.total + 1) if self.counts[0][t]]
        (_, self.inside), self.threshold = max((self._worth(t, epsilon), t) for t in met)
        self._sums = {}

    def _worth(self, threshold, epsilon):
        """``E⟨V, x̃⟩`` of the cap from that sum on, and the chance of its inside, times 2^64."""
        counts = self.counts[0]
        size = sum(counts[threshold:])
        others = (1 << self.k) - size
        odds = MP.exp(MP.mpf(epsilon)) * size
        inside = min((1 << 64) - 1, int(MP.floor(MP.ldexp(odds / (odds + others), 64))))
        if inside * others < ((1 << 64) - inside) * size:
            return Fraction(-1), inside
        moment = sum(n * (2 * s - self.total) for s, n in enumerate(counts) if s >= threshold)
        p = Fraction(inside, 1 << 64)
        return p * moment / size - (1 - p) * moment / others, inside

    def _above(self, i, least):
        """Subsets of the weights from i on that add up to so much."""
        if i not in self._sums:
            self._sums[i] = [*accumulate(reversed(self.counts[i]))][::-1]
        sums = self._sums[i]
        return sums[max(0, least)] if least < len(sums) else 0

    def share(self, i, summed, inside):
        """Completions with the rarer sign, and all: inside it disagrees, outside it agrees."""
        need = self.threshold - summed
        whole = 1 << self.k - 1 - i
        disagree, agree = (self._above(i + 1, need - own) for own in (0, self.weights[i]))
        if inside:
            return disagree, disagree + agree
        return whole - agree, 2 * whole - agree - disagree

    def release(self, rows, words):
        """Words of 16 bits for all, 32 more for those that tie, then 16 by 16 for each."""
        count = len(rows)
        sides = [word < self.inside for word in words.take(64, count, lambda *_: self.inside)]
        steer = _Steering(self, sides, words)
        tops = words.take(16, count * self.k, steer.near)
        sums = [0] * count
        kept = [[False] * self.k for _ in rows]
        for i, weight in enumerate(self.weights):
            shares = [self.share(i, sums[r], sides[r]) for r in range(count)]
            digits = [(few << 48) // either for few, either in shares]
            tied = [r for r in range(count) if tops[i * count + r] == digits[r] >> 32]
            lows = words.take(32, len(tied), lambda _, j, d=digits, t=tied: d[t[j]] & 0xFFFFFFFF)
            words.events["cap tied"] += len(tied)
            rare = [tops[i * count + r] < digits[r] >> 32 for r in range(count)]
            for r, low in zip(tied, lows, strict=True):
                rare[r] = low < digits[r] & 0xFFFFFFFF
                if low == digits[r] & 0xFFFFFFFF:
                    rare[r] = self._settled(*shares[r], words)
            for r in range(count):
                kept[r][i] = rare[r] != sides[r]
                sums[r] += weight * kept[r][i]
        codes = []
        for row, agrees in zip(rows, kept, strict=True):
            order = sorted(range(self.k), key=lambda j, row=row: (-abs(row[j]), j))
            signs = [0] * self.k
            for rank, j in enumerate(order):
                signs[j] = int((row[j] >= 0) == agrees[rank])
            codes.append(signs)
        return codes

    def _settled(self, few, either, words):
        rest = (few << 48) % either
        while rest:
            digit, rest = divmod(rest << 16, either)
            words.events["cap settled"] += 1
            (word,) = words.take(16, 1, lambda *_, digit=digit: digit)
            if word != digit:
                return word < digit
        return False


class _Steering:
    """Walks along with the words chosen, to name critical ones; where words tie, it guesses."""

    def __init__(self, cap, sides, words):
        self._cap = cap
        self._sides = sides
        self._words = words
        self._sums = [0] * len(sides)
        self._tops = [0] * len(sides)

    def near(self, source, place):
        count = len(self._sides)
        chosen = self._words.chosen
        i, r = divmod(place, count)
        if i:
            rare = chosen[place - count] < self._tops[r]
            self._sums[r] += self._cap.weights[i - 1] * (rare != self._sides[r])
        few, either = self._cap.share(i, self._sums[r], self._sides[r])
        self._tops[r] = (few << 16) // either if either else 0
        return self._tops[r] if source.random() < 0.4 else source.getrandbits(16)


class Codebook:
    """One of the w nearest codewords, or by chance a uniform one."""

    grid_bits = 0
    grid = Sphere()

    def __init__(self, size, subset, epsilon):
        self.size = size
        self.subset = subset
        # A near symbol has at most ⌈2^64/w⌉ words, a uniform one ⌊2^64/K⌋ or one more.
        most = -(-(1 << 64) // subset)
        least = (1 << 64) // size
        odds = MP.exp(MP.mpf(epsilon)) * least - (least + ((1 << 64) % size > 0))
        self.uniform = int(MP.ceil(MP.ldexp(most / (most + odds), 64)))

    def release(self, rows, words):
        count = len(rows)

        def uniform(limit):
            """The high half of word·limit."""
            read = words.take(64, count, lambda s, _: -(-(s.randrange(limit + 1) << 64) // limit))
            return [word * limit >> 64 for word in read]

        coins = [word < self.uniform for word in words.take(64, count, lambda *_: self.uniform)]
        chosen = uniform(self.subset)
        other = uniform(self.size)
        codes = []
        for r, row in enumerate(rows):
            order = sorted(range(self.size), key=lambda j, row=row: (-row[j], j))
            codes.append([other[r] if coins[r] else order[chosen[r]]])
        return codes


class Softmax:
    """A symbol c with a weight that falls with ``(max L − L_c)/m``, or a uniform one.

    ``L_c`` is a score and its offset, minus the public mean of the score. A neighbour moves two
    scores apart by at most ``moved``, which a table of a factor ``e^−η`` a step pays for (McSherry
    & Talwar 2007; Durfee & Rogers 2019): of ε, 2^-16 is left for the rounding of the draw.
    """

    grid_bits = 12

    def __init__(self, oracle, codewords, moved):
        spec = oracle.spec
        matrix = oracle.map.matrix
        self.size = len(codewords)
        self.shift = max(0, math.ceil(moved / 4096) - 1).bit_length()
        steps = math.floor(moved)
        if self.shift:
            steps = math.floor(Fraction(steps - 2, 1 << self.shift)) + 2
        loss = Fraction(oracle.epsilon) * (1 - Fraction(1, 1 << 16)) / steps
        factor = int(MP.ceil(MP.ldexp(MP.exp(-quotient(loss)), 64)))
        self.table = [(1 << 32) - 1]
        while len(self.table) < 1 << 19:
            following = -(-self.table[-1] * factor >> 64)
            if following == self.table[-1]:
                break
            self.table.append(following)
        # The mean score of the codewords, as the grid rounds them within the bounds.
        low, high = spec["bounds"]
        windows = oracle.map.windows
        most = oracle.map.largest_sum
        grid = Grid(spec, oracle.beta, self.grid_bits, most, windows)
        summed = [0] * len(matrix)
        for word in codewords:
            inside = [min(max(value / spec["scale"], low), high) for value in word]
            steps = grid.row([Fraction(value * spec["scale"]) for value in inside])
            summed = [t + step for t, step in zip(summed, steps, strict=True)]
        scores = oracle.map.apply(summed)
        self.offsets = [-round(Fraction(score, self.size)) for score in scores]
        self.uniform = 0
        if spec.get("record_epsilon") is not None:
            # γ/K of the words is the least chance, 1 − γ and as many the largest.
            least = (1 << 64) // self.size
            most = -(-(1 << 64) // self.size)
            room = MP.exp(MP.mpf(spec["record_epsilon"])) * least + (1 << 64) - most
            self.uniform = int(MP.ceil(MP.ldexp(1, 128) / room))

    def release(self, rows, words):
        count = len(rows)
        ends = []
        for row in rows:
            scores = [x + b for x, b in zip(row, self.offsets, strict=True)]
            places = [(max(scores) - score) >> self.shift for score in scores]
            ends.append(list(accumulate(self.table[min(d, len(self.table) - 1)] for d in places)))

        def first_word(source, i):
            return -(-(source.choice(ends[i]) << 64) // ends[i][-1])

        coins = words.take(64, count, lambda *_: self.uniform)
        drawn = words.take(64, count, first_word)
        size = self.size
        others = words.take(64, count, lambda s, _: -(-(s.randrange(size + 1) << 64) // size))
        codes = []
        for coin, word, other, end in zip(coins, drawn, others, ends, strict=True):
            chosen = bisect_right(end, word * end[-1] >> 64)
            codes.append([other * size >> 64 if coin < self.uniform else chosen])
        return codes


class ExactSigns:
    """No flips: the baseline of sign codes; an exact zero is a fair coin."""

    grid_bits = 12

    def release(self, rows, words):
        flat = [x for row in rows for x in row]
        # A word is read for every sign, whether it is zero or not.
        coins = words.take(8, len(flat))
        signs = iter(int(x > 0) if x else c & 1 for x, c in zip(flat, coins, strict=True))
        return [[next(signs) for _ in row] for row in rows]


# The table of methods and the whole encoder


class Oracle:
    """The encoder of one spec.

    Parameters
    ----------
    text : str
        The spec as JSON, resolved.
    operator_norm : float, optional
        Of the map, for the methods that hide a whole vector; to be certified.
    codewords : rows of numbers, optional
        Of the codebook that the spec names by its digest.
    design : bytes, optional
        The design that the spec names by its digest.
    """

    def __init__(
        self,
        text,
        operator_norm=None,
        codewords=(),
        design=b"",
    ):
        self.spec = json.loads(text)
        self.fingerprint = hashlib.sha256(text.encode()).digest()[:16]
        if self.spec["method"] not in METHODS:
            raise DisagreementError(f"the oracle does not know {self.spec['method']}: teach it")
        make_map, make_law = METHODS[self.spec["method"]]
        self._norm = operator_norm
        self._check_codebook(codewords)
        self.epsilon = self.spec["epsilon"]
        self.delta = self.spec["delta"]
        adjacency = self.spec["adjacency"]
        low, high = self.spec["bounds"]
        self.beta = adjacency.get("radius", min(adjacency.get("beta", 1.0), high - low))
        self.codewords = codewords
        self.map = make_map(self.spec)
        if self.spec["method"] == "codebook-softmax":
            self.map = softmax_map(codewords, adjacency["kind"] == "l2")
            if self.spec.get("window") is not None:
                terms = (self.spec["window"], self.beta, self.spec["scale"])
                self.map.windows = Windows.of_codewords(codewords, *terms)
        elif codewords:
            self.map = codeword_map(codewords)
        if design:
            self.map = Designed(self.spec, design)
        self.law = make_law(self)
        self.symbols = bool(codewords)
        self.signs = not self.symbols and not hasattr(self.law, "scale")
        self.grid = getattr(self.law, "grid", None) or Grid(
            self.spec, self.beta, self.law.grid_bits, self.map.largest_sum, self.map.windows
        )

    def _check_codebook(self, codewords):
        """Codewords in singles, after their number and length, have the digest of the spec."""
        flat = [value for word in codewords for value in word]
        stated = self.spec.get("codebook")
        if stated is None:
            return
        shape = f"{stated['size']}x{stated['dim']}|".encode()
        digest = hashlib.sha256(shape + struct.pack(f"<{len(flat)}f", *flat)).hexdigest()
        if digest != stated["sha256"]:
            raise DisagreementError("these are not the codewords that the spec names")

    def project(self, rows):
        """Exact projections in grid integers; equal rows are projected once."""
        found = {}
        for row in map(tuple, rows):
            if row not in found:
                found[row] = self.map.apply(self.grid.row(row))
                if isinstance(self.map, Designed):
                    offset = self.map.offset(self.spec, self.grid)
                    found[row] = [y - c for y, c in zip(found[row], offset, strict=True)]
        return [found[row] for row in map(tuple, rows)]

    def codes(self, rows, words):
        """What must be released: numbers, 1 for each sign +1, or a symbol."""
        return self.law.release(self.project(rows), words)

    # Gaussian laws

    def gaussian_cells(self, sigma, delta, cell_bits, bits):
        """``round(N(0, σ²))``, σ in cells; above 1024 as 2^d·discrete Gaussian + rounded Gaussian.

        The fine part has deviation 4·2^d, 2^d next to √σ/2 (Peikert 2010, Thm 3.1).
        """
        precision = table_bits(self.epsilon, delta, self.map.k)
        if sigma <= 1024:
            return NumberLaw(
                [(rounded_normal(sigma, precision), 0)],
                cell_bits,
                bits,
            )
        digit = max(1, round(math.log2(math.sqrt(sigma) / 2)))
        fine = 4.0 * (1 << digit)
        coarse = math.sqrt(sigma**2 - fine**2) / (1 << digit) * (1 + 2.0**-40)
        high = discrete_gaussian(coarse, precision)
        low = rounded_normal(fine, precision)
        return NumberLaw([(high, digit), (low, 0)], cell_bits, bits)

    def gaussian_in_betas(self, sigma, delta):
        """At least 32 cells a deviation and 2^12 (2^8) grid steps a beta; a beta is 2^n cells."""
        cells_bits = max(0, ceil_log2(32 / sigma))
        bits = max(self.map.grid_bits, cells_bits)
        return self.gaussian_cells(
            sigma * (1 << cells_bits),
            delta,
            bits - cells_bits,
            bits,
        )

    def gaussian_in_ball(self, stretch, sigma, delta, moved):
        """For vectors one radius apart, which the map stretches: rounding counts twice.

        On the grid a step a coordinate and the errors of three float operations on either side, in
        the code one cell for each coordinate that moves.
        """
        bits = max(12, ceil_log2(256 * math.sqrt(self.spec["dim"])))
        steps = self.steps_in_ball(bits)
        cells = max(256 * math.sqrt(moved) / stretch, 32 / (sigma * stretch))
        cell_bits = max(0, bits - max(0, ceil_log2(cells)))
        distance = stretch * steps / (1 << cell_bits) + (math.sqrt(moved) if cell_bits else 0)
        return self.gaussian_cells(sigma * distance, delta, cell_bits, bits)

    def steps_in_ball(self, bits):
        """The grid distance of two vectors one radius apart, rounded on either side."""
        reach = max(map(abs, self.spec["bounds"]))
        roundoff = 2.0**-24 if reach <= 32 * self.beta else 2.0**-53
        errors = 2 * 3 * roundoff * reach / (self.beta / ((1 << bits) * (1 - 2.0**-16)))
        return float(1 << bits) + math.sqrt(self.spec["dim"]) * (1 + errors)

    def softmax(self):
        """Scores of an attribute move by its weights, those of a ball by their distances."""
        columns = list(zip(*self.map.matrix, strict=True))
        if self.spec["adjacency"]["kind"] == "l2":
            pairs = combinations(columns, 2)
            apart = max(sum((a - b) ** 2 for a, b in zip(*pair, strict=True)) for pair in pairs)
            distance = math.nextafter(math.sqrt(max(1, apart)), math.inf)
            moved = Fraction(self.steps_in_ball(Softmax.grid_bits)) * Fraction(distance)
        else:
            spread = max(max(row) - min(row) for row in self.map.matrix)
            moved = Fraction(max(1, spread) << Softmax.grid_bits)
        return Softmax(self, self.codewords, moved)

    def optimal(self):
        """Li & Li 2023, Alg. 1, Thm 3.5: the realised Δ₂."""
        sigma = optimal(self.epsilon, self.delta) * math.sqrt(self.map.l2_squared)
        return self.gaussian_in_betas(sigma, self.delta)

    def published(self):
        """Li & Li 2023, Alg. 1, Thm 3.1."""
        sigma = math.sqrt(self.map.l2_squared) * kenthapadi(self.epsilon, self.delta)
        return self.gaussian_in_betas(sigma, self.delta)

    def analytic(self):
        """Li & Li 2023, Thm 3.4: Δ₂ below the bound of Lemma 3.3 with probability 1 − δ/2."""
        bound = chi(self.map.k, math.log(2 * self.spec["dim"] / self.delta))
        sigma = math.sqrt(self.map.rms2) * bound * kenthapadi(self.epsilon, self.delta / 2)
        return self.gaussian_in_betas(sigma, self.delta / 2)

    def ball_optimal(self):
        """Balle & Wang 2018, Thm 8, at the realised operator norm."""
        norm = certify_norm(self.map.matrix, 1.0 if self._norm is None else self._norm)
        sigma = optimal(self.epsilon, self.delta)
        return self.gaussian_in_ball(norm, sigma, self.delta, self.map.k)

    def ball_direct(self):
        """Tu, Thm 1, with the δ/2 of its proof under both roots."""
        stretch = math.sqrt(self.map.rms2) * chi(self.map.k, math.log(2 / self.delta))
        sigma = kenthapadi(self.epsilon, self.delta / 2)
        return self.gaussian_in_ball(stretch, sigma, self.delta / 2, self.map.k)

    def ball_composition(self):
        """Tu, Thm 2: a coordinate by itself, ε₁ the root of ``√(2k log(2/δ))·ε₁ + 2kε₁² = ε``."""
        k = self.map.k
        part = self.delta / (4 * self.map.k)
        root = math.sqrt(2 * k * math.log(2 / self.delta))
        epsilon = 2 * self.epsilon / (math.sqrt(root**2 + 8 * k * self.epsilon) + root)
        column = math.sqrt(self.map.rms2) * math.sqrt(2 * math.log(4 * k / self.delta))
        return self.gaussian_in_ball(column, kenthapadi(epsilon, part), part, 1)

    def raw(self):
        """Li & Li 2023, Thm 3.8."""
        attribute = self.spec["adjacency"]["kind"] == "attribute"
        return self.optimal() if attribute else self.ball_optimal()

    # Pure laws

    def laplace(self):
        """``e^{−ε·a/(NΔ₁)}``, N cells a beta, at least 32 a deviation (Dwork et al. 2006).

        Below a loss of 2^-10 a cell the magnitude is drawn in two digits: the low one falls by that
        loss, the high one by as much more as the low one has fallen from its first to its last.
        """
        cells_bits = max(0, ceil_log2(32 * self.epsilon / (math.sqrt(2) * self.map.l1)))
        drop = MP.mpf(self.epsilon) / (self.map.l1 << cells_bits)
        bits = max(self.map.grid_bits, cells_bits)
        if drop >= MP.mpf(2) ** -10:
            return NumberLaw([(geometric(drop, 1, 1), 0)], bits - cells_bits, bits)
        digit = math.ceil(-math.log2(float(drop)) / 2)
        low = falling(drop, 1 << digit)
        least = low.end((1 << digit) - 1) - low.end((1 << digit) - 2)
        fall = drop + MP.log(MP.mpf(low.end(0)) / least)
        high = geometric(fall * (1 - MP.mpf(2) ** -320), 1, 1)
        return NumberLaw(
            [(high, digit), (low, 0)],
            bits - cells_bits,
            bits,
            magnitudes=True,
        )

    def staircase(self):
        """Geng & Viswanath 2014: level 0 is the share of a beta with the least variance.

        With b = e^−ε it is ``(b − 2b² + 2b⁴ − b⁵)^⅓/(2^⅓(1−b)²) − b/(1−b)``; below ε = 0.05, where
        doubles cancel, ``1/(1+e^{ε/2})``. It takes eight cells (fewer below ε = ½).
        """
        b = MP.exp(-MP.mpf(self.epsilon))
        least = MP.cbrt((b - 2 * b**2 + 2 * b**4 - b**5) / 2) / (1 - b) ** 2 - b / (1 - b)
        if self.epsilon < 0.05:
            least = 1 / (1 + MP.exp(MP.mpf(self.epsilon) / 2))
        inner = min(8.0, max(1.0, 16 * self.epsilon))
        cells_bits = min(14, int(MP.ceil(MP.log(inner / least, 2))))
        cells = 1 << cells_bits
        bits = max(12, cells_bits)
        table = geometric(
            MP.mpf(self.epsilon),
            cells,
            max(1, int(MP.nint(least * cells))),
        )
        return NumberLaw([(table, 0)], bits - cells_bits, bits)

    def square_wave(self, narrow=False):
        step = self.beta / ((1 << 12) * (1 - 2.0**-16))
        low, high = (round(Fraction(bound / step)) for bound in self.spec["bounds"])
        return SquareWave(self.epsilon, low, high, narrow)

    # Flips

    def uniform_flips(self):
        """Li & Li 2023, Algs. 6 and 8: every coordinate that moves has an equal share of ε."""
        return Flips([response(share(self.epsilon, self.map.count))], self.map.largest)

    def flips_by_level(self, smooth):
        return Flips(chain(share(self.epsilon, self.map.count), smooth), self.map.largest)

    def proportional_flips(self):
        """Levels of one unit, each at its share of the units that one attribute moves in all.

        Levels of all of these where it moves one coordinate alone.
        """
        if self.map.count == 1:
            return Flips(
                chain(share(self.epsilon, 1), False),
                self.map.largest,
                self.map.grid_bits,
            )
        chances = chain(share(self.epsilon, self.map.l1), False)
        return Flips(chances, [1] * self.map.k, self.map.grid_bits)

    def flips_of_changes(self):
        """Li & Li 2023, Alg. 6, Thm 4.1: ε shared by the signs that can change."""
        if not self.delta:
            return self.uniform_flips()
        spec = self.spec
        count = changes(
            spec["dim"],
            spec["k"],
            self.beta,
            spec["min_norm"],
            self.delta,
        )
        return Flips([response(self.epsilon, count)], [1] * spec["k"])

    def individual_gaussian(self):
        bits = table_bits(self.epsilon, self.delta, self.map.k)
        return IndividualGaussian(
            optimal(self.epsilon, self.delta),
            bits,
            self.map.count,
        )

    # What is published

    def stored(self, codes):
        """Type and bytes: eight signs a byte, the first lowest; numbers in 1, 2 or 4 bytes.

        A symbol takes two.
        """
        if self.symbols:
            return "<u2", b"".join(symbol.to_bytes(2, "little") for (symbol,) in codes)
        if self.signs:
            rows = [
                sum(bit << j for j, bit in enumerate(row)).to_bytes(-(-len(row) // 8), "little")
                for row in codes
            ]
            return "|u1", b"".join(rows)
        flat = [code for row in codes for code in row]
        bits = max((c if c >= 0 else -1 - c).bit_length() for c in flat) + 1
        size = next(size for size in (1, 2, 4) if bits <= 8 * size)
        kind = "|i1" if size == 1 else f"<i{size}"
        return kind, b"".join(code.to_bytes(size, "little", signed=True) for code in flat)

    def check_container(self, data, codes):
        """Whether bytes are the container of these codes: frame, digest, header and body.

        The two floats of the header, which decode numbers, may be off by 1e-9.
        """
        kind, body = self.stored(codes)
        *frame, header_size, body_size, digest = struct.unpack_from("<4sHHIQ32s", data)
        header = data[52 : 52 + header_size]
        width = -(-self.map.k // 8) if self.signs else self.map.k
        facts = {
            "code_length": self.map.k,
            "fingerprint": self.fingerprint.hex(),
            "format": "signs" if self.signs else "numbers",
        }
        if self.symbols:
            width = 1
            facts |= {"code_length": 1, "format": "symbols", "size": self.map.k}
        stated = json.loads(header)
        if not self.signs and not self.symbols:
            unit = MP.mpf(self.grid.unit_step) * MP.sqrt(quotient(self.map.scale2))
            wanted = {"scale": unit * quotient(self.law.scale), "offset": quotient(self.law.offset)}
            for name, value in wanted.items():
                facts[name] = stated["facts"].get(name)
                least = 1 if name == "offset" else 0
                if not abs(facts[name] - value) <= 1e-9 * max(abs(value), least):
                    raise DisagreementError(f"{name} is {facts[name]!r} and not {float(value)!r}")
        expected = {
            "kind": "codes",
            "facts": facts,
            "arrays": [["stored", kind, [len(codes), width]]],
        }
        found = (*frame, body_size, digest, header, data[52 + header_size :])
        text = json.dumps(expected, sort_keys=True).encode()
        right = (b"DPIX", 2, 0, len(body), hashlib.sha256(text + body).digest(), text, body)
        if found != right:
            raise DisagreementError("the container is another")


def quotient(x):
    return MP.mpf(x.numerator) / x.denominator


METHODS = {
    "raw-gaussian": (identity, Oracle.raw),
    "raw-laplace": (identity, Oracle.laplace),
    "raw-staircase": (identity, Oracle.staircase),
    "raw-square-wave": (identity, Oracle.square_wave),
    "raw-square-wave-narrow": (identity, lambda o: o.square_wave(narrow=True)),
    "dp-rp-g": (by_entries, Oracle.published),
    "dp-rp-g-analytic": (gaussian, Oracle.analytic),
    "dp-rp-g-opt": (by_entries, Oracle.optimal),
    "dp-rp-l": (by_entries, Oracle.laplace),
    "dp-rp-g-opt-b": (rademacher, Oracle.optimal),
    "dp-oporp": (oporp, Oracle.optimal),
    "dp-oporp-laplace": (oporp, Oracle.laplace),
    "dp-oporp-staircase": (oporp, Oracle.staircase),
    "dp-designed-laplace": (identity, Oracle.laplace),
    "dp-designed-gaussian": (identity, Oracle.optimal),
    "dp-signdesigned-geometric": (identity, Oracle.proportional_flips),
    "dp-sjlt-laplace": (sparse_jl, Oracle.laplace),
    "dp-sjlt-gaussian": (sparse_jl, Oracle.optimal),
    "dp-fjlt-gaussian": (fast_jl, Oracle.optimal),
    "row-rp-g-direct": (gaussian, Oracle.ball_direct),
    "row-rp-g-composition": (gaussian, Oracle.ball_composition),
    "row-rp-g-opt": (gaussian, Oracle.ball_optimal),
    "row-oporp-g": (oporp, Oracle.ball_optimal),
    "dp-signrp-rr": (by_entries_fine, Oracle.flips_of_changes),
    "dp-signrp-rr-smooth": (by_entries, lambda o: o.flips_by_level(smooth=True)),
    "dp-signrp-geometric": (by_entries, lambda o: o.flips_by_level(smooth=False)),
    "dp-signoporp-rr": (oporp, Oracle.uniform_flips),
    "dp-signoporp-rr-smooth": (oporp, lambda o: o.flips_by_level(smooth=True)),
    "dp-signoporp-geometric": (oporp, lambda o: o.flips_by_level(smooth=False)),
    "idp-signrp-rr": (rademacher, lambda o: IndividualFlips(o.epsilon, o.map.count)),
    "idp-signrp-g": (rademacher, Oracle.individual_gaussian),
    "idp-signoporp-rr": (oporp, lambda o: IndividualFlips(o.epsilon, o.map.count)),
    "idp-signoporp-g": (oporp, Oracle.individual_gaussian),
    "record-cap": (rotation, lambda o: Cap(o.map.k, o.epsilon)),
    "codebook-softmax": (identity, Oracle.softmax),
    "record-codebook": (identity, lambda o: Codebook(o.map.k, o.spec["subset"], o.epsilon)),
    "none-oporp": (oporp, lambda o: Exact()),
    "none-signrp": (rademacher, lambda o: ExactSigns()),
}


def secret_counts(sketch):
    """The exact counts that a sketch holds before its release, themselves; None once they are gone.

    The only look at a private attribute of the package: no public name may show these counts.
    """
    return sketch._counts
