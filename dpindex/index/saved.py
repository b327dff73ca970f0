"""An index between memory and its directory: what is written anew, and what already stands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path

from dpindex.arrays import AnyArray, Integers
from dpindex.codes import Codes
from dpindex.errors import InputError
from dpindex.estimators.denoise import Denoiser, denoiser_from_bytes, denoiser_to_bytes
from dpindex.index.segments import IndexDirectory, rows_per_segment
from dpindex.index.settings import Settings

__all__ = ["Contents", "Saved", "read_index", "write_index"]


@dataclass(frozen=True)
class Contents:
    """What an index is made of: ``values`` are its codes in stored form, row by row."""

    settings: Settings
    values: Integers
    ids: AnyArray
    denoiser: Denoiser | None


@dataclass(frozen=True)
class Saved:
    """Where an index was last written or read, which state of it, and what of it still stands.

    ``rows`` is 0 once some of them were removed.
    """

    path: Path
    digest: str
    rows: int
    denoiser: Denoiser | None


def write_index(path: Path, contents: Contents, saved: Saved | None) -> Saved:
    """Write an index, or bring the directory up to date that it was ``saved`` in.

    Raises
    ------
    InputError
        If the directory belongs to something else, was changed since, or cannot be written.
    """
    directory = IndexDirectory(path)
    if saved is not None and saved.path != directory.path:
        saved = None
    with directory.writing(new=saved is None):
        return _write(directory, contents, saved)


def _write(directory: IndexDirectory, contents: Contents, saved: Saved | None) -> Saved:
    start = 0 if saved is None else saved.rows
    if saved is None:
        manifest = directory.start(contents.settings)
    else:
        manifest = directory.manifest()
        if manifest.digest != saved.digest:
            raise InputError(f"{directory.path} was changed since this index was opened.")
        if start == 0:  # rows were removed: everything that is left is written anew
            manifest = replace(manifest, segments=())
    spec = contents.settings.spec
    step = rows_per_segment(spec)
    count, denoiser = len(contents.ids), contents.denoiser
    for row in range(start, count, step):
        rows = slice(row, row + step)
        codes = spec.format.codes(contents.values[rows])
        manifest = directory.write_segment(manifest, codes, contents.ids[rows])
    if denoiser is not None and (saved is None or denoiser is not saved.denoiser):
        manifest = directory.write_denoiser(manifest, denoiser_to_bytes(denoiser))
    manifest = directory.commit(replace(manifest, state="complete"))
    directory.discard_uncommitted(manifest)
    directory.drop_note()
    return Saved(directory.path, manifest.digest, count, denoiser)


def read_index(path: Path) -> tuple[Settings, Iterator[tuple[Codes, AnyArray]], Saved]:
    """Settings, segments (each verified as it is read) and denoiser of a finished index.

    Raises
    ------
    InputError
        If the directory is not an index, is unfinished, or was damaged or changed.
    """
    directory = IndexDirectory(path)
    manifest = directory.manifest()
    if manifest.state != "complete":
        raise InputError(
            f"{directory.path} holds an unfinished build; run the same build again to end it."
        )
    segments = directory.segments(manifest)
    # The first is read before anything is made of the spec: what a manifest says costs nothing yet.
    first = list(islice(segments, 1))
    model = directory.read_denoiser(manifest)
    denoiser = None if model is None else denoiser_from_bytes(model, manifest.settings.spec)
    saved = Saved(directory.path, manifest.digest, manifest.count, denoiser)
    return manifest.settings, chain(first, segments), saved
