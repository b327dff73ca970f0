"""Linear SVM on private codes of high-dimensional sparse text: Li & Li 2023, Figs. 12, 14, 16.

    python bench/paper/classify.py

20 newsgroups as character 3-grams stand in for WEBSPAM: columns that are empty are left out, as in
the paper, and every attribute lies in [0, 1], beta = 1, either as a count over its column's maximum
(the paper's "max normalization") or as the presence of the 3-gram. Training and test documents are
privatized alike; the split is the corpus's own, by date. Raw data with noise are dense, so their
line is of a linear kernel on fewer documents; DP-OPORP is shown on the same few beside it. Runs,
each with a projection, noise and few documents of its own, are kept one by one, so that an
interrupted experiment goes on where it stopped.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
from common import DELTA, arguments, draw, epsilon_axis, load, means, read_csv, style, write_csv
from scipy import sparse
from scipy.linalg.blas import ssyrk
from sklearn.metrics import accuracy_score
from sklearn.svm import SVC, LinearSVC

import dpindex as dpi
from dpindex.integrations.sklearn import PrivateProjection
from dpindex.mechanism.secret_random import secret_stream

EPSILONS = (1.0, 5.0, 10.0, 50.0)
NOT_PRIVATE = math.inf
K = 256
FEW, BLOCK = 2000, 2048
CHANCE, PLAIN = "chance", "OPORP, not private"
RAW, FEW_OPORP = (f"{name}, 2 × {FEW} documents" for name in ("Raw-data-G-OPT", "DP-OPORP"))
LINES: dict[str, dict[str, Any]] = {
    "DP-RP-G-OPT-B": {"method": "dp-rp-g-opt-b", "delta": DELTA},
    "DP-OPORP": {"method": "dp-oporp", "delta": DELTA},
    "DP-SignOPORP-RR": {"method": "dp-signoporp-rr"},
    "DP-SignOPORP-RR-smooth": {"method": "dp-signoporp-rr-smooth"},
    "iDP-SignRP-RR (iDP)": {"method": "idp-signrp-rr"},
    "DP-OPORP-Laplace (ours)": {"method": "dp-oporp-laplace"},
    PLAIN: {"method": "none-oporp"},
}
CURVES = (*(line for line in LINES if line != PLAIN), RAW, FEW_OPORP)
TASKS = ("comp.* against rec.*", "all 20 groups")
ENCODINGS = ("presence", "count / column maximum")
PANELS = tuple((task, encoding) for encoding in ENCODINGS for task in TASKS)
UNIT = ("encoding", "line", "epsilon", "seed")
"""What one privatization is of; both tasks are measured on it."""


def epsilons(line: str) -> tuple[float, ...]:
    if line in (CHANCE, PLAIN):
        return (NOT_PRIVATE,)
    if line == RAW:
        return (*EPSILONS, NOT_PRIVATE)
    return (1.0, 10.0) if "iDP" in line else EPSILONS


class Corpus:
    """Documents under one encoding, their classes under both tasks, and the split by date."""

    def __init__(self, encoding: str) -> None:
        stored, labels = load("news20_chartri_csr"), load("news20_labels")
        used, columns = np.unique(stored["indices"], return_inverse=True)
        parts = (stored["data"].astype(np.float32), columns.astype(np.int32), stored["indptr"])
        x = sparse.csr_matrix(parts, shape=(len(stored["indptr"]) - 1, len(used)))
        if encoding == "presence":
            x.data = np.ones_like(x.data)
        else:
            x = sparse.csr_matrix(x @ sparse.diags(1 / x.max(axis=0).toarray().ravel()))
            x.data = np.minimum(x.data, 1.0).astype(np.float32)
        groups, names = labels["y"], labels["names"]
        comp, rec = (np.char.startswith(names, part)[groups] for part in ("comp.", "rec."))
        self.x, self.test = x, labels["is_test"].astype(bool)
        self.tasks = {
            TASKS[0]: (comp | rec, comp.astype(int)),
            TASKS[1]: (np.ones(len(groups), dtype=bool), groups),
        }

    def few(self, seed: int) -> Any:
        """Numbers of the first training and test documents after a shuffle."""
        order = np.random.default_rng(seed).permutation(len(self.test))
        tested = self.test[order]
        return np.concatenate([order[~tested][:FEW], order[tested][:FEW]])


def linear_accuracy(codes: Any, y: Any, test: Any) -> float:
    """Of a linear SVM; rows are brought to a norm of about 1, so that C = 1 is the same for all."""
    codes = codes / np.sqrt(np.mean(np.sum(codes**2, axis=1)))
    model = LinearSVC(dual=False, tol=1e-2, max_iter=200).fit(codes[~test], y[~test])
    return float(accuracy_score(y[test], model.predict(codes[test])))


def kernel_accuracy(gram: Any, y: Any, test: Any) -> float:
    """Of a linear SVM of which only the inner products are known."""
    gram = gram / np.mean(np.diag(gram))
    model = SVC(kernel="precomputed", C=1.0).fit(gram[~test][:, ~test], y[~test])
    return float(accuracy_score(y[test], model.predict(gram[test][:, ~test])))


def raw_gram(x: Any, spec: dpi.Spec) -> Any:
    """Inner products of raw data with noise on every attribute, made a block of columns at a time.

    The noise is the library's; only the codes, which would take gigabytes, are never held.
    """
    law: Any = spec.law
    stream, gram = secret_stream(), np.zeros((x.shape[0], x.shape[0]), np.float32, order="F")
    columns = x.tocsc()
    for start in range(0, x.shape[1], BLOCK):
        exact = spec.grid.round(columns[:, start : start + BLOCK].toarray())
        noisy = law.perturb(exact, stream).astype(np.float32)
        gram = ssyrk(1.0, noisy.T, beta=1.0, c=gram, trans=1, overwrite_c=1)  # half of it
    gram = np.triu(gram) + np.triu(gram, 1).T
    return gram * (law.scale * spec.step) ** 2


def codes_of(x: Any, line: str, epsilon: float, seed: int) -> Any:
    options: dict[str, Any] = {"k": K, "bounds": (0.0, 1.0), "seed": seed, **LINES[line]}
    budget = None if math.isinf(epsilon) else epsilon
    return PrivateProjection(epsilon=budget, **options).fit_transform(x)


def few_gram(x: Any, line: str, epsilon: float, seed: int) -> Any:
    """Inner products of a few documents' codes, or of the documents themselves."""
    if line == FEW_OPORP:
        codes = codes_of(x, "DP-OPORP", epsilon, seed)
        return codes @ codes.T
    if math.isinf(epsilon):
        return (x @ x.T).toarray()
    about: dict[str, Any] = {"dim": x.shape[1], "epsilon": epsilon, "delta": DELTA}
    return raw_gram(
        x, dpi.Spec("raw-gaussian", bounds=(0.0, 1.0), adjacency=dpi.attribute(1.0), **about)
    )


def chances(corpus: Corpus) -> dict[str, float]:
    """The share of the most frequent class among the test documents."""
    return {
        name: float(np.bincount(y[inside & corpus.test]).max() / (inside & corpus.test).sum())
        for name, (inside, y) in corpus.tasks.items()
    }


def measure(corpus: Corpus, line: str, epsilon: float, seed: int) -> dict[str, float]:
    """Accuracy in either task from one privatization."""
    if line == CHANCE:
        return chances(corpus)
    if line in LINES:
        rows, what, accuracy = slice(None), codes_of(corpus.x, line, epsilon, seed), linear_accuracy
    else:
        rows = corpus.few(seed)
        what, accuracy = few_gram(corpus.x[rows], line, epsilon, seed), kernel_accuracy
    test, found = corpus.test[rows], {}
    for name, (inside, y) in corpus.tasks.items():
        mine = inside[rows]
        chosen = what[mine] if line in LINES else what[mine][:, mine]
        found[name] = accuracy(chosen, y[rows][mine], test[mine])
    return found


def picture(rows: list[dict[str, Any]]) -> None:
    def fill(i: int, axes: Any) -> None:
        mine = [row for row in rows if (row["task"], row["encoding"]) == PANELS[i]]
        for j, line in enumerate(CURVES):
            points = [row for row in mine if row["line"] == line and row["epsilon"] != NOT_PRIVATE]
            axes.errorbar(
                [row["epsilon"] for row in points],
                [row["accuracy"] for row in points],
                [row["std of accuracy"] for row in points],
                label=line,
                **style(j, linestyle=":" if "iDP" in line else "-"),
            )
        for name, dashes in ((PLAIN, "--"), (CHANCE, "-.")):
            for row in mine:
                if row["line"] == name:
                    axes.axhline(row["accuracy"], color="#555555", linestyle=dashes, label=name)
        epsilon_axis(axes, EPSILONS)

    titles = [f"{task} ({encoding})" for task, encoding in PANELS]
    what = "ε for one attribute (beta = 1)"
    draw("fig12_14_16_svm.png", titles, fill, what, "test accuracy", columns=2)


def main() -> None:
    chosen = arguments("Linear SVM on private codes.", repetitions=5)
    runs = read_csv("classify_runs")
    done = {tuple(run[name] for name in UNIT) for run in runs}
    units = [
        (encoding, line, epsilon, seed)
        for seed in range(chosen.repetitions)
        for encoding in ENCODINGS
        for line in (CHANCE, PLAIN, *CURVES)
        for epsilon in epsilons(line)
    ]
    corpora: dict[str, Corpus] = {}
    for unit in [] if chosen.redraw else [unit for unit in units if unit not in done]:
        encoding, *point = unit
        if encoding not in corpora:
            corpora[encoding] = Corpus(encoding)
        found = measure(corpora[encoding], *point)
        about = dict(zip(UNIT, unit, strict=True))
        runs += [{**about, "task": task, "accuracy": found[task]} for task in TASKS]
        write_csv("classify_runs", runs)
        print(time.strftime("%H:%M"), *unit, found, flush=True)
    by = ("encoding", "task", "line", "epsilon")
    picture(write_csv("classify", means(runs, by, ["accuracy"])))


if __name__ == "__main__":
    main()
