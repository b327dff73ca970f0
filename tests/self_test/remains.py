"""What must not remain: replaced codes, values under nulls, and the draws of a losing attempt."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from dpindex.audit.verdict import Check
from dpindex.data import as_source
from dpindex.data.dataset import as_dataset
from dpindex.index.private_index import PrivateIndex
from dpindex.mechanism.privatizer import Privatizer
from dpindex.storage.journal import Journal
from dpindex.storage.manifest import file_path
from dpindex.storage.targets import build_index
from self_test.published_files import files_of

__all__ = ["remains_check"]

_COUNT = 40
_MASKED = "masked-{}"
_REMOVED = "removed-{}"


def remains_check(spec, rows):
    """Files of an index after replacing and removing, of a build with nulls, of two attempts."""
    vectors = np.resize(rows, (_COUNT, spec.dim))
    faults = {
        "replaced codes": _keeps_replaced(spec, vectors),
        "a second draw": _keeps_second_draw(spec, vectors),
    }
    if find_spec("pyarrow") is not None:
        faults["values under nulls"] = _keeps_masked(spec, vectors)
    kept = [name for name, fault in faults.items() if fault]
    return Check(
        "path: what is replaced, masked or drawn twice is gone",
        f"kept: {', '.join(kept)}" if kept else f"{len(faults)} kinds are in no file",
        "in no file",
        "a second code of a vector costs its epsilon again; what is cut from a payload is not said",
        not kept,
    )


def _keeps_replaced(spec, vectors):
    """Whether a saved index still has codes that were replaced, or an id that was removed."""
    names = [_REMOVED.format(row) for row in range(_COUNT)]
    with TemporaryDirectory(prefix="dpindex-audit-") as name:
        folder = Path(name) / "index"
        index = PrivateIndex(spec)
        index.add(vectors, names)
        index.save(folder)
        replaced = index.codes.stored.tobytes()
        index = PrivateIndex.open(folder)
        index.add(vectors, names, upsert=True, allow_rerelease=True)
        index.remove(names[:1])
        index.save(folder)
        everything = _everything(folder)
    removed, left = (word.encode() in everything for word in names[:2])
    return replaced in everything or removed or not left


def _keeps_second_draw(spec, vectors):
    """Whether a journal has codes of an attempt that another was before."""
    encoder = Privatizer(spec)
    first = encoder.privatize(vectors)
    second = encoder.privatize(vectors)
    with TemporaryDirectory(prefix="dpindex-audit-") as name:
        journal = Journal(Path(name) / "private", "no target")
        with journal.held():
            journal.begin({})
            for codes in (first, second):
                journal.put(file_path("codes", "000000"), codes.to_bytes())
            everything = _everything(Path(name))
    first_kept, second_kept = (codes.stored.tobytes() in everything for codes in (first, second))
    return second_kept or not first_kept


def _keeps_masked(spec, vectors):
    """Whether a built index has the values that nulls of its payload hide."""
    arrow = import_module("pyarrow")
    words = arrow.array([_MASKED.format(row) for row in range(_COUNT)])
    odd_rows = arrow.py_buffer(bytes([0b10101010] * _COUNT))
    masked = arrow.Array.from_buffers(words.type, _COUNT, [odd_rows, *words.buffers()[1:]])
    with TemporaryDirectory(prefix="dpindex-audit-") as name:
        dataset = as_dataset(as_source(vectors)).with_labels(payload=arrow.table({"word": masked}))
        build_index(dataset, Path(name) / "index", spec)
        everything = _everything(Path(name))
    hidden, seen = (_MASKED.format(row).encode() in everything for row in (0, 1))
    return hidden or not seen


def _everything(folder):
    """The bytes of all files of a folder, one after the other."""
    return b"".join(files_of(folder).values())
