"""Builds in shards: on many processes and machines, and into object stores, each vector once.

``plan_shards`` cuts a dataset into shards; ``check_shard`` and ``privatize_shard`` run on any
worker, as often as an engine likes; ``commit`` makes the index. ``build`` does all of it. The rule:
noise may be drawn many times, and is published once.

- A segment of the index has one name for ever, given by the plan.
- It is published by creating it, whole, if it is not there. What a failed, repeated or speculative
  attempt drew never leaves the process, or a folder that only its user may read.
- The ledger knows all ids before the first shard can be published.
- Nothing that is published is removed, and the commit, which adopts all of it, is one step.
"""

from dpindex.shards.build import Engine, build, one_by_one
from dpindex.shards.commit import commit
from dpindex.shards.plan import Plan, Segment, Shard, plan_shards
from dpindex.shards.work import Receipt, check_shard, privatize_shard

__all__ = [
    "Engine",
    "Plan",
    "Receipt",
    "Segment",
    "Shard",
    "build",
    "check_shard",
    "commit",
    "one_by_one",
    "plan_shards",
    "privatize_shard",
]
