"""Factory strings: read strictly, filled completely, and honest about their recall."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_denoise import low_rank

from dpindex import InputError, PrivateIndex, Spec
from dpindex.index.compact import parse_layout

DIM = 24

LAYOUTS = [
    "SQ8",
    "SQ4",
    "Flat",
    "PQ8",
    "PQ12x4fs",
    "OPQ6,PQ6x8",
    "ROT8,SQ8",
    "IVF16,Flat",
    "IVF16,PQ12x4fs",
    "OPQ6,IVF8,PQ6",
    "HNSW16",
    "ROT12,HNSW16,SQ8",
]


def index_of(storage: str, rows: int = 1500, metric: Any = "cosine") -> tuple[PrivateIndex, Any]:
    spec = Spec(method="raw-staircase", dim=DIM, epsilon=6.0, bounds=(0, 1), seed=5)
    index = PrivateIndex(spec, storage=storage, metric=metric)
    base = low_rank(rows)
    index.add(base)
    return index, base


@pytest.mark.parametrize(
    ("storage", "metric"),
    [(storage, "cosine") for storage in LAYOUTS]
    + [(storage, metric) for storage in ("IVF16,PQ12x4fs", "HNSW16") for metric in ("l2", "ip")],
)
def test_layouts(storage: str, metric: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """Found neighbours are the flat ones about as often as the index says."""
    index, base = index_of(storage, metric=metric)
    index.fit_denoiser("linear")
    hits = index.search(base[:60], k=10)
    flat = PrivateIndex(index.spec, metric=metric)
    flat.add_codes(index.codes)
    flat.fit_denoiser("linear")
    true = flat.search(base[:60], k=10)
    seen = np.mean([np.isin(a, b).mean() for a, b in zip(hits.ids, true.ids, strict=True)])
    assert index.storage_recall is not None
    assert seen > index.storage_recall - 0.25
    if "PQ" not in storage and "SQ4" not in storage and "ROT" not in storage:
        assert index.storage_recall > 0.8
    assert np.all(np.diff(hits.scores, axis=1) <= 1e-6)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("storage", ["IVF16,Flat", "HNSW16", "IVF16,PQ12x4fs"])
def test_every_place_is_filled(storage: str) -> None:
    """However many neighbours are wanted, no row number is made up."""
    index, base = index_of(storage)
    hits = index.search(base[:3], k=5000)
    assert hits.ids.shape == (3, 1500)
    assert all(len(set(row)) == 1500 and min(row) == 0 for row in hits.ids.tolist())


def test_rotation_keeps_cosines() -> None:
    """The leading directions are those of the uncentred second moment: cosines stay."""
    index, base = index_of("ROT4,Flat")
    index.fit_denoiser("linear")
    flat = PrivateIndex(index.spec)
    flat.add_codes(index.codes)
    flat.fit_denoiser("linear")
    mine, theirs = index.search(base[:40]), flat.search(base[:40])
    assert mine.scores == pytest.approx(theirs.scores, abs=0.01)


def test_grows_and_is_kept(tmp_path: Path) -> None:
    index, base = index_of("IVF16,SQ8", rows=600)
    first = index.search(base[:5])
    index.add(low_rank(2000, seed=3))
    assert index.search(base[:5], k=3000).ids.shape == (5, 2600)
    index.save(tmp_path / "index")
    opened = PrivateIndex.open(tmp_path / "index")
    assert opened.storage == "IVF16,SQ8"
    assert opened.search(base[:5]).ids.shape == first.ids.shape


def test_too_few_to_train() -> None:
    index, base = index_of("PQ8", rows=100)
    with pytest.raises(InputError, match="needs at least 256"):
        index.search(base[:1])


@pytest.mark.parametrize(
    ("storage", "what"),
    [
        ("PCA8,SQ8", "storage must be"),
        ("IDMap,Flat", "storage must be"),
        ("SQ8,IVF16", "storage must be"),
        ("IVF16", "storage must be"),
        ("", "storage must be"),
        (8, "storage must be"),
        ("ROT48,SQ8", "48 of 24 directions"),
        ("ROT0,SQ8", "0 of 24 directions"),
        ("PQ7", "7 equal parts"),
        ("ROT8,PQ6", "8 numbers into 6"),
        ("OPQ0,PQ8", "0 equal parts"),
        ("IVF999999,Flat", "999999 lists"),
        ("IVF0,Flat", "0 lists"),
        ("HNSW1", "2 to 256 links"),
        ("HNSW999", "2 to 256 links"),
    ],
)
def test_refused(storage: Any, what: str) -> None:
    with pytest.raises(InputError, match=what):
        parse_layout(storage, DIM)
    spec = Spec(method="raw-staircase", dim=DIM, epsilon=6.0)
    with pytest.raises(InputError, match=what):
        PrivateIndex(spec, storage=storage)
