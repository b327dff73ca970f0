"""How codes are searched and what their scores say: one scorer for numbers, one for signs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dpindex.arrays import Floats, Integers
from dpindex.estimators import (
    NoisyVectorStats,
    agreement_curve,
    cosine,
    cosine_from_agreement,
    cosine_from_score,
    inner_product,
    squared_distance,
)
from dpindex.index.settings import Metric, Storage
from dpindex.index.stores import BitStore, FloatStore, training_rows
from dpindex.noise.moments import NoiseMoments
from dpindex.privatizer import Privatizer
from dpindex.spec import Spec

__all__ = ["ESTIMATES", "BitScorer", "FloatScorer", "Metric", "Scorer", "StoreScorer", "query_side"]

Doubles = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

_ROWS_AT_A_TIME = 16384
ESTIMATES = {"cosine": cosine, "ip": inner_product, "l2": squared_distance}


def moments(spec: Spec) -> NoiseMoments:
    """How the noise of a spec's codes scatters a coordinate, in the data's units."""
    found: NoiseMoments = spec.law.moments.in_units(spec.step)
    return found


def query_side(
    decoded: Floats, spec: Spec | None, data: Privatizer, query: Privatizer
) -> NoisyVectorStats:
    """Decoded queries as a side: exact if ``spec`` is None, else noisy under its law."""
    norm = data.spec.norm
    if spec is None:
        return NoisyVectorStats.of(decoded, norm=norm)
    noisy = query if spec == query.spec else data
    return NoisyVectorStats.of(decoded, moments(noisy.spec), norm)


class Scorer(Protocol):
    """Search structures over the codes of an index, rebuilt from the codes whenever needed.

    ``queries`` are exact projections in grid integers when ``spec`` is None, else codes of it.
    """

    def covers(self, count: int) -> bool:
        """Whether the structures hold the first ``count`` rows."""
        ...

    @property
    def recall(self) -> float | None:
        """Recall of the structures against flat search, where they are not exact."""
        ...

    def cover(self, values: Integers) -> None:
        """Bring the structures up to date with all stored codes."""
        ...

    def search(self, queries: Any, spec: Spec | None, count: int) -> tuple[Doubles, Rows]:
        """Scores and rows of the best ``count``, best first, shape (nq, count)."""
        ...

    def estimate(
        self, queries: Any, spec: Spec | None, scores: Doubles, rows: Rows
    ) -> tuple[Doubles, Doubles]:
        """Corrected similarities and standard errors of scores that ``search`` returned."""
        ...


class StoreScorer(ABC):
    """What all scorers share that rank by a store of vectors made from the codes.

    The store is fitted to a sample of them and kept up to date; ``_vectors`` says what they are.
    """

    def __init__(
        self, data: Privatizer, query: Privatizer, metric: Metric, storage: Storage
    ) -> None:
        self._data, self._query, self._metric = data, query, metric
        self._storage, self._ranked_by = storage, metric
        self._store: FloatStore | None = None

    @abstractmethod
    def _vectors(self, values: Integers) -> Floats:
        """Vectors to rank by of some stored codes, float32, shape (n, k)."""

    def _remember(self, start: int, vectors: Floats) -> None:  # noqa: B027
        """Keep what ``estimate`` needs of the vectors of rows ``start``, ``start`` + 1, …

        By default nothing.
        """

    def covers(self, count: int) -> bool:
        return self._store is not None and len(self._store) == count

    @property
    def recall(self) -> float | None:
        return None if self._store is None else self._store.recall

    def cover(self, values: Integers) -> None:
        if self._store is None or self._store.needs_retraining(len(values)):
            rows = training_rows(self._storage, self._data.spec.code_length)
            places = np.linspace(0, len(values) - 1, min(len(values), rows))
            sample = self._vectors(values[places.astype(np.intp)])
            self._store = FloatStore(self._ranked_by, self._storage, sample)
        for start in range(len(self._store), len(values), _ROWS_AT_A_TIME):
            vectors = self._vectors(values[start : start + _ROWS_AT_A_TIME])
            self._remember(start, vectors)
            # The store last: after Ctrl-C it says how many rows are covered in full.
            self._store.add(vectors)
        self._store.complete()

    def _best(self, queries: Floats, count: int) -> tuple[Doubles, Rows]:
        if self._store is None:
            raise RuntimeError("search before cover")
        return self._store.search(queries, count)

    def _exact(self, queries: Floats) -> Floats:
        """Exact projections in units of the vectors."""
        return np.asarray(queries * self._data.spec.step, dtype=np.float32)


class FloatScorer(StoreScorer):
    """Flat search on decoded float codes; estimates from inner products and sums."""

    _total: Doubles = np.empty(0)
    _squares: Doubles = np.empty(0)

    def _vectors(self, values: Integers) -> Floats:
        return self._data.spec.format.codes(values).to_float()

    def _remember(self, start: int, vectors: Floats) -> None:
        side = NoisyVectorStats.of(vectors)
        self._total = np.concatenate([self._total[:start], side.total])
        self._squares = np.concatenate([self._squares[:start], side.squares])

    def _decoded(self, queries: Any, spec: Spec | None) -> Floats:
        return self._exact(queries) if spec is None else np.asarray(queries.to_float())

    def search(self, queries: Any, spec: Spec | None, count: int) -> tuple[Doubles, Rows]:
        return self._best(self._decoded(queries, spec), count)

    def estimate(
        self, queries: Any, spec: Spec | None, scores: Doubles, rows: Rows
    ) -> tuple[Doubles, Doubles]:
        data = self._data
        y = query_side(self._decoded(queries, spec), spec, data, self._query).column()
        sums = self._total, self._squares
        stored = NoisyVectorStats(*sums, data.spec.code_length, moments(data.spec), data.spec.norm)
        x = stored.at(rows)
        ip = self._inner_products(scores, x, y)
        return ESTIMATES[self._metric](ip, x, y, data.spec.projection.inner_product_factor)

    def _inner_products(self, scores: Doubles, x: NoisyVectorStats, y: NoisyVectorStats) -> Doubles:
        """``⟨x̃, ỹ⟩`` back from what the store ranks by."""
        if self._metric == "ip":
            return scores
        if self._metric == "cosine":
            return np.asarray(scores * np.sqrt(x.squares * y.squares))
        return np.asarray((x.squares + y.squares + scores) / 2)


class BitScorer:
    """Hamming search for private queries, asymmetric search for exact ones."""

    recall = None

    def __init__(self, data: Privatizer, query: Privatizer) -> None:
        self._data, self._query = data, query
        self._store = BitStore(data.spec.code_length)

    def covers(self, count: int) -> bool:
        return len(self._store) == count and self._store.scan_ready

    def cover(self, values: Integers) -> None:
        self._store.add(values[len(self._store) :].astype(np.uint8, copy=False))
        self._store.prepare_scan()

    def search(self, queries: Any, spec: Spec | None, count: int) -> tuple[Doubles, Rows]:
        if spec is None:
            return self._store.search_exact(queries, count)
        return self._store.search_signs(queries.packed, count)

    def _spread(self, spec: Spec) -> float:
        """Deviation of a projected coordinate in betas; NaN where it is needed and unknown."""
        law: Any = spec.law
        if spec.norm is not None:
            return spec.norm * spec.projection.rms / spec.adjacency.size
        return math.nan if law.depends_on_size else 1.0

    def estimate(
        self, queries: Any, spec: Spec | None, scores: Doubles, rows: Rows
    ) -> tuple[Doubles, Doubles]:
        data = self._data.spec
        law: Any = data.law
        spread = self._spread(data)
        query_spread = spread if spec is None else self._spread(spec)
        if math.isnan(spread) or math.isnan(query_spread):
            unknown = np.full(scores.shape, math.nan)
            return unknown, unknown.copy()
        factor = data.projection.inner_product_factor
        if spec is None:
            norms = np.linalg.norm(queries.astype(np.float64), axis=1)[:, None]
            return cosine_from_score(scores, norms, data.code_length, law, spread, factor)
        query_law: Any = spec.law
        curve = agreement_curve(law, spread, query_law, query_spread)
        return cosine_from_agreement(scores / data.code_length, data.code_length, curve, factor)
