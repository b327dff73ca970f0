"""Vectors in: one function that privatizes a source of any size into what takes codes."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpindex.base.arrays import AnyArray, Integers
from dpindex.base.errors import InputError, naming
from dpindex.base.files import create_file
from dpindex.index.leak_check import refuse_shared_rows
from dpindex.index.pending import PendingRelease
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.spec import Spec
from dpindex.storage.code_store import Ids, rows_per_segment
from dpindex.storage.payload import Payload, Table
from dpindex.vectors import VectorSource
from dpindex.vectors.source import Chunk

if TYPE_CHECKING:  # devices keep no ledger
    from dpindex.accounting.ledger import Ledger

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
        :class:`CodesFile`, or one of :mod:`dpindex.index.index_sinks`.
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
    >>> spec = Spec(method="dp-oporp-staircase", dim=6, k=2, epsilon=2.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ingest(as_source(np.zeros((3, 6))), CodesFile(Path(folder) / "x.codes", spec))
    3
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


def _rows_at_a_time(source: VectorSource, spec: Spec) -> int:
    """Rows of which neither vectors nor codes take much memory."""
    row_bytes = source.shape[1] * max(4, np.dtype(source.dtype).itemsize)
    most = _SPARSE_ROWS if source.is_sparse else max(1, _CHUNK_BYTES // row_bytes)
    return min(most, rows_per_segment(spec))


class AllAtOnce(Sink):
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


class CodesFile(AllAtOnce):
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
