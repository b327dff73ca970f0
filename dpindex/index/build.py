"""Building an index from a dataset: the settings are tried first, then the vectors are released."""

from __future__ import annotations

import math
import os
from typing import NamedTuple

from dpindex.base.display import Progress
from dpindex.data.dataset import Dataset
from dpindex.index.backends import EXACT
from dpindex.index.kinds import Ranking, kind_of, new_ranking
from dpindex.mechanism.spec import Spec
from dpindex.similarity.similarity import Metric
from dpindex.storage.manifest import Settings
from dpindex.storage.release import Engine, Outcome, Terms, one_by_one, release
from dpindex.storage.targets import BuiltIndex, IndexOptions, index_target


def build_index(
    dataset: Dataset,
    location: str | os.PathLike[str],
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


_LISTS_BY_ROOT = 4
_ROWS_FOR_LISTS = 10_000


class Structure(NamedTuple):
    """An index type, with the memory that its search structure takes.

    Attributes
    ----------
    index_type : str
    row_bytes : float
        Bytes of memory a vector; the codes themselves are mapped from their files.
    exact : bool
        Whether a search finds the true neighbours among the codes always.
    """

    index_type: str
    row_bytes: float
    exact: bool


def structures(
    spec: Spec, rows: int, metric: Metric = "cosine", *, denoised: bool = False
) -> list[Structure]:
    """Index types for so many codes of a spec, the exact one first.

    Others of the grammar of :func:`dpindex.index.faiss_vectors.parse_index_type` may be used too.

    >>> from dpindex import attribute
    >>> spec = Spec("dp-oporp-staircase", dim=768, k=128, epsilon=3.0, adjacency=attribute(1.0))
    >>> [(s.index_type, s.row_bytes) for s in structures(spec, 10**6)[:3]]
    [('f32', 512), ('f16', 256), ('SQ8', 128)]
    >>> structures(Spec("dp-signoporp-rr", dim=768, k=256, epsilon=3.0,
    ...     adjacency=attribute(1.0)), 10**6)
    [Structure(index_type='f32', row_bytes=32, exact=True)]
    """
    backend_type = kind_of(spec).ranking.backend_type
    if denoised or spec.design is not None:
        backend_type = Ranking.backend_type
    if not backend_type.of_vectors:
        names = [EXACT]
    else:
        width = spec.code_length
        fine, coarse = (_largest_divisor(width, width // part) for part in (2, 8))
        names = [EXACT, "f16", "SQ8", "SQ6", "SQ4", f"PQ{fine}x4fs", f"PQ{coarse}"]
        if rows >= _ROWS_FOR_LISTS:
            lists = 1 << min(17, round(math.log2(_LISTS_BY_ROOT * math.sqrt(rows))))
            names += [f"IVF{lists},SQ8", f"IVF{lists},PQ{fine}x4fs", "HNSW32", "HNSW32,SQ8"]
    backends = {name: backend_type(spec.code_length, metric, name) for name in names}
    return [Structure(name, made.row_bytes, made.exact) for name, made in backends.items()]


def _largest_divisor(number: int, limit: int) -> int:
    return next(part for part in range(max(1, limit), 0, -1) if number % part == 0)
