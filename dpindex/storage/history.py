"""Terms of a release, one into memory, and what is remembered of all into an index.

Tags are kept under a key, by which the same vectors are known again.

Beside an index ``NAME`` lies ``NAME.released``, which its owner alone may read. It holds a key and,
under it, a tag of eight bytes for every vector that was released into the index without a ledger,
or the ledger that counts them. It is written before what it tells of is published, and nothing of
it is published. Where it is lost, vectors that are added again are taken for new ones.
"""

from __future__ import annotations

import hashlib
import math
import os
import secrets
import warnings
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import scipy

from dpindex.base.arrays import AnyArray, Longs, Vectors, Words
from dpindex.base.display import Progress
from dpindex.base.errors import DamagedError, InputError, QualityWarning, naming
from dpindex.base.files import pack, read_private_file, unpack, write_file, writing
from dpindex.base.threads import keep_freed_memory
from dpindex.data.dataset import Dataset
from dpindex.data.source import Chunk
from dpindex.mechanism.codes import Codes
from dpindex.storage.leak_check import LeakCheck, LeakEvidence, refuse_leaks

if TYPE_CHECKING:  # devices keep no ledger, and searchers need no secret stream
    from dpindex.accounting.ledger import Ledger
    from dpindex.mechanism.privatizer import Privatizer

Tags = npt.NDArray[np.int64]

_KEY_BYTES = 32
_TAG_BYTES = 8
_MAX_HISTORY_BYTES = 1 << 34
_CACHED_NUMBERS = 1 << 15  # numbers whose bits stay in a cache
_MOST_LATER = 256
"""Releases whose tags wait: each costs the next one the time of copying a reference."""

_FEW = 8
_SLACK = 15.0
_OF_ZEROS = 0
"""The tag of a vector that is 0 everywhere, which is nobody's."""


@dataclass(frozen=True, eq=False)
class TagLog:
    """Tags in sorted parts, each at least twice as long as the next: a few are added cheaply.

    >>> log = TagLog().with_tags(np.array([7, 3])).with_tags(np.array([7]))
    >>> log.array.tolist(), log.counts(np.array([7, 4])).tolist()
    ([3, 7, 7], [2, 0])
    """

    parts: tuple[Tags, ...] = ()

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @property
    def array(self) -> Tags:
        tags = np.concatenate([*self.parts, np.empty(0, np.int64)])
        return np.sort(tags)

    def counts(self, tags: Tags) -> Longs:
        """Return how often each of some tags is there."""
        counts = np.zeros(len(tags), np.int64)
        for part in self.parts:
            counts += part.searchsorted(tags, "right") - part.searchsorted(tags, "left")
        return counts

    def with_tags(self, tags: Tags) -> TagLog:
        """Return a log with more tags; this one stays as it is."""
        parts = list(self.parts)
        # Digits of a binary counter are carried: a tag is moved as often as a log doubles.
        while parts and len(parts[-1]) < 2 * len(tags):
            tags = np.concatenate([parts.pop(), tags])
        # A stable sort merges what is in order already, as parts and releases are.
        return TagLog((*parts, np.sort(tags, kind="stable")))


def released_path(place: Path) -> Path:
    """Return where what was released into an index is kept."""
    return place.with_name(place.name + ".released")


@lru_cache(maxsize=2)
def _factors(key: bytes, dim: int) -> Words:
    """Return a secret factor of each attribute."""
    secret = hashlib.shake_256(key).digest(8 * dim)
    return np.frombuffer(secret, "<u8").astype(np.uint64)


def _bits(values: AnyArray) -> Words:
    """Return the bits of numbers rounded to eight significant ones; both zeros have none."""
    # In one pass, which copies them; then in place.
    single = np.add(values, np.float32(0), dtype=np.float32, casting="unsafe")
    rounded = single.view(np.uint32)
    rounded += np.uint32(1 << 15)
    rounded >>= np.uint32(16)
    return rounded.astype(np.uint64)


@dataclass(frozen=True, eq=False)
class History:
    """What was released into one index.

    Attributes
    ----------
    key : bytes
        Secret: whoever has it can confirm a guess of a vector.
    rows : TagLog
        Of all vectors that no ledger counts.
    wholes : TagLog
        Tags of the releases that they came in.
    ledger, mark : str
        Where the ledger lies that counts vectors of this index, and what tells it from others;
        empty without one.
    later : tuple of int64 arrays
        Tags of releases that are in neither log yet: of many small ones, most are never asked for.
    """

    key: bytes = field(default_factory=lambda: secrets.token_bytes(_KEY_BYTES), repr=False)
    rows: TagLog = field(default=TagLog(), repr=False)
    wholes: TagLog = field(default=TagLog(), repr=False)
    ledger: str = ""
    mark: str = ""
    later: tuple[Tags, ...] = field(default=(), repr=False)

    def tags(self, chunk: Chunk) -> Tags:
        """Return a tag of each vector: equal for equal numbers, dense or sparse, of any type.

        It is a secret sum Σ k_i·x_i mod 2⁶⁴ of the bits of numbers that are rounded to eight, so
        that most short vectors keep theirs in a file with fewer digits. Of 384 numbers some round
        otherwise after any change, and the tag with them. Vectors that differ after rounding have
        one tag with chance 2⁻⁴⁸ at most (multilinear hashing: Lemire & Kaser 2014,
        section 3). That is far rarer than the repetitions that are left to chance.
        """
        factors = _factors(self.key, chunk.shape[1])  # their sums wrap: they are modulo 2^64
        if not isinstance(chunk, np.ndarray):
            rows = scipy.sparse.csr_matrix(chunk, dtype=np.float32, copy=True)
            rows.sum_duplicates()
            rows.eliminate_zeros()
            parts = (_bits(rows.data), rows.indices, rows.indptr)
            sums = scipy.sparse.csr_matrix(parts, shape=rows.shape) @ factors
            return np.asarray(sums).view(np.int64)
        keep_freed_memory()
        sums = np.empty(len(chunk), np.uint64)
        size = max(1, _CACHED_NUMBERS // chunk.shape[1])
        for start in range(0, len(chunk), size):
            bits = _bits(chunk[start : start + size])
            np.dot(bits, factors, out=sums[start : start + size])
        return sums.view(np.int64)

    def tags_of(self, dataset: Dataset) -> Tags:
        """Return the tags of all vectors of a dataset."""
        return np.concatenate([self.tags(chunk) for _, _, chunk in dataset.chunks()])

    def _whole(self, rows: Tags) -> Tags:
        """Return the tag of a release of vectors with these tags, ascending, shape (1,)."""
        content = rows[rows != _OF_ZEROS].astype("<i8").tobytes()
        tag = hashlib.blake2b(content, key=self.key, digest_size=_TAG_BYTES)
        return np.frombuffer(tag.digest(), "<i8").astype(np.int64)

    def with_rows(self, rows: Tags) -> History:
        """Return this and a release of vectors with these tags."""
        later = (*self.later, rows)
        known = History(self.key, self.rows, self.wholes, self.ledger, self.mark, later)
        return known if len(later) < _MOST_LATER else known.settled()

    def settled(self) -> History:
        """Return this with all releases in the logs; itself where they are."""
        if not self.later:
            return self
        wholes = [self._whole(np.sort(rows)) for rows in self.later]
        return replace(
            self,
            rows=self.rows.with_tags(np.concatenate(self.later)),
            wholes=self.wholes.with_tags(np.concatenate(wholes)),
            later=(),
        )

    def with_ledger(self, ledger: Ledger) -> History:
        """Return this and the ledger that counts from now on; itself where it did already."""
        path = str(ledger.path)
        if (self.ledger, self.mark) == (path, ledger.mark):
            return self
        return replace(self, ledger=path, mark=ledger.mark)

    def refuse_without(self, ledger: Ledger | None) -> None:
        """Refuse a release that the ledger of this index does not count.

        Raises
        ------
        InputError
        """
        if self.ledger and (ledger is None or ledger.mark != self.mark):
            raise InputError(
                f"releases into this index are counted in the ledger {self.ledger}; name it, or "
                f"where it lies now: else the epsilons of a vector add up uncounted.",
                field="ledger",
            )

    def refuse_again(self, rows: Tags, named: bool) -> None:
        """Refuse vectors that were released before.

        Some may be equal by chance. Of independent vectors of any distribution, contents that occur
        once here and once before are on average no more than those that occur twice before or
        twice here: λμ ≤ (λ² + μ²)/2 for the means λ, μ of one content. And at most about 1 in e
        vectors has a content that was released exactly once: n·p·(1 − p)^(n−1) ≤ (1 − 1/n)^(n−1).

        Parameters
        ----------
        rows : int64 array
            Tags of the vectors.
        named : bool
            Whether they have ids: then fewer than eight are taken for others' vectors, and without
            ids only if they were not released together before.

        Raises
        ------
        InputError
            If more are equal than chance explains, or most are.
        """
        known = self.settled()
        rows = np.sort(rows[rows != _OF_ZEROS])
        given, here = np.unique(rows, return_counts=True)
        before = known.rows.counts(given)
        once = int(((here == 1) & (before == 1)).sum())
        whole = bool(known.wholes.counts(self._whole(rows)))
        many = len(rows) >= _FEW
        most = 2 * once > len(rows) and many
        again = len(rows) and whole and (many or not named)
        too_many = False
        if once > _SLACK:  # all that was released is looked through then alone
            _, times = np.unique(known.rows.array, return_counts=True)
            chance = int((times == 2).sum() + (here == 2).sum())
            too_many = once > chance + 8 * math.sqrt(chance) + _SLACK
        if most or again or too_many:
            count = int(here[before > 0].sum())
            raise InputError(
                f"{count} of these {len(rows)} vectors were released into this index before; each "
                f"release costs its epsilon again. If that is meant, allow it, with ids and a "
                f"ledger that counts it.",
                field="allow_rerelease, ids, ledger",
            )

    def to_bytes(self) -> bytes:
        known = self.settled()
        facts = {"key": self.key.hex(), "ledger": self.ledger, "mark": self.mark}
        return pack("released", facts, {"rows": known.rows.array, "wholes": known.wholes.array})

    @classmethod
    def read(cls, place: Path) -> History:
        """Return what was released into the index at a place; nothing if that is not known.

        Raises
        ------
        DamagedError
            If the file is damaged or is another one.
        StorageError
            If others may read it.
        """
        path = released_path(place)
        if not os.path.lexists(path):
            return cls()
        data = read_private_file(path, _MAX_HISTORY_BYTES)
        try:
            facts, arrays = unpack(data, "released")
            key = bytes.fromhex(facts["key"])
            rows = TagLog().with_tags(arrays["rows"].astype(np.int64))
            wholes = TagLog().with_tags(arrays["wholes"].astype(np.int64))
            return cls(key, rows, wholes, str(facts["ledger"]), str(facts["mark"]))
        except (LookupError, TypeError, ValueError):  # a DamagedError is one
            raise DamagedError(
                f"{path}, which tells what was released into {place}, is damaged; restore it, or "
                f"move it away: then what is added again is not noticed."
            ) from None

    def write(self, place: Path) -> None:
        """Write it beside a new index, durably, before that is published."""
        path = released_path(place)
        self.read(place)  # refuses to replace a file of another kind
        with writing(path, "the folder around it needs room for what was released"):
            if len(self.settled().rows) or self.ledger:
                write_file(path, self.to_bytes(), mode=0o600)
            else:
                path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Terms:
    """Terms of a release, which the holder of the vectors sets.

    Parameters
    ----------
    ledger : Ledger, optional
        Where the release of every id is written down before its noise is drawn.
    allow_rerelease : bool
        Allow ids that the ledger knows, at the price of one more epsilon each.
    skip_leak_check : bool
        Accept a public part made of the vectors: see :mod:`dpindex.storage.leak_check`.

    Raises
    ------
    InputError
        For ``allow_rerelease`` without a ledger.
    """

    ledger: Ledger | None = None
    allow_rerelease: bool = False
    skip_leak_check: bool = False

    def __post_init__(self) -> None:
        if self.ledger is None and self.allow_rerelease:
            raise InputError(
                "a release is repeated only where a ledger counts it; name the ledger.",
                field="ledger",
            )


def release_in_memory(
    dataset: Dataset | Vectors,
    privatizer: Privatizer,
    *,
    skip_leak_check: bool,
    history: History | None = None,
    progress: Progress | None = None,
) -> tuple[Codes, Tags]:
    """Release vectors into the memory of this process, without a ledger.

    What was drawn before a fault is discarded unseen, so a fault costs no budget.

    Parameters
    ----------
    dataset : Dataset, or array or sparse matrix of shape (n, dim)
    privatizer : Privatizer
    skip_leak_check : bool
        Accept a public part made of the vectors: see :mod:`dpindex.storage.leak_check`.
    history : History, optional
        By which the vectors are to be known again.
    progress : callable, optional
        Called with the rows that are done, all rows, and "privatizing".

    Returns
    -------
    Codes, and the tags of the vectors; none without a history.
    """
    spec = privatizer.spec
    if not isinstance(dataset, Dataset):
        chunks: Iterable[tuple[str, int, Chunk]] = [("", 0, dataset)]
        rows = dataset.shape[0]
    else:
        chunks = dataset.chunks()
        rows = dataset.rows
        if spec.ranges is not None:
            spec.ranges.check_order(dataset.attributes, dataset.name)
    leak_check = None
    if rows > 1 and not skip_leak_check:  # one vector by itself is never refused
        leak_check = LeakCheck.of(spec, rows)
    stored = []
    tags: list[Tags] = []
    leaks: list[LeakEvidence] = []
    clipped = 0.0
    done = 0
    for name, first_row, chunk in chunks:
        with naming(name) if name else nullcontext():
            codes = privatizer.privatize(chunk, first_row=first_row)
        stored.append(codes.stored)
        if history is not None:
            tags.append(history.tags(chunk))
        if spec.clip:
            clipped += chunk.shape[0] * privatizer.clipped(chunk)
        if leak_check is not None:
            leaks.append(leak_check.evidence(done, privatizer.scaled(chunk)))
        done += chunk.shape[0]
        if progress is not None:
            progress(done, rows, "privatizing")
    if leak_check is not None:
        refuse_leaks(leak_check.part, LeakEvidence.joined(leaks))
    if clipped:
        warn_of_clipping(clipped / done)
    known = np.concatenate([*tags, np.empty(0, np.int64)])
    if len(stored) == 1:
        return codes, known
    return spec.format.codes(spec.format.concatenate(stored)), known


_MUCH_CLIPPED = 0.01


def warn_of_clipping(share: float) -> None:
    if share > _MUCH_CLIPPED:
        warnings.warn(
            f"{share:.1%} of the values lie outside the public bounds and were clipped to them: "
            f"rows that differ beyond the bounds look alike; unless a plan chose them, state wider "
            f"ranges, scale or bounds",
            QualityWarning,
            stacklevel=4,
        )
