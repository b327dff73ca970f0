"""Made vectors and Parquet datasets, and a watcher of what anyone could see during a build."""

import hashlib
import stat
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from numpy.random import default_rng

DIM = 12


def vectors(rows, dim=DIM):
    return default_rng(rows).uniform(-1, 1, (rows, dim)).astype(np.float32)


def uniform(rows, dim, seed=0):
    """Vectors in [-1, 1]."""
    return default_rng(seed).uniform(-1, 1, (rows, dim))


def normal(rows, dim, seed=0):
    """Vectors of independent normal attributes."""
    return default_rng(seed).normal(size=(rows, dim))


def unit(x):
    """Rows at norm 1; those of zeros stay zero."""
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-300)


def directions(rows, dim, seed):
    """Uniform on the sphere."""
    return unit(normal(rows, dim, seed))


def topics(rows, dim, seed, count, spread=0.5):
    """Directions about so many centres, which are the same for every seed."""
    centres = default_rng(0).normal(size=(count, dim))
    rng = default_rng(seed)
    return unit(centres[rng.integers(count, size=rows)] + spread * rng.normal(size=(rows, dim)))


def true_cosines(hits, base, queries):
    """Cosines of queries and of what they found, shape (queries, k)."""
    return np.einsum("qkd,qd->qk", unit(base)[hits.ids], unit(queries))


def top(scores, count):
    """The columns of the largest in each row, best first, and of equal ones the first."""
    return np.argsort(-scores, axis=1, kind="stable")[:, :count]


def picked(table, columns):
    """What stands in each row in its columns, such as the scores of rows that were found."""
    return np.take_along_axis(table, columns, axis=1)


def overlap(found, true):
    """The mean share of what was found, row by row, that is among the true."""
    pairs = zip(found, true, strict=True)
    return float(np.mean([np.isin(one, other).mean() for one, other in pairs]))


def low_rank(rows, seed=0, dim=24):
    """Vectors in [0, 1] that lie near a plane of three directions."""
    rng = default_rng(seed)
    shape = default_rng(99).normal(size=(3, dim))
    x = 0.5 + 0.09 * rng.normal(size=(rows, 3)) @ shape
    return np.clip(x + 0.01 * rng.normal(size=x.shape), 0, 1)


def photographs(rows, seed):
    """Vectors in [0, 1] of one kind and of very different contrast."""
    rng = default_rng(seed)
    shape = np.linalg.qr(default_rng(98).normal(size=(96, 96)))[0]
    contrast = 0.6 * np.exp(0.5 * rng.normal(size=(rows, 1)))
    return np.clip(
        0.5 + contrast * (rng.normal(size=(rows, 96)) / np.arange(1, 97)) @ shape,
        0,
        1,
    )


def tables(rows, files, dim=DIM):
    """Names and tables of a partitioned dataset: ids ``n0``, …, vectors, row numbers."""
    import pyarrow as pa

    x = vectors(rows, dim)
    for number, part in enumerate(np.array_split(np.arange(rows), files)):
        columns = {"id": [f"n{row}" for row in part], "v": list(x[part]), "row": part}
        yield f"day={number % 2}/{number:03d}.parquet", pa.table(columns)


def write_dataset(folder, rows=240, files=4, group=25):
    """A dataset of .parquet files in two folders of a folder."""
    from pyarrow.parquet import write_table

    for name, table in tables(rows, files):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_table(table, folder / name, row_group_size=group)
    return folder


class FolderView:
    """What anyone sees in a folder."""

    def __init__(self, folder):
        self._folder = folder

    def stamps(self):
        """What tells a file from another of the same name, for every file."""
        found = {}
        for file in self._folder.rglob("*"):
            with suppress(FileNotFoundError):
                status = file.stat()
                if stat.S_ISREG(status.st_mode):
                    found[str(file)] = (status.st_ino, status.st_size, status.st_mtime_ns)
        return found

    def read(self, name):
        return Path(name).read_bytes()

    def digests(self):
        """Of every file."""
        return {name: hashlib.sha256(self.read(name)).hexdigest() for name in self.stamps()}


@contextmanager
def watched(view):
    """Look at a folder all the time: whatever is seen, once, must be in it at the end."""
    seen = {}
    ended = threading.Event()
    faults = []

    def look():
        for name, stamp in view.stamps().items():
            if (name, stamp) not in seen:
                with suppress(FileNotFoundError):
                    seen[name, stamp] = hashlib.sha256(view.read(name)).hexdigest()

    def watch():
        try:
            while not ended.wait(0.001):
                look()
            look()
        except BaseException as error:
            faults.append(error)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
    assert not faults, faults
    final = set(view.digests().values())
    assert not [name for (name, _), digest in seen.items() if digest not in final]
    assert len(seen) > 1


def bucket_at(folder, patch):
    """The URL of a new folder that is reached as a bucket."""
    import pytest

    store = pytest.importorskip("obstore.store")
    opened_at = store.from_url
    patch.setattr(store, "from_url", lambda url: opened_at(url, mkdir=True))
    patch.setattr("dpindex.data.stores.FILE_URL", "none")
    folder.mkdir()
    return f"file://{folder}"
