"""The mechanism itself, run on public vectors: what its codes would find in a whole collection."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dpindex.arrays import unit
from dpindex.codes import BitCodes, Codes
from dpindex.errors import InputError
from dpindex.estimators.denoise import fit_denoiser
from dpindex.planner.population import Population
from dpindex.privatizer import Privatizer
from dpindex.randomness import PublicStream
from dpindex.spec import Spec

__all__ = ["Prediction", "Ranking", "Simulation"]

Ranking = Literal["plain", "linear", "auto"]
Singles = npt.NDArray[np.float32]

_FOUND = 10
_NO_NOISE = 1e-3
"""Noise, in spreads of a coordinate or flips a sign, that is not worth taking out."""

_TIE = 2e-6
"""Cosines that differ by less are one and the same, rounded in two ways."""

_LOOKED_AT = 64
"""Best candidates that surely stand for ten vectors: few stand for less than half of one."""


@dataclass(frozen=True)
class Prediction:
    """Expected precision@10 by query mode."""

    private: float
    exact: float


@dataclass(frozen=True, eq=False)
class Simulation:
    """One spec over one population, with fresh noise.

    Attributes
    ----------
    rounds : int
        Codes made of each far vector, [1, ∞): what a denoiser is learned from.
    """

    spec: Spec
    population: Population
    rounds: int

    @cached_property
    def _privatizer(self) -> Privatizer:
        return Privatizer(self.spec)

    @cached_property
    def _far(self) -> Codes:
        """Codes of the far vectors, a round after the other."""
        return self._privatizer.privatize(np.concatenate([self.population.far] * self.rounds))

    @cached_property
    def _near(self) -> Codes | None:
        near = self.population.near
        rows = near.reshape(-1, near.shape[2])
        return self._privatizer.privatize(rows) if len(rows) else None

    @cached_property
    def _query(self) -> Codes:
        return self._privatizer.privatize(self.population.queries)

    @property
    def bytes_per_vector(self) -> int:
        """Bytes of one published code."""
        stored = self._far.stored
        return int(stored.itemsize * stored.shape[1])

    @cached_property
    def noise(self) -> float:
        """Deviation of the noise over that of the coordinates; for signs, the share flipped."""
        privatizer, vectors = self._privatizer, self.population.queries
        exact = privatizer.project(vectors) * privatizer.spec.step
        noisy = _decoded(self._query)
        if self.spec.mechanism.codes == "signs":
            return float(np.mean((noisy > 0) != (exact > 0)))
        return float((noisy - exact).std() / max(exact.std(axis=0).mean(), 1e-30))

    def predict(self, ranking: Ranking) -> Prediction | None:
        """Expected precision@10 of private and of exact queries; None if there is no denoiser."""
        read: Any = _decoded
        ranked: Any = _unit_decoded
        if ranking != "plain":
            if self.noise < _NO_NOISE:
                return None
            people = self.population
            most = int(len(people.far) * people.per)  # a collection has no more codes than vectors
            learned = self.spec.format.codes(self._far.stored[:most])
            try:
                read = fit_denoiser(learned, self.spec, ranking)
            except InputError:  # it cannot learn from these codes, and says so
                return None
            ranked = read.to_rank
        far = ranked(self._far)
        near = None if self._near is None else ranked(self._near)
        exact = unit(self._privatizer.project(self.population.queries))
        return Prediction(
            private=self._precision(unit(read(self._query)), far, near),
            exact=self._precision(exact, far, near),
        )

    def _precision(self, queries: Singles, far: Singles, near: Singles | None) -> float:
        """Share of true neighbours among the ten best, counted by weight; of the last, a part."""
        people = self.population
        scores = [queries @ far.T]
        weight = [np.tile(people.far_weight / self.rounds, self.rounds)]
        true = [np.tile(people.far_true / self.rounds, self.rounds)]
        if near is not None:
            own = near.reshape(len(queries), -1, far.shape[1])
            scores.append(np.einsum("qsk,qk->qs", own, queries))
            weight.append(np.broadcast_to(people.near_weight, scores[1].shape))
            true.append(np.broadcast_to(people.near_true, scores[1].shape))
        every, heavy, hits = (np.concatenate(parts, axis=1) for parts in (scores, weight, true))
        # Short sign codes tie by the hundred, and an index breaks ties by chance.
        chance = PublicStream(0, "plan ties").words(every.size, np.uint16).reshape(every.shape)
        every = every + _TIE * (chance / 2.0**16)
        every[heavy == 0] = -np.inf
        best = np.argpartition(-every, _LOOKED_AT, axis=1)[:, :_LOOKED_AT]
        best = np.take_along_axis(best, np.argsort(-np.take_along_axis(every, best, 1), axis=1), 1)
        heavy, hits = (np.take_along_axis(part, best, axis=1) for part in (heavy, hits))
        before = np.cumsum(heavy, axis=1) - heavy
        counted = np.clip(_FOUND - before, 0.0, heavy) / np.maximum(heavy, 1e-30)
        return float((counted * hits).sum(axis=1).mean() / _FOUND)


def _decoded(codes: Codes) -> Singles:
    if isinstance(codes, BitCodes):
        return codes.to_signs().astype(np.float32)
    return np.asarray(codes.to_float(), dtype=np.float32)


def _unit_decoded(codes: Codes) -> Singles:
    return unit(_decoded(codes))
