"""Codebooks that hold private vectors are refused, whatever the rows look like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from releases import write_codes
from scipy import sparse
from test_cli import Run as Command
from test_cli import fails

from dpindex import Codebook, InputError, PrivateIndex, Spec, record
from dpindex.accounting.ledger import Ledger
from dpindex.storage.leak_check import refuse_shared_rows

DIM = 24
RNG = np.random.default_rng(0)
PRIVATE = RNG.normal(size=(400, DIM)).astype(np.float32)
PUBLIC = RNG.normal(size=(200, DIM)).astype(np.float32)


def mixed(shared: int) -> np.ndarray:
    """200 codewords, of which so many are private vectors."""
    return np.concatenate([PUBLIC[shared:], PRIVATE[100 : 100 + shared]])


def check(codewords: Any, private: Any, first: int = 0) -> None:
    refuse_shared_rows(Codebook(codewords), [(first, private)])


def test_two_in_a_hundred_are_refused_and_fewer_are_chance() -> None:
    for shared in (0, 1, 2):
        check(mixed(shared), PRIVATE)
    with pytest.raises(InputError, match=r"^3 of the 200 codewords .* 197 is row 1100\)"):
        check(mixed(3), PRIVATE, first=1000)
    check(np.eye(DIM), np.eye(DIM)[:1])  # one vector by itself, on a device
    with pytest.raises(InputError, match="2 of the 24 "):
        check(np.eye(DIM), np.eye(DIM)[:2])


@pytest.mark.parametrize(
    "changed",
    [
        lambda x: x.astype(np.float64),
        lambda x: x * np.float32(0.37),
        lambda x: x * RNG.uniform(1e-3, 1e3, (len(x), 1)),
        lambda x: x / np.linalg.norm(x, axis=1, keepdims=True),
        lambda x: x.astype(np.float64) / 3 * 1e200,
        sparse.csr_matrix,
        lambda x: x[::-1],
    ],
)
def test_directions_count(changed: Any) -> None:
    """All shared rows are found: a rounded row is missed with a chance below 1e-4."""
    with pytest.raises(InputError, match=r"^200 of the 200 codewords"):
        check(mixed(200), changed(PRIVATE))


def test_whole_numbers_at_the_edges_of_intervals() -> None:
    rows = RNG.integers(-4, 5, (300, DIM)).astype(np.float32)
    rows[:, 0] = 4
    with pytest.raises(InputError, match=r"^300 of the 300 codewords"):
        check(rows, rows / 3)
    check(rows, -rows)
    check(np.abs(rows) + 1, rows)


def test_near_ones_are_not_the_same() -> None:
    """A cosine of 1 − 5e-6 is another vector."""
    near = PRIVATE + 0.003 * RNG.normal(size=PRIVATE.shape).astype(np.float32)
    check(mixed(200), near)


def _spec() -> Spec:
    book = Codebook(PRIVATE[::4])
    return Spec("record-codebook", DIM, epsilon=4.0, adjacency=record(), codebook=book)


def test_an_index_adds_nothing_and_writes_nothing_down(tmp_path: Path) -> None:
    index, ledger = PrivateIndex(_spec()), Ledger(tmp_path / "ledger")
    names = [f"id{i}" for i in range(400)]
    for rows in (PRIVATE, sparse.csr_matrix(PRIVATE), PRIVATE.tolist()):
        with pytest.raises(InputError, match="skip_leak_check=True"):
            index.add(rows, names, ledger=ledger)
    assert len(index) == 0
    assert not (tmp_path / "ledger").exists()
    index.add(PRIVATE, names, ledger=ledger, skip_leak_check=True)
    assert len(index) == 400


def test_a_source_is_refused_before_the_first_code(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="100 of the 100 codewords"):
        write_codes(tmp_path / "x.codes", _spec(), PRIVATE)
    assert not list(tmp_path.iterdir())
    assert write_codes(tmp_path / "x.codes", _spec(), PRIVATE, skip_leak_check=True) == 400


def test_command_line(run: Command, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", PRIVATE)
    np.save(tmp_path / "leaky.npy", PRIVATE[::4])
    np.save(tmp_path / "public.npy", PUBLIC)
    terms = ("--method", "record-codebook", "--record", "--epsilon", 4)
    build = ("build", "x.npy", "index", *terms, "--codebook")
    fails(run(*build, "leaky.npy"), "100 of the 100 codewords", "--skip-leak-check")
    assert not (tmp_path / "index").exists()
    assert run(*build, "leaky.npy", "--skip-leak-check")[0] == 0
    (tmp_path / "spec.json").write_text(_spec().to_json())
    privatize = ("privatize", "x.npy", "x.codes", "--spec", "spec.json", "--codebook", "leaky.npy")
    fails(run(*privatize), "codewords are private vectors too")
    fails(run("add", "index", "x.npy"), "codewords are private vectors too")
    assert run("build", "x.npy", "sound", *terms, "--codebook", "public.npy")[0] == 0
    assert run("add", "sound", "x.npy")[0] == 0
