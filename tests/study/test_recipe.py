"""The recipe for a new mechanism, followed from outside the package with a toy of each part.

1. **A code format** (how codes are stored and read) is a subclass of
   :class:`dpindex.mechanism.codes.CodeFormat`, listed in ``FORMATS`` there. It gives ``name``,
   ``metrics``, ``pack``, ``decode``, ``fault`` and ``codes``, and ``width`` where a stored code has
   other columns than coordinates. What it does not state it has by default: codes decode to
   numbers, one a coordinate.
2. **A noise law** (how exact integers become codes) is a subclass of ``NumberLaw``, ``SignLaw`` or
   ``SymbolLaw`` in ``dpindex/mechanism/noise``. It gives ``perturb``, and for numbers ``moments``
   and ``likelihood``, for signs ``flip_probability``. ``code_format`` names its format if that is
   not the usual one. A ``Calibration`` beside it says how the law is made for an epsilon, what that
   needs and what it promises.
3. **A method** is one row in ``dpindex/mechanism/method_table.py``: a family of projections, the
   calibration, a summary and the source.

Codes of the new format are filled_index, searched, compared, denoised, saved and read as decoded
numbers. What can do better with them is one row of ``DECODERS`` in ``dpindex.decode``. Before
release a verifier of the law is added to ``audit.law_verifiers``, and its encoder to
``tests/independent/oracle.py``.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from helpers.common import attribute_spec, codes_of, filled_index, known_noise, refuses, reopened
from numpy.testing import assert_allclose, assert_array_equal

from dpindex import Spec, codes_from_bytes, methods
from dpindex.mechanism import method_table
from dpindex.mechanism.codes import FORMATS, CodeFormat, Codes
from dpindex.mechanism.families import IDENTITY
from dpindex.mechanism.grid import GRID_BITS
from dpindex.mechanism.method import Method
from dpindex.mechanism.noise.base import Calibration, NumberLaw
from dpindex.mechanism.noise.moments import Likelihood, NoiseMoments

pytestmark = known_noise

ROWS = 600
DIM = 16


@dataclass(frozen=True)
class BytePairFormat(CodeFormat):
    """A toy format: a coordinate is two bytes, the high one first, 32768 above its value."""

    unit: float

    name: ClassVar[str] = "byte pairs"
    metrics: ClassVar[tuple[str, ...]] = ("cosine", "ip", "l2")

    @property
    def width(self):
        return 2 * self.code_length

    def pack(self, outcomes):
        return (outcomes + 32768).astype(">u2").view(np.uint8)

    def coordinates(self, stored):
        pairs = np.ascontiguousarray(stored, np.uint8).view(">u2")
        return pairs.astype(np.int32) - 32768

    def decode(self, stored):
        return (self.coordinates(stored) * self.unit).astype(np.float32)

    def fault(self, stored):
        is_whole = stored.shape[1:] == (self.width,)
        fits = stored.dtype == np.uint8 and is_whole
        return None if fits else "are not pairs of bytes"

    def codes(self, stored):
        return Codes(self, stored.astype(np.uint8, copy=False))


class CoinTosses(NumberLaw):
    """A toy law: tosses of a fair coin up to the first head, less as many of another coin.

    A difference of d has probability ``2^-|d|/3``, so shifts by one cell cost ``log 2``; beta is as
    many cells as fit into epsilon, a power of two. (Sixteen tosses at most: a toy.)
    """

    def __init__(self, epsilon):
        cells = math.floor(epsilon / math.log(2.0))
        cells_bits = cells.bit_length() - 1
        self.cell_bits = GRID_BITS - cells_bits
        self.scale = float(1 << self.cell_bits)

    def _tosses(self, shape, stream):
        words = stream.words(math.prod(shape), np.uint16).astype(np.int32) | 1 << 16
        lowest = words & -words
        return np.log2(lowest).astype(np.int32).reshape(shape)

    def perturb(self, x, stream):
        dither = stream.words(x.size, np.uint16).reshape(x.shape)
        dither &= (1 << self.cell_bits) - 1
        cells = (x.astype(np.int64) + dither) >> self.cell_bits
        noise = self._tosses(x.shape, stream)
        noise -= self._tosses(x.shape, stream)
        return (cells + noise).astype(np.int32)

    @property
    def moments(self):
        variance = (4.0 + 1 / 6) * self.scale**2
        fourth = (100.0 + 6 * 4.0 / 6 + 1 / 15) * self.scale**4
        return NoiseMoments.additive(variance, fourth)

    @property
    def likelihood(self):
        differences = np.arange(-16, 17)
        chances = 2.0 ** -np.abs(differences) / 3
        steps = np.diff(chances, prepend=0.0, append=0.0)
        jumps = steps / self.scale
        edges = (np.arange(-16, 18) - 0.5) * self.scale
        return Likelihood(edges, jumps, self.scale)

    def code_format(self, code_length, fingerprint, step):
        return BytePairFormat(code_length, fingerprint, self.scale * step)


def _calibrated(parameters, projection):
    return CoinTosses(parameters.budget)


ROW = Method(
    "toy-coins", IDENTITY, Calibration(_calibrated, BytePairFormat),
    "tosses of fair coins on every raw coordinate", "this test",
)  # fmt: skip


@pytest.fixture(autouse=True)
def listed(monkeypatch):
    """The format and the row stand in their tables."""
    monkeypatch.setitem(FORMATS, BytePairFormat.name, BytePairFormat)
    monkeypatch.setitem(method_table.TABLE, ROW.name, ROW)


@pytest.fixture
def vectors():
    """Points near a plane: a denoiser finds it."""
    rng = np.random.default_rng(4)
    plane = rng.normal(size=(ROWS, 2)) @ rng.normal(size=(2, DIM))
    return np.clip(plane / 4, -1, 1)


@pytest.fixture
def spec():
    return attribute_spec("toy-coins", DIM, epsilon=24.0)


def test_the_row_is_a_method_as_any_other(spec):
    row = next(row for row in methods() if row.name == "toy-coins")
    assert row.codes == "byte pairs"
    assert row.kind == "pure"
    assert Spec.from_json(spec.to_json()) == spec
    assert str(spec.guarantee) == "epsilon = 24 (pure DP) under attribute(beta=1)"


def test_codes_are_written_read_and_checked(spec, vectors):
    codes = codes_of(spec, vectors)
    assert codes.stored.shape == (ROWS, 2 * DIM)
    again = codes_from_bytes(codes.to_bytes())
    assert_array_equal(again.stored, codes.stored)
    assert again.format == codes.format
    with refuses("are not pairs of bytes"):
        cut = Codes(codes.format, codes.stored[:, :-1])
        codes_from_bytes(cut.to_bytes())
    assert_allclose(
        codes.to_float(),
        vectors,
        atol=34 / 32,
    )  # 17 cells on either side
    assert 0 < spec.format.noise_share(codes.to_float(), vectors) < 1


@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
@pytest.mark.parametrize("mode", ["exact", "private"])
def test_an_index_is_built_searched_saved_and_opened(spec, vectors, tmp_path, metric, mode):
    index = filled_index(spec, vectors, metric=metric)
    more = range(ROWS, ROWS + 5)
    index.add_codes(codes_of(spec, vectors[:5]), ids=more)
    opened = reopened(index, tmp_path / "index")
    assert len(opened) == ROWS + 5
    hits = opened.search(vectors[:20], k=10, query=mode)
    assert hits.ids.shape == (20, 10)
    assert np.isfinite(hits.similarity).all() == (metric == "cosine")
    assert (hits.unbiased_stderr > 0).all()
    descending = np.sort(hits.scores, axis=1)[:, ::-1]
    assert_array_equal(hits.scores, descending)
    if mode == "exact":
        same = index.search(vectors[:20], k=10)
        assert_array_equal(same.ids, hits.ids)


def test_similarities_are_unbiased(spec, vectors):
    """The mean error over pairs is below seven of its own deviations, by the stated errors."""
    index = filled_index(spec, vectors, metric="ip")
    hits = index.search(vectors[:1], k=ROWS)
    truth = vectors[hits.ids[0]] @ vectors[0]
    error = hits.unbiased[0] - truth
    stated = np.square(hits.unbiased_stderr[0]).mean()
    assert abs(error.mean()) < 7 * math.sqrt(stated / ROWS)
    assert 0.7 < np.square(error).mean() / stated < 1.4


def test_rooms_without_an_entry_take_the_codes_as_numbers(spec, vectors):
    index = filled_index(spec, vectors)
    assert index.calibrate() is not None
    assert index.fit_denoiser("linear").kind == "linear"
    assert index.search(vectors[:3], k=5).ids.shape == (3, 5)
