"""The kinds of code: one row for each, with all that a search and an attack do with such codes.

A new kind is a format in :mod:`dpindex.mechanism.codes` and, unless its codes are compared as
decoded numbers, a row here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, NamedTuple

from dpindex.base.arrays import AnyArray, Doubles, Rows, limited_threads, spaced, unit
from dpindex.base.files import release_pages
from dpindex.decode.base import CodeLikelihoods, Metric, PrivateQueries, Queries, Similarity
from dpindex.decode.denoiser import Denoiser
from dpindex.decode.designed import DesignedSimilarity, decoded, decoded_queries
from dpindex.decode.numbers import NumberLikelihoods, NumberSimilarity
from dpindex.decode.signs import SignLikelihoods, SignSimilarity
from dpindex.decode.symbols import SymbolLikelihoods, SymbolSimilarity, codeword_similarities
from dpindex.index.backends import FaissSigns, SearchBackend, SymbolLists, faiss
from dpindex.index.faiss_vectors import FaissVectors
from dpindex.mechanism.codes import CodeFormat, Codes, SignFormat, SymbolFormat
from dpindex.mechanism.spec import Spec
from dpindex.storage.code_store import CodeStore
from dpindex.storage.manifest import Settings, parse_index_type

_LITTLE_WORK = 1 << 26
"""Coordinates that one thread compares in about ten milliseconds."""


@contextmanager
def few_threads(coordinates: int) -> Iterator[None]:
    """Let Faiss search in the calling thread where little is compared.

    Beside a busy process a second thread comes up to a hundred times later than the first is done.
    Other threads that search keep their own settings.
    """
    before = faiss().omp_get_max_threads()
    if coordinates > _LITTLE_WORK or before == 1:
        yield
        return
    faiss().omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss().omp_set_num_threads(before)


class Ranking:
    """A search backend that follows a store.

    Its items are decoded codes, and exact queries come in the same units; a subclass may choose
    other items and queries.

    Parameters
    ----------
    width : int
        Coordinates of an item.
    metric : "cosine", "ip" or "l2"
        What neighbours are ranked by.
    index_type : str
        How the backend keeps items.
    """

    backend_type: ClassVar[type[SearchBackend]] = FaissVectors

    def __init__(
        self,
        width: int,
        metric: Metric,
        index_type: str,
    ) -> None:
        self.width = width
        self.backend = self.backend_type(width, metric, index_type)
        self.rows = 0
        self._removals: int | None = None

    def __len__(self) -> int:
        return self.rows

    def items(self, codes: Codes) -> AnyArray:
        """The backend's items of some codes."""
        return codes.to_float()

    def query_items(self, queries: Queries) -> AnyArray:
        """What the backend compares items with: items of private queries, or exact vectors."""
        return queries.to_float()

    def is_synced(self, store: CodeStore) -> bool:
        """Return True if the backend holds every row of the store."""
        return (self._removals, self.rows) == (store.removals, len(store))

    def sync(self, store: CodeStore) -> None:
        """Bring the backend up to date; after Ctrl-C the next call goes on where it ended."""
        backend = self.backend
        if self._removals != store.removals or backend.needs_retraining(len(store)):
            self._removals = None
            self.rows = 0
            sample = store.take(spaced(len(store), backend.sample_rows))
            backend.begin(self.items(sample), len(store))
            self._removals = store.removals
        for codes in store.blocks(len(backend), backend.block_rows):
            backend.add(self.items(codes))
            release_pages(codes.stored)
        backend.finish()
        self.rows = len(store)

    def search(
        self, queries: Queries, count: int, subset: SearchBackend | None = None
    ) -> tuple[Doubles, Rows]:
        """Scores and rows of the best ``count`` for each query, best first, shape (nq, count).

        With a ``subset`` of the backend, of its items alone.
        """
        backend = self.backend if subset is None else subset
        wanted = self.query_items(queries)
        with few_threads(len(backend) * wanted.size):
            return backend.search(wanted, count)


class PackedSigns(Ranking):
    """Sign codes as they are; exact queries in grid integers, so that scores are exact."""

    backend_type = FaissSigns

    def items(self, codes: Codes) -> AnyArray:
        return codes.stored

    def query_items(self, queries: Queries) -> AnyArray:
        if isinstance(queries, PrivateQueries):
            return queries.codes.stored
        return queries.projections


class Symbols(Ranking):
    """Symbols; a query is the similarities of all codewords to it, or to its own symbol."""

    backend_type = SymbolLists

    def items(self, codes: Codes) -> AnyArray:
        return codes.stored

    def query_items(self, queries: Queries) -> AnyArray:
        return codeword_similarities(queries)


class DenoisedVectors(Ranking):
    """Denoised codes, exact queries as they are, private ones denoised alike.

    Denoised vectors are shrunken towards what is usual, so their scores rank well and say little.
    For exact search by inner products they are kept along the directions in which they lie.
    """

    def __init__(
        self,
        denoiser: Denoiser,
        metric: Metric,
        index_type: str,
    ) -> None:
        # The denoiser itself brings vectors to the norm under which inner products rank best.
        ranked_by: Metric = "ip" if metric == "cosine" else metric
        width = denoiser.spec.code_length
        exact = parse_index_type(index_type, width).exact
        self._is_short = False
        if exact and metric != "l2" and denoiser.basis is not None:
            self._is_short = True
            width = denoiser.basis.shape[1]
        super().__init__(width, ranked_by, index_type)
        self._metric = metric
        self._denoiser = denoiser

    # Blocks of codes use the processors better than BLAS does.
    sync = limited_threads(1)(Ranking.sync)

    def items(self, codes: Codes) -> AnyArray:
        by_cosine = self._metric == "cosine"
        if self._is_short:
            return self._denoiser.coordinates(codes, to_rank=by_cosine)
        return self._denoiser.to_rank(codes) if by_cosine else self._denoiser(codes)

    def query_items(self, queries: Queries) -> AnyArray:
        if isinstance(queries, PrivateQueries):
            vectors: AnyArray = self._denoiser(queries.codes, queries.spec)
        else:
            vectors = queries.to_float()
        if self._metric == "cosine":
            vectors = unit(vectors)
        return self._denoiser.along_basis(vectors) if self._is_short else vectors


class DecodedVectors(Ranking):
    """Estimates of the original vectors behind codes of a design, denoised first if they can be.

    Their norms say little under noise, so cosines to them rank.
    """

    def __init__(
        self,
        spec: Spec,
        metric: Metric,
        index_type: str,
        denoiser: Denoiser | None = None,
    ) -> None:
        super().__init__(spec.code_length + 1, metric, index_type)
        self._spec = spec
        self._denoiser = denoiser

    sync = limited_threads(1)(Ranking.sync)

    def items(self, codes: Codes) -> AnyArray:
        return decoded(codes, self._spec, self._denoiser)

    def query_items(self, queries: Queries) -> AnyArray:
        return decoded_queries(queries, self._denoiser)[:, :-1]


class Kind(NamedTuple):
    """What is done with one kind of code.

    Attributes
    ----------
    format : type of CodeFormat
        It and the formats derived from it are of this kind.
    estimator : type of Similarity
        Estimates similarities and their errors from one pair alone.
    ranking : type of Ranking
        Finds the nearest codes.
    likelihoods : type of CodeLikelihoods
        How likely a code is for a known vector.
    """

    format: type[CodeFormat]
    estimator: type[Similarity]
    ranking: type[Ranking]
    likelihoods: type[CodeLikelihoods]


KINDS = [
    Kind(SignFormat, SignSimilarity, PackedSigns, SignLikelihoods),
    Kind(SymbolFormat, SymbolSimilarity, Symbols, SymbolLikelihoods),
    Kind(CodeFormat, NumberSimilarity, Ranking, NumberLikelihoods),  # type: ignore[type-abstract]
]
"""Every kind of code. The first row that fits counts; the last one takes codes as numbers."""


def new_ranking(settings: Settings, denoiser: Denoiser | None) -> Ranking:
    """Return what ranks the codes of an index, empty."""
    spec = settings.spec
    kept = (settings.metric, settings.index_type)
    if spec.design is not None:
        return DecodedVectors(spec, *kept, denoiser)
    if denoiser is not None:
        return DenoisedVectors(denoiser, *kept)
    return kind_of(spec).ranking(spec.code_length, *kept)


def kind_of(spec: Spec) -> Kind:
    """Return the kind of a spec's codes.

    >>> from dpindex import attribute
    >>> kind_of(Spec("dp-signoporp-rr", dim=8, k=8, epsilon=2.0,
    ...     adjacency=attribute(1.0))).ranking.__name__
    'PackedSigns'
    """
    kind = next(kind for kind in KINDS if issubclass(spec.format_type, kind.format))
    if spec.design is None:
        return kind
    # Codes under a design are compared once decoded.
    return kind._replace(estimator=DesignedSimilarity)
