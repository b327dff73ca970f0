"""What a plan promises, and what is found: five data sets, made ones, groups, other topics.

    python bench/promises.py [--only mnist,cifar10,trigrams,counts,clinc150,groups-3000,
                              skin-1,attributes,table,groups,topics,equal-8000,zipf-20000,outliers-2,…]
                             [--epsilons 1,2] [--queries exact,private] [--builds 3] [--alone]
                             [--first 5]

Prints lines of CSV. A collection is planned for R = 1 % of it, or for the answers of codes
``--alone``, for exact and for private queries, from 2000 public vectors (4000 of sentences) that
are in no collection; then the recommended spec is built and searched with 500 other queries of both
kinds, several times. With ``--first 5`` so are the five specs that are predicted to be best, and
``best`` is what the best of them finds among R. Precision is the share of the first ten
answers that are among the true 50 nearest; recall is the share of the true ten nearest, ties
included, among the first R answers of the codes. ``told`` says what the plan was told beside the
sample, ``range`` where the plan expects what it recommends by, and ``crowding`` is what the codes
give, where above 1.05 the index warns. The data are in DPINDEX_DATA.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from hundred_thousand import ROWS
from hundred_thousand import vectors as large_vectors
from recipes import DATA, counts, embeddings, pictures, table, trigrams

import dpindex as dpi
from dpindex.decode.symbols import crowding
from dpindex.index.search import QueryMode
from dpindex.study import ground_truth

QUERIES = 500
PUBLIC = 2000
PUBLIC_RECORDS = 4000
NEIGHBOURS, FOUND = 50, 10
SALARIES = ("nyc_fy2016_base", "nyc_fy2016_regular_gross", "nyc_fy2016_overtime")
COPIES = 4
COPY_NOISE = 0.6
SENTENCES = 4000
PUBLIC_SENTENCES = 1000
RECORD = {"adjacency": dpi.record(), "methods": ["record-codebook"]}
PIXELS = {"scale": 255.0, "bounds": (0.0, 1.0), "adjacency": dpi.attribute(1.0)}
STAIRCASE = {"adjacency": dpi.attribute(1.0), "methods": ["raw-staircase"]}
ENTRIES = {"bounds": (0.0, 1.0), "adjacency": dpi.attribute(1.0)}
SENTENCE = {"adjacency": dpi.attribute(0.5)}
COLUMNS = (
    "data", "told", "epsilon", "query", "asked", "method", "code", "denoiser", "measure",
    "promised", "found", "too high", "range", "best", "crowding",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A collection, queries and a public sample, and what a plan is told of them."""

    base: Any
    queries: Any
    public: Any
    epsilons: tuple[float, ...]
    terms: dict[str, Any]
    told: dict[str, dict[str, Any]] = field(default_factory=lambda: {"": {}})


def split(vectors: Any, public: int) -> tuple[Any, Any, Any]:
    """Return collection, queries and sample, drawn at random."""
    order = np.random.default_rng(0).permutation(vectors.shape[0])
    parts = np.split(order, [QUERIES, QUERIES + public])
    return vectors[parts[2]], vectors[parts[0]], vectors[parts[1]]


def gray_pictures() -> Any:
    with np.load(DATA / "cifar10_gray.npz") as stored:
        return stored["X_train"]


def of_unit_norm(vectors: Any) -> Any:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def in_groups(public_rows: int = 5 * PUBLIC_SENTENCES) -> Case:
    """Sentences with four noisy copies each, and queries that have no copies.

    Public queries are others of the same corpus, without copies too.
    """
    rng = np.random.default_rng(0)
    vectors = of_unit_norm(embeddings())
    vectors = vectors[rng.permutation(len(vectors))]
    private, public, queries, public_queries, _ = np.split(
        vectors, np.cumsum([SENTENCES, public_rows // (1 + COPIES), QUERIES, QUERIES])
    )

    def with_copies(sentences: Any) -> Any:
        noise = rng.normal(scale=COPY_NOISE / sentences.shape[1] ** 0.5, size=(
            len(sentences), COPIES, sentences.shape[1]
        ))  # fmt: skip
        copies = of_unit_norm((sentences[:, None] + noise).reshape(-1, sentences.shape[1]))
        return np.concatenate([sentences, copies])

    sentence = np.arange(len(public))
    groups = np.concatenate([sentence, np.repeat(sentence, COPIES)])
    told = {
        "": {},
        "groups": {"groups": groups},
        "queries": {"public_queries": public_queries},
        "groups and queries": {"groups": groups, "public_queries": public_queries},
    }
    return Case(
        with_copies(private), queries, with_copies(public), (8.0, 6.0), RECORD, told
    )  # fmt: skip


def told_groups(public_rows: int) -> Case:
    """The same, with groups told, of another number of public vectors."""
    case = in_groups(public_rows)
    return replace(case, epsilons=(8.0,), told={"groups": case.told["groups"]})


def made_topics(n: int, shares: Any = None) -> Case:
    """Directions about fifty centres, in as many dimensions around each as there are."""
    rng = np.random.default_rng(0)
    centres = of_unit_norm(rng.normal(size=(50, 48)))
    rows = n + PUBLIC + QUERIES
    noise = rng.normal(scale=0.6 / 48**0.5, size=(rows, 48))
    vectors = of_unit_norm(centres[rng.choice(50, rows, p=shares)] + noise)
    return Case(*split(vectors, PUBLIC), (6.0,), STAIRCASE)


def zipf_topics(n: int) -> Case:
    """The same, of topics of very different sizes."""
    sizes = 1.0 / np.arange(1, 51)
    return made_topics(n, sizes / sizes.sum())


def outliers(ranges: float) -> Case:
    """A table, some of whose cells lie so many ranges outside theirs."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20_000, 4)) @ rng.normal(size=(4, 12)) + 0.5 * rng.normal(
        size=(20_000, 12)
    )
    x = 1.0 / (1.0 + np.exp(-x))
    far = rng.random(x.shape) < 0.01
    x[far] = ranges * rng.normal(size=far.sum())
    terms = {**ENTRIES, "clip": True, "metric": "l2"}
    return Case(*split(x.astype(np.float32), PUBLIC), (5.0,), terms)


def real_table(name: str, beta: float, ranges: float = 0.0) -> Case:
    """A table of the data, each column from 0 to 1 over its range in the first thousand rows.

    One cell in a hundred lies up to so many ranges outside.
    """
    rng = np.random.default_rng(0)
    with np.load(DATA / f"tab_{name}.npz") as stored:
        parts = [stored[key] for key in stored.files if key == "X" or key in SALARIES]
    x = np.column_stack(parts)[:60_000].astype(np.float64)
    low, high = x[:1000].min(axis=0), x[:1000].max(axis=0)
    x = (x - low) / np.maximum(high - low, 1e-9)
    far = rng.random(x.shape) < 0.01 * (ranges > 0)
    x[far] = ranges * rng.normal(size=far.sum())
    terms = {"bounds": (0.0, 1.0), "adjacency": dpi.attribute(beta), "clip": True, "metric": "l2"}
    return Case(*split(x.astype(np.float32), PUBLIC), (5.0,), terms)


def hundred_thousand() -> Case:
    """What docs/hundred-thousand.md indexes."""
    made = large_vectors()
    private, public, queries = np.split(made, [ROWS, ROWS + PUBLIC_RECORDS])
    return Case(private, queries, public, (8.0,), RECORD)


def other_topics() -> Case:
    """Public sentences of half of the intents, private ones and queries of the others."""
    vectors = embeddings()
    with np.load(DATA / "clinc150_minilm.npz") as stored:
        public = stored["intent"] % 2 == 0
    base, queries, _ = split(vectors[~public], 0)
    _, _, sample = split(vectors[public], PUBLIC_RECORDS)
    return Case(base, queries, sample, (8.0, 12.0), RECORD)


CASES: dict[str, Callable[[], Case]] = {
    "mnist": lambda: Case(*split(pictures(), PUBLIC), (0.5, 1.0, 2.0, 3.0), PIXELS),
    "cifar10": lambda: Case(*split(gray_pictures(), PUBLIC), (0.5, 1.0, 2.0), PIXELS),
    "attributes": lambda: Case(
        *split(embeddings(), PUBLIC_RECORDS), (0.5, 1.0, 2.0, 3.0), SENTENCE
    ),
    "trigrams": lambda: Case(
        *split(trigrams(), PUBLIC), (1.0, 3.0), ENTRIES
    ),
    "counts": lambda: Case(*split(counts(), PUBLIC), (1.0, 3.0), {**ENTRIES, "scale": 10.0}),
    "clinc150": lambda: Case(
        *split(embeddings(), PUBLIC_RECORDS), (6.0, 8.0, 10.0), RECORD
    ),
    "table": lambda: Case(
        *split(table(), PUBLIC), (1.0, 5.0), {"bounds": (0.0, 1.0), "adjacency": dpi.attribute(0.1)}
    ),
    "groups": in_groups,
    "topics": other_topics,
    **{f"equal-{n}": partial(made_topics, n) for n in (2400, 8000, 20_000, 40_000, 80_000)},
    **{f"zipf-{n}": partial(zipf_topics, n) for n in (2400, 8000, 20_000, 40_000, 80_000)},
    **{f"outliers-{ranges}": partial(outliers, ranges) for ranges in (2, 10, 80)},
    **{
        f"clinc150-{rows}": lambda rows=rows: Case(*split(embeddings(), rows), (8.0,), RECORD)
        for rows in (500, 800, 1500, 3000)
    },
    **{f"groups-{rows}": partial(told_groups, rows) for rows in (500, 800, 1500, 3000)},
    **{
        f"{name}-{beta:g}": partial(real_table, name, beta)
        for name in ("naval", "occupancy", "salaries", "skin") for beta in (0.1, 1.0)
    },
    **{f"naval-1-{ranges}": partial(real_table, "naval", 1.0, ranges) for ranges in (2, 10, 80)},
    "hundred-thousand": hundred_thousand,
}  # fmt: skip


def measured(
    case: Case, query: QueryMode, builds: int, alone: bool, first: int
) -> Iterator[tuple[Any, ...]]:
    """Yield what each plan of a case promises for a query mode, and what its indexes find."""
    count = case.base.shape[0]
    metric = case.terms.get("metric", "cosine")
    base, asked = case.base, case.queries
    if case.terms.get("clip"):
        base, asked = (vectors.clip(*case.terms["bounds"]) for vectors in (base, asked))
    near = ground_truth(base, asked, NEIGHBOURS, metric)
    nearer = ground_truth(base, asked, FOUND, metric)
    shown = (100, count // 100, count // 20)
    candidates = FOUND if alone else count // 100

    def found_with(row: dpi.study.Row, mode: QueryMode) -> dict[str, float]:
        index = dpi.PrivateIndex(row.spec, metric=metric)
        index.add(case.base, skip_leak_check=True)
        if row.denoiser is not None:
            index.fit_denoiser(row.denoiser)
        ids = index.search(case.queries, k=max(shown), query=mode).ids
        found = {"precision": near.precision(ids, FOUND, NEIGHBOURS).mean()}
        for number in (*shown, candidates):
            found[f"R = {number}"] = nearer.recall(ids, number, FOUND).mean()
        return found

    for epsilon in case.epsilons:
        for told, knowledge in case.told.items():
            plan = dpi.plan(
                case.public, n=count, epsilon=epsilon, query=query, candidates=candidates,
                **knowledge, **case.terms,
            )  # fmt: skip
            best = plan.best
            ranked_by = f"R = {candidates}"
            rivals = [found_with(row, query)[ranked_by] for row in plan.rows[1:first]]
            low, high = plan.range_of(plan.goal.measures[0])
            for mode in ("exact", "private"):
                every = [found_with(best, mode) for _ in range(builds)]
                found = {name: np.mean([each[name] for each in every]) for name in every[0]}
                promised = {"precision": best.found(mode).precision}
                promised |= {f"R = {n}": best.found(mode).recall_within(n) for n in shown}
                for measure, share in promised.items():
                    recommended_by = mode == query and measure == ranked_by
                    most = max([found[ranked_by], *rivals])
                    yield (
                        told, epsilon, query, mode, best.method, best.size, best.denoiser, measure,
                        f"{share:.3f}", f"{found[measure]:.3f}", f"{share - found[measure]:+.3f}",
                        f"{low:.2f} to {high:.2f}" if recommended_by else "",
                        f"{most:.3f}" if recommended_by and rivals else "",
                        uneven(case, best.spec),
                    )  # fmt: skip


def uneven(case: Case, spec: dpi.Spec) -> str:
    """Return how unevenly codes fall on codewords, if there are any."""
    if spec.codebook is None:
        return ""
    sample = dpi.Privatizer(spec).privatize(case.base[:4000])
    return f"{crowding(sample, spec.law):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default=",".join(CASES), help="data")
    parser.add_argument("--epsilons", help="only these")
    parser.add_argument("--queries", default="exact,private", help="modes that are planned for")
    parser.add_argument("--builds", type=int, default=1, help="of each spec")
    parser.add_argument("--alone", action="store_true", help="plan for the ten answers of codes")
    parser.add_argument("--first", type=int, default=1, help="specs that are built to compare")
    options = parser.parse_args()
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    for name in options.only.split(","):
        case = CASES[name]()
        if options.epsilons:
            case = replace(case, epsilons=tuple(map(float, options.epsilons.split(","))))
        for query in options.queries.split(","):
            for row in measured(case, query, options.builds, options.alone, options.first):
                writer.writerow((name, *row))
                sys.stdout.flush()


if __name__ == "__main__":
    main()
