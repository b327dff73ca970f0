"""Faiss stores over private codes. They hold nothing that cannot be rebuilt from the codes.

Rows are numbered from 0 and only ever appended; whoever removes rows makes a new store.
"""

from __future__ import annotations

from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from dpindex.arrays import Bytes, Floats, unit
from dpindex.index.compact import CompactIndex, parse_layout
from dpindex.index.settings import Metric, Storage

__all__ = ["BitStore", "FloatStore", "Storage", "training_rows"]

Doubles = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

_ROWS_AT_A_TIME, _QUERIES_AT_A_TIME = 8192, 256
_FAIR_SAMPLE = 16384
_SAMPLE_NUMBERS = 1 << 25
_QUANTIZERS = {
    "f16": faiss.ScalarQuantizer.QT_fp16,
    "int8": faiss.ScalarQuantizer.QT_8bit,
}
_METRICS = {"cosine": faiss.METRIC_INNER_PRODUCT, "ip": faiss.METRIC_INNER_PRODUCT,
            "l2": faiss.METRIC_L2}  # fmt: skip

# Faiss turns to matrix products only for large batches by default; ours are 64 queries, small
# enough to answer Ctrl-C, and six times faster this way. Older versions count queries, from 20.
if faiss.cvar.distance_compute_blas_threshold > 4096:
    faiss.cvar.distance_compute_blas_threshold = 4096


def training_rows(storage: Storage, k: int) -> int:
    """Rows of length k that a store should be fitted to."""
    if storage == "f32" or storage in _QUANTIZERS:
        return _FAIR_SAMPLE
    layout = parse_layout(storage, k)
    return max(layout.min_rows, min(layout.training_rows, _SAMPLE_NUMBERS // k))


class FloatStore:
    """Decoded or denoised float codes, searched; ``cosine`` keeps them normalised.

    ``f32`` is exact; ``f16`` halves and ``int8`` quarters the memory, at a small loss of recall;
    a factory string does what it says, with its recall measured. What is fitted to the vectors is
    fitted to a sample; see ``needs_retraining``.
    """

    def __init__(self, metric: Metric, storage: Storage, sample: Floats) -> None:
        self._normalise = metric == "cosine"
        self._distance = metric == "l2"
        self._fair = training_rows(storage, sample.shape[1])
        self._sampled = self._fair if storage in ("f32", "f16") else len(sample)
        # A power of two near the largest value: half floats end at 65504, and fail below 1e-4.
        largest = float(np.abs(sample).max(initial=0.0))
        self._unit = 1.0 if self._normalise or not largest else float(2.0 ** np.frexp(largest)[1])
        self._index: Any
        if storage == "f32":
            self._index = faiss.IndexFlat(sample.shape[1], _METRICS[metric])
        elif storage in _QUANTIZERS:
            quantizer = _QUANTIZERS[storage]
            self._index = faiss.IndexScalarQuantizer(sample.shape[1], quantizer, _METRICS[metric])
            self._index.train(self._prepared(sample))
        else:
            layout = parse_layout(storage, sample.shape[1])
            self._index = CompactIndex(layout, _METRICS[metric], self._prepared(sample))

    def __len__(self) -> int:
        index = self._index
        return len(index) if isinstance(index, CompactIndex) else int(index.ntotal)

    @property
    def recall(self) -> float | None:
        """Share of the ten flat neighbours that are found, if it was measured."""
        return self._index.recall if isinstance(self._index, CompactIndex) else None

    def needs_retraining(self, count: int) -> bool:
        """Whether it was fitted to few rows, far fewer than ``count``: begin anew then."""
        return self._sampled < self._fair and count >= 2 * self._sampled

    def add(self, decoded: Floats) -> None:
        """Append decoded codes, float32, shape (n, k)."""
        self._index.add(self._prepared(decoded))

    def complete(self) -> None:
        """All rows are in for now: measure what depends on them."""
        if isinstance(self._index, CompactIndex):
            self._index.tune()

    def search(self, queries: Floats, count: int) -> tuple[Doubles, Rows]:
        """Scores (higher is nearer) and rows of the best ``count`` for each query."""
        scores, rows = self._index.search(self._prepared(queries), count)
        wide = scores.astype(np.float64) * self._unit**2
        return (-wide if self._distance else wide), rows

    def _prepared(self, vectors: Floats) -> npt.NDArray[np.float32]:
        single = np.ascontiguousarray(vectors, dtype=np.float32)
        if not self._normalise:
            return single / np.float32(self._unit)
        return unit(single)


class BitStore:
    """Sign codes: Hamming search for private queries, asymmetric search for exact ones.

    A k-bit sign code is a product-quantizer code whose 4-bit centroids are the sign patterns, so
    ``Σ y_j s_j`` is a product quantizer's inner product and runs at the speed of its fast scan.
    Fast scan rounds its tables to bytes; the rounding is bounded, so the candidates it returns are
    rescored exactly and the answer is provably the exact ranking, or more candidates are fetched.
    """

    def __init__(self, k: int) -> None:
        self.k = k
        self._bytes = -(-k // 8)
        self._hamming = faiss.IndexBinaryFlat(8 * self._bytes)
        self._scan: Any = None

    def __len__(self) -> int:
        return int(self._hamming.ntotal)

    def add(self, packed: Bytes) -> None:
        """Append packed codes, shape (n, ⌈k/8⌉)."""
        self._scan = None
        self._hamming.add(np.ascontiguousarray(packed))

    def prepare_scan(self) -> None:
        """Build the asymmetric structure (it cannot be appended to; 0.1 s per million codes)."""
        if self._scan is not None:
            return
        groups = 2 * self._bytes
        index = faiss.IndexPQ(4 * groups, groups, 4, faiss.METRIC_INNER_PRODUCT)
        patterns = 2.0 * ((np.arange(16)[:, None] >> np.arange(4)) & 1) - 1.0
        centroids = np.tile(patterns.astype(np.float32), (groups, 1, 1))
        faiss.copy_array_to_vector(centroids.ravel(), index.pq.centroids)
        faiss.copy_array_to_vector(self._codes().ravel(), index.codes)
        index.ntotal = len(self)
        index.is_trained = True
        self._scan = faiss.IndexPQFastScan(index)

    @property
    def scan_ready(self) -> bool:
        return self._scan is not None

    def _codes(self) -> Bytes:
        stored = self._hamming.xb  # seen in place: a copy for every batch would cost more than it
        flat = faiss.rev_swig_ptr(stored.data(), stored.size())
        return np.asarray(flat, dtype=np.uint8).reshape(-1, self._bytes)

    def search_signs(self, packed: Bytes, count: int) -> tuple[Doubles, Rows]:
        """Scores ``k − 2·hamming = Σ s_j t_j`` and rows of the best ``count`` for each query."""
        distance, rows = self._hamming.search(np.ascontiguousarray(packed), count)
        return self.k - 2.0 * distance, rows

    def search_exact(self, queries: Floats, count: int) -> tuple[Doubles, Rows]:
        """Scores ``Σ y_j s_j``, exact, and rows of the best ``count`` for each query."""
        padded = np.zeros((len(queries), 8 * self._bytes), dtype=np.float64)
        padded[:, : self.k] = queries
        scores = np.empty((len(queries), count))
        rows = np.empty((len(queries), count), dtype=np.int64)
        uncertain = np.arange(len(queries))
        for candidates in (2 * count + 16, 8 * count + 256):
            if uncertain.size and candidates < len(self):
                best, places, certain = self._rescored(padded[uncertain], candidates, count)
                settled = uncertain[certain]
                scores[settled], rows[settled] = best[certain], places[certain]
                uncertain = uncertain[~certain]
        for start in range(0, len(uncertain), _QUERIES_AT_A_TIME):
            some = uncertain[start : start + _QUERIES_AT_A_TIME]
            scores[some], rows[some] = self._exhaustive(padded[some], count)
        return scores, rows

    def _exhaustive(self, queries: Doubles, count: int) -> tuple[Doubles, Rows]:
        """All codes against a few queries: for small indexes, and for crowds of equal codes."""
        scores = np.empty((len(queries), 0))
        rows = np.empty((len(queries), 0), dtype=np.int64)
        codes = self._codes()
        for start in range(0, len(self), _ROWS_AT_A_TIME):
            bits = np.unpackbits(codes[start : start + _ROWS_AT_A_TIME], axis=1, bitorder="little")
            block = np.broadcast_to(np.arange(start, start + len(bits)), (len(queries), len(bits)))
            scores = np.hstack([scores, queries @ (2.0 * bits - 1.0).T])
            rows = np.hstack([rows, block])
            # Stable: of equal scores the lower row comes first, as everywhere.
            order = np.argsort(-scores, axis=1, kind="stable")[:, :count]
            scores = np.take_along_axis(scores, order, axis=1)
            rows = np.take_along_axis(rows, order, axis=1)
        return scores, rows

    def _rescored(
        self, queries: Doubles, candidates: int, count: int
    ) -> tuple[Doubles, Rows, npt.NDArray[np.bool_]]:
        """The best of the fast scan's candidates, and whether no other code can be among them."""
        # A common scale keeps float32 tables exact enough; ranking does not depend on it.
        largest = np.maximum(np.abs(queries).max(axis=1, keepdims=True), 1e-300)
        coarse, rows = self._scan.search((queries / largest).astype(np.float32), candidates)
        exact = self._exact_scores(queries, rows)
        order = np.lexsort((rows, -exact), axis=1)[:, :count]
        best = np.take_along_axis(exact, order, axis=1)
        # What was not returned scores at most the worst coarse score plus the rounding error.
        unseen = (coarse.min(axis=1) + self._rounding(queries / largest)) * largest[:, 0]
        # Rows of −1 fill up where the scan drops codes of the least possible score.
        certain = (best[:, -1] > unseen) & (rows >= 0).all(axis=1)
        return best, np.take_along_axis(rows, order, axis=1), certain

    def _rounding(self, queries: Doubles) -> Doubles:
        """Bound on fast scan's error: each table entry is off by at most one step of its scale.

        The scale maps the widest table to 255 and the sum of all to at most 65535.
        """
        spans = 2 * np.abs(queries).reshape(len(queries), -1, 4).sum(axis=2)
        step = np.maximum(spans.max(axis=1) / 255, spans.sum(axis=1) / 65535)
        return np.asarray(spans.shape[1] * step * (1 + 1e-3))

    def _exact_scores(self, queries: Doubles, rows: Rows) -> Doubles:
        """``Σ y_j s_j`` of candidate rows, by one table of 256 sums for every byte of the code."""
        patterns = 2.0 * ((np.arange(256)[:, None] >> np.arange(8)) & 1) - 1.0
        tables = queries.reshape(len(queries), self._bytes, 8) @ patterns.T
        codes = self._codes()[rows]
        scores = np.zeros(rows.shape)
        for byte in range(self._bytes):
            scores += np.take_along_axis(tables[:, byte], codes[:, :, byte].astype(np.intp), axis=1)
        return scores
