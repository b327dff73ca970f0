"""Each database keeps the contract, and an address names the right one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from database_contract import DatabaseContract
from lite import LITE, PLACES, address

from dpindex.integrations.database import Database
from dpindex.integrations.published import open_database

pytestmark = LITE


class TestEachDatabase(DatabaseContract):
    @pytest.fixture(params=PLACES)
    def database(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
        made = open_database(address(tmp_path, request.param), "books", new=True)
        yield made
        made.close()
