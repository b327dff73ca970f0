"""Keyed tags of private content, by which a resumed release recognises its own input."""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from dpindex.base.arrays import AnyArray, issparse

__all__ = ["TAG_BYTES", "ContentKey"]

TAG_BYTES = 16
_KEY_BYTES = 32
_NONCE_BYTES = 12


class ContentKey:
    """A secret key, and the tags of content under it.

    A tag is AES-256-GMAC (NIST SP 800-38D), which runs at the speed of memory, hashed once more
    with BLAKE2b together with the types and shapes. Other content of n blocks of 16 bytes has the
    same tag with chance n·2⁻¹²⁸, whoever chose it without the key. Without the key a tag says
    nothing about the content. Key and tags never lie where codes are published.

    Parameters
    ----------
    key : bytes, optional
        32 bytes; default new ones.

    >>> key, rows = ContentKey(), np.eye(3)
    >>> key.tag(0, rows) == key.tag(0, rows), key.tag(0, rows) == key.tag(0, rows[::-1])
    (True, False)
    >>> ContentKey().tag(0, rows) == key.tag(0, rows)
    False
    """

    def __init__(self, key: bytes | None = None) -> None:
        if key is None:
            key = secrets.token_bytes(_KEY_BYTES)
        self.key = key

    def tag(self, place: int, *parts: Any) -> bytes:
        """Return the tag of arrays, CSR matrices and byte strings at a place.

        Parameters
        ----------
        place : int
            Where in the input the content stands; content elsewhere has another tag.
        parts : array, CSR matrix, bytes or None
        """
        arrays = [array for part in parts for array in _arrays(part)]
        form = repr((place, [(array.dtype.str, array.shape) for array in arrays])).encode()
        nonce = hashlib.blake2b(form, key=self.key, digest_size=_NONCE_BYTES).digest()
        coder = Cipher(algorithms.AES(self.key), modes.GCM(nonce)).encryptor()
        for array in arrays:
            coder.authenticate_additional_data(array.reshape(-1).view(np.uint8).data)
        coder.finalize()
        return hashlib.blake2b(form + coder.tag, key=self.key, digest_size=TAG_BYTES).digest()


def _arrays(part: Any) -> list[AnyArray]:
    """Return the contiguous arrays that a part consists of."""
    if part is None:
        return []
    if isinstance(part, bytes):
        return [np.frombuffer(part, np.uint8)]
    if issparse(part):
        return [np.ascontiguousarray(array) for array in (part.indptr, part.indices, part.data)]
    return [np.ascontiguousarray(part)]
