"""Building an index from a dataset: the settings are tried first, then the vectors are released."""

from __future__ import annotations

from dpindex.base.display import Progress
from dpindex.base.files import AnyPath
from dpindex.data.dataset import Dataset
from dpindex.index.kinds import new_ranking
from dpindex.mechanism.spec import Spec
from dpindex.storage.manifest import Settings
from dpindex.storage.release import Engine, Outcome, Terms, one_by_one, release
from dpindex.storage.targets import BuiltIndex, IndexOptions, index_target


def build_index(
    dataset: Dataset,
    location: AnyPath,
    settings: Settings | Spec,
    options: IndexOptions | None = None,
    terms: Terms | None = None,
    *,
    engine: Engine = one_by_one,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Outcome[BuiltIndex]:
    """Privatize a dataset into a new index, each vector once, or go on with the same build.

    Parameters
    ----------
    dataset : Dataset
        From :func:`dpindex.data.open_dataset`.
    location : path or URL
        A new folder, or a prefix of an object store.
    settings : Settings or Spec
    options : IndexOptions, optional
    terms : Terms, optional
        Ledger and leak check.
    engine : callable
        Runs the shards: see :class:`dpindex.storage.release.Engine`.
    threads : int, optional
        Threads of one task; default all cores. One is right where the engine uses every core.
    progress : callable, optional
        Called with the rows that are done, all rows, and "checking" or "privatizing".

    Raises
    ------
    InputError
        For bad vectors, ids or payload, ids that the ledger knows, a codebook that holds private
        vectors, an index type that the codes do not have or that so many cannot be searched with,
        and a place that is taken. A fault in the last vector costs no budget.

    >>> from dpindex import attribute
    >>> import tempfile
    >>> import numpy as np
    >>> from dpindex.data import open_dataset
    >>> folder = tempfile.TemporaryDirectory()
    >>> np.save(folder.name + "/x.npy", np.zeros((5, 6)))
    >>> spec = Spec("dp-oporp-staircase", dim=6, k=2, epsilon=2.0, adjacency=attribute(1.0))
    >>> build_index(open_dataset(folder.name + "/x.npy"), folder.name + "/index", spec).drawn
    5
    >>> folder.cleanup()
    """
    if isinstance(settings, Spec):
        settings = Settings(settings)
    ranking = new_ranking(settings, None)
    if not ranking.backend.exact:
        ranking.backend.check_count(dataset.rows)
    target = index_target(location, settings, options)
    return release(dataset, target, terms, engine=engine, threads=threads, progress=progress)
