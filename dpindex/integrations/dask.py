"""Dask as the engine of a build: workers read files of vectors, and send codes.

Dask runs a task again whose worker died, whose result was lost, or whose time is up, and with no
switch to forbid it. That is harmless here: workers keep nothing, and of two results for a segment
the process that builds keeps the first, and discards the other unread. Worker memory is bounded by
32 MB of vectors at a time, and the ids and codes of a shard. No vector is in a task, a result or a
log.

    import dpindex
    from dask.distributed import Client
    from dpindex.integrations.dask import engine
    vectors = dpindex.open_dataset("s3://lake/vectors", id_column="id")
    spec = dpindex.Spec("dp-oporp-staircase", dim=768, epsilon=3, adjacency=dpindex.attribute(1.0))
    on_dask = engine(Client("tcp://scheduler:8786"))
    dpindex.build(vectors, "my-index", spec, engine=on_dask, threads=1)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from dpindex.base.errors import InputError, import_extra
from dpindex.base.threads import keep_freed_memory
from dpindex.storage.shards import Engine, Shard

__all__ = ["connected", "engine"]

_NEED = "building on Dask needs distributed"
_Result = TypeVar("_Result")


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
    ...     dpindex.build(dataset, "my-index", spec, engine=engine(client), threads=1)
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
        futures = [client.submit(attempted, task, shard, pure=False) for shard in shards]
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


def attempted(function: Callable[[Shard], _Result], shard: Shard) -> _Result | _Failure:
    """Return what a function returns of a shard, or how it failed."""
    keep_freed_memory()
    try:
        return function(shard)
    except Exception as error:
        return _Failure(error)
