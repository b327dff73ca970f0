"""The commit: published segments become an index in one step."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dpindex.base.errors import InputError
from dpindex.index.directory import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    FileMark,
    Manifest,
    sampled,
    segment_paths,
)
from dpindex.mechanism.codes import Codes, codes_from_bytes
from dpindex.shards.plan import Plan, forget_key, token_of
from dpindex.shards.work import Receipt

__all__ = ["commit"]

_MAX_SEGMENT_BYTES = 1 << 33


def commit(plan: Plan, receipts: Iterable[Receipt]) -> Manifest:
    """Make an index of all published segments, by creating its manifest.

    That is one step: before it there is no index, after it there is the whole. It can be repeated,
    and by several processes at once: all get the manifest of the first. Attempts that still run
    publish nothing any more.

    Parameters
    ----------
    plan : Plan
    receipts : iterable of Receipt
        At least one for every segment.

    Raises
    ------
    InputError
        If a segment has no receipt, or is not there as its receipts say.

    >>> import tempfile
    >>> import numpy as np
    >>> from dpindex import Spec
    >>> from dpindex.shards import plan_shards, privatize_shard
    >>> from dpindex.vectors import open_dataset
    >>> folder = tempfile.TemporaryDirectory()
    >>> np.save(folder.name + "/x.npy", np.zeros((5, 6)))
    >>> dataset = open_dataset(folder.name + "/x.npy", rows_per_part=4)
    >>> spec = Spec("dp-oporp-staircase", dim=6, k=2, epsilon=2.0)
    >>> plan = plan_shards(dataset, folder.name + "/index", spec)
    >>> plan.begin()
    >>> commit(plan, [r for shard in plan.shards for r in privatize_shard(shard)]).count
    5
    >>> folder.cleanup()
    """
    job, store = plan.job, plan.store
    text, place = store.read(MANIFEST, MAX_MANIFEST_BYTES), Path(MANIFEST)
    if token_of(store) != job.token:
        raise InputError(f"{job.target} is not being built under this plan; begin it first.")
    if text is not None:
        return Manifest.from_bytes(text, place)
    published, there = _marks(receipts), store.sizes()
    for segment in plan.segments:
        path, ids_path, _ = segment_paths(segment.number)
        if path not in published:
            raise InputError(f"segment {segment.number} has no receipt; privatize its shard.")
        published[ids_path] = segment.ids
    for path, mark in published.items():
        if there.get(path) != mark.bytes:
            raise InputError(f"{store.location}/{path} is missing or was changed.")
    data = plan.manifest(published, _sample(plan)).to_bytes()
    if not store.end(job.token, MANIFEST, data):
        raise InputError(f"{store.location} was committed with other codes; it was changed.")
    forget_key(job)
    return Manifest.from_bytes(data, place)


def _marks(receipts: Iterable[Receipt]) -> dict[str, FileMark]:
    """Codes and payload by path; InputError if two receipts contradict each other."""
    files: dict[str, FileMark] = {}
    for receipt in receipts:
        for path, mark in receipt.files.items():
            if files.setdefault(path, mark) != mark:
                raise InputError(f"segment {receipt.number} was changed after it was published.")
    return files


def _sample(plan: Plan) -> Codes:
    def read(number: str) -> Codes:
        data = plan.store.read(segment_paths(number)[0], _MAX_SEGMENT_BYTES)
        if data is None:
            raise InputError(f"segment {number} was removed after it was published.")
        return codes_from_bytes(data)

    return sampled([segment.number for segment in plan.segments], read)
