"""Parquet datasets, and a watcher of what anyone could have seen of an index while it was built."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

DIM = 12


def vectors(rows: int, dim: int = DIM) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(rows).uniform(-1, 1, (rows, dim)).astype(np.float32)


def tables(rows: int, files: int, dim: int = DIM) -> Iterator[tuple[str, Any]]:
    """Names and tables of a partitioned dataset: ids ``n0``, ``n1``, … and vectors."""
    import pyarrow as pa

    x = vectors(rows, dim)
    for number, part in enumerate(np.array_split(np.arange(rows), files)):
        columns = {"id": [f"n{row}" for row in part], "v": list(x[part])}
        yield f"day={number % 2}/{number:03d}.parquet", pa.table(columns)


def write_dataset(folder: Path, rows: int = 240, files: int = 4, group: int = 25) -> Path:
    """A dataset of .parquet files in two folders of a folder."""
    from pyarrow.parquet import write_table

    for name, table in tables(rows, files):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_table(table, folder / name, row_group_size=group)
    return folder


def folder_contents(folder: Path) -> dict[str, bytes]:
    """Every file in a folder, finished or not."""
    found = {}
    for file in folder.rglob("*"):
        try:
            found[str(file.relative_to(folder))] = file.read_bytes()
        except OSError:  # a folder, or gone
            continue
    return found


@contextmanager
def watched(contents: Callable[[], dict[str, bytes]]) -> Iterator[None]:
    """Look at a target all the time: whatever is seen, once, must be in it at the end."""
    seen: dict[str, set[str]] = {}
    ended, faults = threading.Event(), list[BaseException]()

    def look() -> None:
        for name, data in contents().items():
            seen.setdefault(hashlib.sha256(data).hexdigest(), set()).add(name)

    def watch() -> None:
        try:
            while not ended.wait(0.001):
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
    final = {hashlib.sha256(data).hexdigest() for data in contents().values()}
    assert not [names for digest, names in seen.items() if digest not in final]
