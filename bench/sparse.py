"""High-dimensional sparse vectors: throughput against scipy's own product, and peak memory.

    python bench/sparse.py

18 846 documents × 2^24 columns (character trigrams of 20 newsgroups, found through DPINDEX_DATA) to
1024 coordinates. "scipy" multiplies the same CSR rows with the projection as a CSR matrix, and adds
no noise. Every method runs in a process of its own, on one thread and timed in processor seconds,
which other work on the machine disturbs less; its peak memory includes the data.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from dpindex import Privatizer, Spec

DATA = Path(os.environ.get("DPINDEX_DATA", Path(__file__).parents[2] / "shared" / "data"))
FILE = DATA / "news20_chartri_csr.npz"
K, ROUNDS = 1024, 5
METHODS: dict[str, dict[str, Any]] = {
    "OPORP, staircase": {"method": "dp-oporp-staircase"},
    "SJLT s = 2, Laplace": {"method": "dp-sjlt-laplace", "sparsity": 2},
    "SJLT s = 4, Laplace": {"method": "dp-sjlt-laplace", "sparsity": 4},
    "very sparse, Gaussian": {"method": "dp-rp-g-opt", "entries": "very-sparse", "delta": 1e-6},
}
WANTED, MOST_BYTES = 0.5, 1e9


def documents() -> sparse.csr_matrix:
    with np.load(FILE) as stored:
        parts = (stored["data"], stored["indices"], stored["indptr"])
        return sparse.csr_matrix(parts, shape=tuple(stored["shape"]))


def spec_of(name: str, dim: int) -> Spec:
    return Spec(dim=dim, k=K, epsilon=2.0, scale=255, bounds=(0.0, 1.0), **METHODS[name])


def peak_bytes() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def encode(name: str) -> None:
    """In a process of its own: nonzeros a second with the noise, best of the rounds, and memory."""
    x = documents()
    start = time.process_time()
    privatizer = Privatizer(spec_of(name, x.shape[1]))
    privatizer.privatize(x[:64], threads=1)
    setup = time.process_time() - start
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        privatizer.privatize(x, threads=1)
        times.append(time.process_time() - start)
    print(x.nnz / statistics.median(times), setup, peak_bytes())


def realised(name: str, dim: int) -> sparse.csr_matrix:
    """The projection as a CSR matrix, read off its own images of blocks of unit vectors."""
    projection, parts, step = spec_of(name, dim).projection, [], 1 << 15
    for start in range(0, dim, step):
        unit = sparse.eye(min(step, dim - start), dim, k=start, format="csr", dtype=np.float32)
        parts.append(sparse.csr_matrix(projection.apply_sparse(unit)))
    return sparse.csr_matrix(sparse.vstack(parts, format="csr"), dtype=np.float64)


def scipy_alone(name: str) -> None:
    """In a process of its own: nonzeros a second of ``csr @ csr``, median of the rounds."""
    x = sparse.csr_matrix(documents(), dtype=np.float64)
    matrix = realised(name, x.shape[1])
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        x @ matrix
        times.append(time.process_time() - start)
    print(x.nnz / statistics.median(times), 0.0, peak_bytes())


def alone(role: str, name: str) -> tuple[float, float, float]:
    command = [sys.executable, __file__, "--role", role, "--method", name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rate, setup, peak = (float(part) for part in done.stdout.split())
    return rate, setup, peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--role", choices=["encode", "scipy"], help=argparse.SUPPRESS)
    parser.add_argument("--method", choices=list(METHODS), help="only this one")
    options = parser.parse_args()
    if not FILE.exists():
        sys.exit(f"no data at {FILE}: set DPINDEX_DATA")
    if options.role:
        with threadpool_limits(1):
            {"encode": encode, "scipy": scipy_alone}[options.role](options.method)
        return
    for name in [options.method] if options.method else METHODS:
        ours, setup, peak = alone("encode", name)
        theirs, _, _ = alone("scipy", name)
        ratio = ours / theirs
        verdict = "ok  " if ratio >= WANTED and peak < MOST_BYTES else "LOW "
        print(
            f"{verdict} {name:<24} {ratio:5.2f} x scipy (wanted {WANTED:g})  "
            f"{ours / 1e6:.1f} against {theirs / 1e6:.1f} million nonzeros a second;  "
            f"projection made in {setup:.1f} s;  peak {peak / 1e6:.0f} MB"
        )


if __name__ == "__main__":
    main()
