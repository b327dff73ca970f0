"""Attacks on codes, beside what is known without the code and what epsilon allows.

``python bench/inversion.py`` writes ``bench/inversion/clinc150.csv`` (whole records),
``bench/inversion/mnist.csv`` (a pixel) and ``bench/inversion/attacks.png``; with ``--draw`` the
picture alone, of the files that are there. CLINC150's corpus is permuted: 18 700 sentences are
private and the next 4000 public; its labels are intents. Of MNIST 20 000 pictures are attacked with
4000 others as public; its labels are digits.
"""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import dpindex as dpi
from dpindex.base.display import (
    COLOURS,
    epsilon_axis,
    legend_below,
    new_figure,
    tidy,
    to_png,
)
from dpindex.study.attacks import Attack, Labels, attack_panel

GREYS = ("#333333", "#777777")

DATA = Path(os.environ.get("DPINDEX_DATA", "../shared/data"))
OUT = Path(__file__).parent / "inversion"
PRIVATE, PUBLIC = 18_700, 4000
PICTURES = 20_000
RECORD_EPSILONS = (2.0, 4.0, 6.0, 8.0, 10.0, 12.0)
PIXEL_EPSILONS = (1.0, 2.0, 3.0, 5.0)


def sentences() -> tuple[Any, Any, Labels]:
    """Return private and public sentence embeddings, and their intents."""
    with np.load(DATA / "clinc150_minilm.npz") as data:
        vectors = data["E"].astype(np.float32)
        intents = data["intent"]
        corpus = data["corpus_idx"]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    order = corpus[np.random.default_rng(0).permutation(len(corpus))][: PRIVATE + PUBLIC]
    private, public = np.split(order, [PRIVATE])
    return vectors[private], vectors[public], Labels(intents[private], intents[public])


def pictures() -> tuple[Any, Any, Labels]:
    """Return private and public pictures in [0, 1], and their digits."""
    with np.load(DATA / "mnist.npz") as data:
        images = data["X_train"]
        digits = data["y_train"]
    order = np.random.default_rng(0).permutation(len(images))[: PICTURES + PUBLIC]
    private, public = np.split(order, [PICTURES])
    scaled = images.astype(np.float32) / np.float32(255.0)
    return scaled[private], scaled[public], Labels(digits[private], digits[public])


def record_specs(public: Any) -> Iterator[dpi.Spec]:
    book = dpi.Codebook.spaced(public, 1000)
    dim = public.shape[1]
    for epsilon in RECORD_EPSILONS:
        terms: dict[str, Any] = {"epsilon": epsilon, "adjacency": dpi.record()}
        yield dpi.Spec("record-codebook", dim, codebook=book, **terms)
        yield dpi.Spec("record-cap", dim, **terms)
    yield dpi.Spec("none-oporp", dim, k=dim, adjacency=dpi.attribute(1.0))


def pixel_specs(public: Any) -> Iterator[dpi.Spec]:
    dim = public.shape[1]
    for epsilon in PIXEL_EPSILONS:
        yield dpi.Spec(
            "raw-square-wave", dim, epsilon=epsilon, bounds=(0.0, 1.0), adjacency=dpi.attribute(1.0)
        )
        yield dpi.Spec(
            "dp-oporp-staircase",
            dim,
            k=128,
            epsilon=epsilon,
            bounds=(0.0, 1.0),
            adjacency=dpi.attribute(1.0),
        )
    yield dpi.Spec("none-oporp", dim, k=dim, bounds=(0.0, 1.0), adjacency=dpi.attribute(1.0))


def write(name: str, figures: list[Attack]) -> None:
    OUT.mkdir(exist_ok=True)
    lines = [figure.line() for figure in figures]
    with (OUT / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(lines)


def draw(files: dict[str, Path]) -> bytes:
    """Return a picture: a row for each data set, of candidates picked and of labels told."""
    figure = new_figure(9.6, 7.6)
    panels = figure.subplots(2, 2, squeeze=False)
    titles = {
        "clinc150": "18 700 sentences, the whole record hidden",
        "mnist": "20 000 pictures, a pixel hidden",
    }
    shown = (
        ("candidate ranking", "top 1 of 1000", "the true vector is picked among 1000"),
        ("attribute inference", "own code", "the label is told from the code"),
    )
    for row, (name, path) in zip(panels, files.items(), strict=True):
        with path.open(encoding="utf-8") as file:
            lines = [line for line in csv.DictReader(file) if line["epsilon"]]
        for panel, (attack, setting, title) in zip(row, shown, strict=True):
            chosen = [line for line in lines if line["attack"] == attack]
            own = [line for line in chosen if line["setting"] == setting]
            for number, method in enumerate(dict.fromkeys(line["method"] for line in own)):
                colour = COLOURS[number]
                _line(panel, own, method, "rate", f"{method}, attack", color=colour, marker="o")
                if attack == "attribute inference":
                    crowd = [line for line in chosen if line not in own]
                    label = f"{method}, from the ten nearest others"
                    _line(panel, crowd, method, "rate", label, color=colour, linestyle="--")
            if own[0]["bound"]:
                label = "the most that epsilon allows"
                _line(panel, own, own[0]["method"], "bound", label, color=GREYS[0], linestyle=":")
            without = float(own[0]["without_code"])
            panel.axhline(without, color=GREYS[1], linewidth=1.0, label="without the code")
            epsilons = sorted({float(line["epsilon"]) for line in own})
            epsilon_axis(panel, epsilons, "epsilon")
            panel.set(ylim=(0, 1.02))
            panel.set_title(f"{titles[name]}:\n{title}", fontsize=10)
            tidy(panel)
    entries: dict[str, Any] = {}
    for panel in panels.ravel():
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    legend_below(figure, list(entries.values()), list(entries))
    return to_png(figure)


def _line(panel: Any, lines: Any, method: str, column: str, label: str, **style: Any) -> None:
    points = [(float(x["epsilon"]), float(x[column])) for x in lines if x["method"] == method]
    panel.plot(*zip(*points, strict=True), label=label, **style)


def tell(done: int, count: int, method: str) -> None:
    print(f"{done} of {count}: {method}", flush=True)


def main() -> None:
    for name, load, specs in (
        ("clinc150", sentences, record_specs),
        ("mnist", pictures, pixel_specs),
    ):
        if sys.argv[1:] == ["--draw"]:
            break
        base, public, labels = load()
        write(name, attack_panel(base, specs(public), public, labels, progress=tell))
    files = {name: OUT / f"{name}.csv" for name in ("clinc150", "mnist")}
    (OUT / "attacks.png").write_bytes(draw(files))


if __name__ == "__main__":
    main()
