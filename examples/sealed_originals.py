"""Shuffled codes with sealed originals: a smaller epsilon, and candidates that can be re-ranked.

In an index whose codes stand in a secret random order, without ids, a code hides among all others
(docs/guarantees.md, "Codes without a sender"). At epsilon 8 for one code, a million codes promise
(0.56, 1e-8) together. Each row carries its id and vector, sealed with a key of the holder, so that
the holder can still re-rank candidates. A search finds what ``record-codebook`` finds at epsilon
8.

- The smaller epsilon holds only while nothing else links a row to a person. Whoever makes or sees
  the order, or the key, has the promise of one code alone. So has an attacker who sees the
  ciphertext of a known record twice, or its size: pad ids to one length, and publish once.
- The sealed columns are hidden by AES-GCM. If the key leaks, they hide nothing.
- Records that are added later stand apart from the shuffle.
- Queries are not shuffled. A private one costs its own epsilon.
"""

import os

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import dpindex as dpi
from dpindex.accounting import shuffled

rng = np.random.default_rng(0)
public, private = rng.normal(size=(500, 16)), rng.normal(size=(2000, 16)).astype(np.float32)
key = AESGCM(AESGCM.generate_key(128))


def sealed(number, vector):
    nonce = os.urandom(12)
    plain = int(number).to_bytes(8, "little") + vector.tobytes()
    return (nonce + key.encrypt(nonce, plain, None)).hex()


def opened(text):
    data = bytes.fromhex(text)
    plain = key.decrypt(data[:12], data[12:], None)
    return int.from_bytes(plain[:8], "little"), np.frombuffer(plain[8:], np.float32)


order = np.argsort(np.frombuffer(os.urandom(8 * len(private)), np.uint64))
terms = {"epsilon": 8.0, "adjacency": dpi.record(), "codebook": dpi.fit_codebook(public, 40)}
index = dpi.PrivateIndex(dpi.Spec("record-codebook", 16, subset=1, **terms))
rows = [sealed(number, private[number]) for number in order]
index.add(private[order], payload={"sealed": rows})
query = private[0]
hits = index.search(query, k=100)
found = [opened(text) for text in hits.payload["sealed"].to_pylist()]
found.sort(key=lambda pair: -float(pair[1] @ query))
print(found[0][0], shuffled(index.spec.guarantee, len(private), 1e-8))
