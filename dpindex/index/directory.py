"""The index on disk: immutable segments, and a manifest that alone says which of them count.

A directory holds ``manifest.json``, ``segments/NNNNNN.codes``, ``ids/NNNNNN.ids``, for segments
with a payload ``payload/NNNNNN.arrows`` and, where one was learned, ``denoiser/NNNNNN.model``. A
file belongs to the index only once a manifest that names it has been renamed into place; whatever
the manifest does not name is discarded unread. New files
come from a journal outside the directory (:mod:`dpindex.index.journal`), where all of them lie
before the first is seen here. Reading checks sizes and SHA-256 hashes before any parser sees a
byte. No raw vector, norm, noise or secret is ever written.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from dpindex.base.arrays import AnyArray
from dpindex.base.errors import InputError
from dpindex.base.files import (
    Buffer,
    holding_lock,
    make_folder,
    map_file,
    read_file,
    release_pages,
    sync_folder,
    write_file,
)
from dpindex.exposure.visibility import Visibility, rows_to_sample, visibility
from dpindex.format1 import manifest_from_1
from dpindex.index.journal import Journal, state_folder
from dpindex.index.ranking import new_ranking
from dpindex.index.search_backend import EXACT
from dpindex.mechanism.codebook import Codebook, spaced
from dpindex.mechanism.codes import Codes, codes_from_bytes
from dpindex.mechanism.spec import Spec
from dpindex.similarity.float_codes import METRICS
from dpindex.similarity.similarity import Metric
from dpindex.storage.code_store import (
    MAPPED_BYTES,
    CodeStore,
    id_block,
    ids_to_bytes,
    rows_per_segment,
)
from dpindex.storage.payload import Payload, Table, payload_from_bytes, payload_to_bytes
from dpindex.storage.stored_ids import IdBlock
from dpindex.version import __version__

if TYPE_CHECKING:  # most indexes have none
    from dpindex.denoise import Denoiser

_FORMAT = 2
MANIFEST = "manifest.json"
_CODES, _IDS, _MODEL = "segments/{}.codes", "ids/{}.ids", "denoiser/{}.model"
_CODEBOOK, _PAYLOAD = "codebook/{}.vectors", "payload/{}.arrows"
_FOLDERS = ("segments", "ids", "payload", "denoiser", "codebook")
_NUMBER = re.compile(r"[0-9]{6}")
_NUMBERED_FILE = re.compile(r"[0-9]{6}\.(codes|ids|arrows|model|vectors)(\.tmp)?")
_STATED = ("state", "next_number", "segments", "denoiser", "input")
_MAX_FILE_BYTES = 1 << 33
MAX_MANIFEST_BYTES = 1 << 24
_SAMPLED_SEGMENTS = 8
# Share of exact copies that are found, below which few neighbours can be.
_VISIBLE = 0.3

Segment: TypeAlias = tuple[Codes, IdBlock, Table]
"""Codes, ids, and payload or None; what is large is mapped where it lies."""


@dataclass(frozen=True)
class Settings:
    """What an index is, beside its rows.

    Parameters
    ----------
    spec : Spec
        The public description of the mechanism.
    metric : "cosine", "ip" or "l2"
        What neighbours are ranked by.
    index_type : str
        How vectors are kept and searched: see :func:`dpindex.index.faiss_vectors.parse_index_type`.
    query_epsilon : float, optional
        Budget of a private query; default the spec's epsilon.

    Raises
    ------
    InputError
        For a metric or an index type that the method's codes do not have, or a wrong query epsilon.
    """

    spec: Spec
    metric: Metric = "cosine"
    index_type: str = EXACT
    query_epsilon: float | None = None

    def __post_init__(self) -> None:
        if self.metric not in tuple(METRICS):
            raise InputError(f"metric must be one of {', '.join(METRICS)}, not {self.metric!r}.")
        mechanism = self.spec.mechanism
        known = mechanism.calibration.format.metrics
        if self.metric not in known:
            raise InputError(
                f"{mechanism.name} keeps {mechanism.codes}, which know {' and '.join(known)} only, "
                f"not {self.metric!r}."
            )
        new_ranking(self.spec, self.metric, self.index_type)  # refuses a wrong index type
        if self.query_epsilon is not None:
            object.__setattr__(self, "query_epsilon", self.query_spec.epsilon)

    @property
    def query_spec(self) -> Spec:
        """The spec of private queries."""
        return (
            self.spec if self.query_epsilon is None else self.spec.with_epsilon(self.query_epsilon)
        )

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain JSON values."""
        return {**vars(self), "spec": self.spec.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Settings:
        """The inverse of :meth:`to_dict`, other keys aside; InputError or KeyError if it is not."""
        stated = {field.name: data[field.name] for field in fields(cls)}
        return cls(**{**stated, "spec": Spec.from_dict(data["spec"])})


def segment_paths(number: str) -> tuple[str, str, str]:
    """Where the codes, the ids and the payload of a segment lie."""
    return _CODES.format(number), _IDS.format(number), _PAYLOAD.format(number)


def codebook_path(number: str) -> str:
    """Where a codebook lies."""
    return _CODEBOOK.format(number)


def sampled(numbers: Sequence[str], read: Callable[[str], Codes]) -> Codes:
    """Evenly spaced codes of a few evenly spaced segments, of which there must be one."""
    chosen, parts = [numbers[i] for i in spaced(len(numbers), _SAMPLED_SEGMENTS)], []
    for number in chosen:
        codes = read(number)
        parts.append(codes.take(rows_to_sample(len(codes), len(chosen) * codes.k)))
    format_ = parts[0].format
    return format_.codes(format_.concatenate([part.stored for part in parts]))


@dataclass(frozen=True)
class FileMark:
    """Size and hash by which a file is recognised."""

    bytes: int
    sha256: str

    def __post_init__(self) -> None:
        if type(self.bytes) is not int or not 0 <= self.bytes <= _MAX_FILE_BYTES:
            raise ValueError("size")

    @classmethod
    def of(cls, data: Buffer) -> FileMark:
        """The mark of a file with this content."""
        return cls(len(data), hashlib.sha256(data).hexdigest())


@dataclass(frozen=True)
class Manifest:
    """The table of contents; the only mutable thing in an index directory, replaced whole.

    Attributes
    ----------
    settings : Settings
    state : "building" or "complete"
    next_number : int
        Segments, denoisers and codebooks are numbered, and no number is used twice.
    segments : mapping from six digits to int
        The segments by number, in row order, and their rows.
    denoiser, codebook : str, optional
        Number of the denoiser that was learned from the segments, and of the spec's codebook.
    files : mapping from path to FileMark
        Of every file that belongs to the index, and perhaps of some that did.
    input : mapping, optional
        While the index is being built: what tells its input from another, as plain JSON values.
        While only the denoiser of a build is missing: which build it was.
    visibility : Visibility, optional
        What noise leaves of the best case of a search; absent in older indexes and empty ones.
    """

    settings: Settings
    state: str = "building"
    next_number: int = 0
    segments: Mapping[str, int] = field(default_factory=dict)
    denoiser: str | None = None
    codebook: str | None = None
    files: Mapping[str, FileMark] = field(default_factory=dict)
    input: Mapping[str, Any] | None = None
    visibility: Visibility | None = None

    @property
    def paths(self) -> list[str]:
        """Every file that belongs to the index."""
        paths = [path.format(number) for number in self.segments for path in (_CODES, _IDS)]
        payloads = map(_PAYLOAD.format, self.segments)
        paths += [path for path in payloads if path in self.files]
        paths += [] if self.denoiser is None else [_MODEL.format(self.denoiser)]
        return paths if self.codebook is None else [*paths, _CODEBOOK.format(self.codebook)]

    @property
    def count(self) -> int:
        """Rows of all segments."""
        return sum(self.segments.values())

    def to_bytes(self) -> bytes:
        """The text of ``manifest.json``."""
        extra: dict[str, Any] = {} if self.codebook is None else {"codebook": self.codebook}
        if self.visibility is not None:
            extra["visibility"] = self.visibility._asdict()
        data = {
            "format": _FORMAT,
            "library": __version__,
            "guarantee": self.settings.spec.guarantee.to_dict(),
            "count": self.count,
            "files": {path: asdict(self.files[path]) for path in self.paths},
            **{name: getattr(self, name) for name in _STATED},
            **self.settings.to_dict(),
            **extra,
        }
        return _sealed(data)

    @classmethod
    def from_dict(cls, data: Any) -> Manifest:
        """The inverse of :meth:`to_bytes`, from parsed JSON without its checksum; ValueError (as
        InputError is), KeyError, TypeError or AttributeError for anything else.
        """
        files = {path: FileMark(**mark) for path, mark in data["files"].items()}
        stated = {name: data[name] for name in _STATED} | {"codebook": data.get("codebook")}
        if (seen := data.get("visibility")) is not None:
            stated["visibility"] = Visibility(**seen)
        manifest = cls(settings=Settings.from_dict(data), files=files, **stated)
        last = [name for name in (manifest.denoiser, manifest.codebook) if name is not None]
        numbers, counts = [*manifest.segments, *last], manifest.segments.values()
        # Older files state the adjacency in units of the scaled attribute.
        settings = manifest.settings
        promise = settings.spec.guarantee
        older = replace(promise, adjacency=settings.spec.adjacency)
        if not (
            manifest.state in ("building", "complete")
            and (manifest.input is None or isinstance(manifest.input, dict))
            and data["guarantee"] in (promise.to_dict(), older.to_dict())
            and all(type(count) is int and count > 0 for count in counts)
            and data["count"] == manifest.count
            and all(_NUMBER.fullmatch(number) for number in numbers)
            and len(set(numbers)) == len(numbers)
            and type(manifest.next_number) is int
            and all(int(number) < manifest.next_number for number in numbers)
            and set(files) == set(manifest.paths)
            and (manifest.codebook is None) == (manifest.settings.spec.codebook is None)
            and all(isinstance(v, float) and 0 <= v <= 1 for v in manifest.visibility or ())
        ):
            raise InputError("it contradicts itself.")
        return manifest

    @property
    def digest(self) -> str:
        """SHA-256 of the manifest: names one state of the index."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @classmethod
    def from_bytes(cls, text: bytes, place: Path) -> Manifest:
        """Parse and check a manifest of format 2 or 1; InputError names ``place``."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            raise InputError(f"{place} is not a manifest: it is no valid JSON.") from None
        if not isinstance(data, dict) or data.get("format") not in (1, _FORMAT):
            raise InputError(f"{place} is not a manifest of format {_FORMAT}.")
        data.pop("checksum", None)
        if _sealed(data) != text:
            raise InputError(f"{place} is damaged: its checksum does not match.")
        try:
            return cls.from_dict(manifest_from_1(data) if data["format"] == 1 else data)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            detail = str(error) if isinstance(error, InputError) else "a field is missing or wrong."
            raise InputError(f"{place} is damaged: {detail}") from None


def _sealed(data: dict[str, Any]) -> bytes:
    """Canonical text of a manifest with a checksum of itself: no changed byte goes unnoticed."""
    seal = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
    return json.dumps({**data, "checksum": seal}, indent=1, sort_keys=True).encode()


class IndexDirectory:
    """Reads and writes an index directory; every change is committed by one rename.

    ``state`` is the folder of its journal, outside the directory.
    """

    def __init__(self, path: Path, state: Path | None = None) -> None:
        self.path = path.resolve()
        self.journal = Journal(self.path, state or state_folder())
        self._held = False

    @property
    def exists(self) -> bool:
        """Whether there is a manifest."""
        return (self.path / MANIFEST).is_file()

    def manifest(self) -> Manifest:
        """The committed manifest."""
        if not self.exists:
            raise InputError(
                f"{self.path} is not a dpindex index, or its build is not finished: it has no "
                f"{MANIFEST}."
            )
        return Manifest.from_bytes(self._text(), self.path / MANIFEST)

    def segments(self, manifest: Manifest) -> Iterator[Segment]:
        """Codes, ids and payload of every segment, verified against the manifest first."""
        fingerprint = manifest.settings.spec.fingerprint
        for number, count in manifest.segments.items():
            path = _CODES.format(number)
            codes = codes_from_bytes(self._mapped(manifest, path), verified=True)
            ids = id_block(self._mapped(manifest, _IDS.format(number)), verified=True)
            release_pages(codes.stored)
            if codes.fingerprint != fingerprint:
                raise InputError(f"{self.path / path} was made under another spec.")
            payload, columns = None, _PAYLOAD.format(number)
            if columns in manifest.files:
                payload = payload_from_bytes(self._verified(manifest, columns))
            rows = count if payload is None else len(payload)
            if not len(codes) == len(ids) == rows == count:
                raise InputError(f"{self.path / path} does not have the rows it should.")
            yield codes, ids, payload

    def payload_columns(self, manifest: Manifest) -> dict[str, str]:
        """Type of each payload column by its name, from one segment that has a payload."""
        for number in manifest.segments:
            if (columns := _PAYLOAD.format(number)) in manifest.files:
                return Payload(payload_from_bytes(self._verified(manifest, columns))).columns
        return {}

    def sample(self, manifest: Manifest) -> Codes:
        """Evenly spaced codes of a few evenly spaced segments, verified; there must be one."""

        def read(number: str) -> Codes:
            alone = replace(manifest, segments={number: manifest.segments[number]})
            ((codes, _, _),) = self.segments(alone)
            return codes

        return sampled(list(manifest.segments), read)

    def settings(self, manifest: Manifest) -> Settings:
        """The settings, with the codewords of the spec's codebook if it has one."""
        if manifest.codebook is None:
            return manifest.settings
        book = Codebook.from_bytes(self._verified(manifest, _CODEBOOK.format(manifest.codebook)))
        return replace(manifest.settings, spec=manifest.settings.spec.with_codebook(book))

    def denoiser(self, manifest: Manifest) -> Denoiser | None:
        """The denoiser, verified against the manifest; None if there is none."""
        if manifest.denoiser is None:
            return None
        from dpindex.denoise import denoiser_from_bytes

        data = self._verified(manifest, _MODEL.format(manifest.denoiser))
        return denoiser_from_bytes(data, manifest.settings.spec)

    def check_sizes(self, manifest: Manifest) -> None:
        """InputError for a file that is missing, or is not as long as it was; none is read."""
        for path in manifest.paths:
            place = self.path / path
            if not place.is_file():
                raise InputError(f"{place} is missing; restore it from a copy.")
            if place.stat().st_size != manifest.files[path].bytes:
                raise InputError(f"{place} is cut off or was changed; restore it from a copy.")

    def _verified(self, manifest: Manifest, path: str) -> bytes:
        data = read_file(self.path / path, manifest.files[path].bytes, links=False)
        self._compare(data, manifest, path)
        return data

    def _mapped(self, manifest: Manifest, path: str) -> Buffer:
        """As ``_verified``, but of a large file its pages where they lie, each read once."""
        mark = manifest.files[path]
        if mark.bytes < MAPPED_BYTES:
            return self._verified(manifest, path)
        data = map_file(self.path / path, mark.bytes, links=False)
        self._compare(data, manifest, path)
        return data

    def _compare(self, data: Buffer, manifest: Manifest, path: str) -> None:
        mark = manifest.files[path]
        if len(data) != mark.bytes:
            raise InputError(f"{self.path / path} is cut off; restore it from a copy.")
        if FileMark.of(data) != mark:
            raise InputError(f"{self.path / path} was changed or damaged; restore it from a copy.")

    @contextmanager
    def held(self, waiting: Callable[[], object] | None = None) -> Iterator[None]:
        """Keep every other process from writing; this one may write more than once.

        Raises
        ------
        InputError
            If another process holds it, unless ``waiting`` is given: then it is called, and the
            other waited for.
        """
        if self._held:
            yield
            return
        with ExitStack() as stack:
            try:
                first = self._make_lock()
                place = self.path / ".lock"
                stack.enter_context(holding_lock(place, str(self.path), waiting))
                for folder in _FOLDERS:
                    if (self.path / folder).is_symlink():
                        raise InputError(f"{self.path / folder} is a symbolic link, not a folder.")
                if first:  # what a journal may know of was removed
                    self.journal.clear()
            except OSError as error:
                raise self._not_written(error) from error
            self._held = True
            try:
                yield
            finally:
                self._held = False

    def _not_written(self, error: OSError) -> InputError:
        return InputError(f"{self.path} cannot be written: {error.strerror or error}.")

    @contextmanager
    def writing(self, *, new: bool) -> Iterator[None]:
        """Hold the directory for writing; a ``new`` one must be absent or empty.

        What an interrupted write left is finished first if its journal is here, and else discarded:
        what is left of a first save or build that died before its manifest counts as empty.
        """
        try:
            make_folder(self.path)
            with self.held():
                self._finish_interrupted()
                if new and (self.path / MANIFEST).exists():
                    raise InputError(
                        f"{self.path} already holds an index; open it to add to it, or choose "
                        f"another directory."
                    )
                if new and not self._is_blank():
                    raise InputError(f"{self.path} is not empty; choose another directory.")
                self.discard_uncommitted(self.manifest().paths if self.exists else ())
                self.journal.begin()
                try:
                    yield
                except BaseException:
                    if self.journal.pending() is None:  # so nothing of it was seen
                        self.journal.clear()
                    raise
                if self._is_settled:
                    self.journal.clear()
        except OSError as error:
            raise self._not_written(error) from error

    def _make_lock(self) -> bool:
        """Make the lock file; whether there was none."""
        try:
            os.close(os.open(self.path / ".lock", os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return False
        return True

    @property
    def _is_settled(self) -> bool:
        """Whether nothing that was sealed waits to be published, and no build is unfinished."""
        pending = self.journal.pending()
        waits = pending is not None and self._hash() == pending[0]
        if waits or not self.exists:
            return not waits
        manifest = self.manifest()
        return manifest.state == "complete" and manifest.input is None

    def _is_blank(self) -> bool:
        """Whether nothing is here but, perhaps, leftovers of our own that no manifest names."""
        known = {".lock", f"{MANIFEST}.tmp", *_FOLDERS}
        found = {entry.name for entry in self.path.iterdir()}
        return found <= known and all(_NUMBERED_FILE.fullmatch(e.name) for e in self._entries())

    def _entries(self) -> list[Path]:
        """What lies in the folders of an index."""
        folders = [self.path / name for name in _FOLDERS if (self.path / name).is_dir()]
        return [entry for folder in folders for entry in folder.iterdir()]

    def start(self, settings: Settings, stated: Mapping[str, Any] | None = None) -> Manifest:
        """A manifest without segments, not yet committed."""
        manifest, book = Manifest(settings, input=stated), settings.spec.codebook
        if book is None:
            return manifest
        number, manifest = self._numbered(manifest, {_CODEBOOK: book.to_bytes()})
        return replace(manifest, codebook=number)

    def write_segment(
        self, manifest: Manifest, codes: Codes, ids: AnyArray, payload: Table = None
    ) -> Manifest:
        """Stage a segment and return the manifest that names it, which is not yet committed."""
        data = {_CODES: codes.to_bytes(), _IDS: ids_to_bytes(ids)}
        if payload is not None:
            data[_PAYLOAD] = payload_to_bytes(payload)
        number, manifest = self._numbered(manifest, data)
        return replace(manifest, segments={**manifest.segments, number: len(codes)})

    def write_denoiser(self, manifest: Manifest, denoiser: Denoiser) -> Manifest:
        """Stage a denoiser and return the manifest that names it, which is not yet committed."""
        from dpindex.denoise import denoiser_to_bytes

        number, manifest = self._numbered(manifest, {_MODEL: denoiser_to_bytes(denoiser)})
        return replace(manifest, denoiser=number)

    def _numbered(self, manifest: Manifest, data: Mapping[str, bytes]) -> tuple[str, Manifest]:
        """Stage files under the next number; that, and the manifest that knows them."""
        number, files = f"{manifest.next_number:06d}", dict(manifest.files)
        if not _NUMBER.fullmatch(number):
            raise InputError(f"{self.path} has had a million segments; save to a new directory.")
        for pattern, content in data.items():
            self.journal.stage(pattern.format(number), content)
            files[pattern.format(number)] = FileMark.of(content)
        return number, replace(manifest, next_number=manifest.next_number + 1, files=files)

    def commit(self, manifest: Manifest, sealed: Callable[[], object] = lambda: None) -> Manifest:
        """Make the manifest the truth, durably, in one rename; then delete what it does not name.

        Once ``sealed`` is called it is certain: whatever stops this, the next to write finishes it.
        The end of a build adds no file and is not sealed: until it is here, the build goes on. But
        it is where a denoiser is to follow, for which the same build goes on after it.
        """
        text = manifest.to_bytes()
        if len(text) > MAX_MANIFEST_BYTES:
            raise InputError(
                f"{self.path} has {len(manifest.segments)} segments, too many for one manifest; "
                f"save the index to a new directory."
            )
        adds = self.journal.staged() or not self.exists
        if adds or self.manifest().state == "complete" or manifest.input is not None:
            self.journal.seal(self._hash(), text)
            sealed()
        self._publish(manifest, text)
        return manifest

    def _hash(self) -> str:
        """Of the manifest as it lies there, "" if there is none."""
        return hashlib.sha256(self._text()).hexdigest() if self.exists else ""

    def _text(self) -> bytes:
        return read_file(self.path / MANIFEST, MAX_MANIFEST_BYTES, links=False)

    def _publish(self, manifest: Manifest, text: bytes) -> None:
        """Copy what is staged for a manifest into the directory, then the manifest."""
        named = set(manifest.paths)
        for name in named.intersection(self.journal.staged()):
            make_folder((self.path / name).parent)
            write_file(self.path / name, self.journal.read(name))
            self.journal.published(name)
        write_file(self.path / MANIFEST, text)
        self.discard_uncommitted(named)

    def _finish_interrupted(self) -> None:
        """Publish what was sealed, if nobody else has written since."""
        pending = self.journal.pending()
        if pending is None or self._hash() != pending[0]:
            return
        manifest = Manifest.from_bytes(pending[1], self.path / MANIFEST)
        there = {name for name in manifest.paths if (self.path / name).is_file()}
        if there.union(self.journal.staged()) >= set(manifest.paths):
            self._publish(manifest, pending[1])

    @property
    def is_last_sealed(self) -> bool:
        """Whether the manifest is the last that the journal knows, and no older or other copy."""
        pending = self.journal.pending()
        return pending is not None and self.exists and self._text() == pending[1]

    def finish_interrupted(self) -> None:
        """Finish a write that was interrupted, or its clean-up, if the journal knows of one."""
        if self.journal.exists and (self.path / ".lock").exists():
            with self.writing(new=False):
                pass

    def discard_uncommitted(self, named: Collection[str]) -> None:
        """Delete, unread and durably, the segments and denoisers that are not named."""
        kept = {self.path / path for path in named}
        found = [e for e in self._entries() if _NUMBERED_FILE.fullmatch(e.name) and e not in kept]
        for entry in found:
            entry.unlink()
        for folder in {entry.parent for entry in found}:
            sync_folder(folder)


@dataclass(frozen=True)
class Checkpoint:
    """Where an index was last written or read, which state of it, and what of it still stands.

    Attributes
    ----------
    directory : IndexDirectory
    digest : str
        Of the manifest.
    rows, removals : int
        Length and removals of the store then: while no more are removed, its first rows stand.
    denoiser : Denoiser, optional
    """

    directory: IndexDirectory
    digest: str
    rows: int
    removals: int
    denoiser: Denoiser | None


def write_index(
    path: Path,
    settings: Settings,
    store: CodeStore,
    denoiser: Denoiser | None,
    last: Checkpoint | None,
    sealed: Callable[[Checkpoint], object],
) -> None:
    """Write an index, or bring the directory up to date that it was ``last`` written or read in.

    ``sealed`` is called with the new checkpoint when the rest can only be delayed.

    Raises
    ------
    InputError
        If the directory belongs to something else, was changed since, or cannot be written.
    """
    directory = IndexDirectory(path)
    if last is not None and last.directory.path != directory.path:
        last = None
    if last is not None:
        directory = last.directory  # it may be held
    with directory.writing(new=last is None):
        start = 0
        if last is None:
            manifest = directory.start(settings)
        else:
            manifest = directory.manifest()
            if manifest.digest != last.digest:
                raise InputError(
                    f"{directory.path} was changed since this index was opened; open it again and "
                    f"repeat the change; add_codes takes over codes that are new here, and spends "
                    f"nothing."
                )
            if last.removals == store.removals:
                start = last.rows
            else:  # rows were removed: everything that is left is written anew
                manifest = replace(manifest, segments={})
        step = rows_per_segment(settings.spec)
        for row in range(start, len(store), step):
            rows = slice(row, row + step)
            segment = store.take(rows), store.ids_of(rows), store.payload.take(rows)
            manifest = directory.write_segment(manifest, *segment)
        if denoiser is not None and (last is None or denoiser is not last.denoiser):
            manifest = directory.write_denoiser(manifest, denoiser)
        sample = store.take(rows_to_sample(len(store), settings.spec.code_length))
        seen = visibility(sample, settings.spec, len(store)) if len(store) else None
        manifest = replace(manifest, state="complete", input=None, visibility=seen)
        saved = manifest.digest, len(store), store.removals, denoiser
        checkpoint = Checkpoint(directory, *saved)
        directory.commit(manifest, lambda: sealed(checkpoint))


def _finished(directory: IndexDirectory) -> Manifest:
    """The manifest of a finished index; InputError if it is not one."""
    with suppress(InputError):  # who may not write can read what is there
        directory.finish_interrupted()
    manifest = directory.manifest()
    if manifest.state != "complete":
        raise InputError(
            f"{directory.path} holds an unfinished build; run the same build again to end it."
        )
    return manifest


@dataclass(frozen=True)
class Summary:
    """What a saved index is, without its codes and ids.

    Attributes
    ----------
    settings : Settings
    count : int
        Rows.
    bytes : int
        Of all files.
    payload : dict of str to str
        Type of each payload column by its name, in Arrow's words.
    denoiser : Denoiser, optional
    visibility : Visibility, optional
        What noise leaves of the best case of a search; absent in older indexes and empty ones.
    """

    settings: Settings
    count: int
    bytes: int
    payload: dict[str, str]
    denoiser: Denoiser | None
    visibility: Visibility | None

    @property
    def noise_warning(self) -> str | None:
        """One sentence where noise leaves little of a search; None for denoised codes."""
        if self.visibility is None or self.denoiser is not None:
            return None
        for share, whose in zip(self.visibility, ("", " of private queries"), strict=True):
            if share < _VISIBLE:
                return (
                    f"expect no neighbours{whose} at this setting: the noise is so large that of "
                    f"ten exact copies of a query {10 * share:.1f} would be among its ten nearest; "
                    f"see what `dpindex plan` recommends."
                )
        return None

    def to_dict(self) -> dict[str, Any]:
        """What it holds, how it is searched and what it promises, as plain JSON values."""
        spec, denoiser = self.settings.spec, self.denoiser
        return {
            "count": self.count,
            "bytes": self.bytes,
            "code_length": spec.code_length,
            "metric": self.settings.metric,
            "index_type": self.settings.index_type,
            "payload": self.payload,
            "denoiser": denoiser
            and {"kind": denoiser.kind, "rows": denoiser.rows, "error": denoiser.error},
            "query_epsilon": self.settings.query_spec.epsilon,
            "visibility": self.visibility and self.visibility._asdict(),
            "spec": spec.to_dict(),
            **spec.guarantee.statement(spec.dim),
        }


def summarize(path: str | os.PathLike[str]) -> Summary:
    """What a saved index is, from its manifest; the codes are not read, only their sizes checked.

    Raises
    ------
    InputError
        If the directory is not an index, is unfinished, or lacks a file or a part of one.

    >>> import tempfile
    >>> from dpindex import PrivateIndex
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     index = PrivateIndex(Spec("dp-oporp-staircase", dim=8, k=4, epsilon=2.0))
    ...     index.save(Path(folder) / "index")
    ...     summarize(Path(folder) / "index").to_dict()["guarantee"]["epsilon"]
    2.0
    """
    directory = IndexDirectory(Path(path))
    manifest = _finished(directory)
    directory.check_sizes(manifest)
    return Summary(
        settings=directory.settings(manifest),
        count=manifest.count,
        bytes=sum(file.stat().st_size for file in directory.path.rglob("*") if file.is_file()),
        payload=directory.payload_columns(manifest),
        denoiser=directory.denoiser(manifest),
        visibility=manifest.visibility,
    )


def read_index(
    directory: IndexDirectory,
) -> tuple[Settings, Iterator[Segment], Checkpoint]:
    """Settings, segments (each verified as it is read) and checkpoint of a finished index.

    Raises
    ------
    InputError
        If the directory is not an index, is unfinished, or was damaged or changed.
    """
    manifest = _finished(directory)
    segments = directory.segments(manifest)
    # The first is read before anything is made of the spec: what a manifest says costs nothing yet.
    first = list(islice(segments, 1))
    denoiser = directory.denoiser(manifest)
    last = Checkpoint(directory, manifest.digest, manifest.count, 0, denoiser)
    return directory.settings(manifest), chain(first, segments), last
