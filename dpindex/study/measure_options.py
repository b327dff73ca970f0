"""The options that measuring functions and the command ``evaluate`` share.

Imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from dpindex.base.checks import whole_number
from dpindex.base.errors import InputError

__all__ = ["MeasureOptions"]

_MAX = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class MeasureOptions:
    """What is measured and how often; each field has its help text.

    Attributes
    ----------
    runs : int
        Builds of each spec, [1, ∞).
    neighbours : int
        Number of true neighbours of a query, [10, n].
    metric, index_type : str
        As in :class:`dpindex.PrivateIndex`.
    query_epsilon : float, optional
        Budget of private queries; default that of the index.
    denoise : "auto", "linear" or "score", optional
        Fit a denoiser of this kind to every private index ("linear" for sign codes). If it cannot
        be fitted, the codes are searched without it.
    max_queries : int, optional
        Use the first so many queries only, [1, ∞).
    skip_leak_check : bool
        Accept a codebook made of the base.

    Raises
    ------
    InputError
        For a value out of its range.

    >>> MeasureOptions(runs=3).neighbours
    50
    """

    runs: Annotated[int, "Builds of each spec, with a new seed and new noise."] = 10
    neighbours: Annotated[int, "True neighbours of a query."] = 50
    metric: Annotated[Literal["cosine", "ip", "l2"], "Similarity to rank by."] = "cosine"
    index_type: Annotated[str, "Search structure, as of `dpindex build`."] = "f32"
    query_epsilon: Annotated[float | None, "Budget of private queries.  [default: the index's]"] = (
        None
    )
    denoise: Annotated[
        Literal["auto", "linear", "score"] | None,
        "Fit a denoiser to the private codes; costs no budget.  [default: none]",
    ] = None
    max_queries: Annotated[int | None, "Use the first queries only, so many.  [default: all]"] = (
        None
    )
    skip_leak_check: Annotated[bool, "Accept a codebook made of BASE."] = False

    def __post_init__(self) -> None:
        if self.runs < 1:
            raise InputError(f"runs must be at least 1, not {self.runs!r}.")
        if self.neighbours < 10:
            raise InputError(
                f"neighbours must be at least 10, so that precision@10 can reach 1, not "
                f"{self.neighbours!r}."
            )
        if self.max_queries is not None:
            whole_number(self.max_queries, "max_queries", 1, _MAX)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> MeasureOptions:
        """Return keywords as options.

        Raises
        ------
        InputError
            For a keyword that is no option.

        >>> MeasureOptions.of({"runs": 2}).runs
        2
        """
        names = [field.name for field in fields(cls)]
        for name in options:
            if name not in names:
                raise InputError(f"there is no option {name!r}; there are {', '.join(names)}.")
        return cls(**options)
