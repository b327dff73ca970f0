"""A vector store for LangChain: codes go to the index, texts and metadata stay here."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from dpindex.accounting.ledger import Ledger
from dpindex.base.arrays import Doubles
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

__all__ = ["PrivateVectorStore"]

DocumentFilter: TypeAlias = Callable[[Document], bool]
ScoredDocuments: TypeAlias = list[tuple[Document, float]]


class PrivateVectorStore(VectorStore):
    """A LangChain vector store whose index holds private codes only.

    The index may be saved, published and given away. Texts, metadata and vectors stay with the
    application, in the stores that it names. Searches take candidates from the codes, and order
    them by the application's own vectors.

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
        Where releases are written down first; it needs an index that has a folder.
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
        self.index = PrivateIndex(index) if isinstance(index, Spec) else index
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
            Not used.

        Returns
        -------
        The ids, which are made where none are given.

        Raises
        ------
        InputError
            If numbers of texts, metadata and ids differ, an id stands twice, or an id has another
            text and the store does not allow a release of it.
        """
        listed = list(texts)
        given = ids or [None] * len(listed)
        names = [name or str(uuid.uuid4()) for name in given]
        facts = metadatas or [{}] * len(listed)
        if not len(listed) == len(names) == len(facts) == len(set(names)):
            raise InputError(
                f"{len(listed)} texts need as many ids, each another, and as many metadata: got "
                f"{len(names)} ids and {len(facts)} metadata."
            )
        documents = {}
        for name, text, about in zip(names, listed, facts, strict=True):
            documents[name] = Document(id=name, page_content=text, metadata=dict(about))
        changed = {}
        for name, old in zip(names, self._documents.mget(names), strict=True):
            text = documents[name].page_content
            if name not in self.index or old is None or old.page_content != text:
                changed[name] = text
        if changed:
            self._release(changed)
        self._documents.mset(list(documents.items()))
        return names

    def _release(self, texts: dict[str, str]) -> None:
        """Privatize texts by id into the index, and keep their vectors."""
        ids = list(texts)
        vectors = self._embedding.embed_documents(list(texts.values()))
        self.index.add(
            np.array(vectors),
            ids,
            upsert=True,
            ledger=self._ledger,
            allow_rerelease=self._allow_rerelease,
        )
        self._vectors.mset(list(zip(ids, vectors, strict=True)))

    def delete(self, ids: list[str] | None = None, **options: Any) -> bool:
        """Delete documents, their vectors and their codes.

        A code that was saved or published before stays with whoever has it.

        Parameters
        ----------
        ids : list of str, optional
            Ids that are not there are passed over; default all.
        **options
            Not used.
        """
        present = self.index.ids.tolist()
        if ids is not None:
            present = [name for name in present if name in set(ids)]
        if present:
            self.index.remove(present)
            self._documents.mdelete(present)
            self._vectors.mdelete(present)
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return the documents of some ids, as far as there are any.

        Parameters
        ----------
        ids : sequence of str
        """
        documents = self._documents.mget(list(ids))
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
            Not used.
        """
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
            Not used.
        """
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
            Not used.
        """
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
            Not used.
        """
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
            Not used.
        """
        near = [document for document, _ in self._search(embedding, fetch_k, filter)]
        ids = [document.id or "" for document in near]
        vectors = self._vectors_of(ids).tolist()
        chosen = maximal_marginal_relevance(np.array(embedding), vectors, lambda_mult, k)
        return [near[place] for place in chosen]

    def _search(
        self, vector: list[float], k: int, filter_: DocumentFilter | None
    ) -> ScoredDocuments:
        """Return documents and similarities: the codes choose, the application's vectors order."""
        ids = self._allowed(filter_)
        if len(self.index) == 0 or ids == []:
            return []
        hits = self.index.search(
            np.array([vector]),
            k,
            self._query,
            filter=ids,
            candidates=max(k, self.candidates),
            rerank=self._vectors_of,
        )
        found = self.get_by_ids(hits.ids[0].tolist())
        return list(zip(found, hits.similarity[0].tolist(), strict=True))

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
        """Return the application's vectors of these ids, shape (n, dim)."""
        vectors = self._vectors.mget(list(ids))
        if missing := sum(vector is None for vector in vectors):
            raise InputError(
                f"the store of vectors lacks {missing} of {len(vectors)} that the index has: give "
                f"the documents= and vectors= that were filled with it, which must be kept."
            )
        return np.array(vectors, np.float64)

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        """Return what turns a cosine into a relevance in [0, 1]."""
        return lambda cosine: min(1.0, max(0.0, cosine))
