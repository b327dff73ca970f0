"""The same table, whoever hands it over: vectors, ids and payload are equal bit for bit."""

import uuid

import numpy as np
import pytest
from helpers.common import STAIRCASE, fails, filled_index, folded, refuses, uniform
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import dpindex as dpi
from dpindex.base.ids import id_array
from dpindex.data import as_source, open_dataset, open_vectors, read_ids, read_tables
from dpindex.storage.payload import Payload

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

V = uniform(7, 4)
SPEC = dpi.Spec(
    "dp-oporp-staircase",
    4,
    k=4,
    epsilon=60.0,
    adjacency=dpi.attribute(0.001),
)
NAMES = [f"0{row}" for row in range(7)]
UUIDS = [uuid.UUID(int=row + 1) for row in range(7)]


FORMS = [
    pa.list_(pa.float64()),
    pa.large_list(pa.float64()),
    pa.list_view(pa.float64()),
    pa.large_list_view(pa.float64()),
    pa.list_(pa.float64(), 4),
]
COLUMNS = [pa.array(V.tolist(), form) for form in FORMS]
TENSOR = pa.fixed_shape_tensor(pa.float64(), [4])
TENSORS = pa.ExtensionArray.from_storage(TENSOR, COLUMNS[-1])


@pytest.fixture
def pandas():
    return pytest.importorskip("pandas")


@pytest.fixture
def polars():
    return pytest.importorskip("polars")


@pytest.fixture
def duckdb():
    return pytest.importorskip("duckdb")


def _read(path):
    with open_vectors(path) as source:
        return source.read()


FILES = ("x.parquet", "file.arrow", "stream.arrow", "x.feather")


def _write(table, folder):
    pq.write_table(table, folder / "x.parquet", row_group_size=3)
    with pa.ipc.new_file(folder / "file.arrow", table.schema) as file:
        file.write_table(table, max_chunksize=3)
    with pa.ipc.new_stream(folder / "stream.arrow", table.schema) as stream:
        stream.write_table(table, max_chunksize=2)
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(folder / "x.feather", table.schema, options=options) as file:
        file.write_table(table)
    return [folder / name for name in FILES]


@pytest.mark.parametrize("column", [*COLUMNS, TENSORS], ids=lambda column: str(column.type))
def test_lists_of_any_form_are_vectors(column, tmp_path):
    chunked = pa.chunked_array([column[:3], column[3:3], column[3:]])
    for form in (column, chunked, column[2:], pa.table({"v": chunked})):
        read = as_source(form).read()
        assert_array_equal(read, V[7 - len(form) :])
    table = pa.table({"v": chunked, "n": range(7)})
    for path in _write(table, tmp_path):
        assert np.array_equal(_read(path), V), path
        with open_vectors(f"{path}:v") as source:
            _, middle = next(source.chunks(2, start=4))
            assert_array_equal(middle, V[4:6])


@pytest.mark.parametrize("kind", ["int8", "uint16", "int64", "float16", "float32", "bool"])
def test_numbers_keep_their_type(kind, tmp_path):
    numbers = (V * 3).astype(kind)
    flat = pa.FixedSizeListArray.from_arrays(pa.array(numbers.ravel()), 4)
    wide = pa.table({f"d{i}": column for i, column in enumerate(numbers.T)})
    for form in (flat, wide):
        read = as_source(form).read()
        assert read.dtype == numbers.dtype
        assert_array_equal(read, numbers)
    for path in _write(pa.table({"v": flat}), tmp_path):
        assert _read(path).dtype == numbers.dtype
        assert_array_equal(_read(path), numbers)


def test_a_column_for_each_coordinate_is_read_by_name(run, prints, tmp_path):
    columns = {f"d{i}": V[:, i] for i in range(4)}
    table = pa.table({"id": NAMES, **columns, "other": range(7)})
    for path in _write(table, tmp_path):
        for key in ("d0:d3", "d*", "d[0-3]"):
            assert_array_equal(_read(f"{path}:{key}"), V)
        assert_array_equal(_read(f"{path}:d1:d2"), V[:, 1:3])
        with refuses("'id' is string; vectors need"):
            _read(f"{path}:id:d3")
        with refuses(r"no single column 'e\*'; name one of id, d0"):
            _read(f"{path}:e*")
    for name in ("x.parquet", "file.arrow"):
        built = f"of-{name.replace('.', '-')}"
        build = f"build {name} {built} {STAIRCASE} --id-column id"
        prints(f"{build} --columns d0:d3 --payload-columns other")
        index = dpi.open(tmp_path / built)
        assert index.ids.tolist() == NAMES
        assert index.payload["other"].to_pylist() == list(range(7))
    fails(
        run(f"build x.parquet no {STAIRCASE}"),
        "no list columns of numbers",
        "--columns",
    )


def test_an_arrow_file_is_read_by_its_footer(tmp_path):
    """Polars 2 leaves out the mark and the length before the schema; Arrow reads the footer."""
    ids = pa.array(NAMES).dictionary_encode()
    path = _write(pa.table({"id": ids, "v": V.tolist()}), tmp_path)[1]
    content = path.read_bytes()
    twice = content[16:24] * 2
    path.write_bytes(content[:8] + twice + content[24:])
    assert_array_equal(_read(path), V)
    assert read_ids(f"{path}:id").tolist() == NAMES
    path.write_bytes(content[:-30])
    with refuses("check that the file is whole"):
        _read(path)


@pytest.mark.extra
def test_files_of_polars_are_vectors(polars, tmp_path):
    frame = polars.DataFrame({"id": NAMES, "v": V.tolist()})
    for packing in ("uncompressed", "zstd"):
        frame.write_ipc(tmp_path / "x.arrow", compression=packing)
        assert_array_equal(_read(tmp_path / "x.arrow"), V)
        assert read_ids(f"{tmp_path}/x.arrow:id").tolist() == NAMES


def test_a_column_of_ids_is_no_coordinate(pandas, tmp_path):
    """One that holds 0 and 1 fits into the bounds."""
    columns = {f"d{i}": V[:, i] for i in range(3)}
    columns = {"id": [0, 1, 0, 1, 0, 1, 0], **columns}
    for table in (pa.table(columns), pandas.DataFrame(columns)):
        with refuses("column 'id' names rows and is not a coordinate"):
            dpi.PrivateIndex(SPEC).add(table)
    for path in _write(pa.table(columns), tmp_path):
        with refuses(rf"{path.name}:\*: column 'id' names rows"):
            _read(f"{path}:*")
    labels = pandas.Index(NAMES, name="id")
    named = pandas.DataFrame(V, index=labels)
    dpi.PrivateIndex(SPEC).add(named, NAMES)


def test_frames_of_pandas_are_vectors(pandas):
    frame = pandas.DataFrame(V)
    lettered = pandas.DataFrame(V, index=list("abcdefg"))
    forms = {
        "nullable": frame.convert_dtypes(),
        "Float64": frame.astype("Float64"),
        "arrow": frame.astype("double[pyarrow]"),
        "one column of lists": pandas.DataFrame({"v": V.tolist()}),
        "one column of arrays": pandas.DataFrame({"v": list(V)}),
        "a column": pandas.Series(V.tolist()),
        "an index that counts no rows": pandas.DataFrame(V, index=range(7, 14)),
        "from Arrow with its index": pa.table(lettered),
    }
    for name, form in forms.items():
        assert np.array_equal(as_source(form).read(), V), name
        index = filled_index(SPEC, form)
        hits = index.search(form, k=1)
        assert hits.ids.ravel().tolist() == list(range(7)), name


@pytest.mark.extra
def test_frames_of_polars_are_vectors(polars):
    arrays = polars.Series("v", V, dtype=polars.Array(polars.Float64, 4))
    lists = polars.Series(V.tolist())
    for form in (polars.DataFrame(V), arrays, arrays.to_frame(), lists):
        assert_array_equal(as_source(form).read(), V)


@pytest.mark.extra
def test_relations_of_duckdb_are_vectors_and_ids(duckdb):
    table = pa.table({"v": V.tolist()})
    with duckdb.connect() as database:
        database.register("t", table)
        for query in ("v", "v::DOUBLE[4] as v"):
            relation = database.sql(f"select {query} from t")
            assert_array_equal(as_source(relation).read(), V)
        texts = id_array(database.sql("select uuid() as id from t")).tolist()
        assert len(set(map(uuid.UUID, texts))) == 7
        decimals = as_source(database.sql("select [0.5, 0.25] as v")).read()
        assert decimals.tolist() == [[0.5, 0.25]]


@pytest.mark.extra
def test_a_file_of_duckdb_with_a_null_is_refused_and_explained(duckdb, tmp_path):
    path = tmp_path / "x.parquet"
    with duckdb.connect() as database:
        vector = "case when i = 2 then null else [i, 2]::FLOAT[2] end as v"
        database.sql(f"copy (select {vector}, uuid() as id from range(4) r(i)) to '{path}'")
    with refuses(r"row 2 is null|DuckDB 2.0 writes a NULL in a FLOAT"):
        _read(path)
    assert len(read_ids(f"{path}:id")) == 4


IDS = {
    "strings": lambda: pa.array(NAMES),
    "large strings": lambda: pa.array(NAMES, pa.large_string()),
    "views": lambda: pa.array(NAMES, pa.string_view()),
    "dictionary": lambda: pa.array(NAMES).dictionary_encode(),
    "chunks": lambda: pa.chunked_array([NAMES[:2], NAMES[2:]]),
    "StringDType": lambda: np.array(NAMES, np.dtypes.StringDType()),
    "objects": lambda: np.array(NAMES, object),
    "scalars": lambda: [np.str_(name) for name in NAMES],
    "masked by nothing": lambda: np.ma.masked_array(NAMES, mask=False),
    "pandas": lambda: pytest.importorskip("pandas").Series(NAMES),
    "categorical": lambda: pytest.importorskip("pandas").Categorical(NAMES),
    "index": lambda: pytest.importorskip("pandas").Index(NAMES),
    "category column": lambda: pytest.importorskip("pandas").Series(NAMES, dtype="category"),
}


@pytest.mark.parametrize("kind", IDS)
def test_ids_are_taken_from_anything_that_holds_text(kind, tmp_path):
    ids = IDS[kind]()
    index = filled_index(SPEC, V, ids, payload={"n": range(7)})
    assert index.ids.tolist() == NAMES
    kept = index.search(V[3], k=7, filter=ids)
    assert kept.ids.shape == (1, 7)
    originals = dpi.Originals(V, ids)
    found = index.search(V, k=1, candidates=7, rerank=originals)
    assert found.ids.shape == (7, 1)
    of_arrow = ("strings", "large strings", "views", "dictionary", "chunks")
    assert kind in of_arrow or ids[1] in index
    index.remove(ids[:3])
    assert index.ids.tolist() == NAMES[3:]
    if hasattr(ids, "type"):
        table = pa.table({"id": ids, "v": V.tolist()})
        for path in _write(table, tmp_path):
            assert read_ids(f"{path}:id").tolist() == NAMES
            with open_dataset(f"{path}:v", id_column="id") as dataset:
                names = [name for part in dataset.parts for name in part.ids()]
                assert names == NAMES


@folded(
    "form",
    [
        UUIDS,
        np.array(UUIDS, object),
        pa.array([one.bytes for one in UUIDS], pa.uuid()),
    ],
)
def test_uuids_are_ids(form, tmp_path_factory):
    texts = [str(one) for one in UUIDS]
    assert id_array(form).tolist() == texts
    assert id_array(UUIDS[0]).tolist() == texts[:1]
    assert id_array(pa.scalar("a")).tolist() == ["a"]
    numbers = list(pa.array([7, 9]))
    assert id_array(numbers).tolist() == [7, 9]
    table = pa.table({"id": pa.array(form)})
    for path in _write(table, tmp_path_factory.mktemp("u")):
        assert read_ids(f"{path}:id").tolist() == texts


@pytest.mark.extra
def test_what_polars_has_and_arrow_has_not_is_refused_by_name(polars):
    frame = polars.DataFrame(V)
    with refuses("LazyFrame; collect it first"):
        as_source(frame.lazy())
    with refuses("cast it, such as to 64-bit numbers"):
        wide = frame.with_columns(polars.all().cast(polars.Int128))
        as_source(wide)


@pytest.mark.extra
def test_ids_and_payload_of_polars(polars, tmp_path):
    tags = [["a"], ["b", "c"]] * 3 + [[]]
    frame = polars.DataFrame({"id": NAMES, "v": V.tolist(), "tags": tags})
    for kind in (polars.String, polars.Categorical, polars.Enum(NAMES)):
        assert id_array(frame["id"].cast(kind)).tolist() == NAMES
    pq.write_table(pa.table(frame), tmp_path / "x.parquet")
    assert read_ids(f"{tmp_path / 'x.parquet'}:id").tolist() == NAMES
    index = filled_index(
        SPEC,
        frame["v"],
        frame["id"],
        payload=frame.select("tags", "id"),
    )
    assert index.payload.to_pydict() == {"tags": tags}


@folded(
    "ids, match",
    [
        (np.ma.masked_array([1, 2, 3], mask=[0, 1, 0]), "row 1 is masked"),
        (pa.array(["a", None]), "row 1 is null"),
        (pa.chunked_array([[1], [None]]), "row 1 is null"),
        (["a", None], "row 1 is NoneType"),
        (pa.array([1.5, 2.0]), "of type double"),
        (pa.table({"a": [1], "b": [2]}), "this table has 2"),
        (np.array(["a", None], np.dtypes.StringDType(na_object=None)), "row 1 is NoneType"),
    ],
)
def test_ids_that_are_missing_or_no_ids_are_refused(ids, match):
    with refuses(match):
        id_array(ids)


def test_a_list_of_dicts_takes_all_keys():
    rows = [{"a": 1}, {"a": 2, "b": "two"}, {"b": "three"}]
    table = Payload().checked(rows, 3)
    expected = {"a": [1, 2, None], "b": [None, "two", "three"]}
    assert table.to_pydict() == expected


def test_a_payload_whose_index_holds_the_ids_in_another_order_is_refused(pandas):
    for ids in (NAMES, range(7)):
        backwards = list(ids)[::-1]
        frame = pandas.DataFrame({"a": range(7)}, index=backwards)
        with refuses("holds the ids in another order"):
            dpi.PrivateIndex(SPEC).add(V, ids, payload=frame)
        others = frame.set_index(pandas.Index(range(7, 14)))
        index = filled_index(SPEC, V, ids, payload=others)
        assert index.payload["a"].to_pylist() == list(range(7))


def test_what_has_its_own_ids_is_joined_by_them(pandas):
    order = np.array([3, 1, 6, 0, 2, 5, 4])
    ids = np.array(NAMES)
    shuffled = ids[order]
    named = pandas.Index(shuffled, name="doc")
    frame = pandas.DataFrame({"n": order}, index=named)
    index = filled_index(SPEC, V, ids, payload=frame)
    assert index.payload.to_pydict() == {"n": list(range(7))}
    payload = {"id": shuffled.tolist(), "n": order}
    other = filled_index(SPEC, V, ids, payload=payload)
    assert other.payload.equals(index.payload)
    for labels in (named, shuffled):
        originals = pandas.DataFrame(V[order], index=labels)
        hits = index.search(V, k=1, candidates=7, rerank=originals)
        assert hits.ids.ravel().tolist() == NAMES
        np.testing.assert_allclose(hits.similarity, 1.0)
    vectors = pandas.DataFrame(V, index=named)
    with refuses("an index 'doc', which would be lost"):
        dpi.PrivateIndex(SPEC).add(vectors)
    with refuses("in another order than the ids"):
        dpi.PrivateIndex(SPEC).add(vectors, ids)
    third = filled_index(SPEC, vectors, named)
    assert third.ids.tolist() == shuffled.tolist()


def test_a_payload_file_with_ids_is_joined_by_them(run, prints, tmp_path):
    np.save(tmp_path / "x.npy", V[:3])
    (tmp_path / "ids.txt").write_text("a\nb\nc\n")
    (tmp_path / "p.csv").write_text("id,zip\nc,00003\na,00001\nb,00002\n")
    build = f"build x.npy {{}} {STAIRCASE} --ids ids.txt --payload p.csv"
    prints(build.format("ix"))
    payload = dpi.open(tmp_path / "ix").payload
    assert payload.to_pydict() == {"zip": ["00001", "00002", "00003"]}
    (tmp_path / "p.csv").write_text("id,zip\nc,00003\na,00001\nd,00002\n")
    fails(run(build.format("iy")), "column 'id' of the payload names other rows")


def test_integers_of_a_payload_stay_exact_in_pandas(pandas):
    payload = {"n": [9007199254740993, None, 1], "ok": [True, None, False]}
    index = filled_index(SPEC, V[:3], payload=payload)
    hits = index.search(V[0], k=3)
    frame = hits.to_pandas().set_index("id").sort_index()
    assert frame["n"].tolist() == [9007199254740993, pandas.NA, 1]
    assert str(frame["n"].dtype) == "Int64"
    assert frame["ok"].tolist() == [True, pandas.NA, False]


def test_one_sparse_row_is_one_query():
    sparse = pytest.importorskip("scipy.sparse")
    index = filled_index(SPEC, V)
    row = sparse.csr_array(V)[2]
    found = index.search(row, k=3).ids
    assert_array_equal(found, index.search(V[2], k=3).ids)


@pytest.mark.parametrize(
    "suffix, kind", [("fbin", "<f4"), ("u8bin", "u1"), ("i8bin", "i1"), ("ibin", "<i4")]
)
def test_files_of_big_ann_benchmarks(suffix, kind, tmp_path):
    vectors = (V * 100).astype(kind)
    if suffix == "u8bin":
        vectors = (V * 100 % 200).astype("u1")
    header = np.array(vectors.shape, "<u4").tobytes()
    path = tmp_path / f"x.{suffix}"
    content = header + vectors.tobytes()
    path.write_bytes(content)
    assert_array_equal(_read(path), vectors)
    assert _read(path).dtype == np.dtype(kind)
    for damaged in (content[:-1], header, header[:7], header + b"\0" * 99):
        path.write_bytes(damaged)
        with refuses(r"declares 7 x 4|no eight bytes"):
            open_vectors(path)


def test_sparse_sets_of_ann_benchmarks(tmp_path):
    h5py = pytest.importorskip("h5py")
    sets = [[0, 5], [], [2, 3, 9], [9, 9]]
    with h5py.File(tmp_path / "x.hdf5", "w") as file:
        file.attrs.update(
            type="sparse",
            dimension=10,
            point_type="bit",
            distance="jaccard",
        )
        for name, rows in (("train", sets), ("test", sets[:1])):
            file[name] = np.array([item for row in rows for item in row], int)
            file[f"size_{name}"] = list(map(len, rows))
    keys = {"": sets, ":train": sets, ":test": sets[:1]}
    for key, rows in keys.items():
        with open_vectors(f"{tmp_path / 'x.hdf5'}{key}") as source:
            read = source.read()
            assert source.is_sparse
            assert read.shape == (len(rows), 10)
            members = [row.indices.tolist() for row in read]
            assert members == [sorted(set(row)) for row in rows]
            assert set(read.data) == {1}
    with h5py.File(tmp_path / "x.hdf5", "r+") as file:
        file.attrs["dimension"] = 9
    with refuses("row 2 has a member that is not in 0 … 8"):
        _read(tmp_path / "x.hdf5")


# One table by every way that there is


def _by_polars(table, _):
    return pytest.importorskip("polars").from_arrow(table)


def _by_duckdb(table, _):
    duckdb = pytest.importorskip("duckdb")
    database = duckdb.connect()
    database.register("t", table)
    return database.sql("select * from t")


def _by_pandas(table, _):
    import pandas

    return table.to_pandas(types_mapper=pandas.ArrowDtype)


def _by_file(number):
    def way(table, folder):
        return read_tables([_write(table, folder)[number]])

    return way


def _in_batches(table, _):
    return pa.Table.from_batches(table.to_batches(max_chunksize=2))


WAYS = {
    "batches": _in_batches,
    "pyarrow": lambda table, _: table,
    "pandas": _by_pandas,
    "parquet": _by_file(0),
    "arrow file": _by_file(1),
    "arrow stream": _by_file(2),
    "feather": _by_file(3),
    "polars": _by_polars,
    "duckdb": _by_duckdb,
}
_NUMBERS = st.sampled_from(["int8", "int64", "uint64", "float32", "float64"])
_TEXT = st.text(
    st.characters(codec="utf-8", exclude_characters="\0"),
    min_size=1,
    max_size=8,
)


def _one_table(data):
    count = data.draw(st.integers(1, 6))
    kind = np.dtype(data.draw(_NUMBERS))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    bits = rng.integers(0, 256, (count, 3 * kind.itemsize), np.uint8)
    vectors = bits.view(kind)
    vectors = np.where(np.isfinite(vectors), vectors, 0).astype(kind)
    texts = st.lists(_TEXT, min_size=count, max_size=count, unique=True)
    number = st.integers(-(2**63), 2**63 - 1)
    numbers = st.lists(number, min_size=count, max_size=count, unique=True)
    gaps = st.lists(
        st.none() | st.integers(0, 2**63 - 1),
        min_size=count,
        max_size=count,
    )
    form = pa.list_(pa.from_numpy_dtype(kind))
    return pa.table(
        {
            "v": pa.array(list(vectors), form),
            "id": data.draw(texts | numbers),
            "n": pa.array(data.draw(gaps), pa.int64()),
            "t": data.draw(texts),
        }
    )


def _picked(form, *names):
    if hasattr(form, "project"):  # of DuckDB
        return form.project(*names)
    if hasattr(form, "select"):  # of Arrow and polars
        return form.select(list(names))
    return form[list(names)]


def _handed_over(form):
    ids = id_array(_picked(form, "id"))
    payload = Payload().checked(_picked(form, "n", "t"), len(ids))
    return as_source(_picked(form, "v")).read(), ids, payload


PLAIN_WAYS = list(WAYS)[:7]
EXTRA_WAYS = [pytest.param(way, marks=pytest.mark.extra) for way in list(WAYS)[7:]]


@pytest.mark.parametrize("way", [*PLAIN_WAYS, *EXTRA_WAYS])
@given(data=st.data())
@settings(max_examples=25, database=None)
def test_every_way_hands_over_the_same(way, data, tmp_path_factory):
    table = _one_table(data)
    wanted = _handed_over(table)
    form = WAYS[way](table, tmp_path_factory.mktemp("way"))
    vectors, ids, payload = _handed_over(form)
    assert vectors.dtype == wanted[0].dtype
    assert vectors.tobytes() == wanted[0].tobytes()
    assert ids.dtype.kind == wanted[1].dtype.kind
    assert ids.tolist() == wanted[1].tolist()
    assert payload.to_pydict() == wanted[2].to_pydict()
