"""What is said of exposure, and what attacks find: own code found, and reconstructed vectors.

    python bench/exposure.py [--only mnist,cifar10,clinc150,clinc150-records,occupancy,naval]
                             [--output bench/inversion/exposure.csv]

2000 vectors (a quarter of a table), drawn at random, are public; 10 000 others, or all there are,
are the collection. ``plan`` says what attacks on the public ones find, and an evaluation attacks
the collection. The data are in DPINDEX_DATA.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from promises import PIXELS, gray_pictures, of_unit_norm
from recipes import DATA, embeddings, pictures

import dpindex as dpi
from dpindex.study.curve import LINKED

COLLECTION, PUBLIC, PUBLIC_RECORDS = 10_000, 2000, 4000
COLUMNS = (
    "data", "method", "k", "epsilon", "plan: found", "attack: found",
    "plan: cosine", "attack: cosine", "plan: guess", "attack: guess",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """Vectors, and what is planned for them."""

    vectors: Callable[[], Any]
    methods: tuple[str, ...]
    epsilons: tuple[float, ...]
    terms: dict[str, Any]
    public: int = PUBLIC


def table(name: str) -> Callable[[], Any]:
    def vectors() -> Any:
        with np.load(DATA / f"tab_{name}.npz") as stored:
            x = stored["X"].astype(np.float64)
        low, high = x.min(axis=0), x.max(axis=0)
        varies = high > low
        return 2 * (x[:, varies] - low[varies]) / (high - low)[varies] - 1

    return vectors


SENTENCES = {"adjacency": dpi.attribute(1.0)}
COLUMN = {"adjacency": dpi.attribute(0.2)}
PIXEL_METHODS = ("raw-square-wave", "dp-oporp-staircase", "dp-signoporp-rr")
CASES = {
    "mnist": Case(pictures, PIXEL_METHODS, (1.0, 2.0, 3.0), PIXELS),
    "cifar10": Case(gray_pictures, PIXEL_METHODS, (1.0, 2.0, 3.0), PIXELS),
    "clinc150": Case(
        lambda: of_unit_norm(embeddings()),
        ("dp-signoporp-rr-smooth", "dp-oporp-staircase"),
        (0.5, 1.0, 3.0),
        SENTENCES,
    ),
    "clinc150-records": Case(
        lambda: of_unit_norm(embeddings()),
        ("record-codebook", "record-cap"),
        (6.0, 8.0, 10.0, 12.0),
        {"adjacency": dpi.record()},
        PUBLIC_RECORDS,
    ),
    "occupancy": Case(table("occupancy"), ("raw-staircase",), (1.0, 3.0, 10.0), COLUMN, 5000),
    "naval": Case(table("naval"), ("raw-staircase",), (1.0, 3.0, 10.0), COLUMN, 3000),
}


def lines(name: str, case: Case) -> list[tuple[Any, ...]]:
    vectors = case.vectors()
    order = np.random.default_rng(0).permutation(len(vectors))
    public = vectors[order[: case.public]]
    base = vectors[order[case.public : case.public + COLLECTION]]
    written = []
    for method in case.methods:
        for epsilon in case.epsilons:
            planned = dpi.plan(
                public,
                dim=vectors.shape[1],
                n=len(base),
                epsilon=epsilon,
                methods=[method],
                **case.terms,
            )
            spec = planned.best.spec
            said = planned.attacks
            as_many = base[: said.codes]
            (curve,) = dpi.evaluate(
                as_many, base[:20], [spec], runs=1, denoise="auto", query_modes=["exact"]
            )
            measured = curve.points[0].mean
            figures = (
                said.linked, measured[LINKED],
                said.reconstruction_cosine, measured["reconstruction_cosine"],
                said.guess_cosine, measured["guess_cosine"],
            )  # fmt: skip
            row = (name, method, spec.code_length, epsilon, *(f"{x:.3f}" for x in figures))
            print(*row, sep=",", flush=True)
            written.append(row)
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    print(*COLUMNS, sep=",")
    rows = [row for name in arguments.only.split(",") for row in lines(name, CASES[name])]
    if arguments.output is not None:
        with arguments.output.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerows([COLUMNS, *rows])


if __name__ == "__main__":
    main()
