"""Vector files: every format reads back what was written, in any chunking, or says why not."""

import os
import struct
import zipfile

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from helpers.common import peak_memory, refuses
from numpy.testing import assert_array_equal

from dpindex.data import as_source, open_vectors, read_ids

ROWS = 23
COLUMNS = 5


def _matrix(dtype="f4"):
    numbers = np.random.default_rng(0).integers(0, 100, (ROWS, COLUMNS))
    return numbers.astype(dtype)


def _sparse():
    return scipy.sparse.random(ROWS, COLUMNS, 0.3, "csr", random_state=0)


def _write_vecs(path, matrix):
    count, columns = matrix.shape
    prefixes = np.full((count, 1), columns, "<i4").view(np.uint8)
    values = np.ascontiguousarray(matrix).view(np.uint8).reshape(count, -1)
    np.hstack([prefixes, values]).tofile(path)


def _write_hdf5(path, **datasets):
    with h5py.File(path, "w") as file:
        for key, value in datasets.items():
            file[key] = value


def _write_chunked(path, matrix):
    with h5py.File(path, "w") as file:
        file.create_dataset("train", data=matrix, chunks=(7, 3), compression="gzip")


def _write_parquet(path, matrix, groups=6):
    kind = pa.list_(pa.from_numpy_dtype(matrix.dtype))
    vectors = pa.array(list(matrix), kind)
    table = pa.table({"id": range(len(matrix)), "v": vectors})
    pq.write_table(table, path, row_group_size=groups)


def _write_fortran(path, matrix):
    np.save(path, np.asfortranarray(matrix))


def _write_ids(path, ids):
    lines = [f"{name}\n" for name in ids.tolist()]
    path.write_text("".join(lines), "utf-8")


DENSE = {
    "npy": ("f4", ".npy", np.save),
    "npy-fortran": ("f4", ".npy", _write_fortran),
    "npy-big-endian": ("f8", ".npy", lambda p, m: np.save(p, m.astype(">f8"))),
    "npy-bool": ("?", ".npy", np.save),
    "npy-half": ("f2", ".npy", np.save),
    "npz": ("f4", ".npz", lambda p, m: np.savez(p, a=m, labels=np.arange(3))),
    "npz-compressed": ("i8", ".npz", lambda p, m: np.savez_compressed(p, a=m)),
    "npz-fortran": ("f4", ".npz", lambda p, m: np.savez_compressed(p, a=np.asfortranarray(m))),
    "fvecs": ("<f4", ".fvecs", _write_vecs),
    "bvecs": ("u1", ".bvecs", _write_vecs),
    "ivecs": ("<i4", ".ivecs", _write_vecs),
    "hdf5": ("f4", ".hdf5", lambda p, m: _write_hdf5(p, test=m[:2], train=m)),
    "hdf5-big-endian": ("f4", ".h5", lambda p, m: _write_hdf5(p, x=m.astype(">f4"), y=m[0])),
    "hdf5-compressed": ("f8", ".h5", _write_chunked),
    "parquet": ("f4", ".parquet", _write_parquet),
}
SPARSE = {
    "csr": scipy.sparse.save_npz,
    "csc": lambda p, m: scipy.sparse.save_npz(p, m.tocsc(), compressed=False),
}
IDS = {
    "npy": (".npy", "", np.save),
    "npz": (".npz", ":ids", lambda p, ids: np.savez(p, ids=ids, other=ids[:1])),
    "txt": (".txt", "", _write_ids),
    "hdf5": (".h5", ":group/ids", lambda p, ids: _write_hdf5(p, **{"group/ids": _for_hdf5(ids)})),
    "parquet": (".parquet", ":ids", lambda p, ids: pq.write_table(pa.table({"ids": ids}), p)),
}
STRINGS = np.array(["é1", "007", "中", "d"])
INTEGERS = np.array([3, -1, 2**62, 0])


def _for_hdf5(ids):
    return ids.astype(object) if ids.dtype.kind == "U" else ids


def _dense(source, chunk):
    return np.asarray(chunk.toarray() if source.is_sparse else chunk)


def _check_source(source, expected):
    """The whole, every chunking, and two passes at once all agree with what was written."""
    assert source.shape == expected.shape
    assert source.dtype.isnative
    assert_array_equal(_dense(source, source.read()), expected)

    def check(first, chunk, size):
        assert_array_equal(_dense(source, chunk), expected[first : first + size])

    for size in (1, 4, ROWS, ROWS + 1):
        for start in (0, 9, ROWS):
            for first, chunk in source.chunks(size, start):
                assert chunk.dtype == source.dtype
                check(first, chunk, size)
    both = zip(source.chunks(4), source.chunks(3, 2), strict=False)
    for one, other in both:
        check(*one, 4)
        check(*other, 3)


# ---- what was written is what is read


@pytest.mark.parametrize("kind", DENSE)
def test_dense_round_trip(kind, tmp_path):
    dtype, suffix, write = DENSE[kind]
    path = tmp_path / f"x{suffix}"
    write(path, _matrix(dtype))
    with open_vectors(path) as source:
        assert not source.is_sparse
        assert source.dtype == np.dtype(dtype)
        assert source.name == str(path)
        assert source.read().flags.c_contiguous
        _check_source(source, _matrix(dtype))


@pytest.mark.parametrize("kind", SPARSE)
def test_sparse_round_trip(kind, tmp_path):
    path = tmp_path / "x.npz"
    SPARSE[kind](path, _sparse())
    with open_vectors(path) as source:
        assert source.is_sparse
        _, first = next(source.chunks(3))
        assert isinstance(first, scipy.sparse.csr_matrix)
        _check_source(source, _sparse().toarray())


@pytest.mark.parametrize(
    "matrix",
    [
        _matrix(),
        np.asfortranarray(_matrix("i2")),
        _matrix().astype(">f4"),
        _matrix().tolist(),
        _sparse(),
        scipy.sparse.csc_array(_sparse()),
    ],
)
def test_in_memory(matrix):
    source = as_source(matrix)
    if scipy.sparse.issparse(matrix):
        matrix = matrix.toarray()
    expected = np.asarray(matrix)
    _check_source(source, expected)


def test_in_memory_chunks_leave_the_array_alone():
    _, first = next(as_source(_matrix()).chunks(2))
    with pytest.raises(ValueError, match="read-only"):
        first[0, 0] = 1


def test_sparse_duplicates_are_summed_and_the_input_stays(tmp_path):
    parts = (np.ones(3), [2, 0, 2], [0, 3, 3])
    twice = scipy.sparse.csr_matrix(parts, shape=(2, 3))
    scipy.sparse.save_npz(tmp_path / "x.npz", twice)
    for source in (as_source(twice), open_vectors(tmp_path / "x.npz")):
        chunk = source.read()
        assert chunk.indices.tolist() == [0, 2]
        assert chunk.data.tolist() == [1.0, 2.0]
    assert twice.data.tolist() == [1.0] * 3


@pytest.mark.parametrize(
    "suffix, write",
    [
        (".npz", lambda p, a, b: np.savez(p, a=a, b=b)),
        (".h5", lambda p, a, b: _write_hdf5(p, a=a, b=b)),
        (
            ".parquet",
            lambda p, a, b: pq.write_table(pa.table({"a": list(a), "b": list(b)}), p),
        ),
    ],
)
def test_keys(suffix, write, tmp_path):
    path = tmp_path / f"with:colon{suffix}"
    write(path, _matrix(), _matrix() + 1)
    for key, shift in (("a", 0), ("b", 1)):
        with open_vectors(f"{path}:{key}") as source:
            assert_array_equal(source.read(), _matrix() + shift)
    with refuses(r"\(a, b\).*PATH:KEY"):
        open_vectors(path)
    with refuses(r"'c'; name one of a, b"):
        open_vectors(f"{path}:c")


@pytest.mark.parametrize("kind", IDS)
@pytest.mark.parametrize("ids", [STRINGS, INTEGERS], ids=["strings", "integers"])
def test_ids_round_trip(kind, ids, tmp_path):
    suffix, key, write = IDS[kind]
    path = tmp_path / f"ids{suffix}"
    write(path, ids)
    found = read_ids(f"{path}{key}")
    assert found.dtype.kind == ids.dtype.kind
    assert_array_equal(found, ids)


def test_ids_text_lines(tmp_path):
    path = tmp_path / "ids.txt"
    path.write_bytes("\ufeff7\r\n-12\r\n9223372036854775807".encode())
    assert read_ids(path).tolist() == [7, -12, 2**63 - 1]
    texts = ("007", "9223372036854775808", "-0", "+1", "\uff11", "1_0", "8 ", " 8", "3e2")
    for kept in texts:
        path.write_text(f"7\n{kept}\n", "utf-8")
        assert read_ids(path).tolist() == ["7", kept]


# ---- memory is bounded by the chunk


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["npy", "npy-fortran", "fvecs", "parquet"])
def test_memory_is_bounded_by_the_chunk(kind, tmp_path):
    """Counts numpy's and Python's own memory; Arrow's is counted by Arrow."""
    dtype, suffix, write = DENSE[kind]
    path = tmp_path / f"x{suffix}"
    matrix = np.random.default_rng(0).random((100_000, 50), "f4")  # 20 MB
    if kind == "parquet":  # one row group, so that only streaming within it can be small
        _write_parquet(path, matrix, groups=len(matrix))
    else:
        write(path, matrix.astype(dtype))
    with open_vectors(path) as source:
        before = pa.total_allocated_bytes()
        with peak_memory() as peak:
            chunks = source.chunks(2_000)  # 0.4 MB each
            taken = [pa.total_allocated_bytes() - before for _ in chunks]
    assert peak.bytes < 4e6
    assert max(taken) < 8e6


# ---- whatever is wrong is one sentence


def _refused(location, match):
    with refuses(match) as caught, open_vectors(location) as source:
        source.read()
    message = str(caught.value)
    assert message.startswith(os.fspath(location))
    assert "\n" not in message


def test_wrong_paths(tmp_path):
    _refused(tmp_path / "none.npy", "No such file")
    _refused(f"{tmp_path}/none.npz:key", "No such file")
    _refused(tmp_path, "directory")
    (tmp_path / "x.xls").write_text("1,2")
    _refused(tmp_path / "x.xls", r"'.xls'; use one of .npy, .npz, .fvecs")
    with refuses("name of a file"):
        open_vectors("a\0b.npy")
    os.mkfifo(tmp_path / "pipe.npy")
    _refused(tmp_path / "pipe.npy", "regular file")
    np.save(tmp_path / "x.npy", _matrix())
    _refused(f"{tmp_path / 'x.npy'}:key", "no keys")


def test_permission(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, _matrix())
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read every file")
    _refused(path, "permission denied")


def test_an_array_of_one_dimension_is_one_vector(tmp_path):
    np.save(tmp_path / "me.npy", np.arange(3.0))
    with open_vectors(tmp_path / "me.npy") as source:
        assert source.shape == (1, 3)
        assert_array_equal(source.read(), [[0.0, 1.0, 2.0]])


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".fvecs", ".h5", ".parquet"])
def test_empty_and_foreign_files(suffix, tmp_path):
    path = tmp_path / f"x{suffix}"
    path.touch()
    _refused(path, "empty")
    path.write_bytes(b"\x93")
    _refused(path, ".")
    path.write_bytes(b"not what the suffix says " * 100)
    _refused(path, ".")


@pytest.mark.parametrize(
    "array, match",
    [
        (np.array(3.0), "0 dimension"),
        (np.zeros((2, 2, 2)), "3 dimension"),
        (np.zeros((0, 4)), "0 x 4"),
        (np.zeros((4, 0)), "4 x 0"),
        (np.zeros((2, 2), complex), "complex128"),
        (np.zeros((2, 2), "M8[s]"), "datetime64"),
        (np.zeros((2, 2), object), "[Oo]bject"),
        (np.zeros((2, 2), np.longdouble), "float128|longdouble|float64"),
    ],
)
def test_wrong_arrays(array, match, tmp_path):
    if array.dtype == np.longdouble and array.dtype.itemsize == 8:
        pytest.skip("long double is double here")
    np.save(tmp_path / "x.npy", array)
    _refused(tmp_path / "x.npy", match)
    np.savez(tmp_path / "x.npz", a=array)
    _refused(f"{tmp_path / 'x.npz'}:a", match)
    with refuses(r"^mine: "):
        as_source(array, "mine")


@pytest.mark.parametrize(
    "matrix",
    [
        [[1.0], [1.0, 2.0]],
        None,
        "x.npy",
        [["a"]],
        np.ma.masked_array(_matrix(), _matrix() > 3),
        scipy.sparse.csr_matrix((0, 3)),
        scipy.sparse.csr_matrix(_matrix("c8")),
    ],
)
def test_wrong_objects(matrix):
    with refuses(r"^mine: "):
        as_source(matrix, "mine")


def test_wrong_sparse_in_memory():
    matrix = _sparse()
    matrix.indices[0] = 10_000
    with refuses(r"^array: "):
        as_source(matrix)


def test_wrong_ranges():
    source = as_source(_matrix())
    with refuses("at least one row"):
        source.chunks(0)
    for start in (-1, ROWS + 1):
        with refuses(f"row {start}"):
            source.chunks(1, start)
    source.close()
    source.close()
    with refuses("closed"):
        source.read()


def _npy_header(shape, kind="<f4"):
    header = f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header


@pytest.mark.parametrize("shape", [(10**12, 1000), (-2, -2), (3, 2)])
def test_declared_shapes_are_not_believed(shape, tmp_path):
    data = _npy_header(shape) + bytes(16)
    (tmp_path / "x.npy").write_bytes(data)
    _refused(tmp_path / "x.npy", "greater than file size|negative dimensions")
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("a.npy", data)
    _refused(tmp_path / "x.npz", "not enough memory|cannot be read")


def test_surplus_bytes_are_damage(tmp_path):
    surplus = _npy_header((2, 2)) + bytes(20)
    (tmp_path / "x.npy").write_bytes(surplus)
    _refused(tmp_path / "x.npy", "declares shape .* 20 bytes follow")


def test_hdf5_declared_but_never_written(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("train", shape=(10**9, 10**3), dtype="f4")
        file.create_dataset(
            "chunked",
            (10**9, 10**3),
            "f4",
            chunks=(1, 1000),
            compression="gzip",
        )
    _refused(tmp_path / "x.h5", "never written")
    _refused(f"{tmp_path / 'x.h5'}:chunked", "never written")


def test_hdf5_never_leaves_its_file(tmp_path):
    _write_hdf5(tmp_path / "other.h5", train=_matrix())
    _matrix().tofile(tmp_path / "raw")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["link"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "train")
        raw = (str(tmp_path / "raw"), 0, h5py.h5f.UNLIMITED)
        file.create_dataset("raw", _matrix().shape, "f4", external=[raw])
        layout = h5py.VirtualLayout(_matrix().shape, "f4")
        layout[:] = h5py.VirtualSource(
            str(tmp_path / "other.h5"),
            "train",
            _matrix().shape,
        )
        file.create_virtual_dataset("virtual", layout)
        file.create_group("group")
    for key in ("link", "raw", "virtual"):
        _refused(f"{tmp_path / 'x.h5'}:{key}", "another file")
    _refused(f"{tmp_path / 'x.h5'}:group", "no dataset 'group'")


def test_hdf5_lists_are_no_ids(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        kind = h5py.vlen_dtype(np.int32)
        lists = file.create_dataset("lists", (2,), kind)
        lists[:] = [np.arange(2), np.arange(3)]
        file["pointers"] = np.array([lists.ref], h5py.ref_dtype)
    for key in ("lists", "pointers"):
        with refuses("no integers or strings"):
            read_ids(f"{tmp_path / 'x.h5'}:{key}")


def test_vecs_name_the_row(tmp_path):
    path = tmp_path / "x.fvecs"
    _write_vecs(path, _matrix("<f4"))
    whole = path.read_bytes()
    row_bytes = len(whole) // ROWS
    path.write_bytes(whole[:-1])
    _refused(path, "row 22 has 23 of its 24 bytes")
    path.write_bytes(whole + whole[:8])
    _refused(path, "row 23 has 8 of its 24 bytes")
    other = struct.pack("<i3f", 3, 1, 2, 3)
    before = whole[: 7 * row_bytes]
    after = whole[7 * row_bytes :]
    for tail in (b"", whole[:8]):
        path.write_bytes(before + other + tail + after)
        _refused(path, "row 7 declares 3 columns and row 0 5")
    path.write_bytes(struct.pack("<i", 2**31 - 1) + whole)
    _refused(path, "row 0 declares 2147483647")


INT_LISTS = pa.list_(pa.int32())


@pytest.mark.parametrize(
    "rows, kind, match",
    [
        ([[1, 2], [3]], INT_LISTS, "row 1 has 1 values and row 0 2"),
        ([[1, 2], None], INT_LISTS, "row 1 is null"),
        ([None, [1, 2]], INT_LISTS, "row 0 is null"),
        ([[1, 2], [3, None]], INT_LISTS, "row 1 has a null"),
        # Arrow before 26 refuses such a file itself, in its own words.
        ([[1, 2], None], pa.list_(pa.int32(), 2), "row 1 is null|all lists to be of size=2"),
        ([["a"]], pa.list_(pa.string()), "no list columns"),
        ([1, 2], pa.int32(), "no list columns"),
        ([], INT_LISTS, "0 x 0"),
        ([[], []], INT_LISTS, "2 x 0"),
    ],
)
def test_parquet_names_the_row(rows, kind, match, tmp_path):
    column = pa.array(rows, kind)
    pq.write_table(pa.table({"v": column}), tmp_path / "x.parquet")
    _refused(tmp_path / "x.parquet", match)


def test_parquet_empty_row_groups(tmp_path):
    schema = pa.schema([("v", INT_LISTS)])
    groups = ([], [[1, 2]], [], [[3, 4], [5, 6]], [])
    with pq.ParquetWriter(tmp_path / "x.parquet", schema) as file:
        for rows in groups:
            column = pa.array(rows, INT_LISTS)
            file.write_table(pa.table({"v": column}))
    with open_vectors(tmp_path / "x.parquet") as source:
        assert_array_equal(source.read(), [[1, 2], [3, 4], [5, 6]])


def test_parquet_row_numbers_count_from_the_start_of_the_file(tmp_path):
    matrix = np.zeros((20_000, 50), "f4").tolist()
    matrix[17_000] = [1.0]
    pq.write_table(
        pa.table({"v": matrix}),
        tmp_path / "x.parquet",
        row_group_size=6_000,
    )
    source = open_vectors(tmp_path / "x.parquet")
    for _ in range(2):  # a failure is not forgotten by the next call
        _, first = next(source.chunks(5, 3))
        assert first.shape == (5, 50)
        with refuses("row 17000 has 1 values"):
            list(source.chunks(6_500, 8))


@pytest.mark.parametrize(
    "change, match",
    [
        ({"indptr": np.array([0, 2, 1, 3])}, "non-decreasing"),
        ({"indptr": np.array([0, 1, 2, 4])}, "index pointer"),
        ({"indices": np.array([0, 4, 1])}, "indices"),
        ({"indices": np.array([0, 1, -1])}, "indices"),
        ({"data": np.ones((3, 1))}, "1-D"),
        ({"data": np.ones(3, complex)}, "complex"),
        ({"shape": np.array([3])}, "shape"),
        ({"shape": np.array([2**62, 4])}, "size 4 should be"),
        ({"format": np.array(1)}, "cannot be read"),
        ({"format": np.array(b"csc"), "shape": np.array([2**40, 3])}, "more than it can hold"),
    ],
)
def test_sparse_structure_is_checked(change, match, tmp_path):
    members = {
        "format": np.array(b"csr"),
        "shape": np.array([3, 4]),
        "data": np.ones(3),
        "indices": np.array([0, 1, 3]),
        "indptr": np.array([0, 1, 2, 3]),
    }
    np.savez(tmp_path / "x.npz", **(members | change))
    _refused(tmp_path / "x.npz", match)


def test_other_sparse_formats_are_refused(tmp_path):
    scipy.sparse.save_npz(tmp_path / "x.npz", _sparse().tocoo())
    _refused(tmp_path / "x.npz", "'coo'; save it as CSR")


@pytest.mark.parametrize("module", ["h5py", "pyarrow.parquet"])
def test_missing_extras(module, tmp_path, monkeypatch):
    path = tmp_path / {"h5py": "x.h5", "pyarrow.parquet": "x.parquet"}[module]
    path.write_bytes(b"any")
    monkeypatch.setitem(__import__("sys").modules, module, None)
    _refused(path, r"pip install h5py pyarrow")


@pytest.mark.parametrize(
    "text, match",
    [
        (b"1\n\n2\n", "line 2 is empty"),
        (b"1\n2\n \n", "line 3 is empty"),
        (b"\n", "line 1 is empty"),
        (b"", "the file is empty"),
        (b"a\n\xff\n", "cannot be read"),
        (b"a\n" + b"b" * 5000, "row 1 has 5000 characters"),
        (b"a\n\x00\n", "ends with a NUL"),
    ],
)
def test_wrong_id_lines(text, match, tmp_path):
    (tmp_path / "ids.txt").write_bytes(text)
    with refuses(match):
        read_ids(tmp_path / "ids.txt")


@pytest.mark.parametrize(
    "ids, match",
    [
        (np.zeros((2, 2), int), "2 dimension"),
        (np.zeros(0, int), "no ids"),
        (np.array(["a", ""]), "row 1 has an empty id"),
        (np.array([0x110000, 65, 65, 65], "<u4").view("<U2"), "row 0 has an id that is not text"),
        (np.array(["ab", "c"], object), "objects.*; save numbers or text"),
    ],
)
def test_wrong_id_arrays(ids, match, tmp_path):
    np.save(tmp_path / "ids.npy", ids)
    with refuses(match):
        read_ids(tmp_path / "ids.npy")


def test_wrong_id_files(tmp_path):
    table = pa.table({"a": ["x", None], "b": [1.0, 2.0]})
    pq.write_table(table, tmp_path / "x.parquet")
    for key, match in (
        ("", "PATH:KEY"),
        (":a", "row 1 is null"),
        (":b", "type double"),
        (":c", "a, b"),
    ):
        with refuses(match):
            read_ids(f"{tmp_path / 'x.parquet'}{key}")
    (tmp_path / "x.csv").write_text("1")
    with refuses(r"'.csv'; use one of .npy, .txt"):
        read_ids(tmp_path / "x.csv")


# ---- stored in other ways


def test_hdf5_strings_behind_a_user_block_and_in_chunks(tmp_path):
    path = tmp_path / "ids.h5"
    names = [f"name {i} of some length é" for i in range(500)] + [""]
    with h5py.File(path, "w", userblock_size=512) as file:
        file.create_dataset(
            "names",
            data=names[:-1],
            chunks=(64,),
            dtype=h5py.string_dtype(),
        )
        file["empty"] = ["x", ""]
    assert read_ids(f"{path}:names").tolist() == names[:-1]
    with refuses("row 1 has an empty id"):
        read_ids(f"{path}:empty")


@pytest.mark.slow
def test_low_a_compressed_array_takes_bounded_memory(tmp_path):
    """300 MB of zeros, in a file of 300 kB."""
    path = tmp_path / "x.npz"
    rows = 300_000
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive,
        archive.open("a.npy", "w", force_zip64=True) as member,
    ):
        member.write(_npy_header((rows, 1000), "|u1"))
        for _ in range(300):
            member.write(bytes(1_000_000))
    with peak_memory() as peak, refuses(r"take 3\d{8} bytes of memory.*save them as \.npy"):
        open_vectors(path)
    assert peak.bytes < 10_000_000
