"""Each database keeps the contract, and an address names the right one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from database_contract import DatabaseContract
from lite import LITE, PLACES, address

import dpindex as dpi
from dpindex.integrations.database import PLACES as ADAPTERS
from dpindex.integrations.database import Database, open_database


class TestEachDatabase(DatabaseContract):
    pytestmark = LITE

    @pytest.fixture(params=PLACES)
    def database(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
        made = open_database(address(tmp_path, request.param), "books", new=True)
        yield made
        made.close()


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An address of a database that is a file and a row, as CONTRIBUTING says."""
    monkeypatch.setitem(ADAPTERS, r"toy://.*", "toy_database.Toy")
    return f"toy://{tmp_path}"


class TestToy(DatabaseContract):
    @pytest.fixture
    def database(self, toy: str) -> Database:
        return open_database(toy, "books")


def test_a_new_database_is_a_file_and_a_row(toy: str) -> None:
    spec = dpi.Spec("dp-oporp-staircase", 16, k=8, epsilon=8.0, adjacency=dpi.attribute(1.0))
    index = dpi.PrivateIndex(spec)
    x = np.random.default_rng(0).uniform(-1, 1, (60, 16))
    index.add(x, payload={"year": list(range(60))})
    dpi.publish(index, toy, "books")
    served = dpi.open(toy, "books")
    assert isinstance(served, dpi.PublishedIndex)
    found = served.search(x[:5], 3, "exact", filter="year < 40")
    assert found.ids.tolist() == index.search(x[:5], 3, filter="year < 40").ids.tolist()
    assert repr(served) == "<PublishedIndex: 60 codes, dp-oporp-staircase, cosine>"
