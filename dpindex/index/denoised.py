"""Search on denoised codes: ranking by the denoised vectors, similarities from the codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dpindex.arrays import AnyArray, Floats, Integers, unit
from dpindex.estimators import NoisyVectorStats
from dpindex.estimators.denoise import Denoiser
from dpindex.index.scoring import ESTIMATES, BitScorer, StoreScorer, moments, query_side
from dpindex.index.settings import Metric, Storage
from dpindex.privatizer import Privatizer
from dpindex.spec import Spec

__all__ = ["DenoisedScorer"]

Doubles = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

_PAIRS_AT_A_TIME = 1 << 22
"""Numbers of stored codes that are looked at together to estimate similarities."""


class DenoisedScorer(StoreScorer):
    """Ranks by denoised vectors, exact queries as they are, private ones denoised alike.

    Denoised vectors are shrunken towards what is usual, so their scores rank well and say little.
    ``estimate`` therefore goes back to the codes, which are unbiased and whose errors are known.
    """

    def __init__(
        self,
        data: Privatizer,
        query: Privatizer,
        metric: Metric,
        storage: Storage,
        denoiser: Denoiser,
    ) -> None:
        super().__init__(data, query, metric, storage)
        self._denoiser = denoiser
        # The denoiser itself brings vectors to the norm under which inner products rank best.
        self._ranked_by = "ip" if metric == "cosine" else metric
        self._values: AnyArray = np.empty((0, 0), dtype=np.int8)

    def _vectors(self, values: Integers) -> Floats:
        codes = self._data.spec.format.codes(values)
        return self._denoiser.to_rank(codes) if self._metric == "cosine" else self._denoiser(codes)

    def cover(self, values: Integers) -> None:
        self._values = values
        super().cover(values)

    def search(self, queries: Any, spec: Spec | None, count: int) -> tuple[Doubles, Rows]:
        asked = self._exact(queries) if spec is None else self._denoiser(queries, spec)
        if self._metric == "cosine":
            asked = unit(asked)
        return self._best(asked, count)

    def estimate(
        self, queries: Any, spec: Spec | None, scores: Doubles, rows: Rows
    ) -> tuple[Doubles, Doubles]:
        width = max(1, _PAIRS_AT_A_TIME // (len(rows) * self._data.spec.code_length))
        parts = [
            self._pairs(queries, spec, rows[:, start : start + width])
            for start in range(0, rows.shape[1], width)
        ]
        similarity, stderr = zip(*parts, strict=True)
        return np.concatenate(similarity, axis=1), np.concatenate(stderr, axis=1)

    def _pairs(self, queries: Any, spec: Spec | None, rows: Rows) -> tuple[Doubles, Doubles]:
        data = self._data
        decoded: Floats = data.spec.format.codes(self._values[rows.ravel()]).to_float()
        asked: Floats = queries if spec is None else queries.to_float()
        if data.spec.mechanism.codes == "signs":
            ip = _inner_products(decoded, asked, rows.shape)
            return BitScorer(data, self._query).estimate(queries, spec, ip, rows)
        if spec is None:
            asked = self._exact(queries)
        stored = NoisyVectorStats.of(decoded, moments(data.spec), data.spec.norm)
        x = stored.at(np.arange(rows.size).reshape(rows.shape))
        y = query_side(asked, spec, data, self._query).column()
        ip = _inner_products(decoded, asked, rows.shape)
        return ESTIMATES[self._metric](ip, x, y, data.spec.projection.inner_product_factor)


def _inner_products(decoded: Floats, asked: Floats, shape: tuple[int, ...]) -> Doubles:
    vectors = decoded.reshape(*shape, -1)
    return np.asarray(np.einsum("qck,qk->qc", vectors, asked, dtype=np.float64))
