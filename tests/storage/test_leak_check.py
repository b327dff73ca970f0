"""Codebooks that are made of private vectors are refused, whatever the rows look like."""

import numpy as np
import pytest
from helpers.common import (
    attribute_spec,
    fails,
    filled_index,
    normal,
    record_spec,
    refuses,
    write_codes,
)
from numpy.random import default_rng
from scipy import sparse

from dpindex import Codebook, PrivateIndex, Spec, attribute, design
from dpindex.accounting.ledger import Ledger
from dpindex.mechanism.codebooks import fit_codebook
from dpindex.storage.leak_check import LeakCheck, LeakEvidence, refuse_leaks

DIM = 24
BOTH = normal(600, DIM).astype(np.float32)
PRIVATE = BOTH[:400]
PUBLIC = BOTH[400:]
SIZES = default_rng(1).uniform(1e-3, 1e3, (400, 1))


def mixed(shared):
    """200 codewords, of which so many are private vectors."""
    return np.concatenate([PUBLIC[shared:], PRIVATE[100 : 100 + shared]])


def check(codewords, private, first=0):
    book = Codebook(codewords)
    leak_check = LeakCheck(book, first + private.shape[0])
    refuse_leaks(book, leak_check.evidence(first, private))


def test_two_in_a_hundred_are_refused_and_fewer_are_chance():
    for shared in (0, 1, 2):
        check(mixed(shared), PRIVATE)
    with refuses(r"^3 of the 200 codewords .* 197 is row 1100\)"):
        check(mixed(3), PRIVATE, first=1000)
    axes = np.eye(DIM)
    check(axes, axes[:1])  # one vector by itself, on a device
    with refuses("2 of the 24 "):
        check(axes, axes[:2])


def test_one_vector_is_added_whatever_it_is():
    """Also one that is two codewords, which differ by less than rounding."""
    words = np.eye(DIM)
    words[1] = words[0] + 1e-5 * words[2]
    spec = record_spec(
        "record-codebook",
        DIM,
        epsilon=8.0,
        codebook=Codebook(words),
    )
    index = PrivateIndex(spec)
    index.add(words[:1])
    with refuses("2 of the 24 "):
        index.add(words[[0, 0]])
    assert len(index) == 1


@pytest.mark.parametrize(
    "changed",
    [
        lambda x: x * np.float32(0.37),
        lambda x: x * SIZES,
        lambda x: x.astype(np.float64) / 3 * 1e200,
        sparse.csr_matrix,
        lambda x: x[::-1],
    ],
)
def test_directions_count(changed):
    """All shared rows are found, at any scale and in any order."""
    with refuses(r"^200 of the 200 codewords"):
        check(mixed(200), changed(PRIVATE))


def test_whole_numbers_at_the_edges_of_intervals():
    rows = default_rng(2).integers(-4, 5, (300, DIM)).astype(np.float32)
    rows[:, 0] = 4
    with refuses(r"^300 of the 300 codewords"):
        check(rows, rows / 3)
    check(rows, -rows)
    check(np.abs(rows) + 1, rows)


def test_near_ones_are_not_the_same():
    """A cosine of 1 − 5e-6 is another vector."""
    noise = normal(*PRIVATE.shape, seed=3).astype(np.float32)
    near = PRIVATE + 0.003 * noise
    check(mixed(200), near)


def _spec():
    book = Codebook(PRIVATE[::4])
    return record_spec("record-codebook", DIM, epsilon=4.0, codebook=book)


def test_an_index_adds_nothing_and_writes_nothing_down(tmp_path):
    index = PrivateIndex(_spec())
    ledger = Ledger(tmp_path / "ledger")
    index.save(tmp_path / "index")
    names = [f"id{i}" for i in range(400)]
    for rows in (PRIVATE, sparse.csr_matrix(PRIVATE), PRIVATE.tolist()):
        with refuses("skip_leak_check"):
            index.add(rows, names, ledger=ledger)
    assert len(index) == 0
    assert not (tmp_path / "ledger").exists()
    index.add(PRIVATE, names, ledger=ledger, skip_leak_check=True)
    assert len(index) == 400


def test_a_source_is_refused_before_the_first_code(tmp_path):
    with refuses("100 of the 100 codewords"):
        write_codes(tmp_path / "x.codes", _spec(), PRIVATE)
    assert not list(tmp_path.iterdir())
    assert write_codes(tmp_path / "x.codes", _spec(), PRIVATE, skip_leak_check=True) == 400


def test_command_line(run, prints, tmp_path):
    np.save(tmp_path / "x.npy", PRIVATE)
    np.save(tmp_path / "leaky.npy", PRIVATE[::4])
    np.save(tmp_path / "public.npy", PUBLIC)
    terms = "--method record-codebook --record --epsilon 4"
    build = f"build x.npy index {terms} --codebook"
    fails(
        run(f"{build} leaky.npy"),
        "100 of the 100 codewords",
        "--skip-leak-check",
    )
    assert not (tmp_path / "index").exists()
    prints(f"{build} leaky.npy --skip-leak-check")
    (tmp_path / "spec.json").write_text(_spec().to_json())
    privatize = "privatize x.npy x.codes --spec spec.json --codebook leaky.npy"
    fails(run(privatize), "codewords are private vectors too")
    fails(run("add index x.npy"), "codewords are private vectors too")
    prints(f"build x.npy sound {terms} --codebook public.npy")
    np.save(tmp_path / "more.npy", PRIVATE[::-1] + 1e-3)
    prints("add sound more.npy")


def made(kind, count, dim):
    """Vectors of one kind: in all directions, in some, in clusters, or repeated."""
    rng = default_rng(1)
    if kind == "clusters":
        centres = rng.normal(size=(20, dim))
        chosen = rng.integers(0, 20, count)
        return centres[chosen] + rng.normal(size=(count, dim), scale=0.5)
    if kind == "repeated":
        few = count // 3
        return rng.normal(size=(few, dim))[rng.integers(0, few, count)]
    if kind == "positive":
        return rng.random((count, dim))
    if kind == "narrow":
        return 1.0 + rng.random((count, dim)) ** 3
    return rng.normal(size=(count, dim))


@pytest.mark.parametrize(
    "kind, count, dim, size",
    [
        ("all", 24, 8, 2),
        ("all", 60, 8, 20),
        ("all", 400, 24, 100),
        ("all", 400, 24, 390),
        ("all", 2000, 5, 5),
        ("all", 2000, 100, 30),
        ("positive", 200, 12, 10),
        ("positive", 1000, 300, 40),
        ("narrow", 8000, 6, 40),
        ("clusters", 4000, 16, 200),
        ("repeated", 600, 24, 20),
    ],
)
def test_low_centroids_of_the_private_vectors_are_refused(kind, count, dim, size):
    """Those of the other half are not: chance does that less than once in a million."""
    rows = made(kind, 2 * count, dim)
    if kind == "repeated":
        rows = rows[np.lexsort(rows.T)]  # the halves share no vector
    private = rows[:count]
    check(fit_codebook(rows[count:], size).stated, private)
    with refuses(r"codewords are (means of the|private vectors)"):
        check(fit_codebook(private, size).stated, private)


def test_low_centroids_are_found_in_any_order_and_in_shards():
    book = fit_codebook(PRIVATE, 30)
    leak_check = LeakCheck(book, len(PRIVATE))
    rows = sparse.csr_matrix(7 * PRIVATE[::-1])
    starts = range(0, 400, 70)
    parts = [leak_check.evidence(start, rows[start : start + 70]) for start in starts]
    with refuses("codewords are means of the private vectors, as of a"):
        refuse_leaks(book, LeakEvidence.joined(parts + parts[:2]))


def test_low_centroids_of_the_first_of_very_many():
    """A codebook is made of 65536 vectors at most, and the check takes the same ones."""
    rows = normal(66000, 8, 2)
    with refuses("codewords are means of the private vectors"):
        check(fit_codebook(rows, 4).stated, rows)


def test_a_guide_of_a_part_of_the_vectors_is_refused():
    """Centroids hide that a fifth of their vectors are private; a guide keeps each of those."""
    rows = normal(3000, 8, 3).astype(np.float32)
    book = fit_codebook(rows[500:], 16)
    check = LeakCheck(book, 1000)
    with refuses(r"guide .* private vectors too \(one is row \d+\)"):
        refuse_leaks(book, check.evidence(0, 3 * rows[:1000]))
    public = check.evidence(0, rows[:500])
    refuse_leaks(book, public)
    refuse_leaks(Codebook(book.stated), LeakCheck(book, 1000).evidence(0, rows[:500]))


CAUSES = default_rng(5).integers(0, 256, (900, 3))
WHOLE = CAUSES @ np.eye(3, 40, dtype=np.int64)
LIKE = (WHOLE + default_rng(6).integers(0, 60, (900, 40))).astype(np.float32)


def _designed_index(public, terms, **size):
    """An empty index of a design that was fitted to these public vectors."""
    made = design(public, epsilon=2.0, **size, **terms)
    bounds = (0.0, 1.3)
    spec = attribute_spec(
        "dp-designed-laplace", 40, epsilon=2.0, bounds=bounds, design=made, **terms
    )
    return PrivateIndex(spec)


def _pictures(public):
    return _designed_index(public, {"scale": 255.0}, code_length=4)


@pytest.mark.parametrize("private", [LIKE, LIKE[:300], LIKE[::-1].astype(np.float64)])
def test_a_design_of_the_vectors_that_are_built_is_refused(private):
    """It keeps 512 of them, in coordinates in which others do not coincide."""
    index = _pictures(LIKE)
    with refuses(r"the 512 public vectors are private .*a design is pub"):
        index.add(private)
    assert len(index) == 0
    index.add(private, skip_leak_check=True)


def test_a_design_of_a_part_of_the_vectors_is_refused():
    index = _pictures(LIKE[::6])
    with refuses("150 of the 150 public vectors"):
        index.add(sparse.csr_matrix(LIKE))


def test_a_design_of_others_is_accepted():
    """Also where many attributes are none, and with one vector by itself."""
    _pictures(LIKE[:400]).add(LIKE[400:])
    _pictures(LIKE).add(LIKE[:1])
    bits = default_rng(7).random((800, 40)) < 0.2
    bits = bits.astype(np.float32)
    _designed_index(bits[:400], {}, code_length=8).add(bits[400:])


def test_sparse_rows_of_millions_of_attributes_are_compared_with_a_design():
    """Of the attributes that it uses alone: made dense, they would take gigabytes."""
    count = 300
    entries = 40
    rng = default_rng(4)
    places = rng.integers(0, 500, count * entries) * 4000
    starts = np.arange(count + 1) * entries
    parts = (rng.random(count * entries), places, starts)
    rows = sparse.csr_matrix(parts, shape=(count, 2_000_000))
    rows.sum_duplicates()
    made = design(rows[:100], epsilon=1.0, code_length=8, window=0.7)
    terms = {"epsilon": 1.0, "adjacency": attribute(1.0), "bounds": (0.0, 9.0)}
    spec = Spec("dp-designed-laplace", 2_000_000, design=made, **terms)
    index = filled_index(spec, rows[100:])
    with refuses("public vectors are private vectors too"):
        index.add(rows)
