"""The secret stream: AES-256-CTR from the operating system, never twice the same words."""

import copy
import os
import sys
import threading

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from helpers.common import python, travelled

from dpindex.mechanism.secret_random import SecretStream, secret_stream

WORDS = (np.uint8, np.uint16, np.uint32, np.uint64)

# NIST SP 800-38A, F.5.5: CTR-AES256.Encrypt.
KEY = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
COUNTER = bytes.fromhex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff")
PLAINTEXT = bytes.fromhex(
    "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
    "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710"
)
CIPHERTEXT = bytes.fromhex(
    "601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5"
    "2b0930daa23de94ce87017ba2d84988ddfc9c58db67aada613c2dd08457941a6"
)
NIST_STREAM = bytes(a ^ b for a, b in zip(PLAINTEXT, CIPHERTEXT, strict=True))


def _keyed(monkeypatch, *entropy):
    """A stream whose requests to the operating system are answered with ``entropy`` in turn."""
    answers = list(entropy)

    def urandom(count):
        answer = answers.pop(0)
        assert len(answer) == count
        return answer

    monkeypatch.setattr(os, "urandom", urandom)
    return SecretStream()


def _copied(stream):
    """The stream as a snapshot resumes it: the same state in the same process."""
    other = SecretStream.__new__(SecretStream)
    vars(other).update(vars(stream))
    return other


def _drawn(stream):
    """256 bits of it."""
    return stream.words(32, np.uint8).tobytes()


@pytest.mark.parametrize("dtype", WORDS)
def test_known_answer_of_nist(monkeypatch, dtype):
    stream = _keyed(monkeypatch, KEY, COUNTER)
    words = stream.words(64 // np.dtype(dtype).itemsize, dtype)
    assert words.dtype == dtype
    assert words.tobytes() == NIST_STREAM


def test_a_request_of_any_size_is_one_key_stream(monkeypatch):
    """Against one independent encryption, over block edges and partial blocks of the cipher."""
    sizes = [1, 3, 15, 16, 17, 0, (1 << 20) - 1, 1 << 20, (1 << 21) + 5, 7]
    keys = [bytes([number]) * 32 for number in range(len(sizes))]
    entropy = [part for key in keys for part in (key, COUNTER)]
    stream = _keyed(monkeypatch, *entropy)
    for key, size in zip(keys, sizes, strict=True):
        cipher = Cipher(algorithms.AES(key), modes.CTR(COUNTER)).encryptor()
        wanted = cipher.update(bytes(size))
        assert stream.words(size, np.uint8).tobytes() == wanted


def test_finding_11_a_resumed_snapshot_draws_other_words(monkeypatch):
    """Equal state, equal process id, and no fork: only fresh entropy tells the two apart."""
    with monkeypatch.context() as snapshot:
        snapshot.setattr(os, "urandom", bytes)
        streams = [SecretStream(), SecretStream()]
        assert len({_drawn(stream) for stream in streams}) == 1
    streams += [_copied(stream) for stream in streams]
    drawn = {_drawn(stream) for stream in streams for _ in range(3)}
    assert len(drawn) == 12


def test_no_two_threads_draw_the_same_words():
    drawn = []

    def work():
        drawn.extend(_drawn(secret_stream()) for _ in range(100))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(drawn) == 800
    assert len(set(drawn)) == 800


@pytest.mark.parametrize("clone", [travelled, copy.copy, copy.deepcopy])
def test_a_copy_draws_other_words(clone):
    stream = SecretStream()
    copied = clone(stream)
    drawn = {_drawn(one) for one in (stream, copied) for _ in range(2)}
    assert len(drawn) == 4


FORK = """
import os
import numpy as np
from dpindex.mechanism.secret_random import SecretStream, secret_stream

def draw(streams):
    return b"".join(stream.words(4, np.uint64).tobytes() for stream in streams)

# A stream of this thread's own, one that was never used, and one that has been used.
streams = [secret_stream(), SecretStream(), SecretStream()]
streams[0].words(5, np.uint8), streams[2].words(1000, np.uint8)
drawn = set()
children = []
for generation in range(3):
    read, write = os.pipe()
    if os.fork() == 0:
        if os.fork() == 0:  # a grandchild that forks before it draws
            os.write(write, draw(streams))
            os._exit(0)
        os.wait()
        os.write(write, draw(streams))
        os._exit(0)
    os.close(write)
    children.append(read)
blocks = [draw(streams)]
for read in children:
    os.wait()
    while data := os.read(read, 96):
        blocks.append(data)
words = [block[i : i + 32] for block in blocks for i in range(0, len(block), 32)]
assert len(words) == 7 * 3, len(words)
print(len(set(words)))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_forked_processes_draw_other_words_than_their_parents():
    """Parent, three children and three grandchildren with three inherited streams each."""
    assert python("-c", FORK) == "21\n"


RAW_FORK = """
import ctypes
import os
import numpy as np
from dpindex.mechanism.secret_random import secret_stream

def draw():
    return secret_stream().words(4, np.uint64).tobytes()

drawn = [draw()]
read, write = os.pipe()
if ctypes.PyDLL(None).fork() == 0:
    os.write(write, draw())
    os._exit(0)
os.close(write)
drawn += [draw(), os.read(read, 32)]
os.wait()
print(len(set(drawn)), len(drawn[-1]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs the C library's fork")
def test_a_fork_that_python_does_not_notice():
    assert python("-c", RAW_FORK) == "3 32\n"
