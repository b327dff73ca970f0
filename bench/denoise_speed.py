"""Time and memory of fitting a denoiser to a million codes, and what it costs a search.

    python bench/denoise_speed.py [--rows 1000000]

Codes of length 256 of vectors of rank 64. Wall-clock seconds, and processor seconds of all threads:
on a machine that is busy with other work only the latter are meaningful.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from dpindex import PrivateIndex, Privatizer, Spec, attribute
from dpindex.denoise import fit_denoiser

DIM, RANK, BLOCK, QUERIES = 256, 64, 50_000, 512


class Peak:
    """Peak memory of this process above what it held at first, in MB."""

    def __enter__(self) -> Peak:
        self.process, self.most, self.done = psutil.Process(), 0.0, False
        self.first = self.process.memory_info().rss
        self.watcher = threading.Thread(target=self._watch, daemon=True)
        self.watcher.start()
        return self

    def _watch(self) -> None:
        while not self.done:
            self.most = max(self.most, (self.process.memory_info().rss - self.first) / 1e6)
            time.sleep(0.02)

    def __exit__(self, *_: object) -> None:
        self.done = True
        self.watcher.join()


def made(rows: int, spec: Spec) -> Any:
    rng = np.random.default_rng(0)
    spread = rng.normal(size=(RANK, spec.dim)).astype(np.float32) / 40
    privatizer, parts = Privatizer(spec), []
    for start in range(0, rows, BLOCK):
        count = min(BLOCK, rows - start)
        x = 0.5 + rng.standard_normal((count, RANK), dtype=np.float32) @ spread
        parts.append(privatizer.privatize(np.clip(x, 0, 1)).stored)
    return spec.format.codes(spec.format.concatenate(parts)), np.clip(x[:QUERIES], 0, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("denoise"))
    chosen = parser.parse_args()
    chosen.output.mkdir(parents=True, exist_ok=True)
    spec = Spec(
        method="raw-square-wave", dim=DIM, epsilon=2.0, bounds=(0, 1), adjacency=attribute(1.0)
    )
    codes, queries = made(chosen.rows, spec)
    lines: list[tuple[str, float, float, float]] = []

    def note(*line: Any) -> None:
        lines.append(line)
        print(*line, flush=True)
        with (chosen.output / "speed.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("what", "clock s", "processor s", "MB beyond"), *lines])

    for kind in ("linear", "score"):
        with Peak() as peak:
            clock, processor = time.perf_counter(), time.process_time()
            denoiser = fit_denoiser(codes, spec, kind)  # type: ignore[arg-type]
            processor, clock = time.process_time() - processor, time.perf_counter() - clock
        note(f"fit {kind}", round(clock, 1), round(processor, 1), round(peak.most))
        some = codes.take(slice(0, 200_000))
        clock, processor = time.perf_counter(), time.process_time()
        denoiser(some)
        processor, clock = time.process_time() - processor, time.perf_counter() - clock
        note(f"apply {kind} to {len(some)}", round(clock, 1), round(processor, 1), 0)
    plain, denoised = PrivateIndex(spec), PrivateIndex(spec)
    for index in (plain, denoised):
        index.add_codes(codes)
    denoised.fit_denoiser("linear")
    for query in ("exact", "private"):
        ratios = []
        for index in (plain, denoised):
            index.search(queries[:1])
        for _ in range(7):
            seconds = []
            for index in (plain, denoised):
                start = time.process_time()
                index.search(queries, query=query)  # type: ignore[arg-type]
                seconds.append(time.process_time() - start)
            ratios.append(seconds[1] / seconds[0])
        ratio = statistics.median(ratios)
        note(f"search, {query} queries, over plain float flat", "", round(ratio, 3), 0)


if __name__ == "__main__":
    main()
