"""What ships, end to end: released codes must be ``(x + draw) >> cell_bits``, or the flip.

Public vectors go through every way on which noise is added: ``Privatizer.privatize`` (dense,
sparse, checked before, in several tasks and threads), ``PrivateIndex.add``, releases into
a directory, a file and an index, and private queries; and records through a sketch. The secret
words that are read meanwhile are recorded, with all their randomness, and decoded a second time
(:mod:`dpindex.audit.decoding`). Exact integers are summed here from the entries of the map. So
whatever is done with a draw after the sampler, to any row of any batch of these sizes, shows: less
noise, more noise, noise of other rows, noise used twice.

Words are recorded in the calling process; nothing else may release there at the same time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

import dpindex.mechanism.privatizer
import dpindex.race.sketch
from dpindex.audit.decoding import Ints, Recorder, Replay, UnexplainedError
from dpindex.audit.input_checks import probe_records, with_draws
from dpindex.audit.law_verifiers import LawVerifier, law_verifier, law_verifier_class
from dpindex.audit.verdict import Check
from dpindex.base.arrays import AnyArray
from dpindex.base.errors import InputError
from dpindex.index.build import build_index
from dpindex.index.private_index import PrivateIndex
from dpindex.mechanism.codes import Codes, NumberFormat, SignFormat, codes_from_bytes
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.projector import block_rows
from dpindex.mechanism.spec import Spec
from dpindex.race import RaceSketch, SketchSpec
from dpindex.storage.release import CodesFile
from dpindex.storage.release import release as release_into
from dpindex.vectors import as_source
from dpindex.vectors.dataset import as_dataset

_KINDS = 48
_ENTRIES = 1 << 22
_MOST_NUMBERS = 1 << 22
_SPARSE_CHUNK = 8192
_SMALL = 150
_QUERIES = 12
_FEW_ENTRIES = 6
_STRIDE = 4096
_SIEVE_BITS = 20
_COPIES = 100
_DEVIATIONS = 8.0

_SAME = "a second decoding of the recorded words, added to integers that the audit sums itself"


@contextmanager
def recorded() -> Iterator[list[Recorder]]:
    """Keep the words of every stream that the encoder or a sketch asks for meanwhile."""
    users: tuple[Any, ...] = (dpindex.mechanism.privatizer, dpindex.race.sketch)
    name = "secret_stream"
    recorders = list[Recorder]()

    def recording(stream: Callable[[], Any]) -> Callable[[], Recorder]:
        def record() -> Recorder:
            recorders.append(Recorder(stream()))
            return recorders[-1]

        return record

    streams = [getattr(user, name) for user in users]
    try:
        for user, stream in zip(users, streams, strict=True):
            setattr(user, name, recording(stream))
        yield recorders
    finally:
        for user, stream in zip(users, streams, strict=True):
            setattr(user, name, stream)


def path_checks(spec: Spec, verifier: LawVerifier, large: bool) -> list[Check]:
    """Every way on which codes of ``spec`` are released.

    ``large`` takes more vectors than a task and a chunk hold, so that there are several of each,
    and adds what goes through files.
    """
    return _Paths(spec, verifier, large).checks()


class _Paths:
    """Public vectors, their exact integers, and the words that all their releases have read."""

    def __init__(self, spec: Spec, verifier: LawVerifier, large: bool) -> None:
        self.spec = spec
        self.verifier = verifier
        self.large = large
        self.rows = probe_rows(spec)
        self.exact = exact_integers(spec, self.rows)
        self.low, self.high = spec.bounds
        thin = np.count_nonzero(self.rows, axis=1) <= _FEW_ENTRIES
        # Sparse vectors: a few entries, or none; whole rows where the bounds or the norm want them.
        self.thin = np.flatnonzero(thin) if thin.any() else np.arange(len(self.rows))
        self.recorders: list[Recorder] = []
        self.random = np.random.default_rng(0)

    def checks(self) -> list[Check]:
        found = [self._check("path: privatize, dense", self._dense())]
        if self.low <= 0 <= self.high:
            found.append(self._check("path: privatize, sparse", self._sparse()))
        found.append(self._check("path: PrivateIndex.add", self._added()))
        found.append(self._queries_check())
        if self.large:
            found.append(
                self._check("path: build, codes file, import, save and open", self._built())
            )
        found.append(words_check(self.recorders))
        return found

    def _check(self, name: str, releases: Iterator[tuple[Callable[[], Codes], Ints]]) -> Check:
        faults = []
        codes = 0
        streams = 0
        for release, kinds in releases:
            with recorded() as recorders:
                made = release()
            self.recorders += recorders
            codes = codes + len(made)
            streams = streams + len(recorders)
            fault = self._fault(made, self.exact[kinds], recorders)
            faults += [fault] if fault else []
        found = "; ".join(faults) or f"{codes} codes follow from the words of {streams} streams"
        return Check(name, found, "exactly x + draw, or the flip", _SAME, not faults)

    def _fault(self, codes: Codes, x: Ints, recorders: Sequence[Recorder]) -> str:
        if codes.format != self.spec.format or codes.stored.shape[:1] != x.shape[:1]:
            return "codes of another format or number"
        return unexplained(self.verifier, x, np.asarray(codes.stored), recorders)

    def _many(self, sparsely: bool = False, chunk: int = 0) -> int:
        """Rows that fill ``chunk``, or else two tasks, and a few more."""
        k = self.spec.projection.k
        dim = self.spec.dim
        rows = (chunk or 2 * block_rows(self.spec, sparsely)) + 7 if self.large else _SMALL
        width = k if sparsely else max(k, dim)
        return max(3, min(rows, _MOST_NUMBERS // width))

    def _drawn(self, rows: int) -> Ints:
        return self.random.integers(0, len(self.rows), rows)

    def _thin(self, rows: int) -> tuple[Any, Ints]:
        kinds = self.random.choice(self.thin, rows)
        return sparse.csr_matrix(self.rows[self.thin])[np.searchsorted(self.thin, kinds)], kinds

    def _dense(self) -> Iterator[tuple[Callable[[], Codes], Ints]]:
        encoder = self._encoder()
        # Small ones first, so that tasks hold codes of different widths.
        size = np.argsort(np.abs(self.exact).max(axis=1))
        kinds = size[np.sort(self._drawn(self._many()))]
        x = self.rows[kinds]
        few = kinds[:_SMALL]
        yield lambda: encoder().privatize(x, threads=2), kinds
        yield lambda: encoder().privatize(self.rows[few], checked=True), few
        yield lambda: encoder().privatize(self.rows[kinds[0]]), kinds[:1]

    def _sparse(self) -> Iterator[tuple[Callable[[], Codes], Ints]]:
        encoder = self._encoder()
        x, kinds = self._thin(self._many(sparsely=True))
        yield lambda: encoder().privatize(x, threads=2), kinds
        few, same = self._thin(3)
        yield lambda: encoder().privatize(few, checked=True), same

    def _encoder(self) -> Callable[[], Privatizer]:
        """Made while words are recorded: it asks for its streams from then on."""
        return lambda: Privatizer(self.spec)

    def _added(self) -> Iterator[tuple[Callable[[], Codes], Ints]]:
        kinds = self._drawn(_SMALL)
        half = len(kinds) // 3

        def add() -> Codes:
            index = PrivateIndex(self.spec)
            index.add(self.rows[kinds[:half]])
            index.add(self.rows[kinds[half:]])
            return index.codes

        yield add, kinds

    def _built(self) -> Iterator[tuple[Callable[[], Codes], Ints]]:
        with TemporaryDirectory(prefix="dpindex-audit-") as name:
            folder = Path(name)

            def built(x: Any) -> Codes:
                place = folder / f"{x.shape[0]}-{sparse.issparse(x)}"
                build_index(as_dataset(as_source(x)), place, self.spec)
                return PrivateIndex.open(place).codes

            def written(x: Any) -> Codes:
                target = CodesFile(folder / "codes", self.spec)
                release_into(as_dataset(as_source(x)), target)
                return codes_from_bytes((folder / "codes").read_bytes())

            def taken(x: Any) -> Codes:
                index = PrivateIndex(self.spec)
                index.add(as_dataset(as_source(x)))
                index.save(folder / "saved")
                return PrivateIndex.open(folder / "saved").codes

            if self.low <= 0 <= self.high:
                thin, kinds = self._thin(self._many(True, _SPARSE_CHUNK))
                yield lambda: built(thin), kinds
            dense = self._drawn(self._many(chunk=self._dense_chunk()))
            yield lambda: built(self.rows[dense]), dense
            few = self._drawn(_SMALL)
            yield lambda: written(self.rows[few]), few
            yield lambda: taken(self.rows[few]), few

    def _dense_chunk(self) -> int:
        """No chunk of vectors in float64 has more rows."""
        return min(1 << 16, (1 << 25) // (8 * self.spec.dim))

    def _queries_check(self) -> Check:
        """Queries get noise of their own; the answer is that to the codes which follow from it."""
        index = self._searchable(max(0.001, self.spec.budget / 2))
        kinds = self._drawn(_QUERIES)
        asked = self.rows[kinds]
        with recorded() as recorders:
            hits = index.search(asked, k=len(index), query="private")
        with recorded() as second:
            index.search(asked, k=1, query="private")
        self.recorders += [*recorders, *second]
        verifier = law_verifier(index.query_spec, self.verifier.apart)
        x = exact_integers(index.query_spec, self.rows)[kinds]
        found = f"{len(kinds)} private queries get noise of their own"
        try:
            wanted = decoded(verifier, x, recorders)
            decoded(verifier, x, second)
        except UnexplainedError:
            wanted = None
        if wanted is not None:
            codes = index.query_spec.format.codes(packed(index.query_spec, wanted))
            same = index.search(codes, k=len(index))
            passed = np.array_equal(hits.scores, same.scores) and np.array_equal(hits.ids, same.ids)
        else:
            passed = False
        return Check(
            "path: private queries",
            found if passed else "queries are answered with other codes, or without noise",
            f"the answer to x + draw, or the flip, under {index.query_spec.guarantee}",
            _SAME,
            passed,
        )

    def _searchable(self, epsilon: float) -> PrivateIndex:
        try:
            index = PrivateIndex(self.spec, query_epsilon=epsilon if self.large else None)
        except InputError:  # so little budget is not to be had
            index = PrivateIndex(self.spec)
        with recorded() as recorders:
            index.add(self.rows)
        self.recorders += recorders
        return index


def sketch_path_checks(spec: SketchSpec, verifier: LawVerifier) -> list[Check]:
    """Every way on which counts are released: a sketch of its own, a merged one, a class of one.

    The exact counts are those of the same records with draws of zero, which other checks are about.
    """
    records = probe_records(spec)
    half = len(records) // 2
    many = np.tile(records, (_COPIES, 1))
    silent = [with_draws(spec, x, 0).counts.astype(np.int64) for x in (many, records)]
    recorders: list[Recorder] = []
    faults: list[str] = []

    def merged() -> RaceSketch:
        other = RaceSketch(spec).fit(records[:half])
        return RaceSketch(spec).fit(records[half:]).merge(other).release()

    def stored() -> RaceSketch:
        sketch = RaceSketch(spec).partial_fit([records[:half], records[half:]]).release()
        return RaceSketch.from_bytes(sketch.to_bytes())

    def plain() -> RaceSketch:
        return RaceSketch(spec).fit(many).release()

    ways = {
        "released": (plain, silent[0]),
        "merged": (merged, silent[1]),
        "stored": (stored, silent[1]),
    }
    for way, (release, exact) in ways.items():
        with recorded() as streams:
            counts = release().counts.astype(np.int64)
        recorders += streams
        try:
            wanted = decoded(verifier, exact.reshape(1, -1), streams).reshape(counts.shape)
        except UnexplainedError:
            wanted = np.full(counts.shape, -1)
        faults += [way] if not np.array_equal(wanted, counts) else []
    found = f"{len(ways)} sketches, of {len(many)} and {len(records)} records"
    return [
        Check(
            "path: released counts, merged and stored",
            f"other counts where {', '.join(faults)}" if faults else found,
            "exactly count + draw",
            _SAME,
            not faults,
        ),
        words_check(recorders),
    ]


def probe_rows(spec: Spec) -> npt.NDArray[np.float64]:
    """Public vectors: the corners of the bounds, ties of the grid, the origin, a few entries, none.

    A declared norm or a least norm is kept.
    """
    random = np.random.default_rng(1)
    low, high = (bound * spec.scale for bound in spec.bounds)
    if spec.norm is not None or spec.min_norm is not None:
        size = (spec.norm or 1.02 * (spec.min_norm or 0.0)) * spec.scale / np.sqrt(spec.dim)
        if size > max(-low, high):
            raise InputError("no vector within the bounds has the norm of this spec; widen them.")
        signs = random.integers(0, 2, (_KINDS, spec.dim)) * 2 - 1
        reachable = np.where(
            signs * size > high, -signs, np.where(signs * size < low, -signs, signs)
        )
        return np.asarray(reachable * size, dtype=np.float64)
    rows = random.uniform(low, high, (_KINDS, spec.dim))
    step = spec.grid.step * spec.scale
    rows[:8] = random.choice([low, high], (8, spec.dim))
    rows[8:16] = np.clip((np.floor(rows[8:16] / step) + 0.5) * step, low, high)
    if low <= 0 <= high:
        rows[16:24] = np.where(random.random((8, spec.dim)) < 0.5, 0.0, rows[16:24])
        kept = random.integers(0, spec.dim, (16, _FEW_ENTRIES))
        thin = np.zeros((16, spec.dim))
        np.put_along_axis(thin, kept, np.take_along_axis(rows[24:40], kept, axis=1), axis=1)
        rows[24:40] = thin
        rows[40] = 0.0
    if spec.clip:
        rows[41:44] *= 3.0
    return rows


def exact_integers(spec: Spec, rows: npt.NDArray[np.float64]) -> Ints:
    """The projected grid integers of vectors, summed from the entries of the map.

    Laws of whole codes promise the same of any input, so there the map itself is believed.
    """
    if law_verifier_class(spec).whole_code:
        return np.asarray(spec.projection.apply(rows))
    grid = spec.rounding_grid
    dim = spec.dim
    low, high = (bound * grid.scale for bound in grid.bounds)
    factor = np.array(1.0 / (grid.step * grid.scale), dtype=grid.dtype)
    floats: Any = np.clip(rows, low, high).astype(grid.dtype)
    whole = np.rint(floats * factor).astype(np.float64)
    total = np.zeros((len(rows), spec.code_length))
    block = max(1, _ENTRIES // max(dim, spec.code_length))
    for start in range(0, dim, block):
        stop = min(start + block, dim)
        entries = np.asarray(spec.projection.apply(np.eye(stop - start, dim, start)))
        # Below 2^53 sums of integers are exact in any order.
        total += whole[:, start:stop] @ entries.astype(np.float64)
    return total.astype(np.int64)


def packed(spec: Spec, outcomes: AnyArray) -> AnyArray:
    """Outcomes as they are stored: signs eight to a byte, the first lowest; numbers as they are."""
    if isinstance(spec.format, SignFormat):
        return np.packbits(outcomes, axis=1, bitorder="little")
    if isinstance(spec.format, NumberFormat):
        return outcomes
    return np.asarray(spec.format.pack(outcomes))


def unexplained(
    verifier: LawVerifier, x: Ints, stored: AnyArray, recorders: Sequence[Recorder]
) -> str:
    """What is wrong with codes of exact integers ``x``; "" if they follow from the words.

    Every stream must explain a run of rows, and every row must have a stream of its own.
    """
    start = 0
    left = list(recorders)
    while start < len(x):
        explained = [
            (len(outcomes), place)
            for place, recorder in enumerate(left)
            if (outcomes := _first_rows(verifier, x[start:], recorder, stored[start:])) is not None
        ]
        if not explained:
            return f"no words explain the codes from row {start} of {len(x)} on"
        # A stream of few rows may explain others by chance: its own turn comes.
        rows, place = max(explained)
        start += rows
        del left[place]
    if left:
        return f"{len(left)} of {len(recorders)} streams explain no codes"
    return ""


def decoded(verifier: LawVerifier, x: Ints, recorders: Sequence[Recorder]) -> AnyArray:
    """The outcomes that the words of one stream after the other make of ``x``."""
    parts: list[AnyArray] = []
    done = 0
    for recorder in recorders:
        outcomes = _first_rows(verifier, x[done:], recorder, None)
        if outcomes is None:
            raise UnexplainedError
        parts.append(outcomes)
        done += len(outcomes)
    if done != len(x):
        raise UnexplainedError
    return np.concatenate(parts)


def _first_rows(
    verifier: LawVerifier, x: Ints, recorder: Recorder, stored: AnyArray | None
) -> AnyArray | None:
    """What the words of a stream make of the first rows, if that is what is stored."""
    if not recorder.reads:
        return None
    for count in verifier.rows_drawn(x, recorder.reads):
        words = Replay(recorder.reads)
        try:
            outcomes = verifier.outcomes(x[:count], words)
        except UnexplainedError:
            continue
        if words.spent and (
            stored is None or np.array_equal(packed(verifier.spec, outcomes), stored[:count])
        ):
            return outcomes
    return None


def words_check(recorders: Sequence[Recorder]) -> Check:
    """No run of words is read twice, by whatever call, task or thread; and every bit is fair.

    Eight bytes every four thousand, and the first of every read, are looked for everywhere, as they
    are and inverted. They meet by chance with probability below 1e-7, and a fair bit is as uneven
    as is refused here with probability below 1e-13.
    """
    reads = [read.view(np.uint8) for recorder in recorders for read in recorder.reads]
    reads = [read for read in reads if len(read) >= 8]
    name = "path: words of calls, tasks and threads"
    bound = "each read once, all bits even"
    theorem = "an experiment; releases compose only if their noise is independent"
    if not reads:
        return Check(name, "no words were read", bound, theorem, False)
    everything = np.concatenate(reads)
    starts = np.cumsum([0, *map(len, reads)])[:-1]
    marks = np.concatenate(
        [np.arange(s, s + len(r) - 7, _STRIDE) for s, r in zip(starts, reads, strict=True)]
    )
    marked = everything[marks[:, None] + np.arange(8)].copy().view(np.uint64).ravel()
    wanted = np.unique(np.concatenate([marked, ~marked]))
    likely = np.zeros(1 << _SIEVE_BITS, dtype=np.bool_)
    high = np.uint64(64 - _SIEVE_BITS)
    likely[(wanted >> high).astype(np.intp)] = True
    met = 0
    for shift in range(8):
        size = (len(everything) - shift) // 8 * 8
        seen = everything[shift : shift + size].copy().view(np.uint64)
        seen = seen[likely[(seen >> high).view(np.int64)]]
        places = np.minimum(np.searchsorted(wanted, seen), len(wanted) - 1)
        met += int(np.count_nonzero(wanted[places] == seen))
    count = len(everything) // 8
    again = met - len(marks) + 2 * len(marks) - len(wanted)
    bits = np.unpackbits(everything[: 8 * count].reshape(count, 8), axis=1).sum(axis=0)
    uneven = float(np.abs(2.0 * bits - count).max() / np.sqrt(count))
    return Check(
        name,
        f"{again} of {len(marks)} places read again in {len(recorders)} streams, "
        f"{len(everything)} bytes; most uneven bit {uneven:.1f} deviations",
        bound,
        theorem,
        again == 0 and uneven <= _DEVIATIONS,
    )


def entropy_check(stream: Callable[[], Any]) -> Check:
    """A thread's new stream is a function of what the operating system gives it, and of all of it.

    The bytes that one new stream is given are genuine; they are given to others once more, in this
    audit's own threads alone, as they are and with one byte changed.
    """
    genuine, first = _first_words(stream, None)
    again = _first_words(stream, genuine)[1]
    decisive = 0
    for place in range(min(len(genuine), 64)):
        other = bytearray(genuine)
        other[place] ^= 1
        decisive += _first_words(stream, bytes(other))[1] != first
    return Check(
        "stream: keys come from the operating system",
        f"{decisive} of {len(genuine)} bytes decide the words"
        + ("" if again == first else ", and something else does too"),
        "32 or more, and nothing else",
        "a key that the clock, a counter or a seed decides could be found again",
        again == first and decisive >= 32,
    )


def _first_words(stream: Callable[[], Any], given: bytes | None) -> tuple[bytes, bytes]:
    """What a new thread's stream is given by the system, or was ``given``, and its first words."""
    name = "urandom"
    ask = os.urandom
    served = bytearray()
    found = list[bytes]()

    def answer(count: int) -> bytes:
        if threading.current_thread() is not reader:
            return ask(count)
        at = len(served)
        fresh = ask(count) if given is None else given[at : at + count].ljust(count, b"\0")
        served.extend(fresh)
        return fresh

    def read() -> None:
        found.append(stream().words(64, np.uint8).tobytes())

    reader = threading.Thread(target=read)
    try:
        setattr(os, name, answer)
        reader.start()
        reader.join()
    finally:
        setattr(os, name, ask)
    return bytes(served), found[0]
