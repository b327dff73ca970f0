"""What an index is, beside its rows; checked once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from dpindex.errors import InputError
from dpindex.spec import Spec

__all__ = ["Metric", "Settings", "Storage"]

Metric = Literal["cosine", "ip", "l2"]
Storage: TypeAlias = str
"""``f32``, ``f16``, ``int8``, or a Faiss factory string: see :mod:`dpindex.index.compact`."""

_METRICS = ("cosine", "ip", "l2")
_PLAIN_STORAGES = ("f32", "f16", "int8")


@dataclass(frozen=True)
class Settings:
    """What an index is, beside its rows.

    Raises
    ------
    InputError
        For a metric or a storage that the method's codes do not have, or a wrong query epsilon.
    """

    spec: Spec
    metric: Metric = "cosine"
    storage: Storage = "f32"
    query_epsilon: float | None = None

    def __post_init__(self) -> None:
        if self.metric not in _METRICS:
            raise InputError(f"metric must be one of {', '.join(_METRICS)}, not {self.metric!r}.")
        if self.storage not in _PLAIN_STORAGES:
            from dpindex.index.compact import parse_layout  # here: it needs Faiss

            parse_layout(self.storage, self.spec.code_length)
        method = self.spec.method
        if self.spec.mechanism.codes == "signs" and self.metric != "cosine":
            raise InputError(f"{method} keeps signs, which know cosines only, not {self.metric!r}.")
        if self.spec.mechanism.codes == "signs" and self.storage != "f32":
            raise InputError(f"{method} keeps bits; storage {self.storage!r} is for float codes.")
        if self.query_epsilon is not None:
            checked = self.query_spec.epsilon
            object.__setattr__(self, "query_epsilon", checked)

    @property
    def query_spec(self) -> Spec:
        """The spec of private queries."""
        if self.query_epsilon is None:
            return self.spec
        return self.spec.with_epsilon(self.query_epsilon)

    def to_json(self) -> dict[str, Any]:
        return {
            "spec": json.loads(self.spec.to_json()),
            "metric": self.metric,
            "storage": self.storage,
            "query_epsilon": self.query_epsilon,
        }
