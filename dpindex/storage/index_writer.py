"""The writer of new files of an index, which are staged before anybody can see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dpindex.base.arrays import row_blocks
from dpindex.base.errors import DamagedError
from dpindex.storage.code_store import CodeStore, rows_per_segment
from dpindex.storage.ids import ids_to_bytes
from dpindex.storage.manifest import (
    FileMark,
    Manifest,
    SegmentPaths,
    calibration_path,
    codebook_path,
    denoiser_path,
    segment_number,
)
from dpindex.storage.payload import payload_to_bytes
from dpindex.storage.staging import Staging

__all__ = ["IndexWriter"]


class IndexWriter:
    """Stages new files of an index, each under the next number.

    Parameters
    ----------
    staging : Staging
    manifest : Manifest
        Of what the index holds already.

    Attributes
    ----------
    manifest : Manifest
        With all that was staged.
    """

    def __init__(self, staging: Staging, manifest: Manifest) -> None:
        self.manifest = manifest
        self._staging = staging

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
            if not self._staging.create(path, data):
                raise DamagedError(f"the staged {path} is not of this index; it was changed.")
            marks[path] = FileMark.of(data)
        next_number = self.manifest.next_number + 1
        self.manifest = replace(self.manifest, files=marks, next_number=next_number)
