"""Index types: factory strings read strictly, and what an index makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_datasets import low_rank

from dpindex import InputError, PrivateIndex, Spec, attribute
from dpindex.accounting.ledger import Ledger
from dpindex.data import as_source
from dpindex.data.dataset import as_dataset
from dpindex.index.build import build_index
from dpindex.index.faiss_vectors import parse_index_type
from dpindex.storage.manifest import Settings
from dpindex.storage.release import Terms

DIM = 24


pytestmark = pytest.mark.usefixtures("known_noise")


def index_of(index_type: str, rows: int = 1500) -> tuple[PrivateIndex, Any]:
    spec = Spec(
        method="raw-staircase",
        dim=DIM,
        epsilon=6.0,
        bounds=(0, 1),
        seed=5,
        adjacency=attribute(1.0),
    )
    index = PrivateIndex(spec, index_type=index_type)
    base = low_rank(rows)
    index.add(base)
    return index, base


def test_rotation_keeps_cosines() -> None:
    """The leading directions are those of the uncentred second moment: cosines stay."""
    index, base = index_of("ROT4,Flat")
    index.fit_denoiser("linear")
    flat = PrivateIndex(index.spec)
    flat.add_codes(index.codes)
    flat.fit_denoiser("linear")
    mine, theirs = index.search(base[:40]), flat.search(base[:40])
    assert mine.scores == pytest.approx(theirs.scores, abs=0.01)


@pytest.mark.slow
def test_grows_and_is_kept(tmp_path: Path) -> None:
    index, base = index_of("IVF16,SQ8", rows=600)
    first = index.search(base[:5])
    index.add(low_rank(2000, seed=3))
    assert index.search(base[:5], k=3000).ids.shape == (5, 2600)
    index.save(tmp_path / "index")
    opened = PrivateIndex.open(tmp_path / "index")
    assert opened.index_type == "IVF16,SQ8"
    assert opened.search(base[:5]).ids.shape == first.ids.shape


def test_too_few_to_train() -> None:
    index, base = index_of("PQ8", rows=100)
    with pytest.raises(InputError, match="needs at least 256"):
        index.search(base[:1])


@pytest.mark.parametrize("index_type", ["IVF99999,Flat", "PQ8"])
def test_an_index_type_for_more_vectors_is_refused_before_they_are_privatized(
    tmp_path: Path, index_type: str
) -> None:
    spec = Spec(
        method="raw-staircase", dim=DIM, epsilon=6.0, bounds=(0, 1), adjacency=attribute(1.0)
    )
    dataset = as_dataset(as_source(low_rank(200))).with_labels(np.arange(200))
    ledger = Ledger(tmp_path / "ledger")
    settings = Settings(spec, index_type=index_type)
    with pytest.raises(InputError, match=r"trained on the vectors and needs at least \d+ of"):
        build_index(dataset, tmp_path / "index", settings, terms=Terms(ledger))
    assert not (tmp_path / "index").exists()
    settings = Settings(spec, index_type="IVF4,SQ8")
    outcome = build_index(dataset, tmp_path / "index", settings, terms=Terms(ledger))
    assert outcome.drawn == 200  # no id stood in the ledger


@pytest.mark.parametrize(
    ("index_type", "what"),
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
def test_refused(index_type: Any, what: str) -> None:
    with pytest.raises(InputError, match=what):
        parse_index_type(index_type, DIM)
    spec = Spec(method="raw-staircase", dim=DIM, epsilon=6.0, adjacency=attribute(1.0))
    with pytest.raises(InputError, match=what):
        PrivateIndex(spec, index_type=index_type)


def test_short_names_are_aliases() -> None:
    for alias, factory in {"f32": "Flat", "f16": "SQfp16", "int8": "SQ8"}.items():
        assert parse_index_type(alias, DIM) == parse_index_type(factory, DIM)
        assert parse_index_type(alias, DIM).exact == (alias == "f32")
        (one, _), (other, _) = index_of(alias), index_of(factory)
        assert (one.index_recall is None) == (other.index_recall is None) == (alias == "f32")
