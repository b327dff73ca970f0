"""A vector store for LangChain: codes go to the index, texts and metadata stay here."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from dpindex.accounting.ledger import Ledger
from dpindex.base.arrays import Doubles, row_blocks
from dpindex.base.checks import at_least_one
from dpindex.base.errors import InputError, import_extra
from dpindex.index.private_index import PrivateIndex
from dpindex.mechanism.spec import Spec

_NEED = "the vector store needs langchain-core"
import_extra("langchain_core", _NEED, "langchain")

from langchain_core.documents import Document  # noqa: E402
from langchain_core.embeddings import Embeddings  # noqa: E402
from langchain_core.stores import BaseStore, InMemoryStore  # noqa: E402
from langchain_core.vectorstores import VectorStore  # noqa: E402
from langchain_core.vectorstores.utils import maximal_marginal_relevance  # noqa: E402

__all__ = ["PrivateVectorStore", "Repairs"]

DocumentFilter: TypeAlias = Callable[[Document], bool]
ScoredDocuments: TypeAlias = list[tuple[Document, float]]


class Repairs(NamedTuple):
    """What :meth:`PrivateVectorStore.repair` found, as lists of ids.

    Attributes
    ----------
    mended : list of str
        Their vectors were missing, and were computed again from their documents.
    without_document : list of str
        They have a code and no document, so no search returns them. Give the ``documents`` that
        were filled with the index, or delete them.
    without_code : list of str
        What an addition or a deletion that failed left behind. Add the same text again, or delete
        them.

    >>> Repairs([], ["12"], []).without_document
    ['12']
    """

    mended: list[str]
    without_document: list[str]
    without_code: list[str]


class PrivateVectorStore(VectorStore):
    """A LangChain vector store whose index holds private codes only.

    The index may be saved, published and given away. Texts, metadata and vectors stay with the
    application, in the stores that it names. Searches take candidates from the codes, and order
    them by the application's own vectors.

    A failed write leaves nothing half: codes are written last and deleted first, so each code has
    its document, and each document its vector. Repeat the call that failed: it releases nothing
    twice. Where a store lost something by itself, searches return the rest with a warning, and
    :meth:`repair` tells what is missing.

    Parameters
    ----------
    embedding : Embeddings
        What turns texts into vectors.
    index : PrivateIndex or Spec
        Where codes go: an index, in memory or opened from a directory, or the spec of a new one.
    documents : BaseStore, optional
        Where documents are kept by id; default in memory.
    vectors : BaseStore, optional
        Where vectors are kept by id; default in memory.
    query : "exact" or "private"
        Whether the index sees the query's vector as it is, or a private code of it. Candidates are
        ordered by the exact vector, here.
    ledger : Ledger, optional
        Where releases are written down first; it needs an index that has a folder, which is then
        kept up to date.
    allow_rerelease : bool
        Whether an id may get another text: each time is one more release of that id.

    Attributes
    ----------
    index : PrivateIndex
    candidates : int
        How many documents the codes choose for each query, to be ordered by their vectors; default
        1000.

    Raises
    ------
    InputError
        Without langchain-core.

    >>> import dpindex as dpi
    >>> from langchain_core.embeddings import DeterministicFakeEmbedding
    >>> spec = dpi.Spec("record-cap", dim=16, k=64, epsilon=8.0, adjacency=dpi.record())
    >>> store = PrivateVectorStore(DeterministicFakeEmbedding(size=16), spec)
    >>> store.add_texts(["a cat", "a dog"], ids=["1", "2"])
    ['1', '2']
    >>> [document.page_content for document in store.similarity_search("a dog", k=1)]
    ['a dog']
    """

    def __init__(
        self,
        embedding: Embeddings,
        index: PrivateIndex | Spec,
        *,
        documents: BaseStore[str, Any] | None = None,
        vectors: BaseStore[str, Any] | None = None,
        query: Literal["exact", "private"] = "exact",
        ledger: Ledger | None = None,
        allow_rerelease: bool = False,
    ) -> None:
        if not isinstance(index, PrivateIndex):
            index = PrivateIndex(index)
        self.index = index
        self._embedding = embedding
        self._documents = InMemoryStore() if documents is None else documents
        self._vectors = InMemoryStore() if vectors is None else vectors
        self.candidates = 1000
        self._query = query
        self._ledger = ledger
        self._allow_rerelease = allow_rerelease

    @property
    def embeddings(self) -> Embeddings:
        """What turns texts into vectors."""
        return self._embedding

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        index: PrivateIndex | Spec | None = None,
        **options: Any,
    ) -> PrivateVectorStore:
        """Make a store of texts.

        Parameters
        ----------
        texts, metadatas, ids
            As for :meth:`add_texts`.
        embedding : Embeddings
            What turns texts into vectors.
        index : PrivateIndex or Spec
            Where codes go.
        **options
            Further parameters of the class.

        Raises
        ------
        InputError
            Without an index or a spec, which says what is protected.
        """
        if index is None:
            raise InputError(
                "a private store needs index=, an index or a spec that says what is protected, "
                "for example dpindex.Spec('record-cap', dim=384, epsilon=8, "
                "adjacency=dpindex.record())."
            )
        store = cls(embedding, index, **options)
        store.add_texts(texts, metadatas, ids=ids)
        return store

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **options: Any,
    ) -> list[str]:
        """Add texts; this spends the budget of each that is new.

        An id that has the same text already is not released again, and gets the new metadata. An id
        with another text is a second release of that id, refused unless the store allows it.

        Parameters
        ----------
        texts : iterable of n str
        metadatas : list of n dict, optional
        ids : sequence of n str, optional
        **options
            Not used; LangChain's indexing passes a ``batch_size``.

        Returns
        -------
        The ids, which are made where none are given.

        Raises
        ------
        InputError
            If numbers of texts, metadata and ids differ, a text is no str, an id is given twice, an
            id has another text and the store does not allow a release of it, or for another option.
        """
        options.pop("batch_size", None)
        _refuse(options)
        listed = _texts(texts)
        names = _names([None] * len(listed) if ids is None else ids)
        names = [name or str(uuid.uuid4()) for name in names]
        facts = metadatas or [{}] * len(listed)
        if not len(listed) == len(names) == len(facts):
            raise InputError(
                f"{len(listed)} texts need as many ids and as many metadata: got {len(names)} ids "
                f"and {len(facts)} metadata."
            )
        documents: dict[str, Document] = {}
        for name, text, about in zip(names, listed, facts, strict=True):
            if name in documents:
                raise InputError(f"two texts have the id {name!r}; give each its own.", field="ids")
            documents[name] = Document(id=name, page_content=text, metadata=dict(about or {}))
        kept = self._vectors_kept(documents)
        replaced = [name for name in names if name in self.index and name not in kept]
        if replaced and not self._allow_rerelease:
            raise InputError(
                f"{len(replaced)} of these {len(names)} ids have a code of another text, or of one "
                f"whose document is missing, such as id {replaced[0]!r}: another code is a second "
                f"release of that id, and its epsilons add up; if that is meant, make the store "
                f"with allow_rerelease=True."
            )
        self._write(documents, kept, replaced)
        return names

    def _vectors_kept(self, documents: Mapping[str, Document]) -> dict[str, list[float]]:
        """Return the vectors of those documents whose text is the one that is kept already.

        What lacks a vector alone gets it again: its code, if it has one, stays.
        """
        names = list(documents)
        same = []
        for name, old in zip(names, self._documents.mget(names), strict=True):
            if old is not None and old.page_content == documents[name].page_content:
                same.append(name)
        vectors: dict[str, list[float]] = {}
        lost = []
        for name, vector in zip(same, self._vectors.mget(same), strict=True):
            if vector is None:
                lost.append(documents[name])
            else:
                vectors[name] = vector
        if lost:
            vectors.update(self._embedded(lost))
        return vectors

    def _embedded(self, documents: Sequence[Document]) -> dict[str, list[float]]:
        """Compute the vectors of documents, and keep them."""
        vectors = self._computed(documents)
        self._vectors.mset(list(vectors.items()))
        return vectors

    def _computed(self, documents: Sequence[Document]) -> dict[str, list[float]]:
        texts = [document.page_content for document in documents]
        ids = [document.id or "" for document in documents]
        return dict(zip(ids, self._embedding.embed_documents(texts), strict=True))

    def _write(
        self,
        documents: Mapping[str, Document],
        kept: Mapping[str, list[float]],
        replaced: list[str],
    ) -> None:
        """Write vectors, documents and codes, in an order that may end anywhere and be repeated.

        A code is there only with its document, and a document only with its own vector: each step
        keeps that true. So a text that is kept without a code has the vector that was to be
        released, and the same call goes on with that.
        """
        fresh = [document for name, document in documents.items() if name not in kept]
        vectors = {}
        if fresh:
            vectors = self._computed(fresh)
        self._forget_codes(replaced)
        self._documents.mdelete(list(vectors))
        self._vectors.mset(list(vectors.items()))
        self._documents.mset(list(documents.items()))
        vectors.update(kept)
        released = [name for name in documents if name not in self.index]
        if released:
            self.index.add(
                np.array([vectors[name] for name in released]),
                released,
                ledger=self._ledger,
                allow_rerelease=self._allow_rerelease and self._ledger is not None,
            )

    def _forget_codes(self, ids: list[str]) -> None:
        """Remove codes from the index, and from its folder if a ledger counts what is there."""
        if not ids:
            return
        self.index.remove(ids)
        if self._ledger is not None and self.index.path is not None:
            self.index.save(self.index.path)

    def delete(
        self, ids: Sequence[str] | str | None = None, *, delete_all: bool = False, **options: Any
    ) -> bool:
        """Delete documents, their vectors and their codes.

        A code that was saved or published before stays with whoever has it. With a ledger the
        folder of the index is brought up to date.

        Parameters
        ----------
        ids : str or sequence of str, optional
            Ids that are not there are passed over.
        delete_all : bool
            Delete everything; then without ``ids``.
        **options
            There are none: each is refused.

        Raises
        ------
        InputError
            Without ids, unless everything is to be deleted, and for any other option, such as a
            filter; nothing is deleted then.
        """
        _refuse(options)
        if delete_all is not (ids is None):
            raise InputError("delete takes the ids to delete; delete_all=True deletes everything.")
        coded = set(self.index)
        if ids is None:
            ids = [*coded.union(self._vectors.yield_keys())]
        names = _names(ids)
        # The reverse of an addition. Of what failed before, the rest goes now.
        self._forget_codes([name for name in dict.fromkeys(names) if name in coded])
        self._documents.mdelete(names)
        self._vectors.mdelete(names)
        return True

    def repair(self) -> Repairs:
        """Compute vectors that are missing again, and tell what else is missing; releases nothing.

        >>> import dpindex as dpi
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langchain_core.stores import InMemoryStore
        >>> spec = dpi.Spec("record-cap", dim=16, k=64, epsilon=8.0, adjacency=dpi.record())
        >>> vectors = InMemoryStore()
        >>> store = PrivateVectorStore(DeterministicFakeEmbedding(size=16), spec, vectors=vectors)
        >>> store.add_texts(["a cat", "a dog"], ids=["1", "2"])
        ['1', '2']
        >>> vectors.mdelete(["2"])
        >>> store.repair()
        Repairs(mended=['2'], without_document=[], without_code=[])
        """
        coded = list(self.index)
        has_code = set(coded)
        documents = dict(zip(coded, self._documents.mget(coded), strict=True))
        vectors = dict(zip(coded, self._vectors.mget(coded), strict=True))
        lost = []
        for name, document in documents.items():
            if document is not None and vectors[name] is None:
                lost.append(document)
        mended = {}
        if lost:
            mended = self._embedded(lost)
        uncoded = {*self._vectors.yield_keys(), *self._documents.yield_keys()} - has_code
        return Repairs(
            mended=list(mended),
            without_document=[name for name in coded if documents[name] is None],
            without_code=sorted(uncoded),
        )

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return the documents of some ids, as far as there are any with a code.

        Parameters
        ----------
        ids : str or sequence of str
        """
        names = [name for name in _names(ids) if name in self.index]
        documents = self._documents.mget(names)
        return [document for document in documents if document is not None]

    def similarity_search(
        self, query: str, k: int = 4, *, filter: DocumentFilter | None = None, **options: Any
    ) -> list[Document]:
        """Return the documents nearest to a text, best first.

        Parameters
        ----------
        query : str
        k : int
            Documents wanted, [1, ∞).
        filter : callable, optional
            From a document to whether it counts.
        **options
            There are none: each is refused.

        Raises
        ------
        InputError
            For k < 1, a filter that is no function, another option, and if the store has no
            document or no vector of any code that was found.
        """
        _refuse(options)
        return self.similarity_search_by_vector(
            self._embedding.embed_query(query), k, filter=filter
        )

    def similarity_search_with_score(
        self, query: str, k: int = 4, *, filter: DocumentFilter | None = None, **options: Any
    ) -> ScoredDocuments:
        """Return the documents nearest to a text with their exact cosines, best first.

        Parameters
        ----------
        query : str
        k : int
            Documents wanted, [1, ∞).
        filter : callable, optional
            From a document to whether it counts.
        **options
            There are none: each is refused.

        Raises
        ------
        InputError
            For k < 1, a filter that is no function, another option, and if the store has no
            document or no vector of any code that was found.
        """
        _refuse(options)
        return self._search(self._embedding.embed_query(query), k, filter)

    def similarity_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        *,
        filter: DocumentFilter | None = None,
        **options: Any,
    ) -> list[Document]:
        """Return the documents nearest to a vector, best first.

        Parameters
        ----------
        embedding : list of float
        k : int
            Documents wanted, [1, ∞).
        filter : callable, optional
            From a document to whether it counts.
        **options
            There are none: each is refused.

        Raises
        ------
        InputError
            For k < 1, a filter that is no function, another option, and if the store has no
            document or no vector of any code that was found.
        """
        _refuse(options)
        return [document for document, _ in self._search(embedding, k, filter)]

    def max_marginal_relevance_search(
        self,
        query: str,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        *,
        filter: DocumentFilter | None = None,
        **options: Any,
    ) -> list[Document]:
        """Return documents near to a text and unlike each other.

        Parameters
        ----------
        query : str
        k : int
            Documents wanted, [1, ∞).
        fetch_k : int
            Nearest documents that they are chosen from.
        lambda_mult : float
            Weight of nearness against variety, [0, 1].
        filter : callable, optional
            From a document to whether it counts.
        **options
            There are none: each is refused.

        Raises
        ------
        InputError
            For k < 1, a filter that is no function, another option, and if the store has no
            document or no vector of any code that was found.
        """
        _refuse(options)
        vector = self._embedding.embed_query(query)
        return self.max_marginal_relevance_search_by_vector(
            vector, k, fetch_k, lambda_mult, filter=filter
        )

    def max_marginal_relevance_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        *,
        filter: DocumentFilter | None = None,
        **options: Any,
    ) -> list[Document]:
        """Return documents near to a vector and unlike each other.

        Parameters
        ----------
        embedding : list of float
        k : int
            Documents wanted, [1, ∞).
        fetch_k : int
            Nearest documents that they are chosen from.
        lambda_mult : float
            Weight of nearness against variety, [0, 1].
        filter : callable, optional
            From a document to whether it counts.
        **options
            There are none: each is refused.

        Raises
        ------
        InputError
            For k < 1, a filter that is no function, another option, and if the store has no
            document or no vector of any code that was found.
        """
        _refuse(options)
        at_least_one(fetch_k, "fetch_k")
        at_least_one(k, "k")
        near = [document for document, _ in self._search(embedding, fetch_k, filter)]
        vectors = self._vectors_of([document.id or "" for document in near]).tolist()
        chosen = maximal_marginal_relevance(np.array(embedding), vectors, lambda_mult, k)
        return [near[place] for place in chosen]

    def _search(
        self, vector: list[float], k: int, filter_: DocumentFilter | None
    ) -> ScoredDocuments:
        """Return documents and similarities: the codes choose, the application's vectors order."""
        k = at_least_one(k, "k")
        ids = self._allowed(filter_)
        if len(self.index) == 0 or ids == []:
            return []
        count = max(k, self.candidates)
        hits = self.index.search(
            np.array([vector]),
            count,  # of one query alone: a private one is not asked a second time
            self._query,
            filter=ids,
            candidates=count,
            rerank=self._vectors_of,
        )
        names = hits.ids[0]
        has_vector = hits.exact[0]
        similarities = hits.scores[0][has_vector]
        if self.index.metric == "l2":
            similarities = -similarities
        ordered = list(zip(names[has_vector].tolist(), similarities.tolist(), strict=True))
        lacking = names[~has_vector].tolist()
        found: ScoredDocuments = []
        for block in row_blocks(len(ordered), k):
            documents = self._documents.mget([name for name, _ in ordered[block]])
            for document, (name, similarity) in zip(documents, ordered[block], strict=True):
                if document is None:
                    lacking.append(name)
                else:
                    found.append((document, similarity))
            if len(found) >= k:
                break
        if lacking:
            _report(lacking, found)
        return found[:k]

    def _allowed(self, filter_: DocumentFilter | None) -> list[str] | None:
        """Return the ids of documents that a filter keeps; None without one."""
        if filter_ is None:
            return None
        if not callable(filter_):
            raise InputError(
                "filter is a function of a document, such as lambda one: one.metadata['year'] > "
                "2020: metadata are not published, so the index cannot compare them.",
                field="filter",
            )
        names = self.index.ids.tolist()
        allowed = []
        for name, document in zip(names, self._documents.mget(names), strict=True):
            if document and filter_(document):
                allowed.append(name)
        return allowed

    def _vectors_of(self, ids: Sequence[str]) -> Doubles:
        """Return the application's vectors of these ids, shape (n, dim); NaN for a missing one."""
        vectors = np.full((len(ids), self.index.spec.dim), np.nan)
        for row, vector in enumerate(self._vectors.mget(list(ids))):
            if vector is not None:
                vectors[row] = vector
        return vectors

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        """Return what turns a cosine into a relevance in [0, 1]."""
        return lambda cosine: min(1.0, max(0.0, cosine))


def _refuse(options: Mapping[str, Any]) -> None:
    """Raise InputError for options that mean nothing here: left out, they could mean anything."""
    if options:
        raise InputError(f"this store has no option {min(options)!r}; leave it out.")


def _texts(texts: Iterable[str]) -> list[str]:
    """Return texts as a list; InputError for one text alone, whose letters would be texts."""
    if isinstance(texts, str):
        raise InputError("texts is one text; put it in a list.", field="texts")
    listed = list(texts)
    for place, text in enumerate(listed):
        if not isinstance(text, str):
            raise InputError(f"text {place} is of type {type(text).__name__}, not str.")
    return listed


def _names(ids: Any) -> list[Any]:
    """Return ids as strings, also a single one and those of NumPy; None where there is none."""
    if isinstance(ids, str | bytes | int | np.integer | uuid.UUID):
        ids = [ids]
    return [one if one is None else str(one) for one in ids]


def _report(lacking: list[str], found: ScoredDocuments) -> None:
    """Warn of ids without a document or a vector; InputError if nothing else was found."""
    sentence = (
        f"the stores lack the document or the vector of {len(lacking)} codes that were found, such "
        f"as id {lacking[0]!r}"
    )
    if not found:
        raise InputError(
            f"{sentence}: give the documents= and vectors= that were filled with this index, which "
            f"must be kept; repair() of the store tells what is missing."
        )
    warnings.warn(
        f"{sentence}; they are left out. repair() of the store tells which, and mends what it can.",
        stacklevel=4,
    )
