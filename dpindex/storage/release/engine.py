"""Engines: what runs the shards of a release."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from dpindex.storage.release.work import Shard

__all__ = ["Engine", "one_by_one"]

_Result = TypeVar("_Result")


class Engine(Protocol):
    """An engine runs shards: it gives the results of a function of all of them, in any order.

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
    """Run ``function`` on each of the ``shards`` in this process, in order.

    >>> list(one_by_one(repr, []))
    []
    """
    return map(function, shards)
