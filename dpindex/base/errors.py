"""The errors that a user meets, and the warning of results that mean little.

Every error is an :class:`InputError`. A subclass exists where a caller must tell the cause apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = [
    "BusyError",
    "DamagedError",
    "InputError",
    "MissingPackageError",
    "NoDenoiserError",
    "NoGuaranteeError",
    "QualityWarning",
    "StorageError",
    "TooLittleSignalError",
    "naming",
]


class InputError(ValueError):
    """Bad input: one sentence that says what was wrong, where, and what to do.

    Parameters
    ----------
    sentence : str
    field : str
        The parameter to change, such as "ids". Where the sentence does not name it, it is appended
        in parentheses; the command line appends its own option instead.

    >>> print(InputError("give every vector an id.", field="ids"))
    give every vector an id (ids).
    >>> print(InputError("beta must be above 0, not -1.", field="beta"))
    beta must be above 0, not -1.
    """

    def __init__(self, sentence: str, *, field: str = "") -> None:
        super().__init__(sentence)
        self.field = field

    def __str__(self) -> str:
        return self.pointing_at(self.field)

    def pointing_at(self, name: str) -> str:
        """Return the sentence, with a name of what to change at its end unless it is in it."""
        sentence = str(self.args[0])
        if name in sentence:
            return sentence
        return f"{sentence.removesuffix('.')} ({name})."


class NoGuaranteeError(InputError):
    """These parameters have no mechanism: no proof covers them, or no code can hold the noise."""


class NoDenoiserError(InputError):
    """No denoiser can be learned: the method has none, adds no noise, or leaves no signal."""


class TooLittleSignalError(NoDenoiserError):
    """The codes are too few to learn from, or nothing stands out of their noise."""


class DamagedError(InputError):
    """A file is damaged, cut off, of another version, or not of the expected kind."""


class BusyError(InputError):
    """Another process holds the lock of an index or a ledger."""


class StorageError(InputError):
    """A file or an object store cannot be read or written: missing, full, denied, unreachable."""


class MissingPackageError(InputError):
    """A package of an optional extra is not installed."""


class QualityWarning(UserWarning):
    """The release is private as stated, but its results mean little."""


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Let the sentence of an :class:`InputError` begin with the name of the file it is about.

    The error keeps its class.

    >>> with naming("x.npy"):
    ...     raise InputError("row 3 is empty.")
    Traceback (most recent call last):
      ...
    dpindex.base.errors.InputError: x.npy: row 3 is empty.
    """
    try:
        yield
    except InputError as error:
        sentence = str(error.args[0])
        if not sentence.startswith(name):
            error.args = (f"{name}: {sentence}",)
        raise
