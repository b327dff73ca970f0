"""Linear SVM on private codes of high-dimensional sparse text: Li & Li 2023, Figs. 12, 14, 16.

    python bench/paper/classify.py

20 newsgroups as character 3-grams stand in for WEBSPAM: columns that are empty are left out, as in
the paper, and every attribute lies in [0, 1], beta = 1, either as a count over its column's maximum
(the paper's "max normalization") or as the presence of the 3-gram. Training and test documents are
privatized alike; the split is the corpus's own, by date. Raw data with noise are dense, so their
line is of a linear kernel on fewer documents; DP-OPORP is shown on the same few beside it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from common import DELTA, arguments, draw, epsilon_axis, load, read_csv, style, write_csv
from scipy import sparse
from sklearn.metrics import accuracy_score
from sklearn.svm import SVC, LinearSVC

import dpindex as dpi
from dpindex.randomness import secret_stream
from dpindex.sklearn import PrivateProjection

EPSILONS = (1.0, 5.0, 10.0, 50.0)
K = 256
RAW, FEW_OPORP = "Raw-data-G-OPT, 2 × 500 documents", "DP-OPORP, 2 × 500 documents"
LINES: dict[str, dict[str, Any]] = {
    "DP-RP-G-OPT-B": {"method": "dp-rp-g-opt-b", "delta": DELTA},
    "DP-OPORP": {"method": "dp-oporp", "delta": DELTA},
    "DP-SignOPORP-RR": {"method": "dp-signoporp-rr"},
    "DP-SignOPORP-RR-smooth": {"method": "dp-signoporp-rr-smooth"},
    "iDP-SignRP-RR (iDP)": {"method": "idp-signrp-rr"},
    "DP-OPORP-Laplace (ours)": {"method": "dp-oporp-laplace"},
}
INDIVIDUAL_EPSILONS = (1.0, 10.0)
TASKS = ("comp.* against rec.*", "all 20 groups")
ENCODINGS = ("count / column maximum", "presence")
PANELS = (
    (TASKS[0], ENCODINGS[1]),
    (TASKS[1], ENCODINGS[1]),
    (TASKS[0], ENCODINGS[0]),
)
Found: TypeAlias = tuple[str, float | str, float]
FEW, BLOCK = 500, 4096


def documents(encoding: str) -> tuple[Any, Any, Any, Any]:
    """Attributes in [0, 1], groups, which documents are for testing, and the groups' names."""
    stored, labels = load("news20_chartri_csr"), load("news20_labels")
    used, columns = np.unique(stored["indices"], return_inverse=True)
    parts = (stored["data"].astype(np.float32), columns.astype(np.int32), stored["indptr"])
    x = sparse.csr_matrix(parts, shape=(len(stored["indptr"]) - 1, len(used)))
    if encoding == ENCODINGS[0]:
        x = sparse.csr_matrix(x @ sparse.diags(1 / x.max(axis=0).toarray().ravel()))
        x.data = np.minimum(x.data, 1.0).astype(np.float32)
    else:
        x.data = np.ones_like(x.data)
    return x, labels["y"], labels["is_test"].astype(bool), labels["names"]


def task(name: str, y: Any, names: Any) -> tuple[Any, Any]:
    """Which documents take part, and their classes."""
    if name == TASKS[1]:
        return np.ones(len(y), dtype=bool), y
    comp, rec = (np.char.startswith(names, part)[y] for part in ("comp.", "rec."))
    return comp | rec, comp.astype(int)


def accuracy(codes: Any, y: Any, test: Any) -> float:
    """Of a linear SVM; rows are brought to a norm of about 1, so that C = 1 is the same for all."""
    codes = codes / np.sqrt(np.mean(np.sum(codes**2, axis=1)))
    model = LinearSVC(dual=False, tol=1e-2, max_iter=200).fit(codes[~test], y[~test])
    return float(accuracy_score(y[test], model.predict(codes[test])))


def few(y: Any, test: Any) -> Any:
    """The first rows of either kind after a shuffle."""
    order = np.random.default_rng(0).permutation(len(y))
    return np.concatenate([order[~test[order]][:FEW], order[test[order]][:FEW]])


def kernel_accuracy(gram: Any, y: Any) -> float:
    """Of a linear SVM of which only the inner products are known; the first rows train."""
    gram = gram / np.mean(np.diag(gram))
    model = SVC(kernel="precomputed", C=1.0).fit(gram[:FEW, :FEW], y[:FEW])
    return float(accuracy_score(y[FEW:], model.predict(gram[FEW:, :FEW])))


def raw_gram(x: Any, spec: dpi.Spec) -> Any:
    """Inner products of raw data with noise on every attribute, made a block of columns at a time.

    The noise is the library's; only the codes, which would take gigabytes, are never held.
    """
    law: Any = spec.law
    stream, gram = secret_stream(), np.zeros((x.shape[0], x.shape[0]), dtype=np.float32)
    columns = x.tocsc()
    for start in range(0, x.shape[1], BLOCK):
        exact = spec.grid.round(columns[:, start : start + BLOCK].toarray())
        noisy = law.perturb(exact, stream).astype(np.float32)
        gram += noisy @ noisy.T
    return gram * (law.decoder.gain * spec.grid.step) ** 2


def few_documents(x: Any, y: Any, test: Any) -> Iterator[Found]:
    """Raw data with noise, and DP-OPORP, on the same few documents."""
    chosen = few(y, test)
    part, classes = x[chosen], y[chosen]
    plain = np.asarray((part @ part.T).toarray())
    yield RAW, "none", kernel_accuracy(plain, classes)
    for epsilon in EPSILONS:
        common: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "bounds": (0.0, 1.0)}
        codes = PrivateProjection("dp-oporp", k=K, **common).fit_transform(part)
        yield FEW_OPORP, epsilon, kernel_accuracy(codes @ codes.T, classes)
        spec = dpi.Spec("raw-gaussian", x.shape[1], **common)
        yield RAW, epsilon, kernel_accuracy(raw_gram(part, spec), classes)


def measure(encoding: str) -> Iterator[dict[str, Any]]:
    x, groups, test, names = documents(encoding)
    tasks = {name: task(name, groups, names) for name, wanted in PANELS if wanted == encoding}

    def row(name: str, line: str, epsilon: float | str, found: float) -> dict[str, Any]:
        where = {"encoding": encoding, "task": name, "line": line, "epsilon": epsilon}
        return {**where, "accuracy": found}

    plain = PrivateProjection("none-oporp", k=K, epsilon=None, bounds=(0.0, 1.0)).fit_transform(x)
    for name, (inside, y) in tasks.items():
        most = np.bincount(y[inside & test]).max() / np.count_nonzero(inside & test)
        yield row(name, "chance", "none", float(most))
        found = accuracy(plain[inside], y[inside], test[inside])
        yield row(name, "OPORP, not private", "none", found)
    for line, options in LINES.items():
        for epsilon in INDIVIDUAL_EPSILONS if "iDP" in line else EPSILONS:
            model = PrivateProjection(k=K, epsilon=epsilon, bounds=(0.0, 1.0), **options)
            codes = model.fit_transform(x)
            for name, (inside, y) in tasks.items():
                found = accuracy(codes[inside], y[inside], test[inside])
                yield row(name, line, epsilon, found)
    if encoding == ENCODINGS[1]:
        inside, y = tasks[TASKS[0]]
        for line, at, found in few_documents(x[inside], y[inside], test[inside]):
            yield row(TASKS[0], line, at, found)


def main() -> None:
    chosen = arguments("Linear SVM on private codes.", encodings="1,0")
    rows = read_csv("classify")
    for number in "" if chosen.redraw else chosen.encodings.split(","):
        encoding = ENCODINGS[int(number)]
        kept = [row for row in rows if row["encoding"] != encoding]
        for found in measure(encoding):
            kept.append(found)
            rows = write_csv("classify", kept)
            print(time.strftime("%H:%M"), found, flush=True)

    def fill(i: int, axes: Any) -> None:
        mine = [row for row in rows if (row["task"], row["encoding"]) == PANELS[i]]
        for j, line in enumerate([*LINES, RAW, FEW_OPORP]):
            points = [row for row in mine if row["line"] == line and row["epsilon"] != "none"]
            if points:
                dots = {"linestyle": ":"} if "iDP" in line else {}
                axes.plot(
                    [row["epsilon"] for row in points],
                    [row["accuracy"] for row in points],
                    label=line,
                    **style(j, **dots),
                )
        for name, dashes in (("OPORP, not private", "--"), ("chance", "-.")):
            for row in mine:
                if row["line"] == name:
                    axes.axhline(row["accuracy"], color="#555555", linestyle=dashes, label=name)
        epsilon_axis(axes, EPSILONS)

    titles = [f"{name} ({encoding})" for name, encoding in PANELS]
    draw("fig12_14_16_svm.png", titles, fill, "ε for one attribute (beta = 1)", "test accuracy")


if __name__ == "__main__":
    main()
