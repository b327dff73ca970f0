"""Secret randomness: AES-256-CTR keyed from the operating system. Never seeded, stored or returned.

Noise drawn from here is what the guarantee rests on. Each thread has a stream of its own, and every
stream takes a new key after a fork: a forked child that kept its parent's key would add the same
noise to other data, and the difference of two codes would be noiseless. Python's own hook tells of
a fork; the process id does where other code forked past it.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

_BLOCK = 1 << 18
"""Bytes enciphered at a time: large enough that the call costs nothing, small enough for L2."""

_BYTES_PER_KEY = 1 << 36
"""A key is replaced after 64 GiB, far below any bound on CTR distinguishability."""


class SecretStream:
    """An unending stream of secret uniform bits. Use one per thread: see :func:`secret_stream`."""

    def __init__(self) -> None:
        self._zeros = bytes(_BLOCK)
        self._rekey()

    def _rekey(self) -> None:
        # A fresh key and a fresh counter block, both from the OS entropy pool.
        cipher = Cipher(algorithms.AES(os.urandom(32)), modes.CTR(os.urandom(16)))
        self._encryptor = cipher.encryptor()
        self._used = 0
        self._generation = _generation
        self._process = os.getpid()

    def words(self, count: int, dtype: type[np.unsignedinteger[Any]]) -> npt.NDArray[Any]:
        """``count`` independent uniform words of an unsigned integer ``dtype``, shape (count,)."""
        out = np.empty(count, dtype=dtype)
        forked = self._generation != _generation or self._process != os.getpid()
        if forked or self._used > _BYTES_PER_KEY:
            self._rekey()
        view = out.view(np.uint8).data
        for start in range(0, len(view), _BLOCK):
            piece = view[start : start + _BLOCK]
            zeros = self._zeros if len(piece) == _BLOCK else self._zeros[: len(piece)]
            self._encryptor.update_into(zeros, piece)
        self._used += len(view)
        return out

    def __reduce__(self) -> str:
        raise TypeError("a secret stream cannot be copied or stored: its noise must be used once")


_generation = 0


def _after_fork() -> None:
    global _generation
    _generation += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class _PerThread(threading.local):
    def __init__(self) -> None:
        self.stream = SecretStream()


_streams = _PerThread()


def secret_stream() -> SecretStream:
    """The calling thread's own secret stream."""
    return _streams.stream
