"""Requests: what each must hold, and the one sentence that refuses anything else.

A sentence never repeats what was sent: no id, no byte of a code, no attribute of a vector.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from dpindex.base.arrays import AnyArray, Doubles
from dpindex.base.errors import DamagedError, InputError
from dpindex.mechanism.codes import Codes, check_format, codes_from_bytes
from dpindex.mechanism.spec import Spec
from dpindex.serve.acceptor import Submission

MAX_CODES = 1000
"""Codes of one submission."""
MAX_BODY = 1 << 22
MAX_QUERIES = 64
_MAX_VECTORS = 1 << 25
MAX_K = 1000

_MAX_ID_CHARACTERS = 64
"""An array of ids is as wide as its longest, for every id of the index."""
_MAX_ID_NUMBER = 1 << 53
"""Every JSON reader has exact whole numbers up to here."""
_KEY_CHARACTERS = range(16, 129)
_ROOM = 4096
"""For what stands around the codes in a body."""


class RefusedError(Exception):
    """An answer other than success: an HTTP status and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def max_rows(spec: Spec) -> int:
    """How many codes one submission may have."""
    return max(1, min(MAX_CODES, (MAX_BODY - _ROOM) // spec.format.max_row_bytes))


def max_body(spec: Spec) -> int:
    """How many bytes a body of codes may have."""
    return max_rows(spec) * spec.format.max_row_bytes + _ROOM


def max_vectors_body(spec: Spec) -> int:
    """How many bytes a body of vectors may have: 32 characters for each attribute."""
    return min(MAX_QUERIES * spec.dim * 32 + _ROOM, _MAX_VECTORS)


def submission(
    body: bytes, ids: str | None, key: str | None, spec: Spec, id_type: type | None
) -> Submission:
    """Checked codes under checked ids.

    Parameters
    ----------
    body : bytes
        As ``dpindex privatize`` writes them.
    ids : str
        A JSON list with an id for each code.
    key : str, optional
        A secret of the sender, by which the submission is known when it is sent again.
    id_type : int, str or None
        What the ids of the index are; None refuses ids.

    Raises
    ------
    RefusedError
        For anything else.
    """
    codes = _codes(body, spec)
    if codes.fingerprint != spec.fingerprint:
        raise RefusedError(
            422, "the codes were made under another spec; GET /spec is that of here."
        )
    if len(codes) > max_rows(spec):
        raise RefusedError(413, f"one submission has at most {max_rows(spec)} codes; send several.")
    if id_type is None:
        if ids is not None:
            raise RefusedError(422, "ids are refused: codes are shuffled here; leave Dpindex-Ids.")
        return Submission(codes, np.empty(0, np.int64), _receipt(key, "", body))
    names = _ids(ids, id_type)
    if len(names) != len(codes):
        raise RefusedError(422, f"there are {len(names)} ids for {len(codes)} codes.")
    return Submission(codes, names, _receipt(key, ids or "", body))


def query_codes(body: bytes, specs: tuple[Spec, ...]) -> Codes:
    """Query codes, made under one of the specs; RefusedError for anything else."""
    codes = _codes(body, specs[0])
    if codes.fingerprint not in {spec.fingerprint for spec in specs}:
        raise RefusedError(422, "the query codes were made under another spec than this index.")
    if len(codes) > MAX_QUERIES:
        raise RefusedError(413, f"one request has at most {MAX_QUERIES} queries; send several.")
    return codes


def query_vectors(body: bytes, dim: int) -> Doubles:
    """Vectors as ``{"vectors": [[…], …]}``; RefusedError for anything else."""
    wrong = RefusedError(
        422, f'the body must be JSON: {{"vectors": [[…], …]}} with {dim} numbers each.'
    )
    try:
        fields = json.loads(body)
        rows = fields["vectors"]
        numbers = all(type(value) in (int, float) for row in rows for value in row)
        vectors = np.array(rows, np.float64)
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        raise wrong from None
    if not numbers or len(fields) != 1 or vectors.ndim != 2 or vectors.shape[1] != dim:
        raise wrong
    if not np.isfinite(vectors).all():
        raise RefusedError(422, "every attribute of a vector must be a finite number.")
    if len(vectors) > MAX_QUERIES:
        raise RefusedError(413, f"one request has at most {MAX_QUERIES} queries; send several.")
    return vectors


def neighbours(text: str | None) -> int:
    """The parameter ``k``, [1, 1000], default 10; RefusedError for anything else."""
    if text is None:
        return 10
    digits = text.isascii() and text.isdigit() and len(text) <= 4
    if not digits or not 1 <= int(text) <= MAX_K:
        raise RefusedError(422, f"k must be a whole number from 1 to {MAX_K}.")
    return int(text)


def _codes(body: bytes, spec: Spec) -> Codes:
    """Codes of the spec's form and at least one, or RefusedError."""
    try:
        codes = codes_from_bytes(body)
    except DamagedError:
        sentence = "the body is no codes that dpindex wrote, or they were damaged on the way."
        raise RefusedError(422, sentence) from None
    try:
        check_format(codes, spec.format)
    except InputError:
        sentence = f"the codes have another form; codes of {spec.format.contents} are expected."
        raise RefusedError(422, sentence) from None
    if len(codes) == 0:
        raise RefusedError(422, "there are no codes in the body.")
    # The spec decodes them, whatever they say of themselves.
    format_ = spec.format if codes.fingerprint == spec.fingerprint else codes.format
    return format_.codes(codes.stored)


def _ids(text: str | None, id_type: type) -> AnyArray:
    kind = "strings" if id_type is str else "whole numbers"
    if text is None:
        raise RefusedError(
            422, "the header Dpindex-Ids is missing: a JSON list, an id for each code."
        )
    try:
        values = json.loads(text) if text.isascii() else None  # headers have no agreed encoding
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, list) or not all(type(value) is id_type for value in values):
        raise RefusedError(422, f"the header Dpindex-Ids must be an ASCII JSON list of {kind}.")
    for row, value in enumerate(values):
        if not _is_id(value):
            allowed = (
                f"1 to {_MAX_ID_CHARACTERS} printable characters"
                if id_type is str
                else f"0 to {_MAX_ID_NUMBER}"
            )
            raise RefusedError(422, f"the id in row {row} is not allowed; an id has {allowed}.")
    if len(set(values)) < len(values):
        raise RefusedError(422, "an id stands twice in Dpindex-Ids; ids must be unique.")
    return np.array(values, np.str_ if id_type is str else np.int64)


def _is_id(value: Any) -> bool:
    if isinstance(value, int):
        return 0 <= value <= _MAX_ID_NUMBER
    return 1 <= len(value) <= _MAX_ID_CHARACTERS and value.isprintable()


def _receipt(key: str | None, ids: str, body: bytes) -> bytes | None:
    """By which a repeated submission is known: whoever has not the key cannot make it."""
    if key is None:
        return None
    if len(key) not in _KEY_CHARACTERS or not (key.isascii() and key.isprintable()):
        few = _KEY_CHARACTERS[0]
        many = _KEY_CHARACTERS[-1]
        raise RefusedError(
            422, f"Idempotency-Key must be {few} to {many} printable ASCII characters."
        )
    parts = (hashlib.sha256(part).digest() for part in (key.encode(), ids.encode(), body))
    return hashlib.sha256(b"".join(parts)).digest()
