"""The format of an index: its settings, its files, and the manifest that says which files count.

An index holds ``manifest.json``, ``segments/NNNNNN.codes``, ``ids/NNNNNN.ids``, for segments with a
payload ``payload/NNNNNN.arrows``, for a codebook ``codebook/NNNNNN.vectors``, for a design
``design/NNNNNN.matrix`` and, where they were learned, ``denoiser/NNNNNN.model`` and
``calibration/NNNNNN.table``. The manifest states size and SHA-256 of every other file. No raw
vector, norm, noise or secret is ever written.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from dpindex.base.errors import DamagedError, InputError
from dpindex.base.files import Buffer
from dpindex.decode import decoder_of
from dpindex.decode.base import Metric
from dpindex.decode.fit import DenoiserKind
from dpindex.mechanism.spec import Spec
from dpindex.version import __version__

MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 1 << 24
MAX_NEW_SEGMENTS = MAX_MANIFEST_BYTES // 512
"""Segments of a new index: each takes at most 420 bytes of the manifest, with three files."""

NUMBERED_FILE = re.compile(r"[0-9]{6,}\.(codes|ids|arrows|model|vectors|matrix|table)(\.tmp)?")

_PATHS = {
    "codes": "segments/{}.codes",
    "ids": "ids/{}.ids",
    "payload": "payload/{}.arrows",
    "denoiser": "denoiser/{}.model",
    "codebook": "codebook/{}.vectors",
    "design": "design/{}.matrix",
    "calibration": "calibration/{}.table",
}
FOLDERS = [os.path.dirname(path) for path in _PATHS.values()]

LEARNED = {"denoiser", "calibration"}
"""Kinds of which an index has at most one file, learned from its codes."""

_FORMAT = 2
_NUMBER = re.compile(r"[0-9]{6,18}")
MAX_FILE_BYTES = 1 << 33
"""Bytes of any file of an index."""
_FIELDS = ("next_number", "segments", "crowding")


EXACT = "f32"
"""The index type of an exact search, which every kind of code has."""

_ALIASES = {"f32": "Flat", "f16": "SQfp16", "int8": "SQ8"}
_GRAMMAR = re.compile(
    r"(?:ROT(?P<rotation>\d{1,5}),)?"
    r"(?P<factory>"
    r"HNSW(?P<links>\d{1,3})(?:,SQ8)?"
    r"|(?:OPQ(?P<opq>\d{1,4}),)?(?:IVF(?P<lists>\d{1,6}),)?"
    r"(?:Flat|SQ4|SQ6|SQ8|SQfp16|RaBitQ[2-8]|PQ(?P<parts>\d{1,4})(?:x(?:4fs|4|8))?)"
    r")",
    re.ASCII,
)
_MAX_LISTS = 1 << 17


@dataclass(frozen=True)
class IndexType:
    """An index type, taken apart.

    Attributes
    ----------
    factory : str
        The factory string that Faiss gets.
    rotation : int, optional
        Leading directions that are kept.
    lists : int
        Lists of an inverted file, 0 without one.
    links : int
        Links of a node of an HNSW graph, 0 without one.
    """

    factory: str
    rotation: int | None
    lists: int
    links: int

    @property
    def exact(self) -> bool:
        """True if a search always finds the true neighbours."""
        return self.factory == "Flat" and self.rotation is None

    @property
    def min_rows(self) -> int:
        """Vectors that training needs: one for each centroid."""
        least = 1
        if "PQ" in self.factory:
            least = 256
        return max(self.lists, least)

    def check_count(self, count: int) -> None:
        """Refuse vectors that are too few to train it on."""
        least = self.min_rows
        if count < least:
            raise InputError(
                f"index_type {self.factory!r} is trained on the vectors and needs at least {least} "
                f"of them, not {count}; take fewer lists or parts, or f32.",
                field="index_type",
            )

    @property
    def efforts(self) -> tuple[int, int]:
        """Least and greatest number of lists, or of a graph's nodes, that a search visits."""
        if self.links:
            return 16, 1024
        return 1, max(1, self.lists)


def parse_index_type(index_type: Any, width: int) -> IndexType:
    """Return the parts of an index type for vectors of length ``width``.

    Raises
    ------
    InputError
        For anything but f32 (Flat), f16 (SQfp16), int8 (SQ8), ``[ROTd,]HNSWm[,SQ8]`` and
        ``[ROTd,][OPQm,][IVFn,]X``, where X is Flat, SQ4, SQ6, SQ8, SQfp16, RaBitQb, PQm, PQmx8,
        PQmx4 or PQmx4fs, and for a length that does not divide.

    >>> parse_index_type("ROT64,SQ4", 256)
    IndexType(factory='SQ4', rotation=64, lists=0, links=0)
    >>> parse_index_type("f32", 256) == parse_index_type("Flat", 256)
    True
    """
    text = index_type if isinstance(index_type, str) else ""
    match = _GRAMMAR.fullmatch(_ALIASES.get(text, text))
    if match is None:
        raise InputError(
            f"index_type must be one of f32, f16, int8, or a Faiss factory string such as SQ8, "
            f"PQ32x8, ROT64,SQ4, IVF1024,PQ32x4fs or HNSW32, not {index_type!r}.",
            field="index_type",
        )
    numbers = {}
    for name, digits in match.groupdict("").items():
        if digits.isdigit():
            numbers[name] = int(digits)
    kept = numbers.get("rotation", width)
    wrong = ""
    for parts in (numbers.get("opq", 1), numbers.get("parts", 1)):
        if parts < 1 or kept % parts:
            wrong = f"cannot cut {kept} numbers into {parts} equal parts; take a divisor"
    if not 1 <= kept <= width:
        wrong = f"rotates to {kept} of {width} directions"
    if not 1 <= numbers.get("lists", 1) <= _MAX_LISTS:
        wrong = f"has {numbers['lists']} lists; 1 to {_MAX_LISTS} are possible"
    if not 2 <= numbers.get("links", 2) <= 256:
        wrong = f"has {numbers['links']} links a node; 2 to 256 are possible"
    if wrong:
        raise InputError(f"index_type {index_type!r} {wrong}.", field="index_type")
    return IndexType(
        match["factory"],
        rotation=numbers.get("rotation"),
        lists=numbers.get("lists", 0),
        links=numbers.get("links", 0),
    )


@runtime_checkable
class Planned(Protocol):
    """The choice of a plan: what :func:`dpindex.plan` returns has these attributes."""

    @property
    def spec(self) -> Spec: ...

    @property
    def metric(self) -> Metric: ...

    @property
    def denoiser(self) -> DenoiserKind | None: ...

    @property
    def choice(self) -> str: ...


@dataclass(frozen=True)
class Settings:
    """Settings of an index: everything but its rows.

    Parameters
    ----------
    spec : Spec
        The public description of the mechanism.
    metric : "cosine", "ip" or "l2"
        What neighbours are ranked by.
    index_type : str
        How vectors are kept and searched: see :func:`parse_index_type`.
    query_epsilon : float, optional
        Budget of a private query; default the spec's epsilon.

    Raises
    ------
    InputError
        For a metric or an index type that the method's codes do not have, and a wrong query
        epsilon.
    """

    spec: Spec
    metric: Metric = "cosine"
    index_type: str = EXACT
    query_epsilon: float | None = None

    def __post_init__(self) -> None:
        row = self.spec.method_row
        metrics = row.calibration.format.metrics
        if self.metric not in metrics:
            raise InputError(
                f"metric must be one of {', '.join(metrics)}, not {self.metric!r}: {row.name} "
                f"keeps {row.codes}."
            )
        self.structure()  # refuses what the codes cannot have
        if self.query_epsilon is not None:
            object.__setattr__(self, "query_epsilon", self.query_spec.epsilon)

    @classmethod
    def of(
        cls,
        spec: Spec | Planned,
        metric: Metric | None,
        index_type: str,
        query_epsilon: float | None,
    ) -> Settings:
        """Return the settings of a spec, or of a plan, whose metric is the default."""
        if isinstance(spec, Planned):
            metric = metric or spec.metric
            spec = spec.spec
        if not isinstance(spec, Spec):
            raise InputError(
                f"a new index needs a Spec or a plan, not {type(spec).__name__}; "
                f"dpindex.open(path) opens one that was saved.",
                field="spec",
            )
        return cls(spec, metric or "cosine", index_type, query_epsilon)

    def structure(self) -> IndexType:
        """Return the index type, taken apart; InputError for one that the codes cannot have."""
        decoder = decoder_of(self.spec)
        if decoder.exact_only and self.index_type != EXACT:
            raise InputError(
                f"index_type {self.index_type!r} is for vectors of numbers; signs and symbols are "
                f"searched exactly as they are: leave it out.",
                field="index_type",
            )
        return parse_index_type(self.index_type, decoder.width)

    @property
    def query_spec(self) -> Spec:
        """The spec of private queries."""
        if self.query_epsilon is None:
            return self.spec
        try:
            return self.spec.with_epsilon(self.query_epsilon)
        except InputError as error:
            error.field = "query_epsilon"
            raise

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON values."""
        return {**vars(self), "spec": self.spec.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Settings:
        """Return the inverse of :meth:`to_dict`, other keys aside; InputError or KeyError."""
        names = [setting.name for setting in fields(cls)]
        values = {name: data[name] for name in names}
        values["spec"] = Spec.from_dict(data["spec"])
        return cls(**values)


def file_path(kind: str, number: str) -> str:
    """Return where the file of that kind and number lies in an index.

    >>> file_path("codes", "000007")
    'segments/000007.codes'
    """
    return _PATHS[kind].format(number)


def segment_number(number: int) -> str:
    """Return a number as six digits, or more."""
    return f"{number:06d}"


def too_many_segments(count: int) -> InputError:
    """Return the refusal of more segments than a manifest holds."""
    return InputError(
        f"{count} segments are too many for one manifest; use larger parts, build several indexes, "
        f"or save the index to a new directory."
    )


@dataclass(frozen=True)
class FileMark:
    """Size and hash by which a file is recognised."""

    bytes: int
    sha256: str

    def __post_init__(self) -> None:
        if type(self.bytes) is not int or not 0 <= self.bytes <= MAX_FILE_BYTES:
            raise ValueError("size")

    @classmethod
    def of(cls, data: Buffer) -> FileMark:
        """Return the mark of a file with this content."""
        digest = hashlib.sha256(data)
        return cls(len(data), digest.hexdigest())


def put_files(
    put: Callable[[str, bytes], bool],
    files: Mapping[str, bytes],
) -> dict[str, FileMark]:
    """Create files by a function that tells if a file holds these bytes then; return their marks.

    Raises
    ------
    DamagedError
        If other bytes lie under one of these names.
    """
    marks = {}
    for path, data in files.items():
        if not put(path, data):
            raise DamagedError(f"the staged {path} is not of this release; it was changed.")
        marks[path] = FileMark.of(data)
    return marks


@dataclass(frozen=True)
class Manifest:
    """The table of contents; the only mutable thing in an index, replaced whole.

    Attributes
    ----------
    settings : Settings
    next_number : int
        Segments, denoisers and codebooks are numbered, and no number is used twice.
    segments : mapping from a number, as six digits or more, to int
        The segments by number, in row order, and their rows.
    single : mapping from str to str
        Numbers of the denoiser and of the calibration that were learned from the segments, and of
        the spec's codebook or design, each under its kind if there is one.
    files : mapping from path to FileMark
        Of every file that belongs to the index, and perhaps of some that did.
    crowding : float, optional
        Of two or more symbols: how many times as unevenly they fall on codewords as those of
        public vectors would, [0, ∞): :func:`dpindex.decode.symbols.crowding`.
    """

    settings: Settings
    next_number: int = 0
    segments: Mapping[str, int] = field(default_factory=dict)
    single: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, FileMark] = field(default_factory=dict)
    crowding: float | None = None

    @property
    def paths(self) -> list[str]:
        """Every file that belongs to the index."""
        paths = [file_path(kind, number) for kind, number in self.single.items()]
        for number in self.segments:
            paths.append(file_path("codes", number))
            paths.append(file_path("ids", number))
            payload = file_path("payload", number)
            if payload in self.files:
                paths.append(payload)
        return paths

    @property
    def count(self) -> int:
        """Rows of all segments."""
        return sum(self.segments.values())

    @cached_property
    def text(self) -> bytes:
        """The text of ``manifest.json``, as it was read; InputError if it would be too long."""
        data = {
            "format": _FORMAT,
            "library": __version__,
            "guarantee": self.settings.spec.guarantee.to_dict(),
            "count": self.count,
            "files": {path: vars(self.files[path]) for path in self.paths},
            "denoiser": None,
            "codebook": None,
            **self.single,
            **{name: getattr(self, name) for name in _FIELDS},
            **self.settings.to_dict(),
        }
        text = _sealed(data)
        if len(text) > MAX_MANIFEST_BYTES:
            raise too_many_segments(len(self.segments))
        return text

    @classmethod
    def from_dict(cls, data: Any) -> Manifest:
        """Return the manifest of a :attr:`text`, from parsed JSON without its checksum.

        Raises
        ------
        ValueError, KeyError, TypeError or AttributeError
            For anything else. An InputError is a ValueError.
        """
        stated = data["files"]
        files = {path: FileMark(**mark) for path, mark in stated.items()}
        manifest = cls(
            settings=Settings.from_dict(data),
            files=files,
            single={kind: data[kind] for kind in _PATHS if data.get(kind) is not None},
            **{name: data[name] for name in _FIELDS},
        )
        if not (
            data["guarantee"] == manifest.settings.spec.guarantee.to_dict()
            and data["count"] == manifest.count
            and set(files) == set(manifest.paths)
            and manifest._is_consistent()
        ):
            raise DamagedError("it contradicts itself.")
        return manifest

    def _is_consistent(self) -> bool:
        numbers = [*self.segments, *self.single.values()]
        counts = self.segments.values()
        uneven = self.crowding
        public = self.settings.spec.public
        return (
            all(type(count) is int and count > 0 for count in counts)
            and all(_NUMBER.fullmatch(number) for number in numbers)
            and len(set(numbers)) == len(numbers)
            and type(self.next_number) is int
            and all(int(number) < self.next_number for number in numbers)
            and self.single.keys() - LEARNED == ({public.kind} if public else set())
            and (uneven is None or (isinstance(uneven, float) and 0 <= uneven < math.inf))
        )

    @property
    def digest(self) -> str:
        """SHA-256 of the manifest: names one state of the index."""
        return hashlib.sha256(self.text).hexdigest()

    @classmethod
    def from_bytes(cls, text: bytes, place: Path | str) -> Manifest:
        """Parse and check a manifest; InputError names ``place``."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            raise DamagedError(f"{place} is not a manifest: it is not valid JSON.") from None
        if not isinstance(data, dict) or data.get("format") != _FORMAT:
            raise DamagedError(f"{place} is not a manifest of format {_FORMAT}.")
        data.pop("checksum", None)
        if _sealed(data) != text:
            raise DamagedError(f"{place} is damaged: its checksum does not match.")
        try:
            manifest = cls.from_dict(data)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            detail = "a field is missing or wrong."
            if isinstance(error, InputError):
                detail = str(error)
            raise DamagedError(f"{place} is damaged: {detail}") from None
        vars(manifest)["text"] = text
        return manifest


def _sealed(data: dict[str, Any]) -> bytes:
    """Return the canonical text with a checksum of itself: no changed byte goes unnoticed."""
    content = json.dumps(data, sort_keys=True)
    checksum = hashlib.sha256(content.encode()).hexdigest()
    text = json.dumps({**data, "checksum": checksum}, indent=1, sort_keys=True)
    return text.encode()
