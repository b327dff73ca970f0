"""High-dimensional sparse vectors: throughput against scipy's own product, and peak memory.

    python bench/sparse.py

18 846 documents × 2^24 columns (character trigrams of 20 newsgroups, found through DPINDEX_DATA) to
1024 coordinates. "scipy" multiplies the same CSR rows with the projection as a CSR matrix; it
checks nothing, adds no noise and leaves its result sparse. Both take turns in one process, on one
thread, timed in processor seconds; the ratio is the median over rounds. Peak memory is that of a
process that only reads the documents and privatizes them, on all cores.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from dpindex import Blocks, Privatizer, Spec, attribute
from dpindex.mechanism.projections import Projection

DATA = Path(os.environ.get("DPINDEX_DATA", Path(__file__).parents[2] / "shared" / "data"))
FILE = DATA / "news20_chartri_csr.npz"
K, ROUNDS = 1024, 7
METHODS: dict[str, dict[str, Any]] = {
    "OPORP, staircase": {"method": "dp-oporp-staircase"},
    "SJLT s = 2, Laplace": {"method": "dp-sjlt-laplace", "variant": Blocks(2)},
    "SJLT s = 4, Laplace": {"method": "dp-sjlt-laplace", "variant": Blocks(4)},
}
WANTED, MAX_BYTES = 0.5, 1e9


def documents() -> sparse.csr_matrix:
    with np.load(FILE) as stored:
        parts = (stored["data"], stored["indices"], stored["indptr"])
        return sparse.csr_matrix(parts, shape=tuple(stored["shape"]))


def spec_of(name: str, dim: int) -> Spec:
    return Spec(
        dim=dim,
        k=K,
        epsilon=2.0,
        scale=255,
        bounds=(0.0, 1.0),
        adjacency=attribute(1.0),
        **METHODS[name],
    )


def memory(name: str) -> list[float]:
    """Peak bytes of reading the documents and privatizing them on all cores."""
    x = documents()
    Privatizer(spec_of(name, x.shape[1])).privatize(x)
    unit = 1 if sys.platform == "darwin" else 1024
    return [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit]


def realised(projection: Projection, columns: np.ndarray) -> sparse.csr_matrix:
    """The projection as a CSR matrix whose other rows are left empty, from images of unit vectors.

    Parameters
    ----------
    columns : integer array, shape (m,)
        Attributes that occur, ascending.
    """
    parts = []
    for start in range(0, len(columns), 1 << 13):
        some = columns[start : start + (1 << 13)]
        entries = (np.ones(len(some), np.float32), some, np.arange(len(some) + 1))
        unit = sparse.csr_matrix(entries, (len(some), projection.dim))
        parts.append(sparse.csr_matrix(projection.apply_sparse(unit), dtype=np.float64))
    found = sparse.vstack(parts, format="csr")
    starts = found.indptr[np.searchsorted(columns, np.arange(projection.dim + 1))]
    return sparse.csr_matrix((found.data, found.indices, starts), (projection.dim, projection.k))


def seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def speed(name: str) -> list[float]:
    """Processor seconds of one privatization, with noise, and of ``csr @ csr``, round by round."""
    x = documents()
    privatizer = Privatizer(spec_of(name, x.shape[1]))
    wide = sparse.csr_matrix(x, dtype=np.float64)
    matrix = realised(privatizer.spec.projection, np.unique(x.indices))
    rounds = [
        (seconds(lambda: privatizer.privatize(x, threads=1)), seconds(lambda: wide @ matrix))
        for _ in range(1 + ROUNDS)
    ]
    return [number for pair in rounds[1:] for number in pair]  # the first only warms up


def alone(role: str, name: str) -> list[float]:
    """What a role finds in a process of its own."""
    command = [sys.executable, __file__, "--role", role, "--method", name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [float(part) for part in done.stdout.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--role", choices=["speed", "memory"], help=argparse.SUPPRESS)
    parser.add_argument("--method", choices=list(METHODS), help="only this one")
    options = parser.parse_args()
    if not FILE.exists():
        sys.exit(f"no data at {FILE}: set DPINDEX_DATA")
    if options.role:
        with threadpool_limits(1):
            print(*{"speed": speed, "memory": memory}[options.role](options.method))
        return
    nonzeros = documents().nnz
    for name in [options.method] if options.method else METHODS:
        times = alone("speed", name)
        ours, theirs = times[::2], times[1::2]
        ratios = sorted(b / a for a, b in zip(ours, theirs, strict=True))
        ratio, (peak,) = statistics.median(ratios), alone("memory", name)
        verdict = "ok  " if ratio >= WANTED and peak < MAX_BYTES else "LOW "
        rates = [nonzeros / statistics.median(part) / 1e6 for part in (ours, theirs)]
        print(
            f"{verdict} {name:<24} {ratio:5.2f} x scipy ({ratios[0]:.2f} to {ratios[-1]:.2f}; "
            f"wanted {WANTED:g})  {rates[0]:.0f} against {rates[1]:.0f} million nonzeros a second;"
            f"  peak {peak / 1e6:.0f} MB",
            flush=True,
        )


if __name__ == "__main__":
    main()
