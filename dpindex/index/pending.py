"""A release that publishes everything in one step, so that dying before it costs nothing twice."""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from dpindex.base.arrays import AnyArray
from dpindex.index.journal import Journal
from dpindex.storage.code_store import ids_to_bytes

if TYPE_CHECKING:
    from dpindex.accounting.ledger import Ledger


class PendingRelease:
    """Work that the ledger has written down and of which nothing could be seen yet.

    If it dies there, it may be done again without being counted again: until :meth:`seen` a token
    lies beside the ledger, under ``place`` and the ids.

    Parameters
    ----------
    place : Path
        Where the release is going to be published.
    ids : array
        Whose records are released.
    ledger : Ledger
    """

    def __init__(self, place: Path, ids: AnyArray, ledger: Ledger) -> None:
        work = place.resolve() / hashlib.sha256(ids_to_bytes(ids)).hexdigest()
        self._journal = Journal(work, ledger.builds_path)

    @property
    def begun(self) -> bool:
        """Whether this work was written down before."""
        return self._journal.claim(bytes.decode) is not None

    def token(self) -> str:
        """What names this work in the ledger, however often it is begun."""
        token = self._journal.claim(bytes.decode)
        if token is None:
            token = secrets.token_hex(16)
            self._journal.begin()
            self._journal.write_claim(token.encode())
        return token

    def seen(self) -> None:
        """Say that the release may be seen from now on: doing it again would be another one."""
        self._journal.clear()
