"""Designs: public matrices with a public centre, whose columns cost one beta, as they are kept.

They are found by :mod:`dpindex.mechanism.optimiser`; no guarantee rests on how.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dpindex.base.arrays import (
    AnyArray,
    Doubles,
    Singles,
    finite_number,
    whole_number,
)
from dpindex.base.errors import DamagedError, InputError, NoGuaranteeError
from dpindex.base.files import parse_file, unpack, write_file

ENTRY_BITS = 8
"""Entries of W are multiples of 2^-8, kept as integers."""

MAX_LENGTH = 4096
_MAX_BYTES = 1 << 30
_DIGEST = re.compile(r"[0-9a-f]{64}")
DTYPES = {"attributes": "i4", "entries": "i2", "centre": "f4", "basis": "f4"}
DTYPES |= {"cross": "f8", "prior": "f8"}
_NUMBERS = {"epsilon", "beta", "energy", "unseen", "unseen_along"}


class Design:
    """A public projection ``W(x − c)`` in integers, and what is known of the vectors it is for.

    Two designs are equal if their bytes are. A spec read from JSON names its design by shape and
    digest only (:meth:`named`) until it is given.

    Attributes
    ----------
    dim, code_length : int
        Attributes of a vector, and coordinates k of its projection.
    gaussian : bool
        Whether columns of W have an L2 norm of at most 1, and not an L1 norm.
    digest : str
        SHA-256 of :meth:`to_bytes`, in hexadecimal digits.

    >>> public = np.random.default_rng(0).random((500, 2)) @ np.ones((2, 6))
    >>> from dpindex import design
    >>> made = design(public, epsilon=1.0, code_length=2)
    >>> made.dim, made.code_length, bool((np.abs(made.entries).sum(axis=0) <= 256).all())
    (6, 2, True)
    >>> Design.from_bytes(made.to_bytes()) == made
    True
    """

    dim: int
    code_length: int
    gaussian: bool
    digest: str
    _data: bytes | None

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Design:
        """Return the design in a file.

        Parameters
        ----------
        path : str or path
            Of a file that :meth:`save` wrote.

        Raises
        ------
        InputError
            For a file that holds no design.
        NoGuaranteeError
            If a column of W is heavier than 1.
        """
        return parse_file(path, _MAX_BYTES, cls.from_bytes)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, all or nothing.

        Parameters
        ----------
        path : str or path
            Of a new file, or of one that is replaced.

        Raises
        ------
        InputError
            If the design is only named.
        """
        write_file(path, self.to_bytes())

    @classmethod
    def from_bytes(cls, data: bytes) -> Design:
        """Return the design of :meth:`to_bytes`; no size and no claim is trusted.

        Parameters
        ----------
        data : bytes

        Raises
        ------
        InputError
            For anything else.
        NoGuaranteeError
            If a column of W is heavier than 1.
        """
        facts, arrays = unpack(data, "design")
        made = cls.__new__(cls)
        try:
            made._set(facts, arrays)
        except (ValueError, LookupError, TypeError, AttributeError):
            raise DamagedError("these bytes are no design that dpindex makes.") from None
        made._data = bytes(data)
        made.digest = hashlib.sha256(data).hexdigest()
        weight = column_weight(made.entries, made.gaussian)
        most = 1 << ENTRY_BITS * (2 if made.gaussian else 1)
        if weight > most:
            raise NoGuaranteeError(
                f"the heaviest column of this design weighs {weight} where {most} is allowed: an "
                f"attribute would move codes by more than its noise hides."
            )
        return made

    def _set(self, facts: Mapping[str, Any], arrays: dict[str, AnyArray]) -> None:
        """Take over facts and arrays; some error if they do not fit together."""
        for name, dtype in DTYPES.items():
            array = arrays[name]
            if array.dtype != np.dtype(dtype) or not np.isfinite(array).all():
                raise ValueError(name)
            setattr(self, name, array)
        k, m = self.entries.shape
        self.dim = whole_number(facts["dim"], "dim", 1, (1 << 31) - 1)
        self.code_length = whole_number(k, "code_length", 1, MAX_LENGTH)
        self.gaussian = facts["gaussian"]
        for name in _NUMBERS:
            setattr(self, name, finite_number(facts[name], name))
        sides = {name: arrays[name].shape for name in DTYPES}
        expected = {"attributes": (m,), "entries": (k, m), "centre": (m,), "basis": (k + 1, m)}
        expected |= {"cross": (k, k + 1), "prior": (k + 1, k + 1)}
        ascending = bool((np.diff(self.attributes) > 0).all())
        inside = m > 0 and self.attributes[0] >= 0 and self.attributes[-1] < self.dim
        known = set(facts) == {"dim", "gaussian", *_NUMBERS} and set(arrays) == set(DTYPES)
        if not (sides == expected and ascending and inside and known) or self.energy <= 0:
            raise ValueError("design")
        if not isinstance(self.gaussian, bool):
            raise ValueError("gaussian")

    attributes: npt.NDArray[np.int32]
    """The attributes that it uses, ascending, shape (m,)."""

    entries: npt.NDArray[np.int16]
    """W in multiples of 2^-8, shape (k, m)."""

    centre: Singles
    """c, the public mean, in units of scaled attributes, shape (m,)."""

    basis: Singles
    """B: orthonormal rows that span μ and W C, in which estimates lie, shape (k + 1, m)."""

    cross: Doubles
    """``W C Bᵀ``, shape (k, k + 1)."""

    prior: Doubles
    """``B C Bᵀ``, shape (k + 1, k + 1)."""

    epsilon: float
    """The epsilon that the design was made for; codes may be made at another."""

    beta: float
    """The change of an attribute that it was made for, after division by the scale."""

    energy: float
    """Mean squared norm of the public vectors."""

    unseen: float
    """The part of the energy that lies outside of B, which no code shows."""

    unseen_along: float
    """The mean variance of that part along the like part of another vector."""

    def to_bytes(self) -> bytes:
        """The design in the common container; InputError if it is only named."""
        if self._data is None:
            raise InputError(
                f"the design {self.digest[:12]}… is not here: give its file (in Python also "
                f"Spec.with_public).",
                field="design",
            )
        return self._data

    @classmethod
    def named(cls, data: Any) -> Design:
        """Return the design that :meth:`to_dict` described, without its matrix.

        Parameters
        ----------
        data : dict

        Raises
        ------
        InputError
            For anything else.
        """
        facts = data if isinstance(data, dict) else {}
        made = cls.__new__(cls)
        made._data = None
        made.digest = str(facts.get("sha256"))
        expected = {"sha256", "dim", "code_length", "gaussian"}
        if set(facts) != expected or not _DIGEST.fullmatch(made.digest):
            raise InputError("design must be {sha256: …, dim: …, code_length: …, gaussian: …}.")
        made.dim = whole_number(facts["dim"], "dim of a design", 1, (1 << 31) - 1)
        made.code_length = whole_number(facts["code_length"], "code_length", 1, MAX_LENGTH)
        made.gaussian = facts["gaussian"] is True
        return made

    def to_dict(self) -> dict[str, Any]:
        """Shape and digest, for JSON."""
        shape = {"dim": self.dim, "code_length": self.code_length, "gaussian": self.gaussian}
        return {"sha256": self.digest, **shape}

    def __reduce__(self) -> Any:
        if self._data is None:
            return Design.named, (self.to_dict(),)
        return Design.from_bytes, (self._data,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Design) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<Design: {self.dim} attributes to {self.code_length}, {self.digest[:12]}>"


def column_weight(entries: AnyArray, gaussian: bool) -> int:
    """The largest ``Σ_j |w_ji|`` of any attribute i, or ``Σ_j w_ji²``, in whole numbers."""
    sizes = np.abs(entries.astype(np.int64))
    return int((sizes**2 if gaussian else sizes).sum(axis=0).max(initial=0))
