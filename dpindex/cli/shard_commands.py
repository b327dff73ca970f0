"""The build in shards, for `dpindex build` of datasets, on clusters, and into object stores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dpindex.accounting.ledger import Ledger
from dpindex.cli import options as o
from dpindex.cli import output as out
from dpindex.index.directory import Settings
from dpindex.privacy import Guarantee
from dpindex.shards import Engine, build, one_by_one, plan_shards
from dpindex.vectors import open_dataset, open_vectors
from dpindex.vectors.stores import is_url

__all__ = ["build_in_shards", "needs_shards", "shape_of"]


def needs_shards(vectors: str, index: str, id_column: str | None, dask: str | None) -> bool:
    """Whether a build is one in shards: one file into a folder, on this machine, is not."""
    if id_column is not None or dask is not None or is_url(vectors) or is_url(index):
        return True
    return os.path.isdir(vectors) or os.path.isdir(vectors.rpartition(":")[0])


def shape_of(vectors: str, index: str, id_column: str | None, dask: str | None) -> tuple[int, int]:
    """Rows and attributes of what a build reads."""
    if needs_shards(vectors, index, id_column, dask):
        dataset = open_dataset(vectors, id_column=id_column)
        return dataset.rows, dataset.columns
    with open_vectors(vectors) as source:
        return source.shape


def build_in_shards(
    vectors: str,
    index: str,
    settings: Callable[[int, int], Settings],
    release: o.ReleaseOptions,
    id_column: str | None,
    payload_columns: tuple[str, ...],
    dask: str | None,
    *,
    allow_unprotected: bool,
) -> tuple[int, int, Guarantee]:
    """Build an index; rows in all, rows that were privatized now, and the guarantee.

    ``settings`` makes the settings from the numbers of rows and attributes.
    """
    stated: Any = {"id_column": id_column, "payload_columns": payload_columns}
    dataset = open_dataset(vectors, ids=release.ids, **stated)
    plan = plan_shards(
        dataset, index, settings(dataset.rows, dataset.columns), allow_unprotected=allow_unprotected
    )
    with _engine(dask) as engine, out.progress_bar("shards") as report:
        made = build(
            plan,
            engine,
            ledger=None if release.ledger is None else Ledger(release.ledger),
            allow_rerelease=release.allow_rerelease,
            skip_leak_check=release.skip_leak_check,
            threads=None if dask is None else 1,
            progress=report,
        )
    return plan.rows, made, plan.settings.spec.guarantee


@contextmanager
def _engine(dask: str | None) -> Iterator[Engine]:
    if dask is None:
        yield one_by_one
    else:
        from dpindex.dask import connected, engine

        with connected(None if dask == o.LOCAL else dask) as client:
            yield engine(client)
