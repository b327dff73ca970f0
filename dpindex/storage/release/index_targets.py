"""Targets that become an index: a new folder, or a prefix of an object store."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpindex.base.errors import BusyError, DamagedError, InputError, NoDenoiserError
from dpindex.denoise import Denoiser, Kind, denoiser_from_bytes, denoiser_to_bytes, fit_denoiser
from dpindex.exposure.visibility import visibility
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.projector import Projector
from dpindex.storage.directory import sampled
from dpindex.storage.manifest import (
    MANIFEST,
    FileMark,
    Manifest,
    SegmentPaths,
    Settings,
    codebook_path,
    denoiser_path,
    segment_number,
)
from dpindex.storage.release.draws import StagedDraws
from dpindex.storage.release.sealed import SealedStaging
from dpindex.storage.release.target import CodeTarget, Drawn
from dpindex.storage.release.work import Draws, Receipt, Shard
from dpindex.storage.release.workspace import FolderWorkspace, Record
from dpindex.storage.save import refuse_occupied
from dpindex.storage.staging import Staging, StagingFolder
from dpindex.vectors.dataset import Dataset
from dpindex.vectors.stores import Bucket, is_url

if TYPE_CHECKING:  # devices keep no ledger
    from dpindex.accounting.ledger import Ledger

__all__ = ["BuiltIndex", "IndexOptions", "IndexTarget", "index_target"]

_MAX_FILE_BYTES = 1 << 33
_UNPUBLISHED = "unpublished"
_CLAIM = f"{_UNPUBLISHED}/build"
_LARGE_FILE = FileMark(1 << 30, "0" * 64)


@dataclass(frozen=True)
class IndexOptions:
    """How an index is built.

    Parameters
    ----------
    denoise : "auto", "linear" or "score", optional
        Fit a denoiser to the codes before they are published.
    allow_unprotected : bool
        Allow a ``none-*`` baseline.
    private : path, optional
        A folder for what must not be published while the build is unfinished. An object store needs
        one; beside a folder it is ``NAME.unpublished``.
    """

    denoise: Kind | None = None
    allow_unprotected: bool = False
    private: str | os.PathLike[str] | None = None


@dataclass(frozen=True)
class BuiltIndex:
    """An index that was built.

    Attributes
    ----------
    manifest : Manifest
    denoiser : Denoiser, optional
    not_denoised : str
        Why no denoiser could be fitted that was asked for; else empty.
    """

    manifest: Manifest
    denoiser: Denoiser | None
    not_denoised: str


def index_target(
    location: str | os.PathLike[str], settings: Settings, options: IndexOptions | None = None
) -> IndexTarget:
    """Return the target of a new index at a path or URL.

    Raises
    ------
    InputError
        For a method without protection, private queries that could not be asked, and a URL without
        a private folder.
    """
    options = options or IndexOptions()
    if is_url(location):
        return BucketIndex(os.fspath(location), settings, options)
    return FolderIndex(Path(location), settings, options)


class IndexTarget(CodeTarget[FolderWorkspace, BuiltIndex]):
    """A new index.

    Parameters
    ----------
    settings : Settings
    options : IndexOptions
    """

    def __init__(self, settings: Settings, options: IndexOptions) -> None:
        self.spec = settings.spec
        self.spec.refuse_unprotected(options.allow_unprotected, "build with it")
        Projector(settings.query_spec)  # refuses now what could not be asked later
        self._settings = settings
        self._options = options

    @property
    def facts(self) -> dict[str, Any]:
        return {"options": {**self._settings.to_dict(), "denoise": self._options.denoise}}

    def check(self, dataset: Dataset) -> None:
        """Refuse vectors of another length, and more segments than a manifest holds."""
        super().check(dataset)
        step = self.segment_rows(dataset)
        count = sum(-(-part.rows // step) for part in dataset.parts)
        numbers = [segment_number(number) for number in range(count)]
        files: dict[str, FileMark] = {}
        for paths in map(SegmentPaths, numbers):
            files |= dict.fromkeys((paths.codes, paths.ids, paths.payload), _LARGE_FILE)
        Manifest(self._settings, count, dict.fromkeys(numbers, step), files=files).to_bytes()

    def draws(self, space: FolderWorkspace, token: str) -> StagedDraws:
        return StagedDraws(self.staging(space, token), self.spec.format, with_labels=True)

    @abstractmethod
    def staging(self, space: FolderWorkspace, token: str) -> Staging:
        """Return where files are created before they are published."""

    def commit(self, space: FolderWorkspace, token: str, drawn: Drawn) -> BuiltIndex:
        draws = self.draws(space, token)
        manifest = self._rows(draws, drawn)
        manifest = self._with_codebook(draws.staging, manifest)
        manifest, denoiser, not_denoised = self._with_denoiser(draws, drawn, manifest)
        draws.staging.create(MANIFEST, manifest.to_bytes())
        self.publish(draws.staging, drawn, manifest)
        space.end()
        return BuiltIndex(manifest, denoiser, not_denoised)

    @abstractmethod
    def publish(self, staging: Staging, drawn: Drawn, manifest: Manifest) -> None:
        """Publish the files that the manifest names, and then the manifest."""

    def _rows(self, draws: Draws, drawn: Drawn) -> Manifest:
        """Return the manifest of the segments."""
        segments = {segment.number: segment for segment in drawn.segments}

        def codes_of(number: str) -> Codes:
            return draws.codes(segments[number])

        files: dict[str, FileMark] = {}
        for receipt in drawn.receipts:
            files |= receipt.files
        return Manifest(
            self._settings,
            next_number=len(segments),
            segments={number: segment.rows for number, segment in segments.items()},
            files=files,
            visibility=visibility(sampled(list(segments), codes_of), self.spec, drawn.rows),
        )

    def _with_codebook(self, staging: Staging, manifest: Manifest) -> Manifest:
        codebook = self.spec.codebook
        if codebook is None:
            return manifest
        number = segment_number(manifest.next_number)
        manifest = _with_file(staging, manifest, codebook_path(number), codebook.to_bytes())
        return replace(manifest, codebook=number)

    def _with_denoiser(
        self, draws: StagedDraws, drawn: Drawn, manifest: Manifest
    ) -> tuple[Manifest, Denoiser | None, str]:
        """Fit the denoiser, unless an earlier attempt had, and stage it."""
        kind = self._options.denoise
        if kind is None:
            return manifest, None, ""
        number = segment_number(manifest.next_number)
        path = denoiser_path(number)
        if draws.staging.read(path, _MAX_FILE_BYTES) is None:
            try:
                fitted = fit_denoiser(self.all_codes(draws, drawn), self.spec, kind)
            except NoDenoiserError as error:  # the index works without one
                return manifest, None, str(error)
            draws.staging.create(path, denoiser_to_bytes(fitted))
        data = draws.staging.read(path, _MAX_FILE_BYTES) or b""
        manifest = _with_file(draws.staging, manifest, path, data)
        denoiser = denoiser_from_bytes(data, self.spec)
        return replace(manifest, denoiser=number), denoiser, ""


def _with_file(staging: Staging, manifest: Manifest, path: str, data: bytes) -> Manifest:
    """Stage a file under the next number."""
    staging.create(path, data)
    files = {**manifest.files, path: FileMark.of(data)}
    return replace(manifest, files=files, next_number=manifest.next_number + 1)


def _finished(location: str) -> InputError:
    return InputError(
        f"{location} is a finished index; building again, here or elsewhere, releases every vector "
        f"twice. Use it as it is; `dpindex denoise` learns a denoiser from its codes, and "
        f"`dpindex add` adds other vectors."
    )


class FolderIndex(IndexTarget):
    """A new folder, which appears whole by one rename.

    Parameters
    ----------
    path : Path
    settings : Settings
    options : IndexOptions
    """

    def __init__(self, path: Path, settings: Settings, options: IndexOptions) -> None:
        super().__init__(settings, options)
        self._path = path.resolve()
        self.path = self._path

    def workspace(self, ledger: Ledger | None) -> FolderWorkspace:
        if (self._path / MANIFEST).exists():
            raise _finished(str(self._path))
        refuse_occupied(self._path)
        if self._options.private is None:
            return FolderWorkspace.beside(self._path)
        return FolderWorkspace(Path(self._options.private).resolve(), str(self._path))

    def staging(self, space: FolderWorkspace, token: str) -> StagingFolder:
        return space.staging(token)

    def publish(self, staging: Staging, drawn: Drawn, manifest: Manifest) -> None:
        assert isinstance(staging, StagingFolder)
        staging.publish(self._path)


class _BucketWorkspace(FolderWorkspace):
    """The private folder of a build in an object store, which holds the store until the commit."""

    def __init__(self, path: Path, bucket: Bucket) -> None:
        super().__init__(path, bucket.location)
        self._bucket = bucket

    def find(self, record: Record) -> Record | None:
        begun = super().find(record)
        if begun is not None:
            self._claim(begun.token)
        return begun

    def begin(self, record: Record) -> None:
        super().begin(record)
        try:
            self._claim(record.token)
        except InputError:
            self.end()  # nothing was drawn
            raise

    def _claim(self, token: str) -> None:
        """Claim the store: of several builds one alone ever sends codes in the clear."""
        location = self._bucket.location
        if not self._bucket.create(_CLAIM, token.encode()):
            raise BusyError(
                f"{location} is being built with another private folder; finish it with that one."
            )
        if MANIFEST in self._bucket.sizes():  # another build ended since this one looked
            self._bucket.remove([_CLAIM])
            raise _finished(location)


class BucketIndex(IndexTarget):
    """A prefix of an object store. Until the commit only encrypted files lie there.

    Parameters
    ----------
    url : str
    settings : Settings
    options : IndexOptions
        With a private folder.
    """

    def __init__(self, url: str, settings: Settings, options: IndexOptions) -> None:
        super().__init__(settings, options)
        if options.private is None:
            raise InputError(
                f"{url} is in an object store: name a private folder for what must not be "
                f"published while the build is unfinished (private=…).",
                parameters=["private=…"],
            )
        self._bucket = Bucket(url)
        self._private = Path(options.private).resolve()

    def workspace(self, ledger: Ledger | None) -> FolderWorkspace:
        location = self._bucket.location
        space = _BucketWorkspace(self._private, self._bucket)
        paths = self._bucket.sizes()
        if MANIFEST in paths:
            raise _finished(location)
        if not all(path.startswith(f"{_UNPUBLISHED}/") or not space.is_new for path in paths):
            raise InputError(f"{location} is not empty; choose another place.")
        if paths and space.is_new:
            raise InputError(
                f"{location} holds an unfinished build that {self._private} does not know: finish "
                f"it with the private folder that it was begun with. A build elsewhere would "
                f"release its vectors a second time."
            )
        return space

    def staging(self, space: FolderWorkspace, token: str) -> SealedStaging:
        url = f"{self._bucket.location}/{_UNPUBLISHED}/{token}"
        return SealedStaging(url, space.content.key)

    def drawing(
        self, space: FolderWorkspace, token: str, threads: int | None
    ) -> Callable[[Shard], list[Receipt]]:
        self.staging(space, token).refuse_overwriting()
        return super().drawing(space, token, threads)

    def publish(self, staging: Staging, drawn: Drawn, manifest: Manifest) -> None:
        assert isinstance(staging, SealedStaging)
        files = {receipt.number: receipt.files for receipt in drawn.receipts}
        for _ in drawn.engine(_Upload(staging, self._bucket, files), drawn.shards):
            pass
        in_segments = {path for marks in files.values() for path in marks}
        extra = {path: mark for path, mark in manifest.files.items() if path not in in_segments}
        _Upload(staging, self._bucket, {}).upload(extra)
        text = manifest.to_bytes()
        if not self._bucket.create(MANIFEST, text):
            raise InputError(
                f"{self._bucket.location} was committed with other codes; it was changed."
            )
        staging.end()
        self._bucket.remove([_CLAIM])


@dataclass(frozen=True)
class _Upload:
    """Copies the staged segments of a shard to their place; it can be repeated.

    Attributes
    ----------
    staging : SealedStaging
    bucket : Bucket
    files : mapping of segment numbers to the marks of their files
        Only files with these marks are sent, whatever lies in the staging.
    """

    staging: SealedStaging
    bucket: Bucket
    files: Mapping[str, Mapping[str, FileMark]]

    def __call__(self, shard: Shard) -> None:
        for segment in shard.segments:
            self.upload(self.files[segment.number])

    def upload(self, marks: Mapping[str, FileMark]) -> None:
        for path, mark in marks.items():
            data = self.staging.read(path, mark.bytes)
            if data is None or FileMark.of(data) != mark:
                raise DamagedError(f"the staged {path} was changed or removed; run it again.")
            if not self.bucket.create(path, data):
                raise InputError(f"{self.bucket.location}/{path} is not of this build; remove it.")
