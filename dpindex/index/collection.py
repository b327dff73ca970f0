"""An index as a collection: its rows by id, and what it holds in all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from dpindex.base.arrays import AnyArray
from dpindex.base.errors import InputError
from dpindex.index.locks import ReadWriteLock
from dpindex.mechanism.codes import CodeFormat, Codes
from dpindex.storage.code_store import CodeStore
from dpindex.storage.payload import Table


class Collection:
    """Codes under unique ids, in the order in which they were added, and their payload.

    >>> from dpindex.mechanism.codes import SignFormat
    >>> collection = Collection(SignFormat(8, bytes(16)))
    >>> len(collection), "anna" in collection, list(collection)
    (0, False, [])
    """

    def __init__(self, format_: CodeFormat) -> None:
        self._store = CodeStore(format_)
        self._lock = ReadWriteLock()

    def __len__(self) -> int:
        return len(self._store)

    def __contains__(self, id: object) -> bool:
        """Whether there is a code under that id; 7 and "7" are different ids."""
        return id in self._store

    def __iter__(self) -> Iterator[Any]:
        """The ids in the order of their rows, as they are now: ints or strings."""
        return iter(self._store.ids.tolist())

    def __getitem__(self, id: int | str) -> Codes:
        """The code under one id, as codes of one row; KeyError if there is none."""
        with self._lock.read():
            if id not in self._store:
                raise KeyError(f"id {id!r} is not in the index")
            return self._store.take(self._store.rows(id))

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled or copied; save it, and open the directory "
            f"where it is needed."
        )

    @property
    def ids(self) -> AnyArray:
        """All ids in the order of their rows, int64 or strings."""
        return self._store.ids.copy()

    @property
    def codes(self) -> Codes:
        """All codes in the order of their rows: what the index publishes."""
        with self._lock.read():
            return self._store.codes

    @property
    def payload(self) -> Table:
        """The payload of all rows, a ``pyarrow.Table``: published in the clear; None without."""
        return self._store.payload.table

    @property
    def payload_columns(self) -> dict[str, str]:
        """Type of each payload column by its name, in Arrow's words."""
        return self._store.payload.columns

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
        with self._lock.read():
            return self._store.repeats(codes)

    def check_rerelease(self, ids: AnyArray, allow_rerelease: bool) -> int:
        """How many of these ids new vectors would replace; InputError unless that is allowed."""
        replaced = len(self._store.rows(ids, missing=True))
        if replaced and not allow_rerelease:
            raise InputError(
                f"{replaced} of these {len(ids)} ids are in the index: replacing a vector is a "
                f"second release of it, and its epsilons add up; allow it if that is meant.",
                field="allow_rerelease",
            )
        return replaced

    def check_payload(self, payload: Any, count: int) -> Table:
        """The payload of ``count`` new rows as a table, or the InputError of adding it."""
        return self._store.payload.checked(payload, count)

    def remove(self, ids: Any) -> int:
        """Remove vectors by id; returns how many. Their codes are gone from the next save on.

        Raises
        ------
        InputError
            If one of the ids is not in the index; nothing is removed then.
        """
        with self._lock.write():
            return self._store.remove(ids)
