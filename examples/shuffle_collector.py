"""Collect codes of devices for one shuffle, and publish them in a secret random order.

    python shuffle_collector.py index --tokens tokens --fewest 1000000 --delta 1e-8

No ids, times or order of arrival are kept, and no searches are answered. Nobody who sees the
published codes can connect one with its sender, which is worth a smaller epsilon: see
``docs/guarantees.md``. That promise rests on trust in this collector, its machine and the network,
which see codes arrive.

INDEX is a saved index without codes, of a method for whole records (``record-codebook``,
``record-cap``). Ctrl-C or SIGTERM publishes the codes once there are as many as was promised to
senders; before that they wait in the file ``.shuffle`` in INDEX, and the next start goes on with
it.
"""

from __future__ import annotations

import argparse
import os
import signal
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

import dpindex as dpi
from dpindex.accounting import shuffled
from dpindex.base.arrays import AnyArray
from dpindex.base.errors import DamagedError, InputError
from dpindex.base.files import OWN_FILE, read_file, sync_folder, write_file
from dpindex.integrations import requests as r
from dpindex.mechanism.codes import CodeFormat, Codes
from dpindex.mechanism.secret_random import secret_stream

LOG_NAME = ".shuffle"
"""The file of accepted codes, in the directory of the index."""

MAX_KEYS = 1 << 22
"""Submissions with a key that one run accepts: each key is kept in memory until it ends."""

_LEAST_GAIN = 0.01
_MAGIC = b"dpishuf1"
_HEADER = struct.Struct("<8sQdQ")
"""Magic, fewest codes, delta, codes that were answered for certain; its CRC-32 follows."""

_HEADER_BYTES = 64
_FIRST_SLOTS = 1024
_MAX_BYTES = 1 << 36
_FULL = np.uint32(1 << 31)
"""Set in the checksum of a slot that holds a code; a free slot is all zeros."""


@dataclass(frozen=True)
class Shuffle:
    """A promise to those who send codes: theirs is published among at least so many, in no order.

    Attributes
    ----------
    codes : int
        Fewest codes that are published, [1, ∞).
    delta : float
        Of the promise, (0, 1).

    >>> spec = dpi.Spec("record-cap", dim=8, k=64, epsilon=8.0, adjacency=dpi.record())
    >>> round(Shuffle(1_000_000).guarantee(spec).epsilon, 2)
    0.56
    """

    codes: int
    delta: float = 1e-8

    def guarantee(self, spec: dpi.Spec) -> dpi.Guarantee:
        """Return the promise about codes of a spec.

        Raises
        ------
        InputError
            If no shuffle amplifies that of the spec: see :meth:`dpindex.Guarantee.shuffled`.
        """
        return shuffled(spec.guarantee, self.codes, self.delta)

    def refuse_without_gain(self, spec: dpi.Spec) -> None:
        """Refuse a shuffle of so few codes that it gains hardly any epsilon, and costs delta."""
        alone, shuffled = spec.guarantee, self.guarantee(spec)
        if shuffled.epsilon > (1 - _LEAST_GAIN) * alone.epsilon:
            raise InputError(
                f"a shuffle of {self.codes} codes gains nothing: it has epsilon = "
                f"{shuffled.epsilon:g} with delta = {self.delta:g}, and a code alone has "
                f"{alone.epsilon:g}; ask for more codes (--fewest), or make codes of a smaller "
                f"epsilon."
            )


class ShuffledFile:
    """Codes in random slots of a file, which is made when it is opened.

    Every code is put into a slot that is drawn from the free ones, so that all orders of the codes
    are equally likely whatever the order of arrival. One process may have the file open.

    Parameters
    ----------
    path : Path
        A symbolic link there is refused.
    format_ : CodeFormat
        Of all codes.
    shuffle : Shuffle
        As when the file was made.

    Raises
    ------
    InputError
        If the file is damaged, or was made for another shuffle.
    """

    def __init__(self, path: Path, format_: CodeFormat, shuffle: Shuffle) -> None:
        self._path = path
        self._format = format_
        self._shuffle = shuffle
        kind = format_.pack(np.zeros((1, format_.code_length), np.uint8)).dtype.kind
        number = np.dtype(f"<{kind}{format_.max_row_bytes // format_.width}")
        self._slot = np.dtype([("check", "<u4"), ("code", number, (format_.width,))])
        if not path.exists():
            self._write(np.zeros(_FIRST_SLOTS, self._slot), 0)
        self._file, self.free, self._count = self._opened()

    def __len__(self) -> int:
        return self._count

    def append(self, codes: Codes) -> None:
        """Put codes into random free slots; they are on the disk when this returns."""
        if len(codes) > len(self.free):
            self.grow(len(codes))
        slots = np.zeros(len(codes), self._slot)
        slots["code"] = codes.stored
        slots["check"] = _checks(slots["code"])
        chosen = self.free[: len(codes)]
        # What was there before this group was answered: a later start misses none of it.
        self._put(self._header(self._count), 0)
        for place, slot in zip(chosen.tolist(), slots, strict=True):
            self._put(slot.tobytes(), _HEADER_BYTES + place * self._slot.itemsize)
        os.fsync(self._file)
        self.free = self.free[len(codes) :]
        self._count += len(codes)

    def _put(self, data: bytes, place: int) -> None:
        """Write all of these bytes: one call may write some of them only."""
        while data:
            written = os.pwrite(self._file, data, place)
            data = data[written:]
            place += written

    def codes(self) -> Codes:
        """Return all codes in the order of their slots."""
        slots = self._read()
        stored = slots["code"][slots["check"] != 0]
        native: Any = stored.astype(stored.dtype.newbyteorder("="))
        return self._format.codes(self._format.concatenate([native]))

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def remove(self) -> None:
        """Remove the file: its codes are published."""
        self._path.unlink()
        sync_folder(self._path.parent)

    def _opened(self) -> tuple[int, npt.NDArray[np.intp], int]:
        """Return the file, its free slots in random order, and how many codes it holds."""
        full = self._read()["check"] != 0
        free = np.flatnonzero(~full)
        file = os.open(self._path, os.O_RDWR | OWN_FILE)
        return file, free[secret_order(len(free))], int(full.sum())

    def grow(self, count: int) -> None:
        """Put all codes into random slots of a larger file, with room for some more."""
        slots = self._read()
        codes = slots[slots["check"] != 0]
        larger = np.zeros(2 * max(len(slots), len(codes) + count), self._slot)
        larger[secret_order(len(larger))[: len(codes)]] = codes
        self._write(larger, len(codes))
        os.close(self._file)
        self._file, self.free, self._count = self._opened()

    def _header(self, answered: int) -> bytes:
        facts = _HEADER.pack(_MAGIC, self._shuffle.codes, self._shuffle.delta, answered)
        header = facts + zlib.crc32(facts).to_bytes(4, "little")
        return header.ljust(_HEADER_BYTES, b"\0")

    def _write(self, slots: AnyArray, answered: int) -> None:
        write_file(self._path, self._header(answered) + slots.tobytes(), mode=0o600)

    def _read(self) -> AnyArray:
        """Return all slots; those that a power failure cut off are free again."""
        data = read_file(self._path, _MAX_BYTES, links=False)
        facts = data[: _HEADER.size]
        check = data[_HEADER.size : _HEADER.size + 4]
        whole = (len(data) - _HEADER_BYTES) % self._slot.itemsize == 0
        if not whole or check != zlib.crc32(facts).to_bytes(4, "little"):
            raise self._damaged("its header is not whole")
        magic, codes, delta, answered = _HEADER.unpack(facts)
        if magic != _MAGIC:
            raise self._damaged("it is of another kind")
        if Shuffle(codes, delta) != self._shuffle:
            raise InputError(
                f"{self._path} was begun for at least {codes} codes and delta = {delta:g}, which "
                f"its senders were told; go on with these."
            )
        slots = np.frombuffer(data, self._slot, offset=_HEADER_BYTES).copy()
        full = slots["check"] != 0
        full[full] = slots["check"][full] == _checks(slots["code"][full])
        if full.sum() < answered:
            raise self._damaged(f"it holds {full.sum()} of {answered} codes")
        slots[~full] = np.zeros(1, self._slot)
        return slots

    def _damaged(self, reason: str) -> InputError:
        return DamagedError(
            f"{self._path} is damaged: {reason}; restore it from a copy, or move it away to begin "
            f"anew."
        )


def secret_order(count: int) -> npt.NDArray[np.intp]:
    """Return a secret uniform permutation of 0 … count − 1."""
    return np.argsort(secret_stream().words(count, np.uint64), kind="stable")


def _checks(codes: AnyArray) -> npt.NDArray[np.uint32]:
    """Return the checksum of each code, which is never 0."""
    sums = [zlib.crc32(code.tobytes()) for code in codes]
    return np.array(sums, np.uint32) | _FULL


class ShuffleCollector:
    """Collects codes for one shuffle, and publishes them at the end of the block.

    Receipts of submissions are kept in memory alone, each of them until the block ends: a
    submission that is sent again would count twice, and make the crowd look larger than it is.

    Raises
    ------
    InputError
        If the index holds codes, no shuffle amplifies its guarantee, or the file is damaged or was
        made for another shuffle.
    """

    def __init__(self, index: dpi.PrivateIndex, folder: Path, shuffle: Shuffle) -> None:
        self.spec = index.spec
        self.promise = shuffle.guarantee(index.spec)
        self.promised = shuffle
        self._index = index
        self._folder = folder
        self._lock = Lock()
        self._receipts: set[bytes] = set()
        path = folder / LOG_NAME
        if len(index):
            raise InputError(
                f"{folder} holds {len(index)} codes: a shuffle is published once; collect into an "
                f"index without codes. If they are those of {path}, remove that file."
            )
        self._file = ShuffledFile(path, index.spec.format, shuffle)

    def __enter__(self) -> ShuffleCollector:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.publish()
            self._file.close()

    def submit(self, codes: Codes, receipt: bytes | None = None) -> bool:
        """Keep codes; they are on the disk when this returns. False if they were sent before.

        Raises
        ------
        RefusedError
            If this run has as many receipts as it can remember; nothing is kept then.
        """
        with self._lock:
            if receipt in self._receipts:
                return False
            if receipt is not None and len(self._receipts) >= MAX_KEYS:
                raise r.RefusedError(503, "this collector can remember no more submissions.")
            self._file.append(codes)
            if receipt is not None:
                self._receipts.add(receipt)
            return True

    def publish(self) -> None:
        """Publish the codes if they are enough."""
        if len(self._file) >= self.promised.codes:
            self._index.add_codes(self._file.codes())  # which lie in a secret order
            self._index.save(self._folder)
            self._file.remove()


def make_app(collector: ShuffleCollector, tokens: r.Tokens) -> Any:
    """What is answered: the spec, the promise, and codes without ids."""
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    spec = collector.spec

    async def stated_spec(request: Request) -> Any:
        return JSONResponse(spec.to_dict())

    async def guarantee(request: Request) -> Any:
        shuffled = collector.promise.statement(spec.dim)
        return JSONResponse({**spec.guarantee.statement(spec.dim), "shuffled": shuffled})

    async def submit(request: Request) -> Any:
        try:
            scheme, _, token = request.headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or "submit" not in tokens.roles(token):
                raise r.RefusedError(401, "a token of the role submit is needed.")
            if "dpindex-ids" in request.headers:
                raise r.RefusedError(422, "ids are refused: codes are shuffled here.")
            body = bytearray()
            async for part in request.stream():
                body += part
                if len(body) > r.max_body(spec):
                    raise r.RefusedError(413, "the body is too long; send several.")
            codes = r.sent_codes(bytes(body), [spec], r.max_rows(spec))
            receipt = r.receipt(request.headers.get("idempotency-key"), bytes(body))
            stored = await run_in_threadpool(collector.submit, codes, receipt)
        except r.RefusedError as refusal:
            return JSONResponse({"detail": str(refusal)}, refusal.status)
        return JSONResponse({"detail": "stored."}, 201 if stored else 200)

    return Starlette(
        routes=[
            Route("/spec", stated_spec),
            Route("/guarantee", guarantee),
            Route("/codes", submit, methods=["POST"]),
        ]
    )


def main() -> None:
    """Collect until a signal ends it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("index", type=Path)
    parser.add_argument("--tokens", type=Path, required=True, help='lines "submit TOKEN"')
    parser.add_argument("--fewest", type=int, required=True, help="fewest codes to publish")
    parser.add_argument("--delta", type=float, default=1e-8)
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    import uvicorn

    tokens = r.Tokens.read(options.tokens)
    shuffle = Shuffle(options.fewest, options.delta)
    try:
        shuffle.refuse_without_gain(dpi.PrivateIndex.open(options.index).spec)
    except InputError as error:
        parser.error(str(error))
    with (
        dpi.PrivateIndex.changing(options.index) as index,
        ShuffleCollector(index, options.index, shuffle) as collector,
    ):
        print(f"{options.index}: a code alone has {collector.spec.guarantee}.")
        print(f"{options.index}: in the shuffle it has {collector.promise}.", flush=True)
        app = make_app(collector, tokens)
        server = uvicorn.Server(uvicorn.Config(app, port=options.port, access_log=False))

        def end(number: int, frame: object) -> None:
            server.should_exit = True

        # uvicorn raises the signal again when it has ended, which must not end this process yet.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, end)
        server.run()
    count = len(dpi.open(options.index))
    print(f"{options.index}: {count or 'not enough'} codes published.")


if __name__ == "__main__":
    main()
