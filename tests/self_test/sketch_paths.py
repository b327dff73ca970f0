"""Every way on which counts are released: a sketch of its own, a merged one, a stored one."""

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from scipy import sparse

from dpindex.audit.input_checks import probe_records, with_draws
from dpindex.data import as_source
from dpindex.data.dataset import as_dataset
from dpindex.race import RaceSketch
from dpindex.race.release import build_sketch
from self_test.explanation import decoded
from self_test.published_files import published_counts_fault
from self_test.recording import READ_ONCE, recorded, words_fault
from self_test.words import UnexplainedError

_COPIES = 700
"""So many copies of a dozen records take more than a block, and more than a chunk if sparse."""

_DTYPES = (np.float32, np.uint8, np.int64)


def sketch_path_checks(spec, reader):
    """Every way on which counts are released, by its name; to be called in this order."""
    recorders = []
    return {
        "path: released counts, merged and stored": lambda: _counts_fault(spec, reader, recorders),
        "path: files hold codes alone": lambda: published_counts_fault(spec),
        "path: promise of merged sketches": lambda: _merged_promise_fault(spec),
        READ_ONCE: lambda: words_fault(recorders),
    }


def _counts_fault(spec, reader, recorders):
    """Released counts must be the exact counts plus the draws.

    The exact counts are those of each record in a sketch of its own, with draws of zero, summed
    here: what one record counts is what other checks are about.
    """
    faults = []
    for name, released, exact in _ways(spec):
        with recorded() as streams:
            counts = released().counts.astype(np.int64)
        recorders += streams
        try:
            expected = decoded(reader, exact.reshape(1, -1), streams)
            expected = expected.reshape(counts.shape)
        except UnexplainedError:
            expected = np.full(counts.shape, -1)
        if not np.array_equal(expected, counts):
            faults.append(name)
    return ", ".join(faults)


def _merged_promise_fault(spec):
    """Two releases that are merged promise what both do together, or apart if they are disjoint.

    Sequential composition: Dwork & Roth 2014, Thm 3.16; parallel: McSherry 2009, Thm 4.
    """
    records = probe_records(spec)

    def merged(disjoint):
        one, other = (RaceSketch(spec).fit(records).release() for _ in range(2))
        return one.merge(other, disjoint=disjoint).guarantee

    together = merged(False)
    apart = merged(True)
    once = spec.guarantee
    sums = together.epsilon >= 2 * once.epsilon and together.delta >= 2 * once.delta
    largest = apart.epsilon >= once.epsilon and apart.delta >= once.delta
    return "" if sums and largest else f"{together} together, {apart} if they are disjoint"


def _ways(spec):
    """The name of each way, a function that releases, and the exact counts of its records."""
    records = probe_records(spec)
    half = len(records) // 2
    each = _counts_of_each(spec, records)
    few = each.sum(axis=0)

    def released(x):
        return RaceSketch(spec).fit(x).release()

    def merged():
        one = RaceSketch(spec).fit(records[:half])
        other = RaceSketch(spec).fit(records[half:])
        return other.merge(one).release()

    def stored():
        parts = [records[:half], records[half:]]
        sketch = RaceSketch(spec).partial_fit(parts).release()
        return RaceSketch.from_bytes(sketch.to_bytes())

    def built(x):
        with TemporaryDirectory(prefix="dpindex-audit-") as name:
            path = Path(name) / "sketch"
            build_sketch(as_dataset(as_source(x)), path, spec)
            return RaceSketch.open(path)

    many = np.tile(records, (_COPIES, 1))
    yield "released", partial(released, many), _COPIES * few
    yield "merged", merged, few
    yield "stored", stored, few
    yield "built into a file", partial(built, many), _COPIES * few
    thin = sparse.csr_matrix(many)
    yield "sparse", partial(released, thin), _COPIES * few
    yield "sparse, built into a file", partial(built, thin), _COPIES * few
    for dtype in _DTYPES:
        typed = _typed(records, dtype)
        counts = _counts_of_each(spec, typed.astype(np.float64))
        exact = counts.sum(axis=0)
        yield f"{np.dtype(dtype).name} released", partial(released, typed), exact


def _counts_of_each(spec, records):
    """Return the exact counts of each record alone, shape (n, rows, columns)."""
    alone = [with_draws(spec, record[None], 0).counts for record in records]
    return np.array(alone, dtype=np.int64)


def _typed(records, dtype):
    """Return records in another type of numbers, those that fit in it."""
    limits = np.finfo(dtype) if issubclass(dtype, np.floating) else np.iinfo(dtype)
    low = float(limits.min)
    high = float(limits.max)
    if low == 0:
        return np.abs(records).clip(low, high).astype(dtype)
    inside = (records >= low / 2) & (records <= high / 2)
    return records[inside.all(axis=1)].astype(dtype)
