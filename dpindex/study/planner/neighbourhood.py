"""The seam of the planner: what a model of a vector's neighbourhood must be able to do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dpindex.base.arrays import AnyArray
from dpindex.base.display import Progress
from dpindex.base.errors import InputError, NoGuaranteeError
from dpindex.data import VectorSource
from dpindex.mechanism.method_table import Method, find_method
from dpindex.mechanism.method_table import methods as all_methods
from dpindex.mechanism.spec import Spec
from dpindex.privacy import Record
from dpindex.study.exposure import Exposure
from dpindex.study.plan_options import PlanOptions
from dpindex.study.planner.plan_result import Row
from dpindex.study.planner.public_sample import Facts, Sample, checked_source

__all__ = ["MAX_EPSILON", "Neighbourhood", "Request", "Stage", "methods_to_try", "require_method"]

MAX_EPSILON = 64.0

_CANDIDATES = 1000
"""Candidates of a plan for whole records, whose codes alone find few of the nearest."""


@dataclass(frozen=True)
class Request:
    """A plan that is asked for, with the public knowledge it is made from.

    Attributes
    ----------
    options : PlanOptions
    public : VectorSource or Facts
        Public vectors of the collection's kind, or facts about it.
    terms : mapping
        Fields of the specs other than method, dim, k and epsilon; delta among them.
    methods : sequence of str, optional
        Methods to consider; default all that fit.
    progress : callable
    groups : array, shape (m,), optional
        Of each public vector: see :class:`Sample`.
    queries : VectorSource, optional
        Public queries.
    """

    options: PlanOptions
    public: VectorSource | Facts
    terms: Mapping[str, Any]
    methods: Sequence[str] | None
    progress: Progress
    groups: AnyArray | None = None
    queries: VectorSource | None = None

    def sample(self, source: VectorSource, count: int) -> Sample:
        """Return at most so many public vectors, checked."""
        options = self.options
        checked_source(source, options.dim, options.n, options.skip_leak_check)
        return Sample.of(source, count, self.groups, self.queries)

    @property
    def candidates(self) -> int:
        """Answers of the codes that the owner of the vectors orders; k if nobody is expected to."""
        options = self.options
        if options.candidates is not None:
            return options.candidates
        if isinstance(self.terms.get("adjacency"), Record):
            return max(options.at, min(_CANDIDATES, options.n // 20))
        return options.at

    def value(self, row: Row) -> float:
        """Return the recall that methods are ranked by: in the query mode that is planned for."""
        return row.found(self.options.query).recall_within(self.candidates)

    def ranked(self, rows: Iterable[Row]) -> list[Row]:
        """Return the rows, best first."""
        return sorted(rows, key=self.value, reverse=True)

    def fits(self, bytes_per_vector: int) -> bool:
        """True if a code of that size is not too large."""
        return self.options.max_bytes is None or bytes_per_vector <= self.options.max_bytes

    def none_fits(self) -> NoGuaranteeError:
        """Return the error for codes that are all too large."""
        return NoGuaranteeError(f"no method makes codes of at most {self.options.max_bytes} bytes.")


class Stage(NamedTuple):
    """One bisection in the search for the smallest epsilon.

    Attributes
    ----------
    row_at : callable
        The prediction at an epsilon, given the best row so far.
    span : float
        Ratio of the largest to the smallest epsilon that is searched.
    steps : int
        Number of halvings.
    """

    row_at: Callable[[float, Row], Row]
    span: float
    steps: int


class Neighbourhood(ABC):
    """A model of the collection on which specs are tried.

    Parameters
    ----------
    request : Request

    Attributes
    ----------
    refused : tuple of str
        One sentence for each method or code length without a guarantee, or with too much noise for
        any code.
    sample_rows : int
        Vectors of the public sample that codewords were chosen among; 0 without codewords.
    sample_in_groups : bool
        Most vectors of the public sample have near duplicates in it.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self.refused: tuple[str, ...] = ()
        self.sample_rows = 0
        self.sample_in_groups = False

    @abstractmethod
    def ranked(self, epsilon: float) -> tuple[Row, ...]:
        """Return a row for each spec at that epsilon, best first."""

    @abstractmethod
    def quick_best(self, epsilon: float) -> Row:
        """Return the best of a few promising specs at that epsilon."""

    @abstractmethod
    def stages(self) -> tuple[Stage, ...]:
        """Return how the smallest epsilon for a recall is searched."""

    @abstractmethod
    def curves(self, rows: Sequence[Row]) -> tuple[tuple[Row, ...], ...]:
        """Return for each of the best methods its rows at several epsilons, ascending."""

    @abstractmethod
    def exposure(self, spec: Spec) -> Exposure:
        """Return what the codes of a spec are expected to reveal."""

    def contrast(self, epsilon: float) -> tuple[Row, ...]:
        """Return predictions under another adjacency, to compare with."""
        return ()


def methods_to_try(names: Sequence[str] | None) -> list[Method]:
    """Return the private methods of these names, without duplicates; without names all of them.

    Raises
    ------
    InputError
        For an unknown method and one that is not private.

    >>> [method.name for method in methods_to_try(["dp-oporp", "dp-oporp"])]
    ['dp-oporp']
    """
    if names is None:
        return [method for method in all_methods() if method.private]
    chosen = [find_method(name) for name in dict.fromkeys(names)]
    for method in chosen:
        if not method.private:
            raise InputError(f"{method.name} is not private, so there is nothing to plan with it.")
    return chosen


def require_method(admitted: Sequence[object], refused: Sequence[str]) -> None:
    """Raise InputError if no method is left, with the first reason."""
    if not admitted:
        reason = "."
        if refused:
            reason = f": {refused[0]}"
        raise InputError(f"no method has a guarantee under these terms{reason}")
