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
from helpers.common import codes_of, record_spec, refuses

import dpindex as dpi
from dpindex.integrations.collector import Accepted, Collector, Submission

DIM = 32
OLD = 50
RNG = np.random.default_rng(0)
X = RNG.normal(size=(OLD + 10, DIM))
X /= np.linalg.norm(X, axis=1, keepdims=True)
ONE = dpi.attribute(1.0)
SPECS = {
    "signs": dpi.Spec("dp-signrp-rr", DIM, k=124, epsilon=60.0, norm=1.0, adjacency=ONE),
    "numbers": dpi.Spec("dp-oporp-staircase", DIM, k=32, epsilon=20.0, norm=1.0, adjacency=ONE),
    "symbols": record_spec("record-codebook", DIM, epsilon=8.0,
                        codebook=dpi.Codebook(RNG.normal(size=(50, DIM)))),
}  # fmt: skip
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
        assert accepted.add([Submission(codes, np.array(["a", "b"]))], []) == ["stored"]
        accepted.close()

    def test_codes_are_collected(self, opened, filled, tmp_path):
        codes = codes_of(filled.spec, X[OLD:])
        index, save = opened()
        with Collector(index, tmp_path / "log", save) as collector:
            outcomes = [
                collector.submit(Submission(codes.take(slice(i, i + 1)), np.array([name]), key))
                for i, (name, key) in enumerate(
                    [("it's new", 32 * b"1"), ("new1", None), ("old3", None), ("it's new", None)]
                )
            ]
            again = Submission(
                codes.take(slice(0, 1)),
                np.array(["it's new"]),
                32 * b"1",
            )
            assert [outcome.result(600) for outcome in outcomes] == [
                *("stored", "stored", "taken", "taken")
            ]
            assert collector.submit(again).result(600) == "repeated"
        index, save = opened()
        with Collector(index, tmp_path / "log", save) as collector:
            assert collector.submit(again).result(600) == "repeated"
        assert len(index) == OLD + 2
        assert np.array_equal(index["it's new"].stored, codes.stored[:1])
        hits = index.search(X[OLD : OLD + 1], OLD + 2, "exact")
        assert "it's new" in hits.ids
        years = dict(zip(hits.ids[0].tolist(), hits.payload["year"].to_pylist(), strict=True))
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
        if not np.array_equal(other.stored[0], codes.stored[0]):
            with refuses("with another code"):
                Collector(index, tmp_path / "log", save)
