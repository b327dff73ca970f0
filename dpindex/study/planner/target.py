"""The target of a plan: what its user asked for, checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import get_args

from dpindex.base.arrays import checked_epsilon, finite_number, whole_number
from dpindex.base.errors import InputError, NoGuaranteeError
from dpindex.index.search import QueryMode
from dpindex.privacy import Record, VectorAdjacency
from dpindex.similarity.similarity import Metric
from dpindex.study.planner.population import MAX_DENSE_DIM, NEIGHBOURS
from dpindex.study.planner.rows import FOUND, Row

# Candidates of a plan for whole records, whose codes alone find few of the nearest.
_CANDIDATES = 1000


@dataclass(frozen=True)
class Target:
    """What is planned for: see :func:`plan`.

    Raises
    ------
    InputError
        For a value out of its range, and unless an epsilon or a target recall is given.
    """

    dim: int
    n: int
    adjacency: VectorAdjacency
    epsilon: float | None = None
    recall: float | None = None
    candidates: int | None = None
    at: int = FOUND
    query: QueryMode = "exact"
    metric: Metric = "cosine"
    max_bytes: int | None = None
    methods: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.epsilon is None and self.recall is None:
            raise InputError("give an epsilon, a target recall, or both.")
        if self.epsilon is not None and self.recall is not None and self.candidates is not None:
            raise InputError(
                "an epsilon and a target recall give the number of candidates; leave one of the "
                "three out.",
                field="candidates",
            )
        whole_records = isinstance(self.adjacency, Record)
        whole_number(self.dim, "dim", 2, MAX_DENSE_DIM if whole_records else 2**31 - 1)
        whole_number(self.n, "n", 500, 2**40)
        whole_number(self.at, "at", 1, NEIGHBOURS)
        if self.candidates is not None:
            whole_number(self.candidates, "candidates", self.at, self.n)
        if self.max_bytes is not None:
            whole_number(self.max_bytes, "max_bytes", 1, 2**20)
        if self.query not in get_args(QueryMode):
            raise InputError(f"query must be 'private' or 'exact', not {self.query!r}.")
        if self.metric not in ("cosine", "l2"):
            raise InputError(f"metric must be 'cosine' or 'l2', not {self.metric!r}.")
        if self.metric == "l2" and whole_records:
            raise InputError("a plan for l2 needs neighbours in an attribute or a radius.")
        if self.metric == "l2" and self.dim > MAX_DENSE_DIM:
            raise InputError("a plan for l2 takes a dense public sample.")
        if self.epsilon is not None:
            checked_epsilon(self.epsilon)
        if self.recall is not None and not 0.0 < finite_number(self.recall, "the recall") < 1.0:
            raise InputError(f"the recall must lie between 0 and 1, not be {self.recall!r}.")

    @property
    def counted_candidates(self) -> int:
        """Answers of the codes that the owner of the vectors orders; k if nobody is expected to."""
        if self.candidates is not None:
            return self.candidates
        if isinstance(self.adjacency, Record):
            return max(self.at, min(_CANDIDATES, self.n // 20))
        return self.at

    @property
    def shown_candidates(self) -> tuple[int, ...]:
        """Numbers of candidates that a plan shows: k, 100, 1 % and 5 % of the collection."""
        shown = {self.at, 100, self.n // 100, self.n // 20}
        return tuple(sorted(number for number in shown if self.at <= number <= self.n // 4))

    @property
    def ladder(self) -> tuple[int, ...]:
        """Numbers of candidates at which recall is predicted, from k to a quarter of n.

        >>> from dpindex import attribute
        >>> Target(dim=384, n=20_000, adjacency=attribute(1.0), epsilon=8.0).ladder
        (10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
        """
        steps = {self.at, self.counted_candidates, *self.shown_candidates}
        decade = 10
        while decade <= self.n:
            steps |= {decade, 2 * decade, 5 * decade}
            decade *= 10
        largest = max(self.n // 4, self.counted_candidates)
        return tuple(sorted(step for step in steps if self.at <= step <= largest))

    def value(self, row: Row) -> float:
        """Return the recall that methods are ranked by: in the query mode that is planned for."""
        return row.found(self.query).recall_within(self.counted_candidates)

    def ranked(self, rows: Iterable[Row]) -> list[Row]:
        """Return the rows, best first."""
        return sorted(rows, key=self.value, reverse=True)

    def fitting(self, rows: Iterable[Row]) -> list[Row]:
        """Return the rows whose codes are not too large."""
        most = self.max_bytes
        return [row for row in rows if most is None or row.bytes_per_vector <= most]

    def none_fits(self) -> NoGuaranteeError:
        """Return the error for codes that are all too large."""
        return NoGuaranteeError(f"no method makes codes of at most {self.max_bytes} bytes.")
