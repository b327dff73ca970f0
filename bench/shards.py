"""Builds in shards on a Dask cluster of this machine: are they exact when workers die, and fast?

    python bench/shards.py throughput    # two workers by one, and one by the plain build
    python bench/shards.py kills         # five workers are killed; a folder as the target
    python bench/shards.py kills --s3    # the same into an S3 server that injects faults

Throughput is a ratio of times in one run, medians of rounds: the plain build and each worker have
one core, and what workers load is loaded. It needs two idle cores; ``kills`` takes any machine.
Both need ``dpindex[dask,cloud]``, and ``--s3`` needs ``moto[server]``.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import dpindex as dpi

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

FILES, DIM, KILLS, ROUNDS = 16, 384, 5, 3
SPEC = dpi.Spec("dp-oporp-staircase", dim=DIM, k=128, epsilon=3.0, adjacency=dpi.attribute(1.0))


def write(folder: Path, rows: int, files: int) -> Path:
    """Vectors and ids in files of Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    rng = np.random.default_rng(0)
    for number, part in enumerate(np.array_split(np.arange(rows), files)):
        x = rng.uniform(-1, 1, (len(part), DIM)).astype(np.float32)
        column = pa.FixedSizeListArray.from_arrays(x.reshape(-1), DIM)
        table = pa.table({"id": part, "v": column})
        pq.write_table(table, folder / f"{number:03d}.parquet", row_group_size=1 << 16)
    return folder


@contextmanager
def cluster(workers: int) -> Iterator[Any]:
    """A cluster of workers with a thread each, that is ready."""
    import dask
    import distributed

    options = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "n_workers": workers}
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 50}),
        distributed.LocalCluster(**options) as made,
        distributed.Client(made) as client,
    ):
        client.wait_for_workers(workers)
        client.run(lambda: __import__("dpindex.integrations.dask"))
        yield made, client


def throughput(rows: int) -> None:
    import dpindex.integrations.dask
    from dpindex.index.build import build_index
    from dpindex.vectors import open_dataset

    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        many, one = write(place / "many", rows, FILES), write(place / "one", rows, 1)
        few = write(place / "few", 20 * FILES, FILES)
        times: dict[str, list[float]] = {"plain": [], "one": [], "two": []}

        def timed(name: str, action: Any) -> None:
            start = time.perf_counter()
            action(place / f"{name}-{len(times[name])}")
            times[name].append(time.perf_counter() - start)

        def plain(target: Path) -> None:
            build_index(open_dataset(one / "000.parquet"), target, SPEC)

        for _ in range(ROUNDS):
            cores = os.sched_getaffinity(0)
            os.sched_setaffinity(0, {min(cores)})
            timed("plain", plain)
            os.sched_setaffinity(0, cores)
            for name, workers in (("one", 1), ("two", 2)):
                with cluster(workers) as (_, client):

                    def sharded(target: Path, data: Path = many, client: Any = client) -> None:
                        dpindex.integrations.dask.build(data, target, SPEC, client=client)

                    sharded(place / f"first-{name}-{len(times[name])}", few)  # what loads once
                    timed(name, sharded)
        best = {name: statistics.median(values) for name, values in times.items()}
        for name, values in times.items():
            listed = ", ".join(f"{value:.1f}" for value in values)
            print(f"{name:6} {rows / best[name]:10.0f} vectors a second  ({listed} s)")
        report("two workers by one", best["one"] / best["two"], 1.6)
        report("one worker by the plain build", best["plain"] / best["one"], 0.8)


def report(what: str, ratio: float, wanted: float) -> None:
    print(f"{'ok ' if ratio >= wanted else 'LOW'} {what}: {ratio:.2f} (wanted {wanted})")


def kills(rows: int, s3: bool) -> None:
    from faulty_s3 import KEYS, BucketView, moto_server, proxied
    from made_datasets import FolderView, watched

    import dpindex.integrations.dask

    chance = random.Random()
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        data = write(place / "data", rows, FILES)
        target, view, proxy = str(place / "index"), Any, None
        if s3:
            backend = stack.enter_context(moto_server("lake"))
            proxy, url = stack.enter_context(proxied(backend, share=0.5))
            # moto is slow with large objects: a client that gives up early never ends.
            os.environ.update({**KEYS, "AWS_TIMEOUT": "5s", "AWS_ENDPOINT_URL": url})
            target = "s3://lake/index"
            view = BucketView(target, backend)
        else:
            view = FolderView(place / "index")
        made, client = stack.enter_context(cluster(2))
        moments, killed = list[int](), list[int]()

        def kill(done: int, total: int, task: str) -> None:
            """Kill any worker when a shard is done, at moments chosen before."""
            if task == "privatizing" and done == 0:
                moments.extend(sorted(chance.sample(range(1, total - rows // FILES), KILLS)))
            if task == "privatizing" and moments and done >= moments[0]:
                pids = [nanny.pid for nanny in made.workers.values() if nanny.pid is not None]
                if pids:
                    moments.pop(0)
                    time.sleep(chance.random())  # in the middle of something
                    killed.append(chance.choice(pids))
                    os.kill(killed[-1], signal.SIGKILL)

        ledger, start = dpi.Ledger(place / "ledger"), time.perf_counter()
        with watched(view) as looks:
            stated: dict[str, Any] = {"client": client, "id_column": "id", "ledger": ledger}
            if s3:
                stated["private"] = place / "private"
            published = dpindex.integrations.dask.build(data, target, SPEC, **stated, progress=kill)
        seconds = time.perf_counter() - start
        index = dpi.PrivateIndex.open(target)
        ids, totals = index.ids, ledger.totals()
        assert len(index) == rows, len(index)
        assert np.array_equal(np.sort(ids), np.arange(rows))
        assert [(total.ids, total.releases) for total in totals] == [(rows, 1)]
        assert len(killed) == KILLS, killed
        where = "S3" if s3 else "a folder"
        print(f"{rows} vectors of {DIM} attributes in {FILES} files into {where}:")
        print(f"  {KILLS} workers killed; every id once; the ledger: {totals[0]}")
        print(f"  receipts of {rows - published} vectors were lost, and read from the staging")
        print(f"  looked {looks['looks']} times at {looks['seen']} files: no foreign code")
        if proxy is not None:
            print(f"  faults: {dict(sorted(proxy.injected.items()))}")
        print(f"  {seconds:.0f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["throughput", "kills"])
    parser.add_argument("--rows", type=int)
    parser.add_argument("--s3", action="store_true")
    stated = parser.parse_args()
    if stated.what == "throughput":
        throughput(stated.rows or 1_000_000)
    else:
        kills(stated.rows or 2_000_000, stated.s3)
