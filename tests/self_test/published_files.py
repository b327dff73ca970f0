"""What is published of two collections must be the same, if the outcomes of their law are.

The outcomes are prepared here. So whatever else a file or a message held of the vectors, a hash, a
norm, an order, a row without noise, would differ.
"""

from copy import copy
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from dpindex import device
from dpindex.audit.input_checks import Dealt, probe_records, with_draws
from dpindex.data import as_source
from dpindex.data.dataset import as_dataset
from dpindex.index.private_index import PrivateIndex
from dpindex.mechanism.privatizer import Privatizer
from dpindex.race import RaceSketch
from dpindex.race.release import build_sketch
from dpindex.storage.journal import Journal
from dpindex.storage.release import release
from dpindex.storage.targets import CodesFile, build_index
from self_test.messages import sent_by_client

_COUNT = 128
"""Codes: enough that an index learns what they say of similarities."""


def published_codes_fault(spec, rows):
    """Indexes, files of codes and messages of devices, of two halves of the probes."""
    prepared = _with_outcomes(spec, rows)
    middle = len(rows) // 2
    one = np.resize(rows[:middle], (_COUNT, spec.dim))
    other = np.resize(rows[middle:], (_COUNT, spec.dim))
    keys = {Journal(Path(), "").key for _ in range(2)}
    if len(keys) == 1:
        return "two builds have one key"
    return _differences(partial(_publish_codes, prepared), one, other)


def published_counts_fault(spec):
    """Sketches, in memory and built into files, whose released counts are prepared."""
    records = probe_records(spec)
    return _differences(partial(_publish_counts, spec), records, records[:7])


def _differences(publish, one, other):
    """The files and messages that more than the outcomes decides."""
    differ = _files(publish, one).items() ^ _files(publish, other).items()
    return ", ".join(sorted({name for name, _ in differ}))


def _files(publish, x):
    with TemporaryDirectory(prefix="dpindex-audit-") as name:
        folder = Path(name)
        publish(x, folder)
        files = files_of(folder)
    # What was released is written beside an index for its holder, and is no part of it.
    return {name: data for name, data in files.items() if not name.endswith(".released")}


def files_of(folder):
    """Return the bytes of every file of a folder, by its path in there."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def _with_outcomes(spec, rows):
    """A spec whose law gives the same outcomes, in this order, whatever it is asked about."""
    encoder = Privatizer(spec)
    exact = encoder.project(rows)
    outcomes = spec.law.perturb(exact, encoder.stream())

    def perturb(x, stream):
        places = np.arange(len(x)) % len(outcomes)
        return np.asarray(outcomes[places])

    law = copy(spec.law)
    object.__setattr__(law, "perturb", perturb)
    prepared = copy(spec)
    object.__setattr__(prepared, "law", law)
    return prepared


def _publish_codes(spec, x, folder):
    names = np.arange(len(x))
    named = as_dataset(as_source(x)).with_labels(names)
    build_index(named, folder / "built", spec)
    release(as_dataset(as_source(x)), CodesFile(folder / "file", spec))
    index = PrivateIndex(spec)
    index.add(x, names)
    few = x[:9]
    index.add(few, names[:9], upsert=True, allow_rerelease=True)
    index.save(folder / "saved")
    numbered = PrivateIndex(spec)
    numbered.add(x)
    numbered.save(folder / "numbered")
    codes = Privatizer(spec).privatize(few)
    (folder / "message").write_bytes(codes.to_bytes())
    (folder / "requests").write_bytes(sent_by_client(spec, codes, few))
    if spec.guarantee.definition == "DP":  # devices accept nothing weaker
        sent = device.privatize(x[0], spec, max_epsilon=spec.budget)
        (folder / "device").write_bytes(sent)


def _publish_counts(spec, x, folder):
    cells = np.arange(spec.rows * spec.columns, dtype=np.int32)
    released = cells + len(probe_records(spec))
    exact = with_draws(spec, x, 0).counts.ravel()
    draws = (released - exact).astype(np.int32)
    law = copy(spec.law)
    prepared = copy(spec)
    object.__setattr__(prepared, "law", law)
    law.source = Dealt(draws)
    sketch = RaceSketch(prepared).fit(x).release()
    (folder / "message").write_bytes(sketch.to_bytes())
    build_sketch(as_dataset(as_source(x)), folder / "file", prepared)
