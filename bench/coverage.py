"""How often true similarities lie within 1.96 stated errors, by recipe and kind of query.

    python bench/coverage.py

Each setting is one index of at most 5000 vectors and the ten best hits of 200 queries that are not
among them. One run measures all of them and writes ``coverage/coverage.csv`` and the tables of
``coverage/README.md``; it takes some minutes. Of hits with a similarity, ``true``
and ``said`` are mean similarities, ``covered`` is the share of true ones within 1.96 errors,
``error`` the mean error and ``rmse`` the root of the mean squared difference. ``stated`` is the
share of hits with one. The data are in DPINDEX_DATA.
"""

from __future__ import annotations

import csv
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import dpindex as dpi
from dpindex.mechanism.codebooks import fit_codebook

DATA = Path(os.environ.get("DPINDEX_DATA", Path(__file__).parents[2] / "shared" / "data"))
FOLDER = Path(__file__).with_suffix("")
ROWS, QUERIES, FOUND = 5000, 200, 10
RESULTS = ("query", "stated", "covered", "true", "said", "error", "rmse")
COLUMNS = ("data", "method", "k", "beta", "epsilon", "denoised", *RESULTS)
GENERATED = "## Results\n"


def mnist() -> tuple[Any, dict[str, Any]]:
    with np.load(DATA / "mnist.npz") as stored:
        return stored["X_train"], {"scale": 255.0, "bounds": (0.0, 1.0)}


def cifar() -> tuple[Any, dict[str, Any]]:
    with np.load(DATA / "cifar10_gray.npz") as stored:
        return stored["X_train"], {"scale": 255.0, "bounds": (0.0, 1.0)}


def embeddings() -> tuple[Any, dict[str, Any]]:
    with np.load(DATA / "clinc150_minilm.npz") as stored:
        x = stored["E"].astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return x, {"bounds": (-0.5, 0.5), "clip": True, "norm": 1.0}


def trigrams() -> tuple[Any, dict[str, Any]]:
    with np.load(DATA / "news20_chartri_csr.npz") as stored:
        parts = (stored["data"] > 0, stored["indices"], stored["indptr"])
        x = sparse.csr_matrix(parts, shape=tuple(stored["shape"]), dtype=np.uint8)
    x.eliminate_zeros()
    return x[np.diff(x.indptr) > 0], {"bounds": (0.0, 1.0)}


def counts() -> tuple[Any, dict[str, Any]]:
    """How often each of the 300 most frequent trigrams occurs in a message, at most 10."""
    with np.load(DATA / "news20_chartri_csr.npz") as stored:
        parts = (stored["data"], stored["indices"], stored["indptr"])
        x = sparse.csc_matrix(sparse.csr_matrix(parts, shape=tuple(stored["shape"])))
    frequent = np.argsort(-np.diff(x.indptr), kind="stable")[:300]
    x = np.minimum(x[:, frequent].toarray(), 10)
    return x[x.any(axis=1)], {"scale": 10.0, "bounds": (0.0, 1.0)}


def activity() -> tuple[Any, dict[str, Any]]:
    """Counts of 200 items by people of lognormal activity with tastes of twelve kinds."""
    rng = np.random.default_rng(7)
    tastes = rng.dirichlet(np.full(200, 0.1), 12)
    mix = rng.dirichlet(np.full(12, 0.2), 20000)
    events = 30.0 * rng.lognormal(0.0, 1.0, 20000)
    x = np.minimum(rng.poisson(events[:, None] * (mix @ tastes)), 10)
    return x[x.any(axis=1)], {"scale": 10.0, "bounds": (0.0, 1.0)}


def lengths() -> tuple[Any, dict[str, Any]]:
    """Normal vectors about 40 centres, of lognormal lengths."""
    rng = np.random.default_rng(8)
    x = rng.normal(size=(40, 64))[rng.integers(40, size=20000)] + 0.8 * rng.normal(size=(20000, 64))
    x *= rng.lognormal(-1.5, 0.7, (20000, 1)) / np.linalg.norm(x, axis=1, keepdims=True)
    return np.clip(x, -1, 1), {"bounds": (-1.0, 1.0)}


def clusters() -> tuple[Any, dict[str, Any]]:
    """Unit vectors of 96 attributes about 60 centres."""
    rng = np.random.default_rng(9)
    x = rng.normal(size=(60, 96))[rng.integers(60, size=20000)] + 0.8 * rng.normal(size=(20000, 96))
    return x / np.linalg.norm(x, axis=1, keepdims=True), {"bounds": (-1.0, 1.0), "norm": 1.0}


def equal_topics() -> tuple[Any, dict[str, Any]]:
    return _topics(np.ones(60))


def zipf_topics() -> tuple[Any, dict[str, Any]]:
    """The largest topic has a fifth of the vectors, the smallest one in 280."""
    return _topics(1 / np.arange(1, 61))


def _topics(sizes: Any) -> tuple[Any, dict[str, Any]]:
    rng = np.random.default_rng(11)
    topic = rng.choice(len(sizes), 20000, p=sizes / sizes.sum())
    x = rng.normal(size=(len(sizes), 64))[topic] + 0.8 * rng.normal(size=(20000, 64))
    return x / np.linalg.norm(x, axis=1, keepdims=True), {"bounds": (-1.0, 1.0), "norm": 1.0}


def parts() -> tuple[Any, dict[str, Any]]:
    """24 attributes made of four parts."""
    rng = np.random.default_rng(10)
    return rng.random((20000, 4)) @ rng.random((4, 24)) / 4, {"bounds": (0.0, 1.0)}


def naval() -> tuple[Any, dict[str, Any]]:
    return _table("naval")


def occupancy() -> tuple[Any, dict[str, Any]]:
    return _table("occupancy")


def airfoil() -> tuple[Any, dict[str, Any]]:
    return _table("airfoil")


def skin() -> tuple[Any, dict[str, Any]]:
    return _table("skin")


def _table(name: str) -> tuple[Any, dict[str, Any]]:
    with np.load(DATA / f"tab_{name}.npz") as stored:
        x = stored["X"].astype(np.float64)
    low, high = x.min(axis=0), x.max(axis=0)
    return (x - low) / np.maximum(high - low, 1e-9), {"bounds": (0.0, 1.0)}


@dataclass(frozen=True)
class Setting:
    """A method on some data; ``beta`` None means whole records."""

    data: Callable[[], tuple[Any, dict[str, Any]]]
    method: str
    epsilon: float
    k: int | None = None
    beta: float | None = 1.0
    denoised: bool = False
    public: int = 0
    """Public vectors that a codebook is made of."""
    centroids: int = 0
    foreign: bool = False
    """Whether the codebook is of one half of the directions, of which the collection knows none."""
    record_epsilon: float | None = None

    @property
    def name(self) -> dict[str, str]:
        return {
            "data": self.data.__name__ + (" foreign" if self.foreign else ""),
            "method": self.method,
            "k": str(self.k or self.centroids or self.public or ""),
            "beta": "record" if self.beta is None else f"{self.beta:g}",
            "epsilon": f"{self.epsilon:g}",
            "denoised": "yes" if self.denoised else "no",
        }


def _settings() -> Iterator[Setting]:
    for data, k in ((mnist, 392), (cifar, 256)):
        for epsilon in (1.0, 3.0, 8.0):
            yield Setting(data, "dp-oporp-staircase", epsilon, k)
    for epsilon in (2.0, 5.0):
        yield Setting(mnist, "raw-square-wave", epsilon)
    yield Setting(mnist, "raw-staircase", 2.0)
    yield Setting(mnist, "raw-square-wave", 2.0, denoised=True)
    for epsilon in (3.0, 8.0):
        yield Setting(embeddings, "dp-oporp-staircase", epsilon, 192)
    yield Setting(embeddings, "dp-signoporp-geometric", 8.0, 384)
    yield Setting(embeddings, "dp-oporp-staircase", 3.0, 192, denoised=True)
    for data in (counts, activity):
        yield Setting(data, "raw-square-wave", 5.0)
        yield Setting(data, "raw-staircase", 3.0)
        yield Setting(data, "dp-oporp-staircase", 8.0, 100)
        yield Setting(data, "raw-staircase", 5.0, denoised=True)
    yield Setting(activity, "raw-square-wave", 8.0)
    yield Setting(trigrams, "dp-oporp-staircase", 3.0, 512)
    yield Setting(trigrams, "dp-signoporp-rr", 8.0, 512)
    for data in (naval, occupancy, airfoil, skin):
        yield Setting(data, "raw-square-wave-narrow", 5.0)
        yield Setting(data, "raw-staircase", 5.0, beta=0.1)
    yield Setting(naval, "raw-staircase", 5.0, beta=0.1, denoised=True)
    for data in (lengths, parts):
        yield Setting(data, "raw-staircase", 8.0)
    yield Setting(parts, "raw-staircase", 3.0, denoised=True)
    for data in (equal_topics, zipf_topics, clusters):
        yield Setting(data, "dp-oporp-staircase", 8.0, 48, beta=0.5)
        yield Setting(data, "dp-signoporp-geometric", 6.0, 64, beta=0.5)
    for data in (equal_topics, zipf_topics, embeddings):
        yield Setting(data, "codebook-softmax", 2.5, beta=0.5, public=2000, centroids=200,
                      record_epsilon=8.0)  # fmt: skip
        yield Setting(data, "record-codebook", 12.0, beta=None, public=2000, centroids=200)
    for data in (mnist, cifar, counts, naval):
        yield Setting(data, "record-codebook", 8.0, beta=None, public=2000, centroids=200)
    yield Setting(embeddings, "record-codebook", 8.0, beta=None, public=1000)
    yield Setting(embeddings, "record-codebook", 8.0, beta=None, public=1000, foreign=True)


def true_cosines(base: Any, queries: Any) -> Any:
    """Of all queries with all vectors, shape (queries, vectors)."""
    wide = [x.astype(np.float64) for x in (queries, base)]
    products = wide[0] @ wide[1].T
    squares = [(x.multiply(x) if sparse.issparse(x) else x * x).sum(axis=1) for x in wide]
    sizes, lengths = (np.asarray(square).ravel() for square in squares)
    dense = products.toarray() if sparse.issparse(products) else products
    return dense / np.sqrt(np.maximum(sizes[:, None] * lengths, 1e-300))


def index_of(setting: Setting, base: Any, sample: Any, facts: dict[str, Any]) -> dpi.PrivateIndex:
    """Return an index of vectors; ``facts`` of a spec that says nothing of a codebook."""
    adjacency: Any = dpi.record() if setting.beta is None else dpi.attribute(beta=setting.beta)
    if "codebook" in setting.method:
        book = dpi.Codebook(sample)
        if setting.centroids:
            book = fit_codebook(np.asarray(sample, np.float32), setting.centroids)
        facts = {"codebook": book}
    if setting.record_epsilon is not None:
        facts = facts | {"record_epsilon": setting.record_epsilon}
    spec = dpi.Spec(
        setting.method, base.shape[1], k=setting.k, epsilon=setting.epsilon,
        adjacency=adjacency, **facts,
    )  # fmt: skip
    index = dpi.PrivateIndex(spec)
    index.add(base, skip_leak_check=True)  # rows of tables repeat
    if setting.denoised:
        index.fit_denoiser()
    index.calibrate()
    return index


def measure(setting: Setting) -> Iterator[dict[str, Any]]:
    vectors, facts = setting.data()
    order = np.random.default_rng(0).permutation(vectors.shape[0])
    ends = np.cumsum([QUERIES, setting.public, ROWS])
    queries, sample, base = (vectors[rows] for rows in np.split(order, ends)[:3])
    if setting.foreign:
        sample = sample * np.where(np.arange(sample.shape[1]) % 2, -1.0, 1.0)
    index = index_of(setting, base, sample, facts)
    truth = true_cosines(base, queries)
    for mode in ("exact", "private"):
        hits = index.search(queries, k=FOUND, query=mode)
        stated = np.isfinite(hits.stderr)
        true = np.take_along_axis(truth, hits.ids, axis=1)[stated]
        said, error = hits.similarity[stated], hits.stderr[stated]
        row = {"query": mode, "stated": stated.mean()}
        if stated.any():
            off = said - true
            row |= {
                "covered": (np.abs(off) <= 1.96 * error).mean(),
                "true": true.mean(),
                "said": said.mean(),
                "error": error.mean(),
                "rmse": np.sqrt(np.square(off).mean()),
            }
        yield row


def shown(row: dict[str, Any]) -> dict[str, str]:
    """The cells of a row as they are written."""
    cells = {name: row.get(name, "") for name in COLUMNS}
    return {name: x if isinstance(x, str) else f"{x:.3f}" for name, x in cells.items()}


def results(rows: list[dict[str, Any]]) -> str:
    """The tables of the README."""
    most = [row for row in rows if row["stated"] >= 0.5]
    kinds = {
        "above .98: errors are too wide": [row for row in most if row["covered"] > 0.98],
        "from .90 to .98": [row for row in most if 0.9 <= row["covered"] <= 0.98],
        "below .90: errors are too narrow": [row for row in most if row["covered"] < 0.9],
        "the mean is off by more than .05": [
            row for row in most if abs(row["said"] - row["true"]) > 0.05
        ],
    }
    lines = [
        GENERATED,
        f"Of {len(rows)} kinds of query {len(most)} state at least half of their hits. Of these:\n",
        "| share of the truth within 1.96 errors | kinds |",
        "|---|---|",
        *(f"| {name} | {len(found)} |" for name, found in kinds.items()),
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|---" * len(COLUMNS) + "|",
        *(f"| {' | '.join(shown(row).values())} |" for row in rows),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    warnings.simplefilter("ignore")
    rows = []
    for setting in _settings():
        for row in measure(setting):
            rows.append(setting.name | row)
            print(*shown(rows[-1]).values(), flush=True)
    with (FOLDER / "coverage.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(shown, rows))
    readme = FOLDER / "README.md"
    text, _, _ = readme.read_text().partition(GENERATED)
    readme.write_text(text + results(rows))


if __name__ == "__main__":
    main()
