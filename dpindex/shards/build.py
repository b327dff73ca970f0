"""A whole build in shards, on any engine that applies a function to a list."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from dpindex.accounting.ledger import Ledger
from dpindex.base.errors import InputError
from dpindex.index.leak_check import refuse_shared_words
from dpindex.shards.commit import commit
from dpindex.shards.plan import Plan, Shard
from dpindex.shards.work import Receipt, check_shard, privatize_shard

__all__ = ["Engine", "build", "one_by_one"]

_Result = TypeVar("_Result")


class Engine(Protocol):
    """What runs shards: gives the results of a function of all of them, in any order.

    It may run a shard several times and give one or all of the results.

    >>> def backwards(function, shards):
    ...     return [function(shard) for shard in reversed(shards)]
    >>> engine: Engine = backwards
    """

    def __call__(
        self, function: Callable[[Shard], _Result], shards: Sequence[Shard], /
    ) -> Iterable[_Result]: ...


def one_by_one(
    function: Callable[[Shard], _Result], shards: Sequence[Shard], /
) -> Iterator[_Result]:
    """The engine of this process alone: ``function`` of each of the ``shards``, in order.

    >>> list(one_by_one(repr, []))
    []
    """
    return map(function, shards)


def build(
    plan: Plan,
    engine: Engine = one_by_one,
    *,
    ledger: Ledger | None = None,
    allow_rerelease: bool = False,
    skip_leak_check: bool = False,
    threads: int | None = None,
    progress: Callable[[int, int, str], Any] | None = None,
) -> int:
    """Check all vectors, begin the plan, privatize every shard once, and commit.

    A fault in the last vector costs no budget and leaves nothing behind. A build that was stopped
    goes on, if the same is planned and built again; its vectors were checked already.

    Parameters
    ----------
    plan : Plan
    engine : Engine
    ledger, allow_rerelease
        See :meth:`Plan.begin`.
    skip_leak_check : bool
        Accept a codebook that shares rows with the vectors: see :mod:`dpindex.index.leak_check`.
    threads : int, optional
        Threads of one task; default all cores.
    progress : callable, optional
        Called with shards done, shards in all, and "checking" or "privatizing".

    Returns
    -------
    Rows that were privatized by this call.

    Raises
    ------
    InputError
        As :func:`check_shard`, :meth:`Plan.begin`, :func:`privatize_shard` and :func:`commit`.

    >>> import tempfile
    >>> import numpy as np
    >>> from dpindex import Spec
    >>> from dpindex.shards import plan_shards
    >>> from dpindex.vectors import open_dataset
    >>> folder = tempfile.TemporaryDirectory()
    >>> np.save(folder.name + "/x.npy", np.zeros((5, 6)))
    >>> dataset = open_dataset(folder.name + "/x.npy", rows_per_part=4)
    >>> spec = Spec("dp-oporp-staircase", dim=6, k=2, epsilon=2.0)
    >>> plan = plan_shards(dataset, folder.name + "/index", spec)
    >>> build(plan)
    5
    >>> folder.cleanup()
    """
    if ledger is None and allow_rerelease:
        raise InputError(
            "allow_rerelease is about what a ledger knows; name the ledger (--ledger)."
        )
    report, total = progress or (lambda done, total, task: None), len(plan.shards)
    if not plan.begun:
        book, shared = None if skip_leak_check else plan.settings.spec.codebook, dict[int, int]()
        report(0, total, "checking")
        found = engine(partial(check_shard, codebook=book), plan.shards)
        for done, words in enumerate(found, 1):
            shared |= words
            report(done, total, "checking")
        if book is not None:
            refuse_shared_words(book, shared)
    plan.begin(ledger, allow_rerelease=allow_rerelease)
    receipts: list[Receipt] = []
    report(0, total, "privatizing")
    made = engine(partial(privatize_shard, threads=threads), plan.shards)
    for done, those in enumerate(made, 1):
        receipts += those
        report(done, total, "privatizing")
    commit(plan, receipts)
    return sum(receipt.made for receipt in receipts)
