"""Predict what each method finds at an epsilon, by trials on public vectors, and recommend one."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from dpindex.base.arrays import (
    Vectors,
    checked_epsilon,
    finite_number,
    idle_cores,
    in_units_of_largest,
    issparse,
    limited_threads,
    share_cores,
    unit,
    whole_number,
)
from dpindex.base.display import Progress, no_progress
from dpindex.base.errors import InputError, NoGuaranteeError
from dpindex.data import VectorSource, as_source
from dpindex.index.search import QueryMode
from dpindex.mechanism.codes import SignFormat
from dpindex.mechanism.method_table import Method, find_method
from dpindex.mechanism.method_table import methods as all_methods
from dpindex.mechanism.noise.additive import AdditiveNoise
from dpindex.mechanism.noise.signs import FlipsByLevel
from dpindex.mechanism.optimiser import design, usual_length
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.public_parts import Codebook, Design
from dpindex.mechanism.spec import Spec
from dpindex.privacy import Attribute, Record, VectorAdjacency, l2, record
from dpindex.similarity.similarity import Metric
from dpindex.study.planner.codebook_plan import CodebookPlan, promising_subsets
from dpindex.study.planner.plan_result import FOUND, AttackFigures, Plan, Row
from dpindex.study.planner.population import (
    MAX_DENSE_DIM,
    NEIGHBOURS,
    Population,
    checked_sample,
    clipped,
    has_near_duplicates,
    numbered_groups,
    sample_rows,
)
from dpindex.study.planner.prediction import noise_share, predicted_rows
from dpindex.study.specs import spec_grid
from dpindex.study.trial import Trial

_MAX_EPSILON = 64.0
_MIN_EPSILON = 0.05
# Bisections of epsilon: the ratio of the ends, their number, and whether denoisers are fitted.
_BISECTIONS = ((_MAX_EPSILON / _MIN_EPSILON, 6, False), (4.0, 4, True))
_MIDDLE_EPSILON = 4.0
# Candidates of a plan for whole records, whose codes alone find few of the nearest.
_CANDIDATES = 1000
# Specs are compared on few queries and codes first. Those within so many standard errors of the
# best, as if a query found all or nothing, are predicted from more.
_SCREENING_QUERIES = 50
_SCREENING_ROUNDS = 2
_MARGIN = 1.5
_QUERIES = 250
_ROUNDS = 4
_CONTENDERS = 5
# Vectors of the sample that are used: more of a table, whose near vectors differ little.
_MIN_ROWS = 2000
_MAX_ROWS = 1 << 13
_SAMPLE_NUMBERS = 1 << 20
_MAX_CODEBOOK = 1 << 16
# Codes that the denoiser of a finalist is fitted to: for each coordinate, at least, and at most
# numbers in them. With 10 to 13 of each coordinate of a picture .11 too little was promised, with
# 38 .03 too much: they are codes of few vectors, which a denoiser comes to know.
_FITTED_PER_COORDINATE = 25
_FITTED_CODES = 10_000
_FITTED_NUMBERS = 1 << 24
_FINALISTS = 2
# Bounds are narrowed to the middle of the sample's values, where these lie within such a share of a
# change, up to an epsilon beyond which noise costs less than clipping.
_MIDDLE = (0.125, 0.875)
_NARROW = 0.4
_NARROW_UP_TO = 8.0
# Vectors of the sample for a softmax codebook, which play the collection too.
_CODEBOOK_ROWS = 1 << 12
# A denoiser finds such a share of what is missed without it, or a quarter more, or it is left out:
# on tables, luck in its fit moves as much.
_WORTH_OF_MISSED = 0.06
_WORTH_OF_FOUND = 0.25
# Codes of less signal tell less than half a nat about a vector (Shannon 1948), where one among a
# hundred takes five: they find nothing, and are tried only if all are such.
_MIN_SNR = 1.0
# Code lengths that are tried.
_WIDE_LENGTHS = {256, 512, 1024}
_RECORD_LENGTHS = (64, 128, 256, 512)
_MIN_BINS = 8
# Radius 2 holds any two vectors of norm 1, so the epsilon of this method is comparable there.
_CONTRAST = "raw-gaussian"

_Denoise = Literal["linear", "auto"]
_T = TypeVar("_T")
_R = TypeVar("_R")


@limited_threads(1)  # several specs at once use the processors better than BLAS does
def plan(
    public: Any,
    *,
    dim: int,
    n: int,
    adjacency: VectorAdjacency,
    epsilon: float | None = None,
    recall: float | None = None,
    candidates: int | None = None,
    at: int = FOUND,
    query: QueryMode = "exact",
    metric: Metric = "cosine",
    max_bytes: int | None = None,
    methods: Sequence[str] | None = None,
    groups: Any | None = None,
    public_queries: Any | None = None,
    scale: float = 1.0,
    bounds: tuple[float, float] = (-1.0, 1.0),
    clip: bool = False,
    norm: float | None = None,
    min_norm: float | None = None,
    delta: float = 0.0,
    repetitions: int = 1,
    entries: str | None = None,
    sparsity: int | None = None,
    seed: int = 0,
    curves: bool = False,
    skip_leak_check: bool = False,
    progress: Progress | None = None,
) -> Plan:
    """Predict what each method would find in a collection, and recommend one.

    Codes of public vectors are built and searched as the evaluator does it with the vectors
    themselves, which are never looked at. Whoever passes vectors as ``public`` states that they
    are: parameters that are chosen by looking at private data reveal something about them.

    Parameters
    ----------
    public : array, sparse matrix or VectorSource, shape (m, dim)
        At least 500 public vectors of the collection's kind; up to 2000 of them are used,
        and of less than 524 attributes as many as have a million numbers, up to 8192. Under
        ``adjacency=record()`` up to 65 536 of them may become codewords.
    dim, n : int
        Attributes of a vector, [2, 2^31), or at most 4096 under ``record()``; vectors in the
        collection, [500, 2^40].
    adjacency : Attribute, L2 or Record
        What neighbouring vectors may differ in: the promise.
    epsilon : float, optional
        Target epsilon.
    recall : float, optional
        Target recall@k of the true k, (0, 1), with k = ``at``. Instead of an epsilon: the plan is
        for the smallest epsilon that reaches it. With an epsilon: for the fewest candidates that
        do.
    candidates : int, optional
        Answers of the codes that the owner of the vectors is to put in order, [k, n]: see
        ``search(candidates=…)``. Recall is counted after that. Default under ``record()`` 1000, or
        5 % of the collection if that is less; otherwise k, which is a search of codes alone.
    at : int
        k: answers, and true neighbours, that recall counts, [1, 50]. Methods are ranked by it.
    query : "exact" or "private"
        The query mode to plan for. Both are predicted.
    metric : "cosine" or "l2"
        What neighbours are ranked by, of the vectors and of their codes. The two orders differ
        where lengths do, as in tables. "l2" takes a dense public sample.
    max_bytes : int, optional
        Maximum size of a published code, [1, 2^20].
    methods : sequence of str, optional
        Methods to consider; default all that give DP for the published projection. What promises
        less, a delta over the projection too or individual DP, must be named.
    groups : array, shape (m,), optional
        A label of each public vector. Vectors of one label resemble each other more than others do,
        such as captions of one picture. Queries are taken to have no siblings in the collection.
    public_queries : array, sparse matrix or VectorSource, optional
        Public vectors like the queries, where those differ from vectors of the collection.
    scale, bounds, clip, norm, min_norm, delta, repetitions, entries, sparsity, seed
        As of :class:`dpindex.Spec`. With ``clip`` neighbours are those of the clipped vectors. With
        a delta of 0 methods that need one are not considered. Under ``record()`` the delta is for
        Gaussian noise of radius 2, which is shown for contrast, and the others must be left out.
    curves : bool
        Predict the best methods at other epsilons too, from a quarter of the plan's to four times
        as much, for a plot.
    skip_leak_check : bool
        Accept a sample that looks like the private vectors themselves.
    progress : callable, optional
        Called with (predictions done, predictions in all, what is predicted now).

    Raises
    ------
    InputError
        For contradictory options, terms that no method can meet, a sample that is too small or
        looks private, and a recall that no epsilon up to 64 reaches.

    >>> import numpy as np
    >>> from dpindex import attribute
    >>> public = np.random.default_rng(0).uniform(-1, 1, (600, 16))
    >>> outcome = plan(public, dim=16, n=5000, epsilon=60.0, adjacency=attribute(1.0),
    ...                methods=["raw-staircase", "dp-signoporp-rr"])
    >>> outcome.best.method
    'raw-staircase'
    """
    target = Target(
        dim, n, adjacency, epsilon, recall, candidates, at, query, metric, max_bytes, methods
    )
    terms = {
        "scale": scale, "bounds": bounds, "clip": clip, "norm": norm, "min_norm": min_norm,
        "delta": delta, "repetitions": repetitions, "entries": entries, "sparsity": sparsity,
        "seed": seed,
    }  # fmt: skip
    source = as_source(public, "the public sample")
    checked_sample(source, dim, n, skip_leak_check)
    queries = None
    if public_queries is not None:
        queries = as_source(public_queries, "the public queries")
        if queries.shape[1] != dim:
            raise InputError(f"{queries.name} has {queries.shape[1]} columns, not dim = {dim}.")
    kind = _RecordPlanner if isinstance(adjacency, Record) else _AttributePlanner
    planner = kind(target, terms, progress or no_progress, source, groups, queries)
    chosen = epsilon or _smallest_epsilon(planner, target)
    rows = planner.ranked(chosen)
    counted = target.counted_candidates
    if epsilon is not None and recall is not None:
        counted = _fewest_candidates(rows, target)
        rows = tuple(sorted(rows, key=lambda row: -row.found(query).recall_within(counted)))
    return Plan(
        rows=(planner.to_publish(rows[0]), *rows[1:]),
        query=query,
        n=n,
        at=at,
        metric=metric,
        candidates=counted,
        shown_candidates=target.shown_candidates,
        refused=tuple(planner.refused),
        contrast=planner.contrast(chosen),
        sample_rows=source.shape[0],
        sample_in_groups=planner.sample_in_groups,
        curves=planner.curves(rows) if curves else (),
        attacks=planner.attacks(rows[0].spec),
        narrowed=rows[0].spec.bounds != bounds,
    )


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


class _Planner(ABC):
    """Specs that are tried on public vectors under one kind of adjacency."""

    sample_in_groups = False
    even_share = 0.0
    """Among predictions that differ by less than this share, the shortest code is recommended."""

    def __init__(self, target: Target, terms: dict[str, Any], progress: Progress) -> None:
        self._target = target
        self._terms = terms
        self._progress = progress
        self._workers = idle_cores()
        self.refused: list[str] = []
        """One sentence for each method or code length without a guarantee, or with too much noise
        for any code."""

    @abstractmethod
    def specs(self, epsilon: float) -> Sequence[Spec]:
        """Return the specs to try at an epsilon."""

    @abstractmethod
    def screened(self, specs: Sequence[Spec]) -> list[Row]:
        """Return rows of the specs whose codes fit, from few trials, best first."""

    @abstractmethod
    def refined(self, row: Row, *, denoise: bool = False) -> Row:
        """Return the row from more trials, with the best denoiser if that is worth trying."""

    @abstractmethod
    def attacks(self, spec: Spec) -> AttackFigures:
        """Return what attacks on codes of public vectors find."""

    def contrast(self, epsilon: float) -> tuple[Row, ...]:
        """Return rows under another adjacency, to compare with."""
        return ()

    def to_publish(self, row: Row) -> Row:
        """Return the row with its public parameters made of the whole sample."""
        return row

    def ranked(self, epsilon: float) -> tuple[Row, ...]:
        """Return a row for each spec, best first, of which those near the best are refined."""
        value = self._target.value
        screened = self.screened(self.specs(epsilon))
        best = value(screened[0])
        # A row may be better in truth by a margin: of a query that finds all or nothing.
        chance = (best * _SCREENING_QUERIES + 1.0) / (_SCREENING_QUERIES + 2.0)
        margin = _MARGIN * math.sqrt(chance * (1.0 - chance) / _SCREENING_QUERIES)
        promising = [row for row in screened if value(row) > 0.0] or screened
        # Denoisers of the kind "score" are worth more codes.
        denoisable = [row for row in promising if "score" in row.spec.format_type.denoisers]
        finalists = list({row.method: row for row in reversed(denoisable)}.values())
        finalists = self._target.ranked(finalists)[:_FINALISTS]
        leaders = [row for row in promising if value(row) >= best - margin and row not in finalists]
        rows = [row for row in screened if row not in (*leaders, *finalists)]
        self._progress(len(rows), len(screened), "the best of them, in more detail")
        rows += self._parallel(lambda row: self.refined(row, denoise=True), finalists)
        rows += self._parallel(self.refined, leaders)
        rows = self._target.ranked(rows)
        even = [row for row in rows if value(row) >= (1 - self.even_share) * value(rows[0])]
        shortest = min(even, key=lambda row: row.bytes_per_vector)
        return (shortest, *(row for row in rows if row is not shortest))

    def quick_best(self, epsilon: float) -> Row:
        """Return the best of the methods and lengths that are promising at a middle epsilon."""
        return self.screened(self._at_epsilon(epsilon))[0]

    def curves(self, rows: Sequence[Row]) -> tuple[tuple[Row, ...], ...]:
        """Return for each of the best methods its rows from a quarter of the epsilon to 4 times."""
        lines: dict[str, list[Row]] = {}
        best = {row.method: row for row in reversed(rows)}
        leaders = [row.method for row in self._target.ranked(best.values())][:_CONTENDERS]
        planned = rows[0].spec.budget
        for epsilon in (planned * 2.0**i for i in range(-2, 3)):
            if not 0.001 <= epsilon <= _MAX_EPSILON:
                continue
            for method in leaders:
                row = best[method]
                if epsilon != planned:
                    try:
                        row = self.screened(self._like(row.spec, epsilon))[0]
                    except NoGuaranteeError:  # noise that no code can hold
                        continue
                lines.setdefault(method, []).append(row)
        return tuple(tuple(line) for line in lines.values())

    @abstractmethod
    def _like(self, spec: Spec, epsilon: float) -> Sequence[Spec]:
        """Return the specs of the same method and length at another epsilon."""

    @cached_property
    def _contenders(self) -> list[Spec]:
        """The best specs of a middle epsilon."""
        rows = self.screened(self.specs(_MIDDLE_EPSILON))
        return [row.spec for row in rows[:_CONTENDERS]]

    def _at_epsilon(self, epsilon: float) -> list[Spec]:
        return [spec for like in self._contenders for spec in self._like(like, epsilon)]

    def _parallel(self, work: Callable[[_T], _R], tasks: Iterable[_T]) -> Iterator[_R]:
        """Yield what ``work`` returns for each task, in order."""
        with ThreadPoolExecutor(self._workers, initializer=share_cores) as pool:
            yield from pool.map(work, tasks)


class _AttributePlanner(_Planner):
    """Plans for neighbours that differ in an attribute, or within a radius."""

    even_share = 0.01

    def __init__(
        self,
        target: Target,
        terms: dict[str, Any],
        progress: Progress,
        source: VectorSource,
        groups: Any | None,
        queries: VectorSource | None,
    ) -> None:
        super().__init__(target, terms, progress)
        self._terms = {**terms, "adjacency": target.adjacency}
        if target.metric == "l2" and target.dim > MAX_DENSE_DIM:
            raise InputError("a plan for l2 takes a dense public sample.")
        count = min(max(_SAMPLE_NUMBERS // target.dim, _MIN_ROWS), _MAX_ROWS)
        vectors = sample_rows(source, count)
        self._source = source
        self._designed_of = vectors[::2]
        self._design = lru_cache(maxsize=None)(self._new_design)
        self._codebook_rows = sample_rows(source, min(_CODEBOOK_ROWS, target.n))
        self._narrow = self._narrow_bounds(vectors)
        first = self.specs(target.epsilon or _MIDDLE_EPSILON)[0]

        def as_published(rows: Vectors) -> Vectors:
            # Where the plan alone narrows the bounds, neighbours are those of unclipped vectors.
            if not terms["clip"]:
                return rows
            low, high = (first.scale * bound for bound in first.bounds)
            return clipped(rows, low, high)

        vectors = as_published(vectors)
        Privatizer(first).check(vectors)
        asked: Any = _QUERIES
        if queries is not None:
            asked = as_published(sample_rows(queries, _QUERIES))
        labels = numbered_groups(groups, source, count)
        self._population = Population(vectors, target.n, asked, groups=labels, metric=target.metric)
        # Designs are made of one half of the sample, and tried on the other.
        others = None if labels is None else labels[1::2]
        self._unseen = Population(
            vectors[1::2], target.n, asked, groups=others, metric=target.metric
        )
        rows = self._codebook_rows.shape[0]
        labels = numbered_groups(groups, source, rows)
        self._of_codewords = Population(
            as_published(self._codebook_rows), target.n, asked, groups=labels
        )

    def _narrow_bounds(self, vectors: Vectors) -> dict[str, Any]:
        """Return terms that clip to the middle of the sample's values, if that is worth much.

        A change is no wider than the bounds, and noise is as wide as a change, while the order of
        cosines hardly depends on the size of large values (binary embeddings keep signs alone).
        """
        target = self._target
        stated = self._terms["clip"] or self._terms["min_norm"] is not None
        if stated or issparse(vectors) or not isinstance(target.adjacency, Attribute):
            return {}
        scaled = np.quantile(vectors, _MIDDLE) / self._terms["scale"]
        lower, upper = (float(f"{bound:.2g}") for bound in scaled)
        width = upper - lower
        if not 0 < width < _NARROW * target.adjacency.largest_change(self._terms["bounds"]):
            return {}
        return {"bounds": (lower, upper), "clip": True, "norm": None}

    def _terms_at(self, epsilon: float) -> dict[str, Any]:
        if epsilon > _NARROW_UP_TO:
            return self._terms
        return {**self._terms, **self._narrow}

    def specs(self, epsilon: float) -> list[Spec]:
        """Return specs of all methods with a guarantee under these terms, at several lengths.

        Without names of methods they are those that give DP for the published projection.
        """
        target = self._target
        terms = self._terms_at(epsilon)
        specs: list[Spec] = []
        refused: list[str] = []
        for method in _methods_to_try(target.methods):
            if target.methods is None and method.definition != "DP":
                continue
            if target.metric not in method.calibration.format.metrics:
                refused.append(f"{method.name} has no codes that are ranked by {target.metric}.")
                continue
            sparse = method.family.bins or method.family.blocks
            if target.dim > MAX_DENSE_DIM and not (sparse or terms["entries"] == "very-sparse"):
                refused.append(f"{method.name} is not planned above {MAX_DENSE_DIM} attributes.")
                continue
            if method.family.public is not None:
                specs += self._of_sample(method, epsilon, refused)
                continue
            grid = spec_grid(target.dim, [method.name], [epsilon], **terms)
            over_projection = any(spec.guarantee.delta_over == "projection" for spec in grid.specs)
            if target.methods is None and over_projection:
                continue
            if grid.specs:
                lengths = _lengths(grid.specs[0], target.max_bytes)
                grid = spec_grid(target.dim, [method.name], [epsilon], lengths, **terms)
            specs += grid.specs
            refused += grid.refused
        _require_method(specs, refused)
        self.refused = refused
        return specs

    def _of_sample(self, method: Method, epsilon: float, refused: list[str]) -> list[Spec]:
        """Return specs with designs of two lengths or a codebook; note why if there are none."""
        target = self._target
        delta = self._terms["delta"] if method.needs_delta else 0.0
        if target.adjacency.kind not in method.adjacencies or (method.needs_delta and not delta):
            refused.append(
                f"{method.name} has no guarantee under {target.adjacency} and delta = {delta:g}."
            )
            return []
        if method.family.public is Codebook:
            try:
                book = Codebook(self._codebook_rows)
            except InputError as error:
                refused.append(f"{method.name}: {error}")
                return []
            terms = {**self._terms_at(epsilon), "codebook": book}
            grid = spec_grid(target.dim, [method.name], [epsilon], **terms)
            refused += grid.refused
            return list(grid.specs)
        code = method.calibration.format
        signs = issubclass(code, SignFormat)
        usual = usual_length(epsilon, target.dim)
        lengths = {usual, min(2 * usual, target.dim)}
        if target.max_bytes is not None:
            longest = max(8 * target.max_bytes // bits for bits in code.coordinate_bits)
            lengths = {min(k, longest) for k in lengths if longest > 0}
        specs: list[Spec] = []
        for k in sorted(lengths, reverse=True):
            made = self._design(k, epsilon, delta, signs)
            grid = spec_grid(
                target.dim, [method.name], [epsilon], design=made, **self._terms_at(epsilon)
            )
            specs += grid.specs
            refused += grid.refused
        return specs

    def _new_design(
        self, k: int, epsilon: float, delta: float, signs: bool, whole: bool = False
    ) -> Design:
        """Return a design of half of the sample, or of the whole."""
        bounds = self._terms_at(epsilon)["bounds"]
        return design(
            self._source if whole else self._designed_of,
            epsilon=epsilon,
            beta=self._target.adjacency.largest_change(bounds),
            code_length=k,
            delta=delta,
            signs=signs,
            scale=self._terms["scale"],
        )

    def to_publish(self, row: Row) -> Row:
        spec = row.spec
        if spec.design is None:
            return row
        made = self._design(row.k, spec.budget, spec.delta, row.signs, whole=True)
        return replace(row, spec=replace(spec, design=made))

    def _population_of(self, spec: Spec) -> Population:
        if spec.codebook is not None:
            return self._of_codewords
        return self._population if spec.design is None else self._unseen

    def screened(self, specs: Sequence[Spec]) -> list[Row]:
        """Return rows of the specs whose codes fit, best first, with linear denoisers.

        Of codes that differ in their noise alone, those with the least are denoised.

        Raises
        ------
        NoGuaranteeError
            If no spec is left.
        """
        target = self._target
        unfit: list[str] = []
        noises: dict[Spec, float] = {}

        def noise_of(spec: Spec) -> float | str:
            try:
                return noise_share(spec, self._population.queries[:_SCREENING_QUERIES])
            except NoGuaranteeError as error:  # noise that no code can hold
                return f"{spec.method}, k = {spec.code_length}: {error}"

        for spec, noise in zip(specs, self._parallel(noise_of, specs), strict=True):
            if isinstance(noise, str):
                unfit.append(noise)
            else:
                noises[spec] = noise
        ratios = {spec: spec.format.signal_to_noise(noise) for spec, noise in noises.items()}
        least = min(_MIN_SNR, max(ratios.values(), default=0.0))
        rows = [
            Row.found_nothing(spec, noises[spec], target.ladder)
            for spec in noises
            if ratios[spec] < least
        ]
        groups: dict[Any, list[Spec]] = defaultdict(list)
        above_noise = [spec for spec in noises if ratios[spec] >= least]
        for spec in sorted(above_noise, key=lambda spec: (-spec.code_length, noises[spec])):
            law: object = spec.method
            if isinstance(spec.law, AdditiveNoise | FlipsByLevel):
                law = type(spec.law)
            length = spec.code_length
            groups[law, type(spec.projection), length, spec.repetitions].append(spec)

        def predicted(alike: list[Spec]) -> list[Row]:
            kinds: list[_Denoise | None] = ["linear", *[None] * (len(alike) - 1)]
            return [
                self._row(spec, _SCREENING_QUERIES, _SCREENING_ROUNDS, kind)
                for spec, kind in zip(alike, kinds, strict=True)
            ]

        for several in self._parallel(predicted, groups.values()):
            spec = several[0].spec
            task = f"{spec.method}, k = {spec.code_length}, ε = {spec.budget:.3g}"
            self._progress(len(rows), len(specs), task)
            rows += several
        self.refused += [sentence for sentence in unfit if sentence not in self.refused]
        if not rows and unfit:
            raise NoGuaranteeError(f"no method is left at this epsilon: {unfit[0]}")
        fitting = target.fitting(rows)
        if not fitting:
            raise target.none_fits()
        return target.ranked(fitting)

    def refined(self, row: Row, *, denoise: bool = False) -> Row:
        rows = self._population_of(row.spec).vectors.shape[0]
        if not denoise:
            kind = None if row.ranking == "plain" else row.ranking
            return self._row(row.spec, _QUERIES, max(_ROUNDS, _FITTED_CODES // rows), kind)
        length = row.spec.code_length
        codes = max(_FITTED_CODES, _FITTED_PER_COORDINATE * length)
        rounds = max(1, min(codes, _FITTED_NUMBERS // length) // rows)
        return self._row(row.spec, _QUERIES, rounds, "auto")

    def _row(self, spec: Spec, queries: int, rounds: int, kind: _Denoise | None) -> Row:
        """Return the row of codes as they are, or of denoised ones if those are worth it."""
        target = self._target
        population = self._population_of(spec).of_queries(queries)
        rows = predicted_rows(spec, population, rounds, target.at, target.ladder, kind)
        is_worth = is_worth_denoising(target.value(rows[0]), target.value(rows[-1]))
        return rows[-1] if is_worth else rows[0]

    def _like(self, spec: Spec, epsilon: float) -> Sequence[Spec]:
        if spec.design is not None:
            return self._of_sample(spec.method_row, epsilon, [])[:1]
        with suppress(NoGuaranteeError):
            return [spec.with_epsilon(epsilon)]
        return []

    def attacks(self, spec: Spec) -> AttackFigures:
        vectors = self._population_of(spec).vectors
        trial = Trial(spec, vectors, metric=self._target.metric, denoise="auto")
        return AttackFigures.of(trial)


class _RecordPlanner(_Planner):
    """Plans that hide the whole record: cap codes, codebooks and, for contrast, Gaussian noise."""

    def __init__(
        self,
        target: Target,
        terms: dict[str, Any],
        progress: Progress,
        source: VectorSource,
        groups: Any | None,
        queries: VectorSource | None,
    ) -> None:
        super().__init__(target, terms, progress)
        defaults = {field.name: field.default for field in fields(Spec)}
        changed = [name for name in terms if name != "delta" and terms[name] != defaults[name]]
        if changed:
            raise InputError(
                f"record-level methods take any vectors, of which the direction counts: leave "
                f"{', '.join(sorted(changed))} out."
            )
        self._methods = self._admitted()
        rows = sample_rows(source, _MAX_CODEBOOK)
        labels = numbered_groups(groups, source, _MAX_CODEBOOK)
        self.sample_in_groups = labels is None and has_near_duplicates(rows)
        vectors = unit(in_units_of_largest(rows))
        asked: Any = _QUERIES
        if queries is not None:
            asked = unit(in_units_of_largest(sample_rows(queries, _QUERIES)))
        self._population = Population(
            vectors[:_MIN_ROWS], target.n, asked, groups=labels, near_ranks=False
        )
        self._books = CodebookPlan(vectors, labels, target.n, asked)

    def _admitted(self) -> list[Method]:
        """Return the methods that hide any two vectors; note why others do not."""
        names = self._target.methods
        admitted = []
        for method in _methods_to_try(names):
            if "record" in method.adjacencies:
                admitted.append(method)
            elif names is not None and not (method.name == _CONTRAST and self._terms["delta"] > 0):
                self.refused.append(f"{method.name} has no guarantee under {record()}.")
        _require_method(admitted, self.refused)
        return admitted

    def specs(self, epsilon: float) -> list[Spec]:
        target = self._target
        specs = []
        for method in self._methods:
            if method.family.public is Codebook:
                for book, subset in self._books.books(
                    epsilon, target.at, target.counted_candidates
                ):
                    specs.append(self._with_codebook(method.name, epsilon, book, subset))
                continue
            for k in _RECORD_LENGTHS:
                specs.append(Spec(method.name, target.dim, k, epsilon=epsilon, adjacency=record()))
        return specs

    def _with_codebook(self, method: str, epsilon: float, book: Codebook, subset: int) -> Spec:
        return Spec(
            method, self._target.dim, epsilon=epsilon, adjacency=record(), codebook=book,
            subset=subset,
        )  # fmt: skip

    def screened(self, specs: Sequence[Spec]) -> list[Row]:
        most = self._target.max_bytes
        fitting = [spec for spec in specs if most is None or spec.format.max_row_bytes <= most]
        if not fitting:
            raise self._target.none_fits()
        rows = []
        for done, spec in enumerate(fitting):
            self._progress(done, len(fitting), f"{spec.method}, ε = {spec.budget:.3g}")
            rows.append(self._row(spec, 1))
        return self._target.ranked(rows)

    def refined(self, row: Row, *, denoise: bool = False) -> Row:
        return row if row.spec.codebook else self._row(row.spec, _ROUNDS)

    def to_publish(self, row: Row) -> Row:
        tried = row.spec.codebook
        if tried is None or not row.centroids:
            return row
        return replace(row, spec=replace(row.spec, codebook=self._books.published(tried)))

    def _row(self, spec: Spec, rounds: int) -> Row:
        at, ladder = self._target.at, self._target.ladder
        if spec.codebook is not None:
            return self._books.row(spec, at, ladder)
        return predicted_rows(spec, self._population, rounds, at, ladder)[0]

    def _like(self, spec: Spec, epsilon: float) -> Sequence[Spec]:
        target = self._target
        if spec.codebook is None:
            return [spec.with_epsilon(epsilon)]
        reranked = target.counted_candidates > target.at
        subsets = promising_subsets(len(spec.codebook), epsilon, reranked)[-2:]
        return [self._with_codebook(spec.method, epsilon, spec.codebook, w) for w in subsets]

    def contrast(self, epsilon: float) -> tuple[Row, ...]:
        delta = self._terms["delta"]
        if not delta > 0:
            return ()
        with suppress(NoGuaranteeError):  # noise that no code can hold
            spec = Spec(
                _CONTRAST, self._target.dim, epsilon=epsilon, delta=delta, adjacency=l2(2.0)
            )
            return (self._row(spec, _ROUNDS),)
        return ()

    def attacks(self, spec: Spec) -> AttackFigures:
        vectors = self._population.vectors
        if spec.codebook is not None:
            spec, vectors = self._books.played(spec)
        return AttackFigures.of(Trial(spec, vectors))


def is_worth_denoising(plain: float, denoised: float) -> bool:
    """Return whether recall with a denoiser is so much better that it should be fitted.

    >>> is_worth_denoising(0.9, 0.901), is_worth_denoising(0.9, 0.95)
    (False, True)
    """
    return denoised > plain + min(_WORTH_OF_MISSED * (1.0 - plain), _WORTH_OF_FOUND * plain)


def _fewest_candidates(rows: Sequence[Row], target: Target) -> int:
    """Return the fewest candidates among which the best spec finds the recall.

    Raises
    ------
    InputError
        If a quarter of the collection is too few.
    """
    recall = target.recall or 0.0
    enough = (row.found(target.query).candidates_for(recall) for row in rows)
    fewest = min((number for number in enough if number is not None), default=None)
    if fewest is None:
        most = target.ladder[-1]
        best = max(rows, key=lambda row: row.found(target.query).recall_within(most))
        predicted = best.found(target.query).recall_within(most)
        raise InputError(
            f"a recall@{target.at} of {recall:g} is out of reach at epsilon = "
            f"{target.epsilon:g}: among {most} candidates the prediction for {best.method} is "
            f"{predicted:.2f}; ask for less, or for a larger epsilon."
        )
    return max(fewest, target.at)


def _smallest_epsilon(planner: _Planner, target: Target) -> float:
    """Return the smallest epsilon at which the best method reaches the recall, to two digits.

    Raises
    ------
    InputError
        If no epsilon does.
    """
    recall = target.recall or 0.0
    smallest = _MAX_EPSILON
    best = planner.quick_best(smallest)
    if target.value(best) < recall:
        raise InputError(
            f"a recall@{target.at} of {recall:g} is out of reach: at epsilon = {_MAX_EPSILON:g} "
            f"the prediction for {best.method} is {target.value(best):.2f}; ask for less."
        )
    for span, steps, denoise in _BISECTIONS:
        too_small = smallest / span
        for _ in range(steps):
            middle = math.sqrt(too_small * smallest)
            value = 0.0
            with suppress(NoGuaranteeError):  # noise that no code can hold
                value = target.value(planner.refined(planner.quick_best(middle), denoise=denoise))
            if value >= recall:
                smallest = middle
            else:
                too_small = middle
    digits = 10.0 ** (1 - math.floor(math.log10(smallest)))
    return math.ceil(smallest * digits) / digits


def _methods_to_try(names: Sequence[str] | None) -> list[Method]:
    """Return the private methods of these names, without duplicates; without names all of them."""
    if names is None:
        return [method for method in all_methods() if method.private]
    chosen = [find_method(name) for name in dict.fromkeys(names)]
    for method in chosen:
        if not method.private:
            raise InputError(f"{method.name} is not private, so there is nothing to plan with it.")
    return chosen


def _require_method(admitted: Sequence[object], refused: Sequence[str]) -> None:
    """Raise InputError if no method is left, with the first reason."""
    if not admitted:
        reason = f": {refused[0]}" if refused else "."
        raise InputError(f"no method has a guarantee under these terms{reason}")


def _lengths(spec: Spec, max_bytes: int | None) -> list[int]:
    """Return code lengths to try for a method, of which ``spec`` has the default length.

    A raw method has no other length, and :func:`spec_grid` ignores these. Numbers with one
    attribute in each bin of OPORP are those of a raw method.
    """
    signs = issubclass(spec.format_type, SignFormat)
    in_bins = spec.method_row.family.bins
    if spec.dim > MAX_DENSE_DIM:
        lengths = _WIDE_LENGTHS
    elif in_bins:
        attributes_in_a_bin = (1, 2, 4, 8, 16) if signs else (2, 4, 8, 16)
        bins = {spec.dim // share for share in attributes_in_a_bin}
        lengths = {k for k in bins if k >= _MIN_BINS} or {spec.dim}
    else:
        lengths = {512, 1024} if signs else {128, 256, 512}
    if max_bytes is not None:
        fitting = {8 * max_bytes // bits for bits in spec.format_type.coordinate_bits}
        longest = min(max(fitting), spec.dim) if in_bins else max(fitting)
        lengths = {k for k in lengths | fitting if 0 < k <= longest}
    return sorted(lengths, reverse=True)
