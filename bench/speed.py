"""How long does one wait, as ratios against the alternative measured in the same run.

    python bench/speed.py [PART ...]      # some five minutes on a quiet machine
    python bench/speed.py --last 3        # what the last three runs found, as a table

Absolute figures depend on the machine; ratios travel. Every pair is timed in turn, several times;
the median ratio is printed with the spread, and a row for each is appended to ``speed/speed.csv``
with the facts of the machine and its load, so that a regression is seen. Commands are timed in
processor seconds of a process of their own, the rest in wall-clock seconds: run it on a quiet
machine.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import os
import platform
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import metadata
from pathlib import Path

import faiss
import filter as filtering
import latency
import numpy as np
import sparse
from cryptography.hazmat.backends.openssl import backend
from threadpoolctl import threadpool_limits

from dpindex import PrivateIndex, Privatizer, Spec, __version__, attribute
from dpindex.base.threads import cores
from dpindex.decode.fit import fit_denoiser
from dpindex.mechanism.noise.additive import staircase_noise
from dpindex.mechanism.noise.response import draw_flips, randomized_response
from dpindex.mechanism.secret_random import secret_stream

HERE = Path(__file__).parent
FILE = HERE / "speed" / "speed.csv"
ROUNDS, ROWS, CODES = 15, 20_000, 200_000
MEASURING = (
    "--methods dp-oporp-staircase,dp-oporp,dp-signoporp-geometric,none-oporp "
    "--epsilons 1,2,3,5,10 --beta 1"
)
_measured: list[dict[str, object]] = []


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def note(what: str, ours: list[float], theirs: list[float], wanted: float) -> None:
    """Print how many times faster ``ours`` is, and keep it; both were timed in every round."""
    ratios = sorted(other / mine for mine, other in zip(ours, theirs, strict=True))
    middle, best = statistics.median(ratios), min(ours)
    verdict = "ok  " if middle >= wanted else "LOW "
    spread = f"({ratios[0]:.2f} to {ratios[-1]:.2f}; wanted {wanted:g})"
    print(f"{verdict} {what:<66} {middle:7.3f} x  {spread}  {best:.3g} s", flush=True)
    numbers = {
        "ratio": middle,
        "wanted": wanted,
        "seconds": best,
        "alternative": min(theirs),
        "lowest": ratios[0],
        "highest": ratios[-1],
    }
    _measured.append({"what": what, **{name: f"{x:.4g}" for name, x in numbers.items()}})


def compare(
    what: str,
    ours: Callable[[], object],
    theirs: Callable[[], object],
    wanted: float,
    rounds: int = ROUNDS,
    clock: Callable[[Callable[[], object]], float] = seconds,
) -> None:
    """Time both in turn; the first round warms up, where there are several."""
    pairs = [(clock(ours), clock(theirs)) for _ in range(rounds + (rounds > 1))]
    mine, other = zip(*pairs[rounds > 1 :], strict=True)
    note(what, list(mine), list(other), wanted)


def child_seconds(action: Callable[[], object]) -> float:
    """Processor seconds of the processes that an action runs and waits for."""

    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    start = spent()
    action()
    return spent() - start


def python(line: str, *options: str) -> None:
    """Run a line in a process of its own, with compiled modules, as installed packages have."""
    settings = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, "-c", line, *options]
    # Not from where this was begun: a command imports what lies in the folder that it runs in.
    here = Path(__file__).parent
    subprocess.run(command, check=True, capture_output=True, env=settings, cwd=here)


def dpindex(line: str) -> None:
    python("from dpindex.__main__ import main; main()", *shlex.split(line))


@contextmanager
def made_files() -> Iterator[Path]:
    """A folder with vectors, queries, a public sample, an index of the vectors and its spec."""
    rng = np.random.default_rng(0)
    x = np.tanh(rng.normal(size=(12_500, 8)) @ rng.normal(size=(8, 64)) / 2).astype(np.float32)
    files = {"base": x[:10_000], "queries": x[10_000:10_500], "public": x[10_500:], "me": x[:1]}
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        for name, rows in files.items():
            np.save(at / f"{name}.npy", rows)
        dpindex(f"build {at}/base.npy {at}/index --method dp-oporp-staircase --epsilon 8 --beta 1")
        (at / "spec.json").write_text(PrivateIndex.open(at / "index").spec.to_json())
        yield at


def commands() -> None:
    """Start of the commands that many people run often."""
    encode = (
        "import sys; from dpindex.device import privatize; "
        "privatize([0.25] * 64, sys.argv[1], max_epsilon=8)"
    )
    with made_files() as at:
        numbers = iter(range(ROUNDS * 9))
        starts = {
            "import dpindex": lambda: python("import dpindex"),
            "import dpindex.device and one encoding": lambda: python(encode, f"{at}/spec.json"),
            "dpindex --help": lambda: dpindex("--help"),
            "dpindex info": lambda: dpindex(f"info {at}/index"),
            "dpindex privatize, one vector": lambda: dpindex(
                f"privatize {at}/me.npy {at}/{next(numbers)}.codes --spec {at}/spec.json"
            ),
            "dpindex query, one vector": lambda: dpindex(f"query {at}/index {at}/me.npy"),
        }
        for name, start in starts.items():
            alternative = partial(python, "import numpy")
            compare(f"{name} / import numpy", start, alternative, 0.25, 7, child_seconds)


def studies() -> None:
    """Plan, and evaluate as docs/measuring.md has it, in seconds on all cores and those allowed.

    10 000 vectors and 500 queries of 64 numbers, four methods at five epsilons.
    """
    with made_files() as at:
        plan = f"plan --n 100000 --epsilon 5 --beta 2 --public {at}/public.npy"
        evaluation = f"evaluate {at}/base.npy {at}/queries.npy --report {at}/report {MEASURING}"
        for name, line, allowed in (
            ("dpindex evaluate of docs/measuring.md", evaluation, 12.0),
            ("dpindex plan", plan, 5.0),
        ):
            note(f"{name} / {allowed:g} s", [seconds(partial(dpindex, line))], [allowed], 1.0)


def cpu(action: Callable[[], object]) -> float:
    """Processor seconds of all threads of this process."""
    start = time.process_time()
    action()
    return time.process_time() - start


def denoising() -> None:
    """60 000 codes of length 784, of vectors of rank 64; the alternative is the linear denoiser."""
    spec = Spec(
        method="raw-square-wave", dim=784, epsilon=2.0, bounds=(0, 1), adjacency=attribute(1.0)
    )
    rng = np.random.default_rng(0)
    spread = rng.normal(size=(64, spec.dim)).astype(np.float32) / 40
    vectors = 0.5 + rng.standard_normal((60_000, 64), dtype=np.float32) @ spread
    codes = Privatizer(spec).privatize(np.clip(vectors, 0, 1))

    def fit_and_apply(kind: str) -> None:
        fit_denoiser(codes, spec, kind)(codes)  # type: ignore[arg-type]

    score, linear = (lambda: fit_and_apply("score")), (lambda: fit_and_apply("linear"))
    compare("score denoiser, fit and apply / linear", score, linear, 0.1, 1, cpu)


def sparse_products() -> None:
    if not sparse.FILE.exists():
        print(f"skipped: no data at {sparse.FILE}; set DPINDEX_DATA")
        return
    for name in sparse.METHODS:
        times = sparse.alone("speed", name)
        note(f"{name} / csr @ csr", times[::2], times[1::2], sparse.WANTED)


def filters() -> None:
    rng = np.random.default_rng(0)
    base = rng.normal(size=(CODES, filtering.DIM)).astype(np.float32)
    base /= np.linalg.norm(base, axis=1, keepdims=True)
    index = PrivateIndex(
        Spec("dp-oporp-staircase", filtering.DIM, k=64, epsilon=20.0, adjacency=attribute(1.0))
    )
    index.add(base, payload={"part": np.arange(len(base)) % 100})
    compare(
        "search with a filter that keeps 1 % / without",
        lambda: index.search(base[:100], filter="part == 7"),
        lambda: index.search(base[:100]),
        1.0,
        5,
    )


def noise() -> None:
    count = 1 << 15
    stream, generator = secret_stream(), np.random.default_rng()
    law = staircase_noise(1.0)
    compare(
        "staircase noise / Generator.laplace",
        lambda: [law.source.sample(count, stream) for _ in range(32)],
        lambda: [generator.laplace(size=count) for _ in range(32)],
        3.0,
    )
    thresholds = np.array([randomized_response(1.0).thresholds[0]], dtype=np.uint64)
    index = np.zeros(count, dtype=np.intp)
    compare(
        "flips / (Generator.random(n) < q)",
        lambda: [draw_flips(thresholds, index, stream) for _ in range(32)],
        lambda: [generator.random(count) < 0.27 for _ in range(32)],
        1.0,
    )


def ingest(rows: int = ROWS) -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (rows, 768)).astype(np.float32)
    privatizer = Privatizer(
        Spec(method="dp-oporp-staircase", dim=768, k=256, epsilon=2.0, adjacency=attribute(1.0))
    )
    matrix = np.random.default_rng(1).choice([-1.0, 1.0], (768, 256)).astype(np.float32)
    generator = np.random.default_rng()

    def gemm_and_laplace() -> object:
        return x @ matrix + generator.laplace(size=(rows, 256))

    one = lambda: privatizer.privatize(x, threads=1)  # noqa: E731
    compare("ingest 768 -> 256 / (GEMM + Generator.laplace)", one, gemm_and_laplace, 2.0)
    compare("ingest 768 -> 256 / plain copy of the array", one, lambda: x.copy(), 0.2)
    compare("two threads / one", lambda: privatizer.privatize(x, threads=2), one, 1.6)


_worker: tuple[Privatizer, np.ndarray]


def _prepare(rows: int) -> None:
    global _worker
    x = np.random.default_rng(0).uniform(-1, 1, (rows, 768)).astype(np.float32)
    _worker = (
        Privatizer(
            Spec(method="dp-oporp-staircase", dim=768, k=256, epsilon=2.0, adjacency=attribute(1.0))
        ),
        x,
    )


def _ingest_once(_: int) -> None:
    privatizer, x = _worker
    privatizer.privatize(x, threads=1)


def two_processes(rows: int = ROWS) -> None:
    """What two cores of this machine can do at most: two processes that share nothing."""
    with multiprocessing.get_context("spawn").Pool(2, _prepare, (rows,)) as pool:
        pool.map(_ingest_once, range(8), chunksize=1)
        compare(
            "two processes / one (what the machine allows)",
            lambda: pool.map(_ingest_once, range(2), chunksize=1),
            lambda: [pool.map(_ingest_once, range(1)), pool.map(_ingest_once, range(1))],
            0.0,
        )


def search(rows: int = CODES) -> None:
    k, queries = 256, 256
    generator = np.random.default_rng(2)
    x = generator.normal(size=(rows, k)).clip(-3, 3).astype(np.float32) / 3
    spec = Spec(method="dp-signoporp-rr", dim=k, k=k, epsilon=2.0, adjacency=attribute(1.0))
    index = PrivateIndex(spec)
    index.add(x)
    codes = index.codes
    asked = Privatizer(spec).privatize(x[:queries])
    bare = faiss.IndexBinaryFlat(k)
    bare.add(codes.stored)

    def hamming() -> object:
        return bare.search(asked.stored, 10)

    compare(
        f"private sign search / bare IndexBinaryFlat, {rows} x {k} bits",
        lambda: index.search(asked, k=10),
        hamming,
        0.9,
    )
    compare(
        "asymmetric sign search / bare Hamming, same size",
        lambda: index.search(x[:queries], k=10, query="exact"),
        hamming,
        0.85,
    )
    some = x[:32]
    exact = Privatizer(spec).project(some).astype(np.float64) @ codes.to_float().T.astype(float)
    order = np.lexsort((np.broadcast_to(np.arange(rows), exact.shape), -exact), axis=1)[:, :100]
    same = np.array_equal(order, index.search(some, k=100).ids)
    print(f"{'ok  ' if same else 'LOW '} asymmetric ranking identical to NumPy's: {same}")


def latencies() -> None:
    """About a minute: how many times longer each may take than it does."""
    for what, taken, allowed in latency.waits():
        note(what, taken, allowed, 1.0)


def machine() -> dict[str, str]:
    """What the figures depend on besides the code; nothing that names the machine or its paths."""
    model = platform.processor()
    if (facts := Path("/proc/cpuinfo")).exists():
        lines = facts.read_text().splitlines()
        model = next((x.partition(": ")[2] for x in lines if x.startswith("model name")), model)
    git = ["git", "-C", str(HERE), "log", "-1", "--format=%cs"]
    return {
        "commit date": subprocess.run(git, capture_output=True, text=True).stdout.strip(),
        "dpindex": __version__,
        "processor": model,
        "cores": str(cores()),
        "load": f"{os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
        "numpy": metadata.version("numpy"),
        "faiss": faiss.__version__,
        "openssl": backend.openssl_version_text(),
    }


PARTS: dict[str, Callable[[], None]] = {
    "commands": commands,
    "studies": studies,
    "denoise": denoising,
    "noise": noise,
    "ingest": ingest,
    "processes": two_processes,
    "search": search,
    "latency": latencies,
    "filter": filters,
    "sparse": sparse_products,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("part", nargs="*", help=f"only these of: {', '.join(PARTS)}")
    parser.add_argument("--last", type=int, help="print what the last runs found, and run nothing")
    options = parser.parse_args()
    if options.last:
        print_last(options.last)
        return
    chosen = options.part or list(PARTS)
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"no part is called {', '.join(sorted(unknown))}")
    facts = machine()
    with threadpool_limits(1):  # one thread for BLAS and Faiss: ratios of work, not of cores
        for name in chosen:
            PARTS[name]()
            keep(facts)


def print_last(runs: int) -> None:
    """Print a table of the last rows of everything: median ratio, spread, least seconds, loads."""
    rows: dict[str, list[dict[str, str]]] = {}
    with FILE.open(newline="") as file:
        for line in csv.DictReader(file):
            rows.setdefault(line["what"], []).append(line)
    print("| | times as fast | spread | wanted | seconds | load |\n|---|---|---|---|---|---|")
    for what, lines in rows.items():
        last = lines[-runs:]
        ratios = sorted(float(line["ratio"]) for line in last)
        least = min(float(line["seconds"]) for line in last)
        loads = ", ".join(line["load"] or "?" for line in last)
        spread = f"{ratios[0]:.3g} to {ratios[-1]:.3g}"
        middle = statistics.median(ratios)
        print(
            f"| {what} | {middle:.3g} | {spread} | {last[-1]['wanted']} | {least:.3g} | {loads} |"
        )


def keep(facts: dict[str, str]) -> None:
    """Append what was measured since the last time."""
    if not _measured:
        return
    FILE.parent.mkdir(exist_ok=True)
    with FILE.open("a", newline="") as file:
        writer = csv.DictWriter(file, [*facts, *_measured[0]], lineterminator="\n")
        if file.tell() == 0:
            writer.writeheader()
        writer.writerows({**facts, **line} for line in _measured)
    _measured.clear()


if __name__ == "__main__":
    main()
