"""What denoising buys: precision@10 by data, epsilon, method and denoiser, and what it costs.

    python bench/denoise.py [--data mnist …] [--epsilons 1 2 …] [--methods …] [--runs 5]

Every run has its own public seed and fresh noise; 500 queries, precision@10 against the true 50 by
cosine. Runs are appended to ``runs.csv`` as they end and are not repeated, so the table can be
measured in parts; table and figure are drawn from all runs in the file. Seconds are processor time
of all threads, as the machine may be busy with other work.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dpindex import InputError, PrivateIndex, Privatizer, Spec, attribute

DATA = Path(os.environ.get("DPINDEX_DATA", Path(__file__).parents[2] / "shared" / "data"))
COLUMNS = (
    "data", "epsilon", "method", "denoiser", "seed", "private", "exact", "fit_seconds",
    "apply_seconds", "chosen", "iterations", "components", "rebuilt",
)  # fmt: skip
QUERIES, TRUE = 500, 50
TITLES = {"mnist": "MNIST", "cifar10_gray": "gray CIFAR-10", "clinc150_minilm": "CLINC150"}
DEFAULTS = {"mnist": (1, 2, 3, 5), "cifar10_gray": (1, 2, 3, 5), "clinc150_minilm": (1, 2, 3, 5)}
METHODS = ("raw-square-wave-narrow", "raw-square-wave", "raw-staircase", "dp-oporp-staircase")
DENOISERS = ("none", "linear", "auto")
ABLATIONS: dict[str, dict[str, Any]] = {
    "score": {},
    "score, one Gaussian": {"COMPONENTS": (1, 1)},
    "score, 4 Gaussians": {"COMPONENTS": (4, 4)},
    "score, one iteration": {"MAX_ITERATIONS": 1},
}
"""The score denoiser with a part left out: constants of ``dpindex.decode.fit``."""


def load(name: str) -> tuple[Any, Any, dict[str, Any]]:
    """Base, queries and the public facts that stand in a spec."""
    path = DATA / f"{name}.npz"
    if not path.is_file():
        sys.exit(f"{path} is not there: set DPINDEX_DATA to the directory that holds it.")
    with np.load(path) as archive:
        if "X_train" in archive:
            facts = {"scale": 255.0, "bounds": (0.0, 1.0)}
            return archive["X_train"], archive["X_test"][:QUERIES], facts
        x = archive["E"].astype(np.float32)
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        facts = {"bounds": (-0.5, 0.5), "clip": True}
        return x[archive["corpus_idx"]], x[archive["query_idx"][:QUERIES]], facts


def nearest(base: Any, queries: Any) -> Any:
    units = [np.asarray(x, dtype=np.float32) for x in (base, queries)]
    units = [x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9) for x in units]
    return np.argpartition(-(units[1] @ units[0].T), TRUE, axis=1)[:, :TRUE]


def precision(index: PrivateIndex, queries: Any, true: Any) -> float:
    found = index.search(queries, k=10).ids
    return float(np.mean([np.isin(a, b).mean() for a, b in zip(found, true, strict=True)]))


@contextmanager
def constants(changed: dict[str, Any]) -> Iterator[None]:
    module = importlib.import_module("dpindex.decode.fit")
    before = {name: getattr(module, name) for name in changed}
    for name, value in changed.items():
        setattr(module, name, value)
    yield
    for name, value in before.items():
        setattr(module, name, value)


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    result = action()
    return time.process_time() - start, result


def rebuilt(estimate: Any, index: PrivateIndex, base: Any) -> float:
    """Squared error of denoised vectors over that of the collection's own mean vector."""
    truth = Privatizer(index.spec).project(base) * index.spec.step
    return float(((estimate - truth) ** 2).mean() / truth.var(axis=0).mean())


def measure(
    spec: Spec, base: Any, queries: Any, true: Any, denoisers: list[str]
) -> Iterator[dict[str, Any]]:
    """One run: the same codes, ranked as they are and with each denoiser."""
    privatizer = Privatizer(spec)
    codes, asked = privatizer.privatize(base), privatizer.privatize(queries)
    for name in denoisers:
        index = PrivateIndex(spec)
        index.add_codes(codes)
        row: dict[str, Any] = {"denoiser": name, "seed": spec.seed}
        if name != "none":
            kind: Any = name if name in ("linear", "auto") else "score"
            try:
                with constants(ABLATIONS.get(name, {})):
                    seconds, denoiser = timed(partial(index.fit_denoiser, kind))
            except InputError as error:
                print("  ", name, error, flush=True)
                continue
            apply, estimate = timed(partial(denoiser, codes))
            last = denoiser.iterations[-1].filter if denoiser.iterations else denoiser.linear
            row |= {
                "fit_seconds": seconds,
                "apply_seconds": apply,
                "chosen": denoiser.kind,
                "iterations": len(denoiser.iterations),
                "components": last.prior.components,
                "rebuilt": rebuilt(estimate[:2000], index, base[:2000]),
            }
        row |= {
            "private": precision(index, asked, true),
            "exact": precision(index, queries, true),
        }
        yield row


def write_table(runs: list[dict[str, str]], path: Path) -> None:
    """Means over runs, and the standard deviation of the private precision."""
    groups: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for run in runs:
        key = tuple(run[c] for c in ("data", "epsilon", "method", "denoiser"))
        groups.setdefault(key, []).append(run)
    lines = [
        "| data | ε | method | denoiser | precision@10 both private | exact query | "
        "rebuilt error | fit s | apply s | runs |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]

    def order(key: tuple[str, ...]) -> tuple[Any, ...]:
        known = [*DENOISERS, *ABLATIONS]
        return list(TITLES).index(key[0]), float(key[1]), key[2], known.index(key[3])

    for key in sorted(groups, key=order):
        group = groups[key]

        def mean(column: str, form: str, group: list[dict[str, str]] = group) -> str:
            values = [float(run[column]) for run in group if run[column]]
            return form.format(statistics.fmean(values)) if values else "–"

        private = [float(run["private"]) for run in group]
        spread = f" ± {statistics.stdev(private):.3f}" if len(private) > 1 else ""
        chosen = {run["chosen"] for run in group} if key[3] == "auto" else set()
        name = f"auto: {', '.join(sorted(chosen))}" if chosen else key[3]
        lines.append(
            f"| {TITLES[key[0]]} | {float(key[1]):g} | {key[2]} | {name} | "
            f"{mean('private', '{:.3f}')}{spread} | {mean('exact', '{:.3f}')} | "
            f"{mean('rebuilt', '{:.3f}')} | {mean('fit_seconds', '{:.1f}')} | "
            f"{mean('apply_seconds', '{:.1f}')} | {len(group)} |"
        )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def draw(runs: list[dict[str, str]], path: Path) -> None:
    from matplotlib.figure import Figure

    shown = [name for name in TITLES if any(run["data"] == name for run in runs)]
    figure = Figure(figsize=(5.2 * len(shown), 5.2), layout="constrained")
    panels = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    colours = dict(zip(METHODS, ("#0072B2", "#56B4E9", "#D55E00", "#009E73"), strict=True))
    marks = {"none": (":", "o"), "linear": ("--", "s"), "auto": ("-", "D")}
    words = {
        "none": "codes as they are",
        "linear": "linear denoiser",
        "auto": "chosen from the codes",
    }
    for panel, data in zip(panels, shown, strict=True):
        for method, colour in colours.items():
            for denoiser, (style, mark) in marks.items():
                by_epsilon: dict[float, list[float]] = {}
                for run in runs:
                    if (run["data"], run["method"], run["denoiser"]) == (data, method, denoiser):
                        by_epsilon.setdefault(float(run["epsilon"]), []).append(
                            float(run["private"])
                        )
                if by_epsilon:
                    x = sorted(by_epsilon)
                    y = [statistics.fmean(by_epsilon[e]) for e in x]
                    label = f"{method}, {words[denoiser]}"
                    panel.plot(x, y, style, marker=mark, color=colour, ms=5, label=label)
        panel.set(xscale="log", ylim=(0, 1.02), title=TITLES[data])
        panel.set_xlabel("ε under attribute(beta=1)")
        ticks = sorted({float(run["epsilon"]) for run in runs if run["data"] == data})
        panel.set_xticks(ticks, [f"{e:g}" for e in ticks])
        panel.minorticks_off()
        panel.grid(alpha=0.25)
    panels[0].set_ylabel("precision@10 of 50 true neighbours, query and data private")
    entries = {}
    for panel in panels:
        handles, labels = panel.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    figure.legend(
        entries.values(), entries, loc="outside lower center", ncols=3, fontsize=8.5, frameon=False
    )
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", nargs="*", default=list(TITLES), choices=list(TITLES))
    parser.add_argument("--epsilons", nargs="*", type=float)
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument(
        "--denoisers", nargs="*", default=list(DENOISERS), choices=[*DENOISERS, *ABLATIONS]
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(""))
    chosen = parser.parse_args()
    chosen.output.mkdir(parents=True, exist_ok=True)
    table = chosen.output / "runs.csv"
    if not table.exists():
        table.write_text(",".join(COLUMNS) + "\n")

    def runs() -> list[dict[str, str]]:
        with table.open(newline="") as file:
            return list(csv.DictReader(file))

    done = {
        tuple(run[c] for c in ("data", "epsilon", "method", "denoiser", "seed")) for run in runs()
    }
    for data in chosen.data:
        if chosen.runs:
            base, queries, facts = load(data)
            true = nearest(base, queries)
        for seed in range(chosen.runs):
            for epsilon in chosen.epsilons or DEFAULTS[data]:
                for method in chosen.methods:
                    spec = Spec(
                        method=method,
                        dim=base.shape[1],
                        epsilon=epsilon,
                        adjacency=attribute(1.0),
                        **facts,
                    )
                    if not spec.method_row.family.keeps_all:
                        spec = replace(spec, k=spec.dim // 2)
                    key = (data, f"{epsilon:g}", method)
                    wanted = [d for d in chosen.denoisers if (*key, d, str(seed)) not in done]
                    if not wanted:
                        continue
                    for row in measure(replace(spec, seed=seed), base, queries, true, wanted):
                        row |= dict(zip(("data", "epsilon", "method"), key, strict=True))
                        print({c: row.get(c, "") for c in COLUMNS}, flush=True)
                        with table.open("a", newline="") as file:
                            csv.DictWriter(file, COLUMNS, restval="").writerow(row)
    write_table(runs(), chosen.output / "table.md")
    draw(runs(), chosen.output / "precision.png")


if __name__ == "__main__":
    main()
