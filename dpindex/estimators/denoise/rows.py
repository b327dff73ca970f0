"""The rows a denoiser is learned from: a sample of the codes, some of them held out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from dpindex.arrays import Integers, cores
from dpindex.errors import InputError
from dpindex.estimators.denoise.channel import Channel

__all__ = ["Rows", "blockwise"]

Singles = npt.NDArray[np.float32]

_MAX_NUMBERS = 1 << 26
_HELD_NUMBERS = 1 << 22
_BLOCK_NUMBERS = 1 << 20
_HELD_SHARE = 8
_MIN_ROWS = 500


def blockwise(count: int, k: int, action: Callable[[slice], None]) -> None:
    """Run ``action`` on slices of ``count`` rows that stay in the cache, on all cores."""
    step = max(64, _BLOCK_NUMBERS // k)
    slices = [slice(start, min(start + step, count)) for start in range(0, count, step)]
    with ThreadPoolExecutor(min(cores(), max(1, len(slices)))) as pool:
        for _ in pool.map(action, slices):
            pass


class Rows:
    """Observations of a sample of vectors, refined stage by stage; every eighth row is held out.

    At most 2^26 numbers are used (256 MB as float32), evenly spread over all codes; beyond that
    more rows add nothing that shows.

    Raises
    ------
    InputError
        If there are fewer rows than coordinates, or fewer than 500: too few to learn from.
    """

    def __init__(self, stored: Integers, channel: Channel, k: int) -> None:
        least = max(_MIN_ROWS, k)
        if len(stored) < least:
            raise InputError(
                f"{len(stored)} codes are too few to learn a denoiser from; codes of length {k} "
                f"need at least {least}."
            )
        stored = stored[:: max(1, -(-len(stored) * k // _MAX_NUMBERS))]
        held = np.zeros(len(stored), dtype=np.bool_)
        wanted = min(len(stored) // _HELD_SHARE, max(256, _HELD_NUMBERS // k))
        held[:: len(stored) // wanted] = True
        self._stored, self._held_stored = stored[~held], stored[held]
        self.k = k
        self.held = channel.decode(self._held_stored)
        self._channel = channel
        self._z: Singles | None = None

    def __len__(self) -> int:
        return len(self._stored)

    def blocks(self) -> Iterator[Singles]:
        """The rows that are learned from, in blocks of shape (·, k)."""
        step = max(64, _BLOCK_NUMBERS // self.k)
        for start in range(0, len(self), step):
            yield self._view(slice(start, start + step))

    def _view(self, rows: slice) -> Singles:
        return self._channel.decode(self._stored[rows]) if self._z is None else self._z[rows]

    def mean_and_noise(self, channel: Channel) -> tuple[Singles, Singles]:
        """Mean of the codes and mean variance of their noise, by coordinate."""
        total, noise = np.zeros(self.k), np.zeros(self.k)
        for y in self.blocks():
            total += y.sum(axis=0, dtype=np.float64)
            noise += channel.noise(y).sum(axis=0, dtype=np.float64)
        least = 1e-3 * noise.mean() / len(self)
        noise = np.maximum(noise / len(self), least)
        return (total / len(self)).astype(np.float32), noise.astype(np.float32)

    def advance(self, step: Callable[[Singles, Singles], Singles], channel: Channel) -> None:
        """Replace every row by ``step(row, where its code sits)``."""
        out = np.empty((len(self), self.k), dtype=np.float32) if self._z is None else self._z

        def refine(rows: slice) -> None:
            y = channel.decode(self._stored[rows])
            out[rows] = step(self._view(rows), channel.locate(y))

        blockwise(len(self), self.k, refine)
        self._z = out
        self.held = step(self.held, channel.locate(channel.decode(self._held_stored)))
