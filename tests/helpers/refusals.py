"""What a refusal of the package looks like, and a call that Ctrl-C stops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from dpindex.base.errors import InputError


def refuses(words: str | None = None) -> Any:
    """As ``pytest.raises``, of the one error that all refusals are; ``words`` are a pattern."""
    return pytest.raises(InputError, match=words)


def interrupt(*_: object, **__: object) -> NoReturn:
    raise KeyboardInterrupt


def interrupted_at(place: str, call: Callable[[], object]) -> None:
    """Make a call that Ctrl-C stops where it would call what is at ``place``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, interrupt)
        with pytest.raises(KeyboardInterrupt):
            call()
