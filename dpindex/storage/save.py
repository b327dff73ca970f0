"""Saved indexes: writing files, saving an index that is in memory, reading one, fetching a copy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from dpindex.base.arrays import row_blocks, spaced
from dpindex.base.errors import DamagedError, InputError
from dpindex.data.stores import open_store
from dpindex.similarity.calibration import SimilarityCalibration
from dpindex.similarity.symbol_codes import SAMPLED_SYMBOLS, crowding
from dpindex.storage.code_store import CodeStore, rows_per_segment
from dpindex.storage.directory import OF_SAVES, IndexDirectory, Segment
from dpindex.storage.ids import ids_to_bytes
from dpindex.storage.journal import RELEASE_MARK, writing_beside
from dpindex.storage.manifest import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    FileMark,
    Manifest,
    SegmentPaths,
    Settings,
    calibration_path,
    codebook_path,
    denoiser_path,
    segment_number,
)
from dpindex.storage.payload import payload_to_bytes

if TYPE_CHECKING:  # most indexes have none
    from dpindex.denoise import Denoiser

_REQUESTS = 8


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

    def add_codebook(self) -> None:
        """Stage the codebook of the spec, if it has one."""
        codebook = self.manifest.settings.spec.codebook
        if codebook is not None:
            number = self.next_number
            self._stage({codebook_path(number): codebook.to_bytes()})
            self.manifest = replace(self.manifest, codebook=number)

    def add_rows(self, store: CodeStore, first_row: int) -> None:
        """Stage the rows of a store from a row on, as segments."""
        size = rows_per_segment(self.manifest.settings.spec)
        for rows in row_blocks(len(store), size, first_row):
            number = self.next_number
            paths = SegmentPaths(number)
            codes = store.take(rows)
            files = {paths.codes: codes.to_bytes(), paths.ids: ids_to_bytes(store.ids_of(rows))}
            payload = store.payload.take(rows)
            if payload is not None:
                files[paths.payload] = payload_to_bytes(payload)
            self._stage(files)
            segments = {**self.manifest.segments, number: len(codes)}
            self.manifest = replace(self.manifest, segments=segments)

    def add_denoiser(self, data: bytes) -> None:
        """Stage a denoiser, unless these bytes are staged already."""
        number = self.next_number
        self._stage({denoiser_path(number): data})
        self.manifest = replace(self.manifest, denoiser=number)

    def add_calibration(self, data: bytes) -> None:
        """Stage a calibration, unless these bytes are staged already."""
        number = self.next_number
        self._stage({calibration_path(number): data})
        self.manifest = replace(self.manifest, calibration=number)

    def _stage(self, files: Mapping[str, bytes]) -> None:
        """Stage the files of one number.

        Raises
        ------
        DamagedError
            If other bytes are staged under one of these names.
        """
        marks = dict(self.manifest.files)
        for path, data in files.items():
            if not self._put(path, data):
                raise DamagedError(f"the staged {path} is not of this index; it was changed.")
            marks[path] = FileMark.of(data)
        next_number = self.manifest.next_number + 1
        self.manifest = replace(self.manifest, files=marks, next_number=next_number)


@dataclass(frozen=True)
class Contents:
    """The contents of an index.

    Attributes
    ----------
    settings : Settings
    store : CodeStore
    denoiser : Denoiser, optional
    calibration : SimilarityCalibration, optional
    """

    settings: Settings
    store: CodeStore
    denoiser: Denoiser | None
    calibration: SimilarityCalibration | None


@dataclass(frozen=True)
class Checkpoint:
    """The state of an index when it was last written or read.

    Attributes
    ----------
    directory : IndexDirectory
    digest : str
        Of the manifest.
    rows, removals : int
        Length and removals of the store then: while no more are removed, its first rows stand.
    denoiser : Denoiser, optional
    calibration : SimilarityCalibration, optional
    """

    directory: IndexDirectory
    digest: str
    rows: int
    removals: int
    denoiser: Denoiser | None
    calibration: SimilarityCalibration | None

    def unchanged_manifest(self) -> Manifest:
        """Return the manifest; InputError if it is another one now."""
        manifest = self.directory.manifest()
        if manifest.digest != self.digest:
            raise InputError(
                f"{self.directory.path} was changed since this index was opened; open it again and "
                f"repeat the change; add_codes takes over codes that are new here, and spends "
                f"nothing."
            )
        return manifest


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
    if last is None or last.directory.path != directory.path:
        _write_new(directory, contents, sealed)
    else:
        _write_changes(last, contents, sealed, token)


def _write_new(
    directory: IndexDirectory, contents: Contents, sealed: Callable[[Checkpoint], object]
) -> None:
    if (directory.path / MANIFEST).exists():
        with suppress(InputError), directory.held():  # clears what a save that was killed left
            pass
    refuse_occupied(directory.path)
    if (directory.unpublished / RELEASE_MARK).exists():
        raise InputError(
            f"{directory.path} has an unfinished build; run it again to end it, or choose another "
            f"directory."
        )
    with writing_beside(directory.path), directory.staged() as staging:
        writer = IndexWriter(staging.put, Manifest(contents.settings))
        writer.add_codebook()
        writer.add_rows(contents.store, 0)
        manifest = _finished(writer, contents)
        staging.put(MANIFEST, manifest.to_bytes())
        staging.folder.publish(staging.name, directory.path)
        staging.folder.discard(OF_SAVES)
        sealed(_checkpoint(directory, manifest, contents))


def _write_changes(
    last: Checkpoint, contents: Contents, sealed: Callable[[Checkpoint], object], token: str
) -> None:
    directory = last.directory
    with directory.held():
        manifest = last.unchanged_manifest()
        first_row = last.rows
        if last.removals != contents.store.removals:  # all that is left is written anew
            first_row = 0
            manifest = replace(manifest, segments={})
        with directory.staged() as staging:
            # The settings in memory hold the codewords; those of the manifest only name them.
            writer = IndexWriter(staging.put, replace(manifest, settings=contents.settings))
            writer.add_rows(contents.store, first_row)
            manifest = _finished(writer, contents, last)
            checkpoint = _checkpoint(directory, manifest, contents)
            directory.grow(manifest, staging, lambda: sealed(checkpoint), token)


def _finished(writer: IndexWriter, contents: Contents, last: Checkpoint | None = None) -> Manifest:
    """Stage what was learned since the last write; return the manifest of all that counts."""
    if contents.denoiser is not None and (last is None or contents.denoiser is not last.denoiser):
        from dpindex.denoise import denoiser_to_bytes

        writer.add_denoiser(denoiser_to_bytes(contents.denoiser))
    calibration = contents.calibration
    if calibration is not None and (last is None or calibration is not last.calibration):
        writer.add_calibration(calibration.to_bytes())
    store = contents.store
    spec = contents.settings.spec
    uneven = None
    if spec.format.symbolic and len(store) > 1:
        sample = store.take(spaced(len(store), SAMPLED_SYMBOLS))
        uneven = crowding(sample, spec.symbol_law)
    return replace(writer.manifest, crowding=uneven)


def _checkpoint(directory: IndexDirectory, manifest: Manifest, contents: Contents) -> Checkpoint:
    store = contents.store
    return Checkpoint(
        directory,
        manifest.digest,
        len(store),
        store.removals,
        contents.denoiser,
        contents.calibration,
    )


def refuse_occupied(path: Path) -> None:
    """Refuse a place for a new index that holds something.

    Raises
    ------
    InputError
        If there is an index, or anything else but an empty folder.
    """
    with writing_beside(path):
        if (path / MANIFEST).exists():
            raise InputError(
                f"{path} already holds an index; open it to add to it, or choose another directory."
            )
        if os.path.lexists(path) and not path.is_dir():
            raise InputError(f"{path} is not a directory; choose another.")
        if path.is_dir() and any(path.iterdir()):
            raise InputError(f"{path} is not empty; choose another directory.")


def read_index(
    directory: IndexDirectory,
) -> tuple[Settings, Iterator[Segment], Checkpoint]:
    """Return settings, segments (each verified as it is read) and checkpoint of an index.

    Raises
    ------
    InputError
        If the directory is not an index, or was damaged or changed.
    """
    manifest = directory.finished_manifest()
    segments = directory.segments(manifest)
    # The first is read before anything is made of the spec: what a manifest says costs nothing yet.
    first = list(islice(segments, 1))
    denoiser = directory.denoiser(manifest)
    calibration = directory.calibration(manifest)
    checkpoint = Checkpoint(directory, manifest.digest, manifest.count, 0, denoiser, calibration)
    return directory.settings(manifest), chain(first, segments), checkpoint


@contextmanager
def fetched(url: str) -> Iterator[Path]:
    """Give a temporary folder with a copy of the index at ``url``, while the block runs.

    Sizes are bounded by the manifest; whoever reads the folder checks sizes and hashes.

    Raises
    ------
    InputError
        If there is no finished index, or a file is missing.
    """
    store = open_store(url)
    text = store.read(MANIFEST, MAX_MANIFEST_BYTES)
    if text is None:
        raise InputError(f"{url} is not a dpindex index, or its build is not finished.")
    files = Manifest.from_bytes(text, Path(url)).files
    with TemporaryDirectory(prefix="dpindex-") as folder:
        place = Path(folder).resolve() / "index"

        def copy(path: str) -> None:
            data = store.read(path, files[path].bytes)
            if data is None:
                raise InputError(f"{url}/{path} is missing.")
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_bytes(data)

        with ThreadPoolExecutor(_REQUESTS) as pool:
            for _ in pool.map(copy, files):
                pass
        (place / MANIFEST).write_bytes(text)
        yield place
