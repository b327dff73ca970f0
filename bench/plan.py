"""Predicted and measured recall and precision of the planner's choices, on three data sets.

    python bench/plan.py [--folder bench/plan] [--data mnist,cifar10,clinc150]

For each data set and epsilon the planner gets 2000 public vectors that are not in the collection.
Then the recommended spec, and the best of every other method that it tried, are built on the whole
collection and searched with 500 queries. Rows that are in ``predicted.csv`` and ``measured.csv`` of
the folder are not computed again: delete the files to start over. The data are in DPINDEX_DATA.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

import dpindex as dpi
from dpindex.study import ground_truth

matplotlib.use("Agg")
from matplotlib import pyplot as plt

DATA = Path(os.environ.get("DPINDEX_DATA", Path(__file__).parents[2] / "shared" / "data"))
EPSILONS = (1.0, 2.0, 3.0, 5.0, 10.0)
METHODS = (
    "raw-square-wave",
    "raw-staircase",
    "dp-oporp-staircase",
    "dp-signoporp-rr-smooth",
    "dp-signoporp-geometric",
)
QUERIES, SAMPLE, NEIGHBOURS, CHUNK = 500, 2000, 50, 8192
MODES = ("private", "exact")
MEASURES = ("recall", "precision")
NAMES = {"recall": "recall@10 of the true 10", "precision": "precision@10 of the true 50"}
FOUND = tuple(f"{mode} {measure}" for measure in MEASURES for mode in MODES)
WHAT = ("data", "epsilon", "method", "k", "denoiser")
PREDICTED, MEASURED = (*WHAT, *FOUND, "recommended"), (*WHAT, *FOUND, "seconds")
Key = tuple[str, str, str, str, str]


@dataclass(frozen=True)
class Task:
    """A collection, queries, a public sample disjoint from both, and the public parameters."""

    base: Any
    queries: Any
    sample: Any
    terms: dict[str, Any]


def images(name: str) -> Task:
    """Attributes are pixels in [0, 1], of which one may change arbitrarily (Li & Li 2023)."""
    with np.load(DATA / f"{name}.npz") as stored:
        base, test = stored["X_train"], stored["X_test"]
    test = test[np.random.default_rng(0).permutation(len(test))]
    terms = {"scale": 255.0, "bounds": (0.0, 1.0), "adjacency": dpi.attribute(1.0)}
    return Task(base, test[:QUERIES], test[QUERIES : QUERIES + SAMPLE], terms)


def sentences() -> Task:
    """Embeddings of norm 1, clipped to ±0.25; one attribute may change arbitrarily in there."""
    with np.load(DATA / "clinc150_minilm.npz") as stored:
        embedded = stored["E"].astype(np.float32)
        corpus, asked = stored["corpus_idx"], stored["query_idx"]
    corpus = corpus[np.random.default_rng(0).permutation(len(corpus))]
    terms = {"bounds": (-0.25, 0.25), "clip": True, "adjacency": dpi.attribute(0.5)}
    base, sample = embedded[corpus[SAMPLE:]], embedded[corpus[:SAMPLE]]
    return Task(base, embedded[asked[:QUERIES]], sample, terms)


TASKS: dict[str, Callable[[], Task]] = {
    "mnist": lambda: images("mnist"),
    "cifar10": lambda: images("cifar10_gray"),
    "clinc150": sentences,
}


def read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def append(path: Path, columns: tuple[str, ...], lines: list[tuple[Any, ...]]) -> None:
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(columns)
        writer.writerows(lines)


def predict(name: str, task: Task, epsilon: float, path: Path) -> None:
    if any((r["data"], r["epsilon"]) == (name, f"{epsilon:g}") for r in read(path)):
        return
    start = time.perf_counter()
    plan = dpi.plan(
        task.sample,
        dim=task.base.shape[1],
        n=len(task.base),
        epsilon=epsilon,
        methods=METHODS,
        query="private",
        **task.terms,
    )
    print(
        f"{name}, epsilon = {epsilon:g}: planned in {time.perf_counter() - start:.0f} s", end="; "
    )
    print(plan.why, flush=True)
    lines = [
        (name, f"{epsilon:g}", row.method, row.k, row.ranking,
         *(round(getattr(row.found(mode), measure), 4) for measure in MEASURES for mode in MODES),
         int(row is plan.best))
        for row in plan.rows
    ]  # fmt: skip
    append(path, PREDICTED, lines)


def key(row: dict[str, str]) -> Key:
    return row["data"], row["epsilon"], row["method"], row["k"], row["denoiser"]


def tried(predicted: list[dict[str, str]], name: str) -> Iterator[dict[str, str]]:
    """The recommended row of each case, and the best of every other method."""
    seen = set()
    for row in sorted(predicted, key=lambda r: -int(r["recommended"])):  # else best first already
        case = row["data"], row["epsilon"], row["method"]
        if row["data"] == name and case not in seen:
            seen.add(case)
            yield row


def measure(name: str, task: Task, predicted: list[dict[str, str]], path: Path) -> None:
    done = {key(row) for row in read(path)}
    wanted = [row for row in tried(predicted, name) if key(row) not in done]
    if not wanted:
        return
    truth = ground_truth(task.base, task.queries, NEIGHBOURS)
    for row in wanted:
        start = time.perf_counter()
        spec = dpi.Spec(
            method=row["method"],
            dim=task.base.shape[1],
            k=int(row["k"]),
            epsilon=float(row["epsilon"]),
            **task.terms,
        )
        index = dpi.PrivateIndex(spec)
        for first in range(0, len(task.base), CHUNK):
            index.add(task.base[first : first + CHUNK])
        if row["denoiser"] != "plain":
            index.fit_denoiser(row["denoiser"])
        found = {mode: index.search(task.queries, k=10, query=mode).ids for mode in MODES}
        shares = [truth.recall(found[mode], 10, 10) for mode in MODES]
        shares += [truth.precision(found[mode], 10, NEIGHBOURS) for mode in MODES]
        scores = [round(float(share.mean()), 4) for share in shares]
        append(path, MEASURED, [(*key(row), *scores, round(time.perf_counter() - start, 1))])
        told = [row[name] for name in FOUND]
        print(f"{', '.join(key(row))}: predicted {told}, measured {scores}", flush=True)


def joined(folder: Path) -> list[dict[str, Any]]:
    """Every prediction that was measured, with both."""
    measured = {key(row): row for row in read(folder / "measured.csv")}
    lines = []
    for row in read(folder / "predicted.csv"):
        if key(row) in measured:
            real = measured[key(row)]
            line: dict[str, Any] = {name: row[name] for name in WHAT}
            for name in FOUND:
                line[f"predicted {name}"] = float(row[name])
                line[f"measured {name}"] = float(real[name])
            lines.append(line | {"recommended": row["recommended"] == "1"})
    return lines


def cases(lines: list[dict[str, Any]], folder: Path) -> Iterator[tuple[dict[str, Any], float]]:
    """The recommended row of each case, and the best that was measured there."""
    measured = read(folder / "measured.csv")
    for line in sorted(lines, key=lambda r: (list(TASKS).index(r["data"]), float(r["epsilon"]))):
        if line["recommended"]:
            same = [r for r in measured if all(r[c] == line[c] for c in ("data", "epsilon"))]
            yield line, max(float(r["private recall"]) for r in same)


def markdown(lines: list[dict[str, Any]], folder: Path) -> str:
    table = [
        "| data | ε | recommended | k | recall, private: predicted | measured | best tried "
        "| exact: predicted | measured | precision, private: predicted | measured "
        "| exact: predicted | measured |",
        "|---" * 13 + "|",
    ]
    within = dict.fromkeys(FOUND, 0)
    near = count = 0
    for line, best in cases(lines, folder):
        count += 1
        near += line["measured private recall"] > best - 0.05
        for what in FOUND:
            within[what] += abs(line[f"predicted {what}"] - line[f"measured {what}"]) <= 0.1
        name = line["method"] + (", denoised" if line["denoiser"] != "plain" else "")
        table.append(
            f"| {line['data']} | {line['epsilon']} | {name} | {line['k']} "
            f"| {line['predicted private recall']:.2f} | {line['measured private recall']:.2f} "
            f"| {best:.2f} "
            f"| {line['predicted exact recall']:.2f} | {line['measured exact recall']:.2f} "
            f"| {line['predicted private precision']:.2f} "
            f"| {line['measured private precision']:.2f} "
            f"| {line['predicted exact precision']:.2f} | {line['measured exact precision']:.2f} |"
        )
    summary = (
        f"The recommended spec is within 0.05 of the best recall@10 that was tried in **{near} of "
        f"{count}** cases (private queries)."
    )
    for measure in MEASURES:
        errors = [
            abs(r[f"predicted {m} {measure}"] - r[f"measured {m} {measure}"])
            for r in lines
            for m in MODES
        ]
        every = np.array(errors)
        summary += (
            f" Predicted {NAMES[measure]} of recommended specs is within 0.1 of the measured one "
            f"in **{within[f'private {measure}']} of {count}** cases with private queries and in "
            f"{within[f'exact {measure}']} of {count} with exact ones; of all {len(lines)} specs "
            f"that were both predicted and measured, in both query modes, the mean error is "
            f"{every.mean():.3f}, within 0.1 are {np.mean(every <= 0.1):.0%}, and the largest is "
            f"{every.max():.2f}."
        )
    how = (
        "Predictions are from 2000 public vectors that are neither in the collection (60 000 "
        "MNIST, 50 000 gray CIFAR-10 and 20 700 CLINC150 vectors) nor among the 500 queries. Each "
        "spec is measured once. Recall is recall@10 of the true 10 by cosine, precision is "
        "precision@10 of the true 50. ε is per attribute: "
        "β = 1 on pixels in [0, 1], β = 0.5 on embeddings clipped to ±0.25. `bench/plan.py` writes "
        "this page."
    )
    limits = (
        "Limits: the model of near neighbours was chosen with these three data sets in view, so "
        "the figures are optimistic. Predictions for sign codes of images are too high (the dots "
        "below the band), which matters where a byte budget leaves nothing else."
    )
    title = "# Predictions of the planner, compared with measurements"
    return "\n\n".join([title, how, summary, limits, "\n".join(table)]) + (
        "\n\n![predicted against measured](plan.png)\n"
    )


def picture(lines: list[dict[str, Any]], path: Path) -> None:
    figure, axes = plt.subplots(2, 2, figsize=(10, 10), layout="constrained")
    for axis, what in zip(axes.ravel(), FOUND, strict=True):
        mode, measure = what.split()
        axis.fill_between([0, 1], [-0.1, 0.9], [0.1, 1.1], color="0.93", label="within 0.1")
        for name, colour in zip(TASKS, ("#0072B2", "#D55E00", "#009E73"), strict=True):
            for chosen, marker in ((False, "o"), (True, "*")):
                some = [r for r in lines if r["data"] == name and r["recommended"] == chosen]
                axis.scatter(
                    [r[f"predicted {what}"] for r in some],
                    [r[f"measured {what}"] for r in some],
                    marker=marker, s=110 if chosen else 22, color=colour, alpha=0.8,
                    edgecolor="white", linewidth=0.4,
                    label=f"{name}, recommended" if chosen else name,
                )  # fmt: skip
        axis.set(title=f"{NAMES[measure]}, {mode} queries", xlabel="predicted", ylabel="measured")
        axis.set(xlim=(0, 1.02), ylim=(0, 1.02), aspect="equal")
    axes[0, 0].legend(loc="upper left", fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(__file__).with_suffix(""))
    parser.add_argument("--data", default=",".join(TASKS))
    parser.add_argument("--report-only", action="store_true", help="what is there, as a page")
    arguments = parser.parse_args()
    folder = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    for name in () if arguments.report_only else arguments.data.split(","):
        task = TASKS[name]()
        for epsilon in EPSILONS:
            predict(name, task, epsilon, folder / "predicted.csv")
        measure(name, task, read(folder / "predicted.csv"), folder / "measured.csv")
    lines = joined(folder)
    (folder / "plan.csv").unlink(missing_ok=True)
    append(folder / "plan.csv", tuple(lines[0]), [tuple(line.values()) for line in lines])
    (folder / "plan.md").write_text(markdown(lines, folder))
    picture(lines, folder / "plan.png")
    print(f"{folder / 'plan.md'}: {len(lines)} specs predicted and measured")


if __name__ == "__main__":
    main()
