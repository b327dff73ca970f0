"""Targets of codes: a new file, a new index in a folder or an object store, an index that grows."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpindex.base.arrays import Rows, spaced
from dpindex.base.display import Progress
from dpindex.base.errors import DamagedError, InputError, NoDenoiserError
from dpindex.base.files import AnyPath
from dpindex.data.dataset import Dataset
from dpindex.data.stores import Bucket, local_path
from dpindex.decode import decoder_of, learned
from dpindex.decode.denoiser import Denoiser, denoiser_from_bytes, denoiser_to_bytes
from dpindex.decode.fit import DenoiserKind, fit_denoiser
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.spec import Projector, Spec
from dpindex.storage.contents import IndexWriter, sampled_crowding
from dpindex.storage.directory import refuse_occupied
from dpindex.storage.history import Terms
from dpindex.storage.journal import RESERVATION, BucketJournal, Journal, writing_beside
from dpindex.storage.manifest import (
    MANIFEST,
    MAX_NEW_SEGMENTS,
    FileMark,
    Manifest,
    Settings,
    file_path,
    segment_number,
    too_many_segments,
)
from dpindex.storage.release import CodeTarget, Drawn, Outcome, release
from dpindex.storage.shards import Engine

_UPLOADS = 8
_SAMPLED_SEGMENTS = 64


def publish_file(journal: Journal, path: Path, data: bytes) -> None:
    """Create a file, unless it holds these bytes, and end the journal."""
    with writing_beside(path):
        created = journal.folder.create(str(path), data)
    if not created and path.read_bytes() != data:
        raise InputError(f"{path} already exists; choose another name.")
    journal.end()


class CodesFile(CodeTarget[int]):
    """A new file of codes. Ids are for the ledger and not in it.

    Parameters
    ----------
    path : path
    spec : Spec
    allow_unprotected : bool
        Allow a ``none-*`` baseline.
    max_epsilon : float, optional
        Refuse a spec with a larger epsilon: see :class:`dpindex.Privatizer`.
    """

    with_labels = False

    def __init__(
        self,
        path: AnyPath,
        spec: Spec,
        *,
        allow_unprotected: bool = False,
        max_epsilon: float | None = None,
    ) -> None:
        Privatizer(spec, allow_unprotected=allow_unprotected, max_epsilon=max_epsilon)
        self.spec = spec
        self.path: Path = Path(path).absolute()

    def check(self, dataset: Dataset) -> None:
        super().check(dataset)
        if any(part.payload() is not None for part in dataset.parts):
            raise InputError("a file of codes has no payload; give it where they are added.")

    def publish(self, journal: Journal, drawn: Drawn) -> int:
        """Create the file; return its bytes."""
        data = self.codes(journal, drawn.segments).to_bytes()
        publish_file(journal, self.path, data)
        return len(data)


class GrownIndex(CodeTarget[Codes]):
    """The folder of an index that is open, which grows by codes that a ledger counts.

    Parameters
    ----------
    path : Path
        The folder, which this process holds.
    spec : Spec
    replace : bool
        Whether codes may take the place of others.
    append : callable
        Writes codes into the folder, given them and the token of the release.
    """

    with_labels = False

    def __init__(
        self,
        path: Path,
        spec: Spec,
        replace: bool,
        append: Callable[[Codes, str], object],
    ) -> None:
        self.path = path
        self.spec = spec
        self._replace = replace
        self._append = append

    @property
    def facts(self) -> dict[str, Any]:
        return {**super().facts, "replace": self._replace}

    def refuse_taken(self, journal: Journal) -> None:
        """Take any index: this process holds it."""

    def publish(self, journal: Journal, drawn: Drawn) -> Codes:
        codes = self.codes(journal, drawn.segments)
        self._append(codes, journal.token)
        journal.end()
        return codes


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
    publish : callable, optional
        Publishes the index in a folder at the location, in one step that can be repeated. Default:
        the folder becomes the location, or its files a prefix.
    """

    denoise: DenoiserKind | None = None
    allow_unprotected: bool = False
    private: AnyPath | None = None
    publish: Callable[[Path], None] | None = None


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


class IndexTarget(CodeTarget[BuiltIndex]):
    """A new index in a folder, which appears whole by one rename.

    Parameters
    ----------
    path : Path, optional
        The folder; None elsewhere.
    settings : Settings
    options : IndexOptions
    counted : bool
        Whether a ledger counts the release, by ids; else vectors are known again by tags.
    """

    def __init__(
        self,
        path: Path | None,
        settings: Settings,
        options: IndexOptions,
        counted: bool = False,
    ) -> None:
        self.path = path
        self.tagging = path is not None and not counted and options.publish is None
        self.spec = settings.spec
        self.spec.refuse_unprotected(options.allow_unprotected, "build with it")
        Projector(settings.query_spec)  # refuses now what could not be asked later
        self._settings = settings
        self._options = options

    @property
    def facts(self) -> dict[str, Any]:
        settings = self._settings.to_dict()
        return {"options": {**settings, "denoise": self._options.denoise}}

    def check(self, dataset: Dataset) -> None:
        """Refuse more vectors than the manifest or the index type can hold."""
        super().check(dataset)
        self._settings.structure().check_count(dataset.rows)
        rows = self.segment_rows(dataset)
        count = sum(math.ceil(part.rows / rows) for part in dataset.parts)
        if count > MAX_NEW_SEGMENTS:
            raise too_many_segments(count)

    def publish(self, journal: Journal, drawn: Drawn) -> BuiltIndex:
        segments = self._segments(journal, drawn)
        writer = IndexWriter(journal.put, segments)
        writer.add_public()
        # Learned before anything is published, so that an index never appears without what it
        # states. The calibration is of codes as they are ranked, denoised where they are.
        denoiser, not_denoised = self._add_denoiser(writer, journal, drawn)
        self._add_calibration(writer, journal, drawn, denoiser)
        journal.put(MANIFEST, writer.manifest.text)
        if self._options.publish is not None:
            self._options.publish(journal.folder.path / journal.token)
        else:
            if self.path is not None:
                drawn.history.write(self.path)  # first: then codes of these vectors can be seen
            self.publish_files(journal, writer.manifest)
        journal.end()
        return BuiltIndex(writer.manifest, denoiser, not_denoised)

    def journal(self) -> Journal:
        if self._options.private is None:
            return super().journal()
        private = Path(self._options.private).resolve()
        return Journal(private, str(self.path))

    def refuse_taken(self, journal: Journal) -> None:
        assert self.path is not None
        if self._options.publish is not None:
            super().refuse_taken(journal)
            return
        if (self.path / MANIFEST).exists():
            first = file_path("codes", segment_number(0))
            if journal.begun and journal.digest() and journal.get(first) is None:
                journal.end()  # it died after the rename: what was drawn is the index now
            raise _finished(str(self.path))
        refuse_occupied(self.path)

    def publish_files(self, journal: Journal, manifest: Manifest) -> None:
        """Publish the files that the manifest names, and then the manifest."""
        assert self.path is not None
        journal.folder.publish(journal.token, self.path)

    def _segments(self, journal: Journal, drawn: Drawn) -> Manifest:
        """Return the manifest of the segments."""
        segments = drawn.segments
        uneven = None
        if decoder_of(self.spec).by_symbol:
            # Files are often of one topic each: few of them would not stand for the collection.
            chosen = spaced(len(segments), _SAMPLED_SEGMENTS)
            codes = self.codes(journal, [segments[i] for i in chosen])
            uneven = sampled_crowding(self.spec, codes)
        return Manifest(
            self._settings,
            next_number=len(segments),
            segments={segment.number: segment.rows for segment in segments},
            files=drawn.files,
            crowding=uneven,
        )

    def _add_denoiser(
        self, writer: IndexWriter, journal: Journal, drawn: Drawn
    ) -> tuple[Denoiser | None, str]:
        """Add the denoiser, fitted now unless an earlier attempt had; or return why there is none.

        Two fits may differ, so the first that was staged counts.
        """
        kind = self._options.denoise
        if kind is None:
            return None, ""
        data = journal.get(file_path("denoiser", writer.next_number))
        if data is None:
            codes = self.codes(journal, drawn.segments)
            try:
                fitted = fit_denoiser(codes, self.spec, kind)
            except NoDenoiserError as error:  # the index works without one
                return None, str(error)
            data = denoiser_to_bytes(fitted)
        writer.add_single("denoiser", data)
        return denoiser_from_bytes(data, self.spec), ""

    def _add_calibration(
        self, writer: IndexWriter, journal: Journal, drawn: Drawn, denoiser: Denoiser | None
    ) -> None:
        """Add what similarities mean, learned now unless an earlier attempt had."""

        def take(rows: Rows) -> Codes:
            """Return the codes of some rows; one segment is in memory at a time."""
            parts = []
            start = 0
            for segment in drawn.segments:
                stop = start + segment.rows
                first, last = np.searchsorted(rows, (start, stop))
                if first < last:
                    codes = self.codes(journal, [segment])
                    parts.append(codes.take(rows[first:last] - start).stored)
                start = stop
            return self.spec.format.codes(self.spec.format.concatenate(parts))

        data = journal.get(file_path("calibration", writer.next_number))
        if data is None:
            rows = sum(segment.rows for segment in drawn.segments)
            decoder = decoder_of(self.spec, self._settings.metric, denoiser)
            found = learned(decoder, take, rows)
            if found is None:
                return
            data = found.to_bytes()
        writer.add_single("calibration", data)


def _finished(location: str) -> InputError:
    return InputError(
        f"{location} is a finished index; building again, here or elsewhere, releases every vector "
        f"twice. Use it as it is; `dpindex denoise` learns a denoiser, and `dpindex add` adds "
        f"other vectors."
    )


class BucketIndex(IndexTarget):
    """A prefix of an object store. Until everything is drawn a reservation alone lies there.

    Parameters
    ----------
    url : str
    settings : Settings
    options : IndexOptions
        With a private folder.
    """

    def __init__(self, url: str, settings: Settings, options: IndexOptions) -> None:
        super().__init__(None, settings, options)
        if options.private is None:
            raise InputError(
                f"{url} is in an object store: name a private folder for what must not be "
                f"published while the build is unfinished.",
                field="private",
            )
        self._bucket = Bucket(url)
        self._private = Path(options.private).resolve()

    def journal(self) -> Journal:
        return BucketJournal(self._private, self._bucket)

    def refuse_taken(self, journal: Journal) -> None:
        assert isinstance(journal, BucketJournal)
        location = self._bucket.location
        paths = self._bucket.sizes()
        if MANIFEST in paths:
            if journal.begun:
                journal.end()  # it died after the manifest was created
            raise _finished(location)
        if journal.begun:
            journal.reserve()
        elif RESERVATION in paths:
            raise InputError(
                f"{location} holds an unfinished build that {self._private} does not know: finish "
                f"it with the private folder that it was begun with. A build elsewhere would "
                f"release its vectors a second time."
            )
        elif paths:
            raise InputError(f"{location} is not empty; choose another place.")

    def publish_files(self, journal: Journal, manifest: Manifest) -> None:
        def upload(path: str) -> None:
            data = journal.get(path)
            if data is None or FileMark.of(data) != manifest.files[path]:
                raise DamagedError(f"the staged {path} was changed or removed; run it again.")
            if not self._bucket.create(path, data):
                raise InputError(f"{self._bucket.location}/{path} is not of this build; remove it.")

        with ThreadPoolExecutor(_UPLOADS) as pool:
            # All files before the manifest: until that is there, the prefix is no index.
            list(pool.map(upload, manifest.files))
        if not self._bucket.create(MANIFEST, manifest.text):
            raise InputError(
                f"{self._bucket.location} was committed with other codes; it was changed."
            )


def build_index(
    dataset: Dataset,
    location: AnyPath,
    settings: Settings | Spec,
    options: IndexOptions | None = None,
    terms: Terms | None = None,
    *,
    engine: Engine = map,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Outcome[BuiltIndex]:
    """Privatize a dataset into a new index, each vector once, or go on with the same build.

    Parameters
    ----------
    dataset : Dataset
        From :func:`dpindex.data.open_dataset`.
    location : path or URL
        A new folder, or a prefix of an object store.
    settings : Settings or Spec
    options : IndexOptions, optional
    terms : Terms, optional
        Ledger and leak check.
    engine : callable
        Runs the shards: see :class:`dpindex.storage.shards.Engine`.
    threads : int, optional
        Threads of one task; default all cores. One is right where the engine uses every core.
    progress : callable, optional
        Called with the rows that are done, all rows, and "checking" or "privatizing".

    Raises
    ------
    InputError
        For bad vectors, ids or payload, ids that the ledger knows, a codebook that holds private
        vectors, an index type that the codes do not support or that is wrong for their number,
        and a place that is taken. A fault in the last vector costs no budget.

    >>> from dpindex import attribute
    >>> import tempfile
    >>> import numpy as np
    >>> from dpindex.data import open_dataset
    >>> folder = tempfile.TemporaryDirectory()
    >>> np.save(folder.name + "/x.npy", np.zeros((5, 6)))
    >>> spec = Spec("dp-oporp-staircase", dim=6, k=2, epsilon=2.0, adjacency=attribute(1.0))
    >>> build_index(open_dataset(folder.name + "/x.npy"), folder.name + "/index", spec).drawn
    5
    >>> folder.cleanup()
    """
    if isinstance(settings, Spec):
        settings = Settings(settings)
    options = options or IndexOptions()
    path = local_path(location)
    target: IndexTarget
    if path is None:
        target = BucketIndex(os.fspath(location), settings, options)
    else:
        counted = terms is not None and terms.ledger is not None
        target = IndexTarget(path.resolve(), settings, options, counted)
    return release(
        dataset,
        target,
        terms,
        engine=engine,
        threads=threads,
        progress=progress,
    )
