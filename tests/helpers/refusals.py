"""What a refusal of the package looks like, and a call that Ctrl-C stops."""

import pytest

from dpindex.base.errors import InputError


def refuses(words=None):
    """As ``pytest.raises``, of the one error that all refusals are; ``words`` are a pattern."""
    return pytest.raises(InputError, match=words)


def interrupt(*_, **__):
    raise KeyboardInterrupt


def interrupted_at(place, call):
    """Make a call that Ctrl-C stops where it would call what is at ``place``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, interrupt)
        with pytest.raises(KeyboardInterrupt):
            call()
