"""What workers do with a shard: check it, and privatize and publish it once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dpindex.base.arrays import AnyArray, Integers
from dpindex.base.errors import InputError
from dpindex.index.directory import FileMark, segment_paths
from dpindex.index.leak_check import shared_words
from dpindex.mechanism.codebook import Codebook
from dpindex.mechanism.codes import codes_from_bytes
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.projector import Projector
from dpindex.mechanism.spec import Spec
from dpindex.shards.plan import Job, Segment, Shard, default_ids, token_of
from dpindex.storage.code_store import ids_to_bytes
from dpindex.storage.payload import Payload, Table, payload_to_bytes
from dpindex.vectors.dataset import Part
from dpindex.vectors.source import Chunk, VectorSource
from dpindex.vectors.stores import Store, open_store

__all__ = ["Receipt", "check_shard", "privatize_shard"]

_CHUNK_BYTES = 1 << 25
_SPARSE_ROWS = 8192
_MAX_HEADER_BYTES = 1 << 16
_MAX_CODEBOOK_BYTES = 1 << 33
_MAX_PAYLOAD_BYTES = 1 << 31


@dataclass(frozen=True)
class Receipt:
    """What lies in the target under the name of a segment.

    Attributes
    ----------
    number : str
        Of the segment.
    files : mapping of paths to FileMark
        Of its codes and payload.
    made : int
        Rows that this attempt published; 0 if another one had.

    >>> Receipt("000000", {"segments/000000.codes": FileMark.of(b"codes")}, made=1).made
    1
    """

    number: str
    files: Mapping[str, FileMark]
    made: int


def check_shard(shard: Shard, codebook: Codebook | None = None) -> dict[int, int]:
    """Check every vector of a shard and its payload, before any budget is spent.

    Parameters
    ----------
    shard : Shard
    codebook : Codebook, optional
        Look for its codewords among the vectors.

    Returns
    -------
    The codewords that are private vectors too, each with the row of one.

    Raises
    ------
    InputError
        For vectors that were changed, and those that privatizing would refuse; rows are counted
        from the first of the part that the message names.

    >>> import tempfile
    >>> import numpy as np
    >>> from dpindex import Spec
    >>> from dpindex.shards import plan_shards
    >>> from dpindex.vectors import open_dataset
    >>> folder = tempfile.TemporaryDirectory()
    >>> np.save(folder.name + "/x.npy", np.zeros((5, 6)))
    >>> dataset = open_dataset(folder.name + "/x.npy", rows_per_part=4)
    >>> spec = Spec("dp-oporp-staircase", dim=6, k=2, epsilon=2.0)
    >>> plan = plan_shards(dataset, folder.name + "/index", spec)
    >>> [check_shard(shard) for shard in plan.shards]
    [{}, {}]
    >>> folder.cleanup()
    """
    projector = _projector(shard.job.spec)

    def checked(source: VectorSource) -> Iterator[tuple[int, Chunk]]:
        for first, chunk in source.chunks(_rows_at_a_time(source)):
            with _naming(shard.part):
                projector.check(chunk, first_row=first)
            yield shard.first_row + first, chunk

    with _naming(shard.part):
        Payload().checked(shard.part.payload(), shard.part.rows)
    with shard.part.vectors() as source:
        if codebook is not None:
            return shared_words(codebook, checked(source))
        for _ in checked(source):
            pass
    return {}


def privatize_shard(shard: Shard, *, threads: int | None = None) -> list[Receipt]:
    """Privatize the segments of a shard that are not published, and publish each of them once.

    An engine may call it as often as it likes, at the same time, and kill it: noise is drawn in
    the memory of this process, and is published by creating the segment, which succeeds for one
    attempt only. What the others drew is discarded unread, and their receipt is for what they find.

    Parameters
    ----------
    shard : Shard
        Of a plan that has begun.
    threads : int, optional
        Threads of this process; default all cores. One is right where the engine runs a task on
        every core.

    Raises
    ------
    InputError
        If the plan has not begun or has ended, the vectors or ids were changed, or the store cannot
        be reached.

    >>> import tempfile
    >>> import numpy as np
    >>> from dpindex import Spec
    >>> from dpindex.shards import plan_shards
    >>> from dpindex.vectors import open_dataset
    >>> folder = tempfile.TemporaryDirectory()
    >>> np.save(folder.name + "/x.npy", np.zeros((5, 6)))
    >>> dataset = open_dataset(folder.name + "/x.npy", rows_per_part=4)
    >>> spec = Spec("dp-oporp-staircase", dim=6, k=2, epsilon=2.0)
    >>> plan = plan_shards(dataset, folder.name + "/index", spec)
    >>> plan.begin()
    >>> [[r.made for r in privatize_shard(shard)] for shard in [*plan.shards, plan.shards[0]]]
    [[4], [1], [0]]
    >>> folder.cleanup()
    """
    job, store = shard.job, open_store(shard.job.target)
    if token_of(store) != job.token:
        raise InputError(f"{job.target} is not being built under this plan; begin it first.")
    beside = bool(shard.part.payload_columns)
    receipts = {segment.number: _found(store, job, segment, beside) for segment in shard.segments}
    missing = [segment for segment in shard.segments if receipts[segment.number] is None]
    if missing:
        ids = _ids(shard)
        payload = Payload().checked(shard.part.payload(), shard.part.rows)
        with shard.part.vectors() as source:
            for segment, start, codes in _privatized(shard, missing, source, threads):
                shard.part.refuse_changed()
                some = ids[start : start + segment.rows]
                columns = None if payload is None else payload.slice(start, segment.rows)
                made = _published(store, job, segment, some, columns, codes)
                receipts[segment.number] = made
    return [receipt for receipt in receipts.values() if receipt is not None]


def _privatized(
    shard: Shard, missing: list[Segment], source: VectorSource, threads: int | None
) -> Iterator[tuple[Segment, int, bytes]]:
    """The codes of missing segments, each with its first row in the part."""
    privatizer, step = _privatizer(shard.job), _rows_at_a_time(source)
    format_ = privatizer.spec.format
    chunks = source.chunks(step)
    first, chunk = next(chunks)
    start = 0
    for segment in shard.segments:
        stop, stored = start + segment.rows, list[Integers]()
        at = start
        while at < stop:
            if at >= first + chunk.shape[0]:
                first, chunk = next(chunks)
            some = chunk[at - first : stop - first]
            if segment in missing:
                with _naming(shard.part):
                    codes = privatizer.privatize(some, first_row=at, threads=threads)
                stored.append(codes.stored)
            at += some.shape[0]
        if segment in missing:
            yield segment, start, format_.codes(format_.concatenate(stored)).to_bytes()
        start = stop


@contextmanager
def _naming(part: Part) -> Iterator[None]:
    """Begin messages about rows with the part that they are counted in."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{part.name}: {error}") from None


def _rows_at_a_time(source: VectorSource) -> int:
    """Rows of which the vectors do not take much memory."""
    row_bytes = source.shape[1] * max(4, np.dtype(source.dtype).itemsize)
    return _SPARSE_ROWS if source.is_sparse else max(1, _CHUNK_BYTES // row_bytes)


def _published(
    store: Store, job: Job, segment: Segment, ids: AnyArray, payload: Table, codes: bytes
) -> Receipt:
    """Publish a segment, its codes last, or take what was published under its name."""
    place, ids_place, payload_place = segment_paths(segment.number)
    names = ids_to_bytes(ids)
    if FileMark.of(names) != segment.ids:
        raise InputError(f"the ids of segment {segment.number} are not those of the plan.")
    beside = {ids_place: names}
    if payload is not None:
        beside[payload_place] = payload_to_bytes(payload)
    for path, data in beside.items():
        if not store.create(job.token, path, data):
            raise InputError(f"{store.location}/{path} is not of this build; remove it.")
    if store.create(job.token, place, codes):
        files = {place: codes, **beside}
        marks = {path: FileMark.of(data) for path, data in files.items() if path != ids_place}
        return Receipt(segment.number, marks, segment.rows)
    found = _found(store, job, segment, payload is not None)
    if found is None:  # nothing that is published is ever removed
        raise InputError(f"{store.location}/{place} cannot be seen; build again to go on.")
    return found


def _found(store: Store, job: Job, segment: Segment, has_payload: bool) -> Receipt | None:
    """The receipt of a segment that is published, None if it is not."""
    place, _, payload_place = segment_paths(segment.number)
    spec = _privatizer(job).spec
    data = store.read(place, segment.rows * spec.format.max_row_bytes + _MAX_HEADER_BYTES)
    if data is None:
        return None
    codes = codes_from_bytes(data)
    if codes.fingerprint != spec.fingerprint or len(codes) != segment.rows:
        raise InputError(f"{store.location}/{place} is not of this build; remove it.")
    files = {place: FileMark.of(data)}
    if has_payload:
        beside = store.read(payload_place, _MAX_PAYLOAD_BYTES)
        if beside is None:
            raise InputError(f"{store.location}/{payload_place} is missing; it was removed.")
        files[payload_place] = FileMark.of(beside)
    return Receipt(segment.number, files, 0)


def _ids(shard: Shard) -> AnyArray:
    ids = shard.part.ids()
    return default_ids(shard.first_row, shard.part.rows) if ids is None else ids


@lru_cache(maxsize=2)
def _projector(spec: str) -> Projector:
    """What checks vectors; it needs no codewords."""
    return Projector(Spec.from_json(spec))


@lru_cache(maxsize=2)
def _privatizer(job: Job) -> Privatizer:
    """Made once for all shards of a build that come to this process."""
    spec = Spec.from_json(job.spec)
    if job.codebook is not None:
        data = open_store(job.target).read(job.codebook, _MAX_CODEBOOK_BYTES)
        if data is None:
            raise InputError(f"{job.target} has no {job.codebook}; begin the plan first.")
        spec = spec.with_codebook(Codebook.from_bytes(data))
    return Privatizer(spec, allow_unprotected=job.allow_unprotected)
