"""The curve as CSV text, and files that appear whole or not at all."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpindex.errors import InputError

if TYPE_CHECKING:
    from dpindex.evaluate.curve import Curve, QueryMode
    from dpindex.spec import Spec

__all__ = ["curve_csv", "runs_csv", "write_file"]

_SPEC_COLUMNS = (
    "method",
    "definition",
    "adjacency",
    "epsilon",
    "delta",
    "k",
    "repetitions",
    "query",
    "query_epsilon",
)


def curve_csv(curve: Curve) -> str:
    """One line for each spec, query mode and measure; ``std`` is empty where there was one run."""
    lines = (
        (*_spec_cells(curve, p.spec, p.query), name, p.mean[name], _known(p.std[name]), p.runs)
        for p in curve.points
        for name in p.mean
    )
    return _csv((*_SPEC_COLUMNS, "measure", "mean", "std", "runs"), lines)


def runs_csv(curve: Curve) -> str:
    """One line for each single run, with its public seed and a column for each measure."""
    lines = (
        (*_spec_cells(curve, run.spec, run.query), run.seed, *run.values.values())
        for run in curve.runs
    )
    return _csv((*_SPEC_COLUMNS, "seed", *curve.runs[0].values), lines)


def _spec_cells(curve: Curve, spec: Spec, query: QueryMode) -> tuple[Any, ...]:
    asked = curve.query_epsilon or spec.epsilon
    return (
        spec.method,
        spec.mechanism.definition,
        str(spec.adjacency),
        spec.epsilon,
        spec.delta,
        spec.code_length,
        spec.repetitions,
        query,
        asked if query == "private" and spec.epsilon is not None else None,
    )


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _csv(header: Iterable[str], lines: Iterable[Iterable[Any]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(lines)
    return buffer.getvalue()


def write_file(path: Path, data: bytes) -> None:
    """Write under another name and rename: whoever interrupts this leaves no half a file.

    Raises InputError if the directory or the file cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.write_bytes(data)
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}; choose another directory.") from error
