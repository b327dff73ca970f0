"""Vectors as columns of lists, DataFrames and text."""

import numpy as np
import pytest
from helpers.common import refuses, uniform
from numpy.testing import assert_array_equal

from dpindex.data import open_vectors, read_payload

X = uniform(7, 4)


@pytest.mark.parametrize("head", ["", "a,b,c,d\n", "\ufeff"])
def test_text(tmp_path, head):
    rows = [",".join(map(repr, row)) for row in X.tolist()]
    lines = "\n".join(rows)
    (tmp_path / "x.csv").write_text(f"{head}{lines}\n\n", encoding="utf-8")
    with open_vectors(tmp_path / "x.csv") as source:
        assert source.shape == (7, 4)
        assert_array_equal(source.read(), X)
        chunks = [chunk for _, chunk in source.chunks(3)]
        assert_array_equal(np.concatenate(chunks), X)
        _, later = next(source.chunks(2, start=5))
        assert_array_equal(later, X[5:])


@pytest.mark.parametrize(
    "text, match",
    [
        ("1.5,2\n3\n", "line 2 has 1 values where line 1 has 2"),
        ("1.5,2\n3,x\n", "line 2, column 2 is not a number"),
        ("1.5,2\n3,\n", "line 2, column 2 is empty or marks a missing value; fill it"),
        ("1.5,2\n3,-inf\n", "line 2, column 2 is no finite number"),
        ("a,b\n\n1.5,2\n\nx,3\n", "line 5, column 1 is not a number"),
        ("a,b\n1,2\n0.5,0.\x002\n", "line 3, column 2 is not a number"),
        ("a,b\n", "0 x 2"),
        ("1.5,2\n\xff,1\n", "line 2, column 1"),
    ],
)
def test_text_that_is_no_matrix(tmp_path, text, match):
    (tmp_path / "x.csv").write_text(text, encoding="utf-8")
    with refuses(match), open_vectors(tmp_path / "x.csv") as source:
        source.read()


@pytest.mark.parametrize("ending", ["npz", "hdf5", "parquet", "csv"])
def test_h2_files_with_names_that_forge_messages_are_refused(tmp_path, ending):
    name = "x\n\x1b[2Jepsilon = 0.1"
    path = tmp_path / f"x.{ending}"
    read = open_vectors
    if ending == "npz":
        np.savez(path, **{name: X, "other": X})
    elif ending == "hdf5":
        with pytest.importorskip("h5py").File(path, "w") as file:
            file[name] = X
            file["train"] = X
    elif ending == "parquet":
        pa = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        table = pa.table({name: [1], "other": [[1.0]]})
        parquet.write_table(table, path)
    else:
        pytest.importorskip("pyarrow")
        path.write_text('a,"x\n\x1b[2Jepsilon = 0.1"\n1,2\n', encoding="utf-8")
        read = read_payload
    with refuses("characters that cannot be printed") as caught:
        read(path)
    assert str(caught.value).isprintable()
