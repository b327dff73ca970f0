"""What an index is, beside its rows; checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from dpindex.errors import InputError
from dpindex.estimators.similarity import METRICS, Metric
from dpindex.index.ranking import new_ranking
from dpindex.index.search_backend import EXACT
from dpindex.spec import Spec

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """What an index is, beside its rows.

    Parameters
    ----------
    spec : Spec
        The public description of the mechanism.
    metric : "cosine", "ip" or "l2"
        What neighbours are ranked by.
    index_type : str
        How vectors are kept and searched: see :func:`dpindex.index.faiss_vectors.parse_index_type`.
    query_epsilon : float, optional
        Budget of a private query; default the spec's epsilon.

    Raises
    ------
    InputError
        For a metric or an index type that the method's codes do not have, or a wrong query epsilon.
    """

    spec: Spec
    metric: Metric = "cosine"
    index_type: str = EXACT
    query_epsilon: float | None = None

    def __post_init__(self) -> None:
        if self.metric not in tuple(METRICS):
            raise InputError(f"metric must be one of {', '.join(METRICS)}, not {self.metric!r}.")
        mechanism = self.spec.mechanism
        known = mechanism.calibration.format.metrics
        if self.metric not in known:
            raise InputError(
                f"{mechanism.name} keeps {mechanism.codes}, which know {' and '.join(known)} only, "
                f"not {self.metric!r}."
            )
        new_ranking(self.spec, self.metric, self.index_type)  # refuses a wrong index type
        if self.query_epsilon is not None:
            object.__setattr__(self, "query_epsilon", self.query_spec.epsilon)

    @property
    def query_spec(self) -> Spec:
        """The spec of private queries."""
        if self.query_epsilon is None:
            return self.spec
        return self.spec.with_epsilon(self.query_epsilon)

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain JSON values."""
        return {**vars(self), "spec": self.spec.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Settings:
        """The inverse of :meth:`to_dict`, other keys aside; InputError or KeyError if it is not."""
        stated = {field.name: data[field.name] for field in fields(cls)}
        return cls(**{**stated, "spec": Spec.from_dict(data["spec"])})
