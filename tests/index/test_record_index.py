"""Indexes of the record level: saved, opened, tampered with, and made on the command line."""

import numpy as np
import pytest
from helpers.common import fails, few_queries, python, record_spec, refuses

from dpindex import Codebook, PrivateIndex, Privatizer
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
    return record_spec(method, DIM, epsilon=epsilon, codebook=book)


METHODS = pytest.mark.parametrize("method", ["record-cap", "record-codebook"])


@pytest.mark.slow
@few_queries
def test_commands_know_a_codebook_by_its_vectors(run, prints, tmp_path):
    files = {"x": _rows(300, 2), "public": PUBLIC.stated, "other": _rows(80, 8)}
    for name, rows in files.items():
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


def test_codes_of_other_codebooks_are_refused():
    index = PrivateIndex(_spec("record-codebook"))
    # With a fingerprint that was copied, and symbols beyond the codebook.
    forged = SymbolFormat(1, index.spec.fingerprint, 1000)
    with refuses("one of 1000 symbols"):
        index.add_codes(forged.codes(np.array([[900]], np.uint16)))


@METHODS
def test_numbers_beyond_doubles_are_refused(method):
    privatizer = Privatizer(_spec(method))
    rows = np.ones((2, DIM), dtype=np.longdouble)
    privatizer.privatize(rows * np.longdouble("1e300"))
    rows[1, 3] = np.longdouble("1e400")
    with refuses(r"row 1, column 3 is infinite"):
        privatizer.privatize(rows)
