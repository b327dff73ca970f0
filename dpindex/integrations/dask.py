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

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, TypeVar

import numpy as np

from dpindex.accounting.ledger import Ledger
from dpindex.base.arrays import AnyArray
from dpindex.base.checks import id_array
from dpindex.base.errors import InputError
from dpindex.base.extras import import_extra
from dpindex.base.progress import Progress
from dpindex.data.dataset import Dataset, InMemoryPart, Part, open_dataset, rows_at_a_time
from dpindex.data.readers import read_ids
from dpindex.data.source import VectorSource, as_source
from dpindex.denoise import Kind
from dpindex.index.build import build_index
from dpindex.mechanism.spec import Spec
from dpindex.storage.manifest import Settings
from dpindex.storage.payload import Payload
from dpindex.storage.release import Engine, IndexOptions, Shard, Terms

__all__ = ["BuildOptions", "build", "connected", "engine"]

_NEED = "building on Dask needs dask and distributed"
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class BuildOptions:
    """Options of :func:`build`.

    Parameters
    ----------
    column : str, optional
        DataFrame: the column of lists that holds the vectors; default all columns but the ids, in
        their order.
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
        See :class:`dpindex.storage.release.IndexOptions`.

    >>> BuildOptions(id_column="id", payload_columns=["title"]).denoise is None
    True
    """

    column: str | None = None
    id_column: str | None = None
    ids: Any = None
    payload_columns: Sequence[str] = ()
    ledger: Ledger | None = None
    allow_rerelease: bool = False
    skip_leak_check: bool = False
    denoise: Kind | None = None
    allow_unprotected: bool = False
    private: str | os.PathLike[str] | None = None


def build(
    data: Any,
    target: str | os.PathLike[str],
    spec: Settings | Spec,
    *,
    client: Any | None = None,
    progress: Progress | None = None,
    **options: Any,
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
    progress : callable, optional
        Called with the rows that are done, all rows, and "checking" or "privatizing".
    options
        Fields of :class:`BuildOptions`.

    Returns
    -------
    Rows that were privatized by this call.

    Raises
    ------
    InputError
        As :func:`dpindex.index.build.build_index`, for an unknown option, and if a shard took its
        worker with it too often.

    >>> build("s3://lake/vectors", "s3://lake/index", spec, private="/data")  # doctest: +SKIP
    20000000
    """
    names = [option.name for option in fields(BuildOptions)]
    unknown = sorted(set(options) - set(names))
    if unknown:
        raise InputError(f"there is no option {unknown[0]!r}; there are {', '.join(names)}.")
    chosen = BuildOptions(**options)
    client = client or _current_client()
    dataset, blocks = _dataset(data, client, chosen)
    how = IndexOptions(chosen.denoise, chosen.allow_unprotected, chosen.private)
    terms = Terms(chosen.ledger, chosen.allow_rerelease, chosen.skip_leak_check)
    run = engine(client, blocks)
    return build_index(
        dataset, target, spec, how, terms, engine=run, threads=1, progress=progress
    ).drawn


def _dataset(data: Any, client: Any, options: BuildOptions) -> tuple[Dataset, list[Any] | None]:
    """Return the dataset and, of a collection, the delayed block of each part."""
    if isinstance(data, str | os.PathLike):
        dataset = open_dataset(
            data, id_column=options.id_column, payload_columns=options.payload_columns
        )
        if options.ids is not None:
            dataset = dataset.with_labels(_read_ids(options.ids))
        return dataset, None
    collection = _collection(data, client, options)
    parts = collection.parts()
    return collection.dataset(parts), [collection.blocks[part.number] for part in parts]


def _read_ids(ids: Any) -> AnyArray:
    if isinstance(ids, str | os.PathLike):
        return read_ids(ids)
    return id_array(ids)


def _current_client() -> Any:
    try:
        return import_extra("distributed", _NEED, "dask").get_client()
    except InputError:
        raise
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
    blocks : sequence of delayed (vectors, ids, payload), optional
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
            futures = [client.submit(_in_worker, task, shard, pure=False) for shard in shards]
        else:
            with_block = delayed(_with_block, pure=False)
            pairs = zip(shards, blocks, strict=True)
            futures = client.compute([with_block(task, shard, block) for shard, block in pairs])
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


class _Block(Part):
    """A block of a collection, which the engine hands to the task."""

    def __init__(self, name: str, rows: int, number: int, ids: AnyArray | None) -> None:
        self.name = name
        self.rows = rows
        self.number = number
        self._ids = ids

    def vectors(self) -> VectorSource:
        raise InputError(
            f"{self.name} lies in the cluster; build it with dpindex.integrations.dask.build."
        )

    def ids(self) -> AnyArray | None:
        return self._ids

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_ids": None}  # a worker gets the ids with the block


def _collection(data: Any, client: Any, options: BuildOptions) -> _Collection:
    payload_columns = tuple(options.payload_columns)
    if hasattr(data, "compute_chunk_sizes"):
        if options.column is not None or options.id_column is not None or payload_columns:
            raise InputError("an array has no columns with names; give ids.")
        return _of_array(data, options.ids)
    if hasattr(data, "map_partitions") and hasattr(data, "columns"):
        if options.ids is not None:
            raise InputError("the ids of a DataFrame are one of its columns; give id_column.")
        return _of_frame(data, client, options.column, options.id_column, payload_columns)
    kind = type(data).__name__
    raise InputError(f"data is a path, a Dask array or a Dask DataFrame, not {kind}.")


def _itself(function: Any) -> Any:
    return function


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
    """A Dask collection as delayed blocks.

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
        """Return the blocks that have rows."""
        parts = []
        for number, rows in enumerate(self.rows):
            ids = None
            if self.ids is not None:
                ids = self.ids[number]
            if rows:
                parts.append(_Block(f"{self.name}, block {number}", rows, number, ids))
        if not parts:
            raise InputError(f"{self.name} has no rows.")
        return parts

    def dataset(self, parts: Sequence[Part]) -> Dataset:
        """Return the dataset of these parts."""
        row = as_source(np.zeros((1, self.columns)))
        return Dataset(self.name, self.columns, rows_at_a_time(row), tuple(parts))


def _of_array(data: Any, ids: Any | None) -> _Collection:
    delayed = import_extra("dask", _NEED, "dask").delayed
    if data.ndim != 2:
        raise InputError(f"the array has {data.ndim} dimension(s), not 2.")
    if np.isnan(data.chunks[0]).any():
        data = data.compute_chunk_sizes()
    data = data.rechunk({1: -1})
    rows = [int(count) for count in data.chunks[0]]
    vectors = data.to_delayed().ravel()
    if ids is None:
        blocks = [delayed((block, None, None)) for block in vectors]
        return _Collection(str(data.name), int(data.shape[1]), blocks, rows, None)
    array = id_array(ids)
    if len(array) != sum(rows):
        raise InputError(f"there are {len(array)} ids for {sum(rows)} vectors.")
    block_ids = np.split(array, np.cumsum(rows)[:-1])
    blocks = [delayed((*pair, None)) for pair in zip(vectors, block_ids, strict=True)]
    return _Collection(str(data.name), int(data.shape[1]), blocks, rows, block_ids)


def _of_frame(
    data: Any, client: Any, column: str | None, id_column: str | None, payload: tuple[str, ...]
) -> _Collection:
    delayed = import_extra("dask", _NEED, "dask").delayed
    for name in (column, id_column, *payload):
        if name is not None and name not in data.columns:
            raise InputError(f"the DataFrame has no column {name!r}.")
    vectors: Any = column
    if column is None:
        vectors = [name for name in data.columns if name != id_column and name not in payload]
    split = _Columns(vectors, id_column, payload)
    frames = data.to_delayed()
    facts = client.gather(client.compute([delayed(split.facts)(frame) for frame in frames]))
    kinds = [fact.payload for fact in facts]
    for kind in kinds:
        if kind not in (None, kinds[0]):
            raise InputError(
                f"the payload columns of one partition are {kind} and of the first {kinds[0]}; "
                f"give every column one type."
            )
    ids = None
    if id_column is not None:
        ids = [fact.ids for fact in facts]
    return _Collection(
        name=data._name,
        columns=max(fact.columns for fact in facts),
        blocks=[delayed(split.split)(frame) for frame in frames],
        rows=[fact.rows for fact in facts],
        ids=ids,
    )


@dataclass(frozen=True)
class _FrameFacts:
    """Rows of a frame, attributes of a vector, ids, and types of the payload columns in words."""

    rows: int
    columns: int
    ids: AnyArray | None
    payload: str | None


@dataclass(frozen=True)
class _Columns:
    """Columns of a frame: vectors (a column of lists, or one an attribute), ids and payload."""

    vectors: str | list[Any]
    ids: str | None
    payload: tuple[str, ...]

    def _names(self, frame: Any) -> AnyArray | None:
        if self.ids is None:
            return None
        return id_array(frame[self.ids].tolist())

    def split(self, frame: Any) -> tuple[Any, Any, Any]:
        """Return the vectors, ids and payload of a frame with rows."""
        if isinstance(self.vectors, list):
            vectors = frame[self.vectors].to_numpy()
        else:
            vectors = np.stack(frame[self.vectors].tolist())
        return vectors, self._names(frame), self._payload(frame)

    def _payload(self, frame: Any) -> Any:
        if self.payload:
            return Payload().checked(frame[[*self.payload]], len(frame))
        return None

    def facts(self, frame: Any) -> _FrameFacts:
        """Return the facts of a frame."""
        payload = None
        if len(frame):
            payload = self._payload(frame)
        kinds = None
        if payload is not None:
            kinds = ", ".join(map(str, payload.schema))
        return _FrameFacts(len(frame), self._attributes(frame), self._names(frame), kinds)

    def _attributes(self, frame: Any) -> int:
        if isinstance(self.vectors, list):
            return len(self.vectors)
        if not len(frame):
            return 0
        first = frame[self.vectors].iloc[0]
        if isinstance(first, str):
            raise InputError(
                f"column {self.vectors!r} holds text; lists become text if a DataFrame is made "
                f"under Dask's setting dataframe.convert-string, so make it without."
            )
        return len(first)
