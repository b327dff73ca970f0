"""The order of a shuffle: it must not tell in which order codes arrived, nor be known before."""

from __future__ import annotations

import math
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from dpindex.audit.self_test.recording import recorded
from dpindex.audit.verdict import Check
from dpindex.base.arrays import AnyArray
from dpindex.mechanism.codes import SymbolFormat
from dpindex.storage.shuffled_file import Shuffle, ShuffledFile

__all__ = ["shuffle_check"]

_CODES = 3000
_GROUP = 125
_SYMBOLS = 1 << 16
_DEVIATIONS = 8.0


def shuffle_check() -> Check:
    """An experiment on numbered codes: two shuffles, each opened twice, in a file that grows.

    Ranks of independent orders correlate by more than is allowed here with probability below 1e-14.
    """
    arrival = np.arange(_CODES)
    with recorded() as recorders:
        orders = [_shuffled(arrival) for _ in range(2)]
    words = sum(read.size for recorder in recorders for read in recorder.reads)
    faults = []
    for order in orders:
        if not np.array_equal(np.sort(order), arrival):
            faults.append("codes are lost")
            break
    together = orders[0][orders[0] >= _CODES // 2]
    pairs = {
        "arrival": (orders[0], arrival),
        "arrival in one group": (together, np.arange(len(together))),
        "the shuffle before": (orders[0], orders[1]),
    }
    for name, (one, other) in pairs.items():
        correlation = float(np.corrcoef(one, other)[0, 1])
        if not faults and abs(correlation) * math.sqrt(len(one)) > _DEVIATIONS:
            faults.append(f"the order follows that of {name}: correlation {correlation:.2f}")
    if words < len(orders) * _CODES:
        faults.append(f"{words} secret words for {len(orders) * _CODES} codes")
    return Check(
        "path: order of a shuffle",
        "; ".join(faults) or f"{len(orders)} shuffles of {_CODES} codes follow no order",
        "an order of its own, from the secret stream",
        "Feldman, McMillan & Talwar 2021, Thm 3.2, is about a uniform order",
        not faults,
    )


def _shuffled(codes: AnyArray) -> AnyArray:
    """The codes in the order in which they would be published; half of them arrive together."""
    form = SymbolFormat(1, bytes(16), _SYMBOLS)
    stored = codes.astype(np.uint16)[:, None]
    middle = len(codes) // 2
    groups = np.split(stored[:middle], range(_GROUP, middle, _GROUP))
    with TemporaryDirectory(prefix="dpindex-audit-") as name:
        path = Path(name) / "shuffle"
        for part in (groups, [stored[middle:]]):
            file = ShuffledFile(path, form, Shuffle(1))
            for group in part:
                file.append(form.codes(group))
            shuffled = file.codes().stored[:, 0]
            file.close()
    return np.asarray(shuffled, dtype=np.int64)
