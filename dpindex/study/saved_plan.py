"""The file of a plan: what a build needs of it, so that it can be resumed as it was planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpindex.base.errors import DamagedError
from dpindex.base.files import AnyPath, pack, parse_file, unpack
from dpindex.decode.base import Metric
from dpindex.decode.fit import DenoiserKind
from dpindex.index.search import QueryMode
from dpindex.mechanism.parameters import PARTS
from dpindex.mechanism.spec import Spec

_KIND = "plan"
_MAX_PLAN_BYTES = 1 << 31


@dataclass(frozen=True)
class SavedPlan:
    """What was planned. All of it is public.

    Attributes
    ----------
    spec : Spec
        With its codebook or design.
    metric, denoiser
        What neighbours are ranked by; the kind of denoiser that the plan counts on, or None.
    at, candidates, query
        What a search is asked for: k, how many answers are re-ranked or a share such as "5%", and
        the query mode.
    choice : str
        One sentence on what was chosen.
    stated : mapping
        Options that a build was given, by which it is known again; empty for ``Plan.save``.
    """

    spec: Spec
    metric: Metric
    denoiser: DenoiserKind | None
    at: int
    candidates: int | str | None
    query: QueryMode
    choice: str
    stated: Mapping[str, str]

    @classmethod
    def read(cls, path: AnyPath) -> SavedPlan:
        """Return the plan in a file; InputError, which begins with the path, if there is none."""
        return parse_file(path, _MAX_PLAN_BYTES, cls._parsed)

    @classmethod
    def _parsed(cls, data: bytes) -> SavedPlan:
        facts, arrays = unpack(data, _KIND)
        try:
            values: dict[str, Any] = {**facts, "spec": Spec.from_dict(facts["spec"])}
            spec = values["spec"]
            if spec.public is not None:
                part = PARTS[spec.public.kind].from_bytes(arrays["public"].tobytes())
                values["spec"] = spec.with_public(part)
            return cls(**values)
        except (KeyError, TypeError):
            raise DamagedError("the plan has fields that no dpindex writes.") from None

    def to_bytes(self) -> bytes:
        """Return the plan in the common container."""
        arrays = {}
        if self.spec.public is not None:
            arrays["public"] = np.frombuffer(self.spec.public.to_bytes(), np.uint8)
        return pack(_KIND, {**vars(self), "spec": self.spec.to_dict()}, arrays)
