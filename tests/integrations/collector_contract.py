"""What an index behind a collector must do: subclass :class:`CollectorContract`.

    class TestMine(CollectorContract):
        @pytest.fixture
        def opened(self, tmp_path, filled):
            return lambda: mine(tmp_path, filled)

``opened`` makes the index with the codes of ``filled`` when it is called first, and opens it again
later; it gives the index and what saves it.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.common import attribute_spec, codes_of, record_spec, refuses, unit

import dpindex as dpi
from dpindex.integrations.collector import Accepted, Collector, Submission

DIM = 32
OLD = 50
RNG = np.random.default_rng(0)
X = unit(RNG.normal(size=(OLD + 10, DIM)))
BOOK = dpi.Codebook(RNG.normal(size=(50, DIM)))
SPECS = {
    "signs": attribute_spec("dp-signrp-rr", DIM, k=124, epsilon=60.0, norm=1.0),
    "numbers": attribute_spec("dp-oporp-staircase", DIM, k=32, epsilon=20.0, norm=1.0),
    "symbols": record_spec("record-codebook", DIM, epsilon=8.0, codebook=BOOK),
}
Opened = Callable[[], tuple[Any, Callable[[], object]]]


class CollectorContract:
    """Codes are accepted once, under one id each, durably, and searches find them."""

    @pytest.fixture(params=SPECS)
    def filled(self, request):
        index = dpi.PrivateIndex(SPECS[request.param])
        names = [f"old{i}" for i in range(OLD)]
        index.add(X[:OLD], names, payload={"year": [1999] * OLD})
        return index

    def left_over(self, folder, codes):
        """Leave two codes as a collector that was killed leaves them."""
        accepted = Accepted(folder / "log")
        group = [Submission(codes, np.array(["a", "b"]))]
        assert accepted.add(group, []) == ["stored"]
        accepted.close()

    def test_codes_are_collected(self, opened, filled, tmp_path):
        codes = codes_of(filled.spec, X[OLD:])

        receipt = 32 * b"1"

        def submit(row, name, key=None):
            code = codes.take(slice(row, row + 1))
            return collector.submit(Submission(code, np.array([name]), key))

        index, save = opened()
        with Collector(index, tmp_path / "log", save) as collector:
            outcomes = [
                submit(0, "it's new", receipt),
                submit(1, "new1"),
                submit(2, "old3"),
                submit(3, "it's new"),
            ]
            said = [outcome.result(600) for outcome in outcomes]
            assert said == ["stored", "stored", "taken", "taken"]
            assert submit(0, "it's new", receipt).result(600) == "repeated"
        index, save = opened()
        with Collector(index, tmp_path / "log", save) as collector:
            assert submit(0, "it's new", receipt).result(600) == "repeated"
        assert len(index) == OLD + 2
        assert np.array_equal(index["it's new"].stored, codes.stored[:1])
        hits = index.search(X[OLD : OLD + 1], OLD + 2, "exact")
        ids = hits.ids[0].tolist()
        years = dict(zip(ids, hits.payload["year"].to_pylist(), strict=True))
        assert years["it's new"] is None
        assert years["old0"] == 1999

    def test_what_a_killed_collector_accepted_is_put_there_once(self, opened, filled, tmp_path):
        codes = codes_of(filled.spec, X[OLD : OLD + 2])
        for _ in range(2):  # the second time it is there already
            self.left_over(tmp_path, codes)
            index, save = opened()
            with Collector(index, tmp_path / "log", save):
                pass
            assert len(opened()[0]) == OLD + 2
        other = codes_of(filled.spec, -X[OLD : OLD + 2])
        self.left_over(tmp_path, other)
        index, save = opened()
        if (other.stored[0] != codes.stored[0]).any():
            with refuses("with another code"):
                Collector(index, tmp_path / "log", save)
