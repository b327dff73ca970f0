"""Where vectors go in an index: a directory that is built, or an index that is open."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dpindex.accounting.ledger import Ledger
from dpindex.base.arrays import AnyArray
from dpindex.base.errors import InputError
from dpindex.exposure.visibility import visibility
from dpindex.index.claim import Claim
from dpindex.index.directory import IndexDirectory, Manifest, Settings
from dpindex.index.ingest import AllAtOnce, Sink
from dpindex.index.private_index import PrivateIndex
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.projector import Projector
from dpindex.storage.code_store import ids_to_bytes
from dpindex.storage.payload import Table, payload_to_bytes
from dpindex.vectors import VectorSource
from dpindex.vectors.source import Chunk

_TOKEN = "ledger"


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
        For a method that protects nothing. :func:`ingest <dpindex.index.ingest.ingest>` refuses
        a finished index, and an unfinished one of another spec or source, a copy of one, and one
        begun elsewhere.
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


class OpenIndex(AllAtOnce):
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
