"""The self-test of an installation: known answers, and one decoded release of each kind of code.

The cipher must give NIST's key stream, every kind of law the outcomes that are pinned below, and
codes that are released here must be the law's outcomes of the secret words that were read for them.
It takes a second and shows that the libraries underneath compute as they should on this machine.
Whether the guarantee holds is what :func:`dpindex.audit.verify` proves; every way of release is
compared with an independent implementation in the tests of the package.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any

import numpy as np

from dpindex.audit.law_verifiers import law_verifier_class
from dpindex.audit.verdict import Check, LawVerifier
from dpindex.base.arrays import AnyArray, Doubles
from dpindex.mechanism.method_table import find_method
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.public_parts import Codebook
from dpindex.mechanism.public_random import BitSource, PublicStream
from dpindex.mechanism.secret_random import fill
from dpindex.mechanism.spec import Spec
from dpindex.privacy import attribute, record
from dpindex.race import PStable, SketchSpec

_KEY = "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4"
_COUNTER = "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"
_KEY_STREAM = "0bdf7df1591716335e9a8b15c860c5025a6e699d536119065433863c8f657b94"

_DIM = 24
_ROWS = 200


_KNOWN: dict[str, tuple[str, dict[str, Any]]] = {
    "dp-oporp-staircase": ("e437570c9d0f6a4a", {"k": 8}),
    "dp-oporp": ("238f2f4241e44066", {"k": 8, "delta": 1e-6}),
    "dp-rp-g-opt": ("3b7bc832b5e80b42", {"k": 8, "epsilon": 0.1, "delta": 1e-6}),
    "dp-rp-l": ("9b18a6fa4da971cf", {"k": 8, "epsilon": 0.1}),
    "raw-square-wave": ("c3bc620a40a867ee", {"bounds": (0.0, 1.0)}),
    "idp-signrp-rr": ("3968587a542f2dbf", {"k": 8}),
    "idp-signrp-g": ("2d789a7a57a058a1", {"k": 8, "delta": 1e-6}),
    "dp-signoporp-geometric": ("dac01f9055327b79", {"k": 8}),
    "record-cap": ("585bcd55e79bd573", {"k": 64}),
    "record-codebook": ("79c13cb04b08599e", {}),
    "codebook-softmax": ("f33640540ee1fe5b", {"record_epsilon": 8.0}),
    "RACE": ("b9c07ab3b85ce346", {}),
}
"""One method of every kind of law: the digest of its outcomes on public words, and its spec."""


def self_test() -> tuple[Check, ...]:
    """Known answers of the cipher and of every kind of law; one decoded release of each format.

    >>> all(check.passed for check in self_test())
    True
    """
    methods = [name for name in _KNOWN if name != "RACE"]
    formats = {type(spec.format): spec for spec in map(_spec, reversed(methods))}
    releases = map(_release_check, formats.values())
    return (_cipher_check(), *map(_sampler_check, _KNOWN), *releases)


def known_answers(kind: type[LawVerifier]) -> list[Check]:
    """The known answers of the kind of law that this class verifies."""
    return [_sampler_check(name) for name in _KNOWN if _kind(name) is kind]


@cache
def _kind(method: str) -> type[LawVerifier]:
    """Kept, as a law is calibrated in a tenth of a second and a report needs those of one kind."""
    return law_verifier_class(_spec(method))


def _spec(method: str) -> Any:
    if method == "RACE":
        return SketchSpec(3, 10, 32, PStable(1.0, 2), 1.0)
    fields: dict[str, Any] = {"epsilon": 1.0, "adjacency": attribute(1.0), **_KNOWN[method][1]}
    row = find_method(method)
    if "record" in row.adjacencies:
        fields["adjacency"] = record()
    if row.family.public is Codebook:
        words = PublicStream(0, "audit/self-test").words(50 * _DIM, np.uint16)
        fields["codebook"] = Codebook(words.reshape(50, _DIM) - 2.0**15)
    return Spec(method, _DIM, **fields)


def _vectors(spec: Spec) -> Doubles:
    """Public vectors within the bounds."""
    low, high = spec.bounds
    words = PublicStream(1, "audit/self-test").words(_ROWS * spec.dim, np.uint32)
    return words.reshape(_ROWS, spec.dim) * 2.0**-32 * (high - low) + low


class _PublicWords(PublicStream):
    """Public words that a sampler may write over, as it may over secret ones."""

    def words(self, count: int, dtype: type[np.unsignedinteger[Any]]) -> AnyArray:
        return super().words(count, dtype).copy()


class _Recorder:
    """A stream that passes on the words of another and keeps a copy of them."""

    def __init__(self, stream: BitSource) -> None:
        self._stream = stream
        self.reads: list[AnyArray] = []

    def words(self, count: int, dtype: type[np.unsignedinteger[Any]]) -> AnyArray:
        words = self._stream.words(count, dtype)
        self.reads.append(words.copy())
        return words


class _Again:
    """Recorded words, dealt in the order in which they were read."""

    def __init__(self, reads: list[AnyArray]) -> None:
        self.left = reads

    def words(self, count: int, dtype: type[np.unsignedinteger[Any]]) -> AnyArray:
        return self.left.pop(0)


def _cipher_check() -> Check:
    found = np.empty(32, dtype=np.uint8)
    fill(found, bytes.fromhex(_KEY), bytes.fromhex(_COUNTER))
    return Check(
        "known answer: the cipher",
        found.tobytes().hex(),
        _KEY_STREAM,
        "NIST SP 800-38A, F.5.5: two blocks of the key stream of AES-256-CTR",
        found.tobytes().hex() == _KEY_STREAM,
    )


def _sampler_check(method: str) -> Check:
    """Outcomes of public words in place of secret ones, as eight signs a byte or little-endian."""
    spec = _spec(method)
    words = _PublicWords(2, "audit/self-test")
    if method == "RACE":
        outcomes = spec.law.source.sample(_ROWS * _DIM, words)
    else:
        exact = Privatizer(spec).project(_vectors(spec))
        outcomes = spec.format.pack(spec.law.perturb(exact, words))
    little = outcomes.astype(np.dtype(outcomes.dtype).newbyteorder("<"))
    found = hashlib.sha256(little.tobytes()).hexdigest()[:16]
    answer = _KNOWN[method][0]
    return Check(
        f"known answer: {method}",
        found,
        answer,
        "a law is a fixed function of its words: other outcomes are those of another law",
        found == answer,
    )


def _release_check(spec: Spec) -> Check:
    """Codes under fresh secret words are the outcomes of the law on a record of these words."""
    privatizer = Privatizer(spec)
    recorder = _Recorder(privatizer.stream())
    privatizer.stream = lambda: recorder  # type: ignore[method-assign]
    vectors = _vectors(spec)
    codes = privatizer.privatize(vectors, threads=1)
    words = _Again(recorder.reads)
    outcomes = spec.law.perturb(privatizer.project(vectors), words)
    same = np.array_equal(spec.format.pack(outcomes), codes.stored) and not words.left
    return Check(
        f"a release: {codes.format.name} of {spec.method}",
        f"{len(codes)} codes" if same else "other codes than those of the words",
        "the outcomes of the recorded words",
        "what is released is what the law makes of the exact integers and the words, and no more",
        same,
    )
