"""Releases of arrays, for tests: builds of an index, and files of codes."""

from dpindex.base.ids import id_array
from dpindex.data import as_source
from dpindex.data.dataset import as_dataset
from dpindex.index.private_index import PrivateIndex
from dpindex.mechanism.privatizer import Privatizer
from dpindex.storage.history import Terms
from dpindex.storage.payload import Payload
from dpindex.storage.release import release
from dpindex.storage.targets import CodesFile, IndexOptions, build_index


def codes_of(spec, vectors):
    """Codes of these vectors, also by a method that protects nothing."""
    return Privatizer(spec, allow_unprotected=True).privatize(vectors)


def projected(spec, vectors):
    """Exact projections of these vectors, in grid integers held in floats."""
    return Privatizer(spec, allow_unprotected=True).project(vectors)


def counted(ledger):
    """How many ids a ledger holds, and how often each was released."""
    return [(total.ids, total.releases) for total in ledger.totals()]


def all_bytes(folder):
    """What is in all files of a folder."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def flipped(data, place):
    """The same bytes, with one bit of one of them changed."""
    changed = bytearray(data)
    changed[place] ^= 1
    return bytes(changed)


def names_in(folder):
    """The names in a folder, sorted."""
    return sorted(path.name for path in folder.iterdir())


def filled_index(spec, vectors, ids=None, **options):
    """An index to which vectors were added; takes the options of both."""
    names = ("metric", "index_type", "query_epsilon")
    made = {name: options.pop(name) for name in names if name in options}
    index = PrivateIndex(spec, **made)
    index.add(vectors, ids, **options)
    return index


def reopened(index, folder):
    """The index as it is found where it was saved."""
    index.save(folder)
    return PrivateIndex.open(folder)


def dataset_of(vectors, *, ids=None, payload=None, rows=None):
    """Vectors in memory with their labels, in parts of so many rows."""
    source = as_source(vectors)
    names = None if ids is None else id_array(ids)
    table = payload
    if payload is not None:
        table = Payload().checked(payload, source.shape[0])
    return as_dataset(source, rows).with_labels(names, table)


def build(path, settings, vectors, *, progress=None, **options):
    """Build an index; returns how many vectors were privatized now."""
    labels = {name: options.pop(name, None) for name in ("ids", "payload", "rows")}
    how = IndexOptions(options.pop("denoise", None), options.pop("allow_unprotected", False))
    dataset = dataset_of(vectors, **labels)
    return build_index(dataset, path, settings, how, Terms(**options), progress=progress).drawn


def write_codes(path, spec, vectors, **options):
    """Write a file of codes; returns how many vectors were privatized now."""
    labels = {name: options.pop(name, None) for name in ("ids", "payload", "rows")}
    dataset = dataset_of(vectors, **labels)
    return release(dataset, CodesFile(path, spec), Terms(**options)).drawn
