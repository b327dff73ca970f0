"""Bearer tokens and what each allows."""

from __future__ import annotations

import hashlib
import hmac
import os
from pathlib import Path
from typing import Literal, get_args

from dpindex.base.errors import InputError, naming
from dpindex.base.private_files import read_private_file

Role = Literal["submit", "search", "rerank"]

_ROLES: tuple[Role, ...] = get_args(Role)
_MAX_BYTES = 1 << 20
_LEAST_CHARACTERS = 32


class Tokens:
    """Tokens by role. Only their SHA-256 is kept.

    Parameters
    ----------
    text : str
        A line for each token: the role, ``submit``, ``search`` or ``rerank``, and the token, of at
        least 32 printable ASCII characters. Empty lines and lines that begin with ``#`` are
        comments. A token may have several roles, each on a line of its own.

    Raises
    ------
    InputError
        For any other line, which is named by its number, and if there is no token.

    >>> tokens = Tokens("submit " + 32 * "a")
    >>> tokens.allow(32 * "a", "submit"), tokens.allow(32 * "a", "search")
    (True, False)
    """

    def __init__(self, text: str) -> None:
        self._digests: dict[Role, list[bytes]] = {role: [] for role in _ROLES}
        for number, line in enumerate(text.splitlines(), 1):
            word, _, token = line.strip().partition(" ")
            token = token.strip()
            if not word or word.startswith("#"):
                continue
            role = next((role for role in _ROLES if role == word), None)
            if role is None:
                raise InputError(
                    f"line {number} must begin with submit, search or rerank, then a token."
                )
            wrong = len(token) < _LEAST_CHARACTERS or " " in token
            if wrong or not (token.isascii() and token.isprintable()):
                raise InputError(
                    f"line {number} needs a token of at least {_LEAST_CHARACTERS} printable ASCII "
                    f"characters without spaces."
                )
            self._digests[role].append(_digest(token))
        if not any(self._digests.values()):
            raise InputError("there is no token; write lines such as: submit TOKEN.")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Tokens:
        """The tokens in a file that its owner alone can read; InputError begins with the path."""
        data = read_private_file(Path(path), _MAX_BYTES)
        try:
            text = data.decode("ascii")
        except UnicodeDecodeError:
            raise InputError(f"{path} must be ASCII text.") from None
        with naming(os.fspath(path)):
            return cls(text)

    def allow(self, token: str, role: Role) -> bool:
        """Whether a token has a role; takes the same time for every wrong token."""
        given = _digest(token)
        # Not any(): the number of comparisons must not depend on the token.
        return sum(hmac.compare_digest(given, digest) for digest in self._digests[role]) > 0

    @staticmethod
    def name(token: str) -> str:
        """Return the name of a token in logs: the beginning of its hash.

        >>> Tokens.name(32 * "a")
        'token 3ba3f5f4'
        """
        return f"token {_digest(token).hex()[:8]}"

    def know(self, token: str) -> bool:
        """Whether it is a token at all, of any role."""
        return sum([self.allow(token, role) for role in _ROLES]) > 0


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
