"""The one way on which vectors are released: plan, check, begin, draw, commit.

1. *Plan*: nothing is written. The dataset is cut into segments, whose numbers they keep for ever.
2. *Check*: every vector is read and checked, and tagged under a key. A fault costs no budget.
3. *Begin*: the mark of the release is created in a private workspace, then the ledger is told of
   every id under the token of the mark. No noise is drawn before that.
4. *Draw*: an engine draws the segments, as often as it likes. Each is kept once.
5. *Commit*: the target publishes what was drawn, in one step that can be repeated.

Whoever runs the same release again, after a crash or at the same time, goes on with it: nothing is
drawn twice visibly, and nothing is charged twice. Nothing at a target but codes is a function of
vectors.
"""

from dpindex.storage.release.engine import Engine, one_by_one
from dpindex.storage.release.file_targets import CodesFile, HeldCodes, Memory, NewFile
from dpindex.storage.release.index_targets import BuiltIndex, IndexOptions, index_target
from dpindex.storage.release.release import Outcome, Terms, release
from dpindex.storage.release.target import CodeTarget, Drawn, Target
from dpindex.storage.release.work import Receipt, Segment, Shard

__all__ = [
    "BuiltIndex",
    "CodeTarget",
    "CodesFile",
    "Drawn",
    "Engine",
    "HeldCodes",
    "IndexOptions",
    "Memory",
    "NewFile",
    "Outcome",
    "Receipt",
    "Segment",
    "Shard",
    "Target",
    "Terms",
    "index_target",
    "one_by_one",
    "release",
]
