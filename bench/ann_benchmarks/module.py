"""dpindex as an algorithm of ann-benchmarks: the private index, with epsilon in its name."""

from typing import Any

import numpy as np

import dpindex

from ..base.module import BaseANN

METRICS = {"angular": "cosine", "euclidean": "l2"}


class DPIndex(BaseANN):
    """One method of dpindex at one epsilon; ``fit`` spends that epsilon once for each vector.

    Parameters
    ----------
    metric : "angular" or "euclidean"
        Angular vectors are normalised to length 1.
    method : str
        A name from ``dpindex methods``.
    epsilon : float
        Budget of the one release of each vector.
    options : dict
        ``beta`` (attribute-level adjacency, default 1) or ``record`` (true: whole records);
        ``denoise`` ("auto", "linear" or "score"); ``index_type``; and the fields of
        ``dpindex.Spec``, of which bounds and scale must be public, and never read from ``X``.
    """

    def __init__(self, metric: str, method: str, epsilon: float, options: dict[str, Any]) -> None:
        self._metric = METRICS[metric]
        self._options = dict(options)
        record = self._options.pop("record", False)
        beta = self._options.pop("beta", 1.0)
        self._adjacency = dpindex.record() if record else dpindex.attribute(beta)
        self.denoise = self._options.pop("denoise", None)
        self._index_type = self._options.pop("index_type", "f32")
        self._method, self._epsilon = method, epsilon
        self._promise, self._query = f"epsilon = {epsilon:g}", "exact"
        self._rename()

    def fit(self, X: Any) -> None:
        options = {k: tuple(v) if isinstance(v, list) else v for k, v in self._options.items()}
        self.spec = dpindex.Spec(
            self._method, X.shape[1], epsilon=self._epsilon, adjacency=self._adjacency, **options
        )
        self._promise = str(self.spec.guarantee)  # with the adjacency, in the units of the data
        self._rename()
        self.index = dpindex.PrivateIndex(
            self.spec, metric=self._metric, index_type=self._index_type
        )
        self.index.add(self._vectors(X))
        if self.denoise:
            self.index.fit_denoiser(self.denoise)

    def set_query_arguments(self, query: str) -> None:
        """``"exact"``, or ``"private"``: the query is privatized under the same epsilon first."""
        self._query = query
        self._rename()

    def query(self, q: Any, n: int) -> Any:
        return self._search(q[None], n)[0]

    def batch_query(self, X: Any, n: int) -> None:
        self.res = self._search(X, n)

    def get_additional(self) -> dict[str, Any]:
        """Stored with every result: what the codes promise."""
        promise = self.spec.guarantee
        return {"epsilon": promise.epsilon, "delta": promise.delta, "guarantee": str(promise)}

    def _search(self, queries: Any, n: int) -> Any:
        return self.index.search(self._vectors(queries), k=n, query=self._query).ids

    def _vectors(self, X: Any) -> Any:
        if self._metric != "cosine":
            return X
        lengths = np.linalg.norm(X, axis=1, keepdims=True)
        return X / np.where(lengths > 0, lengths, 1.0)

    def _rename(self) -> None:
        self.name = (
            f"dpindex({self._method}, {self._promise}, query={self._query}, "
            f"denoise={self.denoise}, {self._index_type})"
        )
