"""The claim of an unfinished build: tells it and the vectors it is made of from any other."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from dpindex.base.arrays import AnyArray, issparse
from dpindex.base.files import pack, unpack

_KEY_BYTES, _NONCE_BYTES, _TAG_BYTES = 32, 12, 16


@dataclass
class Claim:
    """What makes an unfinished build one release: a token, and tags of its input under a key.

    A tag is AES-256-GMAC (NIST SP 800-38D), which is computed at the speed of memory. Other content
    of n blocks of 16 bytes has the same tag with chance n·2⁻¹²⁸, whoever chose it without the key.
    Without the key tags say nothing about the vectors, and they never lie in the index.

    Attributes
    ----------
    token : str
        Names the build, in its manifest and in the ledger.
    key : bytes
        Of this build alone.
    tags : dict from int to bytes
        Of shape and ids at −1, of each chunk at its first row.
    fixed : bool
        Whether all tags are known.

    >>> claim, rows = Claim(), np.eye(3)
    >>> claim.recognises(0, rows), claim.recognises(0, rows), claim.recognises(0, rows[::-1])
    (True, True, False)
    >>> Claim.from_bytes(claim.to_bytes()).recognises(3, rows)  # it knows all its rows
    False
    """

    token: str = field(default_factory=lambda: secrets.token_hex(16))
    key: bytes = field(default_factory=lambda: secrets.token_bytes(_KEY_BYTES))
    tags: dict[int, bytes] = field(default_factory=dict)
    fixed: bool = False

    def recognises(self, place: int, *parts: Any) -> bool:
        """Whether these arrays or CSR matrices are what was first seen at this place."""
        tag = self._tag(place, [array for part in parts for array in _arrays(part)])
        if not self.fixed:
            self.tags.setdefault(place, tag)
        return self.tags.get(place) == tag

    def _tag(self, place: int, arrays: list[AnyArray]) -> bytes:
        form = repr((place, [(array.dtype.str, array.shape) for array in arrays])).encode()
        nonce = hashlib.blake2b(form, key=self.key, digest_size=_NONCE_BYTES).digest()
        coder = Cipher(algorithms.AES(self.key), modes.GCM(nonce)).encryptor()
        for array in arrays:
            coder.authenticate_additional_data(array.reshape(-1).view(np.uint8).data)
        coder.finalize()
        return coder.tag

    def to_bytes(self) -> bytes:
        """A container of token, key and tags."""
        tags = b"".join(self.tags.values())
        arrays: dict[str, AnyArray] = {
            "key": np.frombuffer(self.key, np.uint8),
            "places": np.array(list(self.tags), np.int64),
            "tags": np.frombuffer(tags, np.uint8).reshape(-1, _TAG_BYTES),
        }
        return pack("claim", {"token": self.token}, arrays)

    @classmethod
    def from_bytes(cls, data: bytes) -> Claim:
        """The inverse of :meth:`to_bytes`; InputError for anything else."""
        facts, arrays = unpack(data, "claim")
        tags = zip(arrays["places"].tolist(), arrays["tags"], strict=True)
        known = {place: tag.tobytes() for place, tag in tags}
        return cls(facts["token"], arrays["key"].tobytes(), known, fixed=True)


def _arrays(part: Any) -> list[AnyArray]:
    """The arrays that a part consists of, contiguous."""
    found = (part.indptr, part.indices, part.data) if issparse(part) else (part,)
    return [np.ascontiguousarray(array) for array in found]
