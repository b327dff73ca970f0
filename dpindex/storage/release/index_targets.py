"""Targets that become an index: a new folder, or a prefix of an object store."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpindex.base.errors import BusyError, DamagedError, InputError, NoDenoiserError
from dpindex.data.dataset import Dataset
from dpindex.data.stores import Bucket, local_path
from dpindex.denoise import Denoiser, Kind, denoiser_from_bytes, denoiser_to_bytes, fit_denoiser
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.spec import Projector
from dpindex.similarity.symbol_codes import crowding
from dpindex.storage.directory import IndexDirectory, sampled
from dpindex.storage.index_writer import IndexWriter
from dpindex.storage.manifest import (
    MANIFEST,
    FileMark,
    Manifest,
    SegmentPaths,
    Settings,
    denoiser_path,
    segment_number,
)
from dpindex.storage.release.draws import StagedDraws
from dpindex.storage.release.sealed import SealedStaging
from dpindex.storage.release.target import CodeTarget, Drawn
from dpindex.storage.release.work import Draws, Receipt, Shard
from dpindex.storage.release.workspace import FolderWorkspace, ReleaseMark
from dpindex.storage.save import refuse_occupied
from dpindex.storage.staging import Staging, StagingFolder

if TYPE_CHECKING:  # devices keep no ledger
    from dpindex.accounting.ledger import Ledger

__all__ = ["BuiltIndex", "IndexOptions", "IndexTarget", "index_target"]

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
    path = local_path(location)
    if path is None:
        return BucketIndex(os.fspath(location), settings, options)
    return FolderIndex(path, settings, options)


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
        writer = IndexWriter(draws.staging, self._segments(draws, drawn))
        writer.add_codebook()
        denoiser, not_denoised = self._add_denoiser(writer, draws, drawn)
        draws.staging.create(MANIFEST, writer.manifest.to_bytes())
        self.publish(draws.staging, drawn, writer.manifest)
        space.end()
        return BuiltIndex(writer.manifest, denoiser, not_denoised)

    @abstractmethod
    def publish(self, staging: Staging, drawn: Drawn, manifest: Manifest) -> None:
        """Publish the files that the manifest names, and then the manifest."""

    def _segments(self, draws: Draws, drawn: Drawn) -> Manifest:
        """Return the manifest of the segments."""
        segments = {segment.number: segment for segment in drawn.segments}

        def codes_of(number: str) -> Codes:
            return draws.codes(segments[number])

        files: dict[str, FileMark] = {}
        for receipt in drawn.receipts:
            files |= receipt.files
        uneven = None
        if self.spec.format.symbolic and drawn.rows > 1:
            uneven = crowding(sampled(list(segments), codes_of), self.spec.symbol_law)
        return Manifest(
            self._settings,
            next_number=len(segments),
            segments={number: segment.rows for number, segment in segments.items()},
            files=files,
            crowding=uneven,
        )

    def _add_denoiser(
        self, writer: IndexWriter, draws: StagedDraws, drawn: Drawn
    ) -> tuple[Denoiser | None, str]:
        """Add the denoiser, fitted now unless an earlier attempt had; or return why there is none.

        Two fits may differ, so the first that was staged counts.
        """
        kind = self._options.denoise
        if kind is None:
            return None, ""
        path = denoiser_path(writer.next_number)
        if draws.staging.read(path) is None:
            try:
                fitted = fit_denoiser(self.all_codes(draws, drawn), self.spec, kind)
            except NoDenoiserError as error:  # the index works without one
                return None, str(error)
            draws.staging.create(path, denoiser_to_bytes(fitted))
        data = draws.staging.read(path) or b""
        writer.add_denoiser(data)
        return denoiser_from_bytes(data, self.spec), ""


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
            self._tidy()
            raise _finished(str(self._path))
        refuse_occupied(self._path)
        return self._workspace()

    def _workspace(self) -> FolderWorkspace:
        if self._options.private is None:
            return FolderWorkspace.beside(self._path)
        return FolderWorkspace(Path(self._options.private).resolve(), str(self._path))

    def _tidy(self) -> None:
        """Remove what a build that died after its commit left: its staging is the index now."""
        with suppress(InputError):
            space = self._workspace()
            if space.begun is None or space.staging(space.begun.token).path.exists():
                return
            with IndexDirectory(self._path).held():  # nobody else stages beside the index then
                space.end()

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

    def find(self, mark: ReleaseMark) -> ReleaseMark | None:
        begun = super().find(mark)
        if begun is not None:
            self._claim(begun.token)
        return begun

    def begin(self, mark: ReleaseMark) -> None:
        super().begin(mark)
        try:
            self._claim(mark.token)
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
                f"published while the build is unfinished.",
                field="private",
            )
        self._bucket = Bucket(url)
        self._private = Path(options.private).resolve()

    def workspace(self, ledger: Ledger | None) -> FolderWorkspace:
        location = self._bucket.location
        space = _BucketWorkspace(self._private, self._bucket)
        paths = self._bucket.sizes()
        if MANIFEST in paths:
            self._tidy(space, paths)
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

    def _tidy(self, space: FolderWorkspace, paths: Iterable[str]) -> None:
        """Remove what a build that died after its commit left: it had the claim until then."""
        if space.begun is None:
            return
        token = space.begun.token
        if self._bucket.read(_CLAIM, len(token)) == token.encode():
            sealed = [path for path in paths if path.startswith(f"{_UNPUBLISHED}/{token}/")]
            self._bucket.remove([*sealed, _CLAIM])
        space.end()

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
