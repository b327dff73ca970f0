"""What an index holds: its files, read verified, and written as they come and go.

Reading checks sizes and SHA-256 hashes before any parser sees a byte. How files become those of the
index is in :mod:`dpindex.storage.directory`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

from dpindex.base.arrays import Table, release_pages, row_blocks, spaced
from dpindex.base.errors import DamagedError, InputError
from dpindex.base.files import (
    Buffer,
    map_file,
    read_file,
)
from dpindex.data.stores import Bucket
from dpindex.decode import decoder_of
from dpindex.decode.calibration import SimilarityCalibration, calibration_from_bytes
from dpindex.decode.denoiser import Denoiser, denoiser_from_bytes, denoiser_to_bytes
from dpindex.decode.symbols import SAMPLED_SYMBOLS, crowding
from dpindex.mechanism.codes import Codes, codes_from_bytes
from dpindex.mechanism.noise.base import SymbolLaw
from dpindex.mechanism.spec import Spec
from dpindex.storage.code_store import (
    MAPPED_BYTES,
    CodeStore,
    rows_per_segment,
)
from dpindex.storage.directory import RELEASED, IndexDirectory
from dpindex.storage.history import History
from dpindex.storage.ids import IdBlock, id_block, ids_to_bytes
from dpindex.storage.journal import writing_beside
from dpindex.storage.manifest import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    FileMark,
    Manifest,
    Settings,
    file_path,
    put_files,
    segment_number,
)
from dpindex.storage.payload import Payload, payload_from_bytes, payload_to_bytes

_REQUESTS = 8

SegmentContents: TypeAlias = tuple[Codes, IdBlock, Table]
"""Codes, ids, and payload or None; what is large is mapped where it lies."""


@dataclass(frozen=True)
class IndexFiles:
    """The files of an index that a manifest names, each compared with it before it is parsed.

    Attributes
    ----------
    path : Path
        The directory.
    manifest : Manifest
    """

    path: Path
    manifest: Manifest

    @cached_property
    def settings(self) -> Settings:
        """The settings, with the spec's codebook or design in full if it has one."""
        spec = self.manifest.settings.spec
        if spec.public is not None:
            data = self._single(spec.public.kind)
            if data is not None:
                spec = spec.with_public(spec.public.from_bytes(data))
        return replace(self.manifest.settings, spec=spec)

    def segments(self) -> Iterator[SegmentContents]:
        """Yield codes, ids and payload of every segment."""
        fingerprint = self.manifest.settings.spec.fingerprint
        for number, count in self.manifest.segments.items():
            path = file_path("codes", number)
            codes = codes_from_bytes(self._mapped(path), verified=True)
            stored_ids = self._mapped(file_path("ids", number))
            ids = id_block(stored_ids, verified=True)
            release_pages(codes.stored)
            if codes.fingerprint != fingerprint:
                raise DamagedError(f"{self.path / path} was made under another spec.")
            payload = self._payload(number)
            lengths = {count, len(codes), len(ids)}
            if payload is not None:
                lengths.add(len(payload))
            if len(lengths) > 1:
                raise DamagedError(f"{self.path / path} does not have the rows it should.")
            yield codes, ids, payload

    def _payload(self, number: str) -> Table:
        path = file_path("payload", number)
        if path not in self.manifest.files:
            return None
        return payload_from_bytes(self._verified(path))

    def payload_columns(self) -> dict[str, str]:
        """Return the type of each payload column by its name, from one segment with a payload."""
        tables = map(self._payload, self.manifest.segments)
        one = next((table for table in tables if table is not None), None)
        return Payload(one).columns

    def denoiser(self) -> Denoiser | None:
        """Return the denoiser; None if there is none."""
        data = self._single("denoiser")
        if data is None:
            return None
        return denoiser_from_bytes(data, self.settings.spec)

    def calibration(self) -> SimilarityCalibration | None:
        """Return the calibration; None if there is none."""
        data = self._single("calibration")
        if data is None:
            return None
        return calibration_from_bytes(data)

    def _single(self, kind: str) -> bytes | None:
        number = self.manifest.single.get(kind)
        if number is None:
            return None
        return self._verified(file_path(kind, number))

    def check_sizes(self) -> None:
        """Refuse a file that is missing, or is not as long as it was; none is read."""
        for path in self.manifest.paths:
            place = self.path / path
            size = self.manifest.files[path].bytes
            if not place.is_file() or place.stat().st_size != size:
                raise DamagedError(
                    f"{place} is missing, cut off or was changed; restore it from a copy."
                )

    def _verified(self, path: str) -> bytes:
        """Return the bytes of a file."""
        return bytes(self._mapped(path, read_file))

    def _mapped(self, path: str, read: Callable[..., Buffer] = map_file) -> Buffer:
        """Return a file; the pages of a large one are mapped where they lie."""
        mark = self.manifest.files[path]
        if mark.bytes < MAPPED_BYTES:
            read = read_file
        data = read(self.path / path, mark.bytes, links=False)
        if FileMark.of(data) != mark:
            raise DamagedError(
                f"{self.path / path} is cut off, or was changed or damaged; restore it from a copy."
            )
        return data


class IndexWriter:
    """Stages new files of an index, each under the next number.

    Parameters
    ----------
    put : callable
        Creates a file, given its path and bytes; false if another is there.
    manifest : Manifest
        Of what the index holds already.

    Attributes
    ----------
    manifest : Manifest
        With all that was staged.
    """

    def __init__(self, put: Callable[[str, bytes], bool], manifest: Manifest) -> None:
        self.manifest = manifest
        self._put = put

    @property
    def next_number(self) -> str:
        """The number of the next file."""
        return segment_number(self.manifest.next_number)

    def add_rows(self, store: CodeStore, first_row: int) -> None:
        """Stage the rows of a store from a row on, as segments."""
        size = rows_per_segment(self.manifest.settings.spec)
        for rows in row_blocks(len(store), size, first_row):
            number = self.next_number
            codes = store.take(rows)
            files = {
                file_path("codes", number): codes.to_bytes(),
                file_path("ids", number): ids_to_bytes(store.ids.take(rows)),
            }
            payload = store.payload_of(rows)
            if payload is not None:
                files[file_path("payload", number)] = payload_to_bytes(payload)
            self._stage(files)
            segments = {**self.manifest.segments, number: len(codes)}
            self.manifest = replace(self.manifest, segments=segments)

    def add_public(self) -> None:
        """Stage the codebook or design of the spec, if it has one that the index does not hold."""
        public = self.manifest.settings.spec.public
        if public is not None and public.kind not in self.manifest.single:
            self.add_single(public.kind, public.to_bytes())

    def add_single(self, kind: str, data: bytes) -> None:
        """Stage the one file of a kind, unless the index holds it as it is."""
        single = self.manifest.single
        if kind in single:
            path = file_path(kind, single[kind])
            if self.manifest.files[path] == FileMark.of(data):
                return
        number = self.next_number
        self._stage({file_path(kind, number): data})
        single = {**single, kind: number}
        self.manifest = replace(self.manifest, single=single)

    def _stage(self, files: Mapping[str, bytes]) -> None:
        """Stage the files of one number."""
        self.manifest = replace(
            self.manifest,
            files={**self.manifest.files, **put_files(self._put, files)},
            next_number=self.manifest.next_number + 1,
        )


@dataclass(frozen=True)
class Contents:
    """The contents of an index.

    Attributes
    ----------
    settings : Settings
    store : CodeStore
    denoiser : Denoiser, optional
    calibration : SimilarityCalibration, optional
    history : History, optional
        What was released into it, which stays beside it; None where that has not been read.
    """

    settings: Settings
    store: CodeStore
    denoiser: Denoiser | None
    calibration: SimilarityCalibration | None
    history: History | None = None


@dataclass(frozen=True)
class Checkpoint:
    """The state of an index when it was last written or read.

    Attributes
    ----------
    directory : IndexDirectory
    manifest : Manifest
    rows, removals : int
        Length and removals of the store then. As long as nothing else was removed its first
        ``rows`` rows are those that were written.
    history : History, optional
        What was written or read then of what was released; None where it was not.
    """

    directory: IndexDirectory
    manifest: Manifest
    rows: int
    removals: int
    history: History | None = None

    def unchanged_manifest(self) -> Manifest:
        """Return the manifest; InputError if it is another one now."""
        if self.directory.manifest_digest != self.manifest.digest:
            self.directory.manifest()  # says if there is none, or it is damaged
            raise InputError(
                f"{self.directory.path} was changed since this index was opened; open it again and "
                f"repeat the change; add_codes takes over codes that are new here, and spends "
                f"nothing."
            )
        return self.manifest


def write_index(
    path: Path,
    contents: Contents,
    last: Checkpoint | None,
    sealed: Callable[[Checkpoint], object],
    token: str = "",
) -> None:
    """Write an index to a new directory, or bring the one up to date that it was ``last`` in.

    Parameters
    ----------
    path : Path
    contents : Contents
    last : Checkpoint, optional
        Of the last write or read.
    sealed : callable
        Called with the new checkpoint once the save can no longer fail, only be finished later.
    token : str
        Of a release that ends with this save; its journal is removed with it.

    Raises
    ------
    InputError
        If the directory belongs to something else, was changed since, or cannot be written.
    """
    directory = IndexDirectory(path)
    store = contents.store
    manifest = Manifest(contents.settings)
    first_row = 0
    with ExitStack() as stack:
        if last is None or last.directory.path != directory.path:
            last = None
            directory.refuse_taken()
            stack.enter_context(directory.alone())
        else:
            directory = last.directory
            stack.enter_context(directory.held())
            # The settings in memory hold the codewords; those of the manifest only name them.
            manifest = replace(last.unchanged_manifest(), settings=contents.settings)
            if last.removals == store.removals:
                first_row = last.rows
            else:  # all that is left is written anew
                manifest = replace(manifest, segments={})
        stack.enter_context(writing_beside(directory.path))
        staging = stack.enter_context(directory.staged())
        writer = IndexWriter(staging.put, manifest)
        _stage_contents(writer, contents, first_row)
        manifest = writer.manifest
        checkpoint = Checkpoint(
            directory,
            manifest,
            rows=len(store),
            removals=store.removals,
            history=contents.history,
        )
        history = contents.history
        if last is not None and history is not None and history is not last.history:
            staging.put(RELEASED, history.to_bytes())
        # Last: a manifest names files, so all that it names is durable before it.
        staging.put(MANIFEST, manifest.text)
        if last is None:
            directory.appear(staging, history or History())
            sealed(checkpoint)
        else:
            directory.grow(manifest, staging, lambda: sealed(checkpoint), token)


def _stage_contents(writer: IndexWriter, contents: Contents, first_row: int) -> None:
    """Stage all that an index holds, from a row on."""
    writer.add_public()
    writer.add_rows(contents.store, first_row)
    if contents.denoiser is not None:
        writer.add_single("denoiser", denoiser_to_bytes(contents.denoiser))
    if contents.calibration is not None:
        writer.add_single("calibration", contents.calibration.to_bytes())
    uneven = sampled_crowding(contents.settings.spec, contents.store)
    writer.manifest = replace(writer.manifest, crowding=uneven)


def sampled_crowding(spec: Spec, codes: CodeStore | Codes) -> float | None:
    """Return the crowding of a sample of codes; None without a codebook, and for one code."""
    if not decoder_of(spec).by_symbol or len(codes) < 2:
        return None
    sample = codes.take(spaced(len(codes), SAMPLED_SYMBOLS))
    return crowding(sample, SymbolLaw.of(spec.law))


def read_index(directory: IndexDirectory) -> tuple[Contents, Checkpoint]:
    """Return the contents of an index, each file verified before it is parsed, and a checkpoint.

    Raises
    ------
    InputError
        If the directory is not an index, or was damaged or changed.
    """
    files = IndexFiles(directory.path, directory.finished_manifest())
    segments = files.segments()
    # The first is read before anything is made of the spec: what a manifest says costs nothing yet.
    first = list(islice(segments, 1))
    contents = Contents(
        settings=files.settings,
        denoiser=files.denoiser(),
        calibration=files.calibration(),
        store=CodeStore.of_segments(files.settings.spec.format, chain(first, segments)),
    )
    checkpoint = Checkpoint(
        directory,
        files.manifest,
        rows=len(contents.store),
        removals=0,
    )
    return contents, checkpoint


def _remote_manifest(bucket: Bucket, url: str) -> tuple[bytes, Manifest]:
    """Return the manifest of an index in an object store, as it lies there and as it reads."""
    text = bucket.read(MANIFEST, MAX_MANIFEST_BYTES)
    if text is None:
        raise InputError(f"{url} is not a dpindex index, or its build is not finished.")
    return text, Manifest.from_bytes(text, Path(url))


def replace_learned(url: str, kind: str, data: bytes) -> None:
    """Put what was learned into an index in an object store, for what it had learned before.

    It counts once the manifest names it, which is replaced as a whole.

    Raises
    ------
    InputError
        If there is no finished index, or it was changed meanwhile.
    """
    bucket = Bucket(url)
    text, before = _remote_manifest(bucket, url)

    def put(path: str, data: bytes) -> bool:
        """Create a file, also where an attempt that was cut off left another."""
        if bucket.create(path, data):
            return True
        bucket.remove([path])
        return bucket.create(path, data)

    writer = IndexWriter(put, before)
    writer.add_single(kind, data)
    if writer.manifest is before:
        return  # it is what is there
    # Replaced only while it is what was read: of two writers the second learns that it lost.
    if not bucket.replace(MANIFEST, text, writer.manifest.text):
        raise InputError(f"{url} was changed meanwhile; run it again.")
    # Only now, as the manifest before named these.
    left = set(before.paths) - set(writer.manifest.paths)
    bucket.remove(sorted(left))


@contextmanager
def fetched(url: str) -> Iterator[Path]:
    """Give a temporary folder with a copy of the index at ``url``, while the block runs.

    Sizes are bounded by the manifest; whoever reads the folder checks sizes and hashes.

    Raises
    ------
    InputError
        If there is no finished index, or a file is missing.
    """
    store = Bucket(url)
    text, manifest = _remote_manifest(store, url)
    files = manifest.files
    with TemporaryDirectory(prefix="dpindex-") as folder:
        place = Path(folder).resolve() / "index"

        def copy(path: str) -> None:
            data = store.read(path, files[path].bytes)
            if data is None:
                raise InputError(f"{url}/{path} is missing.")
            file = place / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)

        with ThreadPoolExecutor(_REQUESTS) as pool:
            list(pool.map(copy, files))
        (place / MANIFEST).write_bytes(text)
        try:
            yield place
        except InputError as error:  # of what was copied: the temporary path says nothing
            error.args = (str(error.args[0]).replace(os.fspath(place), url),)
            raise
