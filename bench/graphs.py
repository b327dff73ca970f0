"""Graphs of bits in a database against a scan of the same codes, by the share of unlike bits.

    python bench/graphs.py FOLDER.lance|postgresql://… [--rows 50000] [--csv FILE]

"unlike" is the share of signs that differ between a private query and the code of the same vector,
"recall" what the published index states, and the times are of one query, in milliseconds of
processors, of the server's too.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from engines import vectors

import dpindex as dpi
from dpindex.decode.signs import unlike_signs

DIM, BITS, K, QUERIES = 128, 128, 10, 100
UNLIKE = (0.02, 0.1, 0.2, 0.29)


def spec_with(unlike: float) -> dpi.Spec:
    """Signs of which flips make so many unlike."""
    low, high = 0.01, 64.0
    for _ in range(60):
        epsilon = (low * high) ** 0.5
        spec = dpi.Spec(
            "dp-signoporp-rr", DIM, k=BITS, epsilon=epsilon, adjacency=dpi.attribute(1.0)
        )
        low, high = (epsilon, high) if unlike_signs(spec, spec) > unlike else (low, epsilon)
    return spec


def processor_seconds() -> float:
    """Of this process, and of all servers of PostgreSQL on this machine."""
    servers = [one for one in psutil.process_iter(["name"]) if one.info["name"] == "postgres"]
    return time.process_time() + sum(sum(one.cpu_times()[:2]) for one in servers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("uri")
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    base = vectors(options.rows + QUERIES, np.random.default_rng(0))
    found = []
    for unlike in UNLIKE:
        spec = spec_with(unlike)
        privatizer = dpi.Privatizer(spec)
        index = dpi.PrivateIndex(spec)
        index.add_codes(privatizer.privatize(base[QUERIES:]))
        asked = privatizer.privatize(base[:QUERIES]).stored
        title = options.uri.partition(":")[0] if "://" in options.uri else "lance"
        facts: dict[str, Any] = {"place": title, "rows": options.rows, "unlike": unlike}
        for graph in (True, False):
            name = f"{'graph' if graph else 'scan'}_{round(100 * unlike)}_{options.rows}"
            start = time.perf_counter()
            dpi.publish(index, options.uri, name, exact_queries=False, graph=graph)
            took = time.perf_counter() - start
            served = dpi.open(options.uri, name)
            served.database.search(asked, K, None)
            start = processor_seconds()
            for query in asked:
                served.database.search(query[None], K, None)
            each = (processor_seconds() - start) / QUERIES
            kind = "graph" if graph else "scan"
            facts |= {f"{kind} ms": 1e3 * each, f"{kind} publish s": took}
            if graph:
                facts |= {"recall": served.index_recall, "effort": served.database.effort}
            served.close()
        found.append(facts)
        print(facts, flush=True)
    if options.csv:
        with options.csv.open("a", newline="") as file:
            writer = csv.DictWriter(file, list(found[0]))
            if not file.tell():
                writer.writeheader()
            writer.writerows(found)


if __name__ == "__main__":
    main()
