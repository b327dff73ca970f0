"""What tests of commands share: a command that builds, and what a refusal looks like."""

from collections.abc import Callable

Run = Callable[..., tuple[int, str, str]]

STAIRCASE = "--method dp-oporp-staircase --beta 1 --epsilon 20"


def fails(result, *parts):
    """Exit code 2 and one sentence, without a traceback, that holds every part."""
    code, _, error = result
    assert code == 2
    assert "Traceback" not in error
    assert error.startswith("dpindex: ")
    assert error.count("\n") == 1
    for part in parts:
        assert part in error
