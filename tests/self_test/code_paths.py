"""Every way on which codes are released: they must be ``(x + draw) >> cell_bits``, or the flip.

Public vectors go through the public face: ``Privatizer.privatize``, ``PrivateIndex.add`` and
replacements, builds, files of codes, ``device.privatize``, and private queries. The secret words
that are read meanwhile are recorded and decoded a second time (:mod:`dpindex.audit.words`). Exact
integers are summed from the entries of the map. So a change of a draw after the sampler shows, in
any row of any batch of these types and sizes: less noise, more noise, noise of other rows, noise
used twice.
"""

import pickle
from dataclasses import fields, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from warnings import catch_warnings, simplefilter

import numpy as np
from scipy import sparse

from dpindex import device
from dpindex.accounting.ledger import Ledger
from dpindex.audit.input_checks import code_checks
from dpindex.audit.law_verifiers import law_verifier
from dpindex.base.errors import InputError, QualityWarning
from dpindex.data import Ranges, as_source
from dpindex.data.dataset import as_dataset, open_dataset
from dpindex.index.hits import Hits
from dpindex.index.private_index import PrivateIndex
from dpindex.mechanism.codebooks import Codebook
from dpindex.mechanism.codes import Codes, codes_from_bytes
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.spec import block_rows
from dpindex.privacy import Record
from dpindex.storage.history import Terms
from dpindex.storage.release import release
from dpindex.storage.targets import CodesFile, build_index
from self_test.explanation import decoded, packed, unexplained
from self_test.ledger_counts import ledger_fault
from self_test.probes import (
    FEW_ENTRIES,
    exact_integers,
    probe_rows,
    typed_rows,
    wrong_rows,
)
from self_test.published_files import published_codes_fault
from self_test.recording import READ_ONCE, recorded, words_fault
from self_test.second_reading import law_reader
from self_test.shuffle_order import shuffle_fault
from self_test.words import UnexplainedError

_MAX_NUMBERS = 1 << 22
_SPARSE_CHUNK = 8192
_SMALL = 300
_SIZES = (1, 2, 129)
_BLOCK_AND_MORE = 4500
"""Rows that fill a block of a law within a task, and a part of the next."""

_REPLACED = (1, 9)
_QUERY_COUNTS = (1, 12, 129)
_SPARSE_QUERIES = 12
_WIDTH = 8.0
_FEWEST_WORDS = 20
"""A codebook of fewer may hold vectors by chance."""
_EVERYTHING = -1e300


def path_checks(spec, reader, large):
    """Every way on which codes of ``spec`` are released, by its name; to be called in this order.

    ``large`` takes more vectors than a task and a chunk hold, so that there are several of each,
    and adds what goes through files.
    """
    return _Paths(spec, reader, large).checks()


class _Paths:
    """Public vectors, their exact integers, and the words that all their releases have read."""

    def __init__(self, spec, reader, large):
        self.spec = spec
        self.reader = reader
        self.large = large
        self.rows = probe_rows(spec)
        self.exact = exact_integers(spec, self.rows)
        thin = np.count_nonzero(self.rows, axis=1) <= FEW_ENTRIES
        # Sparse vectors: a few entries, or none; whole rows where the bounds or the norm want them.
        self.thin = np.flatnonzero(thin) if thin.any() else np.arange(len(self.rows))
        self.has_sparse = spec.bounds[0] <= 0 <= spec.bounds[1]
        self.recorders = []
        self.random = np.random.default_rng(0)

    def checks(self):
        """Return each check by its name; it returns the fault that it finds, or nothing."""
        ways = {
            "path: privatize, dense": self._dense(),
            "path: privatize, types and sizes": self._typed(),
            "path: PrivateIndex.add": self._added(),
            "path: replacement in an index": self._replaced(),
            "path: what a ledger counts": self._counted(),
        }
        if self.spec.guarantee.definition == "DP":  # devices accept nothing weaker
            ways["path: device"] = self._device()
        if self.has_sparse:
            ways["path: privatize, sparse"] = self._sparse()
        if self.large:
            ways["path: build, codes file, import, save and open"] = self._built()
            if find_spec("distributed"):
                ways["path: build on Dask"] = self._on_dask()
        checks = {name: partial(self._fault_of, releases) for name, releases in ways.items()}
        others = {
            "path: private queries": self._queries,
            "path: vectors that are refused": self._refusals,
            "path: files hold codes alone": lambda: published_codes_fault(self.spec, self.rows),
            "path: a ledger counts every release first": lambda: ledger_fault(self.spec, self.rows),
        }
        if isinstance(self.spec.adjacency, Record):
            others["path: order of a shuffle"] = shuffle_fault
        if find_spec("sklearn") is not None:
            others["path: scikit-learn transformer"] = self._transformed
        others[READ_ONCE] = lambda: words_fault(self.recorders)
        return {**checks, **others}

    def _fault_of(self, ways):
        """Each way is a function that releases, and the exact integers of its vectors."""
        faults = []
        for released, exact in ways:
            with recorded() as recorders:
                made = released()
            self.recorders += recorders
            faults.append(self._fault(made, exact, recorders))
        return "; ".join(filter(None, faults))

    def _fault(self, codes, x, recorders):
        if codes.format != self.spec.format or len(codes.stored) != len(x):
            return "codes of another format or number"
        stored = np.asarray(codes.stored)
        return unexplained(self.reader, x, stored, recorders)

    def _many(self, sparsely=False, chunk=0):
        """Rows that fill ``chunk``, or else two tasks, and a few more."""
        k = self.spec.projection.k
        rows = _SMALL
        if self.large:
            rows = (chunk or 2 * block_rows(self.spec, sparsely)) + 7
        width = k if sparsely else max(k, self.spec.dim)
        return max(3, min(rows, _MAX_NUMBERS // width))

    def _drawn(self, rows):
        return self.random.integers(0, len(self.rows), rows)

    def _by_size(self, rows):
        """Small ones first, so that tasks and blocks hold vectors and codes of other ranges."""
        largest = np.abs(self.exact).max(axis=1)
        drawn = np.sort(self._drawn(rows))
        return np.argsort(largest)[drawn]

    def _thin(self, rows):
        places = self.random.integers(0, len(self.thin), rows)
        thin = sparse.csr_matrix(self.rows[self.thin])
        return thin[places], self.thin[places]

    def _privatized(self, x, exact, **options):
        """The encoder is made while words are recorded: it asks for its streams from then on."""

        def released():
            return Privatizer(self.spec).privatize(x, **options)

        return released, exact

    def _dense(self):
        kinds = self._by_size(self._many())
        yield self._privatized(self.rows[kinds], self.exact[kinds], threads=2)
        yield self._privatized(self.rows[kinds[0]], self.exact[kinds[:1]])

    def _sparse(self):
        x, kinds = self._thin(self._many(sparsely=True))
        yield self._privatized(x, self.exact[kinds], threads=2)
        few, same = self._thin(3)
        yield self._privatized(few, self.exact[same])

    def _typed(self):
        for typed in typed_rows(self.spec, self.rows):
            yield self._privatized(typed, exact_integers(self.spec, typed))
        sizes = list(_SIZES)
        if self.large:
            sizes.append(_BLOCK_AND_MORE)
        for count in sizes:
            kinds = self._drawn(count)
            yield self._privatized(self.rows[kinds], self.exact[kinds])
        kinds = self._drawn(3)
        yield self._privatized(self.rows[kinds].tolist(), self.exact[kinds])

    def _added(self):
        kinds = self._drawn(_SMALL)
        third = len(kinds) // 3

        def add():
            index = self._index(self.spec.budget / 2)  # queries have a budget of their own
            index.add(self.rows[kinds[:third]])
            index.add(self.rows[kinds[third:]])
            return index.codes

        yield add, self.exact[kinds]
        for typed in typed_rows(self.spec, self.rows):
            yield partial(self._index_codes, typed), exact_integers(self.spec, typed)
        # A power of two is undone without rounding.
        wide = replace(
            self.spec,
            ranges=self._ranges(_WIDTH),
            codebook=self._wide_codebook(),
        )

        def of_a_table():
            # The ranges are part of the fingerprint.
            codes = self._index_codes(_WIDTH * self.rows, wide)
            return self.spec.format.codes(codes.stored)

        yield of_a_table, self.exact

    def _wide_codebook(self):
        """The codebook of a table that is so wide."""
        book = self.spec.codebook
        return None if book is None else Codebook(_WIDTH * book.stated)

    def _ranges(self, high):
        """Return ranges of all columns from 0 to ``high``."""
        dim = self.spec.dim
        names = tuple(map(str, range(dim)))
        return Ranges(names, (0.0,) * dim, (high,) * dim)

    def _index_codes(self, rows, spec=None):
        index = PrivateIndex(spec or self.spec)
        index.add(rows)
        return index.codes

    def _replaced(self):
        """Codes that replace others; those that go are prepared without a secret stream."""
        stored = Privatizer(self.spec).privatize(self.rows[:6]).stored
        zeros = self.spec.format.codes(np.zeros_like(stored))

        def replacing(kinds):
            ids = np.arange(len(kinds))
            index = self._index(self.spec.budget / 2)
            index.add_codes(zeros, np.arange(6))
            index.add(self.rows[kinds], ids, upsert=True, allow_rerelease=True)
            index.remove(range(len(kinds), 6))
            return index.codes

        for count in _REPLACED:
            kinds = self._drawn(count)
            yield partial(replacing, kinds), self.exact[kinds]

    def _counted(self):
        """Codes are released into folders, and ids travel with the vectors."""
        with TemporaryDirectory(prefix="dpindex-audit-") as name:
            folder = Path(name)
            ledger = Ledger(folder / "ledger")

            def added(rows, **how):
                index = PrivateIndex(self.spec)
                index.save(folder / f"added-{len(how)}")
                ids = np.arange(len(rows))
                index.add(rows, ids, ledger=ledger, **how)
                return index.codes

            replaced = partial(added, upsert=True, allow_rerelease=True)

            def built(rows):
                ids = np.arange(len(rows))
                dataset = as_dataset(as_source(rows)).with_labels(ids)
                terms = Terms(ledger, True)
                build_index(dataset, folder / "index", self.spec, terms=terms)
                return PrivateIndex.open(folder / "index").codes

            for way in (added, replaced, built):
                kinds = self._drawn(_SMALL)
                yield partial(way, self.rows[kinds]), self.exact[kinds]

    def _device(self):
        for kinds in (self._drawn(1), np.arange(len(self.rows))):
            x = self.rows[kinds]
            if len(x) == 1:
                x = x[0]
            yield partial(self._device_codes, x), self.exact[kinds]
            # A device spends what the spec says, however much it accepts.
            yield partial(self._device_codes, x, 2 * self.spec.budget), self.exact[kinds]
            yield partial(self._device_codes_of_files, x), self.exact[kinds]

    def _device_codes(self, x, max_epsilon=None):
        accepted = max_epsilon or self.spec.budget
        return codes_from_bytes(device.privatize(x, self.spec, max_epsilon=accepted))

    def _device_codes_of_files(self, x, max_epsilon=None):
        """The codes of a device that reads the spec, and its codebook, as they are published."""
        with TemporaryDirectory(prefix="dpindex-audit-") as name:
            path = Path(name) / "spec.json"
            path.write_text(self.spec.to_json())
            book = None
            if self.spec.codebook is not None:
                book = Path(name) / "codebook.npy"
                np.save(book, self.spec.codebook.stated)
            accepted = max_epsilon or self.spec.budget
            sent = device.privatize(x, path, max_epsilon=accepted, public=book)
            return codes_from_bytes(sent)

    def _transformed(self):
        """A transformer gives the decoded codes of its rows, whose noise is drawn once."""
        # here: scikit-learn need not be installed
        from dpindex.integrations.sklearn import PrivateProjection

        stated = {field.name: getattr(self.spec, field.name) for field in fields(self.spec)}
        del stated["dim"]
        kinds = self._drawn(_SMALL)
        with recorded() as recorders, catch_warnings():
            simplefilter("ignore", QualityWarning)  # whoever made the spec was warned
            transformer = PrivateProjection(**stated).fit(self.rows)
            transformed = transformer.transform(self.rows[kinds])
            again = PrivateProjection(**stated).fit(self.rows[::-1])
        self.recorders += recorders
        try:
            outcomes = decoded(self.reader, self.exact[kinds], recorders)
        except UnexplainedError:
            same = False
        else:
            expected = self.spec.format.decode(packed(self.spec, outcomes))
            same = np.array_equal(transformed, expected) and transformer.spec_ == self.spec
            same = same and pickle.dumps(transformer) == pickle.dumps(again)
        return "" if same else "other rows than those of the words"

    def _built(self):
        with TemporaryDirectory(prefix="dpindex-audit-") as name:
            folder = Path(name)

            def built(x):
                place = folder / f"{x.shape[0]}-{sparse.issparse(x)}"
                build_index(as_dataset(as_source(x)), place, self.spec)
                return PrivateIndex.open(place).codes

            def written(x):
                dataset = as_dataset(as_source(x))
                release(dataset, CodesFile(folder / "codes", self.spec))
                return codes_from_bytes((folder / "codes").read_bytes())

            def saved(x):
                index = PrivateIndex(self.spec)
                index.add(as_dataset(as_source(x)))
                index.save(folder / "saved")
                return PrivateIndex.open(folder / "saved").codes

            if self.has_sparse:
                thin, kinds = self._thin(self._many(True, _SPARSE_CHUNK))
                yield partial(built, thin), self.exact[kinds]
            dense = self._drawn(self._many(chunk=self._dense_chunk()))
            yield partial(built, self.rows[dense]), self.exact[dense]
            few = self._drawn(_SMALL)
            yield partial(written, self.rows[few]), self.exact[few]
            yield partial(saved, self.rows[few]), self.exact[few]

    def _on_dask(self):
        """A build by the threads of a cluster in this process, whose words are recorded too."""
        # here: Dask need not be installed
        from dpindex.integrations.dask import engine

        distributed = import_module("distributed")

        def built(rows):
            with (
                TemporaryDirectory(prefix="dpindex-audit-") as name,
                distributed.Client(processes=False, dashboard_address="127.0.0.1:0") as client,
            ):
                np.save(Path(name) / "x.npy", rows)
                dataset = open_dataset(Path(name) / "x.npy")
                run = {"engine": engine(client), "threads": 1}
                build_index(dataset, Path(name) / "index", self.spec, **run)
                return PrivateIndex.open(Path(name) / "index").codes

        kinds = self._by_size(_SMALL)
        yield partial(built, self.rows[kinds]), self.exact[kinds]

    def _dense_chunk(self):
        """No chunk of vectors in float64 has more rows."""
        fitting = (1 << 25) // (8 * self.spec.dim)
        return min(1 << 16, fitting)

    def _queries(self):
        """Queries get noise of their own; the answer is that to the codes which follow from it."""
        budget = max(0.001, self.spec.budget / 2)
        index = self._searchable(budget)
        some = range(0, len(index), 2)

        def search(queries, **options):
            return index.search(queries, len(index), **options, **_mode(queries))

        def range_search(queries):
            return index.range_search(queries, _EVERYTHING, **_mode(queries))

        answers = {"search": search, "search among some": partial(search, filter=some)}
        if self._has_similarities(index):
            answers["range_search"] = range_search
        faults = self._query_law_faults(index.query_spec)
        if index.query_spec.budget not in (self.spec.budget, budget):
            faults.append("another budget than was asked for")
        for way, answer in answers.items():
            for count in _QUERY_COUNTS:
                kinds = self._drawn(count)
                queries = self.rows[kinds]
                if count == 1:
                    queries = queries[0]
                if not self._answered_privately(index, answer, queries, kinds):
                    faults.append(f"{way} of {count}")
                if not self._answered_privately(index, answer, queries.tolist(), kinds):
                    faults.append(f"{way} of {count} in lists")
            if self.has_sparse:
                thin, kinds = self._thin(_SPARSE_QUERIES)
                if not self._answered_privately(index, answer, thin, kinds):
                    faults.append(f"{way} of sparse ones")
        return ", ".join(faults)

    def _query_law_faults(self, spec):
        """The law of queries must keep their own budget, whatever law this process made first."""
        if spec == self.spec:
            return []
        checks, apart = code_checks(spec)
        checks.append(law_verifier(spec, apart).check())
        return [f"{check.name} of queries" for check in checks if not check.passed]

    def _has_similarities(self, index):
        """Whether a range can be searched: some codes have no similarities without a norm."""
        try:
            index.range_search(self.rows[:1], _EVERYTHING)
        except InputError:
            return False
        return True

    def _answered_privately(self, index, answer, queries, kinds):
        """Whether the answer to private queries is that to the codes of the recorded words."""
        spec = index.query_spec
        with recorded() as recorders:
            hits = answer(queries)
        self.recorders += recorders
        try:
            outcomes = decoded(
                law_reader(spec),
                exact_integers(spec, self.rows)[kinds],
                recorders,
            )
        except UnexplainedError:
            return False
        expected = answer(spec.format.codes(packed(spec, outcomes)))
        return _same_answers(hits, expected)

    def _index(self, query_epsilon):
        try:
            return PrivateIndex(self.spec, query_epsilon=query_epsilon)
        except InputError:  # so little budget is not to be had
            return PrivateIndex(self.spec)

    def _searchable(self, epsilon):
        index = self._index(epsilon) if self.large else PrivateIndex(self.spec)
        with recorded() as recorders:
            ids = np.arange(len(self.rows))
            index.add(self.rows, ids)
        self.recorders += recorders
        return index

    def _refusals(self):
        """Vectors on which the guarantee does not hold are refused on every way."""
        index = self._searchable(self.spec.budget)
        ways = {
            "privatize": Privatizer(self.spec).privatize,
            "add": PrivateIndex(self.spec).add,
            "search": partial(index.search, query="private"),
        }
        faults = []
        if self.spec.guarantee.definition == "DP":
            ways["device"] = self._device_codes
            less = 0.99 * self.spec.budget
            for send in (self._device_codes, self._device_codes_of_files):
                overspending = partial(send, max_epsilon=less)
                if not _refused(overspending, self.rows[0]):
                    faults.append("device spends more than is accepted")
        before = np.resize(self.rows[0], (self._many(), self.spec.dim))
        for what, row in wrong_rows(self.spec, self.rows).items():
            several = [row, np.vstack([before, row]), row.astype(np.float32)]
            if self.has_sparse:
                several.append(sparse.csr_matrix(row))
            if np.isfinite(row).all() and (np.rint(row) == row).all():
                several.append(row.astype(np.int64))
            for way, action in ways.items():
                if not all(_refused(action, x) for x in several):
                    faults.append(f"{way} takes vectors {what}")
        bounded = not isinstance(self.spec.adjacency, Record) and not self.spec.clip
        if bounded and self._takes_beyond_ranges():
            faults.append("add takes numbers beyond the ranges of columns")
        if self._takes_codewords():
            faults.append("add takes the vectors that a codebook is made of")
        return "; ".join(faults)

    def _takes_beyond_ranges(self):
        """Whether a table is taken in which one number lies beyond the range of its column."""
        table = np.tile(self.rows[:1], (3, 1))
        highest = self.spec.bounds[1] * self.spec.scale
        table[2, 0] = highest + 0.5
        spec = replace(self.spec, ranges=self._ranges(1.0))
        return not _refused(PrivateIndex(spec).add, table)

    def _takes_codewords(self):
        """Whether a collection is taken that the codebook was made of."""
        book = self.spec.codebook
        if book is None or len(book) < _FEWEST_WORDS:
            return False
        return not _refused(PrivateIndex(self.spec).add, book.vectors)


def _mode(queries):
    """Codes are searched for as they are; vectors are privatized."""
    return {} if isinstance(queries, Codes) else {"query": "private"}


def _same_answers(one, other):
    """Whether two answers are the same: ids, hits, or hits of each query."""
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    if isinstance(one, Hits):
        one = [one]
    if isinstance(other, Hits):
        other = [other]
    if len(one) != len(other):
        return False
    pairs = zip(one, other, strict=True)
    return all(_same_columns(mine.columns, theirs.columns) for mine, theirs in pairs)


def _same_columns(one, other):
    """Whether two answers have the same neighbours, numbers and errors."""
    if one.keys() != other.keys():
        return False
    for name, column in one.items():
        mine = np.ravel(column)
        theirs = np.ravel(other[name])
        if not np.array_equal(mine, theirs, equal_nan=name != "ids"):
            return False
    return True


def _refused(action, x):
    try:
        action(x)
    except InputError:
        return True
    return False
