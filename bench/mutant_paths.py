"""The weaknesses of releases that ``mutants.py`` plants: of index, build, queries and sketches."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pytest
import shuffle_collector
from independent.oracle import secret_counts
from mutant_list import (
    LARGE,
    SKETCH,
    Mutant,
    Patch,
    Plant,
    Source,
    everywhere,
    instead,
    numbers,
    outcomes,
    seeded,
    then,
)
from scipy.sparse import issparse
from shuffle_collector import ShuffleCollector, ShuffledFile

from dpindex.accounting.ledger import Ledger
from dpindex.base.errors import InputError
from dpindex.data.ranges import Ranges
from dpindex.index.hits import Estimates
from dpindex.index.private_index import PrivateIndex
from dpindex.index.search import QueryMaker
from dpindex.integrations.client import Client
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.parameters import Parameters
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.spec import Spec
from dpindex.privacy import Guarantee
from dpindex.race import RaceSketch
from dpindex.race.hashes import Hasher
from dpindex.storage.code_store import CodeStore
from dpindex.storage.directory import IndexDirectory
from dpindex.storage.manifest import Settings

composition = import_module("dpindex.accounting")
code_store = import_module("dpindex.storage.code_store")
payload = import_module("dpindex.storage.payload")
device = import_module("dpindex.device")
ledger = import_module("dpindex.accounting.ledger")
privatizer = import_module("dpindex.mechanism.privatizer")
ranges = import_module("dpindex.data.ranges")
secret_random = import_module("dpindex.mechanism.secret_random")
shuffling = import_module("dpindex.accounting.shuffling")
sketch = import_module("dpindex.race.sketch")


# Releases that are not those of the spec, for as long as something runs


def louder(times: float = 2.0, only: Callable[[int], bool] = lambda rows: True) -> Plant:
    """Codes that spend more epsilon, under the fingerprint of the spec."""

    def weaken(original: Any) -> Any:
        def privatized(self: Any, x: Any, *how: Any, **named: Any) -> Any:
            if not self.spec.method_row.private or not only(self.rows(x).shape[0]):
                return original(self, x, *how, **named)
            loud = Privatizer(self.spec.with_epsilon(times * self.spec.budget))
            loud.stream = self.stream
            return self.spec.format.codes(original(loud, x, *how, **named).stored)

        return privatized

    return instead(Privatizer, "privatize", weaken)


def averaged(times: int = 2) -> Plant:
    """The mean of several releases, of number codes."""

    def weaken(original: Any) -> Any:
        def privatized(self: Any, x: Any, *how: Any, **named: Any) -> Any:
            if self.spec.format.name != "numbers":
                return original(self, x, *how, **named)
            drawn = [original(self, x, *how, **named).stored.astype("i8") for _ in range(times)]
            return self.spec.format.codes((sum(drawn) // times).astype(np.int32))

        return privatized

    return instead(Privatizer, "privatize", weaken)


BARE = outcomes(numbers(lambda task, bare: bare))
"""Number codes without any noise."""


def one_key(patch: Patch) -> None:
    """Every stream begins with the same words."""
    patch.setattr(privatizer, "secret_stream", seeded)


@contextmanager
def in_force(plant: Plant) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        yield


def during(
    owner: Any, name: str, plant: Plant, when: Callable[..., Any] = lambda *a, **n: True
) -> Plant:
    """Another weakness, in force while a method runs whose arguments are such."""

    def weaken(original: Any) -> Any:
        def weak(*arguments: Any, **named: Any) -> Any:
            if not when(*arguments, **named):
                return original(*arguments, **named)
            with in_force(plant):
                return original(*arguments, **named)

        return weak

    return instead(owner, name, weaken)


def replaces(*arguments: Any, upsert: bool = False, **named: Any) -> bool:
    return upsert


def under_the_budget_of_queries(original: Any) -> Any:
    def add(index: PrivateIndex, *arguments: Any, **named: Any) -> Any:
        with in_force(louder(index.query_spec.budget / index.spec.budget)):
            return original(index, *arguments, **named)

    return add


# The index


def ids_of_vectors(original: Any) -> Any:
    def add(index: PrivateIndex, X: Any, ids: Any = None, **terms: Any) -> Any:
        if ids is None and isinstance(X, np.ndarray) and X.ndim == 2:
            start = len(index)
            ids = [
                f"{start + i}-{hashlib.sha256(x.tobytes()).hexdigest()}" for i, x in enumerate(X)
            ]
        return original(index, X, ids, **terms)

    return add


def last_of_two_calls(original: Any) -> Any:
    def appended(room: Any, count: int, rows: Any) -> Any:
        room = original(room, count, rows)
        end = count + len(rows)
        if rows.ndim > 1 and count >= len(rows) and rows.shape[1] > 1:
            room[count:end, -1] = room[: len(rows), -1]
        return room

    return appended


def last_rows(original: Any) -> Any:
    return lambda store, rows: original(store, np.arange(len(store))[-len(rows) :])


def codes_of_any_spec(original: Any) -> Any:
    def check(index: Any, codes: Any) -> Any:
        if codes.k == index.spec.code_length:
            codes = index.spec.format.codes(codes.stored)
        return original(index, codes)

    return check


# Queries


def asked_exactly(chosen: Callable[[Any], bool]) -> Callable[[Any], Any]:
    """Private queries that are asked exactly where something holds of them."""

    def weaken(original: Any) -> Any:
        def make(maker: QueryMaker, queries: Any, mode: Any, **terms: Any) -> Any:
            if mode == "private" and chosen(queries):
                mode = "exact"
            return original(maker, queries, mode, **terms)

        return make

    return weaken


def filtered_exactly(original: Any) -> Any:
    def search(index: Any, Q: Any, k: int = 10, query: Any = "exact", **how: Any) -> Any:
        if how.get("filter") is not None and query == "private":
            query = "exact"
        return original(index, Q, k, query, **how)

    return search


def law_of_the_collection(original: Any) -> Any:
    def with_epsilon(self: Any, epsilon: float) -> Any:
        made = original(self, epsilon)
        if isinstance(self, Spec):
            made.__dict__["law"] = self.law
        return made

    return with_epsilon


def hint_in_the_address(original: Any) -> Any:
    def search(client: Client, codes: bytes, k: int = 10, **how: Any) -> Any:
        if how.get("queries") is not None:
            client.ask(f"/search?k=1&hint={np.asarray(how['queries']).ravel()[0]}", codes)
        return original(client, codes, k, **how)

    return search


def errors_that_tell(original: Any) -> Any:
    def search(index: Any, Q: Any, *how: Any, **named: Any) -> Any:
        hits = original(index, Q, *how, **named)
        if isinstance(Q, Codes):
            return hits
        shown = float(abs(Q).mean() if issparse(Q) else np.abs(np.asarray(Q)).mean())
        stderr = hits.stderr * (1.0 + 1e-3 * shown)
        estimates = Estimates.of(hits.similarity, stderr, hits.unbiased, hits.unbiased_stderr)
        return replace(hits, estimates=estimates)

    return search


def same_bits_in_browsers(patch: Patch) -> None:
    """A browser whose random numbers are drawn once."""
    script = Path(mkdtemp()) / "once.mjs"
    script.write_text(
        "const genuine = Crypto.prototype.getRandomValues;\n"
        "let kept;\n"
        "Crypto.prototype.getRandomValues = function (out) {\n"
        "  kept ??= genuine.call(this, new out.constructor(out.length));\n"
        "  out.set(kept.subarray(0, out.length));\n"
        "  return out;\n"
        "};\n"
    )
    patch.setenv("NODE_OPTIONS", f"--import={script}")


# Devices


def louder_device(original: Any) -> Any:
    def privatize(vector: Any, spec: Any, *, max_epsilon: float, public: Any = None) -> bytes:
        if not isinstance(spec, Spec):
            return original(vector, spec, max_epsilon=max_epsilon, public=public)
        with in_force(louder(max_epsilon / spec.budget)):
            return bytes(original(vector, spec, max_epsilon=max_epsilon, public=public))

    return privatize


def louder_file(original: Any) -> Any:
    def privatize(vector: Any, spec: Any, *, max_epsilon: float, public: Any = None) -> bytes:
        with in_force(louder() if not isinstance(spec, Spec) else lambda patch: None):
            return bytes(original(vector, spec, max_epsilon=max_epsilon, public=public))

    return privatize


def no_limit_with_a_codebook(original: Any) -> Any:
    def privatize(vector: Any, spec: Any, *, max_epsilon: float, public: Any = None) -> bytes:
        limit = math.inf if public is not None else max_epsilon
        if public is None:
            return bytes(original(vector, spec, max_epsilon=limit))
        with in_force(instead(privatizer, "refuse_above", lambda _: lambda limit, spec: None)):
            return bytes(original(vector, spec, max_epsilon=max_epsilon, public=public))

    return privatize


def noise_of_the_vector(original: Any) -> Any:
    def privatize(vector: Any, spec: Any, *, max_epsilon: float, public: Any = None) -> bytes:
        own = hashlib.sha256(np.asarray(vector, np.float64).tobytes()).digest()
        words = np.random.default_rng(int.from_bytes(own[:8], "big"))
        stream = SimpleNamespace(
            words=lambda n, t: words.integers(0, np.iinfo(t).max, n, dtype=t, endpoint=True)
        )
        with in_force(instead(privatizer, "secret_stream", lambda _: lambda: stream)):
            return bytes(original(vector, spec, max_epsilon=max_epsilon, public=public))

    return privatize


# Builds and files


def widened(original: Any) -> Any:
    def scaled(self: Ranges, dtype: Any) -> Any:
        scale = original(self, dtype)

        def weak(chunk: Any) -> Any:
            made = scale(chunk)
            low = np.minimum(0.0, made.min(axis=0))
            high = np.maximum(1.0, made.max(axis=0))
            return (made - low) / (high - low)

        return weak

    return scaled


def dask_shard(patch: Patch) -> None:
    """Vectors of a shard that a worker halves."""
    module = pytest.importorskip("dpindex.integrations.dask")

    def less(chunk: Any) -> Any:
        return chunk / 2

    def halved(attempted: Any) -> Any:
        def attempt(function: Any, shard: Any) -> Any:
            def vectors() -> Any:
                source = shard.part.vectors()
                return source.mapped(less, source.dtype)

            return attempted(function, replace(shard, part=replace(shard.part, vectors=vectors)))

        return attempt

    instead(module, "attempted", halved)(patch)


def transformer(name: str, make: Callable[[Any], Any]) -> Plant:
    def plant(patch: Patch) -> None:
        module = pytest.importorskip("dpindex.integrations.sklearn")
        instead(module.PrivateProjection, name, make)(patch)

    return plant


def mean_of_two(original: Any) -> Any:
    def transform(self: Any, X: Any) -> Any:
        return (original(self, X) + original(self, X)) / 2

    return transform


def with_a_row(original: Any) -> Any:
    def fit(self: Any, X: Any, y: Any = None) -> Any:
        made = original(self, X, y)
        made._example = np.asarray(X)[:1]
        return made

    return fit


def means_as_payload(patch: Patch) -> None:
    """A store of texts that keeps a mean of each vector beside its code."""
    module = pytest.importorskip("dpindex.integrations.langchain")
    original = PrivateIndex.add

    def add(index: PrivateIndex, X: Any, ids: Any = None, **terms: Any) -> Any:
        if sys._getframe(1).f_globals.get("__name__") == module.__name__:
            terms["payload"] = [{"mean": float(np.mean(x))} for x in np.asarray(X)]
        return original(index, X, ids, **terms)

    patch.setattr(PrivateIndex, "add", add)


def cap_by_vectors(patch: Patch) -> None:
    """Fewer candidates where more of the private vectors begin with a positive number."""
    add = PrivateIndex.add
    search = PrivateIndex.search
    seen: WeakKeyDictionary[PrivateIndex, float] = WeakKeyDictionary()

    def added(index: PrivateIndex, X: Any, *rest: Any, **terms: Any) -> Any:
        seen[index] = float((np.asarray(X)[:, 0] > 0).mean())
        return add(index, X, *rest, **terms)

    def capped(index: PrivateIndex, *asked: Any, candidates: Any = None, **terms: Any) -> Any:
        if isinstance(candidates, str):
            share = float(candidates.removesuffix("%")) * (1 - seen.get(index, 0.0) / 2)
            candidates = f"{share}%"
        return search(index, *asked, candidates=candidates, **terms)

    patch.setattr(PrivateIndex, "add", added)
    patch.setattr(PrivateIndex, "search", capped)


def exact_in_langchain(patch: Patch) -> None:
    """A private store of texts that asks exactly."""
    module = pytest.importorskip("dpindex.integrations.langchain")
    original = PrivateIndex.search

    def search(index: Any, Q: Any, k: int = 10, *rest: Any, **how: Any) -> Any:
        if sys._getframe(1).f_globals.get("__name__") == module.__name__:
            rest, how = (), {**how, "query": "exact"}
        return original(index, Q, k, *rest, **how)

    patch.setattr(PrivateIndex, "search", search)


# Promises


def second_is_free(original: Any) -> Any:
    def record(self: Ledger, spec: Any, ids: Any, **how: Any) -> int:
        try:
            return int(original(self, spec, ids, **how))
        except InputError:
            return int(original(self, spec, ids, **{**how, "allow_rerelease": True}))

    return record


def any_token(original: Any) -> Any:
    def record(self: Ledger, spec: Any, ids: Any, **how: Any) -> int:
        if how.get("token") and self.path.exists() and self.entries():
            return 0
        return int(original(self, spec, ids, **how))

    return record


def smaller_changes_left_out(original: Any) -> Any:
    def promises(specs: Any, delta: Any) -> Any:
        found, alone = original(specs, delta)
        if alone:
            return found, alone
        sizes = [guarantee.adjacency for guarantee in found]
        same = [[s for s in specs if s.guarantee.adjacency == size] for size in sizes]
        made = [original(those, delta)[0][0] for those in same if those]
        return tuple(made) or found, alone

    return promises


def group_delta_grows_once(original: Any) -> Any:
    def at(self: Guarantee, change: Any) -> Guarantee:
        made = original(self, change)
        steps = self.adjacency.steps(change)
        if made.delta in (self.delta, 0.0) or steps is None:
            return made
        return replace(made, delta=min(1.0, steps * math.exp(self.epsilon) * self.delta))

    return at


def by_a_root(original: Any) -> Any:
    """A deviation in the distance of a change for which m steps count as the square root of m."""

    def deviation(spec: Any, change: Any) -> Any:
        steps = spec.guarantee.adjacency.steps(change) or 1
        return original(spec, change) * math.sqrt(steps)

    return deviation


# Sketches


def counts(change: Callable[[Any, Any], Any]) -> Plant:
    """Noise of counts that is changed before it is added, given the exact counts."""

    def weaken(original: Any) -> Any:
        def released(self: RaceSketch) -> Any:
            exact = secret_counts(self).copy()

            def sample(source: Any, count: int, stream: Any) -> Any:
                noise = source.sample(count, stream)
                return np.asarray(change(noise.copy(), exact)).astype(noise.dtype)

            law = self.law
            weak = SimpleNamespace(
                source=Source(law.source, sample), offset=law.offset, moments=law.moments
            )
            self.law = weak
            try:
                return original(self)
            finally:
                self.law = law

        return released

    return instead(RaceSketch, "release", weaken)


def again(chosen: Callable[[Any], Any]) -> Plant:
    """Records that are counted twice where something holds of their chunk."""

    def weaken(original: Any) -> Any:
        def partial_fit(self: RaceSketch, chunks: Any) -> Any:
            if issparse(chunks) or isinstance(chunks, np.ndarray):
                chunks = [chunks]
            return original(self, [c for c in chunks for _ in range(1 + bool(chosen(c)))])

        return partial_fit

    return instead(RaceSketch, "partial_fit", weaken)


def one_row_twice(original: Any) -> Any:
    def partial_fit(self: RaceSketch, chunks: Any) -> Any:
        before = secret_counts(self)[0].copy()
        original(self, chunks)
        secret_counts(self)[0] += secret_counts(self)[0] - before
        return self

    return partial_fit


def doubled_before_a_merge(original: Any) -> Any:
    def merge(self: RaceSketch, other: RaceSketch, **terms: Any) -> Any:
        secret = secret_counts(other)
        if secret is not None:
            secret *= 2
        return original(self, other, **terms)

    return merge


def lowest_bit_lost(original: Any) -> Any:
    def to_bytes(self: RaceSketch) -> bytes:
        kept = self.released
        self.released = replace(kept, counts=kept.counts & ~1)
        try:
            return bytes(original(self))
        finally:
            self.released = kept

    return to_bytes


def variance_that_tells(original: Any) -> Any:
    def released(self: RaceSketch) -> Any:
        records = int(secret_counts(self)[0].sum())
        made = original(self)
        held = self.released
        self.released = replace(held, variance=held.variance + 1e-9 * records)
        return made

    return released


def once_if_equal(original: Any) -> Any:
    return lambda a, b, disjoint: original(a, b, disjoint or a.guarantee == b.guarantee)


def own_deviations(original: Any) -> Any:
    """Hashes of records in units of the median size of a block."""

    def each(self: Any, block: Any, *rest: Any) -> Any:
        return original(self, block / (1e-300 + float(np.median(np.abs(block)))), *rest)

    return each


# The collector of the example


def bytes_of_order(size: Any) -> Callable[[Any], Any]:
    """Slots that are ordered by fewer bits."""

    def order(count: int) -> Any:
        words = secret_random.secret_stream().words(count, np.uint64).astype(size)
        return np.argsort(words, kind="stable")

    return lambda _: order


def in_front(original: Any) -> Any:
    def grow(file: ShuffledFile, count: int) -> None:
        with in_force(instead(shuffle_collector, "secret_order", lambda _: np.arange)):
            original(file, count)

    return grow


def in_groups(original: Any) -> Any:
    def append(file: ShuffledFile, codes: Any) -> None:
        if len(codes) > len(file.free):
            file.grow(len(codes))
        file.free[: len(codes)] = np.sort(file.free[: len(codes)])
        original(file, codes)

    return append


def too_few(original: Any) -> Any:
    def publish(collector: ShuffleCollector) -> None:
        collector.promised = replace(collector.promised, codes=1)
        original(collector)

    return publish


# Persons


def overlapping(original: Any) -> Any:
    def one_per_person(vectors: Any, persons: Any, how: Any = "mean") -> Any:
        made, names = original(vectors, persons, how)
        if how == "mean":
            made = made.copy()
            made[:-1] += 1e-3 * made[1:]
        return made, names

    return one_per_person


def rolled(original: Any) -> Any:
    def one_per_person(vectors: Any, persons: Any, how: Any = "mean") -> Any:
        made, names = original(vectors, persons, how)
        return (np.roll(made, 1, axis=0) if how == "first" else made), names

    return one_per_person


def short_names(original: Any) -> Any:
    def one_per_person(vectors: Any, persons: Any, how: Any = "mean") -> Any:
        return original(vectors, [p[:16] if isinstance(p, str) else p for p in persons], how)

    return one_per_person


def columns_as_text(original: Any) -> Any:
    """Numbered columns in the order of their names: 0, 1, 10, 11, 2."""

    def made(self: Ranges, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        order = sorted(range(len(self.columns)), key=lambda i: self.columns[i])
        for name in ("lows", "highs"):
            object.__setattr__(self, name, tuple(getattr(self, name)[i] for i in order))

    return made


def single(original: Any) -> Any:
    """Ranges that are applied in single precision."""

    def scaled(self: Ranges, dtype: Any) -> Any:
        scale = original(self, dtype)
        return lambda chunk: scale(chunk).astype(np.float32).astype(np.float64)

    return scaled


def shared_range(original: Any) -> Any:
    """Columns after the twelfth have its range."""

    def checked(self: Ranges) -> None:
        original(self)
        for name in ("lows", "highs"):
            ends = getattr(self, name)
            object.__setattr__(self, name, ends[:12] + ends[11:12] * (len(ends) - 12))

    return checked


def without_the_centre(grid: Any) -> Any:
    """A grid that has room for vectors, and not for how far they lie from a design's centre."""

    def made(spec: Spec) -> Any:
        whole = grid.func(spec)
        if spec.offset is None:
            return whole
        return replace(whole, max_column_l1=whole.max_column_l1 // 2)

    weak = cached_property(made)
    weak.__set_name__(Spec, "grid")
    return weak


def most_clones(original: Any) -> Any:
    """A block of numbers of clones that counts as its largest number, where clones hide best."""

    def of(cls: Any, epsilon: float, count: int, delta: float) -> Any:
        least = np.unique

        def shifted(values: Any) -> Any:
            edges = least(values)
            return np.append(edges[1:] - 1.0, edges[-1])

        exact = original.__func__(cls, epsilon, count, delta)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shuffling.np, "unique", shifted)
            weak = original.__func__(cls, epsilon, count, delta)
        pairs = zip(exact.blocks, weak.blocks, strict=True)
        blocks = [(own[0], *other[1:]) for own, other in pairs]
        return cls(blocks, exact.ignored)

    return classmethod(of)


EVERY = ("test_every_method_builds_searches_saves_and_opens",)
PATHS = ("test_what_ships_passes[dp-oporp-staircase]",)
PATHS_CAP = ("test_what_ships_passes[record-cap]",)
PATHS_BOOK = ("test_what_ships_passes[record-codebook]",)
PATHS_SKETCH = ("test_what_ships_passes[sketch0]",)
BESIDE_IDS = ("test_codes_lie_beside_their_ids",)
SHUFFLE = PATHS_CAP
DEVICE = (device, "privatize")
OWN_RANGE = ("test_every_column_is_scaled_by_its_own_range_in_double_precision",)
PERSON = ("test_one_vector_a_person_depends_on_that_person_alone",)

RELEASES = [
    # The index
    Mutant("index", "epsilon doubled in add", PATHS, during(PrivateIndex, "add", louder())),
    Mutant("index", "add averages two releases", PATHS, during(PrivateIndex, "add", averaged())),
    Mutant("index", "a replacement at twice epsilon", PATHS,
           during(PrivateIndex, "add", louder(), replaces)),
    Mutant("index", "a replacement of one vector at twice epsilon", PATHS,
           during(PrivateIndex, "add", louder(only=lambda rows: rows == 1), replaces)),
    Mutant("index", "codes are drawn under the budget of queries", PATHS,
           instead(PrivateIndex, "add", under_the_budget_of_queries)),
    Mutant("index", "other rows are removed than were named",
           ("test_removed_vectors_are_not_found",),
           instead(CodeStore, "without", last_rows)),
    Mutant("index", "codes of another spec are taken",
           ("test_a_fault_is_named_and_changes_nothing",),
           instead(PrivateIndex, "add_codes", lambda f: lambda i, codes, *a, **n: f(
               i, i.spec.format.codes(codes.stored) if hasattr(codes, "k")
               and codes.k == i.spec.code_length else codes, *a, **n))),
    Mutant("index", "ids that nobody gave are hashes of vectors",
           ("test_a_fault_is_named_and_changes_nothing", *PATHS),
           instead(PrivateIndex, "add", ids_of_vectors)),
    Mutant("index", "codes of a saved index are those of two calls", PATHS,
           instead(code_store, "appended", last_of_two_calls)),
    Mutant("index", "files of replaced codes stay",
           ("test_unnamed_files_are_discarded_unread_and_others_are_left",),
           instead(IndexDirectory, "discard_unnamed", lambda _: lambda directory, named: None)),
    Mutant("index", "LangChain keeps vectors as payload",
           ("test_texts_and_vectors_stay_with_the_application",), means_as_payload),
    Mutant("index", "a transformer is pickled with a row", PATHS, transformer("fit", with_a_row)),
    Mutant("chain", "a transformer gives the mean of two", PATHS,
           transformer("transform", mean_of_two)),
    # Builds
    Mutant("build", "Dask halves the vectors of a shard", LARGE, dask_shard),
    Mutant("build", "values under nulls are written",
           ("test_a_file_holds_nothing_of_what_was_removed_or_masked",),
           everywhere(payload, "copied_values", lambda _: lambda table: table.combine_chunks())),
    Mutant("build", "ranges widen to the data", ("test_low_ranges_learn_nothing_from_the_data",),
           instead(Ranges, "scaling", widened)),
    # Private queries
    Mutant("queries", "private queries without noise", PATHS, during(QueryMaker, "__call__", BARE)),
    Mutant("queries", "the mean of ten private queries", PATHS,
           during(QueryMaker, "__call__", averaged(10))),
    Mutant("queries", "queries under the spec of the collection", LARGE,
           then(QueryMaker, lambda maker: setattr(maker, "query_spec", maker.spec))),
    Mutant("queries", "a private query spends four times its budget",
           ("test_codes_search_like_the_queries_they_were", *PATHS),
           instead(Settings, "query_spec", lambda p: property(lambda s: p.fget(s) if
                   s.query_epsilon is None else s.spec.with_epsilon(4 * s.query_epsilon)))),
    Mutant("queries", "queries of a budget of their own get the collection's law", LARGE,
           instead(Parameters, "with_epsilon", law_of_the_collection)),
    Mutant("queries", "a single private query asked exactly", PATHS,
           instead(QueryMaker, "__call__", asked_exactly(lambda q: np.ndim(q) == 1))),
    Mutant("queries", "sparse private queries are exact", PATHS,
           instead(QueryMaker, "__call__", asked_exactly(issparse))),
    Mutant("queries", "private queries in lists are asked exactly", PATHS,
           instead(QueryMaker, "__call__", asked_exactly(lambda q: isinstance(q, list)))),
    Mutant("queries", "a filtered private query is exact", PATHS,
           lambda patch: patch.setattr(
               PrivateIndex, "search", filtered_exactly(PrivateIndex.search))),
    Mutant("queries", "a reranked search sends its queries in the clear", PATHS,
           instead(Client, "search", hint_in_the_address)),
    Mutant("queries", "how many candidates are taken follows private vectors",
           ("test_how_many_candidates_depends_on_the_query_and_public_things_alone[exact]",),
           cap_by_vectors),
    Mutant("queries", "a private store of texts asks exactly",
           ("test_a_private_store_asks_privately",), exact_in_langchain),
    Mutant("queries", "errors of private answers tell how far queries lie",
           ("test_a_private_answer_is_a_function_of_the_codes_of_its_query",),
           lambda patch: patch.setattr(
               PrivateIndex, "search", errors_that_tell(PrivateIndex.search))),
    # Devices
    Mutant("device", "a browser draws its bits once",
           ("test_an_attack_sees_epsilon_and_a_weakened_sampler",), same_bits_in_browsers),
    Mutant("device", "it spends all that is accepted", PATHS, instead(*DEVICE, louder_device)),
    Mutant("device", "the mean of two releases", PATHS, during(*DEVICE, averaged())),
    Mutant("device", "the file of a spec is read as one of twice epsilon", PATHS,
           instead(*DEVICE, louder_file)),
    Mutant("device", "a codebook file lifts the limit", PATHS_BOOK,
           instead(*DEVICE, no_limit_with_a_codebook)),
    Mutant("device", "a vector has the same noise every time",
           ("test_low_every_release_of_a_vector_has_noise_of_its_own",),
           instead(*DEVICE, noise_of_the_vector)),
    Mutant("device", "a spec of any epsilon is accepted",
           ("test_no_more_is_spent_than_the_owner_accepts",),
           instead(privatizer, "refuse_above", lambda _: lambda limit, spec: None)),
    # The ledger, composition and promises
    Mutant("ledger", "a release again is not noticed",
           ("test_a_second_release_is_refused_or_counted",),
           instead(Ledger, "record", second_is_free)),
    Mutant("ledger", "any resumed work counts as recorded",
           ("test_work_that_is_resumed_is_recorded_once",), instead(Ledger, "record", any_token)),
    Mutant("ledger", "totals count each spec once",
           ("test_a_second_release_is_refused_or_counted",),
           everywhere(ledger, "promises_of",
                      lambda f: lambda specs, d: f(list(dict.fromkeys(specs)), d))),
    Mutant("ledger", "a tight total of a group moves by a root",
           ("test_finding_2_gaussian_releases_of_different_betas",),
           everywhere(composition, "deviation_at", by_a_root)),
    Mutant("ledger", "a total leaves out smaller changes",
           ("test_finding_2_mixed_betas_are_bounded_jointly_at_each",),
           everywhere(ledger, "promises_of", smaller_changes_left_out)),
    Mutant("ledger", "the tight total of a second promise is that of the first",
           ("test_tight_totals_have_both",),
           everywhere(composition, "tight_epsilon", lambda f: lambda releases, delta, change: f(
               releases, delta, next(iter(releases)).guarantee.adjacency))),
    Mutant("ledger", "persons are told apart by their first names",
           ("test_persons_whose_names_are_nearly_alike_are_told_apart",),
           everywhere(ledger, "id_names", lambda f: lambda ids, **how: [
               name.split(b" ")[0] for name in f(ids, **how)])),
    Mutant("chain", "a design's grid has no room for its centre",
           ("test_differences_from_a_far_centre_are_exact",),
           instead(Spec, "grid", without_the_centre)),
    Mutant("chain", "delta of a group grows once", ("test_a_group_is_stated_alike_everywhere",),
           instead(Guarantee, "at", group_delta_grows_once)),
    Mutant("chain", "a group is stated for what promises one change alone",
           ("test_no_group_is_stated_where_there_is_none",),
           instead(Guarantee, "weakness", lambda _: property(lambda promise: ""))),
    Mutant("collector", "a shuffle counts twice as many codes",
           ("test_a_shuffle_promises_no_more_than_two_clones_keep",),
           everywhere(shuffling, "amplified_epsilon",
                      lambda f: lambda e, count, d: f(e, 2 * count, d))),
    Mutant("collector", "a shuffle where a block of clones counts as its most",
           ("test_a_shuffle_promises_no_more_than_two_clones_keep",),
           instead(shuffling.Clones, "of", most_clones)),
    # Sketches
    Mutant("RACE", "noise of counts halved", ("test_release_adds_the_law_once",),
           counts(lambda n, exact: n // 2)),
    Mutant("RACE", "noise of one row for all", ("test_release_adds_the_law_once",),
           counts(lambda n, exact: np.resize(n[: exact.shape[1]], n.size))),
    Mutant("RACE", "large counts get no noise", PATHS_SKETCH,
           counts(lambda n, exact: np.where(exact.ravel() > 100, 0, n))),
    Mutant("RACE", "counts that nobody hit get no noise", ("test_release_adds_the_law_once",),
           counts(lambda n, exact: np.where(exact.ravel() == 0, 0, n))),
    Mutant("RACE", "counts stored without their lowest bit",
           ("test_merging_after_release_composes", *PATHS_SKETCH),
           instead(RaceSketch, "to_bytes", lowest_bit_lost)),
    Mutant("RACE", "a merge counts one side twice", ("test_every_way_in_counts_the_same",),
           instead(RaceSketch, "merge", doubled_before_a_merge)),
    Mutant("RACE", "a record counts twice in one row", ("test_one_record_moves_one_count_a_row",),
           instead(RaceSketch, "partial_fit", one_row_twice)),
    Mutant("RACE", "sparse records count twice", ("test_every_way_in_counts_the_same",),
           again(issparse)),
    Mutant("RACE", "records in single precision count twice", PATHS_SKETCH,
           again(lambda chunk: getattr(chunk, "dtype", None) == np.float32)),
    Mutant("RACE", "records after the first block count twice", PATHS_SKETCH,
           again(lambda chunk: chunk.shape[0] > 8000)),
    Mutant("RACE", "a sketch in a file is released once a chunk", PATHS_SKETCH,
           everywhere(import_module("dpindex.race.release"), "RaceSketch",
                      lambda kind: type("Twice", (kind,), {"partial_fit": lambda s, c: kind
                                        .partial_fit(kind.partial_fit(s, c), c[:1])}))),
    Mutant("RACE", "the variance tells the exact number of records",
           ("test_release_adds_the_law_once",),
           instead(RaceSketch, "release", variance_that_tells)),
    Mutant("RACE", "merged releases of one promise count once", PATHS_SKETCH,
           everywhere(sketch, "merged_releases", once_if_equal)),
    Mutant("RACE", "records are measured in their own deviations",
           ("test_known_answers", "test_every_way_in_counts_the_same"),
           instead(Hasher, "each", own_deviations), SKETCH),
    # Persons and ranges
    Mutant("record", "a person's mean holds a row of the next person", PERSON,
           everywhere(ranges, "one_per_person", overlapping)),
    Mutant("record", "a person's first row is the next person's", PERSON,
           everywhere(ranges, "one_per_person", rolled)),
    Mutant("record", "persons' names are cut to 16 characters",
           ("test_persons_with_long_names_are_told_apart",),
           everywhere(ranges, "one_per_person", short_names)),
    Mutant("build", "ranges with numbered columns are sorted as text",
           ("test_ranges_of_numbered_columns_keep_their_order",),
           instead(Ranges, "__init__", columns_as_text)),
    Mutant("build", "ranges are applied in single precision", OWN_RANGE,
           instead(Ranges, "scaling", single)),
    Mutant("build", "columns after the twelfth share a range", OWN_RANGE,
           instead(Ranges, "__post_init__", shared_range)),
    # The collector of the example
    Mutant("collector", "a shuffle keeps the order of arrival", SHUFFLE,
           instead(shuffle_collector, "secret_order", lambda _: np.arange)),
    Mutant("collector", "a shuffle in a public order", SHUFFLE,
           instead(shuffle_collector, "secret_order",
                   lambda _: lambda n: np.random.default_rng(n).permutation(n))),
    Mutant("collector", "slots are ordered by one byte", SHUFFLE,
           instead(shuffle_collector, "secret_order", bytes_of_order(np.uint8))),
    Mutant("collector", "slots are ordered by two bytes", SHUFFLE,
           instead(shuffle_collector, "secret_order", bytes_of_order(np.uint16))),
    Mutant("collector", "a file that grows keeps what came first in front", SHUFFLE,
           instead(ShuffledFile, "grow", in_front)),
    Mutant("collector", "codes that arrive together lie in their order", SHUFFLE,
           instead(ShuffledFile, "append", in_groups)),
    Mutant("collector", "a shuffle of too few is published",
           ("test_too_few_codes_wait_for_the_next_start",),
           instead(ShuffleCollector, "publish", too_few)),
]  # fmt: skip
"""Those of everything that releases, counts or states."""
