"""How long a search takes while codes arrive: of an index in memory, and over HTTP.

    python bench/live.py [--rows 3000000 5000000] [--seconds 20] [--csv bench/speed/live.csv]

For each kind of code: the time of a quiet search, of the first after 1 and after 1000 codes were
added one by one (milliseconds of processors), and the median wait while five codes a second arrive,
against the median without them, in turns. Over HTTP the collector is another process.
"""

from __future__ import annotations

import argparse
import csv
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import dpindex as dpi
from dpindex.integrations.client import Client

DIM, EACH_SECOND, TURN = 64, 5, 2.0


def specs() -> dict[str, dpi.Spec]:
    book = np.random.default_rng(1).normal(size=(300, DIM))
    return {
        "symbols": dpi.Spec(
            "record-codebook",
            DIM,
            epsilon=8.0,
            adjacency=dpi.record(),
            codebook=dpi.Codebook(book),
        ),
        "bits": dpi.Spec("dp-signoporp-rr", DIM, k=DIM, epsilon=3.0, adjacency=dpi.attribute(1.0)),
    }


def waits(search: Callable[[], Any], seconds: float) -> list[float]:
    """How long each of the searches took that fit into some seconds."""
    taken = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        search()
        taken.append(time.perf_counter() - start)
    return taken


@contextmanager
def arriving(add: Callable[[], Any]) -> Iterator[None]:
    """Add a code five times a second until the block ends."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(1 / EACH_SECOND):
            add()

    thread = threading.Thread(target=run)
    thread.start()
    yield
    ended.set()
    thread.join()


def alternating(search: Callable[[], Any], add: Callable[[], Any], seconds: float) -> list[float]:
    """The median wait in milliseconds: quiet, and while codes arrive."""
    quiet: list[float] = []
    live: list[float] = []
    for _ in range(max(1, round(seconds / (2 * TURN)))):
        quiet += waits(search, TURN)
        with arriving(add):
            live += waits(search, TURN)
    return [1e3 * float(np.median(taken)) for taken in (quiet, live)]


def processor_ms(action: Callable[[], Any]) -> float:
    start = time.process_time()
    action()
    return 1e3 * (time.process_time() - start)


@contextmanager
def served(folder: str) -> Iterator[Client]:
    """A client of a collector of the index in a folder."""
    command = [sys.executable, "-m", "dpindex", "serve", folder, "--open-to-all", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    try:
        found = next(filter(None, (re.search(r"http://\S+:\d+", line) for line in process.stdout)))
        yield Client(found[0])
    finally:
        process.terminate()
        process.wait()


def measured(kind: str, spec: dpi.Spec, rows: int, seconds: float, folder: str) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    some = dpi.Privatizer(spec).privatize(rng.uniform(-1, 1, (1000, DIM)))
    index = dpi.PrivateIndex(spec)
    index.add_codes(some.take(rng.integers(0, 1000, rows)))
    index.save(folder)
    query = dpi.Privatizer(index.query_spec).privatize(rng.uniform(-1, 1, (1, DIM)))
    one = some.take(slice(1))

    def search() -> None:
        index.search(query, 10)

    def add() -> None:
        index.add_codes(one)

    def add_many() -> None:
        for _ in range(1000):
            add()

    search()
    quiet = float(np.median([processor_ms(search) for _ in range(9)]))
    facts: dict[str, Any] = {"codes": kind, "rows": rows, "quiet ms": quiet}
    for count, adding in ((1, add), (1000, add_many)):
        first = []
        for _ in range(5):
            adding()
            first.append(processor_ms(search))
        facts[f"first after {count} ms"] = float(np.median(first))
    facts["wait ms"], facts["wait, live ms"] = alternating(search, add, seconds)
    with served(folder) as client:
        body, code = query.to_bytes(), one.to_bytes()
        ids = iter(range(10 * rows, 20 * rows))
        facts["http ms"], facts["http, live ms"] = alternating(
            lambda: client.search(body, 10), lambda: client.submit(code, [next(ids)]), seconds
        )
    return facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[3_000_000, 5_000_000])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    found = []
    for rows in options.rows:
        for kind, spec in specs().items():
            with tempfile.TemporaryDirectory() as folder:
                found.append(measured(kind, spec, rows, options.seconds, f"{folder}/index"))
            print(", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}"
                            for k, v in found[-1].items()), flush=True)  # fmt: skip
    if options.csv:
        with options.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(found[0]))
            writer.writeheader()
            writer.writerows(found)


if __name__ == "__main__":
    main()
