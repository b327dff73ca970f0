"""One marked text in every reader: no message and no traceback's last line repeats it."""

from functools import partial

import numpy as np
import pytest
from helpers.common import attribute_spec

import dpindex as dpi
from dpindex.base.errors import InputError
from dpindex.base.ids import id_array
from dpindex.data import (
    TABLE_SUFFIXES,
    as_source,
    open_vectors,
    read_ids,
    read_payload,
    read_tables,
)
from dpindex.data.readers import VECTOR_SUFFIXES

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

MARK = "Zq7secretZq7"
MIXED = [1.0, MARK, None]


def _readers(path):
    def vectors():
        with open_vectors(path) as source:
            source.read()

    keyed = f"{path}:x"
    return [
        vectors,
        lambda: open_vectors(keyed).read(),
        lambda: read_ids(path),
        lambda: read_ids(keyed),
        lambda: read_payload(path),
        lambda: read_payload(path, ["missing"]),
        lambda: read_tables([path, path]),
    ]


def _says_nothing(read):
    said = ""
    try:
        read()
    except InputError as error:
        said = str(error)
    assert MARK not in said
    assert "\n" not in said


TEXTS = {
    "nothing else": MARK,
    "a line each": f"{MARK}\n" * 9,
    "late text in a numeric column": f"x,y\n1,2\n3,{MARK}\n4,5,{MARK}\n",
    "numbers and a text": f"1,2\n3,{MARK}\n",
    "a ragged line": f"a,b\n1,{MARK},3\n",
    "a short line": f"a,b\n{MARK}\n",
    "an open quote": f'a,b\n1,"{MARK}\n2,3\n',
    "another encoding": f"a,b\n1,{MARK}\xe9\n",
    "tabs": f"1\t{MARK}\n2\n",
    "no names": f"1,{MARK}\n",
    "another type": f'{{"a": 1}}\n{{"a": "{MARK}"}}',
    "cut off": f'{{"x": "{MARK}"',
    "a list": f'["{MARK}"]',
    "a list of both": f'{{"a": [1, "{MARK}"]}}',
}


SUFFIXES = sorted({*VECTOR_SUFFIXES, *TABLE_SUFFIXES, ".txt"})


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_low_bytes_that_are_no_such_file(suffix, tmp_path):
    for kind, text in TEXTS.items():
        path = tmp_path / f"{kind}{suffix}"
        path.write_bytes(text.encode("latin-1"))
        for read in _readers(path):
            _says_nothing(read)


@pytest.mark.parametrize("values", [[MARK, MARK], [[MARK], [MARK]], [None, MARK]])
def test_files_that_hold_text_where_numbers_are_wanted(values, tmp_path):
    table = pa.table({"x": pa.array(values), "y": [MARK, MARK]})
    pq.write_table(table, tmp_path / "x.parquet")
    with pa.ipc.new_file(tmp_path / "x.arrow", table.schema) as file:
        file.write_table(table)
    np.save(tmp_path / "x.npy", np.array([MARK, MARK]))
    np.savez(tmp_path / "x.npz", x=np.array([[MARK], [MARK]]))
    for name in ("x.parquet", "x.arrow", "x.npy", "x.npz"):
        for read in _readers(tmp_path / name):
            _says_nothing(read)


def test_values_in_memory():
    pandas = pytest.importorskip("pandas")
    spec = attribute_spec("dp-oporp-staircase", 2, epsilon=20.0)
    forms = [
        MIXED,
        [MIXED, MIXED],
        np.array(MIXED, object),
        np.array([MARK, MARK]),
        pandas.Series(MIXED),
        pandas.DataFrame({"a": MIXED}),
        pandas.DataFrame({"a": [[1.0], MARK, None]}),
        pa.table({"a": [MARK]}),
        {"a": MIXED},
        [{"a": 1}, {"a": MARK}],
    ]
    index = dpi.PrivateIndex(spec)
    rows = np.zeros((3, 2))
    for form in forms:
        _says_nothing(partial(as_source, form))
        _says_nothing(partial(id_array, form))
        _says_nothing(partial(index.add, form))
        _says_nothing(partial(index.add, rows, payload=form))
        _says_nothing(partial(index.add, rows, ids=form))
