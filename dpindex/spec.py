"""What the data holder states, checked once: a frozen, public description of a mechanism."""

from __future__ import annotations

import hashlib
import json
import math
import numbers
import os
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from dpindex.checks import finite_number
from dpindex.errors import InputError
from dpindex.files import read_file
from dpindex.grid import Grid, grid_step
from dpindex.methods import Method, find_method
from dpindex.noise import GRID_BITS, FloatLaw, SignLaw
from dpindex.privacy import Guarantee, VectorAdjacency, adjacency_from_dict, attribute
from dpindex.projections import Projection

__all__ = ["Spec"]

_FORMAT = 1
_MIN_EPSILON, _MAX_EPSILON = 1e-3, 64.0
_MIN_DELTA = 1e-30
_MAX_TEXT = 1 << 16
_MAX_DIM = 1 << 31
_MAX_K = 1 << 20
_MAX_BLOCKS = 1024
_MAX_GAP = 1 << 16
"""One entry in at most so many is not zero: the law of the gaps is a table of four times that."""
_ONE_ATTRIBUTE = attribute(1.0)


@dataclass(frozen=True)
class Spec:
    """Everything public about how vectors become codes. Think of it as the label on the index.

    Two parties with equal specs produce comparable codes; only the noise is secret. One warning:
    ``epsilon`` counts changes of *one attribute* under the default adjacency, not whole records.

    Parameters
    ----------
    method : str
        A name from :func:`dpindex.methods`.
    dim : int
        Number of attributes of a vector, [1, 2^31).
    k : int, optional
        Length of a code. Raw methods always use ``dim``; otherwise the method has a default.
    epsilon : float
        Budget of one release of one vector, [0.001, 64]; absent for the ``none-*`` baselines.
    delta : float
        In (0, 1) for the Gaussian methods, 0 for the pure ones.
    adjacency : Attribute or L2
        What neighbouring vectors may differ in; default one attribute by at most 1.
    repetitions : int
        Independent OPORPs that share epsilon and k equally (sign codes only).
    scale : float
        Public divisor of every attribute, e.g. 255 for bytes. Queries get the same.
    bounds : (float, float)
        Public range of a scaled attribute, [−1, 1] by default.
    clip : bool
        Clip to the bounds instead of refusing.
    min_norm : float, optional
        Public lower bound on the norm of every vector after scaling, for methods that need one.
    entries : str, optional
        Entries of a random projection: "gaussian", "rademacher", "uniform" or "very-sparse".
    sparsity : int, optional
        Sparse Johnson-Lindenstrauss maps: coordinates that one attribute moves, a divisor of k.
        Very sparse entries: one in so many is not zero, √dim by default.
    norm : float, optional
        Public norm of *every* vector after scaling (1 for unit embeddings); sharpens similarities.
    seed : int
        Public seed of the projection, [0, 2^63).

    Raises
    ------
    InputError
        One sentence for any parameter or combination that has no guarantee.

    >>> spec = Spec(method="dp-oporp-staircase", dim=784, k=128, epsilon=2.0, scale=255)
    >>> str(spec.guarantee)
    'epsilon = 2 (pure DP) under attribute(beta=1)'
    >>> Spec.from_json(spec.to_json()) == spec
    True
    """

    method: str
    dim: int
    k: int | None = None
    epsilon: float | None = None
    delta: float = 0.0
    adjacency: VectorAdjacency = _ONE_ATTRIBUTE
    repetitions: int = 1
    scale: float = 1.0
    bounds: tuple[float, float] = (-1.0, 1.0)
    clip: bool = False
    min_norm: float | None = None
    norm: float | None = None
    seed: int = 0
    entries: str | None = None
    sparsity: int | None = None

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        row = find_method(self.method)
        set_(self, "dim", _integer(self.dim, "dim", 1, _MAX_DIM - 1))
        set_(self, "repetitions", _integer(self.repetitions, "repetitions", 1, 1024))
        set_(self, "seed", _integer(self.seed, "seed", 0, 2**63 - 1))
        set_(self, "scale", finite_number(self.scale, "scale", above=0.0))
        set_(self, "bounds", _interval(self.bounds))
        if not isinstance(self.clip, bool):
            raise InputError(f"clip must be true or false, not {self.clip!r}.")
        if not isinstance(self.adjacency, VectorAdjacency):
            raise InputError("adjacency must be dpindex.attribute(…) or dpindex.l2(…).")
        self._check_guarantee(row)
        for name in ("min_norm", "norm"):
            if getattr(self, name) is not None:
                set_(self, name, finite_number(getattr(self, name), name, above=0.0))
        if self.repetitions > 1 and not row.repeats:
            raise InputError(f"{row.name} takes no repetitions: they are for sign codes of OPORP.")
        k = row.default_k(self) if self.k is None else self.k
        k = _integer(k, "k", 1, max(_MAX_K, self.dim * self.repetitions))
        self._check_k(row, k)
        set_(self, "k", k)
        set_(self, "entries", self._checked_entries(row))
        set_(self, "sparsity", self._checked_sparsity(row, k))
        self._check_min_norm(row)
        if row.bounded and self.bounds[1] - self.bounds[0] > self.beta:
            raise InputError(
                f"{row.name} needs bounds no wider than beta = {self.beta:g}, not "
                f"[{self.bounds[0]:g}, {self.bounds[1]:g}]; state the public range of an attribute."
            )

    def _check_guarantee(self, row: Method) -> None:
        set_ = object.__setattr__
        delta = finite_number(self.delta, "delta")
        set_(self, "delta", delta)
        if row.definition == "none":
            if self.epsilon is not None or delta != 0:
                raise InputError(f"{row.name} is not private: it takes no epsilon and no delta.")
            return
        if self.epsilon is None:
            raise InputError(f"{row.name} needs an epsilon.")
        epsilon = finite_number(self.epsilon, "epsilon", above=0.0)
        if not _MIN_EPSILON <= epsilon <= _MAX_EPSILON:
            raise InputError(
                f"epsilon must lie in [{_MIN_EPSILON:g}, {_MAX_EPSILON:g}], not {epsilon:g}."
            )
        set_(self, "epsilon", epsilon)
        takes_it = row.needs_delta or (row.takes_delta and delta != 0)
        if takes_it and not _MIN_DELTA <= delta < row.max_delta:
            raise InputError(
                f"{row.name} needs a delta in [{_MIN_DELTA:g}, {row.max_delta:g}), for example "
                f"1e-6, not {delta:g}: its guarantee is an approximate one."
            )
        if row.pure and not takes_it and delta != 0:
            raise InputError(f"{row.name} is pure: delta must be 0, not {delta:g}.")
        if self.adjacency.kind not in row.adjacencies:
            raise InputError(
                f"{row.name} has no guarantee under {self.adjacency}: it is analysed for "
                f"{' and '.join(row.adjacencies)} adjacency only."
            )

    def _check_k(self, row: Method, k: int) -> None:
        if row.fixed_k and k != self.dim:
            raise InputError(f"{row.name} keeps every coordinate: k must be dim = {self.dim}.")
        if k % self.repetitions:
            raise InputError(f"k = {k} is not a multiple of repetitions = {self.repetitions}.")
        if row.bins and k // self.repetitions > self.dim:
            raise InputError(
                f"{row.name} needs k / repetitions ≤ dim: {k // self.repetitions} bins cannot be "
                f"filled by {self.dim} attributes."
            )

    def _checked_entries(self, row: Method) -> str | None:
        if not row.entries:
            if self.entries is not None:
                raise InputError(f"{row.name} has a projection of its own; leave entries out.")
            return None
        entries = row.entries[0] if self.entries is None else self.entries
        if entries not in row.entries:
            known = ", ".join(row.entries)
            raise InputError(f"entries of {row.name} must be one of {known}, not {entries!r}.")
        return entries

    def _checked_sparsity(self, row: Method, k: int) -> int | None:
        given = self.sparsity
        if self.entries == "very-sparse":
            customary = max(1, math.isqrt(self.dim))
            return _integer(customary if given is None else given, "sparsity", 1, _MAX_GAP)
        if not row.blocks:
            if given is not None:
                raise InputError(
                    f"{row.name} does not use sparsity here: it is for very-sparse entries and "
                    f"sparse Johnson-Lindenstrauss maps."
                )
            return None
        if given is None:
            return next(s for s in (4, 3, 2, 1) if k % s == 0)
        sparsity = _integer(given, "sparsity", 1, _MAX_BLOCKS)
        if k % sparsity:
            raise InputError(
                f"k = {k} is not a multiple of sparsity = {sparsity}: every attribute moves one "
                f"coordinate in each of {sparsity} equal blocks."
            )
        return sparsity

    def _check_min_norm(self, row: Method) -> None:
        if not (row.norm_bound and self.delta > 0):
            if self.min_norm is not None:
                pure = " with delta 0" if row.norm_bound else ""
                raise InputError(f"{row.name} does not use min_norm{pure}; leave it out.")
            return
        if self.entries != "gaussian":
            raise InputError(
                f"{row.name} with a delta needs gaussian entries, not {self.entries}: for others "
                f"no bound on the signs that can change holds for all vectors."
            )
        if self.min_norm is None:
            raise InputError(
                f"{row.name} with a delta needs min_norm: a public lower bound on the norm of "
                f"every vector."
            )
        if self.min_norm_on_grid <= self.beta:
            raise InputError(
                f"{row.name} needs a min_norm above beta = {self.beta:g}, not {self.min_norm:g}."
            )

    @property
    def norm_slack(self) -> float:
        """How much rounding to the grid can shorten a vector: half a step in every coordinate."""
        return grid_step(self.beta, GRID_BITS) * math.sqrt(self.dim) / 2

    @property
    def min_norm_on_grid(self) -> float:
        """What remains of ``min_norm`` on the grid; vectors may fall short of it by one slack."""
        return (self.min_norm or 0.0) - 2.001 * self.norm_slack

    @property
    def row(self) -> Method:
        """The method's row in the table."""
        return find_method(self.method)

    @property
    def code_length(self) -> int:
        """Length of a code: ``k``, resolved."""
        return self.k if self.k is not None else self.row.default_k(self)

    @property
    def budget(self) -> float:
        """``epsilon`` of a private method, as a plain float (infinite for the baselines)."""
        return math.inf if self.epsilon is None else self.epsilon

    @property
    def beta(self) -> float:
        """The step that the grid is laid out for, in units of the scaled attribute."""
        return self.adjacency.size

    @property
    def guarantee(self) -> Guarantee:
        """What one code promises about the vector behind it."""
        return Guarantee(
            epsilon=self.budget,
            delta=self.delta,
            definition=self.row.definition,
            adjacency=self.adjacency,
            exact=self.row.exact and self.row.definition != "none",
            delta_over=self.row.delta_over if self.delta > 0 else "noise",
        )

    @cached_property
    def projection(self) -> Projection:
        """The public projection: a function of this spec alone."""
        return self.row.projection(self)

    @cached_property
    def law(self) -> FloatLaw | SignLaw:
        """The calibrated law of the secret noise."""
        return self.row.law(self)

    @cached_property
    def grid(self) -> Grid:
        """The integer grid that attributes are rounded to."""
        return Grid(
            beta=self.beta,
            bits=self.law.grid_bits,
            scale=self.scale,
            bounds=self.bounds,
            clip=self.clip,
            max_column_l1=self.projection.max_column_l1,
        )

    @property
    def fingerprint(self) -> bytes:
        """Sixteen bytes that codes carry, so that codes of another spec are noticed."""
        return hashlib.sha256(self.to_json().encode()).digest()[:16]

    def with_epsilon(self, epsilon: float) -> Spec:
        """The same projection and method under another budget (for private queries)."""
        return replace(self, epsilon=epsilon)

    def to_json(self) -> str:
        """Canonical JSON: equal specs give equal text."""
        data: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        # Later than format 1: left out where unused, so that older specs keep their text.
        for name in ("entries", "sparsity"):
            if data[name] is None:
                del data[name]
        data["adjacency"] = self.adjacency.to_dict()
        data["bounds"] = list(self.bounds)
        data["format"] = _FORMAT
        return json.dumps(data, sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Spec:
        """The inverse of :meth:`to_json`; raises InputError on anything that is not a spec."""
        if len(text) > _MAX_TEXT:
            raise InputError(f"the spec is not valid JSON: it has over {_MAX_TEXT} characters.")
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"the spec is not valid JSON: {error}.") from None
        if not isinstance(data, dict) or data.pop("format", None) != _FORMAT:
            raise InputError(f"the spec is not a dpindex spec of format {_FORMAT}.")
        known = {f.name for f in fields(cls)}
        if strange := sorted(set(data) - known):
            raise InputError(f"the spec has an unknown field {strange[0]!r}.")
        if missing := sorted({"method", "dim"} - set(data)):
            raise InputError(f"the spec lacks the field {missing[0]!r}.")
        if "adjacency" in data:
            data["adjacency"] = adjacency_from_dict(data["adjacency"])
        return cls(**data)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Spec:
        """The spec in a file; raises InputError, which begins with the path, if there is none."""
        text = read_file(path, _MAX_TEXT)
        try:
            return cls.from_json(text)
        except InputError as error:
            raise InputError(f"{os.fspath(path)}: {error}") from None


def _integer(value: Any, name: str, least: int, most: int) -> int:
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    try:
        whole = int(value) if real else least - 1
    except (ValueError, OverflowError):  # NaN and infinity
        whole = least - 1
    if not least <= whole <= most or whole != value:
        raise InputError(f"{name} must be a whole number from {least} to {most}, not {value!r}.")
    return whole


def _interval(value: Any) -> tuple[float, float]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise InputError(f"bounds must be a pair (low, high), not {value!r}.")
    low, high = (
        finite_number(value[0], "the lower bound"),
        finite_number(value[1], "the upper bound"),
    )
    if low >= high:
        raise InputError(f"bounds must have low < high, not ({low:g}, {high:g}).")
    return low, high
