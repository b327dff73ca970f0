"""The options that :func:`dpindex.plan` and the command ``plan`` share; imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, get_args

from dpindex.base.arrays import checked_epsilon, finite_number, whole_number
from dpindex.base.errors import InputError

__all__ = ["FOUND", "NEIGHBOURS", "PlanOptions"]

FOUND = 10
"""Answers that precision counts (Li & Li 2023, Sec. 5.1)."""
NEIGHBOURS = 50
"""True neighbours that precision counts."""

_MIN_VECTORS = 500
_MAX_VECTORS = 2**40
_MAX_DIM = 2**31 - 1
_MAX_BYTES = 2**20
_QueryMode = Literal["exact", "private"]
_PlannedMetric = Literal["cosine", "l2"]


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """Target of a plan; each field has its help text.

    Raises
    ------
    InputError
        For a value out of its range, and unless either an epsilon or a target recall is given.

    >>> PlanOptions(dim=384, n=10_000, epsilon=8.0).at
    10
    """

    dim: Annotated[int, "Attributes of a vector."]
    n: Annotated[int, "Vectors in the collection."]
    epsilon: Annotated[float | None, "Target epsilon."] = None
    recall: Annotated[
        float | None,
        "Target recall@k: finds the smallest epsilon that reaches it, or with --epsilon the fewest "
        "candidates.",
    ] = None
    candidates: Annotated[
        int | None,
        "Rows that the codes choose, and the owner of the vectors reranks.  [default: with "
        "--record 1000, or 5 % of the collection if that is less; otherwise k]",
    ] = None
    at: Annotated[int, "The k of recall@k: answers and true neighbours that are counted."] = FOUND
    query: Annotated[_QueryMode, "Query mode to plan for, as of `dpindex query`."] = "exact"
    metric: Annotated[
        _PlannedMetric, "What neighbours are ranked by: cosine, or l2 if lengths count."
    ] = "cosine"
    max_bytes: Annotated[int | None, "Maximum bytes of a code."] = None
    skip_leak_check: Annotated[bool, "Accept a sample that looks private."] = False

    def __post_init__(self) -> None:
        if self.epsilon is None and self.recall is None:
            raise InputError("give an epsilon, a target recall, or both.")
        if self.epsilon is not None and self.recall is not None and self.candidates is not None:
            raise InputError(
                "an epsilon and a target recall give the number of candidates; leave one of the "
                "three out.",
                field="candidates",
            )
        whole_number(self.dim, "dim", 2, _MAX_DIM)
        whole_number(self.n, "n", _MIN_VECTORS, _MAX_VECTORS)
        whole_number(self.at, "at", 1, NEIGHBOURS)
        if self.candidates is not None:
            whole_number(self.candidates, "candidates", self.at, self.n)
        if self.max_bytes is not None:
            whole_number(self.max_bytes, "max_bytes", 1, _MAX_BYTES)
        if self.query not in get_args(_QueryMode):
            raise InputError(f"query must be 'private' or 'exact', not {self.query!r}.")
        if self.metric not in get_args(_PlannedMetric):
            raise InputError(f"metric must be 'cosine' or 'l2', not {self.metric!r}.")
        if self.epsilon is not None:
            checked_epsilon(self.epsilon)
        if self.recall is not None and not 0.0 < finite_number(self.recall, "the recall") < 1.0:
            raise InputError(f"the recall must lie between 0 and 1, not be {self.recall!r}.")

    @property
    def ladder(self) -> tuple[int, ...]:
        """Numbers of candidates at which recall is predicted, from k to a quarter of n.

        >>> PlanOptions(dim=384, n=20_000, epsilon=8.0).ladder
        (10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
        """
        steps = {self.at, self.candidates or self.at, *self.shown_candidates}
        decade = 10
        while decade <= self.n:
            steps |= {decade, 2 * decade, 5 * decade}
            decade *= 10
        largest = max(self.n // 4, self.candidates or self.at)
        return tuple(sorted(step for step in steps if self.at <= step <= largest))

    @property
    def shown_candidates(self) -> tuple[int, ...]:
        """Numbers of candidates that a plan shows: k, 100, 1 % and 5 % of the collection."""
        shown = {self.at, 100, self.n // 100, self.n // 20}
        return tuple(sorted(number for number in shown if self.at <= number <= self.n // 4))

    @classmethod
    def split(cls, options: Mapping[str, Any]) -> tuple[PlanOptions, dict[str, Any]]:
        """Return the options among keywords, and all other keywords.

        Raises
        ------
        InputError
            If dim or n is missing.

        >>> PlanOptions.split({"dim": 8, "n": 500, "epsilon": 1.0, "scale": 255.0})[1]
        {'scale': 255.0}
        """
        names = {field.name for field in fields(cls)}
        for name in ("dim", "n"):
            if name not in options:
                raise InputError(f"a plan needs {name}; see help(dpindex.plan).")
        own = {name: value for name, value in options.items() if name in names}
        return cls(**own), {name: value for name, value in options.items() if name not in names}
