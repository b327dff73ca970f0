"""Record-level codes beside what people would pick instead: what is found, and what leaks.

    python bench/peers.py [--runs 3] [--folder bench/peers]

CLINC150 sentence embeddings as in ``bench/record.py``: 18 700 base vectors, 4000 public ones, 500
queries, all at norm 1; precision@10 counts the true 50 nearest. Encoding is processor time on one
thread. The attack is made on the last build of each scheme and on 1000 records; see
``bench/peers_attack.py``. The encryption needs ``pip install ironcore-alloy`` and is skipped
without it. Rows that the CSV has are not measured again; the picture is drawn of all of them.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from peers_attack import (
    COPY_COSINE,
    cosines,
    find_order,
    linked,
    noisy_copies,
    order_from_pairs,
    rebuilder,
)
from peers_schemes import (
    NEIGHBOURS,
    PURE,
    Array,
    Encryption,
    MetricNoise,
    Ours,
    Plain,
    PrivUnit,
    Scheme,
)
from record import BASE, PUBLIC, load

import dpindex as dpi

TRUE, TARGETS, PAIRS = 50, 1000, 1000
DELTA = 1e-6
COLUMNS = (
    "scheme", "setting", "epsilon", "guarantee", "exact", "private", "std exact", "bytes",
    "encode us", "rebuilt", "rebuilt with pairs", "linked", "linked with pairs",
)  # fmt: skip
EPSILONS = (6.0, 8.0, 10.0, 12.0, 16.0)
SUBSETS = {6.0: 16, 8.0: 4, 10.0: 1, 12.0: 1}
RATES = (5.0, 8.0, 50.0, 100.0, 175.0)
FACTORS = (0.6, 4.0, 10.0)
ATTRIBUTE_EPSILONS = (2.0, 6.0, 10.0)


def schemes(corpus: Array) -> list[Scheme]:
    dim = corpus.shape[1]
    record: dict[str, Any] = {"dim": dim, "adjacency": dpi.record()}
    book = dpi.Codebook(corpus[BASE : BASE + PUBLIC])
    found: list[Scheme] = [Plain()]
    if importlib.util.find_spec("ironcore_alloy"):
        found += [Encryption(factor) for factor in FACTORS]
    else:
        print("skipped: vector encryption; run pip install ironcore-alloy to measure it")
    for epsilon in ATTRIBUTE_EPSILONS:
        spec = dpi.Spec(
            method="raw-staircase", dim=dim, epsilon=epsilon, adjacency=dpi.attribute(0.5)
        )
        told = f"one attribute by 0.5, pure epsilon = {epsilon:g}; not the record"
        found.append(Ours("one attribute", f"{epsilon:g} an attribute", told, spec))
    found += [MetricNoise(rate) for rate in RATES]
    for epsilon in EPSILONS:
        spec = dpi.Spec(
            method="raw-gaussian", dim=dim, epsilon=epsilon, delta=DELTA, adjacency=dpi.l2(2.0)
        )
        told = f"any two vectors, (epsilon, {DELTA:g}), against everyone"
        found.append(Ours("Gaussian noise", f"delta {DELTA:g}", told, spec))
    found += [PrivUnit(dim, epsilon) for epsilon in EPSILONS]
    for epsilon in EPSILONS:
        spec = dpi.Spec(method="record-cap", epsilon=epsilon, k=128, **record)
        found.append(Ours("record-cap", "k=128", PURE, spec))
    for epsilon, subset in SUBSETS.items():
        spec = dpi.Spec(
            method="record-codebook", epsilon=epsilon, codebook=book, subset=subset, **record
        )
        found.append(Ours("record-codebook", f"K={PUBLIC} w={subset}", PURE, spec))
    return found


def find(scheme: Scheme, base: Array, queries: Array, true: Array) -> tuple[Any, dict[str, float]]:
    """Codes of one build, with the precision and the time it took."""
    start = time.process_time()
    codes = scheme.encode(base)
    seconds = time.process_time() - start
    found = {"encode us": 1e6 * seconds / len(base)}
    for mode in ("exact", "private"):
        ids = scheme.search(codes, queries, mode == "private").tolist()
        hits = [len(set(a) & set(b)) for a, b in zip(ids, true.tolist(), strict=True)]
        found[mode] = float(np.mean(hits)) / NEIGHBOURS
    return codes, found


def attack(scheme: Scheme, codes: Any, base: Array, public: Array) -> dict[str, float]:
    """Mean cosine of rebuilt vectors and share of records linked, without and with known pairs."""
    rng = np.random.default_rng()
    chosen = rng.permutation(len(base))
    targets, known = chosen[:TARGETS], chosen[TARGETS : TARGETS + PAIRS]
    public = rng.permutation(public)
    copies = noisy_copies(base, rng)
    readings = scheme.read(codes)
    found = {}
    for label, paired in (("", False), (" with pairs", True)):
        rebuilding = linking = np.arange(base.shape[1])
        if scheme.secret_order and paired:
            rebuilding = linking = order_from_pairs(base[known], readings[known])
        elif scheme.secret_order:
            rebuilding = find_order(lambda: scheme.imitate(public), readings)
            linking = find_order(lambda: scheme.imitate(copies / COPY_COSINE), readings)
        pairs = (base[known], readings[known][:, rebuilding]) if paired else None
        rebuild = rebuilder(scheme, public, pairs)
        rebuilt = rebuild(readings[targets][:, rebuilding])
        found[f"rebuilt{label}"] = float(cosines(rebuilt, base[targets]).mean())
        if scheme.secret_order:
            rebuilt = rebuild(readings[targets][:, linking])
        found[f"linked{label}"] = linked(
            readings[targets][:, linking], rebuilt, copies, targets, scheme
        )
    return found


def measure(runs: int, path: Path) -> None:
    corpus, queries = load()
    base, public = corpus[:BASE], corpus[BASE : BASE + PUBLIC]
    true = np.argsort(-(queries @ base.T), axis=1)[:, :TRUE]
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        path.write_text(",".join(COLUMNS) + "\n")
    with path.open(newline="") as file:
        done = {tuple(row[:3]) for row in csv.reader(file)}
    for scheme in schemes(corpus):
        epsilon = "none" if math.isinf(scheme.epsilon) else f"{scheme.epsilon:g}"
        if (scheme.family, scheme.setting, epsilon) in done:
            continue
        builds = []
        for _ in range(runs):
            codes, found = find(scheme, base, queries, true)
            builds.append(found)
        row = {name: float(np.mean([build[name] for build in builds])) for name in builds[0]}
        row["std exact"] = float(np.std([build["exact"] for build in builds]))
        row |= attack(scheme, codes, base, public)
        facts: dict[str, Any] = {name: round(value, 4) for name, value in row.items()}
        facts |= {"scheme": scheme.family, "setting": scheme.setting, "epsilon": epsilon}
        facts |= {"guarantee": scheme.guarantee, "bytes": scheme.size(codes)}
        with path.open("a", newline="") as file:
            csv.DictWriter(file, COLUMNS, lineterminator="\n").writerow(facts)
        print(*(facts[name] for name in COLUMNS), sep=", ", flush=True)


STYLES = {
    "record-codebook": ("#d62728", "o", (-8, 8)),
    "record-cap": ("#ff7f0e", "s", None),
    "PrivUnit": ("#1f77b4", "^", (12, -12)),
    "Gaussian noise": ("#9467bd", "v", None),
    "metric-DP noise": ("#8c564b", "D", (6, -14)),
    "one attribute": ("#7f7f7f", "P", None),
    "vector encryption": ("#2ca02c", "X", None),
    "no protection": ("#000000", "*", None),
}
"""Colour, marker, and where epsilon stands beside the marker, in points."""
LEAST_LABELLED = 0.1


def draw(table: Path, path: Path) -> None:
    """Precision by promise, by records linked, and by vectors rebuilt."""
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    figure = Figure(figsize=(17, 5.8), layout="constrained")
    promise, link, rebuild = figure.subplots(1, 3)
    for family, (colour, marker, _) in STYLES.items():
        own = [row for row in rows if row["scheme"] == family]
        promised = [row for row in own if row["epsilon"] != "none"]
        shown = [row for row in promised if float(row["epsilon"]) <= max(EPSILONS)]
        epsilons = [float(row["epsilon"]) for row in shown]
        for mode, line in (("exact", "-"), ("private", ":")):
            found = [float(row[mode]) for row in shown]
            promise.plot(epsilons, found, line, color=colour, marker=marker)
    promise.set(xlabel="epsilon promised for any two vectors", ylabel="precision@10")
    promise.set_title("Same promise: exact queries solid, private dotted")
    _leaks(link, rows, "linked", least=1 / BASE)
    link.set(
        xscale="log",
        xlim=(3e-5, 5),
        xlabel="share of records linked to a noisy copy (left edge: none)",
    )
    _leaks(rebuild, rows, "rebuilt", least=0.0)
    rebuild.set_xlabel("mean cosine of the rebuilt vector with the true one")
    for axes in (promise, link, rebuild):
        axes.set_ylim(-0.04, 1.07)
        axes.grid(alpha=0.3)
    handles = [
        Line2D([], [], color=colour, marker=marker, linestyle="", label=family)
        for family, (colour, marker, _) in STYLES.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=8, frameon=False)
    figure.savefig(path, dpi=110)


def _leaks(axes: Any, rows: list[dict[str, str]], column: str, least: float) -> None:
    for row in rows:
        colour, marker, offset = STYLES[row["scheme"]]
        exact = float(row["exact"])
        alone, paired = (max(float(row[c]), least) for c in (column, f"{column} with pairs"))
        axes.scatter(alone, exact, 45, marker=marker, color=colour, zorder=3)
        axes.scatter(
            paired, exact, 110, marker=marker, facecolors="none", edgecolors=colour, zorder=3
        )
        if offset and column == "linked" and exact > LEAST_LABELLED:
            axes.annotate(
                f"ε = {row['epsilon']}",
                (alone, exact),
                offset,
                textcoords="offset points",
                fontsize=9,
                color=colour,
                ha="right" if offset[0] < 0 else "left",
            )
    axes.set(ylabel="precision@10, exact queries")
    axes.set_title("Filled: no known pairs; hollow: 1000 of them")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("bench/peers"))
    chosen = parser.parse_args()
    table = chosen.folder / "clinc150.csv"
    measure(chosen.runs, table)
    draw(table, chosen.folder / "peers.png")


if __name__ == "__main__":
    main()
