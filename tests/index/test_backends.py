"""Every search backend keeps its contract, and what an index makes of them.

Random numbers are seeded and Faiss trains from a fixed seed, so each test passes always or never.
"""

import numpy as np
import pytest
from helpers.common import attribute_spec, low_rank, picked
from numpy.testing import assert_allclose, assert_array_equal

from dpindex import PrivateIndex
from dpindex.base.arrays import matrix_product
from dpindex.decode import DECODERS, decoder_of
from dpindex.decode.designed import DesignedDecoder
from dpindex.decode.symbols import SymbolDecoder
from dpindex.index.backends import SymbolLists, faiss
from dpindex.index.exact_vectors import ExactVectors
from dpindex.index.faiss_signs import FaissSigns
from dpindex.index.faiss_vectors import FaissVectors
from dpindex.index.ranking import BACKENDS, few_threads
from dpindex.testing import BackendCase, SearchBackendContract

WIDTH = 24
LOSSY = [
    "f16",
    "int8",
    "SQ4",
    "SQ6",
    "PQ8",
    "PQ12x4fs",
    "PQ12x4",
    "ROT8,SQ8",
    "ROT12,Flat",
    "IVF16,Flat",
    "IVF16,PQ12x4fs",
    "HNSW16",
    "ROT12,HNSW16,SQ8",
]
VECTORS = [(ExactVectors, metric, "f32") for metric in ("cosine", "ip", "l2")]
ALL = [
    *VECTORS,
    (FaissSigns, "cosine", "f32"),
    *((FaissVectors, "cosine", index_type) for index_type in LOSSY),
    *((FaissVectors, m, t) for m in ("ip", "l2") for t in ("SQ4", "IVF16,PQ12x4fs", "HNSW16")),
]
ROUGH = ("PQ", "SQ4", "SQ6", "ROT")
"""Parts of the names of index types that may find less than nine of ten."""


def case_of(kind, metric, index_type):
    return BackendCase(
        kind(WIDTH, metric, index_type),
        metric,
        signs=kind is FaissSigns,
        in_any_order="HNSW" not in index_type,
        least_recall=0.0 if any(word in index_type for word in ROUGH) else 0.9,
    )


def param(case):
    marks = [pytest.mark.slow] if case[2].startswith(("OPQ", "PQ8")) else []
    return pytest.param(case, marks=marks, id="-".join(case[1:]))


class TestEachBackend(SearchBackendContract):
    @pytest.fixture(params=map(param, ALL))
    def case(self, request):
        return case_of(*request.param)


pytest.mark.slow(SearchBackendContract.test_recall_is_what_queries_see)
pytest.mark.slow(SearchBackendContract.test_added_in_pieces_with_searches_between)


def test_every_backend_is_judged_here():
    """Lists of symbols, which are asked otherwise, have a file of tests of their own."""
    made = [
        kind(WIDTH, "cosine", index_type)
        for kind in BACKENDS.values()
        for index_type in ("f32", "SQ8")
    ]
    assert {*map(type, made)} == {SymbolLists, *(case[0] for case in ALL)}


@pytest.mark.parametrize("made", VECTORS)
@pytest.mark.parametrize("size", [1e-6, 1e6])
def test_the_size_of_vectors_does_not_matter(made, size):
    case = case_of(*made)
    vectors = case.vectors(1500) * size
    vectors[5] = 0
    queries = case.queries() * size
    truth = case.truth(vectors, queries)
    scores, rows = case.fill(vectors).search(queries, 1500)
    scale = np.abs(truth).max()
    assert_allclose(scores / scale, -np.sort(-truth, axis=1) / scale, atol=2e-6)
    found = picked(truth, rows)
    assert_allclose(found / scale, scores / scale, atol=2e-6)


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
    for made in ALL:
        if "PQ" in made[2] or "IVF" in made[2]:
            continue
        case = case_of(*made)
        scores, rows = case.fill(case.vectors(1)).search(case.queries(), 1)
        assert rows.tolist() == [[0]] * len(scores)
        assert case.backend.recall in (None, 1.0)


# What an index makes of its backends, whichever they are.

INDEXES = [
    ("dp-signoporp-rr", False, "f32"),
    ("dp-signoporp-rr", True, "f32"),
    *(("raw-staircase", d, t) for d in (False, True) for t in ("f32", "SQ8", "IVF8,PQ6", "HNSW16")),
]


def row_spec(method):
    return attribute_spec(
        method,
        WIDTH,
        k=WIDTH,
        epsilon=8.0,
        bounds=(0, 1),
        seed=5,
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


@pytest.mark.slow
@every_index
def test_similarities_do_not_depend_on_what_found_the_rows(index):
    """Plain exact search of the same codes gives every pair the same estimate and error."""
    plain = PrivateIndex(index.spec)
    plain.add_codes(index.codes)
    asked = low_rank(20, dim=WIDTH, seed=3)
    ours = index.search(asked, k=1500)
    theirs = plain.search(asked, k=1500)
    for name in ("unbiased", "unbiased_stderr"):
        of_rows = [
            picked(getattr(hits, name), np.argsort(hits.ids, axis=1)) for hits in (ours, theirs)
        ]
        assert_allclose(*of_rows, rtol=1e-6, atol=1e-6)


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
    assert_array_equal(batch, alone)
    assert_array_equal(batch, x.astype(np.int64) @ y.astype(np.int64))
