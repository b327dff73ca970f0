"""Saving an index that is in memory: to a new directory, or to the one that it came from."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from dpindex.base.arrays import spaced
from dpindex.base.errors import InputError
from dpindex.similarity.calibration import SimilarityCalibration
from dpindex.similarity.symbol_codes import SAMPLED_SYMBOLS, crowding
from dpindex.storage.code_store import CodeStore
from dpindex.storage.directory import IndexDirectory, Segment
from dpindex.storage.index_writer import IndexWriter
from dpindex.storage.manifest import MANIFEST, Manifest, Settings
from dpindex.storage.staging import RELEASE_MARK, writing_beside

if TYPE_CHECKING:  # most indexes have none
    from dpindex.denoise import Denoiser

__all__ = ["Checkpoint", "Contents", "read_index", "refuse_occupied", "write_index"]


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


def write_index(
    path: Path,
    contents: Contents,
    last: Checkpoint | None,
    sealed: Callable[[Checkpoint], object],
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

    Raises
    ------
    InputError
        If the directory belongs to something else, was changed since, or cannot be written.
    """
    directory = IndexDirectory(path)
    if last is None or last.directory.path != directory.path:
        _write_new(directory, contents, sealed)
    else:
        _write_changes(last, contents, sealed)


def _write_new(
    directory: IndexDirectory, contents: Contents, sealed: Callable[[Checkpoint], object]
) -> None:
    refuse_occupied(directory.path)
    if (directory.unpublished / RELEASE_MARK).exists():
        raise InputError(
            f"{directory.path} has an unfinished build; run it again to end it, or choose another "
            f"directory."
        )
    with writing_beside(directory.path), directory.staged() as staging:
        writer = IndexWriter(staging, Manifest(contents.settings))
        writer.add_codebook()
        writer.add_rows(contents.store, 0)
        manifest = _finished(writer, contents)
        staging.create(MANIFEST, manifest.to_bytes())
        staging.publish(directory.path)
        directory.discard_unpublished()
        sealed(_checkpoint(directory, manifest, contents))


def _write_changes(
    last: Checkpoint, contents: Contents, sealed: Callable[[Checkpoint], object]
) -> None:
    directory = last.directory
    with directory.held():
        manifest = directory.manifest()
        if manifest.digest != last.digest:
            raise InputError(
                f"{directory.path} was changed since this index was opened; open it again and "
                f"repeat the change; add_codes takes over codes that are new here, and spends "
                f"nothing."
            )
        first_row = last.rows
        if last.removals != contents.store.removals:  # all that is left is written anew
            first_row = 0
            manifest = replace(manifest, segments={})
        with directory.staged() as staging:
            # The settings in memory hold the codewords; those of the manifest only name them.
            writer = IndexWriter(staging, replace(manifest, settings=contents.settings))
            writer.add_rows(contents.store, first_row)
            manifest = _finished(writer, contents, last)
            checkpoint = _checkpoint(directory, manifest, contents)
            directory.grow(manifest, staging, lambda: sealed(checkpoint))


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
