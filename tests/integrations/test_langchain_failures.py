"""A vector store of LangChain whose stores fail, forget, and are opened again."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from helpers.common import record_spec, refuses
from hypothesis import settings
from hypothesis import strategies as st

import dpindex as dpi

pytest.importorskip("langchain_core")

from failing_store import STAGES, FailingStore
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.stores import InMemoryStore

from dpindex.integrations.langchain import PrivateVectorStore

DIM = 16
IDS = ["1", "2", "12"]
EMBEDDING = DeterministicFakeEmbedding(size=DIM)
PRIVATE = record_spec("record-cap", DIM, k=64, epsilon=8.0)


class Application:
    """An index with a folder and a ledger, and two stores, as an application keeps them."""

    def __init__(self, folder, **options):
        self.folder = folder
        self.ledger = dpi.Ledger(folder / "ledger")
        self.documents = FailingStore()
        self.vectors = FailingStore()
        self.options = options
        dpi.PrivateIndex(PRIVATE).save(folder / "index")
        self.restart()

    def restart(self):
        """Begin again with what outlives a process."""
        self.store = PrivateVectorStore(
            EMBEDDING,
            dpi.open(self.folder / "index"),
            documents=self.documents,
            vectors=self.vectors,
            ledger=self.ledger,
            **self.options,
        )

    def releases(self, id):
        """How often the ledger counts a release of one id."""
        if not self.ledger.path.exists():  # nothing was released yet
            return 0
        return sum(total.releases for total in self.ledger.totals([id]))


def found(store, text):
    (document,) = store.similarity_search(text, 1)
    return document.page_content


def test_a_search_warns_of_what_a_store_forgot_and_answers_with_the_rest():
    documents = InMemoryStore()
    vectors = InMemoryStore()
    store = PrivateVectorStore(EMBEDDING, PRIVATE, documents=documents, vectors=vectors)
    store.add_texts(["a", "b", "c"], ids=IDS)
    vectors.mdelete(["2"])
    with pytest.warns(UserWarning, match="of 1 codes that were found, such as id '2'"):
        assert found(store, "a") == "a"
    assert store.repair() == (["2"], [], [])
    assert found(store, "b") == "b"
    documents.mdelete(["12"])
    with pytest.warns(UserWarning, match="of 1 codes that were found, such as id '12'"):
        answer = store.similarity_search("c", 3)
    assert sorted(document.page_content for document in answer) == ["a", "b"]
    assert store.repair() == ([], ["12"], [])
    with refuses("whose document is missing, such as id '12'"):
        store.add_texts(["c"], ids=["12"])
    store.delete("12")
    assert store.repair() == ([], [], [])
    documents.mdelete(["1", "2"])
    with refuses(r"of 2 codes that were found, such as id '.': give the documents="):
        store.similarity_search("a", 1)


class Machine(RuleBasedStateMachine):
    """Additions, changes and deletions, of which some fail, and restarts."""

    ids = st.sampled_from(IDS)
    texts = st.sampled_from(["a", "b", "c"])
    stores = st.sampled_from(["documents", "vectors"])
    failures = st.none() | st.tuples(stores, st.integers(1, 3), st.sampled_from(STAGES))

    def __init__(self):
        super().__init__()
        self.temporary = TemporaryDirectory()
        self.application = Application(Path(self.temporary.name), allow_rerelease=True)
        self.texts_by_id = {}
        self.unsure = set()
        self.most_releases = dict.fromkeys(IDS, 0)

    def tried(self, failure, ids, call):
        """Whether a call that may fail was done."""
        if failure is not None:
            which, calls, stage = failure
            getattr(self.application, which).fail(calls, stage)
        try:
            call()
        except ConnectionError:
            self.unsure.update(ids)
            return False
        finally:
            self.application.documents.fail(0)
            self.application.vectors.fail(0)
        self.unsure.difference_update(ids)
        return True

    @rule(id=ids, other=ids, text=texts, failure=failures)
    def add(self, id, other, text, failure):
        wanted = {id: text, other: text}
        ids = list(wanted)
        store = self.application.store
        texts = [text] * len(ids)
        if self.tried(failure, ids, lambda: store.add_texts(texts, ids=ids)):
            for one in ids:
                self.most_releases[one] += 1
            self.texts_by_id.update(wanted)

    @rule(ids=st.lists(ids, unique=True), failure=failures)
    def delete(self, ids, failure):
        store = self.application.store
        if self.tried(failure, ids, lambda: store.delete(ids)):
            for id in ids:
                self.texts_by_id.pop(id, None)

    @rule(failure=failures)
    def delete_all(self, failure):
        store = self.application.store
        if self.tried(failure, IDS, lambda: store.delete(delete_all=True)):
            self.texts_by_id.clear()

    @rule()
    def restart(self):
        self.application.restart()

    @invariant()
    def what_is_certain_is_found(self):
        store = self.application.store
        for id in set(IDS) - self.unsure:
            text = self.texts_by_id.get(id)
            texts = [document.page_content for document in store.get_by_ids([id])]
            assert texts == ([] if text is None else [text])
            assert (id in store.index) is (text is not None)
            assert self.application.releases(id) <= self.most_releases[id]

    @invariant()
    def a_search_never_fails_nor_returns_what_has_no_code(self):
        store = self.application.store
        found = store.similarity_search_with_score("a", 3)
        for document, score in found:
            assert document.id in store.index
            if document.page_content == "a":
                np.testing.assert_allclose(score, 1.0)

    @invariant()
    def documents_and_codes_agree(self):
        mended, without_document, without_code = self.application.store.repair()
        assert not mended
        assert not without_document
        assert self.unsure.issuperset(without_code)

    def teardown(self):
        self.temporary.cleanup()


@pytest.mark.slow
def test_stores_that_fail_and_restarts():
    plan = settings(max_examples=25, stateful_step_count=12, deadline=None)
    run_state_machine_as_test(Machine, settings=plan)
