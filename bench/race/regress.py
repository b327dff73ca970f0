"""Linear regression: held-out error against epsilon, beside least squares and one private peer.

    python bench/race/regress.py

Error is the mean squared error over the variance of the target: 1 is what predicting the mean
gets, and no line can be below least squares by much. A second ceiling is the same sketch released
without noise: what lies between the two is the sketch's doing, not privacy's. Peer: diffprivlib's
linear regression (functional mechanism), if installed, with the same public ranges. The ranges are
those of the published data sets, taken as public here; so is the choice to leave out constant
columns.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

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
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from dpindex.race import RaceRegressor, RaceSketch, SketchSpec

EPSILONS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
PEER = "diffprivlib linear regression"
SLACK = "RACE, delta = 1e-6"
PURE = "RACE, pure"
PUBLISHED = "RACE, delta = 1e-6, published solver"
DELTA_ROWS = 10_000


class NoiselessRegressor(RaceRegressor):
    """The ceiling: the same regressor, not private."""

    def new_sketch(self, spec: SketchSpec) -> RaceSketch:
        return silenced(super().new_sketch(spec))


def data() -> dict[str, tuple[Array, Array]]:
    airfoil, naval = load("tab_airfoil"), load("tab_naval")
    found = {}
    for name, x, y in (
        ("airfoil", airfoil["X"], airfoil["y"]),
        ("naval", naval["X"], naval["y_turbine"]),
    ):
        wide = x.astype(float)
        found[name] = (
            wide[:, np.ptp(wide, axis=0) > 1e-9 * np.abs(wide).max(axis=0)],
            y.astype(float),
        )
    return found


def _scaler(low: Any, high: Any) -> MinMaxScaler:
    """To [−1, 1] by public ranges, which it is told and does not look up in the records."""
    return MinMaxScaler((-1, 1)).fit(np.array([low, high]).reshape(2, -1))


def judge(
    name: str, x: Array, y: Array, repetitions: int, private_peer: Any
) -> Iterator[dict[str, object]]:
    """One row of the table for each method and epsilon."""
    bounds: dict[str, Any] = {
        "bounds_x": (x.min(axis=0), x.max(axis=0)),
        "bounds_y": (y.min(), y.max()),
    }

    def error(model: Any, seed: int) -> float:
        inside, outside = split(len(x), len(x) // 5, seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the peer's dated scipy calls
            predicted = model.fit(x[inside], y[inside]).predict(x[outside])
        return float(np.mean((predicted - y[outside]) ** 2) / np.var(y[outside]))

    def models(epsilon: float, seed: int) -> dict[str, Any]:
        slack = {"epsilon": epsilon, "delta": 1e-6, "rows": DELTA_ROWS, "seed": seed, **bounds}
        few = int(np.clip(epsilon * len(x) / 5, 50, 5000))
        made: dict[str, Any] = {
            PURE: RaceRegressor(epsilon=epsilon, rows=few, seed=seed, **bounds),
            SLACK: RaceRegressor(**slack),
            PUBLISHED: RaceRegressor(solver="surrogate", **slack),
        }
        if private_peer is not None:
            # Scaled by the same public ranges: in raw units its noise is far worse.
            linear = private_peer(epsilon=epsilon, bounds_X=(-1, 1), bounds_y=(-1, 1))
            made[PEER] = TransformedTargetRegressor(
                make_pipeline(_scaler(*bounds["bounds_x"]), linear),
                transformer=_scaler(*bounds["bounds_y"]),
                check_inverse=False,
            )
        return made

    def row(method: str, epsilon: float, errors: list[float]) -> dict[str, object]:
        middle, spread = float(np.median(errors)), float(np.std(errors))
        facts = {"data": name, "method": method, "epsilon": epsilon}
        return {**facts, "mean": middle, "spread": spread}

    def noiseless(seed: int) -> NoiselessRegressor:
        return NoiselessRegressor(rows=DELTA_ROWS, seed=seed, **bounds)

    yield row("least squares", 0.0, [error(LinearRegression(), s) for s in range(repetitions)])
    yield row("RACE without noise", 0.0, [error(noiseless(s), s) for s in range(repetitions)])
    for epsilon in EPSILONS:
        for method in models(epsilon, 0):
            errors = [error(models(epsilon, s)[method], s) for s in range(repetitions)]
            yield row(method, epsilon, errors)


def main() -> None:
    chosen = arguments("Linear regression against epsilon.", repetitions=5)
    private_peer = peer("LinearRegression")
    rows = [
        row
        for name, (x, y) in data().items()
        for row in judge(name, x, y, chosen.repetitions, private_peer)
    ]
    if private_peer is None:
        print(f"{PEER}: not installed; see bench/race/requirements.txt")
    show(rows)
    write_csv(chosen.output / "regress.csv", rows)
    names = list(dict.fromkeys(str(row["data"]) for row in rows))

    def fill(i: int, axes: Any) -> None:
        mine = [row for row in rows if row["data"] == names[i]]
        ceiling(axes, float(str(mine[0]["mean"])), "least squares, not private")
        ceiling(axes, float(str(mine[1]["mean"])), "RACE without noise", "-.", "#5B4A9E")
        ceiling(axes, 1.0, "predicting the mean", ":", "#777777")
        methods = list(dict.fromkeys(str(row["method"]) for row in mine[2:]))
        for j, method in enumerate(methods):
            line(axes, mine, "epsilon", method, j)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_ylim(0.05, 20)  # what lies above is worse than useless by any factor

    missing = "" if private_peer is not None else f"\n({PEER}: not installed)"
    draw(
        chosen.output / "regress.png",
        names,
        fill,
        "epsilon, for one record added or removed",
        f"median of error / variance of the target{missing}",
    )


if __name__ == "__main__":
    main()
