"""What is fuzzed: for every reader its seeds, how an input is repaired, and how it is read.

``repair`` makes checksums, lengths and archive structure right again after bytes were changed, so
that the fuzzer gets past them to the code behind.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import math
import random
import sqlite3
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse

from dpindex import Blocks, Dense, Privatizer, Repeated, Spec, attribute, l2
from dpindex.accounting.ledger import Ledger
from dpindex.base.files import pack
from dpindex.data import open_vectors, read_ids, read_payload
from dpindex.decode.denoiser import Channel, denoiser_from_bytes, denoiser_to_bytes
from dpindex.decode.fit import fit_denoiser
from dpindex.decode.iteration import CalibrationBins, CodeTables, EPIteration
from dpindex.index.private_index import PrivateIndex
from dpindex.mechanism.codebooks import Codebook
from dpindex.mechanism.codes import BitCodes, NumberFormat, SymbolFormat, codes_from_bytes
from dpindex.race import SRP, PStable, RaceSketch, SketchSpec
from dpindex.storage.ids import id_block, ids_to_bytes
from dpindex.storage.manifest import Manifest

_GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden" / "format2"
_FOLDER = Path(tempfile.mkdtemp(prefix="fuzz-"))
_MAX_READ = 1 << 16
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 7, 2**31 - 1, 2**31, 2**63, 10**40, 0.0, -0.0, 0.5, 1e-320,
    1e308, float("inf"), float("nan"), "", "0", "000000", "\0", "../x", "é", "\ud800", [], {},
    [0, 1], [1.0, 0.0], {"kind": "l2"}, "DP", "none-oporp", "dp-rp-l", "raw-staircase",
    "very-sparse", "complete",
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """One reader: seeds, repair (bytes and a random generator to bytes), and reading."""

    seeds: Callable[[], Iterable[bytes]]
    read: Callable[[bytes], object]
    repair: Callable[[bytes, random.Random], bytes] = lambda data, _: data
    most: int = 4096


# JSON


def _places(data: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a JSON value."""
    found: list[tuple[Any, Any]] = []
    stack = [data]
    while stack:
        value = stack.pop()
        keys = list(value) if isinstance(value, dict) else range(len(value))
        for key in keys:
            found.append((value, key))
            if isinstance(value[key], dict | list):
                stack.append(value[key])
    return found


def _changed(data: Any, rng: random.Random) -> Any:
    """A JSON value with a few places changed, removed or copied from one to another."""
    if not isinstance(data, dict | list):
        return data
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        places = _places(data)
        if not places:
            break
        container, key = rng.choice(places)
        choice = rng.randrange(4)
        if choice == 0 and isinstance(container, dict):
            del container[key]
        elif choice == 1:
            other, where = rng.choice(places)
            if where in other if isinstance(other, dict) else where < len(other):
                container[key] = json.loads(json.dumps(other[where]))
        elif choice == 2 and isinstance(container[key], int | float):
            container[key] += rng.choice((-1, 1, 0.5))
        else:
            container[key] = copy.deepcopy(rng.choice(_VALUES))
    return data


def _load(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _spec_repair(data: bytes, rng: random.Random) -> bytes:
    value = _changed(_load(data), rng)
    return data if value is None else json.dumps(value).encode("utf-8", "surrogatepass")


def _manifest_repair(data: bytes, rng: random.Random) -> bytes:
    value = _changed(_load(data), rng)
    if not isinstance(value, dict):
        return data
    value.pop("checksum", None)
    if rng.random() < 0.5:  # consistent in itself, so that more of it is believed
        try:
            spec = Spec.from_json(json.dumps(value["spec"]))
            value["guarantee"] = spec.guarantee.to_dict()
            value["count"] = sum(value["segments"].values())
        except Exception:
            pass
    seal = hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
    return json.dumps({**value, "checksum": seal}, indent=1, sort_keys=True).encode()


_FRAME = struct.Struct("<4sHHIQ32s")


def _container_repair(data: bytes, rng: random.Random) -> bytes:
    """A right frame around a changed header, and arrays of the size that it declares, or nearly."""
    size = int.from_bytes(data[8:12], "little")
    header, body = data[_FRAME.size : _FRAME.size + size], data[_FRAME.size + size :]
    value = _changed(_load(header), rng)
    if value is not None:
        try:
            arrays = value["arrays"]
            declared = sum(
                math.prod(shape) * np.dtype(dtype).itemsize for _, dtype, shape in arrays
            )
            if 0 <= declared < 1 << 16 and rng.random() < 0.8:
                body = body.ljust(declared, b"\1")[:declared]
        except Exception:  # whatever NumPy makes of a name that is no dtype
            pass
        header = json.dumps(value).encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(header + body).digest()
    return _FRAME.pack(b"DPIX", 2, 0, len(header), len(body), digest) + header + body


def _specs() -> list[Spec]:
    return [
        Spec(method="dp-oporp-staircase", dim=24, k=8, epsilon=2.0, adjacency=attribute(1.0)),
        Spec(
            method="dp-rp-g-opt",
            dim=24,
            k=8,
            epsilon=1.0,
            delta=1e-6,
            variant=Dense("very-sparse"),
            adjacency=attribute(1.0),
        ),
        Spec(
            method="dp-signoporp-rr",
            dim=24,
            k=16,
            epsilon=1.0,
            variant=Repeated(2),
            norm=1.0,
            adjacency=attribute(1.0),
        ),
        Spec(
            method="dp-signrp-rr",
            dim=24,
            epsilon=1.0,
            delta=1e-6,
            variant=Dense(min_norm=2.0),
            adjacency=attribute(1.0),
        ),
        Spec(method="row-rp-g-opt", dim=24, epsilon=1.0, delta=1e-6, adjacency=l2(1.0)),
        Spec(
            method="dp-sjlt-laplace",
            dim=24,
            k=8,
            epsilon=1.0,
            variant=Blocks(4),
            scale=255.0,
            adjacency=attribute(1.0),
        ),
        Spec(
            method="raw-square-wave",
            dim=4,
            epsilon=1.0,
            bounds=(0.0, 1.0),
            clip=True,
            adjacency=attribute(1.0),
        ),
        Spec(method="idp-signoporp-g", dim=24, epsilon=1.0, delta=1e-6, adjacency=attribute(0.5)),
        Spec(method="none-oporp", dim=24, adjacency=attribute(1.0)),
    ]


def _read_spec(data: bytes) -> None:
    spec = Spec.from_json(data)
    assert Spec.from_json(spec.to_json()) == spec
    assert len(spec.fingerprint) == 16
    spec.guarantee.protects()


def _manifests() -> Iterable[bytes]:
    for number, spec in enumerate(_specs()[:3]):
        place = _FOLDER / f"index{number}"
        index = PrivateIndex(spec)
        for start in range(0, 4, 2):
            index.add(np.full((2, spec.dim), spec.dim**-0.5), ids=[f"é{start}", f"{start + 1}"])
            index.save(place)
        yield (place / "manifest.json").read_bytes()


_PARTS = ("manifest.json", "segments/000000.codes", "ids/000000.ids")
_SIZES = struct.Struct("<3I")


def _directories() -> Iterable[bytes]:
    """The files of an index of one segment, one after the other, behind their sizes."""
    for number, spec in enumerate(_specs()[:3]):
        place = _FOLDER / f"whole{number}"
        index = PrivateIndex(spec)
        index.add(np.full((3, spec.dim), spec.dim**-0.5), ids=["a", "é", "c"])
        index.save(place)
        yield _joined([(place / name).read_bytes() for name in _PARTS])


def _joined(parts: list[bytes]) -> bytes:
    return _SIZES.pack(*map(len, parts)) + b"".join(parts)


def _split(data: bytes) -> list[bytes]:
    parts, rest = [], data[_SIZES.size :]
    for size in _SIZES.unpack(data[: _SIZES.size].ljust(_SIZES.size, b"\0")):
        parts.append(rest[:size])
        rest = rest[size:]
    return parts


def _directory_repair(data: bytes, rng: random.Random) -> bytes:
    """One of the files repaired, and a manifest that has the sizes and hashes of all."""
    manifest, codes, ids = _split(data)
    choice = rng.randrange(3)
    codes = _container_repair(codes, rng) if choice == 0 else codes
    ids = _index_ids_repair(ids, rng) if choice == 1 else ids
    value = _load(manifest)
    with suppress(Exception):
        for name, part in zip(_PARTS[1:], (codes, ids), strict=True):
            mark = {"bytes": len(part), "sha256": hashlib.sha256(part).hexdigest()}
            value["files"][name] = mark
        del value["checksum"]
        seal = hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
        manifest = json.dumps({**value, "checksum": seal}, indent=1, sort_keys=True).encode()
    return _joined([_manifest_repair(manifest, rng) if choice == 2 else manifest, codes, ids])


def _read_directory(data: bytes) -> None:
    place = _FOLDER / "directory"
    for name, part in zip(_PARTS, _split(data), strict=True):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(part)
    index = PrivateIndex.open(place)
    if index.spec.epsilon is not None and len(index) * index.spec.dim < 1 << 12:
        index.search(index.codes.take(slice(0, 1)), k=1)


def _read_manifest(data: bytes) -> None:
    manifest = Manifest.from_bytes(data, Path("manifest.json"))
    assert manifest.count >= 0
    assert len(manifest.digest) == 64


# Codes, ids of an index, sketches


def _codes() -> Iterable[bytes]:
    for spec in _specs()[:3]:
        yield Privatizer(spec).privatize(np.full((3, spec.dim), spec.dim**-0.5)).to_bytes()
    numbers = NumberFormat(2, bytes(16), 0.5, 0.5)
    yield numbers.codes(np.array([[70_000, -3]], np.int32)).to_bytes()
    yield BitCodes.from_signs(np.ones((0, 3), np.bool_), bytes(16)).to_bytes()
    symbols = SymbolFormat(1, bytes(16), 9)
    yield symbols.codes(np.arange(9, dtype=np.uint16)[:, None]).to_bytes()
    for path in sorted(_GOLDEN.glob("*.codes")):
        yield path.read_bytes()


def _read_codes(data: bytes) -> None:
    codes = codes_from_bytes(data)
    part = codes.take(slice(0, 8))
    with np.errstate(all="ignore"):
        numbers = part.to_float()
    assert numbers.shape == (len(part), codes.k)
    assert codes_from_bytes(codes.to_bytes()).to_bytes() == codes.to_bytes()
    assert codes.format.fault(codes.stored) is None


def _index_ids() -> Iterable[bytes]:
    yield ids_to_bytes(np.arange(5))
    yield ids_to_bytes(np.array(["a", "bcd", "", "é", "x" * 40]))


def _index_ids_repair(data: bytes, rng: random.Random) -> bytes:
    """A right container; or strings that the bytes hold."""
    if rng.random() < 0.6:
        return _container_repair(data, rng)
    body = data[_FRAME.size :]
    lengths = np.frombuffer(body[: len(body) // 8 * 4], "<u4") % 9
    text, texts, at = body[4 * len(lengths) :].decode("utf-8", "replace"), [], 0
    for length in lengths.tolist():
        texts.append(text[at : at + length])
        at += length
    stored = "".join(texts).encode()
    if rng.random() < 0.2 and stored:  # not quite UTF-8
        stored = stored[:-1] + rng.randbytes(1)
    sizes = np.array([len(text) for text in texts], "u4")
    return pack("ids", {}, {"lengths": sizes, "text": np.frombuffer(stored, "u1")})


def _sketches() -> Iterable[bytes]:
    for hash_, delta in ((PStable(1.0), 0.0), (SRP(2), 1e-6)):
        sketch = RaceSketch(SketchSpec(3, 4, 8, hash_, 1.0, delta))
        yield sketch.fit(np.eye(3)).release().to_bytes()
    yield (_GOLDEN / "race.sketch").read_bytes()


_CONTAINER = struct.Struct("<4sHHIQ32s")


def _sketch_repair(data: bytes, rng: random.Random) -> bytes:
    frame = _CONTAINER
    if len(data) < frame.size:
        return data
    size = frame.unpack_from(data)[3]
    header, body = data[frame.size : frame.size + size], data[frame.size + size :]
    value = _changed(_load(header), rng)
    if value is not None:
        try:
            facts = value["facts"]
            cells = facts["spec"]["rows"] * facts["spec"]["width"]
            if rng.random() < 0.7 and 0 < cells < 1 << 12:
                width = rng.choice((1, 2, 3))
                body = body.ljust(cells * width, b"\x7f")[: cells * width]
                value["arrays"] = [["counts", "|u1", [cells, width]]]
        except (TypeError, KeyError, IndexError, OverflowError, MemoryError):
            pass
        header = json.dumps(value).encode("utf-8", "surrogatepass")
    if len(header) >= 1 << 16:
        return data
    digest = hashlib.sha256(header + body).digest()
    return frame.pack(b"DPIX", 2, 0, len(header), len(body), digest) + header + body


def _read_sketch(data: bytes) -> None:
    sketch = RaceSketch.from_bytes(data)
    assert RaceSketch.from_bytes(sketch.to_bytes()).to_bytes() == sketch.to_bytes()
    sketch.guarantee.protects()
    spec = sketch.spec
    if spec.rows * spec.hash.directions * spec.dim < 1 << 12 and spec.columns < 1 << 12:
        sketch.count(np.zeros((1, spec.dim)))


_LEARNED = Spec(method="dp-oporp-staircase", dim=16, k=8, epsilon=20.0, adjacency=attribute(1.0))


def _denoisers() -> Iterable[bytes]:
    rng = np.random.default_rng(0)
    x = np.clip(rng.normal(size=(3000, 2)) @ rng.normal(size=(2, 16)) / 2, -1, 1)
    codes = Privatizer(_LEARNED).privatize(x)
    linear = fit_denoiser(codes, _LEARNED, "linear")
    yield denoiser_to_bytes(linear)
    # One iteration, as if it had been worth learning.
    flat = np.ones(CalibrationBins.BINS, np.float32)
    none = np.empty((len(flat), 0), np.float32)
    bins = CalibrationBins(np.array([[-1.0, 1.0], [0.1, 1.0]]), flat, flat, none)
    tables = CodeTables.of(Channel(_LEARNED).likelihood, 1.0)
    iteration = EPIteration(linear.linear, bins, tables)
    yield denoiser_to_bytes(replace(linear, iterations=(iteration,)))


def _read_denoiser(data: bytes) -> None:
    with np.errstate(all="ignore"):
        assert denoiser_from_bytes(data, _LEARNED).kind in ("linear", "score")


def _ledgers() -> Iterable[bytes]:
    ledger = Ledger(_FOLDER / "ledger")
    for spec in (*_specs()[:3], SketchSpec(3, 4, 8, PStable(1.0), 1.0)):
        ledger.record(spec, ["a", "b", type(spec).__name__])
        with closing(sqlite3.connect(ledger.path)) as database:
            database.execute("PRAGMA page_size = 512")  # smaller files
            database.execute("VACUUM")
        yield ledger.path.read_bytes()
        ledger.path.unlink()
        ledger.key_path.unlink()


def _ledger_repair(data: bytes, rng: random.Random) -> bytes:
    """A database with a value of a release changed and sealed anew, if it is still a database."""
    path = _FOLDER / "repaired.ledger"
    path.write_bytes(data)
    unfit = (sqlite3.Error, UnicodeError, OverflowError, MemoryError)
    with suppress(*unfit), closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA synchronous = OFF")
        whole = database.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)
        rows = database.execute("SELECT * FROM releases").fetchall() if whole else ()
        for *values, _ in rows:
            column = rng.randrange(len(values))
            value = rng.choice((values[column], *_VALUES))
            if column == 1:
                value = json.dumps(_changed(_load(str(values[1]).encode()), rng))
            if isinstance(value, int | float | str | bytes | None):
                values[column] = value
            seal = hashlib.sha256(ascii(tuple(values)).encode()).digest()
            marks = ", ".join("?" for _ in (*values, seal))
            database.execute(f"REPLACE INTO releases VALUES ({marks})", (*values, seal))
        database.commit()
    return path.read_bytes()


def _read_ledger(data: bytes) -> None:
    path = _FOLDER / "read.ledger"
    path.write_bytes(data)
    for total in Ledger(path).totals():
        assert total.ids > 0


# Vector files


def _file(suffix: str, write: Callable[[Path], object]) -> bytes:
    path = _FOLDER / f"seed{suffix}"
    write(path)
    return path.read_bytes()


_MATRIX = np.arange(12, dtype=np.float32).reshape(4, 3)


def _npys() -> Iterable[bytes]:
    for array in (_MATRIX, np.asfortranarray(_MATRIX), _MATRIX.astype(">f8"), _MATRIX > 3):
        yield _file(".npy", lambda path, array=array: np.save(path, array))


def _npy_repair(data: bytes, rng: random.Random) -> bytes:
    """A true header, with the shape that the bytes after it have, or nearly."""
    at = 10 + int.from_bytes(data[8:10], "little")
    body = data[at:] if at < len(data) else data[10:]
    descr = rng.choice(
        ("<f4", "<f8", ">f8", "|b1", "<f2", "<i8", "|O", "<U3", "<c8", "<M8[s]", "|V4")
    )
    try:
        size = np.dtype(descr).itemsize
    except TypeError:
        size = 1
    columns = rng.choice((1, 2, 3, 0, 2**40)) if rng.random() < 0.9 else -1
    rows = len(body) // (size * columns) if columns > 0 else rng.randrange(4)
    if rng.random() < 0.9 and columns > 0:
        body = body[: rows * columns * size]
    shape = rng.choice(((rows, columns), (rows * columns,), (rows, columns, 1), (rows, columns)))
    order = rng.random() < 0.3
    header = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}"
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + body


def _npzs() -> Iterable[bytes]:
    yield _file(".npz", lambda path: np.savez(path, a=_MATRIX, b=np.arange(3)))
    yield _file(".npz", lambda path: np.savez_compressed(path, a=_MATRIX))
    matrix = scipy.sparse.csr_matrix(_MATRIX * (_MATRIX > 6))
    yield _file(".npz", lambda path: scipy.sparse.save_npz(path, matrix))
    yield _file(".npz", lambda path: scipy.sparse.save_npz(path, matrix.tocsc(), compressed=False))


def _npz_repair(data: bytes, rng: random.Random) -> bytes:
    """The members that can still be read, one of them changed, zipped anew with right CRCs."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
    except Exception:
        members = dict(_MEMBERS)
    if members:
        name = rng.choice(list(members))
        member = bytearray(members[name])
        for _ in range(rng.randrange(4)):
            if member:
                member[rng.randrange(len(member))] = rng.randrange(256)
        members[name] = bytes(member)
        if rng.random() < 0.2:
            members[name] = _npy_repair(members[name], rng)
    packed = io.BytesIO()
    way = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(packed, "w", way) as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return packed.getvalue()


def _members() -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(list(_npzs())[2])) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


_MEMBERS = _members()


def _vecs(value: str) -> bytes:
    prefix = np.full((4, 1), 3, "<i4").view(np.uint8)
    body = np.ascontiguousarray(_MATRIX.astype(value)).view(np.uint8).reshape(4, -1)
    return np.hstack([prefix, body]).tobytes()


def _hdf5s() -> Iterable[bytes]:
    def plain(path: Path) -> None:
        with h5py.File(path, "w") as file:
            file["train"] = _MATRIX
            file["ids"] = np.arange(4)

    def chunked(path: Path) -> None:
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=_MATRIX, chunks=(2, 3), compression="gzip")
            file.create_dataset("ids", data=np.arange(4), chunks=(2,), compression="gzip")

    def sets(path: Path) -> None:
        with h5py.File(path, "w") as file:
            file.attrs["dimension"] = 6
            file["train"] = np.array([0, 5, 2, 3])
            file["size_train"] = np.array([2, 0, 2])

    yield _file(".hdf5", plain)
    yield _file(".hdf5", chunked)
    yield _file(".hdf5", sets)


def _parquets() -> Iterable[bytes]:
    for compression in ("none", "snappy"):
        rows = pa.array([row.tolist() for row in _MATRIX], pa.list_(pa.float32()))
        table = pa.table({"id": ["a", "b", "c", "d"], "v": rows})
        yield _file(
            ".parquet",
            lambda path, table=table, way=compression: pq.write_table(table, path, compression=way),
        )


def _arrows() -> Iterable[bytes]:
    rows = pa.array([row.tolist() for row in _MATRIX], pa.list_(pa.float32()))
    words = pa.array(["a", "b", "a", "d"]).dictionary_encode()
    table = pa.table({"id": words, "v": rows})
    for new in (pa.ipc.new_file, pa.ipc.new_stream):
        for compression in (None, "zstd"):

            def write(path: Path, new: Any = new, way: Any = compression) -> None:
                options = pa.ipc.IpcWriteOptions(compression=way)
                with new(path, table.schema, options=options) as file:
                    file.write_table(table)

            yield _file(".arrow", write)


def _bins() -> Iterable[bytes]:
    yield np.array(_MATRIX.shape, "<u4").tobytes() + _MATRIX.tobytes()


def _texts(delimiter: str) -> Iterable[bytes]:
    for head in ("a,b,c", "0.5,-1,2e3"):
        lines = f'{head}\n1.5,2,3\n4.5,,6\n"7.5",8,9\n'
        yield lines.replace(",", delimiter).encode()


def _json_lines() -> Iterable[bytes]:
    yield b'{"a": 1, "b": "x"}\n{"b": null, "c": [1, 2]}\n'


def _reads_table(suffix: str) -> Callable[[bytes], None]:
    path = _FOLDER / f"table{suffix}"

    def read(data: bytes) -> None:
        path.write_bytes(data)
        table = read_payload(path)
        assert len(set(table.column_names)) == table.num_columns

    return read


def _reads_vectors(suffix: str) -> Callable[[bytes], None]:
    path = _FOLDER / f"input{suffix}"

    def read(data: bytes) -> None:
        path.write_bytes(data)
        with open_vectors(path) as source:
            rows = max(1, min(source.shape[0], _MAX_READ // source.shape[1]))
            _, chunk = next(source.chunks(rows))
            assert chunk.shape == (rows, source.shape[1])
            assert chunk.dtype == source.dtype

    return read


def _reads_ids(suffix: str, key: str = "") -> Callable[[bytes], None]:
    path = _FOLDER / f"ids{suffix}"

    def read(data: bytes) -> None:
        path.write_bytes(data)
        ids = read_ids(f"{path}{key}")
        assert ids.ndim == 1
        assert ids.dtype.kind in "iU"

    return read


def _codebooks() -> Iterable[bytes]:
    yield Codebook(np.eye(3)).to_bytes()


def _text_ids() -> Iterable[bytes]:
    yield b"1\n2\n3\n"
    yield "a\nbc\n\u00e9\n".encode()


TARGETS: dict[str, Target] = {
    "codes_from_bytes": Target(_codes, _read_codes, _container_repair, 512),
    "manifest": Target(_manifests, _read_manifest, _manifest_repair, 8192),
    "index directory": Target(_directories, _read_directory, _directory_repair, 8192),
    "Spec.from_json": Target(
        lambda: (spec.to_json().encode() for spec in _specs()), _read_spec, _spec_repair, 2048
    ),
    "RACE sketch": Target(_sketches, _read_sketch, _sketch_repair, 2048),
    "ids of an index": Target(_index_ids, lambda data: id_block(data)[:], _index_ids_repair, 512),
    "denoiser": Target(_denoisers, _read_denoiser, _container_repair, 16384),
    "codebook": Target(_codebooks, Codebook.from_bytes, _container_repair, 2048),
    "ledger": Target(_ledgers, _read_ledger, _ledger_repair, 8192),
    ".npy": Target(_npys, _reads_vectors(".npy"), _npy_repair, 512),
    ".npz": Target(_npzs, _reads_vectors(".npz"), _npz_repair, 4096),
    ".fvecs": Target(lambda: [_vecs("<f4")], _reads_vectors(".fvecs"), most=256),
    ".bvecs": Target(lambda: [_vecs("u1")], _reads_vectors(".bvecs"), most=256),
    ".hdf5": Target(_hdf5s, _reads_vectors(".hdf5"), most=16384),
    ".parquet": Target(_parquets, _reads_vectors(".parquet"), most=4096),
    ".arrow": Target(_arrows, _reads_vectors(".arrow"), most=4096),
    ".fbin": Target(_bins, _reads_vectors(".fbin"), most=256),
    ".csv": Target(lambda: _texts(","), _reads_vectors(".csv"), most=256),
    ".tsv": Target(lambda: _texts("\t"), _reads_vectors(".tsv"), most=256),
    "table .csv": Target(lambda: _texts(","), _reads_table(".csv"), most=256),
    "table .jsonl": Target(_json_lines, _reads_table(".jsonl"), most=256),
    "table .parquet": Target(_parquets, _reads_table(".parquet"), most=4096),
    "table .arrow": Target(_arrows, _reads_table(".arrow"), most=4096),
    "ids .txt": Target(_text_ids, _reads_ids(".txt"), most=256),
    "ids .npy": Target(_npys, _reads_ids(".npy"), _npy_repair, 512),
    "ids .npz": Target(_npzs, _reads_ids(".npz", ":b"), _npz_repair, 4096),
    "ids .hdf5": Target(_hdf5s, _reads_ids(".hdf5", ":ids"), most=16384),
    "ids .parquet": Target(_parquets, _reads_ids(".parquet", ":id"), most=4096),
    "ids .arrow": Target(_arrows, _reads_ids(".arrow", ":id"), most=4096),
}
