"""Vectors in: one function that privatizes a source of any size, and the places codes can go to."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dpindex.arrays import AnyArray, Integers
from dpindex.codes import Codes
from dpindex.errors import InputError, naming
from dpindex.estimators.denoise import Denoiser, Kind
from dpindex.estimators.visibility import visibility
from dpindex.files import create_file
from dpindex.index.claim import Claim
from dpindex.index.code_store import Ids, ids_to_bytes
from dpindex.index.directory import IndexDirectory, Manifest, Settings, rows_per_segment
from dpindex.index.leak_check import refuse_shared_rows
from dpindex.index.payload import Payload, Table, payload_to_bytes
from dpindex.index.pending import PendingRelease
from dpindex.index.private_index import PrivateIndex
from dpindex.ledger import Ledger
from dpindex.privatizer import Privatizer
from dpindex.projector import Projector
from dpindex.spec import Spec
from dpindex.vectors import VectorSource
from dpindex.vectors.source import Chunk

_TOKEN = "ledger"
_CHUNK_BYTES = 1 << 25
_SPARSE_ROWS = 8192


class Sink(ABC):
    """Where the codes of one call of :func:`ingest` go.

    Attributes
    ----------
    spec : Spec
        What vectors are privatized under.
    path : Path, optional
        A directory that is meant to be published, so that no ledger may lie in it.
    keeps_ids : bool
        Whether the ids stay with the codes.
    allow_unprotected : bool
        Whether codes of a ``none-*`` baseline may go there.
    """

    spec: Spec
    path: Path | None = None
    keeps_ids: bool = True
    allow_unprotected: bool = False

    def checked_ids(self, ids: Any | None, count: int) -> AnyArray | None:
        """The ids of ``count`` rows, None for the default; InputError if they cannot be added."""
        return None if ids is None else Ids().check(ids, count)

    def checked_payload(self, payload: Any, count: int) -> Table:
        """The payload of ``count`` rows, None for none; InputError if it cannot be added."""
        return Payload().checked(payload, count)

    def started(
        self, source: VectorSource, ids: AnyArray | None, payload: Table, ledger: Ledger | None
    ) -> int | None:
        """Rows that are there already, None if this work was never begun.

        InputError if they are of another spec, ids or payload, or belong to a copy.
        """
        return None

    def recognise(self, first_row: int, chunk: Chunk) -> None:  # noqa: B027
        """See a chunk before it is privatized; InputError if it was another before."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[tuple[int, str]]:
        """Hold the sink for writing; codes are complete when it is left without an exception.

        Gives the rows that are there already, and a token that names this work, however often it
        is resumed ("" if it cannot be).
        """

    @abstractmethod
    def put(self, codes: Codes, ids: AnyArray, payload: Table) -> None:
        """Take the codes of the next rows, with their ids and payload."""


def ingest(
    source: VectorSource,
    sink: Sink,
    *,
    ids: AnyArray | None = None,
    payload: Any = None,
    progress: Callable[[int, int], None] | None = None,
    ledger: Ledger | None = None,
    allow_rerelease: bool = False,
    max_epsilon: float | None = None,
    skip_leak_check: bool = False,
) -> int:
    """Privatize a source into a sink, a chunk at a time.

    The whole source is checked before the first code is made: a fault in the last row costs no
    budget and leaves nothing behind. Values are checked again as they are read to be privatized, as
    a file may have changed in between. Work that resumes reads all rows again, to make sure that
    they are those that it began with.

    Parameters
    ----------
    source : VectorSource
        From :func:`dpindex.vectors.open_vectors` or ``as_source``.
    sink : Sink
        :class:`NewDirectory`, :class:`OpenIndex` or :class:`CodesFile`.
    ids : array, optional
        One unique id for each row; default the next free numbers.
    payload : table, optional
        One row for each vector, **published in the clear**: see :meth:`PrivateIndex.add`.
    progress : callable, optional
        Called with (rows done, rows in all) after every chunk.
    ledger : Ledger, optional
        Where the release of all rows is written down before the first; it needs ``ids``. Work that
        resumes was written down already.
    allow_rerelease : bool
        Allow ids that the ledger knows, at the price of one more epsilon each.
    max_epsilon : float, optional
        Refuse a spec with a larger epsilon: see :class:`dpindex.Privatizer`.
    skip_leak_check : bool
        Accept a codebook that shares rows with the source: see :mod:`dpindex.index.leak_check`.

    Returns
    -------
    Number of vectors privatized by this call.

    Raises
    ------
    InputError
        For bad vectors or ids, ids that the ledger knows, a spec that protects nothing or less than
        ``max_epsilon`` asks for, a codebook that holds private vectors, and what the sink refuses.

    >>> import tempfile
    >>> from dpindex.vectors import as_source
    >>> settings = Settings(Spec(method="dp-oporp-staircase", dim=6, k=2, epsilon=2.0))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "index"
    ...     ingest(as_source(np.zeros((3, 6))), NewDirectory(path, settings), ids=["a", "b", "c"])
    ...     PrivateIndex.open(path).ids.tolist()
    3
    ['a', 'b', 'c']
    """
    spec, (rows, columns) = sink.spec, source.shape
    privatizer = Privatizer(spec, allow_unprotected=sink.allow_unprotected, max_epsilon=max_epsilon)
    if columns != spec.dim:
        raise InputError(f"{source.name} has {columns} columns where the spec says {spec.dim}.")
    if ledger is None and allow_rerelease:
        raise InputError(
            "allow_rerelease is about what a ledger knows; name the ledger (--ledger)."
        )
    if ledger is None and ids is not None and not sink.keeps_ids:
        raise InputError("codes carry no ids: they are for the ledger; name the ledger (--ledger).")
    if ledger is not None and sink.path is not None:
        ledger.refuse_inside(sink.path)
    names, columns_beside = sink.checked_ids(ids, rows), sink.checked_payload(payload, rows)
    step = _rows_at_a_time(source, spec)
    begun = sink.started(source, names, columns_beside, ledger)
    if ledger is not None and begun is None:
        ledger.check(names, allow_rerelease=allow_rerelease)

    def checked() -> Iterator[tuple[int, Chunk]]:
        for first, chunk in source.chunks(step):
            if first >= (begun or 0):
                with naming(source.name):
                    privatizer.check(chunk, first_row=first)
            sink.recognise(first, chunk)
            yield first, chunk

    if spec.codebook is None or skip_leak_check:
        deque(checked(), maxlen=0)
    else:
        refuse_shared_rows(spec.codebook, checked())
    with sink.writing() as (start, token):
        if ledger is not None:  # before the first code; a second time it knows the token
            ledger.record(spec, names, allow_rerelease=allow_rerelease, token=token)
        report = progress or (lambda done, total: None)
        report(start, rows)
        for first, chunk in source.chunks(step, start):
            sink.recognise(first, chunk)
            codes = privatizer.privatize(chunk, first_row=first)
            done = first + len(codes)
            beside = None if columns_beside is None else columns_beside.slice(first, len(codes))
            sink.put(codes, np.arange(first, done) if names is None else names[first:done], beside)
            report(done, rows)
    return rows - start


def fit_saved_denoiser(
    path: str | os.PathLike[str],
    kind: Kind = "auto",
    waiting: Callable[[], object] = lambda: None,
) -> Denoiser:
    """Learn a denoiser from the codes of a saved index and save it there.

    Nobody else changes the index meanwhile: see :meth:`PrivateIndex.changing`.

    Raises
    ------
    InputError
        As :meth:`PrivateIndex.fit_denoiser`; the directory stays as it was.
    """
    with PrivateIndex.changing(path, waiting) as index:
        denoiser = index.fit_denoiser(kind)
        index.save(path, allow_unprotected=True)
        return denoiser


def _rows_at_a_time(source: VectorSource, spec: Spec) -> int:
    """Rows of which neither vectors nor codes take much memory."""
    row_bytes = source.shape[1] * max(4, np.dtype(source.dtype).itemsize)
    most = _SPARSE_ROWS if source.is_sparse else max(1, _CHUNK_BYTES // row_bytes)
    return min(most, rows_per_segment(spec))


class NewDirectory(Sink):
    """A new index directory, or one in which the same work stopped: there it goes on.

    Every chunk becomes a segment, which is committed before the next is begun. So work that was
    killed, run again, continues after the last segment that may have been seen, and privatizes no
    such vector twice. What it needs for that lies in a journal outside the directory: beside the
    ledger, or without one in the user's state folder. Without it, in a copy, or with other vectors
    it is refused.

    Parameters
    ----------
    path : path
        The directory.
    settings : Settings
        Spec, metric, index type and query epsilon.
    allow_unprotected : bool
        Allow a ``none-*`` baseline.
    to_denoise : bool
        Whether a denoiser is to follow. Then the same build may be run again, as if it were not
        finished, until :meth:`settle` is called or the index is changed.

    Raises
    ------
    InputError
        For a method that protects nothing. :func:`ingest` refuses a finished index, and an
        unfinished one of another spec or source, a copy of one, and one begun elsewhere.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        settings: Settings,
        *,
        allow_unprotected: bool = False,
        to_denoise: bool = False,
    ) -> None:
        self.spec = settings.spec
        self.spec.refuse_unprotected(allow_unprotected, "build with it")
        self.allow_unprotected = allow_unprotected
        self._to_denoise = to_denoise
        Projector(settings.query_spec)  # refuses now what could not be asked later
        self._settings, self._place = settings, Path(path).resolve()
        self.path = self._place

    def started(
        self, source: VectorSource, ids: AnyArray | None, payload: Table, ledger: Ledger | None
    ) -> int | None:
        state = None if ledger is None else ledger.builds_path
        self._directory = IndexDirectory(self._place, state)
        self._directory.finish_interrupted()
        self._fingerprint, self._claim, begun = source.fingerprint(), Claim(), None
        if self._directory.exists:
            begun = self._resumed().count
        beside = [] if ids is None else [ids_to_bytes(ids)]
        beside += [] if payload is None else [payload_to_bytes(payload)]
        stated = [np.frombuffer(data, np.uint8) for data in beside]
        if not self._claim.recognises(-1, np.array(source.shape), *stated):
            raise self._other("its rows, columns, ids or payload differ")
        return begun

    def recognise(self, first_row: int, chunk: Chunk) -> None:
        if not self._claim.recognises(first_row, chunk):
            raise self._other(f"rows {first_row} to {first_row + chunk.shape[0] - 1} differ")

    def _other(self, difference: str) -> InputError:
        return InputError(
            f"{self.path} holds an unfinished build of other input ({difference}); finish it with "
            f"the same vectors in the same order. A build elsewhere would release those vectors a "
            f"second time."
        )

    @contextmanager
    def writing(self) -> Iterator[tuple[int, str]]:
        directory = self._directory
        with directory.writing(new=not directory.exists):
            if directory.exists:
                self._manifest = self._resumed()
            else:
                directory.journal.write_claim(self._claim.to_bytes())
                stated = {"source": self._fingerprint, _TOKEN: self._claim.token}
                self._manifest = directory.commit(directory.start(self._settings, stated))
            yield self._manifest.count, self._claim.token
            if self._manifest.state != "complete":
                then = {_TOKEN: self._claim.token} if self._to_denoise else None
                seen = visibility(directory.sample(self._manifest), self.spec, self._manifest.count)
                done = replace(self._manifest, state="complete", input=then, visibility=seen)
                self._manifest = directory.commit(done)

    def settle(self) -> None:
        """End a build to which nothing more is to be added."""
        directory = self._directory
        with directory.writing(new=False):
            manifest = directory.manifest()
            if manifest.input is not None:
                directory.commit(replace(manifest, input=None))

    def put(self, codes: Codes, ids: AnyArray, payload: Table) -> None:
        manifest = self._directory.write_segment(self._manifest, codes, ids, payload)
        self._manifest = self._directory.commit(manifest)

    def _resumed(self) -> Manifest:
        """The manifest of the same work, unfinished; InputError for anything else."""
        manifest = self._directory.manifest()
        if manifest.state == "complete" and not (manifest.input and self._to_denoise):
            raise InputError(
                f"{self.path} is a finished index; building again, here or elsewhere, releases "
                f"every vector twice. Use it as it is; `dpindex denoise` learns a denoiser "
                f"from its codes, and `dpindex add` adds other vectors."
            )
        if manifest.settings != self._settings:
            raise InputError(
                f"{self.path} holds an unfinished build under another spec; finish it with "
                f"the same options. A build elsewhere would release those vectors a second time."
            )
        claim = self._directory.journal.claim(Claim.from_bytes)
        stated = (manifest.input or {}).get(_TOKEN)
        if claim is None or claim.token != stated or not self._directory.is_last_sealed:
            raise InputError(
                f"{self.path} holds an unfinished build that was begun elsewhere or with another "
                f"ledger, or an older copy of one: {self._directory.journal.path} does not know "
                f"it, and finishing it here could privatize vectors twice. Finish the one that was "
                f"begun, with its ledger and on its machine; a build elsewhere would release the "
                f"vectors in it a second time."
            )
        self._claim = claim
        return manifest


class _AllAtOnce(Sink):
    """A sink that takes all codes or none, at its ``place`` if it has one."""

    def __init__(
        self, spec: Spec, take: Callable[[Codes], None], place: Path | None, allow_unprotected: bool
    ) -> None:
        self.spec, self._take, self.allow_unprotected = spec, take, allow_unprotected
        self._place = place
        self._pending: PendingRelease | None = None

    def started(
        self, source: VectorSource, ids: AnyArray | None, payload: Table, ledger: Ledger | None
    ) -> int | None:
        if ledger is None or ids is None or self._place is None:
            return None
        self._pending = PendingRelease(self._place, ids, ledger)
        return 0 if self._pending.begun else None

    @contextmanager
    def writing(self) -> Iterator[tuple[int, str]]:
        self._parts: list[Integers] = []
        yield 0, "" if self._pending is None else self._pending.token()
        self._take(self.spec.format.codes(self.spec.format.concatenate(self._parts)))

    def _seen(self) -> None:
        if self._pending is not None:
            self._pending.seen()

    def put(self, codes: Codes, ids: AnyArray, payload: Table) -> None:
        self._parts.append(codes.stored)


class OpenIndex(_AllAtOnce):
    """An index in memory, which gets all rows or none; then :meth:`save` it.

    With ``replace`` rows take the place of those with the same ids: a second release of each.
    """

    def __init__(
        self, index: PrivateIndex, *, allow_unprotected: bool = False, replace: bool = False
    ) -> None:
        def take(codes: Codes) -> None:
            index.add_codes(codes, self._ids, payload=self._payload, replace=replace)

        super().__init__(index.spec, take, index.path, allow_unprotected)
        self.path, self._index, self._replace = index.path, index, replace

    def checked_ids(self, ids: Any | None, count: int) -> AnyArray | None:
        self._ids, checked = ids, self._index.check_ids(ids, count, replace=self._replace)
        return None if ids is None else checked

    def checked_payload(self, payload: Any, count: int) -> Table:
        self._payload = self._index.check_payload(payload, count)
        return self._payload

    def save(self) -> None:
        """Save the index where it was opened."""
        if self.path is None:
            raise InputError("this index was never saved; save it under a name.")
        self._index.save_and_tell(self.path, self._seen)


class CodesFile(_AllAtOnce):
    """A new file of codes, written once all are made; ids are for the ledger and not in it."""

    keeps_ids = False

    def __init__(
        self, path: str | os.PathLike[str], spec: Spec, *, allow_unprotected: bool = False
    ) -> None:
        place = Path(path)  # a wrong type is refused before anything is privatized

        def take(codes: Codes) -> None:
            data = codes.to_bytes()
            self._seen()
            create_file(place, data)

        super().__init__(spec, take, place, allow_unprotected)

    def checked_payload(self, payload: Any, count: int) -> Table:
        if payload is not None:
            raise InputError("a file of codes has no payload; give it where they are added.")
        return None
