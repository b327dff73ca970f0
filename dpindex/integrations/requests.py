"""Requests to a collector: tokens and their roles, and checks of everything that is sent.

A sentence never repeats what was sent: no id, no byte of a code, no attribute of a vector.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Literal, get_args

import numpy as np

from dpindex.base.arrays import AnyArray, Doubles, in_units_of_largest
from dpindex.base.checks import whole_number
from dpindex.base.errors import DamagedError, InputError, naming
from dpindex.base.files import AnyPath, read_private_file
from dpindex.base.ids import kind_of_ids
from dpindex.decode.base import Metric
from dpindex.index.originals import Candidates, Holder
from dpindex.mechanism.codes import Codes, check_format, codes_from_bytes
from dpindex.mechanism.spec import Spec

MAX_CODES = 1000
"""Codes of one submission."""
MAX_BODY = 1 << 22
MAX_QUERIES = 64
MAX_K = 1000
MAX_CANDIDATES = 1000
"""Candidates of one request."""
PER_MINUTE = 60_000
"""Candidates that one token may ask about in a minute, where no other number is named."""
Role = Literal["submit", "search", "rerank", "reaches", "metrics"]

_MAX_VECTORS = 1 << 25
_MAX_ID_CHARACTERS = 64
"""Of a submitted id: an array of ids is as wide as its longest, for every id of the index."""
_MAX_CANDIDATE_CHARACTERS = 1 << 10
_MAX_ID_NUMBER = 1 << 53
"""Every JSON reader has exact whole numbers up to here."""
_KEY_CHARACTERS = range(16, 129)
_ROOM = 4096
"""For what stands around the codes in a body."""
_NUMBER_BYTES = 32
_MAX_TOKENS = 1 << 20
_LEAST_CHARACTERS = 32
_log = logging.getLogger(__name__)


class RefusedError(Exception):
    """An answer other than success: an HTTP status and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Tokens:
    """Bearer tokens by role. Only their SHA-256 is kept.

    Parameters
    ----------
    text : str
        A line for each token: the role, ``submit``, ``search``, ``rerank``, ``reaches`` or
        ``metrics``, and the token, of at least 32 printable ASCII characters. Empty lines and lines
        that begin with ``#`` are comments. A token may have several roles, each on a line of its
        own.

    Raises
    ------
    InputError
        For any other line, which is named by its number, and if there is no token.

    >>> tokens = Tokens("submit " + 32 * "a")
    >>> tokens.roles(32 * "a"), tokens.roles(32 * "b")
    ({'submit'}, set())
    """

    def __init__(self, text: str) -> None:
        self._known: list[tuple[bytes, str]] = []
        for number, line in enumerate(text.splitlines(), 1):
            role, _, token = line.strip().partition(" ")
            token = token.strip()
            if not role or role.startswith("#"):
                continue
            if role not in get_args(Role):
                roles = ", ".join(get_args(Role))
                raise InputError(f"line {number} must begin with one of {roles}, then a token.")
            is_plain = token.isascii() and token.isprintable() and " " not in token
            if len(token) < _LEAST_CHARACTERS or not is_plain:
                raise InputError(
                    f"line {number} needs a token of at least {_LEAST_CHARACTERS} printable ASCII "
                    f"characters without spaces."
                )
            self._known.append((_digest(token), role))
        if not self._known:
            raise InputError("there is no token; write lines such as: submit TOKEN.")

    @classmethod
    def read(cls, path: AnyPath) -> Tokens:
        """The tokens in a file that its owner alone can read; InputError begins with the path."""
        data = read_private_file(Path(path), _MAX_TOKENS)
        with naming(os.fspath(path)):
            if not data.isascii():
                raise InputError("it must be ASCII text.")
            return cls(data.decode())

    def roles(self, token: str) -> set[str]:
        """The roles of a token, none if it is unknown; each token of the file is compared."""
        given = _digest(token)
        roles = set()
        for digest, role in self._known:
            if hmac.compare_digest(given, digest):
                roles.add(role)
        return roles

    @staticmethod
    def name(token: str) -> str:
        """Return the name of a token in logs: the beginning of its hash.

        >>> Tokens.name(32 * "a")
        'token 3ba3f5f4'
        """
        return f"token {_digest(token).hex()[:8]}"


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def max_rows(spec: Spec) -> int:
    """How many codes one submission may have."""
    fitting = (MAX_BODY - _ROOM) // spec.format.max_row_bytes
    return max(1, min(MAX_CODES, fitting))


def max_body(spec: Spec) -> int:
    """How many bytes a body of codes may have."""
    return max_rows(spec) * spec.format.max_row_bytes + _ROOM


def max_vectors_body(spec: Spec) -> int:
    """How many bytes a body of vectors may have."""
    return min(MAX_QUERIES * spec.dim * _NUMBER_BYTES + _ROOM, _MAX_VECTORS)


def sent_codes(body: bytes, specs: Sequence[Spec], most: int) -> Codes:
    """At most ``most`` codes of a body, made under one of the specs; RefusedError otherwise."""
    spec = specs[0]
    try:
        codes = codes_from_bytes(body)
        check_format(codes, spec.format)
    except DamagedError:
        sentence = "the body is not what dpindex writes as codes, or was damaged on the way."
        raise RefusedError(422, sentence) from None
    except InputError:
        sentence = f"the codes have another form; codes of {spec.format.contents} are expected."
        raise RefusedError(422, sentence) from None
    known = {spec.fingerprint: spec for spec in specs}
    if codes.fingerprint not in known:
        raise RefusedError(422, "the codes were made under another spec than this index.")
    if not 0 < len(codes) <= most:
        raise RefusedError(
            413 if len(codes) else 422,
            f"a body has 1 to {most} codes here, not {len(codes)}; send several.",
        )
    # The spec decodes them, whatever they say of themselves.
    return known[codes.fingerprint].format.codes(codes.stored)


def receipt(key: str | None, *parts: bytes) -> bytes | None:
    """Return a hash of a key and what was sent under it; None without a key.

    Nobody without the key can compute it. RefusedError for a key that is easily guessed.
    """
    if key is None:
        return None
    is_plain = key.isascii() and key.isprintable()
    if len(key) not in _KEY_CHARACTERS or not is_plain:
        raise RefusedError(422, "Idempotency-Key must be 16 to 128 printable ASCII characters.")
    whole = hashlib.sha256()
    for part in (key.encode(), *parts):
        whole.update(hashlib.sha256(part).digest())
    return whole.digest()


def sent_ids(text: str | None, id_type: type, count: int) -> AnyArray:
    """The ids of a header, a JSON list of ``count``; RefusedError for anything else."""
    kind = kind_of_ids(id_type is str)
    wrong = RefusedError(
        422,
        f"the header Dpindex-Ids must be an ASCII JSON list of {count} different {kind}, one for "
        f"each code and of the type that the index has.",
    )
    if text is None or not text.isascii():  # headers have no agreed encoding
        raise wrong
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        raise wrong from None
    _check_ids(values, id_type, wrong)
    if not len(values) == len(set(values)) == count:
        raise wrong
    for row, value in enumerate(values):
        if id_type is str:
            allowed = f"1 to {_MAX_ID_CHARACTERS} printable characters"
            good = 1 <= len(value) <= _MAX_ID_CHARACTERS and value.isprintable()
        else:
            allowed = f"0 to {_MAX_ID_NUMBER}"
            good = 0 <= value <= _MAX_ID_NUMBER
        if not good:
            raise RefusedError(422, f"the id in row {row} is not allowed; an id has {allowed}.")
    return np.array(values, np.str_ if id_type is str else np.int64)


def check_sent_ids(ids: AnyArray) -> None:
    """RefusedError for numbers of hits that JSON readers would round."""
    if ids.dtype.kind == "i" and ids.size and int(np.abs(ids).max()) > _MAX_ID_NUMBER:
        raise RefusedError(
            409,
            f"an id that was found exceeds {_MAX_ID_NUMBER}, and readers of JSON would round it; "
            f"an index that is served needs smaller ids, or text.",
        )


def _check_ids(values: Any, id_type: type, wrong: RefusedError) -> None:
    if not isinstance(values, list) or not values:
        raise wrong
    if not all(type(value) is id_type for value in values):
        raise wrong


def query_vectors(body: bytes, dim: int) -> Doubles:
    """Vectors as ``{"vectors": [[…], …]}``; RefusedError for anything else."""
    wrong = RefusedError(
        422, f'the body must be JSON: {{"vectors": [[…], …]}} with {dim} numbers each.'
    )
    # Before an object is made of each: a list takes 34 times the bytes of its brackets.
    if body.count(b"[") > MAX_QUERIES + 1:
        raise RefusedError(413, f"one request has at most {MAX_QUERIES} queries; send several.")
    most = {b",": MAX_QUERIES * (dim + 1), b"{": 1, b'"': 2}
    if any(body.count(sign) > times for sign, times in most.items()):
        raise wrong
    (rows,) = _fields(body, ["vectors"], wrong)
    if not isinstance(rows, list) or not rows:
        raise wrong
    if len(rows) > MAX_QUERIES:
        raise RefusedError(413, f"one request has at most {MAX_QUERIES} queries; send several.")
    return np.array([_vector(row, dim, wrong) for row in rows])


def neighbours(parameters: Sequence[tuple[str, str]]) -> int:
    """The one parameter of a search, ``k``, [1, 1000], default 10; RefusedError for all others."""
    if not parameters:
        return 10
    (name, text), *others = parameters
    if name != "k" or others:
        raise RefusedError(422, "k, given once, is all that a search takes beside its body.")
    if not re.fullmatch("[1-9][0-9]{0,2}|1000", text):
        raise RefusedError(422, f"k must be a whole number from 1 to {MAX_K}.")
    return int(text)


def _fields(body: bytes, names: list[str], wrong: RefusedError) -> list[Any]:
    """The fields of a JSON object that has these and no others."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        raise wrong from None
    if not isinstance(fields, dict) or fields.keys() != set(names):
        raise wrong
    return [fields[name] for name in names]


def _vector(numbers: Any, dim: int, wrong: RefusedError) -> Doubles:
    """A list of finite JSON numbers as a vector."""
    if not isinstance(numbers, list) or len(numbers) != dim:
        raise wrong
    if not all(type(number) in (int, float) for number in numbers):
        raise wrong
    try:
        vector = np.array(numbers, np.float64)
    except OverflowError:
        raise wrong from None
    if not np.isfinite(vector).all():
        raise RefusedError(422, "every attribute of a vector must be a finite number.")
    return vector


@dataclass
class Comparisons:
    """Compares a query with the original vectors of candidates.

    Every answer tells the asker about vectors what no epsilon bounds, so the route is off unless
    the holder names the vectors, has a role of its own, and counts what each token asks.

    Parameters
    ----------
    holder : Holder
        Who has the vectors.
    spec : Spec
    metric : "cosine", "ip" or "l2"
        Of the index.
    per_minute : int
        Candidates that one token may ask about in a minute, [1, ∞).
    clock : callable
        Returns seconds.

    >>> import dpindex as dpi
    >>> spec = Spec("dp-oporp-staircase", dim=2, k=2, epsilon=2.0, adjacency=dpi.attribute(1.0))
    >>> comparisons = Comparisons(dpi.Originals(np.eye(2), ids=["a", "b"]), spec, "cosine")
    >>> comparisons.answer(b'{"query": [3, 4], "ids": ["b", "nobody"]}', str, "who asks")
    [0.8, None]
    """

    holder: Holder
    spec: Spec
    metric: Metric
    per_minute: int = PER_MINUTE
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        whole_number(self.per_minute, "per_minute", 1, 1 << 53)
        self._lock = Lock()
        self._asked: dict[str, tuple[float, float]] = {}

    @property
    def max_body(self) -> int:
        """Bytes that a request may have."""
        return _NUMBER_BYTES * self.spec.dim + _MAX_CANDIDATE_CHARACTERS * MAX_CANDIDATES

    def answer(
        self, body: bytes, id_type: type, asker: str, *, yes_or_no: bool = False
    ) -> list[float | None] | list[bool | None]:
        """Return the similarity of each candidate, None for an id without a vector.

        Parameters
        ----------
        body : bytes
            JSON: ``{"query": […], "ids": […]}``.
        id_type : str or int
        asker : str
            Whose requests are counted together, and what the log calls them.
        yes_or_no : bool
            Return in its place whether it reaches the number ``threshold`` of the body; under
            ``l2`` minus the squared distance does.

        Raises
        ------
        RefusedError
            For another body, too many candidates, and too many in a minute.
        """
        query, ids, threshold = self._request(body, id_type, yes_or_no)
        self._count(asker, len(ids))
        candidates = Candidates(ids[None], None, 0)
        holder = self.holder.within(self.spec)
        (similarity,) = holder.similarities(query[None], candidates, self.metric)
        known = np.isfinite(similarity)
        # No id, no number of the query and no similarity is logged.
        _log.info("%s asked about %d candidates; %d answered", asker, len(ids), known.sum())
        answers: AnyArray = similarity
        if threshold is not None:
            nearness = similarity
            if self.metric == "l2":
                nearness = -similarity
            answers = nearness >= threshold
        answers = answers.astype(object)
        answers[~known] = None
        return list(answers)

    def _request(
        self, body: bytes, id_type: type, yes_or_no: bool
    ) -> tuple[Doubles, AnyArray, float | None]:
        """The query, the ids and, for a yes or no, the threshold of a body."""
        kind = kind_of_ids(id_type is str)
        wrong = RefusedError(
            422,
            f'the body must be JSON: {{"query": […], "ids": […]}}, {self.spec.dim} finite numbers '
            f'and a list of {kind}; for a yes or no also a number "threshold".',
        )
        names = ["query", "ids"]
        threshold = None
        if yes_or_no:
            numbers, ids, stated = _fields(body, [*names, "threshold"], wrong)
            threshold = float(_vector([stated], 1, wrong)[0])
        else:
            numbers, ids = _fields(body, names, wrong)
        query = _vector(numbers, self.spec.dim, wrong)
        if self.metric == "cosine" and self.spec.ranges is None:
            # Squares of very large or small numbers are no numbers.
            query = in_units_of_largest(query[None])[0]
        _check_ids(ids, id_type, wrong)
        if len(ids) > MAX_CANDIDATES:
            raise RefusedError(
                413, f"one request has at most {MAX_CANDIDATES} candidates; send several."
            )
        if id_type is int:
            try:
                return query, np.array(ids, np.int64), threshold
            except OverflowError:
                raise wrong from None
        # Before an array is made, in which every id is as wide as the longest.
        if max(map(len, ids)) > _MAX_CANDIDATE_CHARACTERS:
            raise RefusedError(
                413, f"an id of a candidate has at most {_MAX_CANDIDATE_CHARACTERS} characters."
            )
        if any("\0" in one for one in ids):  # which an array would drop at the end
            raise wrong
        return query, np.array(ids, np.str_), threshold

    def _count(self, asker: str, candidates: int) -> None:
        """Raise RefusedError if an asker has used up the minute."""
        with self._lock:
            now = self.clock()
            used, last = self._asked.get(asker, (0.0, now))
            regained = (now - last) * self.per_minute / 60
            used = max(0.0, used - regained)
            if used + candidates > self.per_minute:
                raise RefusedError(
                    429, f"at most {self.per_minute} candidates are compared in a minute."
                )
            self._asked[asker] = used + candidates, now
