"""Indexes of the record level: saved, opened, tampered with, and made on the command line."""

import numpy as np
import pytest
from helpers.commands import fails
from helpers.processes import python
from helpers.refusals import refuses
from helpers.releases import filled_index

from dpindex import Codebook, PrivateIndex, Privatizer, Spec, codes_from_bytes, record
from dpindex.mechanism.codes import SymbolFormat

DIM = 24
RNG = np.random.default_rng(0)
CENTRES = RNG.normal(size=(12, DIM))


def _rows(count, seed):
    rng = np.random.default_rng(seed)
    return CENTRES[np.arange(count) % 12] + 0.3 * rng.normal(size=(count, DIM))


PUBLIC = Codebook(_rows(80, 1))


def _spec(method, epsilon=16.0):
    book = PUBLIC if method == "record-codebook" else None
    return Spec(method, DIM, epsilon=epsilon, adjacency=record(), codebook=book)


METHODS = pytest.mark.parametrize("method", ["record-cap", "record-codebook"])


@METHODS
@pytest.mark.parametrize("query", ["exact", "private"])
def test_an_index_finds_and_opens_again(method, query, tmp_path, known_noise):
    index = filled_index(_spec(method), _rows(600, 2))
    index.save(tmp_path / "index")
    again = PrivateIndex.open(tmp_path / "index")
    assert again.spec == index.spec
    asked = _rows(24, 3)
    if query == "private":  # once, as each release has noise of its own
        asked = Privatizer(index.spec).privatize(asked)
    one, other = (searched.search(asked, k=10, query=query) for searched in (index, again))
    np.testing.assert_array_equal(one.ids, other.ids)
    np.testing.assert_array_equal(one.similarity, other.similarity)
    same_topic = (one.ids % 12 == (np.arange(24) % 12)[:, None]).mean()
    assert same_topic > 0.5  # by chance a twelfth
    assert np.isfinite(one.unbiased).all()
    again.add(_rows(30, 4), ids=np.arange(1000, 1030))
    again.save(tmp_path / "index")
    assert len(PrivateIndex.open(tmp_path / "index")) == 630


@pytest.mark.slow
def test_commands_know_a_codebook_by_its_vectors(run, prints, tmp_path):
    for name, rows in {"x": _rows(300, 2), "public": PUBLIC.stated, "other": _rows(80, 8)}.items():
        np.save(tmp_path / name, rows)
    prints("build x.npy index --record --method record-codebook --epsilon 12 --codebook public.npy")
    # In a process of its own: a stream that is known is no secret, and the audit would say so.
    report = python("-m", "dpindex", "audit", "--exact", "index", cwd=tmp_path)
    assert "holds" in report
    assert "any two vectors" in report
    (tmp_path / "spec.json").write_text(_spec("record-codebook").to_json())
    prints("privatize x.npy x.codes --spec spec.json --codebook public.npy")
    another = run("privatize x.npy y.codes --spec spec.json --codebook other.npy")
    fails(another, "codebook")


def _codebook_file(folder):
    (found,) = folder.glob("codebook/*.vectors")
    return found


def test_a_codebook_that_was_changed_or_lost_is_noticed(tmp_path):
    index = filled_index(_spec("record-codebook"), _rows(50, 2))
    path = tmp_path / "index"
    index.save(path)
    file = _codebook_file(path)
    whole = file.read_bytes()
    broken = bytearray(whole)
    broken[-5] ^= 1
    other = Codebook(_rows(80, 9)).to_bytes()
    for data in (bytes(broken), whole[:-1], b"", other):
        file.write_bytes(data)
        with refuses():
            PrivateIndex.open(path)
    file.unlink()
    with refuses():
        PrivateIndex.open(path)
    file.write_bytes(whole)
    assert len(PrivateIndex.open(path)) == 50


def test_codes_of_other_codebooks_are_refused():
    index = PrivateIndex(_spec("record-codebook"))
    codes = Privatizer(index.spec).privatize(_rows(5, 2))
    index.add_codes(codes_from_bytes(codes.to_bytes()))
    other = Spec("record-codebook", DIM, epsilon=16.0, adjacency=record(),
                 codebook=Codebook(_rows(81, 1)))  # fmt: skip
    with refuses():
        index.add_codes(Privatizer(other).privatize(_rows(5, 2)))
    # With a fingerprint that was copied, and symbols beyond the codebook.
    forged = SymbolFormat(1, index.spec.fingerprint, 1000)
    with refuses("one of 1000 symbols"):
        index.add_codes(forged.codes(np.full((5, 1), 900, np.uint16)))


def test_without_its_codewords_a_spec_encodes_nothing():
    named = Spec.from_json(_spec("record-codebook").to_json())
    with refuses("is not here"):
        Privatizer(named).privatize(_rows(3, 2))


@METHODS
def test_numbers_beyond_doubles_are_refused(method):
    privatizer = Privatizer(_spec(method))
    rows = np.ones((2, DIM), dtype=np.longdouble)
    privatizer.privatize(rows * np.longdouble("1e300"))
    rows[1, 3] = np.longdouble("1e400")
    with refuses(r"row 1, column 3 is infinite"):
        privatizer.privatize(rows)
