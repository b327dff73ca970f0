"""Index types: factory strings read strictly, and what an index makes of them."""

import numpy as np
import pytest
from helpers.common import attribute_spec, known_noise, low_rank, picked, refuses

from dpindex import PrivateIndex
from dpindex.accounting.ledger import Ledger
from dpindex.data import as_source
from dpindex.data.dataset import as_dataset
from dpindex.index.backends import SymbolLists, faiss, shuffled_numbers
from dpindex.storage.history import Terms
from dpindex.storage.manifest import Settings, parse_index_type
from dpindex.storage.targets import build_index

DIM = 24


pytestmark = known_noise


SPEC = attribute_spec("raw-staircase", DIM, epsilon=6.0, bounds=(0, 1), seed=5)


def index_of(index_type, rows=1500):
    index = PrivateIndex(SPEC, index_type=index_type)
    base = low_rank(rows)
    index.add(base)
    return index, base


def test_rotation_keeps_cosines():
    """The leading directions are those of the uncentred second moment: cosines stay."""
    index, base = index_of("ROT4,Flat")
    index.fit_denoiser("linear")
    flat = PrivateIndex(index.spec)
    flat.add_codes(index.codes)
    flat.fit_denoiser("linear")
    mine = index.search(base[:40])
    theirs = flat.search(base[:40])
    assert mine.scores == pytest.approx(theirs.scores, abs=0.01)


def test_too_few_to_train():
    index, base = index_of("PQ8", rows=100)
    with refuses("needs at least 256"):
        index.search(base[:1])


@pytest.mark.parametrize("index_type", ["IVF99999,Flat", "PQ8"])
def test_an_index_type_for_more_vectors_is_refused_before_they_are_privatized(tmp_path, index_type):
    dataset = as_dataset(as_source(low_rank(200))).with_labels(np.arange(200))
    ledger = Ledger(tmp_path / "ledger")
    settings = Settings(SPEC, index_type=index_type)
    with refuses(r"trained on the vectors and needs at least \d+ of"):
        build_index(dataset, tmp_path / "index", settings, terms=Terms(ledger))
    assert not (tmp_path / "index").exists()
    settings = Settings(SPEC, index_type="IVF4,SQ8")
    outcome = build_index(dataset, tmp_path / "index", settings, terms=Terms(ledger))
    assert outcome.drawn == 200  # no id stood in the ledger


@pytest.mark.parametrize(
    "index_type, what",
    [
        ("PCA8,SQ8", "index_type must be"),
        ("IDMap,Flat", "index_type must be"),
        ("SQ8,IVF16", "index_type must be"),
        ("IVF16", "index_type must be"),
        ("", "index_type must be"),
        (8, "index_type must be"),
        ("ROT48,SQ8", "48 of 24 directions"),
        ("ROT0,SQ8", "0 of 24 directions"),
        ("PQ7", "7 equal parts"),
        ("ROT8,PQ6", "8 numbers into 6"),
        ("OPQ0,PQ8", "0 equal parts"),
        ("IVF999999,Flat", "999999 lists"),
        ("IVF0,Flat", "0 lists"),
        ("HNSW1", "links a node; 2 to 256"),
        ("HNSW999", "links a node; 2 to 256"),
    ],
)
def test_refused(index_type, what):
    with refuses(what):
        parse_index_type(index_type, DIM)


def test_short_names_are_aliases():
    for alias, factory in {"f32": "Flat", "f16": "SQfp16", "int8": "SQ8"}.items():
        parsed = parse_index_type(alias, DIM)
        assert parsed == parse_index_type(factory, DIM)
        assert parsed.exact == (alias == "f32")
        for name in (alias, factory):
            index, _ = index_of(name)
            assert (index.index_recall is None) == parsed.exact


# Inverted lists of symbols against brute force


def _lists(symbols, parts=1):
    lists = SymbolLists(1, "cosine", "f32")
    for part in np.array_split(np.array(symbols, dtype=np.uint16)[:, None], parts):
        lists.add(part)
    lists.finish()
    return lists


def _brute(symbols, query, count):
    """By score, then by symbol, then in the fixed order of an index."""
    mixed = shuffled_numbers(np.arange(len(symbols), dtype=np.uint64)).tolist()

    def place(row):
        symbol = symbols[row]
        return -query[symbol], symbol, mixed[row]

    return sorted(range(len(symbols)), key=place)[:count]


@pytest.mark.parametrize("size", [2, 7, 300, 5000])
@pytest.mark.parametrize("rows", [1, 9, 4000])
@pytest.mark.parametrize("levels", [2, 50, 1 << 20])
def test_it_finds_what_brute_force_finds(size, rows, levels):
    rng = np.random.default_rng(size + rows + levels)
    symbols = rng.integers(0, size, rows)
    if levels == 2:
        symbols //= 2
    queries = rng.integers(0, levels, (6, size)).astype(np.float32)
    lists = _lists(symbols)
    assert len(lists) == rows
    for count in sorted({1, min(10, rows), rows}):
        scores, found = lists.search(queries, count)
        expected = [_brute(symbols, query, count) for query in queries]
        assert found.tolist() == expected
        np.testing.assert_array_equal(scores, picked(queries, symbols[found]))


def test_ties_are_in_an_order_of_their_own():
    """Neither the first nor the last rows are preferred: ranks of rows do not follow rows."""
    rows = 20_000
    lists = _lists(np.zeros(rows, int))
    order = lists.search(np.ones((1, 3)), rows)[1][0]
    assert sorted(order.tolist()) == list(range(rows))
    correlation = np.corrcoef(order, np.arange(rows))[0, 1]
    assert abs(correlation) < 6 / np.sqrt(rows)
    first = order[:1000].mean() / rows
    assert abs(first - 0.5) < 6 / np.sqrt(12 * 1000)


def test_symbols_at_the_end_of_the_codebook():
    symbols = np.array([65535, 0, 65535])
    query = np.linspace(0, 1, 65536)[None]
    _, found = _lists(symbols).search(query, 3)
    assert sorted(found[0, :2].tolist()) == [0, 2]
    assert found[0, 2] == 1


def test_a_faiss_that_lacks_a_type(monkeypatch):
    def no_such_type(*_):
        raise RuntimeError("could not parse index string")

    index, base = index_of("RaBitQ4", rows=600)
    monkeypatch.setattr(faiss(), "index_factory", no_such_type)
    with refuses("has no RaBitQ4; run pip install -U faiss-cpu"):
        index.search(base[:1])
