"""The ledger of releases: which ids were released under which spec, in an SQLite database.

A release is recorded, durably, *before* the codes exist: whatever fails afterwards, the ledger
counts too much rather than too little. Ids are kept as HMAC-SHA-256 under a random key in a file of
its own, so a reader of the ledger without the key cannot find out who is in it by guessing ids.
Neither file belongs in a published index.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import sqlite3
import stat
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from dpindex.accounting import compose
from dpindex.base.checks import checked_epsilon, finite_number, json_value
from dpindex.base.display import counted
from dpindex.base.errors import BusyError, DamagedError, InputError, StorageError
from dpindex.base.files import AnyPath, read_private_file, write_file
from dpindex.data.ranges import Ranges
from dpindex.mechanism.spec import Spec
from dpindex.privacy import Adjacency, Guarantee, Records

_APPLICATION = int.from_bytes(b"DPLG", "big")
_VERSION = 1
_KEY_BYTES = 32
_MAX_LEDGER_BYTES = 1 << 33
BUSY_SECONDS = 10.0
_ROWS_AT_A_TIME = 1 << 16
_WRITE = "BEGIN IMMEDIATE"
_BESIDE = ("-journal", "-wal", "-shm")
# EXTRA: a journal that came back after a power cut would undo a release that was committed.
_DURABLE = ("synchronous = EXTRA", "fullfsync = ON")
_PRAGMAS = ("trusted_schema = OFF", "cell_size_check = ON", "temp_store = MEMORY", *_DURABLE)

_SCHEMA = [
    "CREATE TABLE releases (id INTEGER PRIMARY KEY, spec TEXT, token TEXT, digests BLOB, "
    "time TEXT, count INTEGER, mark BLOB, sums TEXT, codes TEXT, seal BLOB)",
    "CREATE TABLE ids (hi INTEGER, lo INTEGER, release INTEGER, PRIMARY KEY (hi, lo, release)) "
    "WITHOUT ROWID",
]
_IDENTIFY = f"PRAGMA application_id = {_APPLICATION}", f"PRAGMA user_version = {_VERSION}"
_MAKE = (*_SCHEMA, *_IDENTIFY, "COMMIT", _WRITE)
_TABLES = "SELECT sql FROM sqlite_master ORDER BY rowid"
_COLUMNS = [int, str, str, bytes, str, int, bytes, str, str]
# SQLite has no checksums. A digest is stored as two 64-bit integers so that SQL can add up their
# residues modulo a prime: a changed bit changes its residue, and so the sum.
_RESIDUES = "sum(hi % 4294967291), sum(lo % 4294967291)"
_SUMS = f"SELECT printf('%d %d %d %d', count(*), {_RESIDUES}, sum(release)) FROM ids"
_Releases = list[sqlite3.Row]
_Ids: TypeAlias = Iterable[Any] | None
_LOST = "it is missing, but its key is there; restore it, or move the key away to begin a new one"


class Released(Protocol):
    """The subject of a release: a :class:`dpindex.Spec`, or the spec of a sketch of records."""

    @property
    def dim(self) -> int: ...

    @property
    def guarantee(self) -> Guarantee: ...

    @property
    def ranges(self) -> Ranges | None: ...

    def to_json(self) -> str: ...


@dataclass(frozen=True)
class SketchRelease:
    """A released sketch as the ledger reads it back: its text, and what of it the totals need."""

    text: str
    guarantee: Guarantee
    method = "race"

    @classmethod
    def from_json(cls, text: str) -> SketchRelease | None:
        """The sketch whose spec this is; None for other specs, InputError for a wrong one."""
        facts = json_value(text, "the spec")
        if not isinstance(facts, dict) or "neighbouring" not in facts:
            return None
        epsilon = checked_epsilon(facts.get("epsilon"))
        delta = finite_number(facts.get("delta"), "delta")
        if not 0 <= delta < 1:
            raise InputError(f"delta must lie in [0, 1), not {delta:g}.")
        adjacency = Records(facts["neighbouring"])
        return cls(text, Guarantee(epsilon, delta, "DP", adjacency))

    def to_json(self) -> str:
        return self.text

    def to_dict(self) -> Any:
        return json.loads(self.text)


@dataclass(frozen=True)
class Entry:
    """One release: under which spec, of how many ids, when (UTC, by this machine's clock)."""

    spec: Spec | SketchRelease
    count: int
    when: str

    def __str__(self) -> str:
        ids = counted(self.count, "id")
        return f"{self.when}  {ids}  {self.spec.method}: {self.spec.guarantee}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "when": self.when,
            "ids": self.count,
            "spec": self.spec.to_dict(),
        }


@dataclass(frozen=True)
class Total:
    """A total: ``releases`` codes of each of ``ids`` ids, and what they promise.

    Attributes
    ----------
    guarantees : tuple of Guarantee
        What all releases promise together, for each change that one of them is about and all
        promise something about. All of these hold at once.
    alone : tuple of Guarantee
        What the releases promise that promise anything about a change, where others do not: these
        may add any loss to that.
    """

    ids: int
    releases: int
    guarantees: tuple[Guarantee, ...]
    alone: tuple[Guarantee, ...] = ()

    @property
    def apart(self) -> str:
        """Why what stands alone is no joint number; empty if nothing does."""
        kinds = [f"{promise.definition} under {promise.adjacency}" for promise in self.alone]
        return f"not every release promises {' or '.join(kinds)}" if kinds else ""

    def __str__(self) -> str:
        promises = "; and ".join(map(str, self.guarantees))
        if self.alone:
            joint = f"{promises}; and " if promises else ""
            alone = "; and ".join(map(str, self.alone))
            promises = (
                f"{joint}no joint number ({self.apart}), and one change may cost all; each kind "
                f"alone: {alone}"
            )
        ids = counted(self.ids, "id")
        releases = counted(self.releases, "release")
        return f"{ids}, {releases} each: {promises}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "ids": self.ids,
            "releases": self.releases,
            "guarantees": [promise.to_dict() for promise in self.guarantees],
            "alone": [promise.to_dict() for promise in self.alone],
            "apart": self.apart,
        }


class Ledger:
    """Every release of every id, kept by the data holder to account for privacy budgets.

    Ids must name the same person everywhere; 7 and "7" are one id here. A ledger that is lost or
    restored from an older copy has forgotten releases. Several processes may use a ledger at once:
    one waits for another for up to ten seconds.

    Parameters
    ----------
    path : path
        The ledger, made with the first release, and beside it ``path.key``; keep both private. A
        symbolic link is followed. Totals can be read without the key.

    >>> from dpindex import attribute
    >>> from tempfile import TemporaryDirectory
    >>> folder = TemporaryDirectory()
    >>> ledger = Ledger(Path(folder.name) / "ledger")
    >>> spec = Spec("dp-oporp-staircase", dim=6, k=2, epsilon=1.0, adjacency=attribute(1.0))
    >>> ledger.record(spec, ["ann", "bob"])
    0
    >>> ledger.record(spec, ["ann"], allow_rerelease=True)
    1
    >>> print(*ledger.totals(), sep="\\n")
    1 id, 2 releases each: epsilon = 2 (pure DP) under attribute(beta=1)
    1 id, 1 release each: epsilon = 1 (pure DP) under attribute(beta=1)
    >>> folder.cleanup()
    """

    def __init__(self, path: AnyPath) -> None:
        # A link is resolved here, so that the ledger, its key and its journal are in one folder.
        self.path = Path(os.path.realpath(os.path.expanduser(path)))
        self.key_path = self.path.with_name(self.path.name + ".key")

    def __repr__(self) -> str:
        return f"<Ledger: {self.path}>"

    def refuse_inside(self, directory: Path) -> None:
        """InputError if the ledger lies in a directory that is going to be published."""
        if self.path.is_relative_to(directory.resolve()):
            raise InputError(
                f"the ledger {self.path} lies inside {directory}, which is meant to be published; "
                f"keep it elsewhere."
            )

    @property
    def mark(self) -> str:
        """What tells this ledger from others, wherever it lies; empty before its first release."""
        if not self.key_path.exists():
            return ""
        return _mark(read_private_file(self.key_path, 1 << 10)).hex()

    def check(self, ids: _Ids, *, allow_rerelease: bool = False) -> None:
        """Raise the InputError that ``record`` would raise for ``ids``; writes nothing.

        ``allow_rerelease`` is that of ``record``."""
        names = id_names(ids, unique=True)
        if self.path.exists() or self.key_path.exists():
            with self._opened() as (db, releases):
                if releases:
                    _put_wanted(db, names, self._key(releases))
                    self._count_known(db, names, allow_rerelease)

    def record(
        self,
        spec: Released,
        ids: _Ids,
        *,
        allow_rerelease: bool = False,
        token: str = "",
    ) -> int:
        """Record one release of each id under ``spec``, durably. Call it *before* privatizing.

        Parameters
        ----------
        spec : Spec or SketchSpec
            Of codes, or of a sketch in which each id is one record.
        ids : iterable of whole numbers or strings
            Unique; None, where a caller's ids are optional, is refused.
        allow_rerelease : bool
            Allow ids that were released before.
        token : str, optional
            Names the work that this entry is for. Work that was interrupted and is resumed under
            the same token, spec and ids was recorded already, and is not recorded twice.

        Returns
        -------
        How many of the ids had been released before; 0 for work that was recorded already.

        Raises
        ------
        InputError
            For an id released before, unless ``allow_rerelease``; for a damaged ledger or a missing
            key; and if another process uses the ledger for too long. Nothing is recorded then.
        """
        names = id_names(ids, unique=True)
        text = spec.to_json()
        with self._opened(_WRITE) as (db, releases):
            key = self._key(releases)
            work = (text, token, _put_wanted(db, names, key))
            recorded = ((row["spec"], row["token"], row["digests"]) for row in releases)
            if token and work in recorded:
                return 0
            known = self._count_known(db, names, allow_rerelease)
            number = len(releases) + 1
            db.execute("INSERT INTO ids SELECT hi, lo, ? FROM wanted", (number,))
            now = datetime.now(timezone.utc)
            row = (
                number,
                *work,
                now.isoformat(timespec="seconds"),
                len(names),
                _mark(key),
                _value(db, _SUMS),
                "",  # no codes yet
            )
            places = ", ".join("?" * len(_COLUMNS))
            db.execute(f"INSERT INTO releases VALUES ({places}, ?)", (*row, _seal(row)))
            db.execute("COMMIT")
        return known

    def record_drawn(self, token: str, digest: str) -> None:
        """Record, durably, that all codes of a release are drawn; call it before publishing any.

        From then on nothing may be drawn under this token: it is spent when the codes are gone.

        Parameters
        ----------
        token : str
            Of releases that were recorded.
        digest : str
            SHA-256 of the codes, in hex.

        Raises
        ------
        DamagedError
            If other codes were recorded, or the ledger does not know the token.
        """
        with self._opened(_WRITE, ids=False) as (db, releases):
            mine = [row for row in releases if row["token"] == token]
            if not mine or any(row["codes"] not in ("", digest) for row in mine):
                raise DamagedError(f"{self.path} does not know this release, or has other codes.")
            for row in mine:
                *facts, _, _ = row  # all but codes and seal
                seal = _seal([*facts, digest])
                change = "UPDATE releases SET codes = ?, seal = ? WHERE id = ?"
                db.execute(change, (digest, seal, row["id"]))
            db.execute("COMMIT")

    def digest_of(self, token: str) -> str | None:
        """Return what :meth:`record_drawn` recorded; None if nothing is drawn under the token."""
        with self._opened(ids=False) as (_, releases):
            digests = {row["codes"] for row in releases if row["token"] == token}
        return max(digests, default="") or None

    def _count_known(
        self,
        db: sqlite3.Connection,
        names: list[bytes],
        allowed: bool,
    ) -> int:
        """How many of the wanted ids were released before; InputError unless that is allowed."""
        count, row = db.execute(
            "SELECT count(*), min(row) FROM wanted "
            "WHERE EXISTS (SELECT 1 FROM ids WHERE ids.hi = wanted.hi AND ids.lo = wanted.lo)"
        ).fetchone()
        if count and not allowed:
            raise InputError(
                f"id {names[row].decode()!r} (row {row}) was released before, as were {count} of "
                f"these {len(names)} ids in all; each release costs its epsilon again. `dpindex "
                f"ledger {self.path}` shows the totals; allow another release if that is meant.",
                field="allow_rerelease",
            )
        return int(count)

    def entries(self) -> tuple[Entry, ...]:
        """All releases in the order in which they were recorded."""
        with self._opened() as (_, releases):
            specs = self._specs(releases)
            entries = [Entry(specs[row["spec"]], row["count"], row["time"]) for row in releases]
        return tuple(entries)

    def totals(self, ids: _Ids = None, delta: float | None = None) -> list[Total]:
        """Return how many ids had which releases, and the total promise; most releases first.

        Parameters
        ----------
        ids : iterable, optional
            These ids only, which takes the key; default all.
        delta : float, optional
            Compose tightly at this delta: see :func:`dpindex.compose`.

        Returns
        -------
        Releases are bounded together at each change that all of them promise something about, by
        group privacy: attribute adjacencies β_i at a change c cost Σ ⌈c/β_i⌉·ε_i. A change of an
        attribute is one of the whole vector, too, so a release under ``record`` adds its epsilon to
        that sum, and one under l2 with radius r ⌈c/r⌉ times its own: see
        :meth:`dpindex.privacy.Adjacency.steps`.
        """
        with self._opened() as (db, releases):
            if not releases:
                return []
            source = "ids"
            if ids is not None:
                _put_wanted(db, id_names(ids), self._key(releases))
                source = "wanted CROSS JOIN ids USING (hi, lo)"
            source += " CROSS JOIN releases ON id = release GROUP BY hi, lo"
            histories = Counter(db.execute(f"SELECT group_concat(id) FROM {source}"))
        specs = self._specs(releases)
        text_of = {str(row["id"]): row["spec"] for row in releases}
        found: Counter[tuple[str, ...]] = Counter()
        for (history,), count in histories.items():
            texts = [text_of[release] for release in history.split(",")]
            found[tuple(sorted(texts))] += count  # the order of releases does not matter
        totals = []
        for past, count in sorted(found.items()):
            promises = promises_of([specs[text] for text in past], delta)
            totals.append(Total(count, len(past), *promises))

        def most_first(total: Total) -> tuple[int, float]:
            epsilons = [promise.epsilon for promise in total.guarantees + total.alone]
            return -total.releases, -max(epsilons)

        return sorted(totals, key=most_first)

    def _specs(self, releases: _Releases) -> dict[str, Spec | SketchRelease]:
        texts = {row["spec"] for row in releases}
        try:
            return {text: SketchRelease.from_json(text) or Spec.from_json(text) for text in texts}
        except InputError as error:
            raise DamagedError(
                f"{self.path} holds a release that cannot be read: {error}"
            ) from None

    def _key(self, releases: _Releases) -> bytes:
        """The key of a ledger with these releases; a new ledger without a key gets one."""
        if not releases and not self.key_path.exists():
            write_file(self.key_path, os.urandom(_KEY_BYTES), mode=0o600)
        key = read_private_file(self.key_path, 1 << 10)
        if len(key) != _KEY_BYTES or (releases and releases[0]["mark"] != _mark(key)):
            raise InputError(f"{self.key_path} is not the key of {self.path}.")
        return key

    @contextmanager
    def _opened(
        self, begin: str = "BEGIN", *, ids: bool = True
    ) -> Iterator[tuple[sqlite3.Connection, _Releases]]:
        """The ledger, verified, in a transaction that is rolled back unless the caller commits it.

        Without ``ids`` the table of releases alone is verified, which takes no longer for more ids.

        A new ledger is committed without releases before its key is made: a key without a ledger
        means that the ledger was lost.
        """
        kept = self.key_path.exists()  # checked first, since another process makes it last
        try:
            if kept and not self.path.exists():
                raise OSError(_LOST)
            if begin == _WRITE:  # created here: SQLite would let other users read it
                with suppress(FileExistsError):
                    created = os.open(self.path, os.O_CREAT | os.O_EXCL, 0o600)
                    os.close(created)
            # Never opened beside SQLite: closing a file drops all locks of the process (POSIX).
            status = self.path.stat()
            if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_LEDGER_BYTES:
                raise OSError(f"it is not a plain file of at most {_MAX_LEDGER_BYTES} bytes")
            for ending in _BESIDE:  # SQLite would write through a link
                if os.path.islink(f"{self.path}{ending}"):
                    raise OSError(f"{self.path.name}{ending} beside it is a symbolic link")
            db = sqlite3.connect(
                f"{self.path.as_uri()}?mode=rw",
                timeout=BUSY_SECONDS,
                isolation_level=None,
                uri=True,
            )
            with closing(db):
                try:
                    releases = _begin(db, begin, kept, ids)
                except (MemoryError, UnicodeDecodeError):  # also for a damaged schema
                    raise OSError("it is damaged, or memory is short") from None
                yield db, releases
        except (OSError, sqlite3.Error) as error:
            raise _failure(self.path, error) from error


def _begin(
    db: sqlite3.Connection,
    begin: str,
    kept: bool,
    ids: bool,
) -> _Releases:
    """Begin a transaction, verify the ledger, and return its releases; create it in an empty file.

    Anything else than an intact ledger raises sqlite3.Error or OSError.
    """
    db.text_factory = lambda text: sys.intern(text.decode())  # a spec is kept once
    db.row_factory = sqlite3.Row
    for pragma in _PRAGMAS:
        db.execute(f"PRAGMA {pragma}")
    db.execute(begin)
    if not _is_made(db, kept):
        if begin != _WRITE:
            return []
        for statement in _MAKE:
            db.execute(statement)
    return _verified(db, ids)


def _is_made(db: sqlite3.Connection, kept: bool) -> bool:
    """Return whether the file is a ledger, or still empty; an error if it is anything else."""
    identity = _value(db, "PRAGMA application_id"), _value(db, "PRAGMA user_version")
    if identity == (0, 0) and not db.execute(_TABLES).fetchone():
        if kept:
            raise OSError(_LOST)
        return False
    if identity[0] == _APPLICATION and identity[1] > _VERSION:
        raise OSError("it was written by a newer version of dpindex; update dpindex to use it")
    if identity != (_APPLICATION, _VERSION):
        raise sqlite3.DatabaseError("not a database")
    return True


def _verified(db: sqlite3.Connection, ids: bool) -> _Releases:
    """Return the releases of a ledger; an error if it is not as it was written."""
    damaged = sqlite3.DatabaseError("malformed")
    # Before anything else: quick_check runs the CHECK constraints that a foreign schema may have.
    if [text for (text,) in db.execute(_TABLES)] != _SCHEMA:
        raise damaged
    # A rollback journal (SQLite's default; WAL is refused): between transactions, and so for
    # whoever copies it, the ledger is a single file.
    if _value(db, "PRAGMA journal_mode") != "delete":
        raise damaged
    if ids and _value(db, "PRAGMA quick_check(1)") != "ok":
        raise damaged
    releases = db.execute("SELECT * FROM releases ORDER BY id").fetchall()
    for number, (*row, seal) in enumerate(releases, 1):
        types = [type(value) for value in row]
        if types != _COLUMNS or row[0] != number or seal != _seal(row):
            raise damaged
    if ids and releases and releases[-1]["sums"] != _value(db, _SUMS):
        raise damaged
    return releases


def _failure(path: Path, error: Exception) -> InputError:
    """Return the error that names the ledger, the fault and the remedy."""
    reason = str(error)
    if isinstance(error, OSError) and error.strerror:
        reason = error.strerror
    if "locked" in reason:
        return BusyError(f"{path} is being written by another process; wait for it to end.")
    if "not a database" in reason:
        return DamagedError(f"{path} is not a ledger, or what is left of one.")
    if isinstance(error, FileNotFoundError):
        return StorageError(f"{path}: {reason}; check the path.")
    if isinstance(error, OSError | sqlite3.OperationalError):
        return StorageError(
            f"{path} cannot be opened or written: {reason}. Make room there, or allow writing, and "
            f"run the command again."
        )
    return DamagedError(
        f"{path} is damaged; restore it from a copy, and remove any -journal beside it."
    )


_Promises: TypeAlias = tuple[Guarantee, ...]


def promises_of(
    specs: Sequence[Spec | SketchRelease], delta: float | None
) -> tuple[_Promises, _Promises]:
    """Return what releases of one vector promise together, and what some promise alone.

    A release without protection leaves nothing to promise.
    """
    bare = [spec for spec in specs if spec.guarantee.definition == "none"]
    if bare:
        return (bare[0].guarantee,), ()
    stated = [promise for spec in specs for promise in spec.guarantee.promises]
    kinds = dict.fromkeys((promise.definition, promise.adjacency) for promise in stated)
    together: list[Guarantee] = []
    alone: list[Guarantee] = []
    for definition, change in kinds:
        # Promises about one pair of vectors add up (Dwork & Roth 2014, Thm 3.16).
        some: list[Any] = [spec for spec in specs if _promises(spec, definition, change)]
        found = together if len(some) == len(specs) else alone
        found.append(compose(some, delta, change))
    return tuple(together), tuple(alone)


def _promises(spec: Spec | SketchRelease, definition: str, change: Adjacency) -> bool:
    """Return whether a release promises anything of that kind about a change."""
    try:
        return spec.guarantee.at(change).definition == definition
    except InputError:
        return False


def id_names(ids: _Ids, *, unique: bool = False) -> list[bytes]:
    """Ids as text: whole numbers in decimal, so that 7 and "7" are the same id."""
    if ids is None:
        raise InputError("a ledger counts releases by id; give every vector an id.", field="ids")
    if isinstance(ids, str | int):
        values = [ids]
    elif isinstance(ids, np.ndarray):
        values = ids.tolist()
    else:
        values = list(ids)
    for value in values:
        if isinstance(value, bool) or not isinstance(value, str | int | np.integer):
            raise InputError("ids must be whole numbers or strings.")
    if not values:
        raise InputError("there are no ids to write into the ledger.")
    try:
        names = [str(value).encode() for value in values]
    except UnicodeEncodeError:
        raise InputError("an id is not text that UTF-8 can hold.") from None
    if unique and len(set(names)) < len(names):
        raise InputError("an id is given twice; each id is one release.")
    return names


def _put_wanted(
    db: sqlite3.Connection,
    names: list[bytes],
    key: bytes,
) -> bytes:
    """Put the digests of the ids, and the first row of each, into a table in memory; their SHA-256.

    HMAC-SHA-256, cut to 16 bytes: two ids of 10⁹ meet with chance 10⁻²¹.
    """
    digests = [hmac.digest(key, b"id:" + name, "sha256")[:16] for name in names]
    numbers = np.frombuffer(b"".join(digests), dtype=">i8")
    halves = numbers.reshape(-1, 2)
    high, low = halves.T
    order = np.lexsort((low, high))  # stable; SQLite's trees are fast in order
    db.execute("CREATE TEMP TABLE wanted (hi, lo, row, PRIMARY KEY (hi, lo)) WITHOUT ROWID")
    for rows in np.array_split(order, len(order) // _ROWS_AT_A_TIME + 1):
        table = zip(high[rows].tolist(), low[rows].tolist(), rows.tolist(), strict=True)
        db.executemany("INSERT OR IGNORE INTO wanted VALUES (?, ?, ?)", table)
    in_order = halves[order].tobytes()
    return hashlib.sha256(in_order).digest()


def _value(db: sqlite3.Connection, query: str) -> Any:
    return db.execute(query).fetchone()[0]


def _mark(key: bytes) -> bytes:
    return hmac.digest(key, b"key of a dpindex ledger", "sha256")[:16]


def _seal(row: Sequence[Any]) -> bytes:
    text = ascii(tuple(row))
    return hashlib.sha256(text.encode()).digest()
