"""Building an index from a file of any size, so that a killed build resumes where it stopped."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpindex.arrays import AnyArray
from dpindex.errors import InputError
from dpindex.index.ids import Ids, ids_to_bytes
from dpindex.index.segments import IndexDirectory, Manifest, rows_per_segment
from dpindex.index.settings import Settings
from dpindex.privatizer import Privatizer
from dpindex.spec import Spec
from dpindex.vectors import VectorSource

if TYPE_CHECKING:
    from dpindex.ledger import Ledger

__all__ = ["build_index"]

_TOKEN = "ledger"

_CHUNK_BYTES = 1 << 25
_SPARSE_ROWS = 8192


def build_index(
    source: VectorSource,
    path: str | os.PathLike[str],
    settings: Settings,
    *,
    ids: AnyArray | None = None,
    progress: Callable[[int, int], None] | None = None,
    allow_unprotected: bool = False,
    ledger: Ledger | None = None,
    allow_rerelease: bool = False,
) -> int:
    """Privatize a source into an index directory, segment by segment.

    Memory is bounded by a chunk of the source. A segment is committed before the next is begun, so
    a build that was killed, run again, continues after the last committed segment and privatizes no
    published vector twice. The whole source is checked before anything is written.

    Parameters
    ----------
    source : VectorSource
        From :func:`dpindex.vectors.open_vectors` or ``as_source``.
    path : path
        A new directory, or one in which the same build stopped.
    settings : Settings
        Spec, metric, storage and query epsilon.
    ids : array, optional
        One unique id for each row; default 0, 1, 2, …
    progress : callable, optional
        Called with (rows done, rows in all) after every segment.
    ledger : Ledger, optional
        Where the release of all rows is written down before the first; it needs ``ids``. A build
        that resumes was written down already.
    allow_rerelease : bool
        Allow ids that the ledger knows, at the price of one more epsilon each.

    Returns
    -------
    Number of vectors privatized by this call.

    Raises
    ------
    InputError
        For bad vectors or ids, a finished index, a build of another spec or source, and ids that
        the ledger knows.
    """
    spec = settings.spec
    if not spec.mechanism.private and not allow_unprotected:
        raise InputError(f"{spec.method} protects nothing; allow it explicitly to build with it.")
    rows, columns = source.shape
    if columns != spec.dim:
        raise InputError(f"{source.name} has {columns} columns where the spec says {spec.dim}.")
    names = Ids().check(ids, rows) if ids is not None else None
    privatizer = Privatizer(spec)
    directory = IndexDirectory(Path(path))
    if ledger is not None:
        ledger.refuse_inside(directory.path)
        if not directory.exists:  # before anything is written
            ledger.check(names, allow_rerelease=allow_rerelease)
    elif allow_rerelease:
        raise InputError("allow_rerelease is about what a ledger knows; name the ledger.")
    mark = _mark(source, names)
    step = _rows_at_a_time(source, spec)
    start = _resumed(directory, settings, mark).count if directory.exists else 0
    # A fault in the last row must not leave an index that cannot be finished: look at all first.
    for first, chunk in source.chunks(step, start):
        privatizer.check(chunk, first_row=first)
    with directory.writing(new=not directory.exists):
        manifest, token = _begin(directory, settings, mark)
        if ledger is not None:  # before the first code; a second time it knows the token
            ledger.record(spec, names, allow_rerelease=allow_rerelease, token=token)
        start = manifest.count
        if progress:
            progress(start, rows)
        for first, chunk in source.chunks(step, start):
            codes = privatizer.privatize(chunk, first_row=first)
            done = first + len(codes)
            own = np.arange(first, done) if names is None else names[first:done]
            manifest = directory.write_segment(manifest, codes, own)
            manifest = directory.commit(manifest)
            if progress:
                progress(done, rows)
        directory.commit(replace(manifest, state="complete"))
        directory.drop_note()
    return rows - start


def _mark(source: VectorSource, ids: AnyArray | None) -> dict[str, Any]:
    """What tells this build's input from another: no content of the vectors enters it."""
    return {
        "source": source.fingerprint(),
        "ids": None if ids is None else hashlib.sha256(ids_to_bytes(ids)).hexdigest(),
    }


def _begin(
    directory: IndexDirectory, settings: Settings, mark: dict[str, Any]
) -> tuple[Manifest, str]:
    """The manifest to go on from, and what a ledger knows this build by, however often resumed."""
    if directory.exists:
        manifest = _resumed(directory, settings, mark)
        directory.discard_uncommitted(manifest)
        token = directory.read_note().get(_TOKEN)
        if isinstance(token, str):
            return manifest, token
    else:
        manifest = directory.start(settings)
    token = secrets.token_hex(16)
    directory.note({**mark, _TOKEN: token})
    return directory.commit(manifest), token


def _resumed(directory: IndexDirectory, settings: Settings, mark: dict[str, Any]) -> Manifest:
    """The manifest of the same build, unfinished; InputError for anything else."""
    manifest = directory.manifest()
    if manifest.state == "complete":
        with suppress(OSError):
            directory.drop_note()  # of a build that was killed just before it would have gone
        raise InputError(
            f"{directory.path} is a finished index; building into it again would spend the budget "
            f"of every vector twice. Choose another directory."
        )
    if manifest.settings != settings:
        raise InputError(
            f"{directory.path} holds an unfinished build under another spec; finish it with the "
            f"same options, or choose another directory."
        )
    note = directory.read_note()
    if not isinstance(note, dict) or {k: v for k, v in note.items() if k != _TOKEN} != mark:
        raise InputError(
            f"{directory.path} holds an unfinished build of other input (its rows, size, time of "
            f"change or ids differ); finish it with the same file, or choose another directory."
        )
    return manifest


def _rows_at_a_time(source: VectorSource, spec: Spec) -> int:
    """Rows of which neither vectors nor codes take much memory."""
    row_bytes = source.shape[1] * max(4, np.dtype(source.dtype).itemsize)
    most = _SPARSE_ROWS if source.is_sparse else max(1, _CHUNK_BYTES // row_bytes)
    return min(most, rows_per_segment(spec))
