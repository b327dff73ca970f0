"""Public parts of a spec: codebooks and designs, made of public vectors and named by a digest."""

from __future__ import annotations

import hashlib
import math
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import nullcontext
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from dpindex.base.arrays import (
    AnyArray,
    Doubles,
    Floats,
    Ints,
    Singles,
    in_units_of_largest,
    issparse,
    of_norm_1,
    spaced,
    unit,
)
from dpindex.base.checks import finite_number, whole_number
from dpindex.base.errors import DamagedError, InputError, NoGuaranteeError
from dpindex.base.files import AnyPath, checked_array, pack, parse_file, unpack, write_file
from dpindex.base.tables import real_matrix
from dpindex.data import Ranges, as_source, dense_rows, open_vectors
from dpindex.mechanism.grid import Windows
from dpindex.mechanism.guide import Guide

_MAX_PART_BYTES = 1 << 30
_DIGEST = re.compile(r"[0-9a-f]{64}")
_DIM = (1, (1 << 31) - 1)


_Part = TypeVar("_Part", bound="PublicPart")


class PublicPart(ABC):
    """What a method needs beside numbers: made of public vectors, and kept in the index.

    Two are equal if their digests are. A spec read from JSON names its part by shape and digest
    only (:meth:`named`) until it is given.

    Attributes
    ----------
    dim : int
        Attributes of a vector.
    digest : str
        SHA-256 of what it holds, in hexadecimal digits.
    """

    kind: ClassVar[str]
    """Its name in specs, files and options."""

    shape: ClassVar[dict[str, tuple[int, int]]]
    """The whole numbers that a spec states beside the digest, and their limits."""

    dim: int
    digest: str
    holds: ClassVar[str]
    """Name of one of the public vectors that it reveals, for messages."""

    _only_named = False

    @classmethod
    def read(cls: type[_Part], path: AnyPath) -> _Part:
        """Return the one in a file; InputError or NoGuaranteeError if it holds none that is sound.

        Parameters
        ----------
        path : str or path
        """
        return parse_file(path, _MAX_PART_BYTES, cls.from_bytes)

    @classmethod
    @abstractmethod
    def from_bytes(cls: type[_Part], data: bytes) -> _Part:
        """Return the one of :meth:`to_bytes`; no size and no claim is trusted.

        Parameters
        ----------
        data : bytes

        Raises
        ------
        InputError
            For anything else, and NoGuaranteeError for a design with a column that is too heavy.
        """

    @abstractmethod
    def to_bytes(self) -> bytes:
        """Return it in the common container; InputError if it is only named."""

    @property
    @abstractmethod
    def contents(self) -> str:
        """What it is, in words."""

    @property
    @abstractmethod
    def known(self) -> Singles:
        """Directions of single public vectors that it reveals, float32, shape (n, r)."""

    @abstractmethod
    def directions(self, vectors: Floats) -> Singles:
        """Return directions of vectors that equal those of :attr:`known` where vectors do.

        Parameters
        ----------
        vectors : array, shape (n, dim)
            As they are compared with it, after ranges and scale.
        """

    def require(self) -> None:
        """Raise InputError if it is only named."""
        if self._only_named:
            raise InputError(
                f"the {self.kind} {self.digest[:12]}… is not here: give its file, in Python by "
                f"Spec.with_public.",
                field=self.kind,
            )

    @classmethod
    def named(cls: type[_Part], data: Any) -> _Part:
        """Return the one that :meth:`to_dict` described, without what it holds.

        Parameters
        ----------
        data : dict

        Raises
        ------
        InputError
            For anything else.
        """
        facts = data if isinstance(data, dict) else {}
        part = cls.__new__(cls)
        part._only_named = True
        part.digest = str(facts.get("sha256"))
        complete = set(facts) == {"sha256", *cls.shape}
        if not complete or not _DIGEST.fullmatch(part.digest):
            raise InputError(f"{cls.kind} must be {{sha256: …, {': …, '.join(cls.shape)}: …}}.")
        for name, limits in cls.shape.items():
            value = whole_number(facts[name], f"{name} of a {cls.kind}", *limits)
            setattr(part, name, value)
        return part

    def to_dict(self) -> dict[str, Any]:
        """Shape and digest, for JSON."""
        shape = {name: getattr(self, name) for name in self.shape}
        return {"sha256": self.digest, **shape}

    def __reduce__(self) -> Any:
        # What is made of it is made again where it is needed.
        if self._only_named:
            return type(self).named, (self.to_dict(),)
        return type(self).from_bytes, (self.to_bytes(),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.contents}, {self.digest[:12]}>"


MIN_SIZE = 2
MAX_SIZE = 1 << 16
RADIUS = 4095.0
"""Norm of a vector on the integer grid: inner products stay below 2^24 and are exact in float32."""

_STEPS = float(1 << 20)


def on_sphere_grid(vectors: Floats) -> Singles:
    """Directions of vectors as integers of norm about 4095, float32; a zero vector stays zero.

    ``Σ|u_i c_i| ≤ ‖u‖‖c‖ ≤ 2^24`` for two such vectors, so their inner product is exact in float32
    in any order: which codeword is nearest does not depend on the machine or the batch.
    """
    # Whole numbers first: their squares add exactly for up to 8192 attributes, and square root and
    # division are correctly rounded, so the grid is the same on every machine.
    wide = in_units_of_largest(vectors)
    wide *= _STEPS
    np.rint(wide, out=wide)
    squares = np.einsum("ij,ij->i", wide, wide)
    norms = np.sqrt(squares)[:, None]
    wide *= RADIUS
    np.divide(wide, norms, out=wide, where=norms > 0)
    # Towards zero: rounding must not make a vector longer.
    return np.trunc(wide, out=wide).astype(np.float32)


class Codebook(PublicPart):
    """Codewords c_1 … c_K, chosen without looking at the private vectors.

    Two codebooks are equal if their codewords as given are, bit for bit as float32.

    Parameters
    ----------
    vectors : array, shape (K, dim)
        K in [2, 65536]; directions count, lengths do not; no codeword may be zero.
    guide : Guide, optional
        How neighbours spread over cells, of :func:`dpindex.fit_codebook`: a search for a share of
        candidates uses it. It changes no code and is no part of the digest.

    Raises
    ------
    InputError
        For anything else, NaN or infinite values, and zero codewords.

    >>> book = Codebook(np.eye(4))
    >>> len(book), book.dim
    (4, 4)
    """

    kind = "codebook"
    holds = "codeword"
    suffix: ClassVar = ".codebook"
    shape: ClassVar = {"size": (MIN_SIZE, MAX_SIZE), "dim": _DIM}
    size: int

    def __init__(self, vectors: Any, guide: Guide | None = None) -> None:
        self.guide = guide
        table = vectors if issparse(vectors) else np.asanyarray(vectors)
        rows = real_matrix(table, table.shape[-1] if table.ndim else 0, "codewords")
        if issparse(rows):
            raise InputError("codewords must be a dense array.")
        if not MIN_SIZE <= len(rows) <= MAX_SIZE:
            raise InputError(f"a codebook has {MIN_SIZE} to {MAX_SIZE} codewords, not {len(rows)}.")
        with np.errstate(over="ignore"):
            # A copy, so that whoever gave them cannot change the codewords after their digest.
            given: Singles = np.array(rows, dtype=np.float32)
        finite = np.isfinite(given).all(axis=1)
        if not finite.all():
            row = int(finite.argmin())
            raise InputError(f"codeword {row} has a value that is not finite in 32 bits.")
        nonzero = given.any(axis=1)
        if not nonzero.all():
            row = int(nonzero.argmin())
            raise InputError(f"codeword {row} is zero and has no direction.")
        self._stated = given
        self.size, self.dim = given.shape
        shape = f"{self.size}x{self.dim}|".encode()
        values = given.astype("<f4").tobytes()
        self.digest = hashlib.sha256(shape + values).hexdigest()

    @classmethod
    def read(cls, path: AnyPath) -> Codebook:
        """Return the codebook of a file of ``dpindex codebook``, or of all vectors in another one.

        Parameters
        ----------
        path : str or path
            With the suffix .codebook, or .vectors as in an index, or of at most 65536 vectors.

        Raises
        ------
        InputError
            For another file.
        """
        if os.fspath(path).endswith((cls.suffix, ".vectors")):
            return super().read(path)
        with open_vectors(path) as source:
            if source.shape[0] > MAX_SIZE:
                raise InputError(
                    f"{os.fspath(path)} has {source.shape[0]} vectors; a codebook has at most "
                    f"{MAX_SIZE} codewords; make a smaller one of them (dpindex codebook)."
                )
            every = np.arange(source.shape[0])
            return cls(dense_rows(source, every))

    @classmethod
    def spaced(cls, vectors: Any, size: int) -> Codebook:
        """A codebook of ``size`` of the vectors, evenly spaced.

        Which ones depends on their number alone.

        Raises
        ------
        InputError
            For a size out of range, and for a row that is zero.
        """
        opened = isinstance(vectors, str | os.PathLike)
        whole_number(size, "the size of a codebook", MIN_SIZE, MAX_SIZE)
        with open_vectors(vectors) if opened else nullcontext(as_source(vectors)) as source:
            chosen = spaced(source.shape[0], size)
            rows = dense_rows(source, chosen)
            if (zero := chosen[~rows.any(axis=1)]).size:
                raise InputError(
                    f"{source.name}: row {zero[0]} is zero, and a codeword needs a direction; "
                    f"leave such rows out."
                )
            return cls(rows)

    @classmethod
    def from_bytes(cls, data: bytes) -> Codebook:
        facts, arrays = unpack(data, "codebook")
        vectors = arrays.pop("vectors", None)
        if vectors is None or vectors.dtype != np.float32:
            raise InputError("this codebook has a header that no dpindex writes.")
        made = cls(vectors)
        try:
            if facts or arrays:
                made.guide = Guide.read(facts, arrays, len(made))
        except (ValueError, LookupError, TypeError):
            raise DamagedError("this codebook has a guide that no dpindex writes.") from None
        return made

    def to_bytes(self) -> bytes:
        arrays: dict[str, AnyArray] = {"vectors": self.stated}
        if self.guide is None:
            return pack("codebook", {}, arrays)
        arrays |= {"moves": self.guide.moves, "players": self.guide.players}
        return pack("codebook", {"temperature": self.guide.temperature}, arrays)

    def scaled(self, ranges: Ranges) -> Codebook:
        """The codebook of these codewords, brought to 0 … 1 by ``ranges``; itself if only named."""
        if self._only_named:
            return self
        return Codebook(ranges.scale(self._stated), self.guide)

    @property
    def contents(self) -> str:
        return f"{self.size} public codewords of {self.dim} attributes"

    def __len__(self) -> int:
        return self.size

    @property
    def stated(self) -> Singles:
        """The codewords as they were given, float32, shape (K, dim); InputError if not here."""
        self.require()
        return self._stated

    @cached_property
    def vectors(self) -> Singles:
        """The codewords at norm 1, float32, shape (K, dim)."""
        return self.directions(self.stated)

    @property
    def known(self) -> Singles:
        return self.vectors

    def directions(self, vectors: Floats) -> Singles:
        return of_norm_1(vectors)

    @cached_property
    def grid(self) -> Singles:
        """The codewords on the integer grid, transposed: shape (dim, K)."""
        return np.ascontiguousarray(on_sphere_grid(self.stated).T)


ENTRY_BITS = 8
"""Entries of W are multiples of 2^-8, kept as integers."""

MAX_LENGTH = 4096
ARRAYS = {
    "attributes": ("i4", "m"),
    "entries": ("i2", "km"),
    "low": ("i8", "v"),
    "width": ("i8", "v"),
    "centre": ("f4", "m"),
    "mean": ("f4", "m"),
    "basis": ("f4", "bm"),
    "within": ("f8", "kk"),
    "cross": ("f8", "kb"),
    "projected": ("f4", "sk"),
    "inside": ("f4", "sb"),
    "products": ("f4", "pp"),
}
"""The arrays of a design: their numbers, and a letter for each side."""


class Design(PublicPart):
    """A public projection ``W(f(x) − f(c))`` in integers, and what is known of its vectors.

    f clips attributes to public windows, if the design has some; else it is the identity.

    It is found by :func:`dpindex.design`; no guarantee rests on how.

    Attributes
    ----------
    code_length : int
        Coordinates k of the projection.
    norm : 1 or 2
        The norm of which columns of W have at most 1: L1 for Laplace noise and signs, L2 for
        Gaussian noise.

    >>> public = np.random.default_rng(0).random((500, 2)) @ np.ones((2, 6))
    >>> from dpindex import design
    >>> made = design(public, epsilon=1.0, code_length=2)
    >>> made.dim, made.code_length, bool((np.abs(made.entries).sum(axis=0) <= 256).all())
    (6, 2, True)
    >>> Design.from_bytes(made.to_bytes()) == made
    True
    """

    kind = "design"
    holds = "public vector"
    shape: ClassVar = {"dim": _DIM, "code_length": (1, MAX_LENGTH), "norm": (1, 2)}
    code_length: int
    norm: int
    _data: bytes

    attributes: Ints
    """The attributes that it uses, ascending, shape (m,)."""

    entries: npt.NDArray[np.int16]
    """W in multiples of 2^-8, shape (k, m)."""

    windows: Windows | None = None
    """What the attributes used are clipped to."""

    centre: Singles
    """c in units of scaled attributes, shape (m,): f(c) is the public mean of f."""

    mean: Singles
    """μ, the public mean of scaled attributes, shape (m,)."""

    basis: Singles
    """B: orthonormal rows that span μ and W D, in which estimates lie, shape (k + 1, m)."""

    within: Doubles
    """``W C Wᵀ``, C the public covariance of f, shape (k, k)."""

    cross: Doubles
    """``W D Bᵀ``, D the public covariance of f and x, shape (k, k + 1)."""

    projected: Singles
    """``W f(x)`` of some of the public vectors x, shape (s, k)."""

    inside: Singles
    """``B x`` of the same, shape (s, k + 1)."""

    products: Singles
    """Inner products of the first p of them, over all attributes, shape (p, p).

    Codes of these tell what estimates are worth. If there are others, estimates are made of them.
    """

    @classmethod
    def from_bytes(cls, data: bytes) -> Design:
        facts, arrays = unpack(data, "design")
        made = cls.__new__(cls)
        try:
            made._set(facts, arrays)
        except (ValueError, LookupError, TypeError, AttributeError):
            raise DamagedError("these bytes are not a design that dpindex makes.") from None
        made._data = bytes(data)
        made.digest = hashlib.sha256(data).hexdigest()
        # The one fact of a design that privacy rests on, computed from the integers that run and
        # not read from the file: the rest of it only makes estimates better or worse.
        weight = column_weight(made.entries, made.norm)
        most = 1 << ENTRY_BITS * made.norm
        if weight > most:
            raise NoGuaranteeError(
                f"the heaviest column of this design weighs {weight} where {most} is allowed: an "
                f"attribute would move codes by more than its noise hides."
            )
        return made

    def _set(self, facts: Mapping[str, Any], arrays: dict[str, AnyArray]) -> None:
        """Take over facts and arrays; some error if they do not fit together."""
        sizes: dict[str, int] = {}
        checked = {name: checked_array(arrays[name], *kind, sizes) for name, kind in ARRAYS.items()}
        limits = checked.pop("low"), checked.pop("width")
        for name, array in checked.items():
            setattr(self, name, array)
        k = sizes["k"]
        fits = sizes["b"] == k + 1 and 2 <= sizes["p"] <= sizes["s"]
        if set(arrays) != set(ARRAYS) or not fits:
            raise ValueError("arrays")
        if set(facts) != {"dim", "norm", "beta"} or sizes["v"] not in (0, sizes["m"]):
            raise ValueError("facts")
        beta = finite_number(facts["beta"], "beta", above=0.0)
        if sizes["v"]:
            self.windows = Windows(*limits, beta)
        stated = {**facts, "code_length": k}
        for name, span in self.shape.items():
            setattr(self, name, whole_number(stated[name], name, *span))
        ascending = bool((np.diff(self.attributes) > 0).all())
        inside = self.attributes[0] >= 0 and self.attributes[-1] < self.dim
        if not (ascending and inside):
            raise ValueError("design")

    def to_bytes(self) -> bytes:
        self.require()
        return self._data

    @cached_property
    def known(self) -> Singles:
        return self._as_directions(self.inside)

    def directions(self, vectors: Floats) -> Singles:
        return self._as_directions(vectors[:, self.attributes] @ self.basis.T)

    def _as_directions(self, inside: Floats) -> Singles:
        """Points of the basis; one coordinate more, so that lengths count too."""
        middle, spread = self._spread
        height = np.full((len(inside), 1), max(spread, 1e-30))
        return unit(np.hstack([height, inside - middle]))

    @cached_property
    def _spread(self) -> tuple[AnyArray, float]:
        """The middle of all, and how far the public vectors lie from it, in the basis."""
        middle = self.basis @ self.mean
        squares = np.square(self.inside - middle).sum(axis=1)
        return middle, math.sqrt(float(squares.mean()))

    def save(self, path: AnyPath) -> None:
        """Write it to a file, all or nothing; InputError if it is only named.

        Parameters
        ----------
        path : str or path
            Of a new file, or of one that is replaced.
        """
        write_file(path, self.to_bytes())

    @property
    def contents(self) -> str:
        clipped = "" if self.windows is None else ", each clipped to a window of its own,"
        return (
            f"a public projection of {self.dim} attributes{clipped} to {self.code_length} "
            f"coordinates"
        )


def column_weight(entries: AnyArray, norm: int) -> int:
    """The largest ``Σ_j |w_ji|^norm`` of any attribute i, in whole numbers."""
    sizes = np.abs(entries.astype(np.int64)) ** norm
    return int(sizes.sum(axis=0).max(initial=0))


PARTS: dict[str, type[PublicPart]] = {"codebook": Codebook, "design": Design}
"""Every kind of public part, by its name."""
