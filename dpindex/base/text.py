"""Text of foreign files, which may hold line breaks and commands for the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from dpindex.base.errors import InputError

__all__ = ["escaped", "one_line", "refuse_unprintable"]

_MAX_REASON = 200


def escaped(text: str) -> str:
    r"""Return text on one line, in which characters that cannot be printed are Python's escapes.

    >>> print(escaped("year\n\x1b[2Jepsilon = 0.1"))
    year\n\x1b[2Jepsilon = 0.1
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def one_line(error: object) -> str:
    r"""Return what an error of another library says, on one line of at most 200 characters.

    >>> one_line(ValueError("no such\n  column"))
    'no such column'
    """
    return " ".join(str(error).split())[:_MAX_REASON]


def refuse_unprintable(names: Iterable[str], kind: str) -> None:
    r"""Refuse names that could forge what is printed around them.

    Raises
    ------
    InputError
        For a name with a line break, an escape sequence or another character that is not printed.

    >>> refuse_unprintable(["year", "a\nb"], "column")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
      ...
    dpindex.base.errors.InputError: the name of column 'a\nb' has characters that cannot be ...
    """
    for name in names:
        if not name.isprintable():
            raise InputError(
                f"the name of {kind} {escaped(repr(name))} has characters that cannot be printed;"
                " rename it."
            )
