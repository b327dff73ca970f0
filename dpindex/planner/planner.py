"""Which method, which length, which epsilon: predicted from public knowledge alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse

from dpindex.checks import finite_number
from dpindex.errors import InputError
from dpindex.evaluate.ground_truth import source_of
from dpindex.index import QueryMode
from dpindex.planner.candidates import candidates
from dpindex.planner.explanation import reason, remarks
from dpindex.planner.facts import Facts
from dpindex.planner.leak_check import refuse_private
from dpindex.planner.population import Population, populate
from dpindex.planner.result import Plan, Row
from dpindex.planner.simulate import Ranking, Simulation
from dpindex.privacy import Adjacency, attribute
from dpindex.privatizer import Privatizer
from dpindex.spec import Spec
from dpindex.vectors import VectorSource

__all__ = ["Progress", "plan"]

Progress: TypeAlias = Callable[[int, int, str], None]
"""Called with (predictions done, predictions in all, what is predicted now)."""

_MIN_ROWS, _MAX_ROWS = 500, 2000
_MIN_VECTORS = 500
_MAX_DIM = 4096
_QUICK_ROUNDS = 4
_LEARNED_NUMBERS = 1 << 24
"""Numbers that a finalist's denoiser learns from: as many rows as a minute allows."""

_FINALISTS = 2
_ENOUGH = 0.99
"""Where a method is predicted to find as much, none is looked at more closely."""

_EVEN = 0.01
"""Predictions that differ by less than this part are called even: the shorter code wins."""

_MIN_EPSILON, _MAX_EPSILON = 0.05, 64.0
_COARSE_STEPS, _FINE_STEPS = 6, 4
_CONTENDERS = 5


def plan(
    *,
    dim: int,
    n: int,
    epsilon: float | None = None,
    recall: float | None = None,
    public_sample: Any | None = None,
    facts: Facts | None = None,
    query: QueryMode = "private",
    delta: float = 0.0,
    adjacency: Adjacency | None = None,
    scale: float = 1.0,
    bounds: tuple[float, float] = (-1.0, 1.0),
    clip: bool = False,
    norm: float | None = None,
    max_bytes: int | None = None,
    methods: Sequence[str] | None = None,
    skip_leak_check: bool = False,
    progress: Progress | None = None,
) -> Plan:
    """Predict what each method would find in a collection, and recommend one.

    Think of it as a rehearsal in public: the mechanisms run on public vectors that stand for the
    private ones, which are never looked at. The one warning: whoever passes a ``public_sample``
    says that it is public; parameters chosen by looking at private data leak.

    Parameters
    ----------
    dim, n : int
        Attributes of a vector; vectors in the collection, [500, ∞).
    epsilon : float, optional
        The budget that is thought of; or else
    recall : float, optional
        The precision@10 wanted, (0, 1): the plan is for the least epsilon that reaches it.
    public_sample : array, sparse matrix or VectorSource, optional
        At least 500 public vectors of the collection's kind; 2000 of them are used.
    facts : Facts, optional
        Instead of a sample.
    query : "private" or "exact"
        The queries that are planned for; both are predicted.
    delta, adjacency, scale, bounds, clip, norm
        As in :class:`dpindex.Spec`; with delta 0 only pure methods are considered.
    max_bytes : int, optional
        Bytes that a published code may have.
    methods : sequence of str, optional
        Methods to consider; by default all that give DP.
    skip_leak_check : bool
        Go on even where the sample looks like the private vectors themselves.
    progress : callable, optional

    Raises
    ------
    InputError
        For terms that contradict each other or leave no method, a sample that is too small or
        looks private, and a recall that no epsilon up to 64 reaches.

    >>> facts = Facts(norm=4.0, neighbour_cosine=0.9, typical_cosine=0.4)
    >>> outcome = plan(dim=16, n=5000, epsilon=4.0, facts=facts, bounds=(-4, 4),
    ...                methods=["raw-staircase", "dp-signoporp-rr"])
    >>> outcome.recommended.spec.method
    'raw-staircase'
    """
    _check(dim, n, epsilon, recall, query, max_bytes)
    if (public_sample is None) == (facts is None):
        raise InputError("give a public sample or public facts, one of the two, to plan with.")
    common: dict[str, Any] = {
        "delta": delta,
        "adjacency": attribute(1.0) if adjacency is None else adjacency,
        "scale": scale,
        "bounds": bounds,
        "clip": clip,
        "norm": norm,
    }
    terms = _Terms(dim, methods, max_bytes, common)
    first = terms.specs(_MAX_EPSILON if epsilon is None else epsilon)[0]
    if facts is not None:
        sample = np.clip(facts.sample(dim), *first.bounds) * np.float32(first.scale)
    else:
        source = source_of(public_sample, "the public sample")
        if source.shape[1] != dim:
            raise InputError(f"{source.name} has {source.shape[1]} columns, not dim = {dim}.")
        if source.shape[0] < _MIN_ROWS:
            raise InputError(
                f"{source.name} has {source.shape[0]} rows; a plan needs at least {_MIN_ROWS} "
                f"public vectors, or facts."
            )
        if not skip_leak_check:
            refuse_private(source, n)
        sample = _picked(source)
        Privatizer(first).check(sample)
    limits = (first.bounds[0] * first.scale, first.bounds[1] * first.scale)
    nearness = None if facts is None else facts.neighbour_cosine
    rehearsal = _Rehearsal(terms, populate(sample, n, limits, nearness), query, progress)
    if epsilon is None:
        epsilon = rehearsal.needed(float(recall or 0.0))
    rows = rehearsal.rows(epsilon)
    return Plan(
        rows=rows,
        query=query,
        n=n,
        why=reason(rows, query),
        remarks=remarks(rows, query, facts is not None),
        refused=(*terms.grid(epsilon).refused, *rehearsal.refused),
    )


def _check(
    dim: int,
    n: int,
    epsilon: float | None,
    recall: float | None,
    query: str,
    max_bytes: int | None,
) -> None:
    if (epsilon is None) == (recall is None):
        raise InputError("give an epsilon or a wanted recall, one of the two.")
    if recall is not None and not 0.0 < finite_number(recall, "the recall") < 1.0:
        raise InputError(f"the recall must lie between 0 and 1, not be {recall!r}.")
    if query not in ("private", "exact"):
        raise InputError(f"query must be 'private' or 'exact', not {query!r}.")
    for value, name, least in ((dim, "dim", 2), (n, "n", _MIN_VECTORS), (max_bytes, "bytes", 1)):
        if value is not None and (not isinstance(value, int | np.integer) or value < least):
            raise InputError(f"{name} must be a whole number of at least {least}, not {value!r}.")
    if dim > _MAX_DIM:
        raise InputError(
            f"vectors of {dim} attributes are too wide to rehearse with; the planner goes up to "
            f"{_MAX_DIM}."
        )


def _picked(source: VectorSource) -> Any:
    """At most 2000 rows, evenly spread, as dense float32."""
    wanted = np.linspace(0, source.shape[0] - 1, min(source.shape[0], _MAX_ROWS)).astype(np.int64)
    parts = []
    for start, chunk in source.chunks(4 * _MAX_ROWS):
        part = chunk[wanted[(wanted >= start) & (wanted < start + chunk.shape[0])] - start]
        parts.append(part.toarray() if scipy.sparse.issparse(part) else part)
    return np.concatenate(parts).astype(np.float32)


@dataclass(frozen=True)
class _Terms:
    """What all candidates have in common."""

    dim: int
    methods: Sequence[str] | None
    max_bytes: int | None
    common: dict[str, Any]

    def grid(self, epsilon: float) -> Any:
        return candidates(self.dim, self.methods, epsilon, self.max_bytes, **self.common)

    def specs(self, epsilon: float) -> tuple[Spec, ...]:
        grid = self.grid(epsilon)
        if not grid.specs:
            why = f": {grid.refused[0]}" if grid.refused else "."
            raise InputError(f"no method has a guarantee under these terms{why}")
        return tuple(grid.specs)


class _Rehearsal:
    """Predictions over one population, and what was learned of who is worth a closer look."""

    def __init__(
        self, terms: _Terms, people: Population, query: QueryMode, progress: Progress | None
    ) -> None:
        self._terms, self._people, self._query = terms, people, query
        self._progress = progress or (lambda done, total, what: None)
        self.refused: dict[str, None] = {}

    def rows(self, epsilon: float) -> tuple[Row, ...]:
        """All candidates at that epsilon, best first, the most promising with their denoisers."""
        rows = self._ordered(self._quick(self._terms.specs(epsilon), _FINALISTS))
        if not rows:
            raise InputError(_nothing_left(self._terms.max_bytes, self.refused))
        for i, row in enumerate(finalists := _finalists(rows)):
            if max(map(self._value, rows)) > _ENOUGH:
                break
            done = len(rows) + i
            self._progress(done, len(rows) + len(finalists), _task(row.spec, "denoised"))
            rows[rows.index(row)] = self._closer(row)
        self._progress(1, 1, "done")
        rows = self._ordered(rows)
        even = [r for r in rows if self._value(r) >= (1 - _EVEN) * self._value(rows[0])]
        best = min(even, key=lambda row: row.bytes_per_vector)
        return (best, *(row for row in rows if row is not best))

    def needed(self, recall: float) -> float:
        """The least epsilon at which the best method finds that much, to two digits."""
        middle = self._ordered(self._quick(self._terms.specs(4.0)))
        contenders = [row.spec for row in middle[:_CONTENDERS]]

        def coarse(epsilon: float) -> Row:
            return self._ordered(self._quick([s.with_epsilon(epsilon) for s in contenders]))[0]

        top = coarse(_MAX_EPSILON)
        if self._value(top) < recall:
            raise InputError(
                f"a recall of {recall:g} is out of reach: at epsilon = {_MAX_EPSILON:g}, "
                f"{top.method} is put at {self._value(top):.2f}; ask for less."
            )
        high, best = _least(
            coarse, self._value, recall,
            (_MIN_EPSILON, _MAX_EPSILON), _COARSE_STEPS, top,
        )  # fmt: skip
        # A better denoiser needs less: how much less, the best of the coarse search tells.
        epsilon, _ = _least(
            lambda e: self._closer(replace(best, spec=best.spec.with_epsilon(e)), _QUICK_ROUNDS),
            self._value, recall, (high / 4, high), _FINE_STEPS, best,
        )  # fmt: skip
        digits = 10.0 ** (1 - math.floor(math.log10(epsilon)))
        return math.ceil(epsilon * digits) / digits

    def _value(self, row: Row) -> float:
        return row.precision(self._query)

    def _ordered(self, rows: Sequence[Row]) -> list[Row]:
        return sorted(rows, key=self._value, reverse=True)

    def _quick(self, specs: Sequence[Spec], more: int = 0) -> list[Row]:
        rows, most = [], self._terms.max_bytes
        for i, spec in enumerate(specs):
            self._progress(i, len(specs) + more, _task(spec))
            simulation = Simulation(spec, self._people, _QUICK_ROUNDS)
            try:
                size = simulation.bytes_per_vector
            except InputError as error:  # noise that no code can hold, at this epsilon
                self.refused[f"{spec.method}, k = {spec.code_length}: {error}"] = None
                continue
            if most is None or size <= most:
                rows.append(self._row(simulation, ("plain", "linear")))
        return rows

    def _closer(self, row: Row, max_rounds: int = 64) -> Row:
        """The row anew, with the denoiser that ``fit_denoiser()`` would choose."""
        far = len(self._people.far)
        rounds = max(1, min(max_rounds, _LEARNED_NUMBERS // (far * row.k), int(self._people.per)))
        return self._row(Simulation(row.spec, self._people, rounds), ("plain", "auto"))

    def _row(self, simulation: Simulation, rankings: tuple[Ranking, ...]) -> Row:
        tried = {ranking: simulation.predict(ranking) for ranking in rankings}
        found = {ranking: p for ranking, p in tried.items() if p is not None}
        ranking = max(found, key=lambda r: getattr(found[r], self._query))
        return Row(
            spec=simulation.spec,
            ranking=ranking,
            private=found[ranking].private,
            exact=found[ranking].exact,
            bytes_per_vector=simulation.bytes_per_vector,
            noise=simulation.noise,
        )


def _nothing_left(max_bytes: int | None, refused: Iterable[str]) -> str:
    for sentence in refused:
        return f"no method is left at this epsilon: {sentence}"
    return f"no method makes codes of at most {max_bytes} bytes."


def _finalists(rows: Sequence[Row]) -> list[Row]:
    """The best of each of the first methods whose noise has a shape that can be made use of."""
    best: dict[str, Row] = {}
    for row in rows:
        if row.spec.mechanism.codes == "numbers":
            best.setdefault(row.method, row)
    return list(best.values())[:_FINALISTS]


def _least(
    predict: Callable[[float], Row],
    value: Callable[[Row], float],
    recall: float,
    between: tuple[float, float],
    steps: int,
    best: Row,
) -> tuple[float, Row]:
    """The least epsilon that reaches ``recall``, by halving its logarithm, and the row there."""
    low, high = (math.log(epsilon) for epsilon in between)
    for _ in range(steps):
        middle = (low + high) / 2
        row = predict(math.exp(middle))
        if value(row) >= recall:
            high, best = middle, row
        else:
            low = middle
    return math.exp(high), best


def _task(spec: Spec, how: str = "") -> str:
    return f"{spec.method}, k = {spec.code_length}, ε = {spec.budget:.3g}" + (how and f", {how}")
