"""Precision and recall of private retrieval against epsilon: Li & Li 2023, Figs. 10, 11, 13, 15.

    python bench/paper/retrieval.py

All training images are the base, test images the queries, both sides are private (beta = 1, delta =
1e-6 for the approximate methods), and the true neighbours are the 50 nearest by cosine. Runs
are kept one by one, so that an interrupted experiment goes on where it stopped.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from common import DELTA, arguments, draw, epsilon_axis, load, means, read_csv, style, write_csv

import dpindex as dpi
from dpindex import evaluate
from dpindex.mechanism.method_table import find_method

DATASETS = ("mnist", "cifar10_gray")
NAMES = {"mnist": "MNIST", "cifar10_gray": "gray CIFAR-10"}
KS = (512, 256)
EPSILONS = (2.0, 5.0, 10.0, 20.0, 50.0)
IDP_EPSILONS = (0.1, 1.0, 10.0)
NOISY = {
    "Raw-data-G-OPT": {"method": "raw-gaussian"},
    "DP-RP-G": {"method": "dp-rp-g"},
    "DP-RP-G-OPT": {"method": "dp-rp-g-opt"},
    "DP-RP-G-OPT-B": {"method": "dp-rp-g-opt-b"},
    "DP-OPORP": {"method": "dp-oporp"},
}
SIGNS = {
    "DP-SignOPORP-RR t=1": {"method": "dp-signoporp-rr"},
    "DP-SignOPORP-RR-smooth t=1": {"method": "dp-signoporp-rr-smooth"},
    "DP-SignOPORP-RR t=4": {"method": "dp-signoporp-rr", "variant": dpi.Repeated(4)},
    "DP-SignOPORP-RR-smooth t=4": {"method": "dp-signoporp-rr-smooth", "variant": dpi.Repeated(4)},
}
INDIVIDUAL = {
    "iDP-SignRP-G (iDP)": {"method": "idp-signrp-g"},
    "iDP-SignRP-RR (iDP)": {"method": "idp-signrp-rr"},
}
LINES: dict[str, dict[str, Any]] = {**NOISY, **SIGNS, **INDIVIDUAL}
FIGURES = {
    "fig10_11": list(NOISY),
    "fig13": ["DP-OPORP", *SIGNS],
    "fig15": ["DP-OPORP", "DP-SignOPORP-RR-smooth t=4", *INDIVIDUAL],
}
MEASURES = ("precision@10", "recall@100")


def specs_of(line: str, dim: int, k: int) -> list[dpi.Spec]:
    """One line of a figure: a spec for each epsilon."""
    row = find_method(LINES[line]["method"])
    return [
        dpi.Spec(
            dim=dim,
            k=None if row.family.keeps_all else k,
            epsilon=epsilon,
            delta=DELTA if row.needs_delta else 0.0,
            scale=255,
            bounds=(0.0, 1.0),
            adjacency=dpi.attribute(1.0),
            **LINES[line],
        )
        for epsilon in (IDP_EPSILONS if row.definition == "iDP" else EPSILONS)
    ]


def measure(data: str, k: int, lines: list[str], seed: int, queries: int) -> list[dict[str, Any]]:
    """One run of every point of some lines, projections and noise fresh."""
    images = load(data)
    named = {
        replace(spec, seed=seed): line
        for line in lines
        for spec in specs_of(line, images["X_train"].shape[1], k)
    }
    (curve,) = evaluate(
        images["X_train"],
        images["X_test"][:queries],
        named,
        runs=1,
        query_modes=["private"],
    )
    return [
        {
            "data": data,
            "k": run.spec.k if run.spec.method_row.family.keeps_all else k,
            "line": named[run.spec],
            "epsilon": run.spec.epsilon,
            "seed": seed,
            "queries": queries,
            **{name: run.values[name] for name in MEASURES},
        }
        for run in curve.runs
    ]


def fits(row: dict[str, Any], k: int) -> bool:
    """Whether a run belongs beside those of code length k: raw data keep every coordinate."""
    return bool(row["k"] == k or row["line"] == "Raw-data-G-OPT")


def picture(figure: str, lines: list[str], rows: list[dict[str, Any]]) -> None:
    shown = {row["line"] for row in rows}
    panels = [
        (data, k, name)
        for data in DATASETS
        for name in MEASURES
        for k in sorted(KS)
        if any(row["data"] == data and row["k"] == k for row in rows)
    ]

    def fill(i: int, axes: Any) -> None:
        data, k, name = panels[i]
        for j, line in enumerate(lines):
            mine = [r for r in rows if (r["data"], r["line"]) == (data, line) and fits(r, k)]
            dots = {"linestyle": ":"} if line in INDIVIDUAL else {}
            axes.errorbar(
                [row["epsilon"] for row in mine],
                [row[name] for row in mine],
                [row[f"std of {name}"] for row in mine],
                label=line,
                **style(j, **dots),
            )
        epsilon_axis(axes, EPSILONS if "fig15" not in figure else (0.1, 1.0, 5.0, 10.0, 50.0))
        axes.set_ylim(-0.02, 1.02)

    if shown & set(lines):
        titles = [f"{NAMES[data]}, k = {k}" for data, k, _ in panels]
        labels = [name for *_, name in panels]
        draw(f"{figure}.png", titles, fill, "ε for one pixel (beta = 1)", labels, columns=2)


def main() -> None:
    chosen = arguments(
        "Retrieval against epsilon.",
        data=",".join(DATASETS),
        k=",".join(map(str, KS)),
        lines=",".join(LINES),
        repetitions=10,
        queries=300,
    )
    runs = read_csv("retrieval_runs")
    units = [
        (data, int(k), seed)
        for seed in range(chosen.repetitions)
        for k in chosen.k.split(",")
        for data in chosen.data.split(",")
    ]
    for data, k, seed in [] if chosen.redraw else units:
        done = {r["line"] for r in runs if (r["data"], r["seed"]) == (data, seed) and fits(r, k)}
        if lines := [line for line in chosen.lines.split(",") if line not in done]:
            runs += measure(data, k, lines, seed, chosen.queries)
            write_csv("retrieval_runs", runs)
            print(time.strftime("%H:%M"), data, k, seed, flush=True)
    rows = write_csv("retrieval", means(runs, ("data", "k", "line", "epsilon"), MEASURES))
    for figure, lines in FIGURES.items():
        picture(figure, lines, rows)


if __name__ == "__main__":
    main()
