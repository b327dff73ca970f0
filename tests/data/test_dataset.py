"""Datasets: files, rows and ids in parts."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.common import refuses, travelled, vectors, write_dataset
from numpy.testing import assert_array_equal
from scipy import sparse

from dpindex.data import open_dataset


def _read(dataset, step=7, travels=True):
    """All vectors and ids, through parts that travelled."""
    chunks = []
    ids = []
    for part in travelled(dataset.parts) if travels else dataset.parts:
        with part.vectors() as source:
            assert source.shape == (part.rows, dataset.columns)
            for _, chunk in source.chunks(step):
                chunks.append(chunk.toarray() if sparse.issparse(chunk) else chunk)
        names = part.ids()
        ids += [None] * part.rows if names is None else names.tolist()
    return np.concatenate(chunks), ids


def _in_order(rows, files):
    """Rows of the vectors as they lie in the files, by path."""
    parts = np.array_split(np.arange(rows), files)
    first, second = parts[0::2], parts[1::2]
    return np.concatenate([*first, *second]).tolist()


@pytest.mark.parametrize("remote", [False, pytest.param(True, marks=pytest.mark.extra)])
@pytest.mark.parametrize("most", [20, 50, 1000])
def test_a_partitioned_dataset(tmp_path, monkeypatch, most, remote):
    folder = write_dataset(tmp_path / "data", rows=240, files=4, group=25)
    (folder / "_metadata.parquet").write_bytes(b"is left out")
    (folder / ".crc").mkdir()
    (folder / ".crc" / "x.parquet").write_bytes(b"as well")
    if remote:
        pytest.importorskip("obstore")
        monkeypatch.setattr("dpindex.data.stores.FILE_URL", "none")
        folder = f"file://{folder}"
    dataset = open_dataset(folder, id_column="id", rows_per_part=most)
    order = _in_order(240, 4)
    x, ids = _read(dataset)
    assert_array_equal(x, vectors(240)[order])
    assert ids == [f"n{row}" for row in order]
    first = {20: [25, 25], 50: [50, 10], 1000: [60, 60]}[most]
    assert [part.rows for part in dataset.parts[:2]] == first
    names = {part.name for part in dataset.parts}
    assert len(names) == len(dataset.parts)


def test_one_file_with_the_column_named(tmp_path):
    table = pa.table({"a": [[1.0, 2.0]] * 3, "b": [[3.0]] * 3, "n": [7, 8, 9]})
    pq.write_table(table, tmp_path / "x.parquet")
    with refuses("2 list columns"):
        open_dataset(tmp_path / "x.parquet")
    dataset = open_dataset(f"{tmp_path}/x.parquet:b", id_column="n")
    assert dataset.rows == 3
    assert dataset.columns == 1
    assert _read(dataset)[1] == [7, 8, 9]


def test_files_of_a_folder_have_columns_in_one_order(tmp_path):
    rows = {"a": [1.0, 2.0], "b": [3.0, 4.0]}
    pq.write_table(pa.table(rows), tmp_path / "0.parquet")
    turned = pa.table(rows).select(["b", "a"])
    pq.write_table(turned, tmp_path / "1.parquet")
    with refuses(r"1\.parquet: .* another order than those of the first file"):
        open_dataset(f"{tmp_path}:*")


def test_files_of_a_folder_have_one_column_of_vectors(tmp_path):
    """Vectors of titles and of texts would be mixed in silence."""
    for name, column in (("x", "title"), ("y", "text")):
        table = pa.table({column: [[1.0, 2.0]]})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    with refuses(r"y\.parquet.* no single column 'title'"):
        _read(open_dataset(tmp_path))


@pytest.mark.parametrize("in_process", [False, True])
@pytest.mark.parametrize("kind", ["npy", "csr"])
def test_ranges_of_an_array_file(tmp_path, kind, in_process):
    """Parts of this process read the file once, and begin anew for earlier rows."""
    x = vectors(50)
    if kind == "npy":
        np.save(tmp_path / "x.npy", x)
    else:
        sparse.save_npz(tmp_path / "x.npz", sparse.csr_matrix(x))
    (path,) = tmp_path.iterdir()
    with open_dataset(path, rows_per_part=16, in_process=in_process) as opened:
        dataset = opened.with_labels(np.arange(100, 150))
        assert [part.rows for part in dataset.parts] == [16, 16, 16, 2]
        for _ in range(2):
            found, ids = _read(dataset, travels=not in_process)
            assert_array_equal(found, x)
            assert ids == list(range(100, 150))


def test_labels_from_elsewhere(tmp_path):
    folder = write_dataset(tmp_path / "data", rows=20, files=2)
    labels = pa.table({"row": np.arange(20)})
    dataset = open_dataset(folder, id_column="id", rows_per_part=10)
    dataset = dataset.with_labels(payload=labels)
    _, ids = _read(dataset)
    assert ids == [f"n{row}" for row in range(20)]  # of the files themselves
    rows = [part.payload()["row"].to_pylist() for part in dataset.parts]
    assert rows == [[*range(10)], [*range(10, 20)]]
    few = open_dataset(write_dataset(tmp_path / "few", rows=10, files=1))
    with refuses("there are 20 payload rows for 10 vectors"):
        few.with_labels(payload=labels)


def test_what_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", vectors(5))
    write_dataset(tmp_path / "data", rows=8, files=1)
    (tmp_path / "empty").mkdir()

    def refused(match, path, **options):
        with refuses(match):
            _read(open_dataset(tmp_path / path, **options))

    refused("there are no .parquet files", "empty")
    refused("no column of ids; name a file", "x.npy", id_column="id")
    refused("no columns for a payload", "x.npy", payload_columns=["id"])
    with refuses("no single column 'who'"):  # before any vector is read
        open_dataset(tmp_path / "data", id_column="who")
    refused("ids are whole numbers, strings or UUIDs", "data", id_column="v")
    refused("check the path", "nothing.npy")
    refused("check the path", "nothing.parquet", id_column="id")
    nameless = pa.table({"id": ["a", ""], "v": [[1.0], [2.0]]})
    pq.write_table(nameless, tmp_path / "y.parquet")
    refused("row 1 has an empty id", "y.parquet", id_column="id")
    with refuses("there are 4 ids for 5 vectors"):
        open_dataset(tmp_path / "x.npy").with_labels(np.arange(4))
