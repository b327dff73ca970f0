"""Coverage-guided fuzzing of everything that reads foreign bytes: one command, one table.

    pip install atheris && pip install -e '.[io]'
    python bench/fuzz/run.py                       # 1.2 million inputs, some minutes
    python bench/fuzz/run.py --only .npy --inputs 1e5

Each reader runs in a process of its own under libFuzzer (through atheris), which mutates what has
reached new code before; most mutated inputs get right checksums and lengths again (targets.py). An
input passes when it is read, or refused with InputError. Everything else counts as a crash: another
exception, 5 s for one input, an allocation beyond 1 GB, the death of the process. Crashing inputs
are kept, one for each place in the code, in the directory that is printed. "Kept" counts the inputs
that reached new code.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

SHARES = {
    "codes_from_bytes": 0.24,
    "manifest": 0.08,
    "index directory": 0.02,
    "Spec.from_json": 0.12,
    "RACE sketch": 0.1,
    "ids of an index": 0.1,
    "denoiser": 0.005,
    "ledger": 0.015,
    ".npy": 0.08,
    ".npz": 0.02,
    ".fvecs": 0.04,
    ".bvecs": 0.03,
    ".hdf5": 0.02,
    ".parquet": 0.02,
    "ids .txt": 0.05,
    "ids .npy": 0.03,
    "ids .npz": 0.01,
    "ids .hdf5": 0.01,
    "ids .parquet": 0.01,
}
SECONDS, MEGABYTES, REPAIRED = 5, 1024, 0.8
COUNTED = 1000


def fuzz(name: str, inputs: int, folder: Path) -> None:
    """In a process of its own: never returns."""
    import atheris

    with atheris.instrument_imports(include=["dpindex"]):
        from targets import TARGETS

        from dpindex.base.errors import InputError

    target = TARGETS[name]
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(target.seeds()):
        (corpus / str(number)).write_bytes(seed)
    facts: dict[str, Any] = {"inputs": 0, "read": 0, "slowest": 0.0, "crashes": {}, "kept": 0}

    def report() -> None:
        facts["rss"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        facts["kept"] = len(list(corpus.iterdir()))
        (folder / "facts.tmp").write_text(json.dumps(facts))
        os.replace(folder / "facts.tmp", folder / "facts.json")

    def crash(error: BaseException, data: bytes) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        last = next((f for f in reversed(frames) if "dpindex" in f.filename), frames[-1])
        place = f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"
        if place not in facts["crashes"]:
            (folder / f"crash-{len(facts['crashes'])}").write_bytes(data)
        facts["crashes"][place] = facts["crashes"].get(place, 0) + 1

    def one(data: bytes) -> None:
        start = time.perf_counter()
        try:
            target.read(data)
            facts["read"] += 1
        except InputError as error:
            if isinstance(error.__cause__, MemoryError):
                crash(error.__cause__, data)
        except Exception as error:
            crash(error, data)
        spent = time.perf_counter() - start
        facts["slowest"] = max(facts["slowest"], spent)
        facts["inputs"] += 1
        if facts["inputs"] % COUNTED == 0 or facts["inputs"] >= inputs:
            report()
        if facts["inputs"] >= inputs:
            os._exit(0)

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if rng.random() < 0.7:
            data = atheris.Mutate(data, most)
        if rng.random() < REPAIRED:
            data = target.repair(data, rng)
        return data[:most]

    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + (MEGABYTES << 20),) * 2)
    options = [
        f"-rss_limit_mb={MEGABYTES}",
        f"-timeout={SECONDS}",
        f"-max_len={target.most}",
        f"-artifact_prefix={folder}/died-",
        f"-runs={2 * inputs}",
        "-verbosity=0",
    ]
    atheris.Setup([sys.argv[0], *options, str(corpus)], one, custom_mutator=mutate)
    atheris.Fuzz()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--inputs", type=float, default=1.2e6, help="in all")
    parser.add_argument("--only", choices=SHARES, help="one reader, which gets all inputs")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        name, inputs, folder = arguments.child
        fuzz(name, int(inputs), Path(folder))
    chosen = {arguments.only: 1.0} if arguments.only else SHARES
    kept = Path(tempfile.mkdtemp(prefix="dpindex-fuzz-"))
    print(f"Crashing inputs are kept in {kept}.\n")
    print("| reader | inputs | of them read | kept | crashes | slowest, ms | peak, MB | inputs/s |")
    print("|---|---|---|---|---|---|---|---|")
    total, crashes = 0, 0
    shared = "/dev/shm" if os.path.isdir("/dev/shm") else None
    scratch = tempfile.mkdtemp(prefix="dpindex-fuzz-", dir=shared)
    root = str(Path(__file__).resolve().parents[2])
    search = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": search, "TMPDIR": scratch}
    for name, share in chosen.items():
        folder = kept / name.replace(" ", "_")
        folder.mkdir()
        inputs = round(share * arguments.inputs)
        command = [sys.executable, __file__, "--child", name, str(inputs), str(folder)]
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, env=environment, check=False)
        (folder / "log").write_bytes(done.stderr)
        seconds = time.perf_counter() - start
        place = folder / "facts.json"
        facts = json.loads(place.read_text()) if place.exists() else {"inputs": 0, "crashes": {}}
        found = sum(facts["crashes"].values()) + (done.returncode != 0)
        total, crashes = total + facts["inputs"], crashes + found
        print(
            f"| {name} | {facts['inputs']} | {facts.get('read', 0)} | {facts.get('kept', 0)} | "
            f"{found} | {1000 * facts.get('slowest', 0):.0f} | {facts.get('rss', 0):.0f} | "
            f"{facts['inputs'] / seconds:.0f} |",
            flush=True,
        )
        for place_, times in facts["crashes"].items():
            print(f"  - {times} × {place_}", flush=True)
        if done.returncode:
            print(f"  - the process ended with {done.returncode}: see {folder}/log", flush=True)
    shutil.rmtree(scratch)
    print(f"\n{total} inputs, {crashes} crashes.")
    sys.exit(1 if crashes else 0)


if __name__ == "__main__":
    main()
