"""The one exception for bad input."""

from __future__ import annotations

__all__ = ["InputError"]


class InputError(ValueError):
    """Bad input: one sentence that says what was wrong, where, and what to do."""
