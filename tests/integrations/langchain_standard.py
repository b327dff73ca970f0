"""LangChain's own tests of vector stores, which ``test_langchain.py`` runs."""

from __future__ import annotations

import pytest
from langchain_tests.integration_tests import VectorStoreIntegrationTests

import dpindex as dpi
from dpindex.integrations.langchain import PrivateVectorStore


class TestPrivate(VectorStoreIntegrationTests):
    """Private codes choose candidates, so that even tests of exact orders pass."""

    @pytest.fixture
    def vectorstore(self):
        embedding = self.get_embeddings()
        spec = dpi.Spec("record-cap", dim=6, k=64, epsilon=8.0, adjacency=dpi.record())
        return PrivateVectorStore(embedding, spec, allow_rerelease=True)
