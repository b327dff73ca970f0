"""Predict what each method finds at an epsilon, from public knowledge alone, and recommend one."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, get_args

import numpy as np
import scipy.sparse

from dpindex.base.arrays import share_cores
from dpindex.base.checks import checked_epsilon, finite_number, whole_number
from dpindex.base.errors import DamagedError, InputError, NoGuaranteeError, StorageError
from dpindex.base.threads import idle_cores, limited_threads
from dpindex.exposure.exposure import Prior, predicted_exposure
from dpindex.index.asked import QueryMode
from dpindex.mechanism.codebook import dense_rows, spaced
from dpindex.mechanism.method_table import find_method
from dpindex.mechanism.method_table import methods as all_methods
from dpindex.mechanism.noise.additive import AdditiveNoise
from dpindex.mechanism.noise.randomized_response import FlipsByLevel
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.spec import Spec
from dpindex.privacy import Record
from dpindex.storage.directory import IndexDirectory
from dpindex.study.evaluate.curve import Progress, SpecGrid, spec_grid
from dpindex.study.planner.collection_model import CollectionModel, Facts, Simulation, linked_share
from dpindex.study.planner.plan_result import FOUND, NEIGHBOURS, Plan, Ranking, Row, nearby
from dpindex.study.planner.record_plan import MAX_CODEBOOK, record_plan
from dpindex.vectors import VectorSource, as_source

_MIN_ROWS, _MAX_ROWS = 500, 2000
_MIN_VECTORS, _MAX_VECTORS = 500, 2**40
_MAX_DIM, _MAX_BYTES = 2**31 - 1, 2**20
# Attributes up to which vectors are held dense and every method is tried; above, vectors are sparse
# matrices, of so many entries a row, and projected by a few entries for each attribute.
_MAX_DENSE_DIM, _MAX_ENTRIES = 4096, 2**17
_WIDE_LENGTHS = {256, 512, 1024}

# Attributes in a bin of OPORP. Numbers with one attribute in each bin are those of a raw method.
_SHARES, _MIN_BINS = (1, 2, 4, 8, 16), 8
# Code lengths of dense projections, whatever the number of attributes.
_NUMBER_LENGTHS, _SIGN_LENGTHS = (128, 256, 512), (512, 1024)

# All specs are compared on few queries and codes, and those within so many standard errors of the
# best, as if a query found all or nothing, on the whole model.
_SCREENING_QUERIES, _SCREENING_ROUNDS, _MARGIN = 50, 2, 1.5
_ROUNDS = 4
# Codes, and numbers in them, that the denoiser of a finalist is fitted to: with three times as many
# no prediction moved by more than its own deviation of 0.01.
_FITTED_CODES, _FITTED_NUMBERS = 10_000, 3 << 21
_FINALISTS = 2
# Codes of less signal tell less than half a nat about a vector (Shannon 1948), where one among a
# hundred takes five: they find nothing, and are simulated only if all are such.
_MIN_SNR = 1.0
# If one finds more than this in the screening, no denoisers are fitted to more codes.
_ENOUGH = 0.99
# Among predictions that differ by less than this share, the shortest code is recommended.
_EVEN = 0.01

_MIN_EPSILON, _MIDDLE_EPSILON, _MAX_EPSILON = 0.05, 4.0, 64.0
_CONTENDERS = 5

_T = TypeVar("_T")
_R = TypeVar("_R")


@limited_threads(1)  # several specs at once use the processors better than BLAS does
def plan(
    *,
    dim: int,
    n: int,
    epsilon: float | None = None,
    recall: float | None = None,
    at: int = FOUND,
    public_sample: Any | None = None,
    facts: Facts | None = None,
    query: QueryMode = "exact",
    delta: float = 0.0,
    max_bytes: int | None = None,
    methods: Sequence[str] | None = None,
    skip_leak_check: bool = False,
    curves: bool = False,
    progress: Progress | None = None,
    **fields: Any,
) -> Plan:
    """Predict what each method would find in a collection, and recommend one.

    The mechanisms are run on public vectors that model the private ones, which are never looked at.
    Whoever passes a ``public_sample`` states that it is public: parameters that are chosen by
    looking at private data reveal something about them.

    Parameters
    ----------
    dim, n : int
        Attributes of a vector, [2, 2^31), or at most 4096 under ``record()`` and from facts;
        vectors in the collection, [500, 2^40].
    epsilon : float, optional
        Target epsilon.
    recall : float, optional
        Instead of epsilon: target recall@k of the true k, (0, 1), with k = ``at``. The plan is for
        the smallest epsilon that reaches it.
    at : int
        k: answers, and true neighbours, that recall counts, [1, 50]. Methods are ranked by it.
    public_sample : array, sparse matrix or VectorSource, optional
        At least 500 public vectors of the collection's kind; up to 2000 of them are used. Under
        ``adjacency=record()`` up to 65 536 of them may become codewords.
    facts : Facts, optional
        Instead of a sample.
    query : "exact" or "private"
        The query mode to plan for; the default is that of ``search``. Both are predicted.
    delta : float
        For the methods that need a delta; with 0 they are not considered. Under ``record()`` it is
        for Gaussian noise of radius 2, which is shown for contrast.
    max_bytes : int, optional
        Maximum size of a published code, [1, 2^20].
    methods : sequence of str, optional
        Methods to consider; default all that give DP for the published projection. What promises
        less, a delta over the projection too or individual DP, must be named.
    skip_leak_check : bool
        Accept a sample that looks like the private vectors themselves.
    curves : bool
        Predict the best methods at other epsilons too, from a quarter of the plan's to four times
        as much, for a plot.
    progress : callable, optional
        Called with (predictions done, predictions in all, what is predicted now).
    **fields
        Other fields of :class:`dpindex.Spec`: adjacency, scale, bounds, clip, norm, …

    Raises
    ------
    InputError
        For contradictory terms, terms that no method can meet, a sample that is too small or looks
        private, and a recall that no epsilon up to 64 reaches.

    >>> facts = Facts(norm=4.0, neighbour_cosine=0.9, typical_cosine=0.4)
    >>> outcome = plan(dim=16, n=5000, epsilon=4.0, facts=facts, bounds=(-4, 4),
    ...                methods=["raw-staircase", "dp-signoporp-rr"])
    >>> outcome.recommended.spec.method
    'raw-staircase'
    """
    if (epsilon is None) == (recall is None):
        raise InputError("give either an epsilon or a target recall.")
    if (public_sample is None) == (facts is None):
        raise InputError("give either a public sample or public facts to plan with.")
    dense = facts is not None or isinstance(fields.get("adjacency"), Record)
    whole_number(dim, "dim", 2, _MAX_DENSE_DIM if dense else _MAX_DIM)
    whole_number(n, "n", _MIN_VECTORS, _MAX_VECTORS)
    whole_number(at, "at", 1, NEIGHBOURS)
    if max_bytes is not None:
        whole_number(max_bytes, "max_bytes", 1, _MAX_BYTES)
    if query not in get_args(QueryMode):
        raise InputError(f"query must be 'private' or 'exact', not {query!r}.")
    if recall is not None and not 0.0 < finite_number(recall, "the recall") < 1.0:
        raise InputError(f"the recall must lie between 0 and 1, not be {recall!r}.")

    if isinstance(fields.get("adjacency"), Record):
        del fields["adjacency"]
        if changed := {name for name, value in fields.items() if value != getattr(Spec, name, ...)}:
            raise InputError(
                f"record-level methods take any vectors, of which the direction counts: leave "
                f"{', '.join(sorted(changed))} out."
            )
        if facts is None:
            most = None if skip_leak_check else n
            sample = _sample(public_sample, dim, most, MAX_CODEBOOK)
        else:
            sample = facts.sample(dim)
        return record_plan(
            sample,
            n=n,
            epsilon=None if epsilon is None else checked_epsilon(epsilon),
            recall=recall,
            at=at,
            query=query,
            delta=delta,
            max_bytes=max_bytes,
            methods=methods,
            from_facts=facts is not None,
            rows=len(sample) if facts else as_source(public_sample).shape[0],
            curves=curves,
            progress=progress or _silent,
        )

    def grid_at(epsilon: float) -> SpecGrid:
        return _grid(dim, methods, max_bytes, epsilon, delta=delta, **fields)

    target = _MAX_EPSILON if epsilon is None else epsilon
    first = grid_at(target).specs[0]
    if facts is None:
        sample = _sample(public_sample, dim, None if skip_leak_check else n)
        Privatizer(first).check(sample)
    else:
        sample = np.clip(facts.sample(dim), *first.bounds) * np.float32(first.scale)
    limits = (first.bounds[0] * first.scale, first.bounds[1] * first.scale)
    model = CollectionModel(sample, n, limits, None if facts is None else facts.neighbour_cosine)
    predictor = _Predictor(model, query, at, max_bytes, progress or _silent)
    if recall is not None:
        target = predictor.smallest_epsilon(lambda e: grid_at(e).specs, recall)
    grid = grid_at(target)
    rows = predictor.ranked(grid.specs)
    refused = *grid.refused, *predictor.refused
    lines = predictor.curves(rows) if curves else ()
    best = rows[0].spec
    exposed = predicted_exposure(best, n, Prior.of_sample(sample, best))
    exposed = replace(exposed, linked=linked_share(best, model))
    return Plan(rows, query, n, at, refused, facts is not None, exposure=exposed, curves=lines)


def _silent(done: int, total: int, task: str) -> None:
    """No progress is shown."""


def _sample(vectors: Any, dim: int, n: int | None, most: int = _MAX_ROWS) -> Any:
    """At most so many rows, evenly spaced, float32; checked against leaks if n is given.

    Wide ones are a CSR matrix, others an array.
    """
    source = as_source(vectors, "the public sample")
    rows, columns = source.shape
    if columns != dim:
        raise InputError(f"{source.name} has {columns} columns, not dim = {dim}.")
    if rows < _MIN_ROWS:
        raise InputError(
            f"{source.name} has {rows} rows; a plan needs at least {_MIN_ROWS} public vectors, or "
            f"facts."
        )
    if n is not None and (reason := _suspicion(source, n)):
        raise InputError(
            f"{source.name} looks like the private vectors themselves ({reason}), and parameters "
            f"that are chosen by looking at private data reveal something that no epsilon covers; "
            f"name a public sample or public facts instead, or pass "
            f"skip_leak_check=True if it is public after all or you accept that.",
            parameters=["skip_leak_check=True"],
        )
    chosen = spaced(rows, most)
    if columns <= _MAX_DENSE_DIM:
        return dense_rows(source, chosen).astype(np.float32)
    parts = [
        scipy.sparse.csr_matrix(chunk[place[place < chunk.shape[0]]], dtype=np.float32)
        for first, chunk in source.chunks()
        if (place := chosen[chosen >= first] - first).size
    ]
    sample = scipy.sparse.vstack(parts, format="csr")
    sample.eliminate_zeros()
    if sample.nnz > _MAX_ENTRIES * sample.shape[0]:
        raise InputError(
            f"{source.name} has {sample.nnz // sample.shape[0]} entries a row; a plan takes at "
            f"most {_MAX_ENTRIES}."
        )
    return sample


def _suspicion(source: VectorSource, n: int) -> str | None:
    """Why the sample looks like the private collection itself, or None if it does not.

    It does if it has exactly the n rows of the collection, or if an index in its directory or in
    the working directory was built from as many rows of as many columns, or is being built from it
    (by the fingerprint of its source).

    This detects accidents only. No program can tell a copy of private vectors in memory, under
    another size, or in part from public data; whoever declares a sample public is responsible.
    """
    rows, columns = source.shape
    if rows == n:
        return f"it has exactly the {n} rows of the collection that is planned for"
    for folder in dict.fromkeys((Path.cwd(), Path(source.name.partition(":")[0]).resolve().parent)):
        for path in filter(Path.is_dir, sorted(folder.glob("*"))):
            directory = IndexDirectory(path)
            try:
                manifest = directory.manifest()
            except (DamagedError, StorageError):  # no index, damaged, or of another version
                continue
            if (manifest.count, manifest.settings.spec.dim) == (rows, columns):
                return f"{directory.path} holds as many codes, of as many attributes"
    return None


def _grid(
    dim: int, names: Iterable[str] | None, max_bytes: int | None, epsilon: float, **common: Any
) -> SpecGrid:
    """Specs of all methods that have a guarantee under these terms, at several code lengths."""
    rows = [row for row in all_methods() if row.definition == "DP"]
    if names is not None:
        rows = [find_method(name) for name in dict.fromkeys(names)]
        if bare := [row.name for row in rows if row.definition == "none"]:
            raise InputError(f"{bare[0]} is not private, so there is nothing to plan with it.")
    specs: list[Spec] = []
    refused: list[str] = []
    for row in rows:
        few = row.family.bins or row.family.blocks or common.get("entries") == "very-sparse"
        if dim > _MAX_DENSE_DIM and not few:
            refused.append(f"{row.name} is not planned above {_MAX_DENSE_DIM} attributes.")
            continue
        grid = spec_grid(dim, [row.name], [epsilon], **common)
        if names is None and any(s.guarantee.delta_over == "projection" for s in grid.specs):
            continue
        if grid.specs:
            lengths = _lengths(grid.specs[0], max_bytes)
            grid = spec_grid(dim, [row.name], [epsilon], lengths, **common)
        specs += grid.specs
        refused += grid.refused
    if not specs:
        why = f": {refused[0]}" if refused else "."
        raise InputError(f"no method has a guarantee under these terms{why}")
    return SpecGrid(tuple(specs), tuple(refused))


def _lengths(spec: Spec, max_bytes: int | None) -> list[int]:
    """Code lengths to try for a method, of which ``spec`` has the default length.

    A raw method has no other length, and :func:`spec_grid` ignores these.
    """
    row, signs = spec.mechanism, spec.mechanism.codes == "signs"
    lengths = set(_SIGN_LENGTHS if signs else _NUMBER_LENGTHS)
    if spec.dim > _MAX_DENSE_DIM:
        lengths = _WIDE_LENGTHS
    elif row.family.bins:
        bins = {spec.dim // share for share in (_SHARES if signs else _SHARES[1:])}
        lengths = {k for k in bins if k >= _MIN_BINS} or {spec.dim}
    if max_bytes is not None:
        fitting = {8 * max_bytes} if signs else {max_bytes // 2, max_bytes}
        longest = min(max(fitting), spec.dim if row.family.bins else max(fitting))
        lengths = {k for k in lengths | fitting if 0 < k <= longest}
    return sorted(lengths, reverse=True)


class _Predictor:
    """Predictions on one model of the collection.

    ``refused`` holds, after specs have been ranked, a sentence for each whose noise no code can
    hold.
    """

    refused: dict[str, None]

    def __init__(
        self,
        model: CollectionModel,
        query: QueryMode,
        at: int,
        max_bytes: int | None,
        progress: Progress,
    ) -> None:
        self._model, self._query, self._at, self._max_bytes = model, query, at, max_bytes
        self._screen = model.of_queries(_SCREENING_QUERIES)
        self._progress = progress
        self._workers = idle_cores()

    def ranked(self, specs: Sequence[Spec]) -> tuple[Row, ...]:
        """A row for each spec, best first.

        All specs are screened; those near the best are simulated on the whole model, and the best
        methods with denoisers fitted to more codes.
        """
        rows = self._screened(specs)
        most = self._value(rows[0])
        some = [row for row in rows if self._value(row) > 0.0] or rows
        leading = {row.method: row for row in reversed(some) if not row.signs}
        finalists = sorted(leading.values(), key=self._value, reverse=True)[:_FINALISTS]
        least = most - _screening_margin(most)
        leaders = [row for row in some if self._value(row) >= least and row not in finalists]
        rows = [row for row in rows if row not in (*leaders, *finalists)]

        def again(row: Row) -> Row:
            refine = row in finalists and most <= _ENOUGH
            return self._refined(row) if refine else self._repeated(row)

        self._progress(len(rows), len(specs), "the best of them, denoised")
        rows += self._parallel(again, [*finalists, *leaders])  # longest first
        self._progress(1, 1, "done")
        rows.sort(key=self._value, reverse=True)
        even = [row for row in rows if self._value(row) >= (1 - _EVEN) * self._value(rows[0])]
        best = min(even, key=lambda row: row.bytes_per_vector)
        return (best, *(row for row in rows if row is not best))

    def smallest_epsilon(self, specs_at: Callable[[float], Sequence[Spec]], recall: float) -> float:
        """The smallest epsilon at which the best method reaches the recall, to two digits."""
        contenders = [row.spec for row in self._screened(specs_at(_MIDDLE_EPSILON))[:_CONTENDERS]]

        def quick(epsilon: float) -> Row:
            return self._simulated([spec.with_epsilon(epsilon) for spec in contenders])[0]

        def refined(epsilon: float) -> Row:
            return self._refined(replace(best, spec=best.spec.with_epsilon(epsilon)))

        best, high = quick(_MAX_EPSILON), _MAX_EPSILON
        if self._value(best) < recall:
            raise InputError(
                f"a recall@{self._at} of {recall:g} is out of reach: at epsilon = "
                f"{_MAX_EPSILON:g} the prediction for {best.method} is {self._value(best):.2f}; "
                f"ask for less."
            )
        # First the best method, then how much less epsilon it needs with a better denoiser.
        for row_at, span, steps in ((quick, _MAX_EPSILON / _MIN_EPSILON, 6), (refined, 4.0, 4)):
            low = high / span
            for _ in range(steps):
                row, middle = None, math.sqrt(low * high)
                with suppress(NoGuaranteeError):  # noise that no code can hold
                    row = row_at(middle)
                if row is not None and self._value(row) >= recall:
                    high, best = middle, row
                else:
                    low = middle
        digits = 10.0 ** (1 - math.floor(math.log10(high)))
        return math.ceil(high * digits) / digits

    def curves(self, rows: Sequence[Row]) -> tuple[tuple[Row, ...], ...]:
        """The best row of each of the best methods at several epsilons."""
        best = {row.method: row for row in reversed(rows)}
        leaders = sorted(best.values(), key=self._value, reverse=True)[:_CONTENDERS]
        return tuple(
            tuple(
                point
                for epsilon in nearby(row.spec.budget)
                for point in ([row] if epsilon == row.spec.budget else self._tried(row, epsilon))
            )
            for row in leaders
        )

    def _tried(self, row: Row, epsilon: float) -> list[Row]:
        """The same spec at another epsilon, or nothing where no code can hold the noise."""
        try:
            return self._simulated([row.spec.with_epsilon(epsilon)])
        except NoGuaranteeError:
            return []

    def _value(self, row: Row) -> float:
        return row.found(self._query).recall

    def _screened(self, specs: Sequence[Spec]) -> list[Row]:
        """Rows of the specs whose codes fit on a part of the model, best first."""
        rows, self.refused = self._rows(specs, self._screen, _SCREENING_ROUNDS)
        return rows

    def _simulated(self, specs: Sequence[Spec]) -> list[Row]:
        """The same on the whole model."""
        return self._rows(specs, self._model, _ROUNDS)[0]

    def _rows(
        self, specs: Sequence[Spec], model: CollectionModel, rounds: int
    ) -> tuple[list[Row], dict[str, None]]:
        """Rows of the specs whose codes fit, best first, with linear denoisers of few codes.

        Of codes that differ in their noise alone, those with the least are denoised. And a sentence
        for each spec whose noise no code can hold. Raises InputError if no spec is left.
        """

        def simulation(spec: Spec) -> Simulation | str:
            try:
                return Simulation(spec, model, rounds)
            except NoGuaranteeError as error:  # noise that no code can hold
                return f"{spec.method}, k = {spec.code_length}: {error}"

        made = list(self._parallel(simulation, specs))
        refused = dict.fromkeys(reason for reason in made if isinstance(reason, str))
        fits = [s for s in made if not isinstance(s, str) and self._fits(s)]
        least = min(_MIN_SNR, max((s.snr for s in fits), default=0.0))
        rows = [s.found_nothing() for s in fits if s.snr < least]
        alike = defaultdict(list)
        for one in sorted(fits, key=lambda s: (-s.spec.code_length, s.noise)):  # longest first
            if one.snr >= least:
                alike[_but_for_noise(one.spec)].append(one)

        def predicted(several: Sequence[Simulation]) -> list[Row]:
            found = [self._row(several[0], "plain", "linear")]
            return found + [self._row(other, "plain") for other in several[1:]]

        for found in self._parallel(predicted, alike.values()):
            self._progress(len(rows), len(specs), _task(found[0].spec))
            rows += filter(self._fits, found)
        if not rows:
            for sentence in refused:
                raise NoGuaranteeError(f"no method is left at this epsilon: {sentence}")
            raise NoGuaranteeError(f"no method makes codes of at most {self._max_bytes} bytes.")
        return sorted(rows, key=self._value, reverse=True), refused

    def _fits(self, one: Simulation | Row) -> bool:
        return self._max_bytes is None or one.bytes_per_vector <= self._max_bytes

    def _parallel(self, work: Callable[[_T], _R], tasks: Iterable[_T]) -> Iterator[_R]:
        """What ``work`` returns for each task, in order."""
        with ThreadPoolExecutor(self._workers, initializer=share_cores) as pool:
            yield from pool.map(work, tasks)

    def _repeated(self, row: Row) -> Row:
        """The same ranking of the same spec on the whole model."""
        return self._row(Simulation(row.spec, self._model, _ROUNDS), row.ranking)

    def _refined(self, row: Row) -> Row:
        """The same with the denoiser that ``fit_denoiser()`` would choose, or without any."""
        model, spec = self._model, row.spec
        codes = min(_FITTED_CODES, _FITTED_NUMBERS // spec.code_length)
        rounds = max(1, min(codes // model.sampled.shape[0], int(model.vectors_per_row)))
        return self._row(Simulation(spec, model, rounds), "plain", "auto")

    def _row(self, simulation: Simulation, *rankings: Ranking) -> Row:
        """The best of the rankings."""
        return max(simulation.predict(rankings, self._at), key=self._value)


def _but_for_noise(spec: Spec) -> tuple[object, ...]:
    """Equal for specs whose codes differ by the deviation of their noise, or the share of flips."""
    law = spec.law
    compared = type(law) if isinstance(law, AdditiveNoise | FlipsByLevel) else spec.method
    return compared, type(spec.projection), spec.code_length, spec.repetitions


def _screening_margin(best: float) -> float:
    """How far below the best screened recall a spec may be that is better in truth."""
    chance = (best * _SCREENING_QUERIES + 1.0) / (_SCREENING_QUERIES + 2.0)
    return _MARGIN * math.sqrt(chance * (1.0 - chance) / _SCREENING_QUERIES)


def _task(spec: Spec) -> str:
    return f"{spec.method}, k = {spec.code_length}, ε = {spec.budget:.3g}"
