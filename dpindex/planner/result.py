"""The outcome of planning: a row for each method and length, one of them recommended."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from dpindex.index import QueryMode
from dpindex.planner.simulate import Ranking
from dpindex.privacy import Guarantee
from dpindex.spec import Spec

__all__ = ["Choice", "Plan", "Row"]


@dataclass(frozen=True)
class Row:
    """What one spec is predicted to find.

    Attributes
    ----------
    spec : Spec
        Method, length, epsilon and all else that is public.
    ranking : "plain", "linear" or "auto"
        How codes would be ranked: as they are, or after ``fit_denoiser(kind)``, whichever is
        predicted to find more. "auto" was tried for the most promising specs only.
    private, exact : float
        Expected precision@10 against the true 50, by query mode, in [0, 1].
    bytes_per_vector : int
        Size of a published code.
    noise : float
        Deviation of the noise over that of the coordinates; for signs, the share flipped.
    """

    spec: Spec
    ranking: Ranking
    private: float
    exact: float
    bytes_per_vector: int
    noise: float

    @property
    def method(self) -> str:
        return self.spec.method

    @property
    def k(self) -> int:
        return self.spec.code_length

    @property
    def epsilon(self) -> float:
        return self.spec.budget

    @property
    def guarantee(self) -> Guarantee:
        return self.spec.guarantee

    def precision(self, query: QueryMode) -> float:
        """Expected precision@10 in that query mode."""
        return self.private if query == "private" else self.exact

    def to_json(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "k": self.k,
            "epsilon": self.epsilon,
            "denoiser": None if self.ranking == "plain" else self.ranking,
            "precision@10 private": round(self.private, 4),
            "precision@10 exact": round(self.exact, 4),
            "bytes_per_vector": self.bytes_per_vector,
            "noise": round(self.noise, 4),
            "guarantee": self.guarantee.to_json(),
        }


@dataclass(frozen=True)
class Choice:
    """What to build: ``PrivateIndex(spec)``, and then ``fit_denoiser()`` if ``denoise``."""

    spec: Spec
    denoise: bool


@dataclass(frozen=True)
class Plan:
    """The outcome of :func:`dpindex.plan`.

    Attributes
    ----------
    rows : tuple of Row
        Best first.
    query : "private" or "exact"
        The mode that was planned for.
    n : int
        Vectors in the collection.
    why : str
        One sentence on what is recommended.
    remarks : tuple of str
        What else should be known before this is relied upon.
    refused : tuple of str
        A sentence for each method or length that has no guarantee under these terms.
    """

    rows: tuple[Row, ...]
    query: QueryMode
    n: int
    why: str
    remarks: tuple[str, ...]
    refused: tuple[str, ...]

    @property
    def best(self) -> Row:
        """The row that is recommended."""
        return self.rows[0]

    @property
    def recommended(self) -> Choice:
        """What to build."""
        return Choice(self.best.spec, self.best.ranking != "plain")

    def to_json(self) -> dict[str, Any]:
        return {
            "recommended": {
                "spec": json.loads(self.recommended.spec.to_json()),
                "denoise": self.recommended.denoise,
            },
            "why": self.why,
            "remarks": list(self.remarks),
            "query": self.query,
            "n": self.n,
            "rows": [row.to_json() for row in self.rows],
            "refused": list(self.refused),
        }
