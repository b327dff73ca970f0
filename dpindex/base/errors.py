"""The one exception for bad input, and the one warning of results that mean little."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["InputError", "QualityWarning", "naming"]


class InputError(ValueError):
    """Bad input: one sentence that says what was wrong, where, and what to do.

    >>> from dpindex import attribute
    >>> try:
    ...     attribute(beta=-1)
    ... except InputError as error:
    ...     print(error)
    beta must be above 0, not -1.
    """


class QualityWarning(UserWarning):
    """What was released is private as stated, but says too little: the cause and the remedy."""


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Let the sentence of an InputError begin with the name of the file that it is about.

    >>> with naming("x.npy"):
    ...     raise InputError("row 3 is empty.")
    Traceback (most recent call last):
      ...
    dpindex.base.errors.InputError: x.npy: row 3 is empty.
    """
    try:
        yield
    except InputError as error:
        if str(error).startswith(name):
            raise
        raise InputError(f"{name}: {error}") from error
