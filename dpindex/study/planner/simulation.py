"""Simulation of one spec on a model of the collection: recall and noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from dpindex.base.arrays import Singles, row_by_row, stacked, unit
from dpindex.denoise import Denoiser, fit_denoiser, fit_if_possible
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.spec import Spec
from dpindex.study.plan_options import PlanOptions
from dpindex.study.planner.collection_model import CollectionModel
from dpindex.study.planner.plan_result import Found, Ranking, Row
from dpindex.study.planner.retrieval import best_columns, shares_found

__all__ = ["Simulation"]

# Noise share below which no denoiser is tried.
_NO_NOISE = 1e-3
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
    options : PlanOptions
        What is counted.

    Attributes
    ----------
    bytes_per_vector : int
        Size of a published code, of the queries.
    noise : float
        Standard deviation of the noise relative to that of a coordinate; for signs, the share that
        is flipped.
    snr : float
        Signal-to-noise ratio, added up over the coordinates; for signs, that of a vote of all.

    Raises
    ------
    InputError
        If the noise is too large for any code.
    """

    def __init__(
        self, spec: Spec, model: CollectionModel, rounds: int, options: PlanOptions
    ) -> None:
        self.spec = spec
        self._options = options
        self._model = model
        self._rounds = rounds
        self._privatizer = Privatizer(spec)
        self._noisy_queries = self._privatizer.privatize(model.queries)
        self._exact_queries = self._privatizer.project(model.queries)
        self.bytes_per_vector = int(self._noisy_queries.stored[0].nbytes)
        exact = self._exact_queries * spec.step
        self.noise = spec.format.noise_share(self._noisy_queries.to_float(), exact)
        self.snr = spec.format.signal_to_noise(self.noise)

    def found_nothing(self) -> Row:
        """Return the predictions where noise leaves nothing of the signal."""
        nothing = Found(0.0, 0.0, dict.fromkeys(self._options.ladder, 0.0))
        return Row(self.spec, "plain", nothing, nothing, self.bytes_per_vector, self.noise)

    def predict(self, rankings: Sequence[Ranking]) -> list[Row]:
        """Return a row for each ranking; one of codes as they are, if no denoiser can be fitted."""
        sampled = self._privatizer.privatize(stacked([self._model.sampled] * self._rounds))
        near = sampled.take(slice(0))
        if self._model.near.shape[0]:
            near = self._privatizer.privatize(self._model.near)
        bytes_per_vector = int(sampled.stored[0].nbytes)
        rows: list[Row] = []
        for ranking in rankings:
            denoiser = self._denoiser(sampled, ranking)
            if denoiser is None and ranking != "plain":
                continue
            ranked = (self._ranked(sampled, denoiser), self._ranked(near, denoiser))
            private_queries = self._noisy_queries.to_float()
            if denoiser is not None:
                private_queries = denoiser(self._noisy_queries)
            private = self._found(private_queries, *ranked)
            exact = self._found(self._exact_queries * np.float32(self.spec.step), *ranked)
            rows.append(Row(self.spec, ranking, private, exact, bytes_per_vector, self.noise))
        return rows or self.predict(["plain"])

    def _ranked(self, codes: Codes, denoiser: Denoiser | None) -> Singles:
        """Return the vectors among which an index of that metric searches."""
        if self._model.metric == "l2":
            vectors = codes.to_float()
            if denoiser is not None:
                vectors = denoiser(codes)
            return np.asarray(vectors, dtype=np.float32)
        if denoiser is not None:
            return denoiser.to_rank(codes)
        return _normalised(codes)

    def _denoiser(self, codes: Codes, ranking: Ranking) -> Denoiser | None:
        """Return the denoiser of a ranking; None if it has none, or none can be fitted."""
        if ranking == "plain" or self.noise < _NO_NOISE:
            return None
        # A collection has no more codes than vectors.
        count = round(self._model.sampled.shape[0] * self._model.vectors_per_row)
        fit = partial(fit_denoiser, codes.take(slice(count)), self.spec)
        return fit_if_possible(fit, self.spec, ranking)

    def _found(self, queries: Singles, sampled: Singles, near: Singles) -> Found:
        """Return what queries find among decoded codes of sampled and of near vectors."""
        if self._model.metric == "cosine":
            queries = unit(queries)
        score = np.hstack([queries @ sampled.T, row_by_row(near, queries)])
        if self._model.metric == "l2":
            half_squares = [np.einsum("ij,ij->i", part, part) / 2 for part in (sampled, near)]
            score[:, : len(sampled)] -= half_squares[0]
            score[:, len(sampled) :] -= half_squares[1].reshape(len(queries), -1)
        score += self._model.tie_breaks(self._rounds)
        # Sampled vectors come last in the ranking, and their codes stand for equally many vectors.
        per_code = self._model.vectors_per_row / self._rounds
        needed = _CANDIDATES + math.ceil(self._options.ladder[-1] / per_code)
        best = best_columns(score, min(needed, score.shape[1]))
        # The codes of one sampled vector share what it stands for.
        count = self._model.sampled.shape[0]
        is_sampled = best < len(sampled)
        candidate = np.where(is_sampled, best % count, best - count * (self._rounds - 1))
        codes = np.where(is_sampled, self._rounds, 1)

        def true_weight(neighbours: int) -> Any:
            true = self._model.true(neighbours)
            return np.take_along_axis(true, candidate, axis=1) / codes

        weight = np.take_along_axis(self._model.weight, candidate, axis=1) / codes
        return shares_found(weight, true_weight, self._options.at, self._options.ladder)


def _normalised(codes: Codes) -> Singles:
    return unit(codes.to_float())
