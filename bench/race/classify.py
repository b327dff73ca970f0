"""Classification: accuracy against epsilon, beside non-private ceilings and one private peer.

    python bench/race/classify.py

RACE keeps one sketch a class. Ceilings: the same sketches without noise, and scikit-learn's
logistic regression. Peer: diffprivlib's logistic regression (objective perturbation), if installed.
Scales and hashes are fixed constants (units of the sensors, bytes), not tuned per epsilon.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from common import (
    Array,
    arguments,
    ceiling,
    draw,
    line,
    load,
    peer,
    show,
    silenced,
    split,
    write_csv,
)
from sklearn.linear_model import LogisticRegression

from dpindex.race import SRP, Hash, PStable, RaceClassifier, RaceSketch, SketchSpec

EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
MNIST_RECORDS = 20_000
"""A third of the training set: the peer takes minutes on all of it."""

PEER = "diffprivlib logistic regression"


@dataclass(frozen=True)
class Task:
    """Scaled records and labels to learn from and to judge by, and a bound on their norms."""

    name: str
    x: Array
    y: Any
    new_x: Array
    new_y: Any
    hash: Hash
    rule: Literal["ml", "map"]
    width: int
    norm: float


def tasks() -> Iterator[Task]:
    occupancy = load("tab_occupancy")
    x = (occupancy["X"] - [20, 25, 0, 400, 0]) / [2.0, 10.0, 200.0, 500.0, 0.002]
    first = occupancy["split"] == 0
    y = occupancy["y"]
    hash = PStable(2.0, hashes=4)
    yield Task("occupancy", x[first], y[first], x[~first], y[~first], hash, "map", 200, 10.0)
    skin = load("tab_skin")
    x, y = (skin["X"] - 127.5) / 127.5, skin["y"]
    a, b = split(len(x), 20_000, seed=0)
    yield Task("skin", x[a], y[a], x[b], y[b], PStable(0.3, hashes=2), "map", 500, 3**0.5)
    digits = load("mnist")
    yield Task(
        "MNIST, 20 000 records",
        digits["X_train"][:MNIST_RECORDS] / 255.0,
        digits["y_train"][:MNIST_RECORDS],
        digits["X_test"] / 255.0,
        digits["y_test"],
        SRP(8),
        "ml",
        256,
        10.0,
    )


class NoiselessClassifier(RaceClassifier):
    """The ceiling: the same classifier, not private."""

    def new_sketch(self, spec: SketchSpec) -> RaceSketch:
        return silenced(super().new_sketch(spec))


def accuracy(model: Any, task: Task) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # convergence, and the peer's dated scipy calls
        return float(model.fit(task.x, task.y).score(task.new_x, task.new_y))


def judge(task: Task, repetitions: int, private_peer: Any) -> Iterator[dict[str, object]]:
    """One row of the table for each method and epsilon."""
    options: dict[str, Any] = {"rule": task.rule, "rows": 100, "width": task.width}
    options["classes"] = np.unique(np.concatenate([task.y, task.new_y]))  # public in these data

    def row(
        method: str, epsilon: float, make: Callable[[int], Any], times: int
    ) -> dict[str, object]:
        found = [accuracy(make(seed), task) for seed in range(times)]
        mean, spread = float(np.mean(found)), float(np.std(found))
        facts = {"data": task.name, "method": method, "epsilon": epsilon}
        return {**facts, "mean": mean, "spread": spread}

    yield row(
        "RACE without noise",
        0.0,
        lambda seed: NoiselessClassifier(task.hash, seed=seed, **options),
        repetitions,
    )
    yield row("logistic regression", 0.0, lambda seed: LogisticRegression(max_iter=30), 1)
    for epsilon in EPSILONS:
        yield row(
            "RACE",
            epsilon,
            lambda seed, epsilon=epsilon: RaceClassifier(  # type: ignore[misc]
                task.hash, epsilon=epsilon, seed=seed, **options
            ),
            repetitions,
        )
        if private_peer is not None:
            yield row(
                PEER,
                epsilon,
                lambda seed, epsilon=epsilon: private_peer(  # type: ignore[misc]
                    epsilon=epsilon, data_norm=task.norm, max_iter=30
                ),
                repetitions,
            )


def main() -> None:
    chosen = arguments("Classification against epsilon.", repetitions=3)
    private_peer = peer("LogisticRegression")
    rows = [row for task in tasks() for row in judge(task, chosen.repetitions, private_peer)]
    if private_peer is None:
        print(f"{PEER}: not installed; see bench/race/requirements.txt")
    show(rows)
    write_csv(chosen.output / "classify.csv", rows)
    names = list(dict.fromkeys(str(row["data"]) for row in rows))

    def fill(i: int, axes: Any) -> None:
        mine = [row for row in rows if row["data"] == names[i]]
        ceiling(axes, float(str(mine[0]["mean"])), "RACE without noise")
        ceiling(
            axes, float(str(mine[1]["mean"])), "logistic regression, not private", ":", "#777777"
        )
        line(axes, mine, "epsilon", "RACE", 0)
        if private_peer is not None:
            line(axes, mine, "epsilon", PEER, 1)
        axes.set_xscale("log")

    missing = "" if private_peer is not None else f" ({PEER}: not installed)"
    draw(
        chosen.output / "classify.png",
        names,
        fill,
        "epsilon, for one record added or removed",
        f"accuracy on held-out records{missing}",
    )


if __name__ == "__main__":
    main()
