"""What plans with windows find: pictures, sentences, records, trigrams and tables.

    python bench/windows.py [--only mnist,cifar10,…] [--epsilons 1,2] [--queries exact,private]
                            [--builds 3] [--without]

Prints lines of CSV: what ``plan`` recommends from public vectors alone, and what several builds of
it find on average. ``precision`` is the share of the first ten answers that are among the true 50
nearest, ``recall`` the share of the true ten among 1 % of the collection (of sentences and records
5 %); ``compared`` is the mean share of the collection that queries took. For ``records``, and
``questions`` with other queries, candidates are "5%" of the index on average; ``both`` promises
ε = 8 for records besides.
``--without`` leaves windows out, as before there were any. The data are in DPINDEX_DATA.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
from recipes import DATA, counts, embeddings, trigrams

import dpindex as dpi
from dpindex.base.arrays import unit
from dpindex.index.search import QueryMode
from dpindex.integrations.embed import TextModel
from dpindex.study import ground_truth

QUERIES, PUBLIC, SENTENCES = 500, 2000, 4000
NEIGHBOURS, FOUND = 50, 10
SHARE = "5%"
NO_WINDOWS = {
    "dpindex.mechanism.optimiser._WINDOWS": (0.0,),
    "dpindex.study.candidates._WINDOWS": (None,),
}
COLUMNS = (
    "data", "epsilon", "planned for", "method", "code", "window", "denoiser",
    "private precision", "exact precision", "private recall", "exact recall",
    "private compared", "exact compared",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """Collection, queries and public vectors, what is hidden, and the share that recall counts."""

    base: Any
    queries: Any
    public: Any
    epsilons: tuple[float, ...]
    terms: dict[str, Any]
    share: float = 0.01


def pictures(name: str, epsilons: tuple[float, ...], **terms: Any) -> Case:
    """All training pictures; queries and public ones are test pictures."""
    with np.load(DATA / name) as stored:
        base, test = (stored[part].reshape(len(stored[part]), -1) for part in ("X_train", "X_test"))
    pixels = {"scale": 255.0, "bounds": (0.0, 1.0), "adjacency": dpi.attribute(1.0)}
    return Case(base, test[:QUERIES], test[5000 : 5000 + PUBLIC], epsilons, {**pixels, **terms})


def patches() -> Case:
    """Parts of 20 × 20 pixels of gray photographs, turned and from anywhere in them."""
    rng = np.random.default_rng(0)
    with np.load(DATA / "cifar10_gray.npz") as stored:
        whole = stored["X_train"][: 20_000 + PUBLIC + QUERIES].reshape(-1, 32, 32)
    parts = []
    for picture, (down, right) in zip(whole, rng.integers(13, size=(len(whole), 2)), strict=True):
        part = picture[down : down + 20, right : right + 20]
        parts.append(np.rot90(part, rng.integers(4)).ravel())
    pixels = {"scale": 255.0, "bounds": (0.0, 1.0), "adjacency": dpi.attribute(1.0)}
    return split(np.array(parts), PUBLIC, (0.5, 1.0, 2.0), pixels)


def split(vectors: Any, public: int, epsilons: tuple[float, ...], terms: dict[str, Any],
          share: float = 0.01) -> Case:  # fmt: skip
    """Collection, queries and public vectors, drawn at random."""
    order = np.random.default_rng(0).permutation(vectors.shape[0])
    queries, sample, base = np.split(order, [QUERIES, QUERIES + public])
    return Case(vectors[base], vectors[queries], vectors[sample], epsilons, terms, share)


def questions() -> Case:
    """Whole records of sentences; the queries are those that the file names."""
    vectors = unit(embeddings())
    with np.load(DATA / "clinc150_minilm.npz") as stored:
        corpus = np.random.default_rng(0).permutation(stored["corpus_idx"])
        queries = stored["query_idx"][:QUERIES]
    base, sample = np.split(corpus, [-SENTENCES])
    return Case(vectors[base], vectors[queries], vectors[sample], (6.0, 8.0), RECORDS, 0.05)


def texts() -> Any:
    """Sentences as the model of the package takes them, at norm 1."""
    with gzip.open(DATA / "clinc150_texts.txt.gz", "rt") as file:
        vectors = TextModel().encode(file.read().splitlines())
    return unit(vectors[np.linalg.norm(vectors, axis=1) > 0])


def naval() -> Any:
    """Sixteen readings of a ship's engine, from 0 to 1 over their ranges."""
    with np.load(DATA / "tab_naval.npz") as stored:
        x = stored["X"].astype(np.float64)
    low, high = x.min(axis=0), x.max(axis=0)
    return ((x - low) / np.maximum(high - low, 1e-9)).astype(np.float32)


ENTRIES = {"bounds": (0.0, 1.0), "adjacency": dpi.attribute(1.0)}
TIMES = {"scale": 10.0, **ENTRIES}
SENTENCE = {"adjacency": dpi.attribute(0.5)}
BOTH = {**SENTENCE, "record_epsilon": 8.0}
RECORDS = {"adjacency": dpi.record()}

CASES: dict[str, Callable[[], Case]] = {
    "mnist": lambda: pictures("mnist.npz", (0.5, 1.0, 2.0, 3.0)),
    "cifar10": lambda: pictures("cifar10_gray.npz", (0.5, 1.0, 2.0)),
    "bits": lambda: pictures("mnist.npz", (1.0, 2.0, 3.0), max_bytes=25),
    "sentences": lambda: split(
        unit(embeddings()), SENTENCES, (0.1, 0.25, 0.5, 1.0), SENTENCE, 0.05
    ),
    "both": lambda: split(unit(embeddings()), SENTENCES, (1.0, 2.0), BOTH, 0.05),
    "records": lambda: split(unit(embeddings()), SENTENCES, (6.0, 8.0), RECORDS, 0.05),
    "questions": questions,
    "trigrams": lambda: split(trigrams(), PUBLIC, (1.0, 3.0), ENTRIES),
    "counts": lambda: split(counts(), PUBLIC, (1.0, 3.0), TIMES),
    "naval": lambda: split(naval(), PUBLIC, (1.0, 3.0), ENTRIES),
    "patches": patches,
    "texts": lambda: split(texts(), SENTENCES, (0.25, 0.5, 1.0, 2.0), SENTENCE, 0.05),
}


def planned(case: Case, epsilon: float, query: QueryMode) -> dpi.Plan:
    """What is recommended of public vectors."""
    count = case.base.shape[0]
    whole_records = case.terms == RECORDS
    return dpi.plan(
        case.public,
        n=count,
        epsilon=epsilon,
        query=query,
        candidates=SHARE if whole_records else FOUND,
        **case.terms,
    )


def found(case: Case, index: dpi.PrivateIndex, mode: QueryMode, near: Any, nearer: Any) -> Any:
    """Precision, recall and the share of the collection that was compared."""
    most = round(case.share * len(index))
    if case.terms != RECORDS:
        ids = index.search(case.queries, k=most, query=mode).ids
        precision = near.precision(ids, FOUND, NEIGHBOURS).mean()
        return precision, nearer.recall(ids, most, FOUND).mean(), case.share
    asked = []

    def vectors(ids: Any) -> Any:
        asked.append(len(ids))
        return case.base[ids]

    ids = index.search(case.queries, FOUND, mode, candidates=SHARE, rerank=vectors).ids
    compared = sum(asked) / len(case.queries) / len(index)
    return (
        near.precision(ids, FOUND, NEIGHBOURS).mean(),
        nearer.recall(ids, FOUND, FOUND).mean(),
        compared,
    )


def measured(case: Case, epsilon: float, query: QueryMode, builds: int) -> tuple[Any, ...]:
    """What is recommended, and the means of what several builds of it find."""
    best = planned(case, epsilon, query).best
    near, nearer = (ground_truth(case.base, case.queries, count) for count in (NEIGHBOURS, FOUND))
    shares = []
    for _ in range(builds):
        index = dpi.PrivateIndex(best.spec)
        index.add(case.base, skip_leak_check=True)
        if best.denoiser is not None:
            index.fit_denoiser(best.denoiser)
        shares.append([found(case, index, mode, near, nearer) for mode in ("private", "exact")])
    means = np.mean(shares, axis=0)  # by mode and measure
    window = best.spec.window
    if best.spec.design is not None:
        window = best.spec.design.windows is not None
    return (
        epsilon, query, best.method, best.size, window, best.denoiser,
        *(f"{share:.3f}" for share in means.T.ravel()),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default=",".join(CASES), help="data")
    parser.add_argument("--epsilons", help="only these")
    parser.add_argument("--queries", default="exact,private", help="modes that are planned for")
    parser.add_argument("--builds", type=int, default=3, help="of each plan")
    parser.add_argument("--without", action="store_true", help="without windows")
    options = parser.parse_args()
    if options.without:
        for name, value in NO_WINDOWS.items():
            mock.patch(name, value).start()
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    for name in options.only.split(","):
        case = CASES[name]()
        chosen = options.epsilons and tuple(map(float, options.epsilons.split(",")))
        for epsilon in chosen or case.epsilons:
            for query in options.queries.split(","):
                writer.writerow((name, *measured(case, epsilon, query, options.builds)))
                sys.stdout.flush()


if __name__ == "__main__":
    main()
