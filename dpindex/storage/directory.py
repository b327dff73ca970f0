"""An index directory: reading it verified, holding it for writing, making it and growing it.

A file belongs to the index only once a manifest that names it has been renamed into place. Reading
checks sizes and SHA-256 hashes before any parser sees a byte. New files come from a staging in the
private folder beside the directory, where all of them lie before the first is seen.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeAlias

from dpindex.base.arrays import Table, row_blocks, spaced
from dpindex.base.errors import BusyError, DamagedError, InputError, StorageError
from dpindex.base.files import (
    Buffer,
    holding_lock,
    make_folder,
    map_file,
    read_file,
    release_pages,
    sync_folder,
    write_file,
)
from dpindex.data.stores import Bucket
from dpindex.decode.calibration import SimilarityCalibration, calibration_from_bytes
from dpindex.decode.crowding import SAMPLED_SYMBOLS, crowding
from dpindex.decode.kinds import decoder_of
from dpindex.mechanism.codes import Codes, codes_from_bytes
from dpindex.mechanism.noise.base import SymbolLaw
from dpindex.mechanism.spec import Spec
from dpindex.storage.code_store import (
    MAPPED_BYTES,
    CodeStore,
    Payload,
    payload_from_bytes,
    payload_to_bytes,
    rows_per_segment,
)
from dpindex.storage.history import History, released_path
from dpindex.storage.ids import IdBlock, id_block, ids_to_bytes
from dpindex.storage.journal import (
    LOCK,
    RELEASE_MARK,
    Journal,
    PrivateFolder,
    unpublished_path,
    writing_beside,
)
from dpindex.storage.manifest import (
    FOLDERS,
    MANIFEST,
    MAX_MANIFEST_BYTES,
    NUMBERED_FILE,
    FileMark,
    Manifest,
    Settings,
    file_path,
    put_files,
    segment_number,
)

if TYPE_CHECKING:  # most indexes have none
    from dpindex.decode.denoiser import Denoiser

_OF_SAVES = re.compile(r"(save|part)-[0-9a-f]{32}|seal-[0-9a-f-]+")
_SEAL = re.compile(r"seal-(?P<digest>[0-9a-f]{64})-(?P<token>[0-9a-f]*)")
"""The name of a staging that is sealed: it grows the index of that digest, by the codes of that
release if it has a token."""

_RELEASED = "released"
"""Name in a staging of what is known of releases once it is published."""

_REQUESTS = 8

SegmentContents: TypeAlias = tuple[Codes, IdBlock, Table]
"""Codes, ids, and payload or None; what is large is mapped where it lies."""


@dataclass(frozen=True)
class Staging:
    """New files of an index, in a folder of its private folder, before any of them is seen."""

    folder: PrivateFolder
    name: str

    def put(self, path: str, data: bytes) -> bool:
        """Create a file; return whether it holds these bytes now."""
        return self.folder.put(f"{self.name}/{path}", data)


class IndexDirectory:
    """A directory that holds an index.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().resolve()
        self._held = False

    @property
    def unpublished(self) -> Path:
        """The private folder for what is not published yet."""
        return unpublished_path(self.path)

    @property
    def exists(self) -> bool:
        """Whether there is a manifest."""
        return (self.path / MANIFEST).is_file()

    def manifest(self) -> Manifest:
        """Return the manifest; InputError if there is none, or it is damaged."""
        if not self.exists:
            unfinished = ""
            if os.path.lexists(self.unpublished / RELEASE_MARK):
                unfinished = "; a build of it is unfinished, run the same build again to end it"
            elif not self.path.exists():
                raise StorageError(f"{self.path}: there is no such index; check the path.")
            raise DamagedError(f"{self.path} is not a dpindex index: no {MANIFEST}{unfinished}.")
        return Manifest.from_bytes(self._text(), self.path / MANIFEST)

    def finished_manifest(self) -> Manifest:
        """Return the manifest after finishing a growth that was cut off, where this user may."""
        if self.exists and self._sealed():
            with suppress(BusyError, StorageError), self.held():
                pass
        return self.manifest()

    def _sealed(self) -> list[re.Match[str]]:
        """Return the names of stagings that are sealed, one at most."""
        names = PrivateFolder(self.unpublished).names()
        return [seal for seal in map(_SEAL.fullmatch, names) if seal]

    def _text(self) -> bytes:
        return read_file(self.path / MANIFEST, MAX_MANIFEST_BYTES, links=False)

    # Writing: an index that is there grows by files that were staged as a whole.

    @contextmanager
    def held(self, waiting: Callable[[], object] | None = None) -> Iterator[None]:
        """Keep every other process from writing; this one may write more than once.

        A growth that was sealed and cut off is finished first.

        Raises
        ------
        InputError
            If another process holds it, unless ``waiting`` is given: then it is called, and the
            other waited for.
        """
        if self._held:
            yield
            return
        with ExitStack() as stack:
            with writing_beside(self.path):
                lock = holding_lock(self.path / LOCK, str(self.path), waiting)
                stack.enter_context(lock)
                for folder in FOLDERS:
                    if (self.path / folder).is_symlink():
                        raise StorageError(
                            f"{self.path / folder} is a symbolic link, not a folder."
                        )
                self._finish()
            self._held = True
            try:
                yield
            finally:
                self._held = False

    def refuse_taken(self) -> None:
        """Refuse a place for a new index that holds something."""
        if self.exists:
            with suppress(InputError), self.held():  # clears what a save that was killed left
                pass
        refuse_occupied(self.path)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Make a new index in the block: no other process makes one here, and none is unfinished.

        Raises
        ------
        InputError
        """
        journal = Journal(self.unpublished, str(self.path))
        with journal.held():
            if journal.begun:
                raise InputError(
                    f"{self.path} has an unfinished build; run it again to end it, or choose "
                    f"another directory."
                )
            refuse_occupied(self.path)
            yield

    @contextmanager
    def staged(self) -> Iterator[Staging]:
        """Give a staging for new files; what is not sealed when the block ends is discarded."""
        staging = Staging(PrivateFolder(self.unpublished), f"save-{secrets.token_hex(16)}")
        staging.folder.make()
        staging.folder.mkdir(staging.name)
        try:
            yield staging
        finally:
            staging.folder.close()
            staging.folder.discard(re.compile(staging.name))

    def grow(
        self,
        manifest: Manifest,
        staging: Staging,
        sealed: Callable[[], object],
        token: str = "",
    ) -> None:
        """Make a manifest the truth, with the staged files that it names.

        Parameters
        ----------
        manifest : Manifest
        staging : Staging
            From :meth:`staged`; the manifest was put last, which made all names in it durable.
        sealed : callable
            Called once the growth can no longer fail, only be finished later by the next writer.
        token : str
            Of a release whose codes these are: its journal ends with the growth.
        """
        seal = f"seal-{self.manifest_digest}-{token}"
        staging.folder.move(staging.name, self.unpublished / seal)
        sealed()
        self._finish(manifest)

    @property
    def manifest_digest(self) -> str:
        """SHA-256 of the manifest; "" if there is none."""
        if not self.exists:
            return ""
        digest = hashlib.sha256(self._text())
        return digest.hexdigest()

    def _finish(self, manifest: Manifest | None = None) -> None:
        """Publish what was sealed, if nobody else has written since, and tidy up.

        ``manifest`` is what was sealed just now.
        """
        if not os.path.isdir(self.unpublished):
            return
        private = PrivateFolder(self.unpublished)
        for seal in self._sealed():
            name = seal[0]
            # None where it was published before, and its removal was cut off.
            text = private.get(f"{name}/{MANIFEST}", MAX_MANIFEST_BYTES)
            if text is not None and seal["digest"] == self.manifest_digest:
                # What was released is known before its codes are seen.
                released = private.get(f"{name}/{_RELEASED}")
                if released is not None:
                    write_file(released_path(self.path), released, mode=0o600)
                self.publish_staged(self.unpublished / name, text)
            if seal["token"] and text in (None, self._text()):
                # The release has ended. A loss of power may bring its mark back: then the seal,
                # which is removed later, is back too, and ends the release once more.
                (self.unpublished / RELEASE_MARK).unlink(missing_ok=True)
        if manifest is None or manifest.digest != self.manifest_digest:
            manifest = self.manifest()
        # Only now: until the manifest was replaced, the one before named these.
        self.discard_unnamed(manifest.paths)
        # Until the seal is gone whoever comes next does the same.
        if os.path.lexists(self.unpublished / RELEASE_MARK):  # an unfinished release stays
            private.discard(_OF_SAVES)
        else:  # what a loss of power brings back of it is removed by the next writer
            shutil.rmtree(self.unpublished, ignore_errors=True)

    def publish_staged(self, staged: Path, text: bytes) -> None:
        """Link staged files into the directory; they count once the manifest is replaced, last."""
        for folder in FOLDERS:
            if not (staged / folder).is_dir():
                continue
            make_folder(self.path / folder)
            for file in sorted((staged / folder).iterdir()):
                # Linked, not moved: after a loss of power one of both names is there.
                place = self.path / folder / file.name
                place.unlink(missing_ok=True)
                os.link(file, place)
            # Names last before the manifest tells of them.
            sync_folder(self.path / folder)
        write_file(self.path / MANIFEST, text)

    def discard_unnamed(self, named: Collection[str]) -> None:
        """Delete, unread and durably, the numbered files that the manifest does not name."""
        for folder in FOLDERS:
            if not (self.path / folder).is_dir():
                continue
            names = [
                name for name in os.listdir(self.path / folder) if NUMBERED_FILE.fullmatch(name)
            ]
            unnamed = {f"{folder}/{name}" for name in names}.difference(named)
            for path in unnamed:
                (self.path / path).unlink()
            if unnamed:
                sync_folder(self.path / folder)


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
        from dpindex.decode.stored_denoiser import denoiser_from_bytes

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
            payload = store.payload.take(rows)
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
            staging.put(_RELEASED, history.to_bytes())
        staging.put(MANIFEST, manifest.text)
        if last is None:
            (history or History()).write(directory.path)
            staging.folder.publish(staging.name, directory.path)
            staging.folder.discard(_OF_SAVES)
            sealed(checkpoint)
        else:
            directory.grow(manifest, staging, lambda: sealed(checkpoint), token)


def _stage_contents(writer: IndexWriter, contents: Contents, first_row: int) -> None:
    """Stage all that an index holds, from a row on."""
    writer.add_public()
    writer.add_rows(contents.store, first_row)
    if contents.denoiser is not None:
        from dpindex.decode.stored_denoiser import denoiser_to_bytes

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
        if os.path.lexists(path) and (not path.is_dir() or any(path.iterdir())):
            raise InputError(f"{path} is not an empty directory; choose another place.")


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
    if not bucket.replace(MANIFEST, text, writer.manifest.text):
        raise InputError(f"{url} was changed meanwhile; run it again.")
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
