"""Secret randomness: AES-256-CTR, keyed by the operating system anew for every draw.

Noise drawn from here is what the guarantee rests on. Two draws from one key stream would add the
same noise to different data, and the difference of their codes would be noiseless. A key that
outlives a draw is copied by whatever copies the process: a fork, a snapshot, a cloned virtual
machine. So no key does: every draw has a new one, and nothing is kept between draws. That costs
about 8 µs a draw, some milliseconds for a gigabyte of noise.

What remains: a copy made while a vector is being privatized holds the words that were drawn for it
already. And a copied machine must not repeat its entropy: Linux sees to that since 5.18 where the
hypervisor tells it of the copy (VMGENID).
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from dpindex.base.arrays import AnyArray

_ENCIPHERED_BYTES = 1 << 20
"""Bytes enciphered at a time: threads wait for each other before and after every call."""

_ZEROS = bytes(_ENCIPHERED_BYTES)


class SecretStream:
    """An unending stream of secret uniform bits, without any state: threads may share it."""

    def words(self, count: int, dtype: type[np.unsignedinteger[Any]]) -> AnyArray:
        """``count`` independent uniform words of an unsigned integer ``dtype``, shape (count,)."""
        out = np.empty(count, dtype=dtype)
        # A fresh key and a fresh counter block, both from the OS entropy pool.
        fill(out, os.urandom(32), os.urandom(16))
        return out


def fill(out: AnyArray, key: bytes, counter: bytes) -> None:
    """Write the key stream of AES-256-CTR over ``out`` (NIST SP 800-38A, 6.5)."""
    encryptor = Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor()
    view = out.view(np.uint8).data
    for start in range(0, len(view), _ENCIPHERED_BYTES):
        piece = view[start : start + _ENCIPHERED_BYTES]
        zeros = _ZEROS if len(piece) == _ENCIPHERED_BYTES else _ZEROS[: len(piece)]
        encryptor.update_into(zeros, piece)


secret_stream = SecretStream
"""Returns a secret stream: all are alike, as none has a state."""
