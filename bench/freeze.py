"""Digests of what an index says, for every method, metric, index type and query mode.

    python bench/freeze.py --write before.json     # on the old code
    python bench/freeze.py --compare before.json   # on the new one: exit code 1 if anything differs

For changes that are to change nothing: codes, hits, scores, similarities, errors, saved files,
published rows, likelihoods, evaluations and plans are compared bit for bit. Noise comes from seeds
here, so the codes are the same in every run; plans that try specs in threads may draw theirs in
another order, so run one that differs again on the old code. Digests depend on the machine and on
the versions of numpy and Faiss, and are not kept.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy: the order of sums is that of one thread

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
# Last: some files of this folder are called like packages.
sys.path[:] = [path for path in sys.path if Path(path).resolve() != ROOT / "bench"]
sys.path.append(str(ROOT / "tests"))

import pytest  # noqa: E402
from helpers.specs import example  # noqa: E402
from helpers.streams import seed_noise  # noqa: E402

import dpindex as dpi  # noqa: E402
from dpindex.base.errors import InputError  # noqa: E402
from dpindex.integrations.publication import Publication  # noqa: E402
from dpindex.study.matching import rank_by_law  # noqa: E402
from dpindex.study.trial import measure_linkage  # noqa: E402

DIM = 24
ROWS = 700
"""More than a denoiser is learned from at least."""
QUERIES = 6
INDEX_TYPES = ("f32", "f16", "int8", "IVF4,Flat")
TIMES = ("rankings_per_second", "build_seconds")


def digest(*parts: Any) -> str:
    """A digest of arrays and texts, of their types and shapes too."""
    state = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            state.update(f"{part.dtype} {part.shape}".encode())
            part = np.ascontiguousarray(part).tobytes()
        state.update(part if isinstance(part, bytes) else str(part).encode())
    return state.hexdigest()[:16]


def vectors() -> tuple[Any, Any]:
    """Vectors of a few common causes in [0, 1], and queries near some of them."""
    rng = np.random.default_rng(5)
    base = rng.normal(size=(ROWS, 3)) @ rng.normal(size=(3, DIM)) + 0.2 * rng.normal(
        size=(ROWS, DIM)
    )
    base = np.clip(base / 8 + 0.5, 0.0, 1.0)
    near = base[:QUERIES] + 0.02 * rng.normal(size=(QUERIES, DIM))
    return base, np.clip(near, 0.0, 1.0)


def of_hits(hits: dpi.Hits) -> str:
    return digest(hits.ids, hits.scores, hits.similarity, hits.stderr, hits.unbiased, hits.exact)


def of_folder(path: Path) -> str:
    """Of all files of a saved index."""
    files = [file for file in sorted(path.rglob("*")) if file.is_file()]
    return digest(*itertools.chain(*((file.name, file.read_bytes()) for file in files)))


def searched(index: dpi.PrivateIndex, codes: Any, asked: Any) -> Iterator[tuple[str, str]]:
    for mode, queries in (("exact", asked), ("private", codes)):
        for label, terms in (("", {}), (" filtered", {"filter": list(range(0, ROWS, 3))})):
            hits = index.search(queries, 20, **terms)
            yield mode + label, of_hits(hits)
        try:
            found = index.range_search(queries, 0.3)
        except InputError as error:
            yield f"{mode} range", digest(error)
        else:
            yield f"{mode} range", digest(*map(of_hits, found))
    yield "recall", digest(index.index_recall)


def published(index: dpi.PrivateIndex) -> str:
    """The rows that a database gets, and the document beside them."""
    codes = index.codes
    parts: list[Any] = []
    for exact_queries in (True, False):
        made = Publication.of(index, codes, index.ids, exact_queries)
        rows = made.rows_of(codes, index.ids, None)
        parts += [made.to_bytes(), str(made.layout), str(rows.to_pydict())]
    return digest(*parts)


def indexed(spec: dpi.Spec, codes: Any, of_queries: Any, asked: Any) -> Iterator[tuple[str, str]]:
    for metric, index_type in itertools.product(("cosine", "ip", "l2"), INDEX_TYPES):
        label = f"{metric} {index_type}"
        try:
            index = dpi.PrivateIndex(spec, metric=metric, index_type=index_type)
        except InputError as error:
            yield label, digest(error)
            continue
        index.add_codes(codes)
        for step in ("plain", "calibrated", "linear", "linear calibrated", "score"):
            try:
                if step == "linear" or step == "score":
                    index.fit_denoiser(step)
                elif "calibrated" in step:
                    index.calibrate()
            except InputError as error:
                yield f"{label} {step}", digest(error)
                continue
            for name, value in searched(index, of_queries, asked):
                yield f"{label} {step} {name}", value
            if index_type == "f32":
                yield f"{label} {step} published", published(index)
        with TemporaryDirectory() as folder:
            index.save(Path(folder) / "index", allow_unprotected=True)
            yield f"{label} saved", of_folder(Path(folder) / "index")


def attacked(spec: dpi.Spec, codes: Any, base: Any) -> Iterator[tuple[str, str]]:
    own = np.arange(100)
    places = rank_by_law(spec, codes.take(slice(100)), base[:200], own)
    yield "ranked by law", digest(places.better)
    if spec.method_row.private:
        privatizer = dpi.Privatizer(spec)
        known = base[:100]
        found = measure_linkage(privatizer, known, codes.take(slice(100)), codes)
        yield "linkage", digest(found.better, found.tied)


def of_method(row: Any) -> Iterator[tuple[str, str]]:
    spec = example(row, DIM)
    base, asked = vectors()
    if spec.method_row.private:
        privatizer = dpi.Privatizer(spec)
    else:
        privatizer = dpi.Privatizer(spec, allow_unprotected=True)
    codes = privatizer.privatize(base)
    of_queries = privatizer.privatize(asked)
    yield "codes", digest(codes.to_bytes(), of_queries.to_bytes())
    yield from indexed(spec, codes, of_queries, asked)
    yield from attacked(spec, codes, base)
    for curve in dpi.evaluate(base, asked, [spec], runs=1, neighbours=20):
        for point in curve.points:
            stated = {name: value for name, value in point.mean.items() if name not in TIMES}
            yield f"evaluated {point.query}", digest(stated)


def planned() -> Iterator[tuple[str, str]]:
    """Plans for one vector an attribute and for records."""
    base, _ = vectors()
    terms = {"n": 20_000, "epsilon": 4.0, "bounds": (0.0, 1.0)}
    for metric in ("cosine", "l2"):
        made = dpi.plan(base, adjacency=dpi.attribute(0.5), metric=metric, **terms)
        yield f"attribute {metric}", digest(made.to_dict())
    of_records = terms | {"bounds": (-1.0, 1.0)}
    made = dpi.plan(base, adjacency=dpi.record(), **of_records)
    yield "record", digest(made.to_dict())


def measured(only: str) -> dict[str, str]:
    found = {}
    for row in [*dpi.methods(), None]:
        name = "plan" if row is None else row.name
        if only not in name:
            continue
        with pytest.MonkeyPatch.context() as patch:
            seed_noise(patch)
            cases = planned() if row is None else of_method(row)
            for case, value in cases:
                found[f"{name}: {case}"] = value
        print(name, len(found), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--compare", type=Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    found = measured(options.only)
    if options.write:
        options.write.write_text(json.dumps(found, indent=0))
    if options.compare:
        before = json.loads(options.compare.read_text())
        before = {
            case: value for case, value in before.items() if options.only in case.split(":")[0]
        }
        wrong = [case for case in before | found if before.get(case) != found.get(case)]
        print(f"{len(before)} before, {len(wrong)} differ", *wrong[:40], sep="\n")
        sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
