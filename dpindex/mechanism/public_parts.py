"""Public parts of a spec, made of public vectors and named by a digest; one of them are designs."""

from __future__ import annotations

import hashlib
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
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
    unit,
)
from dpindex.base.checks import finite_number, whole_number
from dpindex.base.errors import DamagedError, InputError, NoGuaranteeError
from dpindex.base.files import AnyPath, checked_array, parse_file, unpack, write_file
from dpindex.mechanism.grid import Windows

_MAX_PART_BYTES = 1 << 30
_DIGEST = re.compile(r"[0-9a-f]{64}")
DIMS = (1, (1 << 31) - 1)
"""The fewest and most attributes of a public part."""


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
    shape: ClassVar = {"dim": DIMS, "code_length": (1, MAX_LENGTH), "norm": (1, 2)}
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
