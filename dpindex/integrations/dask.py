"""Builds on Dask: shards of files, of a Dask array, or of a Dask DataFrame.

Dask runs a task again whose worker died, whose result was lost, or whose time is up, and with no
switch to forbid it. That is harmless here: a task whose segments are staged finds them and stops,
and of two that run at the same time one stages. Worker memory is bounded by a segment: 32 MB of
vectors at a time of files, and a block or partition of a collection.

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
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from dpindex.accounting.ledger import Ledger
from dpindex.base.arrays import AnyArray, id_array, keep_freed_memory
from dpindex.base.display import Progress
from dpindex.base.errors import InputError, import_extra
from dpindex.data.dataset import Dataset, Part, open_dataset, part_in_memory, rows_at_a_time
from dpindex.data.readers import read_ids
from dpindex.data.source import VectorSource, as_source
from dpindex.denoise import Kind
from dpindex.index.build import build_index
from dpindex.mechanism.spec import Spec
from dpindex.storage.manifest import Settings
from dpindex.storage.payload import Payload
from dpindex.storage.release import Engine, Shard, Terms
from dpindex.storage.targets import IndexOptions

__all__ = ["build", "connected", "engine"]

_NEED = "building on Dask needs dask and distributed"
_Result = TypeVar("_Result")


def build(
    data: Any,
    target: str | os.PathLike[str],
    spec: Settings | Spec,
    *,
    client: Any | None = None,
    column: str | None = None,
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
    data : path, URL, dask.array.Array or dask.dataframe.DataFrame
        Files as :func:`dpindex.data.open_dataset` opens them; or a collection, which should be
        persisted, as its vectors are computed twice: to check them all, then to privatize them.
    target : path or URL
        The index to make: a new folder that all workers share, or a prefix of an object store.
    spec : Spec or Settings
    client : dask.distributed.Client, optional
        Default the current one.
    column : str, optional
        DataFrame: the column of lists that holds the vectors; default all columns but the ids and
        the payload, in their order.
    id_column : str, optional
        DataFrame and Parquet files: the column of ids. Default the numbers of the rows.
    ids : array or path, optional
        Ids of an array, or of an array file.
    payload_columns : sequence of str
        DataFrame and Parquet files: columns that are **published in the clear**, beside the codes.
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
        As :func:`dpindex.index.build.build_index`, and if a shard took its worker with it too
        often.

    >>> build("s3://lake/vectors", "s3://lake/index", spec, private="/data")  # doctest: +SKIP
    20000000
    """
    client = client or _current_client()
    payload = tuple(payload_columns)
    blocks = None
    if isinstance(data, str | os.PathLike):
        dataset = open_dataset(data, id_column=id_column, payload_columns=payload)
        if ids is not None:
            labels = read_ids(ids) if isinstance(ids, str | os.PathLike) else id_array(ids)
            dataset = dataset.with_labels(labels)
    elif hasattr(data, "compute_chunk_sizes"):
        if column is not None or id_column is not None or payload:
            raise InputError("an array has no columns with names; give ids.")
        dataset, blocks = _of_array(data, ids)
    elif hasattr(data, "map_partitions") and hasattr(data, "columns"):
        if ids is not None:
            raise InputError("the ids of a DataFrame are one of its columns; give id_column.")
        dataset, blocks = _of_frame(data, client, column, id_column, payload)
    else:
        kind = type(data).__name__
        raise InputError(f"data is a path, a Dask array or a Dask DataFrame, not {kind}.")
    return build_index(
        dataset,
        target,
        spec,
        IndexOptions(denoise, allow_unprotected, private),
        Terms(ledger, allow_rerelease, skip_leak_check),
        engine=engine(client, blocks),
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


def engine(client: Any, blocks: Sequence[Any] | None = None) -> Engine:
    """Return the engine of a Dask cluster.

    Parameters
    ----------
    client : dask.distributed.Client
    blocks : sequence of delayed functions that return vectors, ids and payload, optional
        Of the shards, where these lie in the cluster.

    The engine raises InputError if a worker died of every attempt at a shard.

    >>> with connected() as client:  # doctest: +SKIP
    ...     list(engine(client)(lambda shard: shard.first_row, shards))
    """
    distributed = import_extra("distributed", _NEED, "dask")
    delayed = import_extra("dask", _NEED, "dask").delayed

    def run(function: Callable[[Shard], _Result], shards: Sequence[Shard], /) -> Iterator[_Result]:
        # A task of its own, so that a codebook of megabytes is kept once, and made again if lost.
        task = client.submit(_itself, function, pure=False)
        if blocks is None:
            futures = [
                client.submit(_attempted, _in_worker, task, shard, pure=False) for shard in shards
            ]
        else:
            attempted = delayed(_attempted, pure=False)
            pairs = zip(shards, blocks, strict=True)
            futures = client.compute([attempted(_in_worker, task, *pair) for pair in pairs])
        try:
            for future in distributed.as_completed(futures):
                yield _result_of(future.result())
        except distributed.KilledWorker:
            # Dask names the task, which may be one of the data's: its name is a hash of them.
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
    """An error as a result: of a task that raises, Dask logs name and arguments, so the vectors."""

    error: Exception


def _attempted(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns, or how it failed."""
    try:
        return function(*arguments)
    except Exception as error:
        return _Failure(error)


def _result_of(outcome: Any) -> Any:
    if isinstance(outcome, _Failure):
        raise outcome.error
    return outcome


def _in_worker(
    function: Callable[[Shard], _Result], shard: Shard, block: Callable[[], Any] | None = None
) -> _Result:
    keep_freed_memory()
    if block is not None:
        shard = replace(shard, part=part_in_memory(shard.part.name, *block()))
    return function(shard)


def _elsewhere(name: str) -> VectorSource:
    raise InputError(f"{name} lies in the cluster; build it with dpindex.integrations.dask.build.")


class _Ids:
    """The ids of a block; a worker gets them with the block, so they do not pickle."""

    def __init__(self, ids: AnyArray | None) -> None:
        self._ids = ids

    def __call__(self) -> AnyArray | None:
        return self._ids

    def __reduce__(self) -> Any:
        return _Ids, (None,)


def _dataset(
    name: str, columns: int, rows: list[int], ids: Sequence[Any], blocks: list[Any]
) -> tuple[Dataset, list[Any]]:
    """Return the blocks that have rows, as a dataset and as they are."""
    parts = []
    for number, count in enumerate(rows):
        if count:
            # The name that Dask gives a collection is an unkeyed hash of its vectors.
            block = f"{name}, block {number}"
            parts.append(Part(block, 0, count, partial(_elsewhere, block), _Ids(ids[number])))
    if not parts:
        raise InputError(f"{name} has no rows.")
    row = as_source(np.zeros((1, columns)))
    dataset = Dataset(name, columns, rows_at_a_time(row), tuple(parts))
    return dataset, [block for block, count in zip(blocks, rows, strict=True) if count]


@dataclass(frozen=True, repr=False)
class _Rows:
    """Vectors of an array with their ids; Dask's logs name it without them."""

    vectors: Any
    ids: AnyArray | None

    def __call__(self) -> tuple[Any, AnyArray | None, None]:
        return self.vectors, self.ids, None


def _of_array(data: Any, ids: Any | None) -> tuple[Dataset, list[Any]]:
    delayed = import_extra("dask", _NEED, "dask").delayed
    if data.ndim != 2:
        raise InputError(f"the array has {data.ndim} dimension(s), not 2.")
    if np.isnan(data.chunks[0]).any():
        data = data.compute_chunk_sizes()
    data = data.rechunk({1: -1})
    rows = [int(count) for count in data.chunks[0]]
    block_ids: list[Any] = [None] * len(rows)
    if ids is not None:
        array = id_array(ids)
        if len(array) != sum(rows):
            raise InputError(f"there are {len(array)} ids for {sum(rows)} vectors.")
        block_ids = np.split(array, np.cumsum(rows)[:-1])
    pairs = zip(data.to_delayed().ravel(), block_ids, strict=True)
    blocks = [delayed(_Rows)(*pair) for pair in pairs]
    return _dataset("the array", int(data.shape[1]), rows, block_ids, blocks)


@dataclass(frozen=True, repr=False)
class _Frame:
    """A partition of a DataFrame, and its columns of vectors (or one of lists), ids and payload."""

    frame: Any
    vectors: str | list[Any]
    id_column: str | None
    payload_columns: tuple[str, ...]

    def __call__(self) -> tuple[Any, AnyArray | None, Any]:
        if isinstance(self.vectors, list):
            vectors = self.frame[self.vectors].to_numpy()
        else:
            vectors = np.stack(self.frame[self.vectors].tolist())
        return vectors, self._ids(), self._payload()

    def facts(self) -> tuple[int, int, AnyArray | None, str | None]:
        """Return rows, attributes of a vector, ids, and types of the payload columns in words."""
        if len(self.frame) == 0:
            return 0, 0, self._ids(), None
        columns = len(self.vectors)
        if isinstance(self.vectors, str):
            first = self.frame[self.vectors].iloc[0]
            if isinstance(first, str):
                raise InputError(
                    f"column {self.vectors!r} holds text; lists become text if a DataFrame is made "
                    f"under Dask's setting dataframe.convert-string, so make it without."
                )
            columns = len(first)
        payload = self._payload()
        kinds = None
        if payload is not None:
            kinds = ", ".join(map(str, payload.schema))
        return len(self.frame), columns, self._ids(), kinds

    def _ids(self) -> AnyArray | None:
        if self.id_column is None:
            return None
        return id_array(self.frame[self.id_column].tolist())

    def _payload(self) -> Any:
        if self.payload_columns:
            return Payload().checked(self.frame[[*self.payload_columns]], len(self.frame))
        return None


def _of_frame(
    data: Any, client: Any, column: str | None, id_column: str | None, payload: tuple[str, ...]
) -> tuple[Dataset, list[Any]]:
    delayed = import_extra("dask", _NEED, "dask").delayed
    for name in (column, id_column, *payload):
        if name is not None and name not in data.columns:
            raise InputError(f"the DataFrame has no column {name!r}.")
    vectors: Any = column
    if column is None:
        vectors = [name for name in data.columns if name != id_column and name not in payload]
    blocks = [delayed(_Frame)(part, vectors, id_column, payload) for part in data.to_delayed()]
    attempts = client.compute([delayed(_attempted)(_Frame.facts, block) for block in blocks])
    facts = [_result_of(outcome) for outcome in client.gather(attempts)]
    rows, columns, ids, kinds = map(list, zip(*facts, strict=True))
    stated = [kind for kind in kinds if kind is not None]
    for kind in stated:
        if kind != stated[0]:
            raise InputError(
                f"the payload columns of one partition are {kind} and of the first {stated[0]}; "
                f"give every column one type."
            )
    return _dataset("the DataFrame", max(columns), rows, ids, blocks)
