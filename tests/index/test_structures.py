"""Bytes a vector of index types, against what Faiss writes of them."""

from __future__ import annotations

from typing import Any

import faiss
import numpy as np
import pytest

from dpindex import InputError, Spec, attribute
from dpindex.index.backends import FaissSigns
from dpindex.index.build import structures
from dpindex.index.faiss_vectors import FaissVectors
from dpindex.index.private_index import PrivateIndex

SPEC = Spec("dp-oporp-staircase", dim=96, k=32, epsilon=3.0, adjacency=attribute(1.0))


@pytest.mark.parametrize(
    "index_type",
    ["f32", "f16", "SQ8", "SQ6", "SQ4", "PQ16x4fs", "PQ4", "IVF16,SQ8", "IVF16,PQ16x4fs", "HNSW32",
     "HNSW32,SQ8", "ROT8,SQ8", pytest.param("OPQ4,PQ4", marks=pytest.mark.slow), "HNSW16,SQ8"],
)  # fmt: skip
def test_bytes_are_those_that_faiss_writes(index_type: str) -> None:
    rng = np.random.default_rng(0)
    sizes = []
    for rows in (2000, 4000):
        backend = FaissVectors(32, "cosine", index_type)
        backend.begin(rng.normal(size=(1000, 32)).astype(np.float32))
        backend.add(rng.normal(size=(rows, 32)).astype(np.float32))
        sizes.append(faiss.serialize_index(backend._index).size)
    # Lists of fast scan are filled up to blocks of 32.
    assert (sizes[1] - sizes[0]) / 2000 == pytest.approx(backend.row_bytes, rel=0.12)


def test_bytes_of_signs_are_those_of_the_fast_scan() -> None:
    backend = FaissSigns(256, "cosine", "f32")
    backend.add(np.zeros((1 << 12, 32), dtype=np.uint8))
    (scan,) = backend._scanned()
    assert scan.codes.size() == backend.row_bytes * (1 << 12)


@pytest.mark.parametrize("rows", [100, 20_000, 10**9])
@pytest.mark.parametrize("k", [1, 30, 31, 96])
def test_every_index_type_can_be_used(rows: int, k: int) -> None:
    spec = Spec("dp-oporp-staircase", dim=96, k=k, epsilon=3.0, adjacency=attribute(1.0))
    found = structures(spec, rows)
    assert [s.index_type for s in found if s.exact] == ["f32"]
    assert len({s.index_type for s in found}) == len(found)
    for structure in found:
        PrivateIndex(spec, index_type=structure.index_type)


def test_formats_with_one_structure_and_denoised_signs() -> None:
    signs: Any = Spec("dp-signoporp-rr", dim=96, k=32, epsilon=3.0, adjacency=attribute(1.0))
    assert [tuple(s) for s in structures(signs, 10**6)] == [("f32", 4, True)]
    assert len(structures(signs, 10**6, denoised=True)) > 5
    with pytest.raises(InputError):
        PrivateIndex(signs, index_type="SQ8")
