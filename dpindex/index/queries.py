"""What goes into a search: exact projections, or codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from dpindex.arrays import Vectors
from dpindex.codes import BitCodes, Codes, FloatCodes
from dpindex.errors import InputError
from dpindex.privatizer import Privatizer
from dpindex.spec import Spec

__all__ = ["Queries", "QueryMode", "check_format", "prepared"]

QueryMode = Literal["exact", "private"]


@dataclass(frozen=True)
class Queries:
    """Prepared queries: exact projections (``spec`` None) or codes and the spec of their noise."""

    vectors: Any
    spec: Spec | None

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, rows: slice) -> Queries:
        if self.spec is None:
            return Queries(self.vectors[rows], None)
        return Queries(self.vectors.take(rows), self.spec)


def prepared(
    asked: Vectors | Codes, query: QueryMode, data: Privatizer, private: Privatizer
) -> Queries:
    """Vectors projected, or privatized by ``private``; codes of either privatizer as they are.

    Raises
    ------
    InputError
        For bad vectors, no codes, codes of another spec, and any other mode of query.
    """
    if query not in ("exact", "private"):
        raise InputError(f"query must be 'exact' or 'private', not {query!r}.")
    if isinstance(asked, BitCodes | FloatCodes):
        known = {p.spec.fingerprint: p for p in (private, data)}
        if asked.fingerprint not in known:
            raise InputError("these query codes were made under another spec than this index.")
        check_format(asked, data.spec)
        if len(asked) == 0:
            raise InputError("there are no query codes.")
        maker = known[asked.fingerprint]  # decodes them, whatever they say of themselves
        return Queries(maker.spec.format.codes(asked.stored), maker.spec)
    if query == "private":
        return Queries(private.privatize(asked), private.spec)
    return Queries(data.project(asked), None)


def check_format(codes: Codes, spec: Spec) -> None:
    """A fingerprint can be copied; the form of the codes must fit as well."""
    kind = "bits" if isinstance(codes, BitCodes) else "float"
    if kind != spec.mechanism.codes or codes.k != spec.code_length:
        raise InputError(
            f"these are {kind} codes of length {codes.k}; the index holds "
            f"{spec.mechanism.codes} codes of length {spec.code_length}."
        )
