"""The one exception for bad input, and the one warning of results that mean little."""

from __future__ import annotations

__all__ = ["InputError", "QualityWarning"]


class InputError(ValueError):
    """Bad input: one sentence that says what was wrong, where, and what to do."""


class QualityWarning(UserWarning):
    """What was released is private as stated, but says too little: the cause and the remedy."""
