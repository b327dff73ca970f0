"""What 10^8 and 10^9 vectors of 768 attributes take, computed from constants measured here.

    python bench/scale.py constants      # measures; two minutes, one thread, a quiet machine
    python bench/scale.py model          # computes the tables from the measured constants
    nice python bench/scale.py whole     # builds and searches 10^8 generated vectors

The first writes ``bench/scale/constants.csv``, the second prints tables for ``scale/README.md``
and writes ``bench/scale/ingest.csv`` and ``serving.csv``, and the third appends a line to
``whole.csv`` (``--rows`` for fewer vectors, ``--price`` of a core-hour). Needs ``dpindex[io]``.
``--store URL`` measures objects in a bucket, too (``dpindex[cloud]``).
"""

from __future__ import annotations

import argparse
import csv
import math
import secrets
import tempfile
import time
from collections.abc import Callable
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import scale_whole
from threadpoolctl import threadpool_limits

import dpindex as dpi
from dpindex.accounting.ledger import Ledger
from dpindex.base.files import make_folder
from dpindex.index.structures import structures
from dpindex.mechanism.noise.additive import staircase_noise
from dpindex.mechanism.noise.signs import draw_flips, randomized_response
from dpindex.mechanism.secret_random import secret_stream
from dpindex.mechanism.spec import Projector
from dpindex.storage.manifest import segment_number
from dpindex.storage.release import Segment
from dpindex.storage.release.draws import StagedDraws
from dpindex.storage.release.sealed import SealedStaging
from dpindex.storage.release.work import Labels
from dpindex.storage.staging import Staging, StagingFolder
from dpindex.vectors import open_dataset

DIM, ROWS, CODEWORDS, GRAPH = 768, 1 << 15, 1 << 16, 1 << 13
LISTS, PROBES = 1 << 17, 64
LINK = 1.25e9
"""Bytes a second of the network that the model has for each machine: 10 Gbit/s. Not measured."""

OUT = Path(__file__).parent / "scale"


@cache
def specs() -> dict[str, dpi.Spec]:
    rng = np.random.default_rng(1)
    book = rng.normal(size=(CODEWORDS, DIM)).astype(np.float32)
    book /= np.linalg.norm(book, axis=1, keepdims=True)
    terms: Any = {"adjacency": dpi.record(), "codebook": dpi.Codebook(book)}
    return {
        "signs, 128 bytes": dpi.Spec(
            "dp-signoporp-rr", DIM, 1024, 4.0, repetitions=2, adjacency=dpi.attribute(1.0)
        ),
        "numbers, raw": dpi.Spec("raw-staircase", DIM, epsilon=5.0, adjacency=dpi.attribute(0.1)),
        "symbols, 65536 codewords": dpi.Spec("record-codebook", DIM, epsilon=8.0, **terms),
    }


def seconds(action: Callable[[], Any], least: float = 0.7) -> float:
    """Of one call: the least of three means, each over ``least`` seconds or more."""
    action()
    means = []
    for _ in range(3):
        start, calls = time.perf_counter(), 0
        while time.perf_counter() - start < least / 3 or not calls:
            action()
            calls += 1
        means.append((time.perf_counter() - start) / calls)
    return min(means)


class Constants(dict[str, tuple[float, str]]):
    def put(self, name: str, value: float, unit: str) -> None:
        self[name] = value, unit
        print(f"{name:<62} {value:10.4g} {unit}", flush=True)


def ingest(found: Constants) -> None:
    stream, count = secret_stream(), 1 << 15
    law = staircase_noise(1.0)
    found.put("noise: staircase", seconds(lambda: law.source.sample(count, stream)) / count * 1e9,
              "ns a coordinate")  # fmt: skip
    thresholds = np.array([randomized_response(1.0).thresholds[0]], dtype=np.uint64)
    index = np.zeros(count, dtype=np.intp)
    flips = seconds(lambda: draw_flips(thresholds, index, stream)) / count
    found.put("noise: flips", flips * 1e9, "ns a coordinate")
    x = np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    for name, spec in specs().items():
        some = x[:512] if spec.codebook else x[:8192]
        projector, privatizer = Projector(spec), dpi.Privatizer(spec)
        whole = seconds(partial(privatizer.privatize, some, threads=1)) / len(some)
        found.put(f"privatize: {name}", whole * 1e6, "µs a vector")
        if not spec.codebook:
            project = seconds(partial(projector.project, some)) / len(some)
            found.put(f"project: {name}", project * 1e9 / DIM, "ns an attribute")
        check = seconds(partial(projector.check, some)) / len(some)
        found.put(f"check: {name}", check * 1e6, "µs a vector")
        codes = privatizer.privatize(some)
        found.put(f"code: {name}", codes.stored.itemsize * codes.stored.shape[1], "bytes")


def stores(found: Constants, url: str | None) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    x = np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32)
    spec = next(iter(specs().values()))
    codes = spec.format.codes(np.random.default_rng(0).integers(0, 256, (65536, 128), np.uint8))
    data = codes.to_bytes()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "v").mkdir()
        column = pa.FixedSizeListArray.from_arrays(x.reshape(-1), DIM)
        pq.write_table(pa.table({"v": column}), folder / "v" / "0.parquet")
        (part,) = open_dataset(str(folder / "v")).parts

        def read() -> None:
            with part.vectors() as source:
                for _ in source.chunks(8192):
                    pass

        found.put("read Parquet", x.nbytes / seconds(read) / 1e9, "GB/s")
        private = folder / "private"
        make_folder(private / "staging")
        kept = StagedDraws(StagingFolder(private / "staging"), spec.format, with_labels=True)
        numbers = count()

        def write() -> None:
            number = next(numbers)
            segment = Segment(segment_number(number), 0, len(codes))
            kept.keep(segment, codes, Labels(np.arange(len(codes)) + number * len(codes), None))

        found.put("write a segment (link, fsync)", len(data) / seconds(write) / 1e9, "GB/s")
        make_folder(folder / "o")
        stagings: dict[str, Staging] = {"folder": StagingFolder(folder / "o")}
        if url is not None:
            stagings["bucket"] = SealedStaging(f"{url}/{secrets.token_hex(16)}", bytes(32))
        for what, staging in stagings.items():

            def create(staging: Staging = staging) -> None:
                staging.create(f"{secrets.token_hex(8)}.codes", data)

            found.put(
                f"create an object of 8 MB: {what}", len(data) / seconds(create) / 1e9, "GB/s"
            )
            if isinstance(staging, SealedStaging):
                staging.end()
        ledger, start = Ledger(folder / "ledger"), 0

        def book() -> None:
            nonlocal start
            ledger.record(spec, np.arange(start, start + 65536))
            start += 65536

        found.put("ledger", seconds(book) / 65536 * 1e6, "µs an id")
        size = sum(file.stat().st_size for file in folder.glob("ledger*") if file.is_file())
        found.put("ledger, size", size / start, "bytes an id")


def search(found: Constants) -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 256, (1 << 20, 128), np.uint8)
    asked = rng.integers(0, 256, (64, 128), np.uint8)
    scan = seconds(lambda: faiss.knn_hamming(asked, bits, 10))
    found.put("scan: Hamming, 64 queries", bits.nbytes * 64 / scan / 1e9, "GB/s")
    spec = specs()["signs, 128 bytes"]
    index = dpi.PrivateIndex(spec)
    index.add_codes(spec.format.codes(bits))
    x = rng.normal(size=(64, DIM)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    scan = seconds(lambda: index.search(x, 10))
    found.put("scan: signs, exact queries, whole search", bits.nbytes * 64 / scan / 1e9, "GB/s")
    del index
    vectors = rng.normal(size=(1 << 16, DIM)).astype(np.float32)
    for factory in ("Flat", "SQfp16", "SQ8", "PQ384x4fs"):
        flat = faiss.index_factory(DIM, factory, faiss.METRIC_INNER_PRODUCT)
        flat.train(vectors[:1024])
        flat.add(vectors)
        size = flat.sa_code_size() * len(vectors)
        scan = seconds(partial(flat.search, x, 10))
        found.put(f"scan: {factory}, 64 queries", size * 64 / scan / 1e9, "GB/s")
    few = vectors[:GRAPH]
    graph = faiss.index_factory(DIM, "HNSW32,SQ8", faiss.METRIC_INNER_PRODUCT)
    graph.train(few[:2048])
    start = time.perf_counter()
    graph.add(few)
    build = (time.perf_counter() - start) / len(few)
    found.put("HNSW32,SQ8: build, at 8192 vectors", build * 1e6, "µs a vector")
    parameters = faiss.SearchParametersHNSW(efSearch=128)
    one = seconds(lambda: graph.search(x, 10, params=parameters)) / 64
    found.put("HNSW32,SQ8: search, at 8192 vectors, effort 128", one * 1e6, "µs a query")
    coarse = faiss.IndexFlatIP(DIM)
    coarse.add(rng.normal(size=(1 << 17, DIM)).astype(np.float32))
    one = seconds(lambda: coarse.search(vectors[:256], 1)) / 256
    found.put("IVF131072: lists of a vector", one * 1e6, "µs a vector")
    spec = specs()["symbols, 65536 codewords"]
    index = dpi.PrivateIndex(spec)
    index.add_codes(spec.format.codes(rng.integers(0, CODEWORDS, (1 << 20, 1)).astype(np.uint16)))
    one = seconds(lambda: index.search(x, 10)) / 64
    found.put("search: symbols, a million codes", one * 1e6, "µs a query")


def model(c: dict[str, float]) -> list[dict[str, Any]]:
    """One row for each method and number of vectors."""
    table = []
    for n in (10**8, 10**9):
        for name in specs():
            code = c[f"code: {name}"]
            privatize, check = c[f"privatize: {name}"], c[f"check: {name}"]
            project = c.get(f"project: {name}", math.nan) * DIM / 1e3
            read = 2 * 4 * DIM / c["read Parquet"] / 1e3  # checked first, then privatized
            write = (code + 8) / c["write a segment (link, fsync)"] / 1e3
            stages = {
                "read, twice": read,
                "check": check,
                "project": 0.0 if math.isnan(project) else project,
                "noise, packing": 0.0 if math.isnan(project) else max(privatize - project, 0.0),
                "nearest codeword": privatize if math.isnan(project) else 0.0,
                "write": write,
                "ledger": c["ledger"],
            }
            hours = {stage: cost * n / 3.6e9 for stage, cost in stages.items()}
            network = (2 * 4 * DIM + code + 8) * n
            row: dict[str, Any] = {
                "vectors": n,
                "method": name,
                "core_hours": sum(hours.values()),
                **{f"hours_{stage}": cost for stage, cost in hours.items()},
                "bound": max((cost, stage) for stage, cost in hours.items())[1],
                "input_tb": 4 * DIM * n / 1e12,
                "codes_gb": code * n / 1e9,
                "ids_gb": 8 * n / 1e9,
                "ledger_gb": c["ledger, size"] * n / 1e9,
                "network_hours": network / LINK / 3600,
                "cores_a_link": sum(hours.values()) / (network / LINK / 3600),
            }
            table.append(row)
    return table


def serving(c: dict[str, float]) -> list[dict[str, Any]]:
    """One row for each number of vectors, codes and structure; ids take 8 bytes each besides."""
    table = []
    signs, numbers, symbols = specs()
    for n in (10**8, 10**9):
        size = {s.index_type: s.row_bytes for s in structures(specs()[numbers], n)}
        lists = structures(specs()[symbols], n)[0].row_bytes
        floats = size["f16"] * n
        ivf = f"IVF{LISTS},PQ384x4fs"
        visited = PROBES / LISTS * size["PQ384x4fs"] * n
        grown = math.log(n) / math.log(GRAPH)  # a search of a graph takes as many steps longer
        graph = "HNSW32,SQ8: search, at 8192 vectors, effort 128"
        code, half = c[f"code: {signs}"] * n, size["PQ384x4fs"] * n
        rows = [
            (signs, "none: Hamming on mapped codes", 0, code / c["scan: Hamming, 64 queries"]),
            (signs, "fast scan, exact queries", code,
             code / c["scan: signs, exact queries, whole search"]),
            (numbers, "SQfp16", floats, floats / c["scan: SQfp16, 64 queries"]),
            (numbers, "PQ384x4fs", half, half / c["scan: PQ384x4fs, 64 queries"]),
            (numbers, f"{ivf}, {PROBES} lists", half + 8 * n,
             visited / c["scan: PQ384x4fs, 64 queries"] + c["IVF131072: lists of a vector"] * 1e3),
            (numbers, "HNSW32,SQ8", size["HNSW32,SQ8"] * n, c[graph] * grown * 1e3),
            (symbols, "lists", lists * n,
             c["search: symbols, a million codes"] * 1e3),
        ]  # fmt: skip
        for name, structure, memory, nanoseconds in rows:
            facts = {"vectors": n, "codes": name, "structure": structure}
            table.append({**facts, "mapped_gb": c[f"code: {name}"] * n / 1e9,
                          "memory_gb": memory / 1e9, "core_s": nanoseconds / 1e9})  # fmt: skip
    return table


def markdown(rows: list[dict[str, Any]], columns: dict[str, str]) -> str:
    lines = [f"| {' | '.join(columns.values())} |", "|---" * len(columns) + "|"]
    for row in rows:
        lines.append(f"| {' | '.join(_short(row[name]) for name in columns)} |")
    return "\n".join(lines)


def _short(value: Any) -> str:
    if isinstance(value, int) and value >= 10**6:
        return f"10^{round(math.log10(value))}"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(exist_ok=True)
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()}
                         for row in rows)  # fmt: skip


PARTS: dict[str, Callable[..., None]] = {"ingest": ingest, "stores": stores, "search": search}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["constants", "model", "whole"])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--store", help="URL of an empty prefix, written to and not removed")
    parser.add_argument("--rows", type=int, default=10**8)
    parser.add_argument("--codewords", type=int, default=1024)
    parser.add_argument("--price", type=float, default=0.05, help="of a core-hour")
    options = parser.parse_args()
    if options.what == "whole":
        scale_whole.run(options.rows, options.codewords, options.price, OUT / "whole.csv")
        return
    path, found = OUT / "constants.csv", Constants()
    if path.exists():
        with open(path, newline="") as file:
            for row in csv.DictReader(file):
                found[row["constant"]] = float(row["value"]), row["unit"]
    if options.what == "constants":
        with threadpool_limits(1):
            for part in options.parts:
                PARTS[part](found, *([options.store] if part == "stores" else []))
        write(path, [{"constant": k, "value": v, "unit": u} for k, (v, u) in found.items()])
        return
    table = model({name: value for name, (value, _) in found.items()})
    write(OUT / "ingest.csv", table)
    stages = {key: key.removeprefix("hours_") for key in table[0] if key.startswith("hours_")}
    heads = {"vectors": "vectors", "method": "codes"}
    print(markdown(table, {**heads, "core_hours": "core-hours", **stages, "bound": "most of it"}))
    print()
    print(markdown(table, {**heads, "input_tb": "input, TB", "codes_gb": "codes, GB",
                           "ids_gb": "ids, GB", "ledger_gb": "ledger, GB",
                           "network_hours": "hours on 10 Gbit/s",
                           "cores_a_link": "cores that fill it"}))  # fmt: skip
    print()
    answers = serving({name: value for name, (value, _) in found.items()})
    write(OUT / "serving.csv", answers)
    print(markdown(answers, {"vectors": "vectors", "codes": "codes", "structure": "structure",
                             "mapped_gb": "codes, mapped, GB", "memory_gb": "memory, GB",
                             "core_s": "core-seconds a query"}))  # fmt: skip


if __name__ == "__main__":
    main()
