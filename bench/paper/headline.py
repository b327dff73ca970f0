"""The headline figure: precision@10 against epsilon on MNIST, the papers' best and ours.

    python bench/paper/headline.py

The same adjacency (one pixel, beta = 1) and the same epsilon for every line; the papers' Gaussian
also spends delta = 1e-6, ours nothing. The papers' projections have k = 256, the better of the two
lengths in ``retrieval.py``. Left both sides are private, right the searcher keeps the query. Runs
are kept one by one, so that an interrupted experiment goes on where it stopped.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from common import (
    COLOURS,
    DELTA,
    RESULTS,
    arguments,
    draw,
    epsilon_axis,
    load,
    means,
    read_csv,
    write_csv,
)

import dpindex as dpi
from dpindex.study import ground_truth

EPSILONS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
LINES: dict[str, tuple[dict[str, Any], bool]] = {
    "ours: designed projection, denoised": ({"method": "dp-designed-laplace"}, True),
    "ours: square wave, denoised": ({"method": "raw-square-wave"}, True),
    "ours: OPORP-staircase, denoised": ({"method": "dp-oporp-staircase", "k": 392}, True),
    "ours: OPORP-staircase": ({"method": "dp-oporp-staircase", "k": 392}, False),
    "papers: DP-SignOPORP-RR-smooth": (
        {"method": "dp-signoporp-rr-smooth", "k": 256, "variant": dpi.Repeated(4)},
        False,
    ),
    "papers: DP-OPORP (δ = 1e-6)": ({"method": "dp-oporp", "k": 256, "delta": DELTA}, False),
    "papers: Raw-data-G-OPT (δ = 1e-6)": ({"method": "raw-gaussian", "delta": DELTA}, False),
}
"""What is measured: a spec without its epsilon, and whether the denoiser is fitted."""

NOT_DRAWN: dict[str, tuple[dict[str, Any], bool]] = {
    f"{line}, denoised": (LINES[line][0], True)
    for line in ("papers: DP-SignOPORP-RR-smooth", "papers: DP-OPORP (δ = 1e-6)")
}
"""What our denoiser makes of the papers' codes, for the page beside the figure."""

MEASURED = {**NOT_DRAWN, **LINES}
LEAST, MAX_DENOISED = 1.0, 10.0
LEAST_DESIGNED, MAX_DESIGNED = 0.5, 5.0
PUBLIC = slice(5000, 7000)
"""Test images that a design is made from; the queries are the first ones."""

MODES = {"private": "both sides private", "exact": "the searcher keeps the query"}
PUBLISHED = Path(__file__).parents[2] / "docs" / "headline.png"


def is_measured(line: str, epsilon: float) -> bool:
    """Designs are for small epsilons, and with a large one nothing is left to denoise."""
    options, denoise = MEASURED[line]
    if options["method"] == "dp-designed-laplace":
        return LEAST_DESIGNED <= epsilon <= MAX_DESIGNED
    return LEAST <= epsilon <= (MAX_DENOISED if denoise else max(EPSILONS))


def measure(
    base: Any, queries: Any, truth: Any, public: Any, line: str, epsilon: float, seed: int
) -> dict[str, Any]:
    """Precision@10 of one build, in either mode."""
    options, denoise = MEASURED[line]
    if options["method"] == "dp-designed-laplace":
        made = dpi.design(public, epsilon=epsilon, beta=1.0, scale=255, seed=seed)
        options = {**options, "design": made}
    spec = dpi.Spec(
        dim=base.shape[1],
        epsilon=epsilon,
        scale=255,
        bounds=(0.0, 1.0),
        seed=seed,
        adjacency=dpi.attribute(1.0),
        **options,
    )
    index = dpi.PrivateIndex(spec)
    index.add(base)
    if denoise:
        index.fit_denoiser()
    row: dict[str, Any] = {"line": line, "epsilon": epsilon, "seed": seed, "queries": len(queries)}
    for mode in ("private", "exact"):
        found = index.search(queries, k=10, query=mode).ids
        row[mode] = float(truth.precision(found, 10, 50).mean())
    return row


def picture(rows: list[dict[str, Any]]) -> None:
    modes = list(MODES)

    def fill(i: int, axes: Any) -> None:
        for j, line in enumerate(LINES):
            mine = [row for row in rows if row["line"] == line]
            ours = line.startswith("ours")
            axes.errorbar(
                [row["epsilon"] for row in mine],
                [row[modes[i]] for row in mine],
                [row[f"std of {modes[i]}"] for row in mine],
                color=COLOURS[j],
                marker="o" if ours else "s",
                markersize=5,
                linewidth=2.2 if ours else 1.5,
                linestyle="-" if ours else "--",
                label=line,
            )
        epsilon_axis(axes, EPSILONS)
        axes.set_ylim(0, 1.02)

    label = "precision@10 (of 50 true neighbours)"
    draw("headline.png", list(MODES.values()), fill, "ε for one pixel (MNIST, beta = 1)", label)
    PUBLISHED.parent.mkdir(exist_ok=True)
    shutil.copyfile(RESULTS / "headline.png", PUBLISHED)


def main() -> None:
    chosen = arguments("The headline figure.", repetitions=10, queries=300)
    runs = read_csv("headline_runs")
    done = {(run["line"], run["epsilon"], run["seed"]) for run in runs}
    wanted = [
        (line, epsilon, seed)
        for seed in range(chosen.repetitions)
        for line in reversed(MEASURED)  # those that need no fit come first
        for epsilon in EPSILONS
        if is_measured(line, epsilon)
    ]
    todo = [] if chosen.redraw else [unit for unit in wanted if unit not in done]
    if todo:
        images = load("mnist")
        base, queries = images["X_train"], images["X_test"][: chosen.queries]
        public = images["X_test"][PUBLIC]
        truth = ground_truth(base, queries, 50)
    for line, epsilon, seed in todo:
        runs.append(measure(base, queries, truth, public, line, epsilon, seed))
        write_csv("headline_runs", runs)
        print(time.strftime("%H:%M"), runs[-1], flush=True)
    picture(write_csv("headline", means(runs, ("line", "epsilon"), list(MODES))))


if __name__ == "__main__":
    main()
