"""The index on disk: immutable segments, and a manifest that alone says which of them count.

A directory holds ``manifest.json``, ``segments/NNNNNN.codes``, ``ids/NNNNNN.ids`` and, where one
was learned, ``denoiser/NNNNNN.model``. A file belongs to the index only once a manifest that names
it has been renamed into place; whatever the manifest does not name is discarded unread. Reading
checks sizes and SHA-256 hashes before any parser sees a byte. No raw vector, norm, noise or secret
is ever written.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from dpindex.arrays import AnyArray
from dpindex.codes import Codes, codes_from_bytes
from dpindex.errors import InputError
from dpindex.estimators.denoise import Denoiser, denoiser_from_bytes, denoiser_to_bytes
from dpindex.estimators.float_codes import METRICS
from dpindex.estimators.similarity import Metric
from dpindex.files import holding_lock, read_file, write_file
from dpindex.format1 import manifest_from_1
from dpindex.index.code_store import CodeStore, ids_from_bytes, ids_to_bytes
from dpindex.index.ranking import new_ranking
from dpindex.index.search_backend import EXACT
from dpindex.spec import Spec
from dpindex.version import __version__

_FORMAT = 2
_MANIFEST = "manifest.json"
_CODES, _IDS, _MODEL = "segments/{}.codes", "ids/{}.ids", "denoiser/{}.model"
_FOLDERS = ("segments", "ids", "denoiser")
_NUMBER = re.compile(r"[0-9]{6}")
_NUMBERED_FILE = re.compile(r"[0-9]{6}\.(codes|ids|model)(\.tmp)?")
_STATED = ("state", "next_number", "segments", "denoiser", "input")
_MAX_FILE_BYTES = 1 << 33
_MAX_MANIFEST_BYTES = 1 << 24
_SEGMENT_BYTES = 1 << 25
_SEGMENT_ROWS = 65536


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


def rows_per_segment(spec: Spec) -> int:
    """Rows whose codes fill a segment: few enough for memory, and for one file to be read whole."""
    return max(1, min(_SEGMENT_ROWS, _SEGMENT_BYTES // spec.format.max_row_bytes))


@dataclass(frozen=True)
class FileMark:
    """Size and hash by which a file is recognised."""

    bytes: int
    sha256: str

    def __post_init__(self) -> None:
        if type(self.bytes) is not int or not 0 <= self.bytes <= _MAX_FILE_BYTES:
            raise ValueError("size")


def _mark(data: bytes) -> FileMark:
    return FileMark(len(data), hashlib.sha256(data).hexdigest())


@dataclass(frozen=True)
class Manifest:
    """The table of contents; the only mutable thing in an index directory, replaced whole.

    Attributes
    ----------
    settings : Settings
    state : "building" or "complete"
    next_number : int
        Segments and denoisers are numbered, and no number is used twice.
    segments : mapping from six digits to int
        The segments by number, in row order, and their rows.
    denoiser : str, optional
        Number of the denoiser that was learned from the segments.
    files : mapping from path to FileMark
        Of every file that belongs to the index, and perhaps of some that did.
    input : mapping, optional
        While the index is being built: what tells its input from another, as plain JSON values.
    """

    settings: Settings
    state: str = "building"
    next_number: int = 0
    segments: Mapping[str, int] = field(default_factory=dict)
    denoiser: str | None = None
    files: Mapping[str, FileMark] = field(default_factory=dict)
    input: Mapping[str, Any] | None = None

    @property
    def paths(self) -> list[str]:
        """Every file that belongs to the index."""
        paths = [path.format(number) for number in self.segments for path in (_CODES, _IDS)]
        return paths if self.denoiser is None else [*paths, _MODEL.format(self.denoiser)]

    @property
    def count(self) -> int:
        """Rows of all segments."""
        return sum(self.segments.values())

    def to_bytes(self) -> bytes:
        """The text of ``manifest.json``."""
        data = {
            "format": _FORMAT,
            "library": __version__,
            "guarantee": self.settings.spec.guarantee.to_dict(),
            "count": self.count,
            "files": {path: asdict(self.files[path]) for path in self.paths},
            **{name: getattr(self, name) for name in _STATED},
            **self.settings.to_dict(),
        }
        return _sealed(data)

    @classmethod
    def from_dict(cls, data: Any) -> Manifest:
        """The inverse of :meth:`to_bytes`, from parsed JSON without its checksum; ValueError (as
        InputError is), KeyError, TypeError or AttributeError for anything else.
        """
        files = {path: FileMark(**mark) for path, mark in data["files"].items()}
        stated = {name: data[name] for name in _STATED}
        manifest = cls(settings=Settings.from_dict(data), files=files, **stated)
        last = [] if manifest.denoiser is None else [manifest.denoiser]
        numbers, counts = [*manifest.segments, *last], manifest.segments.values()
        if not (
            manifest.state in ("building", "complete")
            and (manifest.input is None or isinstance(manifest.input, dict))
            and data["guarantee"] == manifest.settings.spec.guarantee.to_dict()
            and all(type(count) is int and count > 0 for count in counts)
            and data["count"] == manifest.count
            and all(_NUMBER.fullmatch(number) for number in numbers)
            and len(set(numbers)) == len(numbers)
            and type(manifest.next_number) is int
            and all(int(number) < manifest.next_number for number in numbers)
            and set(files) == set(manifest.paths)
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
    """Reads and writes an index directory; every change is committed by one rename."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()

    @property
    def exists(self) -> bool:
        """Whether there is a manifest."""
        return (self.path / _MANIFEST).is_file()

    def manifest(self) -> Manifest:
        """The committed manifest."""
        if not self.exists:
            raise InputError(f"{self.path} is not a dpindex index: it has no {_MANIFEST}.")
        text = read_file(self.path / _MANIFEST, _MAX_MANIFEST_BYTES, links=False)
        return Manifest.from_bytes(text, self.path / _MANIFEST)

    def segments(self, manifest: Manifest) -> Iterator[tuple[Codes, AnyArray]]:
        """Codes and ids of every segment, verified against the manifest first."""
        fingerprint = manifest.settings.spec.fingerprint
        for number, count in manifest.segments.items():
            path = _CODES.format(number)
            codes = codes_from_bytes(self._verified(manifest, path))
            ids = ids_from_bytes(self._verified(manifest, _IDS.format(number)))
            if codes.fingerprint != fingerprint:
                raise InputError(f"{self.path / path} was made under another spec.")
            if not len(codes) == len(ids) == count:
                raise InputError(f"{self.path / path} does not have the rows it should.")
            yield codes, ids

    def denoiser(self, manifest: Manifest) -> Denoiser | None:
        """The denoiser, verified against the manifest; None if there is none."""
        if manifest.denoiser is None:
            return None
        data = self._verified(manifest, _MODEL.format(manifest.denoiser))
        return denoiser_from_bytes(data, manifest.settings.spec)

    def _verified(self, manifest: Manifest, path: str) -> bytes:
        mark = manifest.files[path]
        data = read_file(self.path / path, mark.bytes, links=False)
        if len(data) != mark.bytes:
            raise InputError(f"{self.path / path} is cut off; restore it from a copy.")
        if _mark(data) != mark:
            raise InputError(f"{self.path / path} was changed or damaged; restore it from a copy.")
        return data

    @contextmanager
    def writing(self, *, new: bool) -> Iterator[None]:
        """Hold the directory for writing; a ``new`` one must be absent or empty.

        What is left of a first save or build that died before its manifest counts as empty.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with holding_lock(self.path / ".lock", str(self.path)):
                if new and (self.path / _MANIFEST).exists():
                    raise InputError(
                        f"{self.path} already holds an index; open it to add to it, or choose "
                        f"another directory."
                    )
                if new and not self._is_blank():
                    raise InputError(f"{self.path} is not empty; choose another directory.")
                for folder in _FOLDERS:
                    if (self.path / folder).is_symlink():
                        raise InputError(f"{self.path / folder} is a symbolic link, not a folder.")
                yield
        except OSError as error:
            detail = error.strerror or error
            raise InputError(f"{self.path} cannot be written: {detail}.") from error

    def _is_blank(self) -> bool:
        """Whether nothing is here but, perhaps, leftovers of our own that no manifest names."""
        known = {".lock", f"{_MANIFEST}.tmp", *_FOLDERS}
        found = {entry.name for entry in self.path.iterdir()}
        return found <= known and all(_NUMBERED_FILE.fullmatch(e.name) for e in self._entries())

    def _entries(self) -> list[Path]:
        """What lies in the folders of an index."""
        folders = [self.path / name for name in _FOLDERS if (self.path / name).is_dir()]
        return [entry for folder in folders for entry in folder.iterdir()]

    def write_segment(self, manifest: Manifest, codes: Codes, ids: AnyArray) -> Manifest:
        """Write a segment and return the manifest that names it, which is not yet committed."""
        data = {_CODES: codes.to_bytes(), _IDS: ids_to_bytes(ids)}
        number, manifest = self._numbered(manifest, data)
        return replace(manifest, segments={**manifest.segments, number: len(codes)})

    def write_denoiser(self, manifest: Manifest, denoiser: Denoiser) -> Manifest:
        """Write a denoiser and return the manifest that names it, which is not yet committed."""
        number, manifest = self._numbered(manifest, {_MODEL: denoiser_to_bytes(denoiser)})
        return replace(manifest, denoiser=number)

    def _numbered(self, manifest: Manifest, data: Mapping[str, bytes]) -> tuple[str, Manifest]:
        """Write files under the next number; that, and the manifest that knows them."""
        number, files = f"{manifest.next_number:06d}", dict(manifest.files)
        if not _NUMBER.fullmatch(number):
            raise InputError(f"{self.path} has had a million segments; save to a new directory.")
        for pattern, content in data.items():
            path = self.path / pattern.format(number)
            path.parent.mkdir(exist_ok=True)
            write_file(path, content)
            files[pattern.format(number)] = _mark(content)
        return number, replace(manifest, next_number=manifest.next_number + 1, files=files)

    def commit(self, manifest: Manifest) -> Manifest:
        """Make the manifest the truth, durably, in one rename."""
        text = manifest.to_bytes()
        if len(text) > _MAX_MANIFEST_BYTES:
            raise InputError(
                f"{self.path} has {len(manifest.segments)} segments, too many for one manifest; "
                f"save the index to a new directory."
            )
        write_file(self.path / _MANIFEST, text)
        return manifest

    def discard_uncommitted(self, manifest: Manifest) -> None:
        """Delete, unread, the segments that the manifest does not name."""
        named = {self.path / path for path in manifest.paths}
        for entry in self._entries():
            if _NUMBERED_FILE.fullmatch(entry.name) and entry not in named:
                entry.unlink()


@dataclass(frozen=True)
class Checkpoint:
    """Where an index was last written or read, which state of it, and what of it still stands.

    Attributes
    ----------
    path : Path
    digest : str
        Of the manifest.
    rows, removals : int
        Length and removals of the store then: while no more are removed, its first rows stand.
    denoiser : Denoiser, optional
    """

    path: Path
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
) -> Checkpoint:
    """Write an index, or bring the directory up to date that it was ``last`` written or read in.

    Raises
    ------
    InputError
        If the directory belongs to something else, was changed since, or cannot be written.
    """
    directory = IndexDirectory(path)
    if last is not None and last.path != directory.path:
        last = None
    with directory.writing(new=last is None):
        start, manifest = 0, Manifest(settings)
        if last is None:
            directory.discard_uncommitted(manifest)
        else:
            manifest = directory.manifest()
            if manifest.digest != last.digest:
                raise InputError(f"{directory.path} was changed since this index was opened.")
            if last.removals == store.removals:
                start = last.rows
            else:  # rows were removed: everything that is left is written anew
                manifest = replace(manifest, segments={})
        step = rows_per_segment(settings.spec)
        for row in range(start, len(store), step):
            rows = slice(row, row + step)
            manifest = directory.write_segment(manifest, store.take(rows), store.ids[rows])
        if denoiser is not None and (last is None or denoiser is not last.denoiser):
            manifest = directory.write_denoiser(manifest, denoiser)
        manifest = directory.commit(replace(manifest, state="complete"))
        directory.discard_uncommitted(manifest)
    return Checkpoint(directory.path, manifest.digest, len(store), store.removals, denoiser)


def read_index(path: Path) -> tuple[Settings, Iterator[tuple[Codes, AnyArray]], Checkpoint]:
    """Settings, segments (each verified as it is read) and checkpoint of a finished index.

    Raises
    ------
    InputError
        If the directory is not an index, is unfinished, or was damaged or changed.
    """
    directory = IndexDirectory(path)
    manifest = directory.manifest()
    if manifest.state != "complete":
        raise InputError(
            f"{directory.path} holds an unfinished build; run the same build again to end it."
        )
    segments = directory.segments(manifest)
    # The first is read before anything is made of the spec: what a manifest says costs nothing yet.
    first = list(islice(segments, 1))
    denoiser = directory.denoiser(manifest)
    last = Checkpoint(directory.path, manifest.digest, manifest.count, 0, denoiser)
    return manifest.settings, chain(first, segments), last
