"""A ledger counts every release of every id, and is told before the first word of noise is read."""

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from dpindex.accounting.ledger import Ledger
from dpindex.data import as_source
from dpindex.data.dataset import as_dataset
from dpindex.index.private_index import PrivateIndex
from dpindex.storage.history import Terms
from dpindex.storage.release import release
from dpindex.storage.targets import CodesFile, build_index
from self_test.recording import recorded
from self_test.words import Recorder

_COUNT = 20


def ledger_fault(spec, rows):
    """Add, replace, build and write the same ids, and read the ledger whenever words are read."""
    vectors = np.resize(rows, (_COUNT, spec.dim))
    ids = np.arange(_COUNT)
    with TemporaryDirectory(prefix="dpindex-audit-") as name:
        folder = Path(name)
        ledger = Ledger(folder / "ledger")
        terms = Terms(ledger, allow_rerelease=True)
        index = PrivateIndex(spec)
        index.save(folder / "saved")
        dataset = as_dataset(as_source(vectors)).with_labels(ids)
        again = {"upsert": True, "allow_rerelease": True}
        releases = (
            lambda: index.add(vectors, ids, ledger=ledger),
            lambda: index.add(vectors, ids, ledger=ledger, **again),
            lambda: build_index(dataset, folder / "index", spec, None, terms),
            lambda: release(dataset, CodesFile(folder / "codes", spec), terms),
        )
        reads = late = 0
        for number, action in enumerate(releases, start=1):
            told = []
            with recorded(partial(_Witness, ledger=ledger, told=told)):
                action()
            reads += len(told)
            late += sum(known < number * _COUNT for known in told)
        entries = ledger.entries()
        each = ledger.totals(ids)
    counted = [(entry.spec, entry.count) for entry in entries]
    together = [(total.ids, total.releases) for total in each]
    made = len(releases)
    if counted != made * [(spec, _COUNT)] or together != [(_COUNT, made)]:
        return "other releases, ids or specs than were made"
    if late or not reads:
        return f"of {reads} times noise was read {late} times before the ledger knew"
    return ""


class _Witness(Recorder):
    """A recorder that notes of how many ids a ledger knew whenever words were read."""

    def __init__(self, stream, ledger, told):
        super().__init__(stream)
        self._ledger = ledger
        self._told = told

    def words(self, count, dtype):
        known = 0
        if self._ledger.path.exists():
            known = sum(entry.count for entry in self._ledger.entries())
        self._told.append(known)
        return super().words(count, dtype)
