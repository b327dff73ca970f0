"""A vector store of LangChain: what it finds and spends, and what stays with the application."""

import asyncio
import os
from pathlib import Path

import numpy as np
import pytest
from helpers.common import all_bytes, counted, folded, python, record_spec, refuses, top, unit

import dpindex as dpi

pytest.importorskip("langchain_core")

import langchain_notes
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.stores import InMemoryStore

from dpindex.integrations.langchain import PrivateVectorStore

DIM = 16
EMBEDDING = DeterministicFakeEmbedding(size=DIM)
TEXTS = [f"text {i}" for i in range(40)]
PRIVATE = record_spec("record-cap", DIM, k=64, epsilon=8.0)


def made(**options):
    return PrivateVectorStore(EMBEDDING, PRIVATE, **options)


def filled(**options):
    store = made(**options)
    rows = range(len(TEXTS))
    topics = [{"topic": row % 4} for row in rows]
    store.add_texts(TEXTS, topics, ids=[str(row) for row in rows])
    return store


def contents(documents):
    return [document.page_content for document in documents]


def search(store, text, count=1):
    """The texts that a search finds."""
    return contents(store.similarity_search(text, count))


@pytest.mark.slow
@pytest.mark.extra
def test_langchains_own_tests(monkeypatch):
    """In a process of their own, as they bring plugins of pytest that the others do without."""
    pytest.importorskip("langchain_tests", reason="needs pip install langchain-tests")
    file = Path(__file__).with_name("langchain_standard.py")
    changed = ("addopts=", "filterwarnings=", "asyncio_mode=auto")
    options = ["-q", "-p", "no:cacheprovider", *(f"--override-ini={one}" for one in changed)]
    for name in [name for name in os.environ if "PYTEST" in name]:
        monkeypatch.delenv(name)
    assert "passed" in python("-m", "pytest", *options, file)


def test_answers_are_ordered_by_the_applications_vectors():
    store = filled()
    vectors = unit(np.array(EMBEDDING.embed_documents(TEXTS)))
    query = np.array(EMBEDDING.embed_query("text 7"))
    cosines = vectors @ query / np.linalg.norm(query)
    expected = top(cosines[None], 5)[0]
    found = store.similarity_search_with_score("text 7", 5)
    texts = contents([document for document, _ in found])
    scores = [score for _, score in found]
    assert texts == [TEXTS[i] for i in expected]
    np.testing.assert_allclose(scores, cosines[expected], atol=1e-9)
    assert contents(store.similarity_search_by_vector(query.tolist(), 5)) == texts
    retriever = store.as_retriever(search_kwargs={"k": 2})
    assert contents(retriever.invoke("text 7")) == texts[:2]
    later = store.asimilarity_search("text 7", 1)
    assert contents(asyncio.run(later)) == ["text 7"]


def test_private_queries_and_filters():
    store = filled(query="private")
    assert search(store, "text 9") == ["text 9"]
    of_topic = store.similarity_search(
        "text 9",
        20,
        filter=lambda one: one.metadata["topic"] == 2,
    )
    assert len(of_topic) == 10
    assert {document.metadata["topic"] for document in of_topic} == {2}
    assert store.similarity_search("text 9", 3, filter=lambda one: False) == []


def test_unlike_answers():
    store = filled()
    store.add_texts(["text 7", "text 7"], ids=["twin", "triplet"])
    near = search(store, "text 7", 3)
    unlike = contents(store.max_marginal_relevance_search("text 7", 3, lambda_mult=0.1))
    assert near == ["text 7"] * 3
    assert unlike[0] == "text 7"
    assert len(set(unlike)) == 3


def booked(folder, **options):
    """A store whose index has a folder, as a ledger wants."""
    ledger = dpi.Ledger(folder / "ledger")
    index = dpi.PrivateIndex(PRIVATE)
    index.save(folder / "index")
    return PrivateVectorStore(EMBEDDING, index, ledger=ledger, **options), ledger


def test_the_same_text_is_released_once(tmp_path):
    store, ledger = booked(tmp_path)
    store.add_texts(["a", "b"], ids=["1", "2"])
    before = store.index["1"].to_bytes()
    store.add_texts(["a"], [{"read": True}], ids=["1"])
    assert store.index["1"].to_bytes() == before
    (document,) = store.get_by_ids(["1"])
    assert document.metadata == {"read": True}
    assert ledger.totals(["1"])[0].releases == 1
    with refuses("second release.* make the store with allow_rerelease=True"):
        store.add_texts(["changed"], ids=["1"])
    assert contents(store.get_by_ids(["1"])) == ["a"]


def test_another_text_is_a_release_that_is_booked(tmp_path):
    store, ledger = booked(tmp_path, allow_rerelease=True)
    store.add_texts(["a", "b"], ids=["1", "2"])
    store.add_texts(["changed"], ids=["1"])
    assert ledger.totals(["1"])[0].releases == 2
    assert ledger.totals(["2"])[0].releases == 1
    assert search(store, "changed") == ["changed"]


def test_texts_and_vectors_stay_with_the_application(tmp_path):
    documents = InMemoryStore()
    vectors = InMemoryStore()
    store = filled(documents=documents, vectors=vectors)
    store.index.save(tmp_path / "index")
    published = all_bytes(tmp_path / "index")
    assert b"text 7" not in published
    assert b"topic" not in published
    assert not store.index.payload_columns  # nor is anything computed from the vectors published
    opened = dpi.open(tmp_path / "index")
    again = PrivateVectorStore(EMBEDDING, opened, documents=documents, vectors=vectors)
    assert search(again, "text 7") == ["text 7"]
    again.delete(["7"])
    assert "7" not in opened
    assert vectors.mget(["7"]) == [None]
    left = Document(id="8", page_content="text 8", metadata={"topic": 0})
    assert again.get_by_ids(["7", "8"]) == [left]
    again.delete(delete_all=True)
    assert len(opened) == 0
    assert again.similarity_search("text 8") == []


def test_a_store_from_texts_says_what_it_needs():
    store = PrivateVectorStore.from_texts(["a", "b"], EMBEDDING, index=PRIVATE)
    store.candidates = 50
    assert search(store, "b") == ["b"]
    with refuses("needs index="):
        PrivateVectorStore.from_texts(["a"], EMBEDDING)
    with refuses("as many ids"):
        store.add_texts(["a", "b"], ids=["1"])
    relevance = store.similarity_search_with_relevance_scores("a", 2)
    assert all(0.0 <= score <= 1.0 for _, score in relevance)


@folded(
    "texts, options, words",
    [
        ("one text", {}, "texts is one text; put it in a list"),
        (["a", None], {}, "text 1 is of type NoneType, not str"),
        (["a", "b"], {"ids": ["1", "1"]}, "two texts have the id '1'"),
    ],
)
def test_texts_that_cannot_be_meant_release_nothing(texts, options, words):
    store = made()
    with refuses(words):
        store.add_texts(texts, **options)
    assert len(store.index) == 0
    assert store.add_texts(["a"], [None]) == list(store.index)


@folded("count", [0, -1, 2.5])
def test_less_than_one_document_is_refused(count):
    store = filled()
    for method in (store.similarity_search, store.max_marginal_relevance_search):
        with refuses("k must be a whole number of at least 1"):
            method("text 7", k=count)
    with refuses("fetch_k must be a whole number of at least 1"):
        store.max_marginal_relevance_search("text 7", fetch_k=count)


def test_a_store_takes_an_index_or_what_makes_one():
    with refuses("needs a Spec or a plan, not str"):
        PrivateVectorStore(EMBEDDING, "notes-index")


def test_a_filter_that_is_a_dict_is_refused_in_words():
    with refuses("filter is a function of a document"):
        filled().similarity_search("text 7", 1, filter={"topic": 2})


def test_the_example_finds_after_it_was_closed(tmp_path, monkeypatch, capsys):
    notes = tmp_path / "notes"
    for line in (["Ann has asthma.", "Bob plays chess."], ["Cleo moved."], []):
        asked = line or ["--find", "Bob plays chess."]
        monkeypatch.setattr("sys.argv", ["langchain_notes", str(notes), *asked])
        langchain_notes.main()
    assert capsys.readouterr().out.startswith("1.00 Bob plays chess.\n")
    ledger = dpi.Ledger(notes / "ledger")
    assert counted(ledger) == [(3, 1)]
    published = all_bytes(notes / "index")
    assert b"chess" not in published


@folded("ids", ["12", ["12"], np.array(["12"]), ("12",), [np.str_("12")], 12])
def test_a_single_id_and_ids_of_numpy_are_ids(ids):
    store = made()
    store.add_texts(["a", "b", "c"], ids=np.array(["1", "2", "12"]))
    assert contents(store.get_by_ids(ids)) == ["c"]
    assert store.delete(ids)
    assert store.index.ids.tolist() == ["1", "2"]
    assert contents(store.get_by_ids(["1", "2", "12"])) == ["a", "b"]


@folded(
    "options",
    [
        {},
        {"where": "topic == 1"},
        {"ids": ["1"], "nonsense": 1},
        {"ids": ["1"], "delete_all": True},
        {"delete_all": False},
    ],
)
def test_an_option_that_is_not_known_deletes_nothing(options):
    store = filled()
    with refuses(r"has no option|takes the ids to delete"):
        store.delete(**options)
    assert len(store.index) == 40
    assert store.delete([])
    assert len(store.index) == 40


def test_no_method_takes_an_option_that_it_does_not_have():
    store = filled()
    query = EMBEDDING.embed_query("text 7")
    calls = [
        lambda: store.similarity_search("text 7", where="topic == 1"),
        lambda: store.similarity_search_with_score("text 7", 1, nonsense=1),
        lambda: store.similarity_search_by_vector(query, 1, where="topic == 1"),
        lambda: store.max_marginal_relevance_search("text 7", where="topic == 1"),
        lambda: store.max_marginal_relevance_search_by_vector(query, where="topic == 1"),
        lambda: store.add_texts(["a"], namespace="mine"),
    ]
    for call in calls:
        with refuses("has no option"):
            call()
    store.add_documents([Document("b", id="b")], batch_size=100)  # as LangChain's indexing does
    assert "b" in store.index
