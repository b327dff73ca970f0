"""What is asked of a plan, and what is counted for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import get_args

from dpindex.base.checks import checked_epsilon, finite_number, whole_number
from dpindex.base.errors import InputError
from dpindex.decode.base import Metric
from dpindex.index.reranking import share_of
from dpindex.index.search import QueryMode
from dpindex.privacy import Record, VectorAdjacency
from dpindex.study.row import FoundShares, Row

FOUND, NEIGHBOURS = 10, 50
"""Answers, and true neighbours, that precision counts (Li & Li 2023, Sec. 5.1)."""

MAX_DENSE_DIM = 4096
"""Attributes up to which vectors are held dense; wider ones are sparse matrices."""

LEAST_ROWS = 500
"""Vectors of the smallest collection that can be planned for."""


@dataclass(frozen=True)
class Measure:
    """A share that a plan shows for each spec.

    Attributes
    ----------
    kind : str
        ``recall@10``, say.
    terms : str
        What is counted.
    sentence : str
        What a query should do, with ``{}`` for the share.
    candidates : int, optional
        Answers among which recall is counted; None for precision.

    >>> print(PRECISION, PRECISION.of(FoundShares(0.5, {10: 0.3})))
    precision@10 of the true 50 0.5
    """

    kind: str
    terms: str
    sentence: str
    candidates: int | None = None

    def __str__(self) -> str:
        return f"{self.kind} {self.terms}"

    def of(self, found: FoundShares) -> float:
        """Return the share in what is found."""
        if self.candidates is None:
            return found.precision
        return found.recall_within(self.candidates)


PRECISION = Measure(
    f"precision@{FOUND}",
    f"of the true {NEIGHBOURS}",
    f"place {{}} of its first {FOUND} answers among the {NEIGHBOURS} nearest",
)


# Candidates of a plan for whole records, whose codes alone find few of the nearest.
_CANDIDATES = 1000


@dataclass(frozen=True)
class Goal:
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
    candidates: int | str | None = None
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
        whole_number(self.n, "n", LEAST_ROWS, 2**40)
        whole_number(self.at, "at", 1, NEIGHBOURS)
        if isinstance(self.candidates, str):
            share_of(self.candidates)
        elif self.candidates is not None:
            whole_number(self.candidates, "candidates", self.at, self.n)
        if self.max_bytes is not None:
            whole_number(self.max_bytes, "max_bytes", 1, 2**20)
        for name, words in (("query", get_args(QueryMode)), ("metric", ("cosine", "l2"))):
            if getattr(self, name) not in words:
                listed = " or ".join(map(repr, words))
                raise InputError(f"{name} must be {listed}, not {getattr(self, name)!r}.")
        if self.metric == "l2" and whole_records:
            raise InputError(
                "the metric l2 is for plans that hide an attribute or a radius, not whole records."
            )
        if self.metric == "l2" and self.dim > MAX_DENSE_DIM:
            raise InputError("a plan for l2 takes a dense public sample.")
        if self.epsilon is not None:
            checked_epsilon(self.epsilon)
        if self.recall is not None and not 0.0 < finite_number(self.recall, "the recall") < 1.0:
            raise InputError(f"the recall must lie between 0 and 1, not {self.recall!r}.")

    @property
    def counted_candidates(self) -> int:
        """Answers of the codes that the holder orders; k if nobody is expected to."""
        if isinstance(self.candidates, str):
            return max(self.at, round(share_of(self.candidates) * self.n))
        if self.candidates is not None:
            return self.candidates
        if isinstance(self.adjacency, Record):
            return max(self.at, min(_CANDIDATES, self.n // 20))
        return self.at

    @property
    def on_average(self) -> int | None:
        """The number of candidates that a stated share is on average."""
        return self.counted_candidates if isinstance(self.candidates, str) else None

    @property
    def shown_candidates(self) -> tuple[int, ...]:
        """Numbers of candidates that a plan shows: k, 100, 1 % and 5 % of the collection."""
        shown = {self.at, 100, self.n // 100, self.n // 20}
        return tuple(sorted(number for number in shown if self.at <= number <= self.n // 4))

    @property
    def measures(self) -> tuple[Measure, Measure]:
        """What is shown for each spec; specs are ranked by the first."""
        recall = self._recall(self.at)
        if self.counted_candidates > self.at:
            return self._recall(self.counted_candidates), recall
        return recall, PRECISION

    def _recall(self, candidates: int) -> Measure:
        terms = f"of the true {self.at}"
        among = f"in its first {self.at} answers"
        if candidates > self.at:
            terms = f"of {candidates} reranked"
            among = f"once {candidates} candidates are re-ranked"
        sentence = f"find {{}} of the {self.at} nearest {among}"
        return Measure(f"recall@{self.at}", terms, sentence, candidates)

    def tested_ladder(self, vectors: int) -> tuple[int, ...]:
        """Numbers of candidates in as many vectors of a sample, for a self-test."""
        alike = round(vectors * self.counted_candidates / self.n)
        return tuple(sorted({self.at, max(self.at, alike), max(self.at, vectors // 20)}))

    @property
    def ladder(self) -> tuple[int, ...]:
        """Numbers of candidates at which recall is predicted, from k to a quarter of n.

        >>> from dpindex import attribute
        >>> Goal(dim=384, n=20_000, adjacency=attribute(1.0), epsilon=8.0).ladder
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
