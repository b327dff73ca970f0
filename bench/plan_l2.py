"""The cost of hiding a whole record: precision@10 under l2 adjacency, measured and predicted.

    python bench/plan_l2.py [--folder bench/plan]

CLINC150 sentence embeddings of norm 1, 384 attributes, delta = 1e-6. Radius 2 hides the record from
everyone: any unit vector is a neighbour of any other. Radius 0.5 hides it among vectors of cosine
0.875 and more. Data are found through DPINDEX_DATA; one build each.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from plan import CHUNK, MODES, NEIGHBOURS, append, key, plt, read, sentences

import dpindex as dpi
from dpindex.study.evaluate import ground_truth

EPSILONS = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 64.0)
PLANNED = (5.0, 20.0, 64.0)
DELTA = 1e-6
LINES: tuple[tuple[float, str, int, str], ...] = (
    (2.0, "raw-gaussian", 384, "auto"),
    (2.0, "raw-gaussian", 384, "plain"),
    (2.0, "row-oporp-g", 192, "auto"),
    (0.5, "raw-gaussian", 384, "auto"),
    (0.5, "raw-gaussian", 384, "plain"),
)
"""Radius, method, length, and how codes are ranked."""

COLUMNS = ("data", "epsilon", "method", "k", "denoiser", *MODES, "seconds")


def spec(radius: float, method: str, k: int, epsilon: float) -> dpi.Spec:
    return dpi.Spec(
        method=method, dim=384, k=k, epsilon=epsilon, delta=DELTA, adjacency=dpi.l2(radius)
    )


def measure(path: Path) -> None:
    """Append a line for each spec that has none; the radius is part of the data's name."""
    done = {key(row) for row in read(path)}
    task = sentences()
    truth = ground_truth(task.base, task.queries, NEIGHBOURS)
    for radius, method, k, denoiser in LINES:
        for epsilon in EPSILONS:
            name = (f"clinc150, radius {radius:g}", f"{epsilon:g}", method, str(k), denoiser)
            if name in done:
                continue
            start = time.perf_counter()
            index = dpi.PrivateIndex(spec(radius, method, k, epsilon))
            for first in range(0, len(task.base), CHUNK):
                index.add(task.base[first : first + CHUNK])
            if denoiser != "plain":
                try:
                    index.fit_denoiser()
                except dpi.InputError as error:  # nothing but noise
                    print(f"{', '.join(name)}: {error}")
            found = {mode: index.search(task.queries, k=10, query=mode).ids for mode in MODES}
            scores = [
                round(float(truth.precision(found[mode], 10, NEIGHBOURS).mean()), 4)
                for mode in MODES
            ]
            append(path, COLUMNS, [(*name, *scores, round(time.perf_counter() - start, 1))])
            print(", ".join(name), scores, flush=True)


def predict(path: Path) -> None:
    """The planner's prediction for the best method at radius 2, for each query mode."""
    done = {(row["epsilon"], row["query"]) for row in read(path)}
    task = sentences()
    for epsilon in PLANNED:
        for query in MODES:
            if (f"{epsilon:g}", query) in done:
                continue
            best = dpi.plan(
                dim=384, n=len(task.base), epsilon=epsilon, delta=DELTA, adjacency=dpi.l2(2.0),
                public_sample=task.sample, query=query, methods=("raw-gaussian", "row-oporp-g"),
            ).best  # fmt: skip
            line = (
                f"{epsilon:g}",
                query,
                best.method,
                best.k,
                round(best.found(query).precision, 4),
            )
            append(path, ("epsilon", "query", "method", "k", "predicted"), [line])


def picture(measured: list[dict[str, Any]], predicted: list[dict[str, Any]], path: Path) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(10.5, 4.6), sharey=True)
    colours = ("#56B4E9", "#0072B2", "#D55E00", "#66C2A5", "#00795C")
    for axis, mode in zip(axes, MODES, strict=True):
        for (radius, method, k, denoiser), colour in zip(LINES, colours, strict=True):
            line = sorted(
                (float(r["epsilon"]), float(r[mode]))
                for r in measured
                if (r["data"], r["method"], r["k"], r["denoiser"])
                == (f"clinc150, radius {radius:g}", method, str(k), denoiser)
            )
            plain = denoiser == "plain"
            words = f"{method}, k = {k}, radius {radius:g}" + ("" if plain else ", denoised")
            style = "o-" if plain else "o:"
            axis.plot(*zip(*line, strict=True), style, ms=4, color=colour, label=words)
        told = [
            (float(r["epsilon"]), float(r["predicted"])) for r in predicted if r["query"] == mode
        ]
        axis.plot(*zip(*told, strict=True), "k*", ms=9, label="planner's best, radius 2")
        axis.set(xscale="log", xlabel="ε under l2 adjacency, δ = 1e-6", title=f"{mode} queries")
        axis.set_xticks(EPSILONS, [f"{e:g}" for e in EPSILONS])
        axis.minorticks_off()
        axis.grid(color="0.92")
    axes[0].set_ylabel("precision@10, CLINC150")
    axes[0].set_ylim(-0.02, 1.02)
    axes[0].legend(loc="upper left", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(__file__).with_name("plan"))
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    measure(folder / "record-level.csv")
    predict(folder / "record-level-predicted.csv")
    picture(
        read(folder / "record-level.csv"),
        read(folder / "record-level-predicted.csv"),
        folder / "record-level.png",
    )


if __name__ == "__main__":
    main()
