"""Integrations: vector databases, the collector with its client, Dask, LangChain and scikit-learn.

Here are :func:`open` and :func:`build`, which import what a place needs when they are called.

Each uses what ``dpindex`` exports and a few contracts that ``tests/test_layers.py`` lists; nothing
else in the package imports them. A new one is written from the same contracts.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from dpindex.base.errors import InputError
from dpindex.base.files import AnyPath
from dpindex.base.ids import COLLECTION

if TYPE_CHECKING:
    from dpindex.accounting.ledger import Ledger
    from dpindex.base.display import Progress
    from dpindex.data.dataset import Dataset
    from dpindex.decode.base import Metric
    from dpindex.decode.fit import DenoiserKind
    from dpindex.index.private_index import PrivateIndex
    from dpindex.integrations.client import Client
    from dpindex.integrations.published import PublishedIndex
    from dpindex.mechanism.spec import Spec
    from dpindex.storage.manifest import Planned
    from dpindex.storage.release import Outcome
    from dpindex.storage.shards import Engine
    from dpindex.storage.targets import BuiltIndex


def open(place: AnyPath, collection: str = COLLECTION) -> PrivateIndex | PublishedIndex | Client:
    """Open an index: in a folder, an object store or a vector database, or behind a collector.

    Parameters
    ----------
    place : path or URL
        The folder of an index; the URL of one in an object store, such as ``s3://bucket/index``; a
        database, ``milvus://host:port``, ``milvus+tls://host:port``,
        ``postgresql://user@host/database``, a file of Milvus Lite, which ends in ``.db``, a folder
        of LanceDB, ``.lance``, or a Parquet file or the folder or URL of several, ``.parquet`` or
        ``.parquet/``; or the address of a collector, ``https://…``. A
        token of Milvus is read from the environment, ``MILVUS_TOKEN``; a password of PostgreSQL
        from ``PGPASSWORD`` or ``~/.pgpass``.
    collection : str
        Its name in a database; elsewhere there is none.

    Returns
    -------
    A :class:`~dpindex.PrivateIndex` of a folder or object store, a
    :class:`~dpindex.PublishedIndex` of a database, or a
    :class:`~dpindex.integrations.client.Client` of a collector.

    Raises
    ------
    InputError
        If there is no index, nothing answers there, or it is unfinished or damaged, and for the
        name of a collection where there are none.

    >>> import dpindex as dpi
    >>> dpi.open("https://collector.example")
    Client('https://collector.example')
    """
    if re.match("https?://", os.fspath(place)):
        from dpindex.integrations.client import Client

        _refuse_name(place, collection)
        return Client(os.fspath(place))
    if is_published(place, collection):
        from dpindex.integrations.published import open_published

        return open_published(place, collection)
    from dpindex.index.private_index import PrivateIndex

    return PrivateIndex.open(place)


def is_published(place: AnyPath, collection: str) -> bool:
    """Return whether a place names a database or a table, rather than the folder of an index.

    Raises
    ------
    InputError
        For the name of a collection where there are none.
    """
    from dpindex.integrations.database import adapter_of

    is_index = os.path.exists(os.path.join(place, "manifest.json"))  # whatever its folder is called
    if adapter_of(place) is not None and not is_index:
        return True
    _refuse_name(place, collection)
    return False


def _refuse_name(place: AnyPath, collection: str) -> None:
    if collection != COLLECTION:
        raise InputError(f"{place} is one index, without collections.", field="collection")


def build(
    vectors: AnyPath | Dataset,
    location: AnyPath,
    spec: Spec | Planned,
    *,
    metric: Metric | None = None,
    index_type: str = "f32",
    query_epsilon: float | None = None,
    denoise: DenoiserKind | None = None,
    ledger: Ledger | None = None,
    allow_rerelease: bool = False,
    skip_leak_check: bool = False,
    allow_unprotected: bool = False,
    private: AnyPath | None = None,
    engine: Engine = map,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Outcome[BuiltIndex]:
    """Build an index on disk or in an object store, or resume a build that was interrupted.

    It reads the vectors in parts, so they need not fit into memory. Open the index with
    :func:`dpindex.open`. For arrays in memory use :class:`dpindex.PrivateIndex` and its ``save``.

    Parameters
    ----------
    vectors : path, URL or Dataset
        A file or folder of vectors. :func:`dpindex.open_dataset` names a column of ids and columns
        to publish as payload.
    location : path or URL
        A new folder, or a prefix of an object store. What ends in ``.parquet`` or ``.parquet/``
        becomes a table, as :func:`dpindex.publish` writes it.
    spec : Spec or Plan
        The public description of the mechanism, or what :func:`dpindex.plan` returned: its spec,
        metric and denoiser are taken. Resume a build with the same spec; a new plan may choose
        another one.
    metric, index_type, query_epsilon
        As of :class:`dpindex.PrivateIndex`.
    denoise : "auto", "linear" or "score", optional
        Fit a denoiser to the codes before they are published.
    ledger : Ledger, optional
        Records the release of every id before its noise is drawn.
    allow_rerelease : bool
        Allow ids that the ledger knows, at the price of one more epsilon each.
    skip_leak_check : bool
        Accept a codebook or design that looks as if it was made of the vectors.
    allow_unprotected : bool
        Allow a ``none-*`` baseline, which protects nothing.
    private : path, optional
        Folder for what must not be published while the build is unfinished. An object store needs
        one; beside a folder it is ``NAME.unpublished``.
    engine : callable
        Runs the parts, as the builtin ``map`` does: see :class:`dpindex.storage.shards.Engine`.
    threads : int, optional
        Threads of one task; default all cores. Use 1 where the engine uses every core.
    progress : callable, optional
        Called with the rows that are done, all rows, and "checking" or "privatizing".

    Returns
    -------
    The number of rows, the number that this call privatized (``drawn``), and what was published.

    Raises
    ------
    InputError
        For bad vectors, ids or payload, ids that the ledger knows, a codebook that holds private
        vectors, an index type that the codes do not support, and a location that is taken. A fault
        in the last vector costs no budget.

    >>> import tempfile
    >>> import numpy as np
    >>> import dpindex as dpi
    >>> folder = tempfile.TemporaryDirectory()
    >>> np.save(folder.name + "/x.npy", np.zeros((5, 6)))
    >>> spec = dpi.Spec("dp-oporp-staircase", dim=6, k=2, epsilon=2.0, adjacency=dpi.attribute(1.0))
    >>> build(folder.name + "/x.npy", folder.name + "/index", spec).drawn
    5
    >>> len(dpi.open(folder.name + "/index"))
    5
    >>> folder.cleanup()
    """
    from dpindex.data.dataset import Dataset, open_dataset
    from dpindex.integrations.publication import table_at
    from dpindex.storage.history import Terms
    from dpindex.storage.manifest import Planned, Settings
    from dpindex.storage.targets import IndexOptions, build_index

    if isinstance(spec, Planned):
        denoise = denoise or spec.denoiser
    settings = Settings.of(spec, metric, index_type, query_epsilon)
    if not isinstance(vectors, Dataset):
        vectors = open_dataset(vectors)
    return build_index(
        vectors,
        location,
        settings,
        IndexOptions(denoise, allow_unprotected, private, table_at(location, vectors)),
        Terms(ledger, allow_rerelease, skip_leak_check),
        engine=engine,
        threads=threads,
        progress=progress,
    )
