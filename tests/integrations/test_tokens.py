"""Tokens: who may submit and who may search."""

import hmac

import pytest
from helpers.common import needs_posix, refuses

from dpindex.integrations.requests import Tokens

A, B, C = (32 * letter for letter in "abc")


def written(path, text, mode=0o600):
    path.write_text(text)
    path.chmod(mode)
    return path


def test_roles(tmp_path):
    text = f"# devices\nsubmit {A}\n\nsearch {B}\nsubmit  {C}\nsearch {C}\n"
    tokens = Tokens.read(written(tmp_path / "tokens", text))
    expected = {A: {"submit"}, B: {"search"}, C: {"submit", "search"}}
    assert {token: tokens.roles(token) for token in expected} == expected
    for wrong in ("", A[:-1], A + "a", A.upper(), "\udcff", "é" * 32):
        assert not tokens.roles(wrong)


@pytest.mark.parametrize(
    "text",
    ["", "# none\n", f"admin {A}", "submit short", f"submit {A} {B}", f"submit {'é' * 32}", A],
)
def test_other_lines_are_refused_and_not_repeated(tmp_path, text):
    with refuses() as refused:
        Tokens.read(written(tmp_path / "tokens", text))
    assert A not in str(refused.value)


@needs_posix
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_file_that_others_read_is_refused(tmp_path, mode):
    with refuses("chmod 600"):
        Tokens.read(written(tmp_path / "tokens", f"submit {A}", mode))


def test_every_token_is_compared_whatever_matches(monkeypatch):
    """The work does not depend on which token was given, and tokens themselves are not compared."""
    compared = []

    def compare(a, b):
        compared.append((len(a), len(b)))
        return a == b

    monkeypatch.setattr(hmac, "compare_digest", compare)
    tokens = Tokens(f"submit {A}\nsubmit {B}\nsearch {C}")
    for given in (A, B, C, "x", ""):
        compared.clear()
        tokens.roles(given)
        assert compared == [(32, 32)] * 3
