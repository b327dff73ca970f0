"""LangChain's own tests of vector stores, which ``test_langchain.py`` runs."""

import pytest
from helpers.common import record_spec
from langchain_tests.integration_tests import VectorStoreIntegrationTests

from dpindex.integrations.langchain import PrivateVectorStore


class TestPrivate(VectorStoreIntegrationTests):
    """Private codes choose candidates, so that even tests of exact orders pass."""

    @pytest.fixture
    def vectorstore(self):
        embedding = self.get_embeddings()
        spec = record_spec("record-cap", 6, k=64, epsilon=8.0)
        return PrivateVectorStore(embedding, spec, allow_rerelease=True)
