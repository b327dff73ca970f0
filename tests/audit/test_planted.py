"""What a third hostile reader planted and nothing noticed ("Planted weaknesses", issue 36)."""

import numpy as np
import pytest
from helpers.common import record_spec

from dpindex.base.errors import BusyError
from dpindex.data import one_per_person
from dpindex.data.ranges import Ranges
from dpindex.mechanism.privatizer import Privatizer
from dpindex.storage.journal import BucketJournal


def test_persons_with_long_names_are_told_apart():
    """Persons whose names begin alike were one person, released under one code."""
    names = [f"family-name-of-many-letters-{i}" for i in (1, 2, 1)]
    vectors, persons = one_per_person([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], names)
    assert persons.tolist() == names[:2]
    assert vectors.tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_ranges_of_numbered_columns_keep_their_order(tmp_path):
    """Column 10 lay before column 2 where numbers were sorted as text."""
    count = 12
    lines = [f"{i},0,{2**i}" for i in reversed(range(count))]
    text = "\n".join(["column,low,high", *lines])
    (tmp_path / "ranges.csv").write_text(text)
    ranges = Ranges.read(tmp_path / "ranges.csv")
    assert ranges.columns == tuple(map(str, range(count)))
    highs = 2.0 ** np.arange(count)[None, :]
    assert ranges.scale(highs).tolist() == [[1.0] * count]


@pytest.mark.slow
def test_a_private_store_asks_privately(monkeypatch):
    """Each question of a private store of texts is privatized; of an exact one, none is."""
    langchain = pytest.importorskip("dpindex.integrations.langchain")
    embeddings = pytest.importorskip("langchain_core.embeddings")
    spec = record_spec("record-cap", 6, k=64, epsilon=8.0)
    privatized = []
    original = Privatizer.privatize

    def counted(coder, x, *how, **named):
        privatized.append(x)
        return original(coder, x, *how, **named)

    for query in ("private", "exact"):
        embedding = embeddings.DeterministicFakeEmbedding(size=6)
        store = langchain.PrivateVectorStore(embedding, spec, query=query)
        store.add_texts(["one", "two", "three"])
        with monkeypatch.context() as patch:
            patch.setattr(Privatizer, "privatize", counted)
            privatized.clear()
            store.similarity_search("one", 1)
        assert len(privatized) == (query == "private")


class Kept:
    """A bucket in memory."""

    location = "memory"

    def __init__(self):
        self.objects = {}

    def create(self, name, data):
        return self.objects.setdefault(name, data) == data

    def refuse_overwriting(self, name, data):
        """It creates once."""

    def read(self, name, max_bytes):
        return self.objects.get(name)

    def sizes(self):
        return {name: len(data) for name, data in self.objects.items()}

    def remove(self, names):
        for name in names:
            self.objects.pop(name, None)


def test_one_store_is_claimed_by_one_build(tmp_path):
    bucket = Kept()
    first = BucketJournal(tmp_path / "a.unpublished", bucket)
    second = BucketJournal(tmp_path / "b.unpublished", bucket)
    with first.held(), second.held():
        first.begin({})
        with pytest.raises(BusyError, match="another private folder"):
            second.begin({})
