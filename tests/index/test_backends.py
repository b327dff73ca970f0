"""Every search backend keeps the same promises: NumPy's answers, every place filled, honest recall.

Random numbers are seeded and Faiss trains from a fixed seed, so each test passes always or never.
"""

import numpy as np
import pytest
from helpers.made_datasets import low_rank

from dpindex import InputError, PrivateIndex, Spec, attribute
from dpindex.base.arrays import matrix_product, unit
from dpindex.decode.designed import DesignedDecoder
from dpindex.decode.kinds import DECODERS, decoder_of
from dpindex.decode.symbols import SymbolDecoder
from dpindex.index.backends import faiss
from dpindex.index.faiss_signs import FaissSigns
from dpindex.index.faiss_vectors import FaissVectors
from dpindex.index.ranking import BACKENDS, few_threads
from dpindex.index.symbol_lists import SymbolLists

WIDTH = 24
METRICS = ["cosine", "ip", "l2"]
LOSSY = [
    "f16",
    "int8",
    "SQ4",
    "SQ6",
    "PQ8",
    "PQ12x4fs",
    "PQ12x4",
    "OPQ6,PQ6x8",
    "ROT8,SQ8",
    "ROT12,Flat",
    "IVF16,Flat",
    "IVF16,PQ12x4fs",
    "OPQ6,IVF8,PQ6",
    "HNSW16",
    "ROT12,HNSW16,SQ8",
]
VECTORS = [(FaissVectors, metric, "f32") for metric in METRICS]
EXACT = [*VECTORS, (FaissSigns, "cosine", "f32")]
ALL = [
    *EXACT,
    *((FaissVectors, "cosine", index_type) for index_type in LOSSY),
    *((FaissVectors, m, t) for m in ("ip", "l2") for t in ("SQ4", "IVF16,PQ12x4fs", "HNSW16")),
]
every_case = pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case,
            marks=[pytest.mark.slow] if case[2].startswith(("OPQ", "PQ8")) else [],
            id="-".join(case[1:]),
        )
        for case in ALL
    ],
)


class Contract:
    """A backend of a case, its items, and what NumPy finds for a query."""

    def __init__(self, case, rows=1500, seed=0):
        self.signs = case[0] is FaissSigns
        self.case, self.metric = case, case[1]
        self.backend = case[0](WIDTH, case[1], case[2])
        self.vectors = self._vectors(rows, seed)
        self.backend.begin(self.items(self.vectors)[::2])

    def _vectors(self, rows, seed):
        """Points near a plane of few dimensions, as denoised codes are; or signs."""
        rng = np.random.default_rng(seed)
        base = low_rank(rows, dim=WIDTH, seed=seed) - 0.4
        return np.sign(base + rng.normal(0, 0.2, base.shape)) if self.signs else base

    def items(self, vectors):
        if self.signs:
            return np.packbits(vectors > 0, axis=1, bitorder="little")
        return vectors.astype(np.float32)

    def filled(self):
        self.backend.add(self.items(self.vectors))
        self.backend.finish()
        return self.backend

    def queries(self, nq=40):
        """Like the items, and one of zeros."""
        asked = self._vectors(nq, seed=9)
        return asked if self.signs else np.vstack([asked, np.zeros((1, WIDTH))])

    def truth(self, queries):
        """Scores of all items, shape (nq, n)."""
        x, y = self.vectors.astype(np.float64), queries.astype(np.float64)
        if self.metric == "l2":
            return -((y[:, None] - x) ** 2).sum(axis=2)
        if self.metric == "cosine" and not self.signs:
            x, y = unit(x).astype(np.float64), unit(y).astype(np.float64)
        return y @ x.T


def test_every_backend_is_judged_here():
    """Lists of symbols, which are asked otherwise, have a file of tests of their own."""
    assert {*BACKENDS.values()} == {SymbolLists, *(case[0] for case in ALL)}


@pytest.mark.parametrize("case", EXACT)
@pytest.mark.parametrize("found", [1, 10, 1500])
def test_exact_search_is_numpys(case, found):
    contract = Contract(case)
    backend, queries = contract.filled(), contract.queries()
    truth = contract.truth(queries)
    wanted = -np.sort(-truth, axis=1)[:, :found]
    for asked in (contract.items(queries), queries):
        scores, rows = backend.search(asked, found)
        assert scores.dtype == np.float64
        np.testing.assert_allclose(scores, wanted, atol=1e-5)
        # The rows are those scores' rows: among ties any order will do.
        np.testing.assert_allclose(np.take_along_axis(truth, rows, axis=1), scores, atol=1e-5)
    assert backend.exact
    assert backend.recall is None
    assert not backend.needs_retraining(10**9)


@pytest.mark.parametrize("case", VECTORS)
@pytest.mark.parametrize("size", [1e-6, 1e6])
def test_the_size_of_vectors_does_not_matter(case, size):
    contract = Contract(case)
    contract.vectors = contract.vectors * size
    contract.vectors[5] = 0
    contract.backend.begin(contract.items(contract.vectors[:50]))
    queries = contract.queries() * size
    truth = contract.truth(queries)
    scores, rows = contract.filled().search(queries, 1500)
    scale = np.abs(truth).max()
    np.testing.assert_allclose(scores / scale, -np.sort(-truth, axis=1) / scale, atol=2e-6)
    found = np.take_along_axis(truth, rows, axis=1)
    np.testing.assert_allclose(found / scale, scores / scale, atol=2e-6)


@every_case
def test_every_place_is_filled(case):
    """However many are wanted and whatever is asked, every row stands once, best first."""
    contract = Contract(case)
    backend, queries = contract.filled(), contract.queries()
    for wanted in (1, 700, len(backend)):
        for asked in (contract.items(queries), queries):
            scores, rows = backend.search(asked, wanted)
            assert scores.shape == rows.shape == (len(queries), wanted)
            assert np.isfinite(scores).all()
            assert (np.diff(scores, axis=1) <= 1e-6).all()
            assert (rows >= 0).all()
            assert np.diff(np.sort(rows, axis=1), axis=1).all()


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in ALL if case[2] != "f32"])
def test_recall_is_what_queries_see(case, capfd):
    """Of two hundred new queries, as often as measured on a hundred items, within 0.06."""
    contract = Contract(case, rows=4000)
    backend, queries = contract.filled(), contract.queries(200)[:-1]
    true = np.argsort(-contract.truth(queries), axis=1)[:, :10]
    rows = backend.search(contract.items(queries), 10)[1]
    seen = np.mean([np.isin(a, b).mean() for a, b in zip(true, rows, strict=True)])
    assert not backend.exact
    assert backend.recall is not None
    assert seen == pytest.approx(backend.recall, abs=0.06)
    if not any(word in case[2] for word in ("PQ", "SQ4", "SQ6", "ROT")):
        assert backend.recall > 0.9
    assert capfd.readouterr() == ("", "")  # Faiss does not talk


@pytest.mark.slow
@every_case
def test_added_in_pieces_with_searches_between(case):
    whole, pieces = Contract(case), Contract(case)
    whole.filled()
    for start in range(0, 1500, 400):
        pieces.backend.add(pieces.items(pieces.vectors[start : start + 400]))
        pieces.backend.finish()
        assert len(pieces.backend) == min(1500, start + 400)
        pieces.backend.search(pieces.queries(), 5)
    ours, theirs = (c.backend.search(c.queries(), 50)[0] for c in (whole, pieces))
    if "HNSW" not in case[2]:  # a graph's links depend on the order in which threads add
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert pieces.backend.recall == pytest.approx(whole.backend.recall, abs=0.02)


@every_case
def test_beginning_anew_forgets_everything(case):
    contract = Contract(case)
    backend = contract.filled()
    contract.vectors = contract._vectors(600, seed=4)
    backend.begin(contract.items(contract.vectors))
    assert len(backend) == 0
    contract.filled()
    assert len(backend) == 600
    rows = backend.search(contract.queries(), 600)[1]
    assert np.array_equal(np.sort(rows, axis=1), np.tile(np.arange(600), (len(rows), 1)))


@every_case
def test_equal_items_have_equal_scores(case):
    contract = Contract(case)
    crowd = np.arange(700, 740)
    contract.vectors[crowd] = contract.vectors[700]
    backend, queries = contract.filled(), contract.queries()
    for asked in (contract.items(queries), queries):
        scores, rows = backend.search(asked, len(backend))
        of_rows = np.take_along_axis(scores, np.argsort(rows, axis=1), axis=1)
        assert np.ptp(of_rows[:, crowd], axis=1).max() <= 1e-5


@pytest.mark.parametrize("index_type", ["int8", "SQ4", "PQ8", "f16", "HNSW16"])
def test_what_was_fitted_to_few_is_fitted_again(index_type, monkeypatch):
    monkeypatch.setattr("dpindex.index.faiss_vectors.TRAINING_ROWS", 2048)
    backend = FaissVectors(WIDTH, "ip", index_type)
    backend.begin(np.ones((300, WIDTH), dtype=np.float32))
    assert backend.needs_retraining(600)
    assert not backend.needs_retraining(599)
    backend.begin(np.ones((backend.sample_rows, WIDTH), dtype=np.float32))
    assert not backend.needs_retraining(10**9)


def test_one_item_alone():
    for case in ALL:
        if "PQ" in case[2] or "IVF" in case[2]:
            continue
        contract = Contract(case, rows=1)
        scores, rows = contract.filled().search(contract.queries(), 1)
        assert rows.tolist() == [[0]] * len(scores)
        assert contract.backend.recall in (None, 1.0)


# What an index makes of its backends, whichever they are.

INDEXES = [
    ("dp-signoporp-rr", False, "f32"),
    ("dp-signoporp-rr", True, "f32"),
    *(("raw-staircase", d, t) for d in (False, True) for t in ("f32", "SQ8", "IVF8,PQ6", "HNSW16")),
]


def row_spec(method):
    return Spec(
        method=method,
        dim=WIDTH,
        k=WIDTH,
        epsilon=8.0,
        bounds=(0, 1),
        seed=5,
        adjacency=attribute(1.0),
    )


@pytest.fixture
def index(request, known_noise):
    """1500 rows."""
    method, denoised, index_type = request.param
    made = PrivateIndex(row_spec(method), index_type=index_type)
    made.add(low_rank(1500, dim=WIDTH))
    if denoised:
        made.fit_denoiser("linear")
    return made


every_index = pytest.mark.parametrize("index", INDEXES, indirect=True)


def test_every_entry_of_the_table_has_an_index_here():
    here = {type(decoder_of(row_spec(method))) for method, _, _ in INDEXES}
    # Symbols are tested at the record level, and designs by themselves.
    assert here | {SymbolDecoder, DesignedDecoder} == {*DECODERS}


@pytest.mark.slow
@every_index
def test_removed_rows_are_dead(index):
    base = low_rank(1500, dim=WIDTH)
    index.search(base[:3])
    index.remove(np.arange(0, 1500, 3))
    for query in ("exact", "private"):
        ids = index.search(base[:70], k=1000, query=query).ids
        assert not (ids % 3 == 0).any()
        assert all(len(set(row)) == 1000 for row in ids.tolist())
    index.add(base[:1], ids=[0])
    assert (index.search(base[:2], k=1001).ids == 0).any(axis=1).all()


@every_index
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused(index, bad):
    vectors = np.full((2, WIDTH), 0.5)
    vectors[1, 3] = bad
    for query in ("exact", "private"):
        for call in (index.search, lambda q, query: index.range_search(q, 0.5, query)):
            with pytest.raises(InputError, match=r"row 1, column 3 is (NaN|infinite)"):
                call(vectors, query=query)
    with pytest.raises(InputError, match="row 1, column 3"):
        index.add(vectors)
    assert len(index) == 1500


@pytest.mark.slow
@every_index
def test_similarities_do_not_depend_on_what_found_the_rows(index):
    """Plain exact search of the same codes gives every pair the same estimate and error."""
    plain = PrivateIndex(index.spec)
    plain.add_codes(index.codes)
    asked = low_rank(20, dim=WIDTH, seed=3)
    ours, theirs = (i.search(asked, k=1500) for i in (index, plain))
    for name in ("unbiased", "unbiased_stderr"):
        of_rows = [
            np.take_along_axis(getattr(hits, name), np.argsort(hits.ids, axis=1), axis=1)
            for hits in (ours, theirs)
        ]
        np.testing.assert_allclose(of_rows[0], of_rows[1], rtol=1e-6, atol=1e-6)


def test_a_small_search_has_one_thread_of_openmp():
    """And gives back what was set, also after an error; a large one keeps its threads."""
    before = faiss().omp_get_max_threads()
    faiss().omp_set_num_threads(2)
    try:
        with few_threads(20_000 * 64):
            assert faiss().omp_get_max_threads() == 1
        assert faiss().omp_get_max_threads() == 2
        with pytest.raises(KeyboardInterrupt), few_threads(1):
            raise KeyboardInterrupt
        assert faiss().omp_get_max_threads() == 2
        with few_threads(1 << 40):
            assert faiss().omp_get_max_threads() == 2
    finally:
        faiss().omp_set_num_threads(before)


def test_products_of_whole_numbers_do_not_depend_on_their_size():
    """Codewords are found by them: alone or in a batch, a query has the same."""
    rng = np.random.default_rng(0)
    x = rng.integers(-60, 60, (300, 40)).astype(np.float32)
    y = rng.integers(-60, 60, (40, 100)).astype(np.float32)
    batch = matrix_product(x, y)
    alone = np.concatenate([matrix_product(row[None], y) for row in x])
    np.testing.assert_array_equal(batch, alone)
    np.testing.assert_array_equal(batch, x.astype(np.int64) @ y.astype(np.int64))
