"""A shuffle: its order tells nothing of the arrival."""

import math
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from shuffle_collector import Shuffle, ShuffledFile, secret_order

from dpindex.mechanism.codes import SymbolFormat
from self_test.recording import recorded

_CODES = 3000
_GROUP = 125
_SYMBOLS = 1 << 16
_DEVIATIONS = 8.0
_MANY = 1 << 20


def shuffle_fault():
    """An experiment on numbered codes: two shuffles, each opened twice, in a file that grows.

    Feldman, McMillan & Talwar 2021, Thm 3.2, is about a uniform order.
    Ranks of independent orders correlate by more than is allowed here with probability below 1e-14,
    and neighbours are in order more often than is allowed with probability below 1e-14.
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
        deviations = abs(correlation) * math.sqrt(len(one))
        if not faults and deviations > _DEVIATIONS:
            faults.append(f"the order follows that of {name}: correlation {correlation:.2f}")
    places = {"arrival": np.argsort(orders[0]), "slots": orders[0]}
    for name, sequence in places.items():
        if not faults and abs(_excess_of_ascents(sequence)) > _DEVIATIONS:
            faults.append(f"neighbours by {name} are in the order of the other too often")
    if abs(_excess_of_ascents(secret_order(_MANY))) > _DEVIATIONS:
        faults.append(f"neighbours of {_MANY} are in order too often")
    if words < len(orders) * _CODES:
        faults.append(f"{words} secret words for {len(orders) * _CODES} codes")
    return "; ".join(faults)


def _excess_of_ascents(sequence):
    """How many deviations more neighbours ascend than in a uniform order (Eulerian numbers)."""
    pairs = len(sequence) - 1
    ascents = int(np.count_nonzero(np.diff(sequence) > 0))
    deviation = math.sqrt((pairs + 2) / 12)
    return (ascents - pairs / 2) / deviation


def _shuffled(codes):
    """The codes in the order in which they would be published; half of them arrive together."""
    form = SymbolFormat(1, bytes(16), _SYMBOLS)
    stored = codes.astype(np.uint16)[:, None]
    middle = len(codes) // 2
    starts = range(_GROUP, middle, _GROUP)
    groups = np.split(stored[:middle], starts)
    with TemporaryDirectory(prefix="dpindex-audit-") as name:
        path = Path(name) / "shuffle"
        for part in (groups, [stored[middle:]]):
            file = ShuffledFile(path, form, Shuffle(1))
            for group in part:
                file.append(form.codes(group))
            shuffled = file.codes().stored[:, 0]
            file.close()
    return np.asarray(shuffled, dtype=np.int64)
