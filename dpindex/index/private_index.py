"""The index: add vectors or codes, search, read similarities with error bars, save, open."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from dpindex.base.arrays import AnyArray, Table, Vectors
from dpindex.base.display import counted, facts_html
from dpindex.base.errors import InputError, StorageError, import_extra
from dpindex.base.files import AnyPath
from dpindex.base.ids import check_index
from dpindex.data.dataset import Dataset, as_dataset
from dpindex.data.source import as_source
from dpindex.data.stores import is_url
from dpindex.decode.base import Metric
from dpindex.decode.calibration import SimilarityCalibration
from dpindex.decode.denoiser import Denoiser
from dpindex.decode.fit import DenoiserKind, fit_denoiser
from dpindex.index.ranking import SearchableStore
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.spec import Spec
from dpindex.storage.code_store import CodeStore
from dpindex.storage.contents import Checkpoint, Contents, fetched, read_index, write_index
from dpindex.storage.directory import IndexDirectory
from dpindex.storage.history import History, Terms, release_in_memory
from dpindex.storage.manifest import EXACT, Planned, Settings

if TYPE_CHECKING:
    from dpindex.accounting.ledger import Ledger
    from dpindex.base.display import Progress
    from dpindex.mechanism.privatizer import Privatizer
    from dpindex.storage.history import Terms


class PrivateIndex(SearchableStore):
    """A searchable set of private codes, each under an id and perhaps with a payload in the clear.

    Think of it as a dictionary from ids to codes: ``id in index``, ``index[id]`` and ``len(index)``
    work, and iterating gives the ids.

    With ``query="exact"`` the query itself is used as it is, by whoever calls ``search``: call it
    on your own machine, or send a private query.

    Parameters
    ----------
    spec : Spec or Plan
        The public description of the mechanism, or what :func:`dpindex.plan` returned: its spec and
        its metric are taken.
    metric : "cosine", "ip" or "l2"
        What neighbours are ranked by; default that of the plan, or the cosine. Sign codes support
        cosines only.
    index_type : str
        How number codes, denoised or not, are kept for searching: a Faiss factory string such as
        "SQ8", "IVF1024,PQ32x4fs" or "ROT64,SQ4", or "f32" (Flat, exact), "f16" (SQfp16) or "int8"
        (SQ8). The codes themselves stay as they are, and so do the similarities.
    query_epsilon : float, optional
        Budget of a private query; default the spec's epsilon.

    Attributes
    ----------
    spec, metric, index_type, query_epsilon
        As given; an index keeps them for life.
    query_spec : Spec
        The spec of private queries.

    Raises
    ------
    InputError
        For a metric or an index type that the method's codes do not have.

    >>> from dpindex import attribute
    >>> spec = Spec(method="dp-oporp-staircase", dim=8, k=4, epsilon=20.0, adjacency=attribute(1.0))
    >>> index = PrivateIndex(spec)
    >>> index.add(np.eye(8), ids=list("abcdefgh"))
    >>> hits = index.search(np.eye(8)[:2], k=3)
    >>> hits.ids.shape, len(index)
    ((2, 3), 8)
    """

    def __init__(
        self,
        spec: Spec | Planned,
        *,
        metric: Metric | None = None,
        index_type: str = EXACT,
        query_epsilon: float | None = None,
    ) -> None:
        settings = Settings.of(spec, metric, index_type, query_epsilon)
        super().__init__(settings, CodeStore.of_segments(settings.spec.format))
        self._writing = threading.Lock()
        self._checkpoint: Checkpoint | None = None
        self._history: History | None = None

    @property
    def denoiser(self) -> Denoiser | None:
        """The denoiser that :meth:`fit_denoiser` learned, or None."""
        return self._denoiser

    @property
    def path(self) -> Path | None:
        """The directory it was last opened from or saved to."""
        if self._checkpoint is None:
            return None
        return self._checkpoint.directory.path

    def __repr__(self) -> str:
        place = ""
        if self.path is not None:
            place = f", {self.path}"
        codes = counted(len(self), "code")
        return f"<PrivateIndex: {codes}, {self.spec.method}, {self.metric}{place}>"

    def _repr_html_(self) -> str:
        """For notebooks: what it holds and promises."""
        facts = {
            "spec": self.spec,
            "guarantee": self.spec.guarantee,
            "search": f"{self.metric}, index type {self.index_type}",
            "denoiser": self.denoiser or "none",
            "payload": f"{', '.join(self.payload_columns) or 'none'} (not protected)",
            "path": self.path or "not saved",
        }
        return facts_html(f"PrivateIndex: {counted(len(self), 'code')}", facts)

    def __contains__(self, id: object) -> bool:
        """Whether there is a code under that id; 7 and "7" are different ids."""
        return id in self._store.ids

    def __iter__(self) -> Iterator[Any]:
        """The ids in the order of their rows, as they are now: ints or strings."""
        return iter(self._store.ids.array.tolist())

    def __getitem__(self, id: int | str) -> Codes:
        """The code under one id, as codes of one row; KeyError if there is none."""
        store = self._store
        if id not in store.ids:
            raise KeyError(f"id {id!r} is not in the index")
        return store.take(store.ids.rows(id))

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled or copied; save it, and open the directory "
            f"where it is needed."
        )

    @property
    def ids(self) -> AnyArray:
        """All ids in the order of their rows, int64 or strings."""
        return self._store.ids.array.copy()

    @property
    def codes(self) -> Codes:
        """All codes in the order of their rows: what the index publishes."""
        return self._store.codes

    @property
    def payload(self) -> Table:
        """The payload of all rows, a ``pyarrow.Table``: published in the clear; None without."""
        return self._store.payload.table

    @property
    def payload_columns(self) -> dict[str, str]:
        """Type of each payload column by its name, in Arrow's words."""
        return self._store.payload.columns

    def to_arrow(self) -> Table:
        """Return ids, codes and payload of all rows: what any database takes.

        Returns
        -------
        A ``pyarrow.Table`` with the columns ``id``, ``code`` and those of the payload. A code is
        the stored bytes of a row, little-endian, in a fixed-size binary column; a symbol is a
        number.

        Raises
        ------
        InputError
            Without pyarrow, or if a payload column has the name of one of these.

        >>> from dpindex import attribute
        >>> spec = Spec("dp-signoporp-rr", dim=8, k=8, epsilon=2.0, adjacency=attribute(1.0))
        >>> index = PrivateIndex(spec)
        >>> index.add(np.eye(8))
        >>> index.to_arrow().schema.names
        ['id', 'code']
        """
        pa = import_extra("pyarrow", "to_arrow needs pyarrow", "io")
        store = self._store
        codes = store.codes
        ids = store.ids.array
        payload = store.payload.table
        columns = {"id": pa.array(ids), "code": codes.format.to_arrow(codes.stored)}
        names = [] if payload is None else payload.column_names
        for name in names:
            if name in columns:
                raise InputError(f"the payload has a column {name!r}, which is taken; rename it.")
            columns[name] = payload[name]
        return pa.table(columns)

    def repeats(self, codes: Codes) -> int:
        """How many of these codes are in the index already, byte for byte.

        Noise makes equal codes of 128 bits or more next to impossible, even of equal vectors,
        unless epsilon is very large: such a code was added before, or copied.

        >>> import numpy as np
        >>> import dpindex as dpi
        >>> spec = dpi.Spec("dp-oporp-staircase", dim=32, k=32, epsilon=2.0,
        ...     adjacency=dpi.attribute(1.0))
        >>> index, codes = dpi.PrivateIndex(spec), dpi.Privatizer(spec).privatize(np.eye(32))
        >>> index.add_codes(codes.take(slice(20)))
        >>> index.repeats(codes)
        20
        """
        return self._store.repeats(codes)

    def remove(self, ids: Any) -> int:
        """Remove vectors by id; returns how many. Their codes are gone from the next save on.

        Raises
        ------
        InputError
            If one of the ids is not in the index; nothing is removed then.
        """
        with self._writing:
            rows = self._store.ids.rows(ids)
            self._store = self._store.without(rows)
            return len(rows)

    def add(
        self,
        X: Vectors | Dataset,
        ids: Any | None = None,
        *,
        payload: Any = None,
        upsert: bool = False,
        ledger: Ledger | None = None,
        allow_rerelease: bool = False,
        skip_leak_check: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Privatize vectors and add them; this spends the budget of each.

        What the codes mean for similarities is learned later, when one is read or the index is
        saved: see :meth:`calibrate`.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame, column of lists, or Dataset, shape (n, dim)
            A dataset is read a part at a time: see :func:`dpindex.data.open_dataset`.
        ids : sequence of n whole numbers or strings, optional
            Unique; default the next free numbers.
        payload : mapping of names to columns, list of dicts, DataFrame or Arrow table, optional
            n rows of plain values to be shown with hits and filtered by. A column ``id``, or the
            named index of a frame, joins them to the ids. **It is not protected**:
            it is published in the clear, beside the codes. All rows have the same columns; rows
            that are added without a payload have nulls.
        upsert : bool
            Put vectors in the place of those with the same ids. **That is a second
            release**: whoever saw the first code, in a published index or a copy of it, has both,
            and the epsilons of that id add up. The old code and its payload go in the same step in
            which the new ones come, in memory and on disk (at the next save), and the new rows are
            the last.
        ledger : Ledger, optional
            Where the releases are written down first. It remembers ids that were removed here, and
            ids of other indexes; it needs ``ids``, and an index that has a folder (``save`` it
            first). The codes are in the folder when this returns, as is whatever else was changed.
            If the process dies before, the same call goes on and spends nothing twice.
        allow_rerelease : bool
            Allow ids that the ledger knows, or that are replaced, and vectors that were released
            before, at the price of one more epsilon each.
        skip_leak_check : bool
            Accept a public part made of ``X``: see :mod:`dpindex.storage.leak_check`.
        progress : callable, optional
            Called with the rows that are done, all rows, and "checking" or "privatizing".

        Raises
        ------
        InputError
            For bad vectors, ids or payload, ids that would be released again, vectors that were
            released into the folder of this index before, a ledger that counts it and is not
            given, and a codebook that holds private vectors; nothing is changed then.
        """
        # Without a ledger the index alone says what was released before, and may replace it.
        counted_again = allow_rerelease and (ledger is not None or not upsert)
        terms = Terms(ledger, counted_again, skip_leak_check)
        with self._writing:
            vectors: Any = X
            if isinstance(X, Dataset):
                count = X.rows
            else:
                if not isinstance(X, np.ndarray):  # which has no index
                    check_index(X, ids)
                vectors = self._privatizer.rows(X)
                count = vectors.shape[0]
            labels = self._store.checked_labels(ids, payload, count, replace=upsert)
            if upsert and not allow_rerelease:
                self._refuse_replaced(labels[0])
            known = self._known()
            # In memory nothing was released yet that anybody could see.
            last = self._checkpoint
            asked = last is not None and not allow_rerelease
            if last is not None and asked:
                if ledger is not None:
                    ledger.refuse_inside(last.directory.path)
                known.refuse_without(ledger)
                known = known.settled()
            if ledger is None:
                codes, tags = release_in_memory(
                    vectors,
                    self._privatizer,
                    skip_leak_check=skip_leak_check,
                    history=known,
                    progress=progress,
                )
                if asked:
                    known.refuse_again(tags, ids is not None)
                # Known before they are there: Ctrl-C leaves no vector that may come a second time.
                self._history = known.with_rows(tags)
                self._store = self._store.grown(codes, *labels, replace=upsert)
                return
            if not isinstance(vectors, Dataset):
                vectors = as_dataset(as_source(vectors, ""), count)
            if asked and len(known.rows):
                known.refuse_again(known.tags_of(vectors), ids is not None)
            if ids is not None:
                vectors = vectors.with_labels(labels[0])
            self._release_durably(vectors, labels, terms, progress, upsert=upsert)

    def _known(self) -> History:
        """What was released into this index, as far as that is known here."""
        if self._history is None:
            known = History()
            if self._checkpoint is not None:
                known = History.read(self._checkpoint.directory.path)
                self._checkpoint = replace(self._checkpoint, history=known)
            self._history = known
        return self._history

    def _refuse_replaced(self, ids: AnyArray) -> None:
        """Raise InputError if some of the ids are in the index."""
        known = len(self._store.ids.rows(ids, missing=True))
        if known:
            raise InputError(
                f"{known} of these {len(ids)} ids are in the index: replacing a vector is a "
                f"second release of it, and its epsilons add up; allow it if that is meant.",
                field="allow_rerelease",
            )

    @cached_property
    def _privatizer(self) -> Privatizer:
        from dpindex.mechanism.privatizer import Privatizer

        return Privatizer(self.spec, allow_unprotected=True)

    def _release_durably(
        self,
        dataset: Dataset,
        labels: tuple[AnyArray, Table],
        terms: Terms,
        progress: Progress | None,
        *,
        upsert: bool,
    ) -> None:
        """Release vectors that a ledger counts into the folder of the index, and into memory."""
        from dpindex.storage.release import release
        from dpindex.storage.targets import GrownIndex

        last = self._checkpoint
        if last is None:
            raise InputError(
                "a ledger counts releases that last: save the index to a folder first "
                "(index.save(path)), then add to it."
            )

        def append(codes: Codes, token: str) -> None:
            grown = self._store.grown(codes, *labels, replace=upsert)
            if terms.ledger is not None:
                self._history = self._known().with_ledger(terms.ledger)
            self._write(last.directory.path, grown, token)

        target = GrownIndex(last.directory.path, self.spec, upsert, append)
        with last.directory.held():
            last.unchanged_manifest()
            release(dataset, target, terms, progress=progress)

    def _write(
        self,
        path: Path,
        store: CodeStore,
        token: str = "",
    ) -> None:
        """Write the index with the rows of ``store``, which are its own from then on."""
        learned = self._known_now(store)

        def remember(checkpoint: Checkpoint) -> None:
            self._store = store
            self._checkpoint = checkpoint
            with self._choosing:
                self._learned = learned

        if self.path != path.resolve():
            with suppress(StorageError):  # who may not read it has released nothing
                self._known()  # goes with the index
        # Learned here, if nobody asked before: what is saved states similarities.
        calibration = learned.calibration
        contents = Contents(self._settings, store, self._denoiser, calibration, self._history)
        write_index(path, contents, self._checkpoint, remember, token)

    def add_codes(
        self,
        codes: Codes,
        ids: Any | None = None,
        *,
        payload: Any = None,
        upsert: bool = False,
    ) -> None:
        """Add codes that devices made under the same spec; spends nothing.

        Parameters
        ----------
        codes : Codes
        ids : sequence of whole numbers or strings, optional
            Unique; default the next free numbers.
        payload : table, optional
            One row for each code, **published in the clear**: see :meth:`add`.
        upsert : bool
            Put codes in the place of those with the same ids: see :meth:`add`.

        Raises
        ------
        InputError
            If the codes come from another spec, or for bad ids or payload.
        """
        self._check_codes(codes)
        with self._writing:
            labels = self._store.checked_labels(ids, payload, len(codes), replace=upsert)
            # In one step that Ctrl-C does not cut, for older rows.
            self._store = self._store.grown(codes, *labels, replace=upsert)

    def fit_denoiser(self, kind: DenoiserKind = "auto") -> Denoiser:
        """Learn from the private codes how their coordinates hang together, and rank with it.

        Post-processing of what is published already: it reads codes and public parameters only and
        costs no budget. Codes and private queries are denoised, exact queries need not be; codes
        that are added later go through the same denoiser, until it is fitted again. It is saved
        with the index. ``Hits.scores`` rank denoised vectors, which are shrunken towards what is
        usual in the collection; ``similarity`` and ``stderr`` of cosines correct for that. Of
        denoised signs none is stated.

        Parameters
        ----------
        kind : "auto", "linear" or "score"
            See :func:`dpindex.decode.fit.fit_denoiser`.

        Returns
        -------
        The denoiser; its ``kind`` and ``error`` say what was chosen and how well it predicts.

        Raises
        ------
        InputError
            If there are too few codes to learn from, or nothing is above the noise; the index
            stays as it was.
        """
        denoiser = fit_denoiser(self.codes, self.spec, kind)
        with self._writing:
            self._set_denoiser(denoiser)
        return denoiser

    @property
    def calibration(self) -> SimilarityCalibration | None:
        """What :meth:`calibrate` learns, or None; learned now if nobody asked before."""
        return self._known_of(None).calibration

    def calibrate(self) -> SimilarityCalibration | None:
        """Learn from the private codes what the cosines of hits need to be right on average.

        Post-processing of what is published already: it reads codes and public parameters only and
        costs no budget. By it ``similarity`` of hits is a posterior mean, also for the best of many
        candidates, and ``stderr`` its error. An index does it by itself when similarities are first
        read or it is saved, from a hundred rows on, and again once half as many have changed as it
        learned from. That takes a second or so; it is saved with the index.

        Returns
        -------
        What was learned; None where there is nothing to learn, of which ``Hits.unstated`` says why:
        for ``ip`` and ``l2``, for fewer than 100 codes, for codes under a design, and where flips
        depend on norms that nobody declared.

        >>> from dpindex import attribute
        >>> spec = Spec("dp-oporp-staircase", dim=8, k=8, epsilon=8.0, adjacency=attribute(1.0))
        >>> index = PrivateIndex(spec)
        >>> index.add(np.random.default_rng(0).uniform(-1, 1, (500, 8)))
        >>> index.calibrate().rows
        500
        """
        with self._writing:
            with self._choosing:
                self._learned = self._to_learn(self._store)
            return self._learned.calibration

    def save(self, path: AnyPath, *, allow_unprotected: bool = False) -> None:
        """Write the index as a directory, all or nothing.

        Saving to the directory an index was opened from brings it up to date. Codes of removed
        vectors are not in it any more. All new files are first written to a private folder beside
        it, ``NAME.unpublished``: a save that is cut off after that is finished when the index is
        next opened or saved.

        Parameters
        ----------
        path : path
            The directory; created if missing.
        allow_unprotected : bool
            Save the exact codes of a ``none-*`` baseline.

        Raises
        ------
        InputError
            If the directory belongs to something else, cannot be written, or the method protects
            nothing and ``allow_unprotected`` is false.
        """
        self.spec.refuse_unprotected(allow_unprotected, "save it")
        if is_url(path):
            raise InputError(f"an index is saved to a folder; {os.fspath(path)} is not one.")

        with self._writing:
            self._write(Path(path), self._store)

    @classmethod
    def open(cls, path: AnyPath) -> PrivateIndex:
        """Open a saved index: sizes and hashes are verified before anything is parsed.

        Large segments are mapped where they lie and not copied, except on Windows. Their files must
        not be written in place while the index is in use; when they are deleted or replaced, as by
        a save after rows were removed, this index keeps what it opened.

        ``path`` may be the URL of one that was built in an object store, such as
        ``s3://bucket/index``. It is copied to a temporary folder first, and to keep changes it is
        saved to a folder.

        A save that this user began here and that was cut off is finished first, if it can be.

        Parameters
        ----------
        path : path
            The directory of the index, or its URL.

        Raises
        ------
        InputError
            If the directory is not an index, is unfinished, or was damaged or changed.
        """
        if is_url(path):
            with fetched(os.fspath(path)) as folder:
                index = cls.open(folder)
            index._checkpoint = None
            return index
        return cls._read(IndexDirectory(Path(path)))

    @classmethod
    @contextmanager
    def changing(
        cls, path: AnyPath, waiting: Callable[[], object] = lambda: None
    ) -> Iterator[PrivateIndex]:
        """Open a saved index that no other process can change before the block ends.

        So what is added and saved in the block is saved for certain, whoever else adds at the same
        time: they wait.

        Parameters
        ----------
        waiting : callable, optional
            Called if another process changes the index now, before it is waited for.

        Raises
        ------
        InputError
            As :meth:`open`, and if the directory cannot be written.

        >>> from dpindex import attribute
        >>> from tempfile import TemporaryDirectory
        >>> folder = TemporaryDirectory()
        >>> path = Path(folder.name) / "index"
        >>> PrivateIndex(Spec("dp-oporp-staircase", dim=8, k=4, epsilon=20.0,
        ...     adjacency=attribute(1.0))).save(path)
        >>> with PrivateIndex.changing(path) as index:
        ...     index.add(np.eye(8))
        ...     index.save(path)
        >>> len(PrivateIndex.open(path))
        8
        >>> folder.cleanup()
        """
        directory = IndexDirectory(Path(path))
        directory.finished_manifest()
        with directory.held(waiting):
            yield cls._read(directory)

    @classmethod
    def _read(cls, directory: IndexDirectory) -> PrivateIndex:
        contents, checkpoint = read_index(directory)
        index = cls(**vars(contents.settings))
        index._store = contents.store
        if contents.denoiser is not None:
            index._set_denoiser(contents.denoiser)
        known = contents.calibration
        rows = len(index)
        if known is not None:
            rows = known.rows
        index._state_by(known, rows, -abs(len(index) - rows))
        index._checkpoint = checkpoint
        return index
