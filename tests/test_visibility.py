"""What noise leaves of the best case: right for copies, and a warning where nothing is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet as pq
from releases import build

import dpindex as dpi
from dpindex.exposure.visibility import Visibility, rows_to_sample, visibility
from dpindex.index.build import build_index
from dpindex.storage.directory import IndexDirectory
from dpindex.storage.manifest import Manifest
from dpindex.storage.summary import Summary, summarize
from dpindex.vectors import open_dataset

pytestmark = pytest.mark.usefixtures("known_noise")

N, DIM, COPIES = 4000, 64, 10
RECORD = {"adjacency": dpi.record()}


def unit_vectors(rows: int, seed: int, dim: int = DIM) -> Any:
    x = np.random.default_rng(seed).normal(size=(rows, dim))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def pixels(rows: int, seed: int) -> Any:
    """Values in [0, 1] that have much in common."""
    x = np.random.default_rng(seed).normal(size=(rows, DIM)) * 0.25
    return np.clip(x + np.linspace(0, 0.8, DIM), 0, 1)


def of_index(index: dpi.PrivateIndex) -> Visibility:
    rows = rows_to_sample(len(index), index.spec.code_length)
    return visibility(index.codes.take(rows), index.spec, len(index))


CASES: dict[str, tuple[Any, dict[str, Any], tuple[float, ...]]] = {
    "staircase": (unit_vectors, {"method": "dp-oporp-staircase", "k": 64}, (2.0, 5.0, 7.0)),
    "laplace": (unit_vectors, {"method": "raw-laplace"}, (4.0, 10.0, 20.0)),
    "pixels": (pixels, {"method": "raw-staircase", "bounds": (0, 1)}, (0.5, 2.0, 3.0)),
    "window": (pixels, {"method": "raw-square-wave", "bounds": (0, 1)}, (1.0, 2.0, 3.0)),
    "flips": (unit_vectors, {"method": "dp-signoporp-rr", "k": 64}, (0.3, 1.0, 2.0)),
    "levels": (
        unit_vectors, {"method": "dp-signoporp-geometric", "k": 64, "norm": 1.0}, (0.3, 2.0),
    ),
    "cap": (unit_vectors, {"method": "record-cap", "k": 64, **RECORD}, (4.0, 16.0, 40.0)),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_it_is_the_share_of_copies_that_are_found(case: str) -> None:
    """Twenty queries, each of which lies in the index ten times."""
    make, terms, epsilons = CASES[case]
    vectors = make(N, 1)
    asked = vectors[:20].copy()
    vectors[: 20 * COPIES] = np.repeat(asked, COPIES, axis=0)
    for epsilon in epsilons:
        index = dpi.PrivateIndex(dpi.Spec(dim=DIM, epsilon=epsilon, **terms))
        index.add(vectors)
        for query, predicted in zip(("exact", "private"), of_index(index)[:2], strict=True):
            ids = index.search(asked, k=COPIES, query=query).ids
            found = np.mean(ids // COPIES == np.arange(20)[:, None])
            assert abs(found - predicted) < 0.15, (epsilon, query)


def test_symbols_that_are_almost_random_find_nothing() -> None:
    book = dpi.Codebook(unit_vectors(200, 0))
    for epsilon, visible in ((2.0, False), (12.0, True)):
        spec = dpi.Spec("record-codebook", DIM, epsilon=epsilon, codebook=book, **RECORD)
        index = dpi.PrivateIndex(spec)
        index.add(unit_vectors(N, 1))
        assert (of_index(index).exact > 0.3) == visible


def test_without_noise_and_among_ten_everything_is_found() -> None:
    index = dpi.PrivateIndex(dpi.Spec("none-oporp", DIM, k=DIM))
    index.add(unit_vectors(500, 1))
    assert min(of_index(index)[:2]) > 0.999
    drowned = dpi.PrivateIndex(dpi.Spec("raw-laplace", DIM, epsilon=0.1))
    drowned.add(unit_vectors(10, 1))
    assert of_index(drowned)[:2] == (1.0, 1.0)


def test_private_queries_among_signs_of_like_vectors() -> None:
    """Codes that agree leave no room for chance: the scores of copies hardly spread."""
    vectors = pixels(N, 1)
    vectors[: 20 * COPIES] = np.repeat(vectors[:20], COPIES, axis=0)
    spec = dpi.Spec("dp-signoporp-rr", DIM, k=DIM, epsilon=8.0, bounds=(0, 1))
    index = dpi.PrivateIndex(spec)
    index.add(vectors)
    ids = index.search(vectors[: 20 * COPIES : COPIES], k=COPIES, query="private").ids
    found = np.mean(ids // COPIES == np.arange(20)[:, None])
    assert abs(found - of_index(index).private) < 0.15


def summary_of(path: Path, spec: dpi.Spec, vectors: Any) -> Summary:
    build(path, spec, vectors)
    return summarize(path)


@pytest.mark.slow
def test_embeddings_at_epsilon_2_are_warned_about(tmp_path: Path) -> None:
    vectors = unit_vectors(3000, 1, dim=384)
    for method in ("dp-oporp-staircase", "raw-staircase"):
        about = summary_of(tmp_path / method, dpi.Spec(method, 384, epsilon=2.0), vectors)
        assert str(about.noise_warning).startswith("the noise may hide neighbours at this setting")
    about = summary_of(tmp_path / "weak", dpi.Spec("raw-staircase", 384, epsilon=9.0), vectors)
    assert about.noise_warning is None
    about = summary_of(tmp_path / "middle", dpi.Spec("raw-staircase", 384, epsilon=5.0), vectors)
    assert "of private queries at this setting" in str(about.noise_warning)


def test_saved_and_built_alike_and_kept_up_to_date(tmp_path: Path) -> None:
    spec = dpi.Spec("dp-oporp-staircase", DIM, epsilon=3.0)
    built = summary_of(tmp_path / "built", spec, unit_vectors(2000, 1))
    index = dpi.PrivateIndex.open(tmp_path / "built")
    index.save(tmp_path / "saved")
    assert summarize(tmp_path / "saved").visibility == built.visibility
    index = dpi.PrivateIndex.open(tmp_path / "built")
    index.add(unit_vectors(8000, 2))
    index.save(tmp_path / "built")
    assert built.visibility is not None
    assert summarize(tmp_path / "built").visibility.exact < built.visibility.exact


@pytest.mark.slow
def test_a_folder_of_files_is_warned_about_as_one_array_is(tmp_path: Path) -> None:
    """Each file has a topic of its own: a few of them do not stand for the collection."""
    rng = np.random.default_rng(5)
    topics = np.repeat(unit_vectors(40, 4), 100, axis=0)
    vectors = topics + rng.normal(size=topics.shape) * 0.05
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    (tmp_path / "folder").mkdir()
    for number, rows in enumerate(np.split(vectors, 40)):
        table = pa.table({"vector": pa.array(list(rows))})
        pq.write_table(table, tmp_path / "folder" / f"{number:02}.parquet")
    np.save(tmp_path / "x.npy", vectors)
    spec = dpi.Spec("dp-oporp-staircase", DIM, epsilon=2.0)
    for name in ("folder", "x.npy"):
        with open_dataset(tmp_path / name) as dataset:
            build_index(dataset, tmp_path / f"index of {name}", spec)
        about = summarize(tmp_path / f"index of {name}")
        assert str(about.noise_warning).startswith("the noise may hide neighbours at this setting")


@pytest.mark.slow
def test_the_note_is_a_doubt_where_rows_of_a_table_are_alike(tmp_path: Path) -> None:
    """Few copies are among ten answers, yet most answers are among the nearest twentieth."""
    rows = np.random.default_rng(6).uniform(size=(8000, 3))
    spec = dpi.Spec("raw-staircase", 3, epsilon=3.0, bounds=(0, 1), adjacency=dpi.attribute(0.1))
    about = summary_of(tmp_path / "index", spec, rows)
    index = dpi.PrivateIndex.open(tmp_path / "index")
    asked = rows[:100]
    scores = asked @ rows.T / np.linalg.norm(rows, axis=1)
    near = np.argsort(-scores, axis=1)[:, :400]
    ids = index.search(asked, k=10).ids
    assert np.mean([np.isin(*pair).mean() for pair in zip(ids, near, strict=True)]) > 0.5
    assert "tables of few columns, answers can be near all the same" in str(about.noise_warning)


def test_a_forged_one_is_refused(tmp_path: Path) -> None:
    spec = dpi.Spec("dp-oporp-staircase", DIM, epsilon=3.0)
    summary_of(tmp_path / "index", spec, unit_vectors(600, 1))
    directory = IndexDirectory(tmp_path / "index")
    data: Any = vars(directory.manifest())
    for share in (-0.1, 1.5, float("nan"), "much", None, True):
        forged = Manifest(**{**data, "visibility": Visibility(share, 0.5)})  # type: ignore[arg-type]
        with pytest.raises(dpi.InputError, match="damaged"):
            Manifest.from_bytes(forged.to_bytes(), tmp_path)
