"""``dpindex.build``: files, folders and object stores become an index or a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpindex.base.display import Progress
from dpindex.base.files import AnyPath
from dpindex.data.dataset import Dataset, open_dataset
from dpindex.decode.base import Metric
from dpindex.decode.fit import DenoiserKind
from dpindex.integrations.publication import table_at
from dpindex.mechanism.spec import Spec
from dpindex.storage.manifest import EXACT, Planned, Settings
from dpindex.storage.release import Outcome, Terms
from dpindex.storage.shards import Engine
from dpindex.storage.targets import BuiltIndex, IndexOptions, build_index

if TYPE_CHECKING:
    from dpindex.accounting.ledger import Ledger


def build(
    vectors: AnyPath | Dataset,
    location: AnyPath,
    spec: Spec | Planned,
    *,
    metric: Metric | None = None,
    index_type: str = EXACT,
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
    >>> spec = Spec("dp-oporp-staircase", dim=6, k=2, epsilon=2.0, adjacency=dpi.attribute(1.0))
    >>> build(folder.name + "/x.npy", folder.name + "/index", spec).drawn
    5
    >>> len(dpi.open(folder.name + "/index"))
    5
    >>> folder.cleanup()
    """
    if isinstance(spec, Planned):
        metric = metric or spec.metric
        denoise = denoise or spec.denoiser
        spec = spec.spec
    if not isinstance(vectors, Dataset):
        vectors = open_dataset(vectors)
    return build_index(
        vectors,
        location,
        Settings(spec, metric or "cosine", index_type, query_epsilon),
        IndexOptions(denoise, allow_unprotected, private, table_at(location, vectors)),
        Terms(ledger, allow_rerelease, skip_leak_check),
        engine=engine,
        threads=threads,
        progress=progress,
    )
