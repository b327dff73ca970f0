"""Public parameters of a mechanism: plain fields, each checked by itself, and their JSON."""

from __future__ import annotations

import hashlib
import json
import math
import os
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from dpindex.base import checks
from dpindex.base.errors import InputError
from dpindex.base.files import parse_file
from dpindex.base.html import facts_html
from dpindex.mechanism.codebook import Codebook
from dpindex.privacy import VectorAdjacency, adjacency_from_dict

_FORMAT = 1
_Stated = TypeVar("_Stated", bound="Parameters")


@dataclass(frozen=True, repr=False)
class Parameters:
    """The public fields of a spec, described in :class:`dpindex.Spec`, each checked by itself.

    Raises
    ------
    InputError
        One sentence for a field of a wrong type or outside its range.
    """

    method: str
    dim: int
    k: int | None = None
    epsilon: float | None = None
    delta: float = 0.0
    adjacency: VectorAdjacency = field(kw_only=True)
    repetitions: int = 1
    scale: float = 1.0
    bounds: tuple[float, float] = (-1.0, 1.0)
    clip: bool = False
    min_norm: float | None = None
    norm: float | None = None
    seed: int = 0
    entries: str | None = None
    sparsity: int | None = None
    codebook: Codebook | None = None
    subset: int | None = None

    def __post_init__(self) -> None:
        values: dict[str, Any] = {
            "dim": checks.whole_number(self.dim, "dim", 1, 2**31 - 1),
            "repetitions": checks.whole_number(self.repetitions, "repetitions", 1, 1024),
            "seed": checks.whole_number(self.seed, "seed", 0, 2**63 - 1),
            "scale": checks.finite_number(self.scale, "scale", above=0.0),
            "delta": checks.finite_number(self.delta, "delta"),
            "bounds": _interval(self.bounds),
        }
        if self.k is not None:
            max_length = max(1 << 20, values["dim"] * values["repetitions"])
            values["k"] = checks.whole_number(self.k, "k", 1, max_length)
        if self.epsilon is not None:
            values["epsilon"] = checks.checked_epsilon(self.epsilon)
        for name in ("min_norm", "norm"):
            if (value := getattr(self, name)) is not None:
                values[name] = checks.finite_number(value, name, above=0.0)
        if self.subset is not None:
            values["subset"] = checks.whole_number(self.subset, "subset", 1, 1 << 16)
        if not isinstance(self.codebook, Codebook | None):
            raise InputError("codebook must be a dpindex.Codebook.")
        if not isinstance(self.clip, bool):
            raise InputError(f"clip must be true or false, not {self.clip!r}.")
        if not isinstance(self.adjacency, VectorAdjacency):
            raise InputError(
                "adjacency must be dpindex.attribute(…), dpindex.l2(…) or dpindex.record()."
            )
        self._set(values)

    def __repr__(self) -> str:
        values = ((f.name, getattr(self, f.name), f.default) for f in fields(self))
        changed = (f"{name}={value!r}" for name, value, default in values if value != default)
        return f"{type(self).__name__}({', '.join(changed)})"

    def _repr_html_(self) -> str:
        """For notebooks: the fields that are not the default."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        shown = {f.name: values[f.name] for f in fields(self) if values[f.name] != f.default}
        return facts_html(type(self).__name__, shown)

    def _set(self, values: dict[str, Any]) -> None:
        """Replace fields while the object is being made."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def budget(self) -> float:
        """``epsilon`` of a private method, as a plain float (infinite for the baselines)."""
        if self.epsilon is None:
            return math.inf
        return self.epsilon

    @property
    def fingerprint(self) -> bytes:
        """Sixteen bytes that codes carry, so that codes of another spec are noticed."""
        return hashlib.sha256(self.to_json().encode()).digest()[:16]

    def with_epsilon(self: _Stated, epsilon: float) -> _Stated:
        """Return this spec under another budget, with the same projection (for private queries).

        A set of nearest codewords grows by as much as their odds shrink, to be reported as often.
        """
        made = replace(self, epsilon=epsilon)
        if self.subset is None or self.codebook is None:
            return made
        grown = round(self.subset * math.exp(self.budget - made.budget))
        largest = max(self.subset, self.codebook.size // 2)
        return replace(made, subset=max(1, min(grown, largest)))

    def with_codebook(self: _Stated, codebook: Codebook) -> _Stated:
        """Return this spec with the codewords of its codebook; InputError if it is another one."""
        if codebook != self.codebook:
            raise InputError("this is another codebook than the one that the spec names.")
        return replace(self, codebook=codebook)

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain JSON values."""
        data: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        # Left out where unused, so that the text of a spec says what it uses.
        for name in ("entries", "sparsity", "codebook", "subset"):
            if data[name] is None:
                del data[name]
        if self.codebook is not None:
            data["codebook"] = self.codebook.to_dict()
        adjacency = self.adjacency.to_dict()
        bounds = list(self.bounds)
        return {**data, "adjacency": adjacency, "bounds": bounds, "format": _FORMAT}

    @classmethod
    def from_dict(cls: type[_Stated], data: Any) -> _Stated:
        """The inverse of :meth:`to_dict`; raises InputError on anything that is not a spec."""
        if not isinstance(data, dict) or data.get("format") != _FORMAT:
            raise InputError(f"the spec is not a dpindex spec of format {_FORMAT}.")
        without_format = {name: value for name, value in data.items() if name != "format"}
        values = checks.checked_fields(without_format, cls, "the spec")
        values["adjacency"] = adjacency_from_dict(values["adjacency"])
        if values.get("codebook") is not None:
            values["codebook"] = Codebook.named(values["codebook"])
        return cls(**values)

    def to_json(self) -> str:
        """Canonical JSON: equal specs give equal text."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_json(cls: type[_Stated], text: str | bytes) -> _Stated:
        """The inverse of :meth:`to_json`; raises InputError on anything that is not a spec."""
        return cls.from_dict(checks.json_value(text, "the spec"))

    @classmethod
    def read(cls: type[_Stated], path: str | os.PathLike[str]) -> _Stated:
        """The spec in a file; raises InputError, which begins with the path, if there is none."""
        return parse_file(path, checks.MAX_TEXT, cls.from_json)


def _interval(value: Any) -> tuple[float, float]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise InputError(f"bounds must be a pair (low, high), not {value!r}.")
    low = checks.finite_number(value[0], "the lower bound")
    high = checks.finite_number(value[1], "the upper bound")
    if low >= high:
        raise InputError(f"bounds must have low < high, not ({low:g}, {high:g}).")
    return low, high
