"""The index as its users see it: what goes in comes out, and what fails changes nothing."""

from functools import cache, partial
from itertools import count, product
from pathlib import Path

import numpy as np
import pytest
from helpers.common import (
    all_bytes,
    attribute_spec,
    codes_of,
    designed,
    filled_index,
    interrupted_at,
    known_noise,
    needed,
    peak_memory,
    python,
    refuses,
    reopened,
    uniform,
)
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import dpindex as dpi
from dpindex.data import open_dataset
from dpindex.decode.numbers import NumberDecoder
from dpindex.decode.signs import SignDecoder
from dpindex.index.exact_vectors import ExactVectors
from dpindex.index.faiss_signs import FaissSigns
from dpindex.index.faiss_vectors import FaissVectors
from dpindex.index.private_index import PrivateIndex
from dpindex.index.ranking import Ranking
from dpindex.mechanism.codes import NumberFormat, codes_from_bytes
from dpindex.mechanism.spec import Spec

pytestmark = known_noise

DIM = 24
METHODS = [method.name for method in dpi.methods()]
FLOAT = "dp-oporp-staircase"
BITS = "dp-signoporp-rr"


@cache
def _spec(method=FLOAT, **changes):
    """One object for all tests, so that its law is worked out once."""
    row = next(m for m in dpi.methods() if m.name == method)
    fields = {**needed(row, DIM), "dim": DIM}
    if row.calibration.rounded:
        fields["bounds"] = (0.0, 1.0)
    if row.private:
        fields["epsilon"] = 40.0
    if row.family.public is dpi.Design:
        fields["design"] = designed(DIM, row.needs_delta, DIM)
    if method == "idp-signrp-g":
        fields["epsilon"] = 2.0  # its table takes many seconds at large epsilon
    return Spec(**{**fields, **changes})


def _vectors(n=60, seed=0):
    """Well apart from each other, so that little noise never changes the nearest one."""
    rng = default_rng(seed)
    kept = rng.random((n, DIM)) < 0.4
    return kept * rng.uniform(0.5, 1.0, (n, DIM))


def _filled(method=FLOAT, n=60, **changes):
    index = PrivateIndex(_spec(method), **changes)
    index.add(_vectors(n))
    return index


@pytest.fixture
def place(tmp_path):
    return tmp_path / "i"


def _state(index):
    return index.ids.tolist(), index.codes.to_bytes(), len(index)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_builds_searches_saves_and_opens(method, tmp_path):
    index = _filled(method, n=200)
    assert len(index) == 200
    asked = _vectors(3, seed=1)
    before = {
        mode: index.search(asked, k=5, query=mode, allow_unprotected=True)
        for mode in ("private", "exact")
    }
    for hits in before.values():
        for column in (hits.ids, hits.scores, hits.similarity):
            assert column.shape == (3, 5)
        assert (np.diff(hits.scores, axis=1) <= 0).all()
        assert hits.stderr.dtype == hits.scores.dtype == np.float64
    index.save(tmp_path / "index", allow_unprotected=True)
    again = PrivateIndex.open(tmp_path / "index")
    assert again.spec == index.spec
    assert _state(again) == _state(index)
    after = again.search(asked, k=5)
    for name in ("ids", "scores", "similarity"):
        assert_array_equal(getattr(after, name), getattr(before["exact"], name))


@pytest.mark.parametrize("method", [m for m in METHODS if m.startswith("none-")])
def test_finding_8_what_has_no_noise_is_not_saved_or_called_private(method, tmp_path):
    index = _filled(method)
    with refuses("protects nothing"):
        index.save(tmp_path / "index")
    assert not (tmp_path / "index").exists()
    queries = _vectors(2)
    for search in (index.search, partial(index.range_search, threshold=0.5)):
        with refuses("protects nothing"):
            search(queries, query="private")
        among = {"candidates": 60, "rerank": _vectors()}
        search(queries, query="private", allow_unprotected=True, **among)
        search(queries, **among)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"metric": "dot"}, "metric must be one of"),
        ({"index_type": "f8"}, "index_type must be one of"),
        ({"query_epsilon": 0.0}, "epsilon must be above 0"),
        ({"query_epsilon": 1e9}, "epsilon must lie in"),
    ],
)
def test_wrong_settings_are_refused(changes, words):
    with refuses(words):
        PrivateIndex(_spec(), **changes)


def test_signs_know_cosines_and_have_no_index_types():
    for metric in ("ip", "l2"):
        with refuses(r"must be one of cosine, not .* keeps signs"):
            PrivateIndex(_spec(BITS), metric=metric)
    for index_type in ("f16", "Flat", 8):
        with refuses("is for vectors of numbers"):
            PrivateIndex(_spec(BITS), index_type=index_type)
    with refuses("takes no epsilon"):
        PrivateIndex(_spec("none-oporp"), query_epsilon=1.0)


@pytest.mark.parametrize("ids", [[7, -3, 10**15], ["b", "a", "ü"]])
def test_ids_of_both_kinds(ids, tmp_path):
    vectors = np.eye(DIM)[:3]
    index = filled_index(_spec("raw-staircase"), vectors, ids)
    hits = index.search(vectors, k=1)
    assert hits.ids[:, 0].tolist() == list(ids)
    assert hits.ids.dtype.kind == np.asarray(ids).dtype.kind
    assert reopened(index, tmp_path / "i").ids.tolist() == list(ids)


def _foreign(index):
    """A code that copies its fingerprint, of another format."""
    format_ = NumberFormat(9, index.spec.fingerprint, 1.0, 0.0)
    return format_.codes(np.zeros((1, 9), np.int8))


def _under(*ids):
    """Two vectors are added under these ids."""
    return lambda index: index.add(_vectors(2), ids=list(ids))


def _coded(count, *method, **changes):
    """So many codes of a spec are added."""
    return lambda index: index.add_codes(codes_of(_spec(*method, **changes), _vectors(count)))


def _asked(*arguments, **options):
    """A search with these arguments."""
    return lambda index: index.search(*arguments, **options)


FAULTS = [
    (lambda i: i.add(np.full((2, DIM), np.nan)), "row 0, column 0 is NaN"),
    (_under(1000), "1 ids for 2"),
    (_under(1000, 1000), "twice in the input"),
    (_under(1000, 0), "already in the index"),
    (lambda i: i.add_codes(_vectors(2)), "takes dpindex codes"),
    (_coded(2, BITS), "another spec"),
    (_coded(2, seed=1), "another spec"),
    (lambda i: i.add_codes(_foreign(i)), "of 9 numbers"),
    (lambda i: i.search(_foreign(i)), "of 9 numbers"),
    (lambda i: i.add_codes(i.codes.take(slice(0, 2)), ids=[1000, 0]), "already in the index"),
    (lambda i: i.remove([0, 1, 1000]), "1000 is not in the index"),
    (_asked(np.full(DIM, np.inf)), "infinite"),
    (_asked(np.full(DIM, np.nan), query="private"), "row 0, column 0 is NaN"),
    (_asked(_vectors(2)[:, :5]), "columns"),
    (_asked(np.zeros((0, DIM))), "no rows"),
    (lambda i: i.search(i.codes.take(slice(0, 0))), "no query codes"),
    (_asked(_vectors(2), k=0), "at least 1"),
    (_asked(_vectors(2), query="none"), "'exact' or 'private'"),
    (_asked(codes_of(_spec(seed=3), _vectors(1))), "another spec"),
    (lambda i: i.range_search(_vectors(1), float("nan")), "finite"),
]


@pytest.mark.parametrize("fault, words", FAULTS)
def test_a_fault_is_named_and_changes_nothing(fault, words):
    index = _filled(n=10)
    before = _state(index)
    with refuses(words):
        fault(index)
    assert _state(index) == before
    index.add(_vectors(1), ids=[1000])  # the id of the failed calls was not kept
    assert index.search(_vectors(2)).ids.shape == (2, 10)


def test_an_empty_index_says_so(tmp_path):
    index = PrivateIndex(_spec())
    for _ in range(2):
        assert len(index) == 0
        for call in (index.search, lambda q: index.range_search(q, 0.5)):
            with refuses("is empty"):
                call(_vectors(1))
        index.add(_vectors(2))
        assert index.remove(index.ids) == 2
    again = reopened(index, tmp_path / "empty")
    again.add(_vectors(3))
    assert len(reopened(again, tmp_path / "empty")) == 3


@pytest.mark.parametrize("method", [FLOAT, BITS])
def test_k_beyond_the_index_gives_everything_once(method):
    index = _filled(method, n=7)
    hits = index.search(_vectors(100), k=50, query="private")
    assert hits.ids.shape == (100, 7)
    for row in hits.ids.tolist():
        assert sorted(row) == list(range(7))


@pytest.mark.parametrize("method", [FLOAT, BITS, "raw-square-wave"])
def test_codes_search_like_the_queries_they_were(method):
    index = _filled(method, query_epsilon=1.0)
    assert index.query_spec.epsilon == 1.0
    errors = []
    for spec in (index.spec, index.query_spec):
        codes = codes_of(spec, _vectors(200))
        hits = index.search(codes, k=60)
        assert np.isfinite(hits.scores).all()
        assert_array_equal(index.search(codes, k=60).scores, hits.scores)
        errors.append(np.nanmean(hits.unbiased_stderr))
    # The noisier query's estimates know that they are worse.
    assert errors[1] > 1.1 * errors[0]


def test_query_codes_are_decoded_by_the_spec_not_by_what_they_claim():
    index = _filled()
    codes = index.codes
    format_ = NumberFormat(codes.k, codes.fingerprint, 1e30, 5.0)
    lying = format_.codes(codes.stored)
    told = index.search(lying).scores
    assert_array_equal(told, index.search(codes).scores)


def test_private_queries_are_drawn_anew_and_exact_ones_are_not():
    index = filled_index(_spec(epsilon=1.0), _vectors())
    exact = [index.search(_vectors(4)).scores for _ in range(2)]
    private = [index.search(_vectors(4), query="private").scores for _ in range(2)]
    assert_array_equal(*exact)
    assert (private[0] != private[1]).any()


@pytest.mark.parametrize("method", [FLOAT, BITS, "idp-signrp-rr", "raw-laplace"])
def test_sparse_input_is_dense_input(method):
    spec = _spec(method)
    index = filled_index(spec, sparse.csr_matrix(_vectors()))
    index.add(sparse.csc_matrix(_vectors(5, seed=2)))
    assert len(index) == 65
    asked = _vectors(4)
    dense = index.search(asked, k=9)
    thin = index.search(sparse.csr_matrix(asked), k=9)
    assert_array_equal(dense.scores, thin.scores)


def test_one_vector_may_come_as_a_row():
    index = filled_index(_spec(), _vectors(1)[0], ids="only")
    assert index.search(_vectors(1)[0]).ids.tolist() == [["only"]]


def test_wider_codes_later_do_not_wrap_round():
    spec = attribute_spec("none-oporp", 4, k=4, bounds=(-100.0, 100.0))
    index = PrivateIndex(spec, metric="ip")
    axis = np.eye(4)[:1]
    for size in (0.001, 1.0, 90.0):
        index.add(axis * size)
    hits = index.search(axis, k=3)
    assert_allclose(hits.unbiased[0], [90.0, 1.0, 0.001], rtol=0.1)


def test_int8_fitted_to_the_first_few_rows_adapts():
    index = PrivateIndex(_spec("none-oporp"), index_type="int8")
    vectors = _vectors(3000)
    for stop in (1, 2, 3000):
        index.add(vectors[len(index) : stop])
        index.search(vectors[:1])
    hits = index.search(vectors[:200], k=1)
    assert np.mean(hits.unbiased[:, 0] > 0.99) > 0.98


@pytest.mark.parametrize("method", ["none-oporp", "none-signrp", FLOAT])
def test_removed_vectors_are_not_found(method):
    index = _filled(method)
    assert index.remove([3, 5, 3]) == 2
    assert index.remove(7) == 1
    assert index.remove([]) == 0
    assert len(index) == 57
    hits = index.search(_vectors(60), k=57)
    found = set(hits.ids.ravel().tolist())
    assert not found & {3, 5, 7}
    index.add(_vectors(1), ids=[5])
    assert hits.ids.shape == (60, 57)
    assert 5 in index.search(_vectors(1), k=58).ids


@pytest.mark.parametrize("method", ["none-oporp", "none-signrp"])
def test_range_search_is_a_cut_through_the_whole_ranking(method):
    index = filled_index(_spec(method), _vectors(120))
    queries = _vectors(70)
    whole = index.search(queries, k=120)
    for threshold in (0.5, 0.99, 2.0):
        found = index.range_search(queries, threshold)
        assert len(found) == 70
        for i, hits in enumerate(found):
            near = whole.similarity[i] >= threshold
            expected = whole.ids[i][near].tolist()
            assert sorted(hits.ids.tolist()) == sorted(expected)
            assert (hits.similarity >= threshold).all()


def test_range_search_needs_similarities():
    with refuses("declared norm"):
        _filled("dp-signoporp-geometric").range_search(_vectors(1), 0.5)


@pytest.mark.parametrize("method", [FLOAT, BITS])
@pytest.mark.parametrize(
    "part, step, call",
    [
        (Ranking, "search", 2),
        (Ranking, "sync", 1),
        (NumberDecoder, "estimates", 2),
        (SignDecoder, "estimates", 2),
        (ExactVectors, "begin", 1),
        (ExactVectors, "add", 1),
        (FaissSigns, "add", 1),
        (FaissSigns, "finish", 1),
    ],
)
def test_ctrl_c_in_a_search_leaves_the_index_usable(method, part, step, call, monkeypatch):
    index = _filled(method)
    plain = getattr(part, step)
    calls = count(1)

    def interrupted(*arguments):
        if next(calls) == call:
            raise KeyboardInterrupt
        return plain(*arguments)

    monkeypatch.setattr(part, step, interrupted)
    others = {FLOAT: (FaissSigns, SignDecoder), BITS: (ExactVectors, NumberDecoder)}[method]
    if part not in others:
        with pytest.raises(KeyboardInterrupt):
            _ = index.search(_vectors(200)).similarity
    assert index.search(_vectors(200)).similarity.shape == (200, 10)
    index.add(_vectors(1))
    assert index.search(_vectors(1), k=61).ids.shape == (1, 61)


@pytest.mark.parametrize("index_type", ["f32", "HNSW16"])
@pytest.mark.parametrize("after", [False, True])
def test_ctrl_c_between_blocks_does_not_shift_rows(index_type, after, monkeypatch):
    index = _filled("none-oporp", metric="l2", index_type=index_type)
    monkeypatch.setattr("dpindex.storage.code_store.STORED_NUMBERS", 20 * index.codes.k)
    kind = ExactVectors if index_type == "f32" else FaissVectors
    plain = kind.add
    calls = count(1)

    def interrupted(self, items):
        stopped = next(calls) == 2
        if after or not stopped:
            plain(self, items)
        if stopped:
            raise KeyboardInterrupt

    monkeypatch.setattr(kind, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        index.search(_vectors(1))
    hits = index.search(_vectors(60), k=1)
    assert_array_equal(hits.ids[:, 0], np.arange(60))
    assert_allclose(hits.unbiased[:, 0], 0, atol=1e-2)


def test_ctrl_c_while_rows_are_removed_changes_nothing():
    index = _filled("none-oporp")
    index.search(_vectors(1))
    before = _state(index)
    interrupted_at("dpindex.storage.code_store.RowParts.where", lambda: index.remove([3]))
    assert _state(index) == before
    assert index.search(_vectors(60)[3], k=1).ids.tolist() == [[3]]


@pytest.mark.parametrize(
    "place", ["dpindex.storage.code_store.Ids.grown", "dpindex.storage.code_store.appended"]
)
def test_ctrl_c_in_an_add_leaves_rows_and_ids_together(place):
    index = _filled("none-oporp")
    before = _state(index)
    interrupted_at(place, lambda: index.add(_vectors(5, seed=3)))
    assert _state(index) == before
    extra = _vectors(5, seed=4)
    index.add(extra)
    assert index.search(extra, k=1).ids[:, 0].tolist() == [60, 61, 62, 63, 64]


def _code_files(path):
    return {f.name: f.read_bytes() for f in sorted((path / "segments").iterdir())}


def test_saving_again_appends_and_leaves_old_segments_alone(place):
    index = _filled()
    index.save(place)
    old = _code_files(place)
    index.save(place)
    assert _code_files(place) == old
    index.add(_vectors(4))
    index.save(place)
    new = _code_files(place)
    assert len(new) == 2
    assert old.items() <= new.items()
    opened = PrivateIndex.open(place)
    assert _state(opened) == _state(index)
    opened.add(_vectors(1))
    assert len(reopened(opened, place)) == 65


def test_removed_codes_are_physically_gone_after_saving(place):
    names = [f"person-{i}" for i in range(50)]
    index = filled_index(_spec("raw-staircase", epsilon=1.0), _vectors(50), names)
    index.save(place)
    index.add(_vectors(2), ids=["late", "later"])
    opened = reopened(index, place)
    gone = index["person-20"].stored.tobytes()
    assert gone in all_bytes(place)
    opened.remove("person-20")
    again = reopened(opened, place)
    left = all_bytes(place)
    assert gone not in left
    assert b"person-20" not in left
    assert _state(again) == _state(opened)
    assert len(again) == 51


def test_many_segments_keep_their_order(place):
    """A segment has 65 536 rows."""
    index = filled_index(attribute_spec("none-signrp", 4, k=8), uniform(140_000, 4))
    index.save(place, allow_unprotected=True)
    assert len(_code_files(place)) == 3
    assert _state(PrivateIndex.open(place)) == _state(index)


def test_directories_of_others_are_left_alone(tmp_path):
    index = _filled()
    index.save(tmp_path / "taken")
    with refuses("already holds an index"):
        _filled().save(tmp_path / "taken")
    thesis = tmp_path / "full" / "thesis.txt"
    thesis.parent.mkdir()
    thesis.write_text("dear")
    for taken in (thesis.parent, thesis):
        with refuses("is not an empty directory"):
            index.save(taken)
    assert thesis.read_text() == "dear"
    (tmp_path / "empty").mkdir()
    assert len(reopened(index, tmp_path / "empty")) == 60


def test_a_link_to_an_index_opens(tmp_path):
    _filled().save(tmp_path / "2024")
    (tmp_path / "latest").symlink_to(tmp_path / "2024")
    index = PrivateIndex.open(tmp_path / "latest")
    index.add(_vectors(1))
    index.save(tmp_path / "latest")
    assert len(PrivateIndex.open(tmp_path / "2024")) == 61


@pytest.mark.slow
@pytest.mark.parametrize(
    "method, rows, megabytes", [("none-oporp", 2500, 20), ("none-signrp", 40_000, 12)]
)
def test_range_search_takes_the_memory_of_a_block(method, rows, megabytes):
    """Scores of 16 queries with 40 000 rows would take 5 MB, and their errors as many.

    Of numbers a few rows do: it is their posteriors that would take hundreds.
    """
    index = PrivateIndex(attribute_spec(method, 8, k=8))
    rng = default_rng(0)
    index.add(rng.uniform(-1, 1, (rows, 8)))
    index.range_search(np.ones(8), 1.5)  # learns the posterior, within 200 MB, once
    with peak_memory() as peak:
        found = index.range_search(rng.uniform(-1, 1, (16, 8)), 1.5)
    assert [len(hits.ids) for hits in found] == [0] * 16
    assert peak.bytes < megabytes << 20


@pytest.fixture
def _all_mapped(monkeypatch):
    """Segments of any size are mapped."""
    for module in ("storage.code_store", "storage.contents"):
        monkeypatch.setattr(f"dpindex.{module}.MAPPED_BYTES", 1)


def files_of_codes(index):
    return sorted(index.glob("segments/*.codes"))


@pytest.mark.slow
@pytest.mark.usefixtures("_all_mapped")
@pytest.mark.parametrize("method", [FLOAT, BITS, "none-oporp", "none-signrp"])
@pytest.mark.parametrize("names", [False, True])
def test_an_index_of_mapped_segments_is_the_one_in_memory(method, names, place):
    """Three segments, opened; then the same changes to both, and every way to read them."""
    plain = PrivateIndex(_spec(method))
    for start in range(0, 90, 30):
        ids = [f"r{row}" for row in range(start, start + 30)] if names else None
        plain.add(_vectors(30, seed=start), ids)
        plain.save(place, allow_unprotected=True)
    mapped = PrivateIndex.open(place)
    assert len(files_of_codes(place)) == 3
    more = codes_of(plain.spec, _vectors(7, seed=8))
    new = [f"n{row}" for row in range(7)] if names else None
    gone = plain.ids[[0, 31, 32, 93 - 4]].tolist()
    changes = [
        lambda index: None,
        lambda index: index.add_codes(more, new),
        lambda index: index.remove(gone),
        lambda index: index.remove(index.ids[-1:]),
    ]
    for change in changes:
        for index in (plain, mapped):
            change(index)
        _equal(plain, mapped)
    reader = PrivateIndex.open(place)  # and now the segments under it are replaced
    before = reader.codes.stored
    mapped.save(place, allow_unprotected=True)
    assert_array_equal(reader.codes.stored, before)
    assert reader.search(_vectors(3), k=5).ids.shape == (3, 5)
    _equal(plain, PrivateIndex.open(place))
    with refuses("was changed since"):
        reader.save(place, allow_unprotected=True)


def _equal(plain, mapped):
    assert plain.ids.tolist() == mapped.ids.tolist() == list(mapped)
    assert_array_equal(plain.codes.stored, mapped.codes.stored)
    assert plain.repeats(mapped.codes) == len(plain)
    queries = (_vectors(5, seed=1), plain.codes.take(slice(5)))
    filters = (None, plain.ids[::3].tolist())
    for asked, k, filter_ in product(queries, (3, len(plain)), filters):
        one = plain.search(asked, k=k, filter=filter_).columns
        other = mapped.search(asked, k=k, filter=filter_).columns
        for name, column in one.items():
            assert_array_equal(column, other[name])
    for id_ in plain.ids[[0, len(plain) // 2, -1]].tolist():
        assert id_ in mapped
        assert_array_equal(mapped[id_].stored, plain[id_].stored)
    assert "nothing" not in mapped


@pytest.mark.usefixtures("_all_mapped")
def test_mapped_integers_of_several_widths(place):
    index = PrivateIndex(_spec("none-oporp"))
    format_ = index.spec.format
    values = [3, 300, 70_000]
    for value in values:
        rows = np.full((4, format_.width), value, dtype=np.int32)
        index.add_codes(format_.codes(rows))
        index.save(place, allow_unprotected=True)
    mapped = PrivateIndex.open(place)
    files = files_of_codes(place)
    types = [codes_from_bytes(file.read_bytes()).stored.dtype for file in files]
    assert types == [np.int8, np.int16, np.int32]
    _equal(index, mapped)


@pytest.mark.usefixtures("_all_mapped")
@pytest.mark.parametrize(
    "method, learned",
    [(FLOAT, "denoiser"), ("record-codebook", "codebook"), ("dp-designed-laplace", "design")],
)
def test_a_changed_or_lost_file_is_refused(method, learned, place):
    index = PrivateIndex(_spec(method, epsilon=3.0))
    index.add(_vectors(600), payload={"n": range(600)})
    if method == FLOAT:
        index.fit_denoiser("linear")
    index.save(place)
    files = sorted(place.glob("*/*"))
    folders = {file.parent.name for file in files}
    assert {"segments", "ids", "payload", learned} <= folders
    for file in files:
        data = file.read_bytes()
        cut = data[:-1]
        changed = cut + bytes([data[-1] ^ 1])
        for wrong in (cut, changed, data + b"x", b""):
            file.write_bytes(wrong)
            with refuses(r"restore it from a copy|at most"):
                PrivateIndex.open(place)
        file.unlink()
        with refuses("cannot be read"):
            PrivateIndex.open(place)
        file.write_bytes(data)
    PrivateIndex.open(place)


LIMITED = """
import resource, sys
import numpy as np
from dpindex import attribute, PrivateIndex

def size(name):  # in kilobytes
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(status[name].split()[0])

def search(index):
    x = np.full((3, 768), 0.1)
    assert index.search(x, query="private").ids.shape == (3, 10)
    assert 7 in index and index[7].stored.shape == (1, 64)
    index.search(x[:1], filter=[7, len(index) - 1])
    return index

small = search(PrivateIndex.open(sys.argv[1]))  # what is loaded once
before, most = size("RssAnon"), resource.RLIM_INFINITY
resource.setrlimit(resource.RLIMIT_DATA, (1024 * size("VmData") + (40 << 20), most))
large = PrivateIndex.open(sys.argv[2])
resource.setrlimit(resource.RLIMIT_DATA, (most, most))  # to learn a prior takes more for a moment
search(large)
print(len(large), size("RssAnon") - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="limits memory as Linux does")
def test_a_large_index_opens_and_searches_in_little_memory(tmp_path):
    """64 MB of codes and 8 MB of ids are opened within 40 MB of its own, and searched within 56:
    the sample that distributions of cosines are learned from takes 32.
    """
    spec = attribute_spec("dp-signoporp-rr", 768, k=512, epsilon=3.0)
    rng = default_rng(0)
    for name, rows in (("small", 70_000), ("large", 1_000_000)):
        index = PrivateIndex(spec)
        codes = rng.integers(0, 256, (rows, 64), dtype=np.uint8)
        index.add_codes(spec.format.codes(codes))
        index.save(tmp_path / name)
    said = python("-c", LIMITED, "small", "large", cwd=tmp_path)
    rows, kilobytes = map(int, said.split())
    assert rows == 1_000_000
    assert kilobytes < 56 << 10


def test_vectors_that_change_after_their_check_are_checked_as_they_are_drawn(tmp_path):
    """In memory they are checked and privatized in one pass: what was drawn before is discarded."""
    place = tmp_path / "x.npy"
    np.save(place, np.zeros((4, 8)))

    def change(done, rows, what):
        if what == "privatizing" and done == 2:
            np.save(place, np.full((4, 8), 1e6))

    index = PrivateIndex(attribute_spec("dp-oporp-staircase", 8, k=4, epsilon=1.0))
    with refuses("row 2"):
        index.add(open_dataset(place, rows_per_part=2), progress=change)
    assert len(index) == 0
