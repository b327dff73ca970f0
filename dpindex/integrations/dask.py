"""Builds on Dask: workers read files of vectors, and send codes.

Dask runs a task again whose worker died, whose result was lost, or whose time is up, and with no
switch to forbid it. That is harmless here: workers keep nothing, and of two results for a segment
this process keeps the first, and discards the other unread. Worker memory is bounded by 32 MB of
vectors at a time, and the ids and codes of a shard. No vector is in a task, a result or a log.

    import dpindex, dpindex.integrations.dask
    spec = dpindex.Spec("dp-oporp-staircase", dim=768, epsilon=3, adjacency=dpindex.attribute(1.0))
    dpindex.integrations.dask.build(
        "s3://lake/vectors", "s3://lake/index", spec, id_column="id", private="/data/private"
    )
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from dpindex.accounting.ledger import Ledger
from dpindex.base.arrays import id_array, keep_freed_memory
from dpindex.base.display import Progress
from dpindex.base.errors import InputError, import_extra
from dpindex.data.dataset import open_dataset
from dpindex.data.readers import read_ids
from dpindex.denoise import Kind
from dpindex.index.build import build_index
from dpindex.mechanism.spec import Spec
from dpindex.storage.manifest import Settings
from dpindex.storage.release import Engine, Shard, Terms
from dpindex.storage.targets import IndexOptions

__all__ = ["build", "connected", "engine"]

_NEED = "building on Dask needs distributed"
_Result = TypeVar("_Result")


def build(
    data: str | os.PathLike[str],
    target: str | os.PathLike[str],
    spec: Settings | Spec,
    *,
    client: Any | None = None,
    id_column: str | None = None,
    ids: Any = None,
    payload_columns: Sequence[str] = (),
    ledger: Ledger | None = None,
    allow_rerelease: bool = False,
    skip_leak_check: bool = False,
    denoise: Kind | None = None,
    allow_unprotected: bool = False,
    private: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> int:
    """Privatize vectors into an index on a Dask cluster, each of them once.

    A build that was stopped goes on, if it is called again with the same arguments.

    Parameters
    ----------
    data : path or URL
        Files as :func:`dpindex.data.open_dataset` opens them, which all workers reach.
    target : path or URL
        The index to make: a new folder, or a prefix of an object store.
    spec : Spec or Settings
    client : dask.distributed.Client, optional
        Default the current one.
    id_column : str, optional
        The column of ids of Parquet files. Default the numbers of the rows.
    ids : array or path, optional
        Ids of an array file.
    payload_columns : sequence of str
        Columns of Parquet files that are **published in the clear**, beside the codes.
    ledger : Ledger, optional
        Where releases are written down; it stays on this machine.
    allow_rerelease, skip_leak_check : bool
        See :class:`dpindex.storage.release.Terms`.
    denoise : "auto", "linear" or "score", optional
        Fit a denoiser before the index is published.
    allow_unprotected : bool
        Allow a ``none-*`` baseline.
    private : path, optional
        See :class:`dpindex.storage.targets.IndexOptions`.
    progress : callable, optional
        Called with the rows that are done, all rows, and "checking" or "privatizing".

    Returns
    -------
    Rows that were privatized by this call.

    Raises
    ------
    InputError
        As :func:`dpindex.index.build.build_index`, for a Dask array or DataFrame, and if a shard
        took its worker with it too often.

    >>> build("s3://lake/vectors", "s3://lake/index", spec, private="/data")  # doctest: +SKIP
    20000000
    """
    client = client or _current_client()
    if not isinstance(data, str | os.PathLike):
        raise InputError(
            f"data is a path or URL, not {type(data).__name__}; write the partitions of a Dask "
            f"DataFrame to .parquet files, with the vectors as one column of lists, and build from "
            f"that folder."
        )
    dataset = open_dataset(data, id_column=id_column, payload_columns=payload_columns)
    if ids is not None:
        labels = read_ids(ids) if isinstance(ids, str | os.PathLike) else id_array(ids)
        dataset = dataset.with_labels(labels)
    return build_index(
        dataset,
        target,
        spec,
        IndexOptions(denoise, allow_unprotected, private),
        Terms(ledger, allow_rerelease, skip_leak_check),
        engine=engine(client),
        threads=1,
        progress=progress,
    ).drawn


def _current_client() -> Any:
    distributed = import_extra("distributed", _NEED, "dask")
    try:
        return distributed.get_client()
    except ValueError:
        raise InputError("there is no Dask client; make one, and pass it as client.") from None


@contextmanager
def connected(address: str | None = None) -> Iterator[Any]:
    """Give a client of a Dask cluster while the block runs.

    Parameters
    ----------
    address : str, optional
        Of the scheduler; default a cluster on this machine with one worker a core, which ends with
        the block.

    Raises
    ------
    InputError
        If there is no scheduler.

    >>> with connected() as client:  # doctest: +SKIP
    ...     build("vectors", "index", spec, client=client)
    """
    distributed = import_extra("distributed", _NEED, "dask")
    options: dict[str, Any] = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    if address is not None:
        options = {"address": address, "timeout": 10}
    try:
        client = distributed.Client(**options)
    except (OSError, ValueError) as error:
        raise InputError(f"there is no Dask scheduler at {address}: {error}.") from error
    with client:
        yield client


def engine(client: Any) -> Engine:
    """Return the engine of a Dask cluster.

    Parameters
    ----------
    client : dask.distributed.Client

    The engine raises InputError if a worker died of every attempt at a shard.

    >>> with connected() as client:  # doctest: +SKIP
    ...     list(engine(client)(lambda shard: shard.first_row, shards))
    """
    distributed = import_extra("distributed", _NEED, "dask")

    def run(function: Callable[[Shard], _Result], shards: Sequence[Shard], /) -> Iterator[_Result]:
        # A task of its own, so that a codebook of megabytes is kept once, and made again if lost.
        task = client.submit(_itself, function, pure=False)
        futures = [client.submit(_attempted, task, shard, pure=False) for shard in shards]
        try:
            for future in distributed.as_completed(futures):
                outcome = future.result()
                if isinstance(outcome, _Failure):
                    raise outcome.error
                yield outcome
        except distributed.KilledWorker:
            raise InputError(
                "a worker died of every attempt at a shard; give workers more memory, and build "
                "again to go on."
            ) from None
        finally:
            client.cancel(futures)

    return run


def _itself(function: Any) -> Any:
    return function


@dataclass(frozen=True, repr=False)
class _Failure:
    """An error as a result: of a task that raises, Dask logs the arguments, and so the key."""

    error: Exception


def _attempted(function: Callable[[Shard], _Result], shard: Shard) -> _Result | _Failure:
    """Return what a function returns of a shard, or how it failed."""
    keep_freed_memory()
    try:
        return function(shard)
    except Exception as error:
        return _Failure(error)
