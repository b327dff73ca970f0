"""What a refusal of the package looks like."""

from __future__ import annotations

from typing import Any

import pytest

from dpindex.base.errors import InputError


def refuses(words: str | None = None) -> Any:
    """As ``pytest.raises``, of the one error that all refusals are; ``words`` are a pattern."""
    return pytest.raises(InputError, match=words)
