"""A table of symbols at several sizes: time, bytes and memory of a query's first candidates.

    python bench/table.py FOLDER [--rows 1000000 10000000 100000000] [--only make|ask|peers]

Codes are symbols of 300 codewords of uneven size, with row numbers as ids. FOLDER takes 2 bytes a
row for each size; tables that are there are used again. `ask` measures, in one process for each
size, the first 5 % and the first 1000 of a query's candidates as ids, and beside each of them
DuckDB's scan of as many rows of the same table by a range of the code. `peers` asks the index, and
LanceDB and Milvus Lite with the same codes, where they were published before: `--only publish`.
Times are processor seconds, medians over 15 queries.
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import dpindex as dpi

CODEWORDS, DIM, QUERIES = 300, 16, 15
RESULTS = Path(__file__).parent / "scale" / "table.csv"


def made(rows: int) -> dpi.PrivateIndex:
    """An index of so many symbols, of which some are ten times as frequent as others."""
    rng = np.random.default_rng(0)
    book = dpi.Codebook(rng.normal(size=(CODEWORDS, DIM)))
    spec = dpi.Spec("record-codebook", DIM, epsilon=8.0, adjacency=dpi.record(), codebook=book)
    chances = rng.uniform(0.1, 1, CODEWORDS)
    bounds = np.cumsum(chances / chances.sum())
    index = dpi.PrivateIndex(spec)
    for start in range(0, rows, 10**7):
        drawn = rng.random(min(10**7, rows - start))
        symbols = np.searchsorted(bounds, drawn).clip(max=CODEWORDS - 1)
        codes = spec.format.codes(symbols.astype(np.uint16)[:, None])
        index.add_codes(codes, ids=range(start, start + len(symbols)))
    return index


def queries() -> Any:
    return np.random.default_rng(1).normal(size=(QUERIES, DIM))


def timed(call: Callable[[], Any]) -> tuple[float, int, Any]:
    """Processor seconds, bytes that were read, and the answer."""
    process = psutil.Process()
    read = process.io_counters().read_chars
    start = time.process_time()
    answer = call()
    return time.process_time() - start, process.io_counters().read_chars - read, answer


def joined(blocks: Any) -> Any:
    return np.concatenate([ids for ids, _ in blocks])


def ask(place: str) -> dict[str, Any]:
    """Times, ratios, bytes and memory of a table."""
    import duckdb

    start = time.process_time()
    index: Any = dpi.open(place)
    rows = len(index)
    found: dict[str, Any] = {"rows": rows, "open_s": time.process_time() - start}
    found["bytes_a_row"] = Path(place).stat().st_size / rows
    connection = duckdb.connect(config={"memory_limit": "600MB"})
    sizes = f"select code, count(*) from '{place}' group by code order by code"
    ends = np.cumsum([n for _, n in connection.sql(sizes).fetchall()])
    for title, candidates in (("5 %", "5%"), ("1000", 1000)):
        ours, scans, read, scanned_bytes = [], [], [], []
        for query in queries():
            seconds, size, ids = timed(
                lambda query=query, wanted=candidates: joined(
                    index.stream(query[None], "exact", candidates=wanted)
                )
            )
            ours.append(seconds)
            read.append(size)
            assert len(np.unique(ids)) == len(ids) == (1000 if title == "1000" else rows // 20)
            last = int(np.searchsorted(ends, len(ids)))
            scan = f"select id from '{place}' where code <= {last} limit {len(ids)}"
            if title != "1000":  # a range of whole symbols, without a limit, which costs
                scan = f"select id from '{place}' where code <= {last}"
            seconds, size, scanned = timed(lambda scan=scan: connection.sql(scan).to_arrow_table())
            assert len(scanned) >= len(ids)
            scans.append(seconds * len(ids) / len(scanned))
            scanned_bytes.append(size)
        found[f"{title} s"] = statistics.median(ours)
        found[f"{title} scan s"] = statistics.median(scans)
        found[f"{title} ratio"] = statistics.median(ours) / statistics.median(scans)
        found[f"{title} bytes"] = statistics.median(read)
    found["memory_gb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return found


def peers(place: str, rows: int) -> dict[str, Any]:
    """Seconds of the first 1000 candidates there, or of 5 % in the index itself."""
    found: dict[str, Any] = {"place": Path(place).name, "rows": rows}
    index: Any = dpi.open(place) if place.endswith((".db", ".lance", ".parquet")) else made(rows)
    nobody = dpi.Answers(lambda _, ids: np.zeros(len(ids)))
    asks = {"1000 s": 1000}
    if isinstance(index, dpi.PrivateIndex):
        asks["5 % s"] = "5%"
        index.search(queries()[:1], 1)
    for title, candidates in asks.items():
        times = []
        for query in queries():
            seconds, _, _ = timed(
                lambda query=query, wanted=candidates: index.search(
                    query[None], 1, "exact", candidates=wanted, rerank=nobody
                )
            )
            times.append(seconds)
        found[title] = statistics.median(times)
    found["memory_gb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, nargs="+", default=[10**6, 10**7, 10**8])
    parser.add_argument("--only", choices=("make", "ask", "publish", "peers"), default="ask")
    parser.add_argument("--suffix", default=".parquet", help="Of the place to publish to or ask.")
    parser.add_argument("--one", action="store_true", help="Ask here, and print JSON.")
    given = parser.parse_args()
    results = []
    for rows in given.rows:
        place = str(given.folder / f"rows{rows}{given.suffix}")
        if given.only in ("make", "publish"):
            if not Path(place).exists():
                index = made(rows)
                start = time.process_time()
                dpi.publish(index, place)
                seconds = time.process_time() - start
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
                print(f"{place}: {seconds:.0f} s, {peak:.2f} GB at most", flush=True)
        elif given.one:
            print(json.dumps(ask(place) if given.only == "ask" else peers(place, rows)))
        else:
            command = [sys.executable, __file__, str(given.folder), "--rows", str(rows), "--one"]
            command += ["--only", given.only, "--suffix", given.suffix]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            results.append(json.loads(done.stdout))
            print(results[-1], flush=True)
    if results and given.only == "ask":
        with open(RESULTS, "w", newline="") as file:
            writer = csv.DictWriter(file, results[0].keys(), lineterminator="\n")
            writer.writeheader()
            for result in results:
                writer.writerow({k: float(f"{v:.4g}") for k, v in result.items()})


if __name__ == "__main__":
    main()
