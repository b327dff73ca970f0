"""The ledger: which ids have been released under which spec, in a file that the holder keeps.

A release is written here, durably, *before* the codes exist: whatever goes wrong afterwards, the
ledger counts too much rather than too little. Ids are kept as HMAC-SHA-256 under a random key in a
file of its own, so whoever sees the ledger without the key cannot find out, by guessing ids, who is
in it. Neither file belongs into a published index.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from dpindex.accounting import total
from dpindex.errors import InputError
from dpindex.files import lock as locked
from dpindex.ledger.records import (
    CHECK_BYTES,
    DIGEST_BYTES,
    MAGIC,
    PLAIN,
    Digests,
    Record,
    Records,
    append,
    opened,
    packed,
    read,
    same,
    sync_folder,
)
from dpindex.privacy import Guarantee
from dpindex.spec import Spec

__all__ = ["Entry", "Ledger", "Total"]

_KEY_BYTES = 32


@dataclass(frozen=True)
class Entry:
    """One release: under which spec, of how many ids, when (UTC, by this machine's clock)."""

    spec: Spec
    count: int
    when: str


@dataclass(frozen=True)
class Total:
    """What was released of each of ``ids`` ids: ``releases`` codes, which together promise this.

    One guarantee for each kind of change (adjacency, scale, DP or iDP): kinds do not add up.
    """

    ids: int
    releases: int
    guarantees: tuple[Guarantee, ...]

    def __str__(self) -> str:
        codes = "1 release" if self.releases == 1 else f"{self.releases} releases"
        return f"{self.ids} ids, {codes} each: " + "; and ".join(map(str, self.guarantees))

    def to_json(self) -> dict[str, Any]:
        guarantees = [guarantee.to_dict() for guarantee in self.guarantees]
        return {"ids": self.ids, "releases": self.releases, "guarantees": guarantees}


class Ledger:
    """Every release of every id. Think of it as the account book of a privacy budget.

    Ids must name the same person everywhere: 7 and "7" are one id here. One warning: a ledger that
    is lost or restored from an older copy has forgotten releases.

    Parameters
    ----------
    path : path
        The ledger, made with the first release, and beside it ``path.key``, which stays with you.
        Totals can be read without the key.

    >>> from tempfile import TemporaryDirectory
    >>> folder = TemporaryDirectory()
    >>> ledger = Ledger(Path(folder.name) / "ledger")
    >>> spec = Spec("dp-oporp-staircase", dim=6, k=2, epsilon=1.0)
    >>> ledger.record(spec, ["ann", "bob"])
    0
    >>> ledger.record(spec, ["ann"], allow_rerelease=True)
    1
    >>> print(*ledger.totals(), sep="\\n")
    1 ids, 2 releases each: epsilon = 2 (pure DP) under attribute(beta=1)
    1 ids, 1 release each: epsilon = 1 (pure DP) under attribute(beta=1)
    >>> folder.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()

    @property
    def key_path(self) -> Path:
        """Where the key lies."""
        return self.path.with_name(self.path.name + ".key")

    def refuse_inside(self, directory: Path) -> None:
        """InputError if the ledger lies in a directory that is going to be published."""
        if self.path.resolve().is_relative_to(directory.resolve()):
            raise InputError(
                f"the ledger {self.path} lies inside {directory}, which is meant to be published; "
                f"keep it elsewhere."
            )

    def check(self, ids: Iterable[Any] | None, *, allow_rerelease: bool = False) -> None:
        """Raise the InputError that ``record`` would raise; writes nothing."""
        names = _named(ids)
        if self.path.exists():
            digests = _digests(names, self._key())
            with opened(self.path, os.O_RDONLY, "ledger") as file:
                self._known(Records(file, self.path), names, digests, allow_rerelease)

    def record(
        self,
        spec: Spec,
        ids: Iterable[Any] | None,
        *,
        allow_rerelease: bool = False,
        token: str = "",
    ) -> int:
        """Write down one release of each id under ``spec``, durably. Call it *before* privatizing.

        Parameters
        ----------
        ids : iterable of whole numbers or strings
            Unique; None, where a caller's ids are optional, is refused.
        allow_rerelease : bool
            Allow ids that were released before.
        token : str, optional
            Names the work that this entry is for. Work that was interrupted and is taken up under
            the same token, spec and ids was written down already, and is not written twice.

        Returns
        -------
        How many of the ids had been released before.

        Raises
        ------
        InputError
            For an id released before, unless ``allow_rerelease``; for a damaged ledger or a missing key; and
            if another process is writing. Nothing is written then.
        """
        names = _named(ids)
        with self._writing() as (file, key):
            digests = _digests(names, key)
            if token and any(
                record.text["token"] == token and same(record, spec, digests)
                for record in Records(file, self.path)
            ):
                return 0
            records = Records(file, self.path)
            known = self._known(records, names, digests, allow_rerelease)
            append(file, packed(spec, digests, token, records.seal), records.end)
        return known

    def _known(
        self, records: Records, names: list[str], digests: Digests, allow_rerelease: bool
    ) -> int:
        """How many of the ids are in the records, all of which are read."""
        rows = np.argsort(digests)
        order = digests[rows]
        if (order[1:] == order[:-1]).any():
            raise InputError("an id is given twice; each id is one release.")
        known = np.zeros(len(digests), dtype=np.bool_)
        for record in records:
            known[rows[_places(order, record.digests)]] = True
        count = int(np.count_nonzero(known))
        if count and not allow_rerelease:
            row = int(np.argmax(known))
            raise InputError(
                f"id {names[row]!r} (row {row}) was released before, as were {count} of these "
                f"{len(names)} ids in all; each release costs its epsilon again. `dpindex ledger "
                f"{self.path}` shows the totals; allow_rerelease (--allow-rerelease) permits it."
            )
        return count

    def entries(self) -> tuple[Entry, ...]:
        """All releases in the order in which they were written down."""
        return tuple(
            Entry(_spec(record, self.path), len(record.digests), record.text["when"])
            for record in self._records()
        )

    def totals(self, ids: Iterable[Any] | None = None, delta: float | None = None) -> list[Total]:
        """What was released of how many ids, and what that promises in total; the most first.

        Parameters
        ----------
        ids : iterable, optional
            These ids only, which takes the key; default all.
        delta : float, optional
            Compose tightly at this delta: see :func:`dpindex.total`.
        """
        wanted = None if ids is None else _united(_digests(_texts(ids), self._key()))
        # What an id was released under, as a number into ``histories``: tuples of spec numbers.
        histories: dict[tuple[int, ...], int] = {(): 0}
        specs: dict[Spec, int] = {}
        seen: Digests = np.empty(0, dtype=f"S{DIGEST_BYTES}")
        history = np.empty(0, dtype=np.int64)
        for record in self._records():
            digests = record.digests
            if wanted is not None:
                digests = wanted[_places(wanted, digests)]
            number = specs.setdefault(_spec(record, self.path), len(specs))
            merged = _united(seen, digests)
            before = np.zeros(len(merged), dtype=np.int64)
            before[np.searchsorted(merged, seen)] = history
            places = np.searchsorted(merged, digests)
            past = list(histories)
            longer = np.zeros(len(past), dtype=np.int64)
            for old in np.unique(before[places]).tolist():
                longer[old] = histories.setdefault((*past[old], number), len(histories))
            before[places] = longer[before[places]]
            seen, history = merged, before
        stated = list(specs)
        found: Counter[tuple[int, ...]] = Counter()
        for past_of_id, count in zip(histories, np.bincount(history, minlength=len(histories)),
                                     strict=True):  # fmt: skip
            if count:
                found[tuple(sorted(past_of_id))] += int(count)
        totals = [
            Total(count, len(numbers), _by_kind([stated[n] for n in numbers], delta))
            for numbers, count in found.items()
        ]
        return sorted(totals, key=lambda t: (-t.releases, -max(g.epsilon for g in t.guarantees)))

    def _records(self) -> Iterator[Record]:
        with opened(self.path, os.O_RDONLY, "ledger") as file:
            yield from Records(file, self.path)

    def _key(self) -> bytes:
        with opened(self.key_path, os.O_RDONLY, "key of the ledger") as file:
            key = read(file, _KEY_BYTES + 1)
        if len(key) != _KEY_BYTES:
            raise InputError(f"{self.key_path} is not the key of a ledger.")
        return key

    @contextmanager
    def _writing(self) -> Iterator[tuple[IO[bytes], bytes]]:
        """The ledger, locked, made if it is new; and its key."""
        try:
            if not self.path.exists():
                self._create()
            with opened(self.path, os.O_RDWR, "ledger") as file:
                if not locked(file.fileno()):
                    raise InputError(
                        f"{self.path} is being written by another process; wait for it to end."
                    )
                key = self._key()
                file.seek(len(MAGIC))
                if not hmac.compare_digest(read(file, CHECK_BYTES), _check(key)):
                    raise InputError(f"{self.key_path} is not the key of {self.path}.")
                yield file, key
        except OSError as error:
            raise InputError(
                f"{self.path} cannot be written: {error.strerror or error}."
            ) from error

    def _create(self) -> None:
        """A new key, and then the ledger, whole: a ledger that is missing is not an empty one."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            handle = os.open(self.key_path, flags | PLAIN, 0o600)
        except FileExistsError:
            raise InputError(
                f"the ledger {self.path} is missing, but its key is there: restore the ledger, or "
                f"move {self.key_path} away to begin a new one."
            ) from None
        key = secrets.token_bytes(_KEY_BYTES)
        with open(handle, "wb", buffering=0) as file:
            append(file, key, 0)
        temporary = self.path.with_name(self.path.name + ".tmp")
        temporary.unlink(missing_ok=True)
        with open(os.open(temporary, flags | PLAIN, 0o600), "wb", buffering=0) as file:
            append(file, MAGIC + _check(key), 0)
        os.replace(temporary, self.path)
        sync_folder(self.path.parent)


def _spec(record: Record, path: Path) -> Spec:
    try:
        return Spec.from_json(record.text["spec"])
    except InputError as error:
        raise InputError(f"{path} holds a release that cannot be read: {error}") from None


def _by_kind(specs: Sequence[Spec], delta: float | None) -> tuple[Guarantee, ...]:
    kinds: dict[tuple[Any, ...], list[Spec]] = {}
    for spec in specs:
        promise = spec.guarantee
        kind = (promise.definition, promise.adjacency, spec.scale)
        kinds.setdefault(kind, []).append(spec)
    return tuple(total(alike, delta) for alike in kinds.values())


def _texts(ids: Iterable[Any]) -> list[str]:
    """Ids as text: whole numbers in decimal, so that 7 and "7" are the same id."""
    values = ids.tolist() if isinstance(ids, np.ndarray) else ids
    values = [values] if isinstance(values, str | int) else list(values)
    for value in values:
        if isinstance(value, bool) or not isinstance(value, str | int | np.integer):
            raise InputError("ids must be whole numbers or strings.")
    if not values:
        raise InputError("there are no ids to write into the ledger.")
    return [str(value) for value in values]


def _united(*parts: Digests) -> Digests:
    """All of them in order, each once (``np.unique`` takes many times as long on text)."""
    merged = np.sort(np.concatenate(parts))
    return merged[np.append(True, merged[1:] != merged[:-1])] if len(merged) else merged


def _places(order: Digests, digests: Digests) -> npt.NDArray[np.intp]:
    """Where those of ``digests`` that are in ``order``, which is sorted and unique, stand."""
    places: npt.NDArray[np.intp] = np.minimum(np.searchsorted(order, digests), len(order) - 1)
    found: npt.NDArray[np.intp] = places[order[places] == digests]
    return found


def _named(ids: Iterable[Any] | None) -> list[str]:
    if ids is None:
        raise InputError("a ledger counts releases by id; give every vector an id.")
    return _texts(ids)


def _check(key: bytes) -> bytes:
    return hmac.digest(key, b"key of a dpindex ledger", "sha256")[:CHECK_BYTES]


def _digests(names: list[str], key: bytes) -> Digests:
    """HMAC-SHA-256 of each id, cut to 16 bytes: two ids of 10⁹ meet with chance 10⁻²¹."""
    try:
        data = b"".join(
            hmac.digest(key, b"id:" + name.encode(), "sha256")[:DIGEST_BYTES] for name in names
        )
    except UnicodeEncodeError:
        raise InputError("an id is not text that UTF-8 can hold.") from None
    return np.frombuffer(data, dtype=f"S{DIGEST_BYTES}")
