"""What a search backend must do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from dpindex.base.arrays import AnyArray, Doubles, unit
from dpindex.index.backends import SearchBackend


@dataclass
class BackendCase:
    """A backend, and made vectors with what NumPy finds among them.

    Parameters
    ----------
    backend : SearchBackend
        An empty one.
    metric : str
        What it ranks by: ``"cosine"``, ``"ip"`` or ``"l2"``.
    width : int
        Coordinates of a vector.
    signs : bool
        Whether its items are signs, eight in a byte, which are asked by vectors too.
    in_any_order : bool
        Whether items may come in any pieces: False for a graph, whose links depend on their order.
    least_recall : float
        Share of the ten nearest that a search must find where it is not exact.
    """

    backend: SearchBackend
    metric: str
    width: int = 24
    signs: bool = False
    in_any_order: bool = True
    least_recall: float = 0.0

    def vectors(self, rows: int, seed: int = 0) -> Doubles:
        """Points near a plane of three directions, or their signs."""
        rng = np.random.default_rng(seed)
        plane = np.random.default_rng(99).normal(size=(3, self.width))
        points: Doubles = 0.1 + 0.09 * rng.normal(size=(rows, 3)) @ plane
        points += 0.01 * rng.normal(size=points.shape)
        if self.signs:
            points = np.sign(points + rng.normal(0, 0.2, points.shape))
        return points

    def queries(self, count: int = 40) -> Doubles:
        """Like the vectors; the last is of zeros, where there are zeros."""
        asked = self.vectors(count, seed=9)
        if not self.signs:
            asked[-1] = 0
        return asked

    def items(self, vectors: Doubles) -> AnyArray:
        """What the backend is given."""
        if self.signs:
            return np.packbits(vectors > 0, axis=1, bitorder="little")
        return vectors.astype(np.float32)

    def fill(self, vectors: Doubles) -> SearchBackend:
        """Begin anew, with a sample of every second vector, and add all of them."""
        self.backend.begin(self.items(vectors)[::2])
        self.backend.add(self.items(vectors))
        self.backend.finish()
        return self.backend

    def truth(self, vectors: Doubles, queries: Doubles) -> Doubles:
        """Scores of all vectors, shape (nq, n)."""
        if self.metric == "l2":
            squares: Doubles = ((queries[:, None] - vectors) ** 2).sum(axis=2)
            return -squares
        if self.metric == "cosine" and not self.signs:
            vectors = unit(vectors).astype(np.float64)
            queries = unit(queries).astype(np.float64)
        return queries @ vectors.T


class SearchBackendContract:
    """NumPy's answers where search is exact, every place filled, honest recall where it is not.

    Subclass it in a test file, with a fixture ``case`` that returns a :class:`BackendCase`.
    """

    rows = 1500

    def test_exact_search_is_numpys(self, case: BackendCase) -> None:
        vectors = case.vectors(self.rows)
        queries = case.queries()
        backend = case.fill(vectors)
        assert (backend.recall is None) == backend.exact
        if not backend.exact:
            return
        truth = case.truth(vectors, queries)
        for found in (1, 10, self.rows):
            wanted = -np.sort(-truth, axis=1)[:, :found]
            for asked in (case.items(queries), queries):
                scores, rows = backend.search(asked, found)
                assert scores.dtype == np.float64
                np.testing.assert_allclose(scores, wanted, atol=1e-5)
                # The rows are those scores' rows: among ties any order will do.
                of_rows = np.take_along_axis(truth, rows, axis=1)
                np.testing.assert_allclose(of_rows, scores, atol=1e-5)
        assert not backend.needs_retraining(10**9)

    def test_every_place_is_filled(self, case: BackendCase) -> None:
        """However many are wanted and whatever is asked, every row stands once, best first."""
        backend = case.fill(case.vectors(self.rows))
        queries = case.queries()
        for wanted in (1, self.rows // 2, self.rows):
            for asked in (case.items(queries), queries):
                scores, rows = backend.search(asked, wanted)
                assert scores.shape == rows.shape == (len(queries), wanted)
                assert np.isfinite(scores).all()
                assert (np.diff(scores, axis=1) <= 1e-6).all()
                assert (rows >= 0).all()
                assert np.diff(np.sort(rows, axis=1), axis=1).all()

    def test_recall_is_what_queries_see(self, case: BackendCase, capfd: Any) -> None:
        """Of two hundred new queries, as often as measured on a hundred items, within 0.06."""
        vectors = case.vectors(4000)
        queries = case.queries(201)[:-1]
        backend = case.fill(vectors)
        if backend.exact:
            return
        true = np.argsort(-case.truth(vectors, queries), axis=1)[:, :10]
        _, rows = backend.search(case.items(queries), 10)
        shares = [np.isin(*pair).mean() for pair in zip(true, rows, strict=True)]
        assert backend.recall is not None
        assert backend.recall >= case.least_recall
        assert backend.recall == pytest.approx(np.mean(shares), abs=0.06)
        assert capfd.readouterr() == ("", "")  # it does not talk

    def test_added_in_pieces_with_searches_between(self, case: BackendCase) -> None:
        vectors = case.vectors(self.rows)
        queries = case.queries()
        whole = case.fill(vectors)
        wanted, _ = whole.search(queries, 50)
        recall = whole.recall
        pieces = case.backend
        pieces.begin(case.items(vectors)[::2])
        for start in range(0, self.rows, 400):
            pieces.add(case.items(vectors[start : start + 400]))
            pieces.finish()
            assert len(pieces) == min(self.rows, start + 400)
            scores = pieces.search(queries, 50)[0]
        if case.in_any_order:
            np.testing.assert_allclose(scores, wanted, atol=1e-5)
        assert pieces.recall == pytest.approx(recall, abs=0.02)

    def test_beginning_anew_forgets_everything(self, case: BackendCase) -> None:
        case.fill(case.vectors(self.rows))
        vectors = case.vectors(600, seed=4)
        case.backend.begin(case.items(vectors))
        assert len(case.backend) == 0
        _, rows = case.fill(vectors).search(case.queries(), 600)
        assert len(case.backend) == 600
        assert (np.sort(rows, axis=1) == np.arange(600)).all()

    def test_equal_items_have_equal_scores(self, case: BackendCase) -> None:
        vectors = case.vectors(self.rows)
        queries = case.queries()
        crowd = slice(self.rows // 2, self.rows // 2 + 40)
        vectors[crowd] = vectors[self.rows // 2]
        backend = case.fill(vectors)
        for asked in (case.items(queries), queries):
            scores, rows = backend.search(asked, self.rows)
            of_rows = np.take_along_axis(scores, np.argsort(rows, axis=1), axis=1)
            assert np.ptp(of_rows[:, crowd], axis=1).max() <= 1e-5

    def test_a_subset_gives_its_items_the_same_scores(self, case: BackendCase) -> None:
        """Where search is exact; rounded tables of scores are made for each search."""
        backend = case.fill(case.vectors(self.rows))
        queries = case.queries()
        if not backend.exact:
            return
        scores, rows = backend.search(queries, self.rows)
        chosen = np.arange(0, self.rows, 7)
        part = backend.subset(chosen)
        assert len(part) == len(chosen)
        some, places = part.search(queries, len(chosen))
        wanted = np.take_along_axis(scores, np.argsort(rows, axis=1), axis=1)[:, chosen]
        found = np.take_along_axis(some, np.argsort(places, axis=1), axis=1)
        np.testing.assert_allclose(found, wanted, atol=1e-5)
