"""Builds on a Dask cluster of this machine, whose workers are killed."""

import os
import platform
import random
import signal
import sys

import numpy as np
import pytest
from helpers.common import (
    DIM,
    FolderView,
    attribute_spec,
    counted,
    names_in,
    python,
    refuses,
    vectors,
    watched,
    write_dataset,
)

import dpindex as dpi
from dpindex.integrations import dask as on_dask
from dpindex.storage.history import Terms
from dpindex.storage.shards import CodeCheck
from dpindex.storage.targets import IndexOptions, build_index

SPEC = attribute_spec("dp-oporp-staircase", DIM, k=4, epsilon=3.0)
KILLS = 3


@pytest.fixture(scope="module")
def cluster():
    distributed = pytest.importorskip("distributed")
    import dask

    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    patient = {
        "distributed.scheduler.allowed-failures": 50,  # the kills may meet one task
        "distributed.comm.timeouts.connect": "600s",
        "distributed.comm.timeouts.tcp": "600s",
    }
    with dask.config.set(patient), distributed.LocalCluster(**options) as made:
        yield made


@pytest.fixture
def client(cluster):
    import distributed

    with distributed.Client(cluster) as made:
        yield made


def built(dataset, target, client, **options):
    """Rows that a build on the cluster privatized."""
    engine = on_dask.engine(client)
    return build_index(dataset, target, SPEC, engine=engine, threads=1, **options).drawn


@pytest.mark.slow
@pytest.mark.extra
def test_workers_are_killed(cluster, client, tmp_path):
    """One of two workers, at three random moments: every id once, and no other code was seen."""
    rows = 3200
    files = 32
    data = write_dataset(tmp_path / "data", rows, files, group=100)
    ledger = dpi.Ledger(tmp_path / "ledger")
    chance = random.Random(13)
    moments = chance.sample(range(2 * files - 8), KILLS)
    moments.sort()
    done = 0
    killed = []

    def kill(*_):
        nonlocal done
        done += 1
        if moments and done > moments[0]:
            nannies = cluster.workers.values()
            pids = [nanny.pid for nanny in nannies if nanny.pid is not None]
            # One that was just killed is left out: its nanny may not know yet.
            workers = [pid for pid in pids if pid not in killed]
            if workers:
                victim = chance.choice(workers)
                os.kill(victim, signal.SIGKILL)
                moments.pop(0)
                killed.append(victim)

    with watched(FolderView(tmp_path / "index")):
        made = built(
            dpi.open_dataset(data, id_column="id"),
            tmp_path / "index",
            client,
            terms=Terms(ledger),
            progress=kill,
        )
    assert len(killed) == KILLS
    index = dpi.open(tmp_path / "index")
    assert sorted(index.ids) == sorted(f"n{row}" for row in range(rows))
    assert made <= rows  # results of killed workers were lost; their codes were not
    assert counted(ledger) == [(rows, 1)]
    names = ["data", "index", "index.released", "ledger", "ledger.key"]
    assert names_in(tmp_path) == names


@pytest.mark.slow
@pytest.mark.extra
def test_files_with_a_payload_and_a_denoiser(client, tmp_path):
    rows = 600  # enough for a denoiser
    data = write_dataset(tmp_path / "data", rows)
    dataset = dpi.open_dataset(data, id_column="id", payload_columns=["row"])
    options = IndexOptions(denoise="linear")
    assert built(dataset, tmp_path / "index", client, options=options) == rows
    index = dpi.open(tmp_path / "index")
    rows_of_ids = index.payload["row"].to_pylist()
    assert index.ids.tolist() == [f"n{row}" for row in rows_of_ids]
    assert index.denoiser is not None
    assert index.denoiser.rows == rows


@pytest.mark.slow
@pytest.mark.extra
def test_there_is_no_scheduler():
    pytest.importorskip("distributed")
    with refuses("there is no Dask scheduler at"), on_dask.connected("nonsense://x:1"):
        pass


FAULTS = """
import resource, numpy as np, dpindex.integrations.dask
counts = []
for prepare in (lambda: None, dpindex.base.threads.keep_freed_memory):
    prepare()
    np.ones(1 << 17)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        np.ones(1 << 17)
    counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(*counts)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="about glibc's malloc")
def test_freed_memory_is_kept():
    """Under what Dask sets for its workers every array of 1 MB is faulted in anew."""
    said = python("-c", FAULTS, MALLOC_TRIM_THRESHOLD_="65536")
    before, after = map(int, said.split())
    assert before > 20 * 100
    assert after < before / 4


@pytest.mark.slow
@pytest.mark.extra
def test_f3_neither_messages_nor_logs_are_functions_of_the_vectors(client, tmp_path):
    """Dask logs the arguments of a task that raises: here none does."""
    wrong = vectors(9)
    wrong[7, 3] = 7.125  # beyond the bounds
    np.save(tmp_path / "x.npy", wrong)
    with refuses(r"x\.npy: row 7, column 3") as refusal:
        built(dpi.open_dataset(tmp_path / "x.npy"), tmp_path / "index", client)
    logs = str(client.get_worker_logs()) + str(client.get_scheduler_logs())
    for place in (str(refusal.value), logs):
        assert "7.125" not in place
    assert "key=" not in logs


def test_f3_what_a_cluster_logs_of_a_task_is_no_secret():
    """Dask logs the arguments of a task that fails, and what a task returns is shown by name."""
    check = CodeCheck(SPEC, b"a secret key", None)
    assert "secret" not in repr(check)
    failure = on_dask.attempted(lambda shard: 1 / shard, 0)
    assert isinstance(failure.error, ZeroDivisionError)
    assert "division" not in repr(failure)


@pytest.mark.extra
def test_names_of_tasks_say_nothing_of_what_they_hold():
    """Dask names a pure task by a hash of its arguments, which a dashboard shows to others."""
    pytest.importorskip("distributed")
    names = []

    class Client:
        def submit(self, *_, pure=True):
            names.append(pure)
            if len(names) == 3:
                raise KeyboardInterrupt

        def cancel(self, futures): ...

    engine = on_dask.engine(Client())
    with pytest.raises(KeyboardInterrupt):
        list(engine(len, [object(), object()]))
    assert names == [False] * 3


def test_without_dask(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with refuses(r"run pip install distributed"):
        on_dask.engine(None)
