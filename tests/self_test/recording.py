"""Recording of secret words in this process, and experiments on the words that were recorded.

The functions here replace parts of the running process. They run in the self-test only.
"""

import os
import threading
from contextlib import contextmanager
from itertools import product

import numpy as np
import shuffle_collector
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

import dpindex.mechanism.privatizer
import dpindex.race.sketch
from self_test.words import Recorder

READ_ONCE = "path: words of calls, tasks and threads"

_STRIDE = 4096
_SIEVE_BITS = 20
_DEVIATIONS = 8.0
_LEAST_KEY = 32
_COUNTER_BYTES = 16
_WIDTHS = (np.uint8, np.uint16, np.uint32, np.uint64)
_COUNTS = (1, 13, 4096, 300_001)


@contextmanager
def recorded(recorder=Recorder):
    """Keep the words of every stream that the encoder, a sketch or a shuffle asks for meanwhile."""
    users = (
        dpindex.mechanism.privatizer,
        dpindex.race.sketch,
        shuffle_collector,
    )
    streams = [user.secret_stream for user in users]
    recorders = []

    def recording(stream):
        def record():
            recorders.append(recorder(stream()))
            return recorders[-1]

        return record

    try:
        for user, stream in zip(users, streams, strict=True):
            user.secret_stream = recording(stream)
        yield recorders
    finally:
        for user, stream in zip(users, streams, strict=True):
            user.secret_stream = stream


def words_fault(recorders):
    """No run of words is read twice, by whatever call, task or thread; and every bit is fair.

    Eight bytes every four thousand, and the first of every read, are looked for everywhere, as they
    are and inverted. They meet by chance with probability below 1e-7, and a fair bit is as uneven
    as is refused here with probability below 1e-13.
    """
    reads = []
    for recorder in recorders:
        reads += [read.view(np.uint8) for read in recorder.reads if read.nbytes >= 8]
    if not reads:
        return "no words were read"
    everything = np.concatenate(reads)
    places = []
    start = 0
    for read in reads:
        places.append(np.arange(start, start + len(read) - 7, _STRIDE))
        start += len(read)
    marks = np.concatenate(places)
    repeats = _occurrences(everything, marks) - len(marks)
    count = len(everything) // 8
    words = everything[: 8 * count].reshape(count, 8)
    ones = np.unpackbits(words, axis=1).sum(axis=0)
    excess = np.abs(2.0 * ones - count).max()
    uneven = float(excess / np.sqrt(count))
    if repeats == 0 and uneven <= _DEVIATIONS:
        return ""
    return f"{repeats} places are read again; most uneven bit {uneven:.1f} deviations"


def _occurrences(everything, marks):
    """Return how often the eight bytes at ``marks``, or their inverses, occur; equal ones twice."""
    octets = everything[marks[:, None] + np.arange(8)]
    marked = octets.view(np.uint64).ravel()
    both = np.unique(np.concatenate([marked, ~marked]))
    # Most words are ruled out by their first bits.
    likely = np.zeros(1 << _SIEVE_BITS, dtype=np.bool_)
    high = np.uint64(64 - _SIEVE_BITS)
    likely[(both >> high).astype(np.intp)] = True
    occurrences = 2 * len(marks) - len(both)
    for shift in range(8):
        size = (len(everything) - shift) // 8 * 8
        words = everything[shift : shift + size].copy().view(np.uint64)
        places = (words >> high).view(np.int64)
        words = words[likely[places]]
        nearest = np.searchsorted(both, words).clip(max=len(both) - 1)
        occurrences += int(np.count_nonzero(both[nearest] == words))
    return occurrences


def entropy_fault(stream):
    """A thread's new stream is a function of what the operating system gives it, and of all of it.

    The bytes that one new stream is given are genuine; they are given to others once more, in this
    check's own threads alone, as they are and with one byte changed.
    """
    genuine, first = _first_words(stream, None)
    again = _first_words(stream, genuine)[1]
    decisive = 0
    for place in range(min(len(genuine), 64)):
        changed = bytearray(genuine)
        changed[place] ^= 1
        decisive += _first_words(stream, bytes(changed))[1] != first
    if again != first:
        return "something else than the system's bytes decides the words"
    return "" if decisive >= _LEAST_KEY else f"only {decisive} bytes decide the words"


def cipher_fault(stream):
    """Words of every width are AES-256-CTR of zeros under bytes of the system, all of them.

    A cipher that is asked twice, or for half a word, is no such stream (NIST SP 800-38A, 6.5).
    Every block is computed here by itself, as a counter that is enciphered; the longest requests
    take several pieces of a stream.
    """
    for width, count in product(_WIDTHS, _COUNTS):
        served, words = _first_words(stream, None, count, width)
        if words != _counter_mode(served, len(words)):
            return f"{count} words of type {np.dtype(width)} are others"
    return ""


def _counter_mode(served, size):
    """Return so many bytes under a key of 32 bytes and a first counter of 16; none under others."""
    if len(served) != _LEAST_KEY + _COUNTER_BYTES:
        return b""
    first = int.from_bytes(served[_LEAST_KEY:], "big")
    blocks = -(-size // _COUNTER_BYTES)
    high, low = divmod(first, 1 << 64)
    halves = np.empty((blocks, 2), dtype=">u8")
    steps = np.arange(blocks, dtype=np.uint64)
    lower = np.uint64(low) + steps
    halves[:, 1] = lower
    # A lower half that begins anew adds one to the upper.
    halves[:, 0] = np.uint64(high) + (lower < low)
    counters = halves.tobytes()
    # Each block by itself: what a counter mode makes of zeros.
    cipher = Cipher(algorithms.AES(served[:_LEAST_KEY]), modes.ECB())
    return cipher.encryptor().update(counters)[:size]


def _first_words(
    stream,
    given,
    count=64,
    width=np.uint8,
):
    """Return the system's bytes, or ``given`` ones, for a new thread's stream; and its words."""
    system = os
    ask = system.urandom
    served = bytearray()
    words = []

    def answer(size):
        if threading.current_thread() is not reader:
            return bytes(ask(size))
        fresh = bytes(ask(size))
        if given is not None:
            start = len(served)
            fresh = given[start : start + size].ljust(size, b"\0")
        served.extend(fresh)
        return fresh

    def read():
        words.append(stream().words(count, width).tobytes())

    reader = threading.Thread(target=read)
    try:
        system.urandom = answer
        reader.start()
        reader.join()
    finally:
        system.urandom = ask
    return bytes(served), words[0]
