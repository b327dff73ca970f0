"""The errors that a user meets, and the warning of results that mean little.

Every error is an :class:`InputError`. A subclass exists where a caller must tell the cause apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
        Its words are those of the library.
    parameters : sequence of str
        The words of the sentence that are parameters of the library, such as "min_norm",
        "clip=True" or "ledger=…". The command line puts its flags in their place.

    >>> from dpindex import attribute
    >>> try:
    ...     attribute(beta=-1)
    ... except InputError as error:
    ...     print(error)
    beta must be above 0, not -1.
    """

    def __init__(self, sentence: str, *, parameters: Sequence[str] = ()) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.parameters = tuple(parameters)


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
        if not str(error).startswith(name):
            error.args = (f"{name}: {error}",)
        raise
