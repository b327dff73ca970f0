"""Share of true similarities within 1.96 stated errors, by recipe and kind of query.

    python bench/coverage.py [--only mnist,counts …] [--output FOLDER]

Each row is one index of at most 8000 vectors, calibrated, and the ten best hits of 200
queries that are not among them. ``truth`` and ``stated`` are mean similarities, ``covered`` is the
share of true ones within 1.96 errors (of hits with one), ``unstated`` the share of hits without,
``rmse`` the root of the mean square of truth less similarity, and ``found`` the share of hits among
the true 50 nearest. ``first`` and ``later`` are processor seconds of a search with one query, right
after a vector was added and again. The data are in DPINDEX_DATA.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
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
ROWS, QUERIES, FOUND = 8000, 200, 10
COLUMNS = (
    "data", "method", "k", "beta", "epsilon", "denoised", "metric", "query", "truth",
    "stated", "stderr", "covered", "unstated", "rmse", "found", "first", "later",
)  # fmt: skip


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
    metric: str = "cosine"
    public: int = 0
    """Public vectors that a codebook or a design is made of."""
    centroids: int = 0
    foreign: bool = False
    record_epsilon: float | None = None


def _settings() -> Iterator[Setting]:
    for data, k in ((mnist, 392), (cifar, 256)):
        for epsilon in (1.0, 3.0, 8.0):
            yield Setting(data, "dp-oporp-staircase", epsilon, k)
    for epsilon in (2.0, 5.0):
        yield Setting(mnist, "raw-square-wave", epsilon)
        yield Setting(mnist, "raw-staircase", epsilon)
        yield Setting(mnist, "raw-staircase", epsilon, denoised=True)
        yield Setting(mnist, "dp-signoporp-rr", epsilon, 128)
        yield Setting(mnist, "raw-square-wave", epsilon, denoised=True)
    for epsilon in (1.0, 3.0, 8.0):
        yield Setting(embeddings, "dp-oporp-staircase", epsilon, 192)
        yield Setting(embeddings, "dp-signoporp-geometric", epsilon, 384)
    yield Setting(embeddings, "raw-staircase", 3.0)
    yield Setting(embeddings, "dp-oporp-staircase", 3.0, 192, denoised=True)
    yield Setting(embeddings, "record-cap", 8.0, 256, beta=None)
    for epsilon in (8.0, 12.0):
        yield Setting(embeddings, "record-codebook", epsilon, beta=None, public=1000)
    yield Setting(embeddings, "record-codebook", 8.0, beta=None, public=1000, foreign=True)
    for data in (counts, activity):
        yield Setting(data, "raw-square-wave", 5.0)
        yield Setting(data, "raw-square-wave", 3.0)
        yield Setting(data, "raw-staircase", 3.0)
        yield Setting(data, "dp-oporp-staircase", 8.0, 100)
        yield Setting(data, "dp-oporp-staircase", 3.0, 100)
        yield Setting(data, "dp-oporp-staircase", 8.0, 100, metric="ip")
        yield Setting(data, "raw-staircase", 5.0, denoised=True)
    yield Setting(trigrams, "dp-oporp-staircase", 3.0, 512)
    yield Setting(trigrams, "dp-signoporp-rr", 8.0, 512)
    for data in (naval, occupancy):
        yield Setting(data, "raw-square-wave", 5.0, beta=0.1)
        yield Setting(data, "raw-staircase", 5.0, beta=0.1)
        yield Setting(data, "raw-staircase", 5.0, beta=0.1, metric="l2")
    yield Setting(naval, "raw-staircase", 5.0, beta=0.1, denoised=True)
    for data in (naval, occupancy, airfoil, skin):
        for epsilon in (2.0, 5.0, 10.0):
            yield Setting(data, "raw-square-wave-narrow", epsilon)
        yield Setting(data, "raw-square-wave-narrow", 5.0, beta=0.1)
        yield Setting(data, "raw-staircase", 5.0)
        yield Setting(data, "dp-signoporp-rr", 5.0, 2)
    for data in (naval, occupancy):
        yield Setting(data, "raw-square-wave-narrow", 5.0, denoised=True)
        yield Setting(data, "dp-oporp-staircase", 5.0, 5, beta=0.1)
    yield Setting(counts, "raw-square-wave-narrow", 3.0)
    yield Setting(counts, "raw-square-wave-narrow", 3.0, denoised=True)
    for data in (mnist, cifar, counts, naval, occupancy):
        for epsilon in (6.0, 10.0):
            yield Setting(data, "record-codebook", epsilon, beta=None, public=2000, centroids=200)
    for epsilon in (6.0, 8.0, 10.0):
        yield Setting(embeddings, "record-codebook", epsilon, beta=None, public=2000, centroids=200)
    for data in (mnist, embeddings):
        yield Setting(data, "record-codebook", 8.0, beta=None, public=2000)
        yield Setting(data, "codebook-softmax", 2.0, beta=0.5, public=2000, centroids=200)
        yield Setting(data, "dp-designed-laplace", 2.0, 32, beta=0.5, public=2000)
        yield Setting(data, "dp-signdesigned-geometric", 2.0, 64, beta=0.5, public=2000)
    for epsilon in (3.0, 8.0):
        yield Setting(lengths, "dp-oporp-staircase", epsilon, 32)
        yield Setting(lengths, "raw-staircase", epsilon)
        yield Setting(lengths, "dp-signoporp-rr", epsilon, 64)
        yield Setting(clusters, "dp-oporp-staircase", epsilon, 48, beta=0.5)
        yield Setting(clusters, "dp-signoporp-geometric", epsilon, 64, beta=0.5)
    for data in (equal_topics, zipf_topics, embeddings):
        yield Setting(data, "record-cap", 10.0, 64, beta=None)
        yield Setting(data, "codebook-softmax", 2.5, beta=0.5, public=2000, centroids=200,
                      record_epsilon=8.0)  # fmt: skip
        yield Setting(data, "record-codebook", 12.0, beta=None, public=2000, centroids=200)
        yield Setting(data, "dp-oporp-staircase", 8.0, 48, beta=0.5)
        yield Setting(data, "dp-signoporp-geometric", 6.0, 64, beta=0.5)
    yield Setting(activity, "raw-square-wave", 8.0)
    yield Setting(parts, "raw-staircase", 3.0, denoised=True)
    yield Setting(parts, "raw-staircase", 8.0)


def true_similarities(base: Any, queries: Any, metric: str) -> Any:
    """Of all queries with all vectors, higher is not always nearer."""
    base, queries = (
        x.astype(np.float64) if sparse.issparse(x) else np.asarray(x, np.float64)
        for x in (base, queries)
    )
    products = queries @ base.T
    products = products.toarray() if sparse.issparse(products) else products
    if metric == "ip":
        return products
    sizes, lengths = (
        np.asarray((x.multiply(x) if sparse.issparse(x) else x * x).sum(axis=1)).ravel()
        for x in (queries, base)
    )
    if metric == "l2":
        return sizes[:, None] + lengths - 2 * products
    return products / np.sqrt(np.maximum(sizes[:, None] * lengths, 1e-300))


def measure(setting: Setting) -> Iterator[dict[str, Any]]:
    vectors, facts = setting.data()
    order = np.random.default_rng(0).permutation(vectors.shape[0])
    queries, public = vectors[order[:QUERIES]], vectors[order[QUERIES : QUERIES + 1]]
    sample = vectors[order[QUERIES + 1 : QUERIES + 1 + setting.public]]
    first = QUERIES + setting.public + 1
    base = vectors[order[first : first + ROWS]]
    if setting.foreign:
        # A codebook of one half of the directions, of which the collection knows nothing.
        sample = sample * np.where(np.arange(sample.shape[1]) % 2, -1.0, 1.0)
    adjacency: Any = dpi.record() if setting.beta is None else dpi.attribute(beta=setting.beta)
    if setting.beta is None:
        facts = {}
    if "codebook" in setting.method:
        book = dpi.Codebook(sample)
        if setting.centroids:
            book = fit_codebook(np.asarray(sample, np.float32), setting.centroids)
        facts = {"codebook": book}
    if "designed" in setting.method:
        facts = facts | {
            "design": dpi.design(
                sample, epsilon=setting.epsilon, beta=setting.beta or 1.0, code_length=setting.k,
                scale=facts.get("scale", 1.0), signs="sign" in setting.method,
            )
        }  # fmt: skip
    if setting.record_epsilon is not None:
        facts = facts | {"record_epsilon": setting.record_epsilon}
    spec = dpi.Spec(
        setting.method, vectors.shape[1], k=setting.k, epsilon=setting.epsilon,
        adjacency=adjacency, **facts,
    )  # fmt: skip
    index = dpi.PrivateIndex(spec, metric=setting.metric)
    index.add(base, skip_leak_check=True)  # rows of tables repeat
    if setting.denoised:
        index.fit_denoiser()
    index.search(queries[:1], query="exact")
    index.add(public, skip_leak_check=True)
    seconds = []
    for _ in range(4):
        start = time.process_time()
        index.search(queries[:1], query="exact")
        seconds.append(time.process_time() - start)
    base = sparse.vstack([base, public]) if sparse.issparse(base) else np.vstack([base, public])
    truth = true_similarities(base, queries, setting.metric)
    near = truth if setting.metric == "l2" else -truth
    nearest = np.argpartition(near, 50, axis=1)[:, :50]
    facts = spec.scale**2 if setting.metric != "cosine" else 1.0
    index.calibrate()
    for mode in ("exact", "private"):
        hits = index.search(queries, k=FOUND, query=mode)
        true = np.take_along_axis(truth, hits.ids, axis=1) / facts
        off = hits.similarity - true
        stated = np.isfinite(hits.stderr) & np.isfinite(hits.similarity)
        errors = hits.stderr[stated]
        yield {
            "query": mode,
            "truth": true[stated].mean() if errors.size else true.mean(),
            "stated": np.nanmean(hits.similarity),
            "stderr": errors.mean() if errors.size else np.nan,
            "covered": (np.abs(off[stated]) <= 1.96 * errors).mean() if errors.size else np.nan,
            "unstated": 1 - stated.mean(),
            "rmse": np.sqrt(np.nanmean(off**2)),
            "found": np.mean(
                [np.isin(*pair).mean() for pair in zip(hits.ids, nearest, strict=True)]
            ),
            "first": seconds[0],
            "later": min(seconds[1:]),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", help="data sets, by comma")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(""))
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "coverage.csv"
    done = set()
    if path.exists():
        with path.open(newline="") as file:
            done = {tuple(row[c] for c in COLUMNS[:7]) for row in csv.DictReader(file)}
    else:
        path.write_text(",".join(COLUMNS) + "\n")
    for setting in _settings():
        name = setting.data.__name__ + (" foreign" if setting.foreign else "")
        if options.only and setting.data.__name__ not in options.only.split(","):
            continue
        words = "yes" if setting.denoised else "no"
        size = setting.k or setting.centroids or setting.public or ""
        beta = "record" if setting.beta is None else f"{setting.beta:g}"
        key = (name, setting.method, str(size), beta, f"{setting.epsilon:g}", words,
               setting.metric)  # fmt: skip
        if key in done:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                rows = list(measure(setting))
            except dpi.InputError as error:
                print(*key, error, flush=True)
                continue
        for row in rows:
            row |= dict(zip(COLUMNS, key, strict=False))
            values = {c: v if isinstance(v, str) else f"{v:.4g}" for c, v in row.items()}
            with path.open("a", newline="") as file:
                csv.DictWriter(file, COLUMNS, lineterminator="\n").writerow(values)
            print(*(values[c] for c in COLUMNS), flush=True)


if __name__ == "__main__":
    main()
