"""An index larger than one would like to copy: time to open and to search, and memory, by kind.

    python bench/memory.py                  # 20 million sign codes of 128 bytes
    python bench/memory.py --rows 1000000

Codes are random bits, written segment by segment through the classes that a build uses; nothing is
privatized. Each measurement is a process of its own, that of dpindex limited to 4 GiB of memory of
its own (``RLIMIT_DATA``, which pages of mapped files are not part of); plain Faiss, which reads an
index of the same codes from a file, may take what it wants. "Anonymous" is the peak of memory of
its own, "file" the most pages of mapped files that were resident (the system takes them back where
it needs them), "peak" the most of both together. ``first`` is the first search, which makes what
later ones use; ``p50`` the median of single queries, and ``batch`` 64 at once, on one thread.
Prints rows, and puts them into ``bench/memory/memory.csv``. Linux.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import faiss
import numpy as np

import dpindex as dpi
from dpindex.storage.code_store import rows_per_segment

SPEC = dpi.Spec("dp-signoporp-rr", dim=1024, k=1024, epsilon=4.0, adjacency=dpi.attribute(1.0))
QUERIES, BATCH, K = 20, 64, 10
LIMIT = 4 << 30
OUT = Path(__file__).parent / "memory" / "memory.csv"
GROUPS = 2 * SPEC.format.width


def chunks(rows: int) -> Iterator[Any]:
    rng = np.random.default_rng(0)
    step = rows_per_segment(SPEC)
    for start in range(0, rows, step):
        yield rng.integers(0, 256, (min(step, rows - start), SPEC.format.width), dtype=np.uint8)


def write_index(folder: Path, rows: int, *, names: bool) -> None:
    """Save an index in steps, as one that grows."""
    directory = folder / "index"
    dpi.PrivateIndex(SPEC).save(directory)
    start = 0
    for packed in chunks(rows):
        ids = np.arange(start, start + len(packed))
        given = np.char.add("document-", ids.astype(np.str_)) if names else ids
        index = dpi.PrivateIndex.open(directory)
        index.add_codes(SPEC.format.codes(packed), given)
        index.save(directory)
        start += len(packed)


def write_plain(folder: Path, rows: int) -> None:
    """The same codes for Faiss: by Hamming distance, and as a product quantizer's fast scan."""
    flat = faiss.IndexBinaryFlat(SPEC.k)
    for packed in chunks(rows):
        flat.add(packed)
    faiss.write_index_binary(flat, str(folder / "flat"))
    del flat
    index = faiss.IndexPQ(4 * GROUPS, GROUPS, 4, faiss.METRIC_INNER_PRODUCT)
    patterns = 2.0 * ((np.arange(16)[:, None] >> np.arange(4)) & 1) - 1.0
    centroids = np.tile(patterns.astype(np.float32), (GROUPS, 1, 1))
    faiss.copy_array_to_vector(centroids.ravel(), index.pq.centroids)
    index.codes.resize(rows * SPEC.format.width)
    stored = faiss.rev_swig_ptr(index.codes.data(), rows * SPEC.format.width)
    start = 0
    for packed in chunks(rows):
        stored[start : start + packed.size] = packed.ravel()
        start += packed.size
    index.ntotal, index.is_trained = rows, True
    faiss.write_index(faiss.IndexPQFastScan(index), str(folder / "scan"))


def status() -> dict[str, float]:
    """Resident memory of this process in MB."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {name: int(lines[name].split()[0]) / 1000 for name in ("RssAnon", "RssFile", "VmHWM")}


class Watch(threading.Thread):
    """Peaks of anonymous memory and of pages of files, looked at fifty times a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.anonymous = self.file = 0.0

    def run(self) -> None:
        while True:
            self.look()
            time.sleep(0.02)

    def look(self) -> None:
        now = status()
        self.anonymous = max(self.anonymous, now["RssAnon"])
        self.file = max(self.file, now["RssFile"])


def opened(folder: Path, kind: str) -> Callable[[Any], Any]:
    """A function that searches for a batch of vectors."""
    if kind == "Faiss Hamming":
        flat = faiss.read_index_binary(str(folder / "flat"))
        return lambda x: flat.search(np.packbits(x > 0, axis=1, bitorder="little"), K)
    if kind == "Faiss fast scan":
        scan = faiss.read_index(str(folder / "scan"))
        return lambda x: scan.search(x.astype(np.float32), K)
    index = dpi.PrivateIndex.open(folder / "index")
    query: Any = kind.removeprefix("dpindex ")
    return lambda x: index.search(x, K, query=query)


def measure(folder: Path, kind: str) -> dict[str, float]:
    faiss.omp_set_num_threads(1)
    x = np.random.default_rng(1).uniform(-1, 1, (BATCH, SPEC.dim))
    if kind.startswith("dpindex"):
        resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))
    before, watch = status(), Watch()
    watch.start()
    times = [time.perf_counter()]
    search = opened(folder, kind)
    times.append(time.perf_counter())
    watch.look()
    after_open = watch.anonymous
    for row in range(QUERIES):
        search(x[row : row + 1])
        times.append(time.perf_counter())
    search(x)
    times.append(time.perf_counter())
    watch.look()
    spent = np.diff(times)
    return {
        "open_s": spent[0],
        "first_s": spent[1],
        "p50_s": statistics.median(spent[2 : QUERIES + 1]),
        "batch_s": spent[-1],
        "start_anonymous_mb": before["RssAnon"],
        "open_anonymous_mb": after_open,
        "anonymous_mb": watch.anonymous,
        "file_mb": watch.file,
        "peak_mb": status()["VmHWM"],
    }


KINDS = ("dpindex exact", "dpindex private", "Faiss fast scan", "Faiss Hamming")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--names", action="store_true", help="ids are strings")
    parser.add_argument("--folder", type=Path, help="keep the codes there, or use those of a run")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(Path(options.child[0]), options.child[1])))
        return
    with tempfile.TemporaryDirectory() as name:
        folder, table = options.folder or Path(name), []
        if not (folder / "scan").exists():
            write_index(folder, options.rows, names=options.names)
            write_plain(folder, options.rows)
        for kind in options.kinds:
            command = [sys.executable, __file__, "--child", str(folder), kind]
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            run = subprocess.run(command, env=environment, capture_output=True, text=True)
            if run.returncode:
                print(f"{kind}: {run.stderr.strip().splitlines()[-1]}")
                continue
            figures = {key: round(value, 3) for key, value in json.loads(run.stdout).items()}
            facts = {"rows": options.rows, "code_bytes": SPEC.format.width,
                     "ids": "strings" if options.names else "numbers", "what": kind}  # fmt: skip
            table.append({**facts, **figures})
            print(table[-1], flush=True)
    OUT.parent.mkdir(exist_ok=True)
    kept: list[dict[str, Any]] = []
    if OUT.exists():
        with open(OUT, newline="") as file:
            kept = list(csv.DictReader(file))
    made = {_name(row): row for row in [*kept, *table]}
    with open(OUT, "w", newline="") as file:
        writer = csv.DictWriter(file, table[0])
        writer.writeheader()
        writer.writerows(made.values())


def _name(row: dict[str, Any]) -> tuple[str, ...]:
    return str(row["rows"]), row["ids"], row["what"]


if __name__ == "__main__":
    main()
