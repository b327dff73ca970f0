"""A table of symbols at several sizes: time, bytes and memory of a query's first candidates.

    python bench/table.py FOLDER [--rows 1000000 10000000] [--only make|build|ask|peers|chart]

Codes are symbols of 300 codewords of uneven size, with row numbers as ids. FOLDER takes 2 bytes a
row for each size; tables that are there are used again. `make` publishes them from an index, and
`build` from generated vectors through Dask. `ask` measures, in one process for each size, the first
5 % and the first 1000 of a query's candidates as ids, and beside each of them DuckDB's scan of as
many rows of the same table by a range of the code: `scale/table.csv`. `peers` publishes the same
index to LanceDB and Milvus Lite, and asks both and the index itself: `scale/peers.csv`. Times are
processor seconds of all processes, medians over 20 queries.
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
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import dpindex as dpi
from dpindex.data import as_source
from dpindex.data.dataset import Dataset, Part

CODEWORDS, DIM, QUERIES = 300, 16, 20
RESULTS = Path(__file__).parent / "scale"
PART = 1 << 20


def spec() -> dpi.Spec:
    book = dpi.Codebook(np.random.default_rng(0).normal(size=(CODEWORDS, DIM)))
    return dpi.Spec("record-codebook", DIM, epsilon=8.0, adjacency=dpi.record(), codebook=book)


def made(rows: int) -> dpi.PrivateIndex:
    """An index of so many symbols, of which some are ten times as frequent as others."""
    rng = np.random.default_rng(1)
    chances = rng.uniform(0.1, 1, CODEWORDS)
    bounds = np.cumsum(chances / chances.sum())
    index = dpi.PrivateIndex(spec())
    for start in range(0, rows, 10**7):
        drawn = rng.random(min(10**7, rows - start))
        symbols = np.searchsorted(bounds, drawn).clip(max=CODEWORDS - 1)
        codes = index.spec.format.codes(symbols.astype(np.uint16)[:, None])
        index.add_codes(codes, ids=range(start, start + len(symbols)))
    return index


def vectors(start: int, rows: int) -> Any:
    return as_source(np.random.default_rng(start).normal(size=(rows, DIM)).astype(np.float32))


def build(place: str, rows: int) -> None:
    """A table from vectors that workers of Dask generate."""
    from dpindex.integrations.dask import connected, engine

    parts = []
    for start in range(0, rows, PART):
        size = min(PART, rows - start)
        parts.append(Part("generated", 0, size, partial(vectors, start, size)))
    dataset = Dataset("generated", DIM, 1 << 17, tuple(parts))
    with connected() as client:
        dpi.build(dataset, place, spec(), engine=engine(client), threads=1)


def queries() -> Any:
    return np.random.default_rng(2).normal(size=(QUERIES, DIM))


def processor() -> float:
    """Processor seconds of this process and of those that it started, such as Milvus Lite's."""
    process = psutil.Process()
    others = [child.cpu_times() for child in process.children(recursive=True)]
    return time.process_time() + sum(times.user + times.system for times in others)


def timed(call: Callable[[], Any]) -> tuple[float, int, Any]:
    """Processor seconds, bytes that were read, and the answer."""
    process = psutil.Process()
    read = process.io_counters().read_chars
    start = processor()
    answer = call()
    return processor() - start, process.io_counters().read_chars - read, answer


def medians(calls: list[Callable[[], Any]], check: Callable[[Any], Any] = id) -> list[float]:
    """Median seconds and bytes of calls, whose answers are checked and let go."""
    found = []
    for call in calls:
        seconds, size, answer = timed(call)
        check(answer)
        found.append((seconds, size))
    return [statistics.median(values) for values in zip(*found, strict=True)]


def peak() -> float:
    """Most memory of this process, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def streamed(index: Any, query: Any, candidates: int | str) -> list[Any]:
    """Ids in blocks, as an Arrow table has them."""
    lookup = index.to_lookup(query[None], "exact", candidates=candidates)
    return [ids for ids, _ in index.stream(lookup)]


def searched(index: Any, query: Any, candidates: int | str) -> Any:
    nobody = dpi.Answers(lambda _, ids: np.zeros(len(ids)))
    return index.search(query[None], 1, "exact", candidates=candidates, rerank=nobody)


def ask(place: str) -> dict[str, Any]:
    """Times, ratios, bytes and memory of a table."""
    import duckdb

    seconds, _, index = timed(lambda: dpi.open(place))
    rows = len(index)
    found: dict[str, Any] = {"rows": rows, "open_s": seconds}
    found["bytes_a_row"] = Path(place).stat().st_size / rows
    index.to_lookup(queries()[:1], "exact")  # counts the codes
    connection = duckdb.connect(config={"memory_limit": "600MB"})
    sizes = f"select code, count(*) from '{place}' group by code order by code"
    ends = np.cumsum([n for _, n in connection.sql(sizes).fetchall()])
    for title, candidates, count in (("5 %", "5%", rows // 20), ("1000", 1000, 1000)):

        def whole(blocks: list[Any], count: int = count) -> None:
            ids = np.concatenate(blocks)
            assert len(np.unique(ids)) == len(ids) == count

        calls = [partial(streamed, index, query, candidates) for query in queries()]
        ours, read = medians(calls, whole)
        # A range of whole symbols, for a limit costs; of few rows there is no range but with one.
        last = int(np.searchsorted(ends, count))
        scan = f"select id from '{place}' where code <= {last}"
        if title == "1000":
            scan += f" limit {count}"
        scanned = len(connection.sql(scan).to_arrow_table())
        scans, _ = medians([lambda s=scan: connection.sql(s).to_arrow_table()] * QUERIES)
        scans *= count / scanned
        found[f"{title} s"] = ours
        found[f"{title} scan s"] = scans
        found[f"{title} ratio"] = ours / scans
        found[f"{title} bytes"] = read
    return {**found, "memory_gb": peak()}


def peers(place: str, rows: int) -> dict[str, Any]:
    """Seconds and bytes to publish, and of the first 1000 candidates and, where they come, 5 %."""
    found: dict[str, Any] = {"where": Path(place).suffix or "index", "rows": rows}
    index: Any = made(rows)
    index.calibration  # noqa: B018 (learned before the clock runs)
    is_index = not Path(place).suffix
    if not is_index and not Path(place).exists():
        found["publish_s"], _, _ = timed(lambda: dpi.publish(index, place))
        files = [Path(place), *Path(place).rglob("*")]
        found["bytes_a_row"] = sum(f.stat().st_size for f in files if f.is_file()) / rows
    found["before_gb"] = peak()
    if not is_index:
        index = dpi.open(place)
    searched(index, queries()[0], 1000)
    found["1000 s"], _ = medians([partial(searched, index, q, 1000) for q in queries()])
    if is_index:
        found["5 % s"], _ = medians([partial(searched, index, q, "5%") for q in queries()])
    if place.endswith(".parquet"):
        found["5 % s"], _ = medians([partial(streamed, index, q, "5%") for q in queries()])
    return found


def chart() -> None:
    """Draw what the CSV files hold."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), constrained_layout=True)
    with open(RESULTS / "table.csv") as file:
        table = [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]
    sizes = [row["rows"] for row in table]
    for name, label in (
        ("5 % s", "first 5 % as ids"),
        ("5 % scan s", "DuckDB scans as many rows"),
        ("1000 s", "first 1000 as ids"),
    ):
        left.loglog(sizes, [row[name] for row in table], "o-", label=label)
    with open(RESULTS / "peers.csv") as file:
        others = [*csv.DictReader(file)]
    names = {
        "index": "index in memory",
        ".parquet": "table",
        ".lance": "LanceDB",
        ".db": "Milvus Lite",
    }
    for place, name in names.items():
        rows = [row for row in others if row["where"] == place]
        numbers = [float(row["rows"]) for row in rows]
        left.loglog(
            numbers, [float(row["1000 s"]) for row in rows], "x--", label=f"1000 as hits: {name}"
        )
    left.set(xlabel="symbols", ylabel="processor seconds", title="Time")
    left.legend(fontsize=7, loc="upper right", bbox_to_anchor=(-0.2, 1))
    for name, label in (("5 % bytes", "first 5 %"), ("1000 bytes", "first 1000")):
        right.loglog(sizes, [row[name] for row in table], "o-", label=label)
    right.set(xlabel="symbols", ylabel="bytes read", title="Bytes")
    right.legend(fontsize=7)
    figure.savefig(RESULTS / "table.png", dpi=110)


def write(path: Path, results: list[dict[str, Any]]) -> None:
    """Write rows with the columns that any of them has."""
    names = list(dict.fromkeys(name for result in results for name in result))
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        for result in results:
            writer.writerow(
                {k: v if isinstance(v, str) else float(f"{v:.4g}") for k, v in result.items()}
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, nargs="+", default=[10**6, 10**7, 10**8])
    steps = ("make", "build", "ask", "peers", "chart")
    parser.add_argument("--only", choices=steps, default="ask")
    parser.add_argument("--suffixes", nargs="+", default=["", ".parquet", ".lance", ".db"])
    parser.add_argument("--one", action="store_true", help="Ask here, and print JSON.")
    given = parser.parse_args()
    if given.only == "chart":
        return chart()
    results = []
    suffixes = given.suffixes if given.only == "peers" else [".parquet"]
    for rows, suffix in ((rows, suffix) for rows in given.rows for suffix in suffixes):
        stem = {"peers": "peer", "build": "built"}.get(given.only, "rows")
        place = str(given.folder / f"{stem}{rows}{suffix}")
        if given.only in ("make", "build"):
            if not Path(place).exists():
                make = {"make": lambda place, rows: dpi.publish(made(rows), place), "build": build}
                start = time.perf_counter()
                make[given.only](place, rows)
                seconds = time.perf_counter() - start
                print(f"{place}: {seconds:.0f} s, {peak():.2f} GB at most", flush=True)
        elif given.one:
            print(json.dumps(ask(place) if given.only == "ask" else peers(place, rows)))
        else:
            command = [sys.executable, __file__, str(given.folder), "--rows", str(rows), "--one"]
            command += ["--only", given.only, "--suffixes", suffix]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            results.append(json.loads(done.stdout))
            print(results[-1], flush=True)
    if results:
        write(RESULTS / ("table.csv" if given.only == "ask" else "peers.csv"), results)
    return None


if __name__ == "__main__":
    main()
