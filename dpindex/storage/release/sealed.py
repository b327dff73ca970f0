"""Staging in an object store: files are encrypted under a key that never lies there.

So the operator of the store learns nothing from the uploads of two attempts.
"""

from __future__ import annotations

import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from dpindex.base.errors import DamagedError
from dpindex.base.files import Buffer
from dpindex.data.stores import Bucket
from dpindex.storage.staging import MAX_FILE_BYTES, Staging

__all__ = ["SealedStaging"]

_NONCE_BYTES = 12
_SEAL_BYTES = 28
"""A nonce and a tag: how much longer a sealed file is."""


class SealedStaging(Staging):
    """A prefix of an object store in which every file is encrypted with AES-256-GCM.

    Parameters
    ----------
    url : str
        The prefix.
    key : bytes
        32 bytes, which never lie in the store.
    """

    def __init__(self, url: str, key: bytes) -> None:
        self._bucket = Bucket(url)
        self._key = key

    def create(self, path: str, data: Buffer) -> bool:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = nonce + AESGCM(self._key).encrypt(nonce, bytes(data), path.encode())
        return self._bucket.create(path, sealed) or self.read(path) == data

    def read(self, path: str, max_bytes: int = MAX_FILE_BYTES) -> bytes | None:
        sealed = self._bucket.read(path, max_bytes + _SEAL_BYTES)
        if sealed is None:
            return None
        nonce = sealed[:_NONCE_BYTES]
        try:
            return AESGCM(self._key).decrypt(nonce, sealed[_NONCE_BYTES:], path.encode())
        except (InvalidTag, ValueError):  # a file of less than a nonce has no tag either
            raise DamagedError(
                f"{self._bucket.location}/{path} was changed; it is not of this release."
            ) from None

    def refuse_overwriting(self) -> None:
        """Refuse a store that ignores the condition under which files are created once."""
        self._bucket.create("probe", b"")
        self._bucket.refuse_overwriting("probe", b"")

    def end(self) -> None:
        """Remove all files."""
        self._bucket.remove(self._bucket.sizes())
