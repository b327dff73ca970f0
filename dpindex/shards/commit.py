"""The commit: published segments become an index in one step."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dpindex.errors import InputError
from dpindex.index.directory import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    FileMark,
    Manifest,
    segment_paths,
)
from dpindex.shards.plan import Plan, token_of
from dpindex.shards.work import Receipt

__all__ = ["commit"]


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
    """
    job, store = plan.job, plan.store
    text, place = store.read(MANIFEST, MAX_MANIFEST_BYTES), Path(MANIFEST)
    if token_of(store) != job.token:
        raise InputError(f"{job.target} is not being built under this plan; begin it first.")
    if text is not None:
        return Manifest.from_bytes(text, place)
    codes, there = _marks(receipts), store.sizes()
    for segment in plan.segments:
        path, ids_path = segment_paths(segment.number)
        mark = codes.get(segment.number)
        if mark is None:
            raise InputError(f"segment {segment.number} has no receipt; privatize its shard.")
        if (there.get(path), there.get(ids_path)) != (mark.bytes, segment.ids.bytes):
            raise InputError(f"{store.location}/{path} is missing or was changed.")
    data = plan.manifest(codes).to_bytes()
    if not store.end(job.token, MANIFEST, data):
        raise InputError(f"{store.location} was committed with other codes; it was changed.")
    return Manifest.from_bytes(data, place)


def _marks(receipts: Iterable[Receipt]) -> dict[str, FileMark]:
    """The codes by segment; InputError if two receipts contradict each other."""
    codes: dict[str, FileMark] = {}
    for receipt in receipts:
        if codes.setdefault(receipt.number, receipt.codes) != receipt.codes:
            raise InputError(f"segment {receipt.number} was changed after it was published.")
    return codes
