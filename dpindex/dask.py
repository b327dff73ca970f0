"""Builds on Dask: shards of files, of a Dask array, or of a Dask DataFrame.

Dask runs a task again whose worker died, whose result was lost, or whose time is up, and with no
switch to forbid it. That is harmless here: a task whose shard is published finds it and stops, and
of two that run at the same time one publishes. Worker memory is bounded by a shard: 32 MB of
vectors at a time of files, and a block or partition of a collection.

    import dpindex, dpindex.dask
    spec = dpindex.Spec("dp-oporp-staircase", dim=768, epsilon=3)
    dpindex.dask.build("s3://lake/vectors", "s3://lake/index", spec, id_column="id")
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, TypeVar

import numpy as np

from dpindex import shards
from dpindex.accounting.ledger import Ledger
from dpindex.base.arrays import AnyArray
from dpindex.base.checks import id_array
from dpindex.base.errors import InputError
from dpindex.base.extras import import_extra
from dpindex.index.directory import Settings
from dpindex.mechanism.spec import Spec
from dpindex.shards import Shard
from dpindex.storage.payload import Payload
from dpindex.vectors.dataset import Dataset, InMemoryPart, Part, open_dataset
from dpindex.vectors.source import VectorSource

__all__ = ["build", "connected", "engine"]

_NEED = "building on Dask needs dask and distributed"
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_Result = TypeVar("_Result")


def build(
    data: Any,
    target: str | os.PathLike[str],
    spec: Settings | Spec,
    *,
    client: Any | None = None,
    column: str | None = None,
    id_column: str | None = None,
    ids: Any | None = None,
    payload_columns: Sequence[str] = (),
    ledger: Ledger | None = None,
    allow_rerelease: bool = False,
    allow_unprotected: bool = False,
    skip_leak_check: bool = False,
    progress: Callable[[int, int, str], Any] | None = None,
) -> int:
    """Privatize vectors into an index on a Dask cluster, each of them once.

    A build that was stopped goes on, if it is called again with the same arguments.

    Parameters
    ----------
    data : path, URL, dask.array.Array or dask.dataframe.DataFrame
        Files as :func:`dpindex.vectors.open_dataset` opens them; or a collection, which should be
        persisted, as its vectors are computed twice: to check them all, then to privatize them.
    target : path or URL
        The index to make: a new folder that all workers share, or a prefix of an object store.
    spec : Spec or Settings
    client : dask.distributed.Client, optional
        Default the current one.
    column : str, optional
        DataFrame: the column of lists that holds the vectors; default all columns but the ids, in
        their order.
    id_column : str, optional
        DataFrame and Parquet files: the column of ids. Default the numbers of the rows.
    ids : array or path, optional
        Ids of an array; of an array file, their file.
    payload_columns : sequence of str
        DataFrame and Parquet files: columns that are **published in the clear**, beside the codes.
    ledger, allow_rerelease, allow_unprotected, skip_leak_check
        As in :func:`dpindex.shards.build`. The ledger stays on this machine.
    progress : callable, optional
        Called with shards done, shards in all, and "checking" or "privatizing".

    Returns
    -------
    Rows that were privatized by this call.

    Raises
    ------
    InputError
        As :func:`dpindex.shards.build`, and if a shard took its worker with it too often.
    """
    client = client or _current_client()
    settings = Settings(spec) if isinstance(spec, Spec) else spec
    options: dict[str, Any] = {"allow_unprotected": allow_unprotected}
    run = engine(client)
    if isinstance(data, str | os.PathLike):
        named: Any = {"id_column": id_column, "payload_columns": payload_columns}
        dataset = open_dataset(data, ids=ids, **named)
    else:
        found = _collection(data, client, column, id_column, ids, tuple(payload_columns))
        parts = found.parts()
        dataset = Dataset(found.name, found.columns, tuple(parts))
        options["read_ids"] = found.ids_of
        run = engine(client, [found.blocks[part.number] for part in parts])
    plan = shards.plan_shards(dataset, os.fspath(target), settings, **options)
    return shards.build(
        plan,
        run,
        ledger=ledger,
        allow_rerelease=allow_rerelease,
        skip_leak_check=skip_leak_check,
        threads=1,
        progress=progress,
    )


def _current_client() -> Any:
    try:
        return import_extra("distributed", _NEED, "dask").get_client()
    except InputError:
        raise
    except ValueError:
        raise InputError("there is no Dask client; make one, and pass it as client.") from None


@contextmanager
def connected(address: str | None = None) -> Iterator[Any]:
    """A client of the cluster at an address; without one, of a cluster on this machine that ends
    with it and has one worker a core.
    """
    distributed = import_extra("distributed", _NEED, "dask")
    here = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    try:
        options: Any = here if address is None else {"address": address, "timeout": 10}
        client = distributed.Client(**options)
    except (OSError, ValueError) as error:
        raise InputError(f"there is no Dask scheduler at {address}: {error}.") from error
    with client:
        yield client


def engine(client: Any, blocks: Sequence[Any] | None = None) -> shards.Engine:
    """The engine of a Dask cluster; ``blocks`` are delayed vectors and ids of the shards."""
    distributed = import_extra("distributed", _NEED, "dask")
    delayed = import_extra("dask", _NEED, "dask").delayed

    def run(function: Callable[[Shard], _Result], every: Sequence[Shard], /) -> Iterator[_Result]:
        if blocks is None:
            futures = client.map(partial(_in_worker, function), every, pure=False)
        else:
            pairs = zip(every, blocks, strict=True)
            task = delayed(_with_block, pure=False)
            futures = client.compute([task(function, shard, block) for shard, block in pairs])
        try:
            for future in distributed.as_completed(futures):
                yield future.result()
        except distributed.KilledWorker as error:
            raise InputError(
                f"a worker died of every attempt at a shard ({error}); give workers more memory, "
                f"and build again to go on."
            ) from error
        finally:
            client.cancel(futures)

    return run


@dataclass(frozen=True)
class _Block(Part):
    """A block of a collection, which the engine hands to the task."""

    name: str
    rows: int
    number: int

    @property
    def fingerprint(self) -> str:
        return repr((self.name, self.rows))

    def vectors(self) -> VectorSource:
        raise InputError(f"{self.name} lies in the cluster; build it with dpindex.dask.build.")

    def ids(self) -> AnyArray | None:
        return None


def _collection(
    data: Any,
    client: Any,
    column: str | None,
    id_column: str | None,
    ids: Any | None,
    payload_columns: tuple[str, ...],
) -> _Collection:
    if hasattr(data, "compute_chunk_sizes"):
        if column is not None or id_column is not None or payload_columns:
            raise InputError("an array has no columns with names; give ids.")
        return _of_array(data, ids)
    if hasattr(data, "map_partitions") and hasattr(data, "columns"):
        if ids is not None:
            raise InputError("the ids of a DataFrame are one of its columns; give id_column.")
        return _of_frame(data, client, column, id_column, payload_columns)
    kind = type(data).__name__
    raise InputError(f"data is a path, a Dask array or a Dask DataFrame, not {kind}.")


def _in_worker(function: Callable[[Shard], _Result], shard: Shard) -> _Result:
    _keep_freed_memory()
    return function(shard)


@cache
def _keep_freed_memory() -> None:
    """Let glibc keep freed blocks of up to 32 MB for the next arrays of this process.

    Dask starts workers under MALLOC_TRIM_THRESHOLD_, which hands them back to the kernel at once:
    to fault them in again, page by page, takes as long as the rest of the work.
    """
    with suppress(AttributeError, OSError, TypeError):  # another C library
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 25)
        libc.mallopt(_M_TRIM_THRESHOLD, 1 << 27)


def _with_block(
    function: Callable[[Shard], _Result], shard: Shard, block: tuple[Any, Any, Any]
) -> _Result:
    part = InMemoryPart(shard.part.name, *block)
    return _in_worker(function, replace(shard, part=part))


@dataclass(frozen=True)
class _Collection:
    """A collection: its blocks, each delayed as vectors and ids, and what is known of them.

    Attributes
    ----------
    name : str
        Which Dask gives it, the same for the same computation.
    columns : int
        Attributes of a vector.
    blocks : list of delayed (vectors, ids, payload)
    rows : list of int
        Of every block.
    ids : list of arrays, optional
        Of every block.
    """

    name: str
    columns: int
    blocks: list[Any]
    rows: list[int]
    ids: list[AnyArray] | None

    def parts(self) -> list[_Block]:
        """Of the blocks that have rows."""
        names = (f"{self.name}, block {i}" for i in range(len(self.rows)))
        every = zip(names, self.rows, range(len(self.rows)), strict=True)
        parts = [_Block(*facts) for facts in every if facts[1]]
        if not parts:
            raise InputError(f"{self.name} has no rows.")
        return parts

    def ids_of(self, part: Any) -> AnyArray | None:
        return None if self.ids is None else self.ids[part.number]


def _of_array(data: Any, ids: Any | None) -> _Collection:
    delayed = import_extra("dask", _NEED, "dask").delayed
    if data.ndim != 2:
        raise InputError(f"the array has {data.ndim} dimension(s), not 2.")
    if np.isnan(data.chunks[0]).any():
        data = data.compute_chunk_sizes()
    data = data.rechunk({1: -1})
    rows, known = [int(count) for count in data.chunks[0]], None
    if ids is not None:
        every = id_array(ids)
        if len(every) != sum(rows):
            raise InputError(f"there are {len(every)} ids for {sum(rows)} vectors.")
        known = np.split(every, np.cumsum(rows)[:-1])
    some: list[Any] = [None] * len(rows) if known is None else known
    pairs = zip(data.to_delayed().ravel(), some, strict=True)
    blocks = [delayed((block, names, None)) for block, names in pairs]
    return _Collection(str(data.name), int(data.shape[1]), blocks, rows, known)


def _of_frame(
    data: Any, client: Any, column: str | None, id_column: str | None, payload: tuple[str, ...]
) -> _Collection:
    delayed = import_extra("dask", _NEED, "dask").delayed
    wanted = [name for name in (column, id_column, *payload) if name is not None]
    if missing := [name for name in wanted if name not in data.columns]:
        raise InputError(f"the DataFrame has no column {missing[0]!r}.")
    others = [name for name in data.columns if name != id_column and name not in payload]
    split = _Columns(others if column is None else column, id_column, payload)
    frames = data.to_delayed()
    facts = client.gather(client.compute([delayed(split.facts)(frame) for frame in frames]))
    rows, columns, ids, kinds = (list(some) for some in zip(*facts, strict=True))
    if differ := [found for found in kinds if found not in (None, kinds[0])]:
        raise InputError(
            f"the payload columns of one partition are {differ[0]} and of the first {kinds[0]}; "
            f"give every column one type."
        )
    blocks = [delayed(split.split)(frame) for frame in frames]
    return _Collection(data._name, max(columns), blocks, rows, None if id_column is None else ids)


@dataclass(frozen=True)
class _Columns:
    """Which columns of a frame are the vectors (one of lists or one an attribute), ids, payload."""

    vectors: str | list[Any]
    ids: str | None
    payload: tuple[str, ...]

    def _names(self, frame: Any) -> AnyArray | None:
        return None if self.ids is None else id_array(frame[self.ids].tolist())

    def split(self, frame: Any) -> tuple[Any, Any, Any]:
        """The vectors, ids and payload of a frame with rows."""
        beside = self._names(frame), self._payload(frame)
        if isinstance(self.vectors, list):
            return frame[self.vectors].to_numpy(), *beside
        return np.stack(frame[self.vectors].tolist()), *beside

    def _payload(self, frame: Any) -> Any:
        return Payload().checked(frame[[*self.payload]], len(frame)) if self.payload else None

    def facts(self, frame: Any) -> tuple[int, int, AnyArray | None, str | None]:
        """Rows, attributes of a vector, the ids, and the types of the payload columns."""
        beside = self._payload(frame) if len(frame) else None
        kinds = None if beside is None else ", ".join(map(str, beside.schema))
        if isinstance(self.vectors, list):
            return len(frame), len(self.vectors), self._names(frame), kinds
        first = frame[self.vectors].iloc[0] if len(frame) else ()
        if isinstance(first, str):
            raise InputError(
                f"column {self.vectors!r} holds text; lists become text if a DataFrame is made "
                f"under Dask's setting dataframe.convert-string, so make it without."
            )
        return len(frame), len(first), self._names(frame), kinds
