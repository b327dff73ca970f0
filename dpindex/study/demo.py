"""The demonstration on pictures of digits: a report, and an index to ask."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpindex.base.arrays import Bytes
from dpindex.base.display import Progress
from dpindex.base.errors import InputError
from dpindex.base.files import AnyPath
from dpindex.data import as_source
from dpindex.index.private_index import PrivateIndex
from dpindex.mechanism.spec import Spec
from dpindex.privacy import attribute, record
from dpindex.study.curve import Curve
from dpindex.study.evaluation import evaluate
from dpindex.study.explorer import Shown
from dpindex.study.report import Additions, require_libraries, write_report
from dpindex.study.specs import spec_grid

_HELD_OUT = 197


# What is public about a digit: 8 × 8 pixels in [0, 16], so attributes in [0, 1] after scaling.
_DIGITS: dict[str, Any] = {
    "adjacency": attribute(1.0),
    "scale": 16.0,
    "bounds": (0.0, 1.0),
}


_DEMO = Spec("dp-oporp-staircase", dim=64, k=32, epsilon=5.0, seed=1, **_DIGITS)


EPSILONS = (1.0, 2.0, 5.0, 10.0)


# Method and k of what is measured.
_METHODS: dict[str, tuple[int | None, ...]] = {
    "raw-square-wave": (None,),
    "dp-oporp-staircase": (32,),
    "dp-oporp": (32,),
    "dp-signoporp-geometric": (64,),
    "none-oporp": (32, 64),
}


# Measured for whole records, on digits brought to norm 1.
_RECORD_METHODS = ("record-cap", "raw-gaussian", "none-oporp")


RECORD_EPSILONS = (4.0, 6.0, 8.0, 16.0)


def load_digits() -> tuple[Bytes, Bytes]:
    """Return 1797 pictures of 8 × 8 pixels, and the digit that each shows.

    From "Optical Recognition of Handwritten Digits", Alpaydin & Kaynak 1998, UCI Machine Learning
    Repository, CC BY 4.0.

    Returns
    -------
    pictures : uint8 array, shape (1797, 64)
        Row by row; 0 is paper and 16 ink.
    labels : uint8 array, shape (1797,)

    >>> pictures, labels = load_digits()
    >>> pictures.shape, int(pictures.max()), labels[:4].tolist()
    ((1797, 64), 16, [0, 1, 2, 3])
    """
    with np.load(Path(__file__).parent / "digits" / "digits.npz") as arrays:
        return arrays["pictures"], arrays["labels"]


@dataclass(frozen=True)
class DemoResult:
    """What the demonstration produced.

    Attributes
    ----------
    curve : Curve
        Quality by method and epsilon.
    index : Path
        The saved index, ready for ``dpindex query`` and ``dpindex info``.
    spec : Spec
        The spec of that index; its guarantee is ``spec.guarantee``.
    same_digit : float
        Share of the ten nearest answers to private queries that show the queried digit, [0, 1].
    report : Path
        The report, a page on which epsilon is a slider; ``curve.csv`` and ``runs.csv`` are
        beside it.
    """

    curve: Curve
    index: Path
    spec: Spec
    same_digit: float
    report: Path


def run_demo(directory: AnyPath, *, runs: int = 2, progress: Progress | None = None) -> DemoResult:
    """Index 1797 handwritten digits privately, search held-out ones, measure, write a report.

    1600 digits are indexed. When it is run again in the same directory, it uses the index and the
    measurements that are there.

    Parameters
    ----------
    directory : path
        Where the index and the report go; created if missing.
    runs : int
        Builds of each measured spec, [1, ∞).
    progress : callable, optional
        As in :func:`dpindex.evaluate`.

    Raises
    ------
    InputError
        If Pillow or Jinja2 is missing, or the directory holds another index or report.
    """
    require_libraries()
    pixels, digits = load_digits()
    folder = Path(directory)
    base = pixels[:-_HELD_OUT]
    queries = pixels[-_HELD_OUT:]
    index = _saved_index(folder / "index", base)
    found = index.search(queries, k=10, query="private").ids
    asked = digits[-_HELD_OUT:, None]
    same_digit = float((digits[found] == asked).mean())

    grids = []
    for name, lengths in _METHODS.items():
        grids.append(spec_grid(64, [name], EPSILONS, lengths, **_DIGITS))
    grids.append(spec_grid(64, _RECORD_METHODS, RECORD_EPSILONS, adjacency=record()))
    source = as_source(base, "handwritten digits")
    held_out = as_source(queries, "held-out digits")
    specs = [spec for grid in grids for spec in grid.specs]
    curves = evaluate(
        source,
        held_out,
        specs,
        runs=runs,
        examples=6,
        report=folder,
        progress=progress,
    )
    report = write_report(
        folder,
        curves,
        Shown(source, held_out, image_shape=(8, 8)),
        Additions(notes=[sentence for grid in grids for sentence in grid.refused]),
        title="Private search of handwritten digits",
    )
    return DemoResult(curves[0], folder / "index", index.spec, same_digit, report)


def _saved_index(path: Path, base: Bytes) -> PrivateIndex:
    """The index in that directory, which is built and saved first if there is none."""
    if not path.exists():
        index = PrivateIndex(_DEMO)
        index.add(base)
        index.save(path)
    index = PrivateIndex.open(path)
    if index.spec != _DEMO or len(index) != len(base):
        raise InputError(f"{path} holds another index than the demo's; choose another directory.")
    return index
