"""A mechanism run on a model of the collection: the precision that its codes would reach."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dpindex.arrays import unit
from dpindex.codes import Codes
from dpindex.errors import InputError
from dpindex.estimators.denoise import fit_denoiser
from dpindex.evaluate.spec_grid import keeps_signs
from dpindex.index import QueryMode
from dpindex.planner.collection_model import CollectionModel
from dpindex.planner.plan_result import Ranking
from dpindex.privatizer import Privatizer
from dpindex.randomness import PublicStream
from dpindex.spec import Spec

__all__ = ["Simulation"]

Singles: TypeAlias = npt.NDArray[np.float32]

_FOUND = 10
# Noise relative to a coordinate, or share of flipped signs, below which no denoiser is tried.
_NO_NOISE = 1e-3
# Cosines that differ by less are equal, up to rounding.
_TIE = 2e-6
# Best candidates that stand for at least ten vectors: few stand for less than half a vector.
_CANDIDATES = 64


class Simulation:
    """One spec on one model, with fresh noise.

    Parameters
    ----------
    spec : Spec
    model : CollectionModel
    rounds : int
        Codes of each sampled vector, [1, ∞); a denoiser is fitted to all of them.

    Attributes
    ----------
    bytes_per_vector : int
        Size of a published code.
    noise : float
        Standard deviation of the noise relative to that of a coordinate; for signs, the share that
        is flipped.

    Raises
    ------
    InputError
        If the noise is too large for any code.
    """

    def __init__(self, spec: Spec, model: CollectionModel, rounds: int) -> None:
        self.spec, self._model, self._rounds = spec, model, rounds
        privatizer = Privatizer(spec)
        self._sampled = privatizer.privatize(np.concatenate([model.sampled] * rounds))
        near = model.near.reshape(-1, model.near.shape[2])
        self._near = privatizer.privatize(near) if len(near) else None
        self._queries = privatizer.privatize(model.queries)
        self._exact = privatizer.project(model.queries)
        self.bytes_per_vector = int(self._sampled.stored[0].nbytes)
        noisy, exact = self._queries.to_float(), self._exact * spec.step
        if keeps_signs(spec):
            self.noise = float(np.mean((noisy > 0) != (exact > 0)))
        else:
            self.noise = float((noisy - exact).std() / max(exact.std(axis=0).mean(), 1e-30))

    def predict(self, ranking: Ranking) -> dict[QueryMode, float] | None:
        """Expected precision@10 by query mode; None if no denoiser can be fitted."""
        denoiser = None
        if ranking != "plain":
            if self.noise < _NO_NOISE:
                return None
            # A collection has no more codes than vectors.
            count = int(len(self._model.sampled) * self._model.vectors_per_row)
            try:
                denoiser = fit_denoiser(self._sampled.take(slice(count)), self.spec, ranking)
            except InputError:  # too few codes, or nothing but noise
                return None

        def to_rank(codes: Codes) -> Singles:
            return unit(codes.to_float()) if denoiser is None else denoiser.to_rank(codes)

        private = self._queries.to_float() if denoiser is None else denoiser(self._queries)
        sampled = to_rank(self._sampled)
        near = None if self._near is None else to_rank(self._near)
        return {
            "private": self._precision(unit(private), sampled, near),
            "exact": self._precision(unit(self._exact), sampled, near),
        }

    def _precision(self, queries: Singles, sampled: Singles, near: Singles | None) -> float:
        """Share of true neighbours among the ten best, by weight; the last one counts in part."""
        model, rounds = self._model, self._rounds
        scores = [queries @ sampled.T]
        weights = [np.tile(model.sampled_weight / rounds, rounds)]
        true = [np.tile(model.sampled_true / rounds, rounds)]
        if near is not None:
            own = near.reshape(len(queries), -1, sampled.shape[1])
            scores.append(np.einsum("qsk,qk->qs", own, queries))
            weights.append(np.broadcast_to(model.near_weight, scores[1].shape))
            true.append(np.broadcast_to(model.near_true, scores[1].shape))
        score, weight, hits = (np.concatenate(parts, axis=1) for parts in (scores, weights, true))
        # Many short sign codes have equal scores, and an index returns them in any order.
        chance = PublicStream(0, "plan ties").words(score.size, np.uint16).reshape(score.shape)
        score = np.where(weight == 0, -np.inf, score + _TIE * (chance / 2.0**16))
        best = np.argpartition(-score, _CANDIDATES, axis=1)[:, :_CANDIDATES]
        best = np.take_along_axis(best, np.argsort(-np.take_along_axis(score, best, 1), axis=1), 1)
        weight, hits = (np.take_along_axis(part, best, axis=1) for part in (weight, hits))
        before = np.cumsum(weight, axis=1) - weight
        counted = np.clip(_FOUND - before, 0.0, weight) / np.maximum(weight, 1e-30)
        return float((counted * hits).sum(axis=1).mean() / _FOUND)
