"""The plan of a build in shards: which rows become which segments of which index."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dpindex.accounting.ledger import Ledger
from dpindex.base.arrays import AnyArray
from dpindex.base.errors import InputError
from dpindex.base.files import make_folder, read_file, write_file
from dpindex.exposure.visibility import visibility
from dpindex.index.directory import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    FileMark,
    Manifest,
    Settings,
    codebook_path,
    segment_paths,
)
from dpindex.index.journal import state_folder
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.projector import Projector
from dpindex.mechanism.spec import Spec
from dpindex.storage.code_store import ids_to_bytes, rows_per_segment
from dpindex.vectors.dataset import Dataset, Part
from dpindex.vectors.stores import Store, is_url, open_store

__all__ = ["PLAN", "Job", "Plan", "Segment", "Shard", "default_ids", "plan_shards"]

PLAN = "plan.json"
"""Made first in a target and never removed: what tells its build from any other, as keyed hashes.

A target is published, so a hash of anything of the vectors must not be one that a reader can
compute: who guesses the vectors could confirm the guess. The key never lies in the target.
"""

_FORMAT = 1
_KEY_BYTES = 32
_MAX_PLAN_BYTES = 1 << 12
_MOST_SEGMENTS = 10**6
_LEDGER_ROWS = 1 << 22
"""Rows that the ledger is told of at a time."""


@dataclass(frozen=True)
class Job:
    """What all shards of a build have in common.

    Attributes
    ----------
    target : str
        The index: an absolute path or a URL.
    token : str
        Names the build, in its target and in the ledger.
    spec : str
        JSON of the spec.
    codebook : str, optional
        Where the codewords lie in the target.
    allow_unprotected : bool
        Whether it may be a ``none-*`` baseline.
    """

    target: str
    token: str
    spec: str
    codebook: str | None
    allow_unprotected: bool


@dataclass(frozen=True)
class Segment:
    """Rows that become one file of codes, whose name they have for ever.

    Attributes
    ----------
    number : str
        Six digits.
    rows : int
    ids : FileMark
        Of the file of their ids.

    >>> Segment("000007", 65536, FileMark.of(b"")).number
    '000007'
    """

    number: str
    rows: int
    ids: FileMark


@dataclass(frozen=True)
class Shard:
    """Work for one worker: a part of the vectors, and the segments that it becomes.

    It is small and pickles; it holds no vector, no id and no noise.

    Attributes
    ----------
    job : Job
    part : Part
    first_row : int
        Of the part in the dataset.
    segments : tuple of Segment

    >>> import pickle, tempfile
    >>> from dpindex.vectors import open_dataset
    >>> folder = tempfile.TemporaryDirectory()
    >>> np.save(folder.name + "/x.npy", np.zeros((5, 6)))
    >>> spec = Spec("dp-oporp-staircase", dim=6, k=2, epsilon=2.0)
    >>> plan = plan_shards(open_dataset(folder.name + "/x.npy"), folder.name + "/index", spec)
    >>> pickle.loads(pickle.dumps(plan.shards[0])) == plan.shards[0]
    True
    >>> folder.cleanup()
    """

    job: Job
    part: Part
    first_row: int
    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class Plan:
    """All shards of a build, from :func:`plan_shards`.

    Attributes
    ----------
    settings : Settings
        Of the index.
    shards : tuple of Shard
    begun : bool
        Whether the build had begun when it was planned.
    read_ids : callable
        Gives the ids of a part.

    >>> import tempfile
    >>> from dpindex.vectors import open_dataset
    >>> folder = tempfile.TemporaryDirectory()
    >>> np.save(folder.name + "/x.npy", np.zeros((5, 6)))
    >>> spec = Spec("dp-oporp-staircase", dim=6, k=2, epsilon=2.0)
    >>> plan = plan_shards(open_dataset(folder.name + "/x.npy"), folder.name + "/index", spec)
    >>> plan.rows, plan.begun
    (5, False)
    >>> folder.cleanup()
    """

    settings: Settings
    shards: tuple[Shard, ...]
    begun: bool
    read_ids: Callable[[Part], AnyArray | None] = field(repr=False)

    @property
    def job(self) -> Job:
        return self.shards[0].job

    @property
    def segments(self) -> list[Segment]:
        """All segments in the order of rows."""
        return [segment for shard in self.shards for segment in shard.segments]

    @property
    def rows(self) -> int:
        return sum(segment.rows for segment in self.segments)

    @property
    def store(self) -> Store:
        return open_store(self.job.target)

    def manifest(self, published: Mapping[str, FileMark], sample: Codes | None = None) -> Manifest:
        """The manifest of the finished index.

        Parameters
        ----------
        published : mapping of paths to FileMark
            Of the codes, ids and payload of every segment.
        sample : Codes, optional
            Some of the codes, that tell what noise leaves of a search.
        """
        files = dict(published)
        counts = {segment.number: segment.rows for segment in self.segments}
        number, book = None, self.settings.spec.codebook
        if book is not None:
            number = f"{len(counts):06d}"
            files[codebook_path(number)] = FileMark.of(book.to_bytes())
        following = len(counts) + (book is not None)
        seen = None if sample is None else visibility(sample, self.settings.spec, self.rows)
        return Manifest(
            self.settings,
            "complete",
            next_number=following,
            segments=counts,
            codebook=number,
            files=files,
            visibility=seen,
        )

    def _hashes(self, key: bytes) -> dict[str, str]:
        """Keyed hashes of the inputs that must match for a build to be resumed."""
        parts = [shard.part.fingerprint for shard in self.shards]
        marks = [[segment.rows, segment.ids.sha256] for segment in self.segments]
        stated = {
            "vectors or ids": [parts, marks],
            "options": self.settings.to_dict(),
            "place": self.job.target,
        }
        return {
            name: hmac.digest(key, json.dumps([name, value]).encode(), "sha256").hex()
            for name, value in stated.items()
        }

    def begin(self, ledger: Ledger | None = None, *, allow_rerelease: bool = False) -> None:
        """Make the plan the one of its target, and tell the ledger of every id, durably.

        Before that no shard can be published. To begin again goes on with the same build.

        Parameters
        ----------
        ledger : Ledger, optional
            It needs ids.
        allow_rerelease : bool
            Allow ids that the ledger knows, at the price of one more epsilon each.

        Raises
        ------
        InputError
            If the target has another plan or is a finished index, and what the ledger refuses;
            nothing is published then.
        """
        store, job, book = self.store, self.job, self.settings.spec.codebook
        if ledger is not None and not is_url(job.target):
            ledger.refuse_inside(Path(job.target))
        if ledger is not None and token_of(store) != job.token:
            for ids in self._batches():
                ledger.check(ids, allow_rerelease=allow_rerelease)
        hashes = self._hashes(build_key(job, new=not self.begun))
        facts = {"format": _FORMAT, "token": job.token, "ledger": ledger is not None}
        text = json.dumps({**facts, "hmac": hashes}, indent=1, sort_keys=True).encode()
        if not store.begin(job.token, PLAN, text):
            raise self._other(_planned(store), hashes, ledger is not None)
        if book is not None and not store.create(job.token, str(job.codebook), book.to_bytes()):
            raise InputError(f"{store.location}/{job.codebook} is another codebook.")
        if ledger is not None:
            for batch, ids in enumerate(self._batches()):
                token = f"{job.token}/{batch}"
                ledger.record(self.settings.spec, ids, allow_rerelease=allow_rerelease, token=token)

    def _other(
        self, planned: Mapping[str, Any] | None, hashes: Mapping[str, str], ledger: bool
    ) -> InputError:
        """How the plan that lies in the target differs."""
        planned = planned or {}
        if planned.get("token") != self.job.token:
            return InputError(f"{self.job.target} is being built by another process.")
        there = planned.get("hmac", {})
        differs = [name for name, hash_ in hashes.items() if there.get(name) != hash_]
        if planned.get("ledger") is not ledger:
            differs.append("ledger")
        return InputError(
            f"{self.job.target} holds an unfinished build of other input (its "
            f"{' and '.join(differs)} differ); finish it with the same, or choose another place."
        )

    def _batches(self) -> Iterator[AnyArray | None]:
        """All ids, some millions at a time; None if there are none."""
        batch: list[AnyArray] = []
        for shard in self.shards:
            ids = self.read_ids(shard.part)
            if ids is None:
                yield None
                return
            if sum(map(len, batch)) + len(ids) > _LEDGER_ROWS and batch:
                yield np.concatenate(batch)
                batch = []
            batch.append(ids)
        yield np.concatenate(batch)


def _key_path(job: Job) -> Path:
    return state_folder() / f"{hashlib.sha256(job.target.encode()).hexdigest()[:32]}.{job.token}"


def build_key(job: Job, *, new: bool) -> bytes:
    """The secret key of a build, made if the build is ``new``; it stays with who began it.

    Raises
    ------
    InputError
        If the build was begun under another state folder, or the folder cannot be written.
    """
    place = _key_path(job)
    if new and not place.exists():
        key = secrets.token_bytes(_KEY_BYTES)
        try:
            make_folder(place.parent, 0o700)
            write_file(place, key, mode=0o600)
        except OSError as error:
            raise InputError(
                f"{place.parent} cannot be written: {error.strerror}; make room for it there, or "
                f"name another folder in DPINDEX_STATE."
            ) from None
        return key
    if not os.path.isfile(place):
        raise InputError(
            f"{job.target} holds an unfinished build that was begun elsewhere: {place.parent} does "
            f"not know it. Finish it where it was begun."
        )
    return read_file(place, _KEY_BYTES, links=False)


def forget_key(job: Job) -> None:
    """Remove the key of a build that ended."""
    _key_path(job).unlink(missing_ok=True)


def _planned(store: Store) -> dict[str, Any] | None:
    """The plan that lies in a target, None if there is none."""
    text = store.read(PLAN, _MAX_PLAN_BYTES)
    if text is None:
        return None
    try:
        facts = json.loads(text)
        if facts["format"] == _FORMAT and isinstance(facts["token"], str):
            return dict(facts)
    except (ValueError, KeyError, TypeError):
        pass
    raise InputError(f"{store.location}/{PLAN} is no plan of this version; choose another place.")


def token_of(store: Store) -> str | None:
    """The token of the build that has begun in a target, None if none has."""
    planned = _planned(store)
    return None if planned is None else str(planned["token"])


def default_ids(first_row: int, rows: int) -> AnyArray:
    """The ids of rows that have none: their numbers."""
    return np.arange(first_row, first_row + rows, dtype=np.int64)


def plan_shards(
    dataset: Dataset,
    target: str,
    settings: Settings | Spec,
    *,
    allow_unprotected: bool = False,
    rows: int | None = None,
    read_ids: Callable[[Part], AnyArray | None] = lambda part: part.ids(),
) -> Plan:
    """Plan a build: nothing is written, and of the vectors nothing but the ids is read.

    The same input makes the same plan, in this or another process, later or at the same time. If a
    build has begun at the target, the plan goes on with it.

    Parameters
    ----------
    dataset : Dataset
        From :func:`dpindex.vectors.open_dataset`; each of its parts becomes a shard.
    target : path or URL
        The index to make: a new or empty folder that all workers reach under this path, or a
        prefix of an object store.
    settings : Settings or Spec
    allow_unprotected : bool
        Allow a ``none-*`` baseline.
    rows : int, optional
        Rows of a segment; default as many as fill one.
    read_ids : callable, optional
        The ids of a part, if it cannot read them here.

    Raises
    ------
    InputError
        For bad ids, a target that holds something else, vectors of another length than the spec's,
        and a spec that protects nothing.

    >>> import tempfile
    >>> from dpindex.vectors import open_dataset
    >>> folder = tempfile.TemporaryDirectory()
    >>> np.save(folder.name + "/x.npy", np.zeros((5, 6)))
    >>> dataset = open_dataset(folder.name + "/x.npy", rows_per_part=4)
    >>> spec = Spec("dp-oporp-staircase", dim=6, k=2, epsilon=2.0)
    >>> plan = plan_shards(dataset, folder.name + "/index", spec, rows=3)
    >>> [[segment.number for segment in shard.segments] for shard in plan.shards]
    [['000000', '000001'], ['000002']]
    >>> folder.cleanup()
    """
    settings = Settings(settings) if isinstance(settings, Spec) else settings
    spec, store = settings.spec, open_store(target)
    spec.refuse_unprotected(allow_unprotected, "build with it")
    Projector(settings.query_spec)  # refuses now what could not be asked later
    if dataset.columns != spec.dim:
        raise InputError(
            f"{dataset.name} has {dataset.columns} columns where the spec says {spec.dim}."
        )
    token = _token(store)
    name = token or secrets.token_hex(16)
    job = Job(store.location, name, spec.to_json(), None, allow_unprotected)
    shards = tuple(_shards(dataset, job, rows or rows_per_segment(spec), read_ids))
    count = sum(len(shard.segments) for shard in shards)
    if spec.codebook is not None:
        job = replace(job, codebook=codebook_path(f"{count:06d}"))
        shards = tuple(replace(shard, job=job) for shard in shards)
    plan = Plan(settings, shards, token is not None, read_ids)
    paths = [path for segment in plan.segments for path in segment_paths(segment.number)]
    likely = dict.fromkeys(paths, FileMark(1 << 30, "0" * 64))
    if count >= _MOST_SEGMENTS or len(plan.manifest(likely).to_bytes()) > MAX_MANIFEST_BYTES:
        raise InputError(
            f"{dataset.name} would make {count} segments, too many for one manifest; use larger "
            f"files and row groups, or build several indexes."
        )
    return plan


def _token(store: Store) -> str | None:
    """Of the build that has begun; None in a new place, InputError in one of another use."""
    token, found = token_of(store), store.sizes()
    if MANIFEST in found:
        raise InputError(
            f"{store.location} is a finished index; building into it again would spend the "
            f"budget of every vector twice. Choose another place."
        )
    if found and token is None:
        raise InputError(f"{store.location} is not empty; choose another place.")
    return token


def _shards(
    dataset: Dataset, job: Job, rows: int, read_ids: Callable[[Part], AnyArray | None]
) -> Iterator[Shard]:
    first_row, number, seen = 0, 0, _Seen()
    for part in dataset.parts:
        ids = read_ids(part)
        names = default_ids(first_row, part.rows) if ids is None else seen.added(ids, part)
        segments = []
        for start in range(0, part.rows, rows):
            some = names[start : start + rows]
            mark = FileMark.of(ids_to_bytes(some))
            segments.append(Segment(f"{number:06d}", len(some), mark))
            number += 1
        yield Shard(job, part, first_row, tuple(segments))
        first_row += part.rows
    seen.refuse_duplicates()


class _Seen:
    """Looks for ids that are given twice, in 16 bytes an id."""

    def __init__(self) -> None:
        self._digests: list[bytes] = []
        self._kind = ""

    def added(self, ids: AnyArray, part: Part) -> AnyArray:
        """The ids of a part, taken note of."""
        if len(ids) != part.rows:
            raise InputError(f"{part.name} has {len(ids)} ids for {part.rows} vectors.")
        if self._kind not in ("", ids.dtype.kind):
            raise InputError(f"{part.name} has ids of another type than the parts before it.")
        self._kind = ids.dtype.kind
        if self._kind == "U":
            names = (name.encode() for name in ids.tolist())
            digests = [hashlib.blake2b(name, digest_size=16).digest() for name in names]
            self._digests.append(b"".join(digests))
        else:
            wide = np.zeros((len(ids), 2), np.int64)
            wide[:, 0] = ids
            self._digests.append(wide.tobytes())
        return ids

    def refuse_duplicates(self) -> None:
        halves = np.frombuffer(b"".join(self._digests), np.int64).reshape(-1, 2)
        order = np.lexsort((halves[:, 1], halves[:, 0]))  # stable
        same = (halves[order[1:]] == halves[order[:-1]]).all(axis=1)
        if same.any():
            place = int(np.argmax(same))
            first, second = int(order[place]), int(order[place + 1])
            raise InputError(
                f"rows {first} and {second} have the same id; ids must be unique in all files."
            )
