"""Libraries of the optional extras, imported where they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dpindex.errors import InputError

__all__ = ["import_extra"]


def import_extra(module: str, need: str, extra: str) -> Any:
    """The module of that name; InputError, which states the ``need``, if it is not installed.

    >>> import_extra("no_such_module", "drawing a picture needs matplotlib", "eval")
    Traceback (most recent call last):
      ...
    dpindex.errors.InputError: drawing a picture needs matplotlib; run pip install 'dpindex[eval]'.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise InputError(f"{need}; run pip install 'dpindex[{extra}]'.") from error
