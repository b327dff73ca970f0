"""What a noise law must offer, and the one way in which additive laws are used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dpindex.arrays import Bytes, Floats
from dpindex.errors import InputError
from dpindex.noise.tables import CellTable
from dpindex.randomness import BitSource

__all__ = [
    "GRID_BITS",
    "AdditiveNoise",
    "Decoder",
    "FloatLaw",
    "NoFlips",
    "NoNoise",
    "NoiseSource",
    "SignLaw",
    "TwoDigitNoise",
    "check_deviation",
]

GRID_BITS = 12
"""Grid bits per beta that every law uses unless it needs a finer grid."""

_MAX_CELLS = 2.0**24


def check_deviation(cells: float, most: float = _MAX_CELLS) -> None:
    """Refuse a law that deviates by too many cells for a code, before its table is made."""
    if not cells <= most:
        raise InputError(
            "this epsilon asks for more noise than a code can hold; raise epsilon or lower k."
        )


@dataclass(frozen=True)
class Decoder:
    """How integer codes become unbiased estimates, and how far those scatter. Units: grid steps.

    ``estimate = (code + offset) · gain``. Given the true coordinate x, the estimate has mean x,
    variance ``variance[0] + variance[1]·x + variance[2]·x²`` and, for the additive laws, fourth
    central moment ``fourth``.
    """

    gain: float = 1.0
    offset: float = 0.0
    variance: tuple[float, float, float] = (0.0, 0.0, 0.0)
    fourth: float = 0.0


class FloatLaw(Protocol):
    """A law that turns exact projected integers into noisy integer codes."""

    @property
    def grid_bits(self) -> int:
        """Grid bits per beta that the law is calibrated on."""
        ...

    @property
    def decoder(self) -> Decoder: ...

    def perturb(self, x: Floats, stream: BitSource) -> npt.NDArray[np.int32]:
        """Noisy codes, int32, of grid integers ``x`` (held exactly in floats), same shape."""
        ...


class SignLaw(Protocol):
    """A law that turns exact projected integers into noisy signs."""

    @property
    def grid_bits(self) -> int: ...

    def __hash__(self) -> int: ...

    @property
    def depends_on_size(self) -> bool:
        """Whether the chance of a flip depends on the magnitude of the coordinate."""
        ...

    def perturb(self, x: Floats, stream: BitSource) -> npt.NDArray[np.bool_]:
        """Noisy signs, True for +1, of grid integers ``x``, same shape (n, k)."""
        ...

    def flip_probability(self, x: Floats, spread: float) -> npt.NDArray[np.float64]:
        """Chance that the sign of a coordinate of magnitude ``x`` (in betas) comes out flipped.

        ``spread`` is the standard deviation of a coordinate in betas; it matters only where the
        flips of one coordinate depend on the others (iDP).
        """
        ...


class NoiseSource(Protocol):
    """An integer law over cells of ``2^cell_bits`` grid steps, with a uniform offset inside."""

    @property
    def cell_bits(self) -> int: ...

    @property
    def offset(self) -> float:
        """What centres the law on zero: ½ if it is symmetric about −½, else 0."""
        ...

    def sample(self, count: int, stream: BitSource) -> npt.NDArray[np.signedinteger[Any]]:
        """``count`` independent draws in grid steps, int32 or int64."""
        ...

    def moments(self) -> tuple[float, float]:
        """Variance and fourth central moment in cells, without the offset inside the cell."""
        ...


class _CellNoise:
    """Adds a cell law: ``code = (x + noise) >> cell_bits``.

    The law is constant on cells of ``2^cell_bits`` grid steps, and its uniform offset inside the
    cell acts as a dither: the sum's low bits carry nothing and are dropped, the code is a small
    integer, and its mean is still exactly linear in x. Privacy is that of the cell law: for every
    fixed offset, moving x by d grid steps moves ``(x + offset) >> cell_bits`` by at most
    ``⌈|d| / 2^cell_bits⌉`` whole cells.
    """

    def __init__(self, source: NoiseSource, grid_bits: int) -> None:
        self._source = source
        self._grid_bits = grid_bits
        cell = float(1 << source.cell_bits)
        variance, fourth = source.moments()
        # Rounding x to whole cells by the offset adds f(1−f) cells², 1/6 on average.
        dither, dither_fourth = (1 / 6, 1 / 15) if source.cell_bits else (0.0, 0.0)
        self._decoder = Decoder(
            gain=cell,
            offset=source.offset,
            variance=((variance + dither) * cell**2, 0.0, 0.0),
            fourth=(fourth + 6 * variance * dither + dither_fourth) * cell**4,
        )

    @property
    def grid_bits(self) -> int:
        return self._grid_bits

    @property
    def decoder(self) -> Decoder:
        return self._decoder

    def perturb(self, x: Floats, stream: BitSource) -> npt.NDArray[np.int32]:
        noise = self._source.sample(x.size, stream).reshape(x.shape)
        # Sums held in float64 may pass 2^31 before their low bits are dropped.
        narrow = x.dtype == np.float32 and noise.dtype == np.int32
        noisy: npt.NDArray[Any] = x.astype(np.int32 if narrow else np.int64)
        noisy += noise
        noisy >>= self._source.cell_bits
        return noisy.astype(np.int32, copy=False)


class AdditiveNoise(_CellNoise):
    """Noise whose law is one table: see ``_CellNoise``."""

    def __init__(self, table: CellTable, grid_bits: int) -> None:
        super().__init__(table, grid_bits)
        self.table = table


class TwoDigitNoise(_CellNoise):
    """Noise whose law takes two tables: see :mod:`dpindex.noise.two_digit`."""

    def __init__(self, source: NoiseSource, grid_bits: int) -> None:
        super().__init__(source, grid_bits)
        self.source = source


class NoNoise:
    """No noise at all, for the baselines: exact integers, exact signs."""

    grid_bits = GRID_BITS
    decoder = Decoder()

    def perturb(self, x: Floats, stream: BitSource) -> npt.NDArray[np.int32]:
        return x.astype(np.int32)


class NoFlips:
    """Exact signs; an exact zero gets a fair coin so that empty bins do not lean to one side."""

    grid_bits = GRID_BITS
    depends_on_size = False

    def perturb(self, x: Floats, stream: BitSource) -> npt.NDArray[np.bool_]:
        coins: Bytes = stream.words(x.size, np.uint8).reshape(x.shape) & np.uint8(1)
        return np.where(x == 0, coins.astype(np.bool_), x > 0)

    def flip_probability(self, x: Floats, spread: float) -> npt.NDArray[np.float64]:
        return np.zeros(np.shape(x), dtype=np.float64)
