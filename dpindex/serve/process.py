"""A collector in a process of its own: an index, a socket, and limits on who connects."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from dpindex.base.checks import whole_number
from dpindex.base.errors import BusyError, InputError
from dpindex.base.extras import import_extra
from dpindex.base.private_files import holding_folder, state_folder
from dpindex.index.owners import Originals
from dpindex.index.private_index import PrivateIndex
from dpindex.serve.acceptor import Searcher
from dpindex.serve.app import make_app
from dpindex.serve.collector import Collector
from dpindex.serve.comparisons import PER_MINUTE, Comparisons
from dpindex.serve.published_index import connect
from dpindex.serve.shuffle_collector import LOG_NAME as SHUFFLE_LOG
from dpindex.serve.shuffle_collector import ShuffleCollector
from dpindex.serve.tokens import Tokens
from dpindex.storage.databases import is_database_url
from dpindex.storage.shuffled_file import Shuffle

__all__ = ["LOG_NAME", "LOOPBACK", "Holder", "collect", "serve"]

LOG_NAME = ".accepted"
"""The log of accepted codes, in the directory of the index."""
LOOPBACK = ("127.0.0.1", "localhost")

_NEEDED = "a collector needs fastapi and uvicorn"
_CONNECTIONS = 256
_HEAD_BYTES = 1 << 16
_IDLE_SECONDS = 10
_GRACE_SECONDS = 10
_BACKLOG = 1024


@dataclass(frozen=True)
class Holder:
    """Whoever serves an index and has the original vectors.

    Attributes
    ----------
    vectors : array, path or Dataset
        See :class:`dpindex.Originals`.
    ids : array, optional
        The id of each row; default the ids of the index, in its order.
    per_minute : int
        Candidates that one token may ask about in a minute.
    """

    vectors: Any
    ids: Any = None
    per_minute: int = PER_MINUTE

    def comparisons(self, searcher: Searcher) -> Comparisons:
        """Return what compares candidates of a searcher; InputError if the vectors do not fit."""
        per_minute = whole_number(self.per_minute, "per_minute", 1, 1 << 53)
        ids = self.ids
        if ids is None:
            if not isinstance(searcher, PrivateIndex):
                raise InputError(
                    "the originals of a published index need ids; name the id of each row.",
                    field="ids",
                )
            ids = searcher.ids
        owner = Originals(self.vectors, ids)
        owner.check(searcher.spec.dim)
        return Comparisons(owner, searcher.spec, searcher.metric, per_minute=per_minute)


def serve(
    index: str | os.PathLike[str],
    *,
    collection: str = "dpindex",
    address: tuple[str, int] = ("127.0.0.1", 8000),
    tokens: Tokens | None,
    exact_queries: bool = False,
    holder: Holder | None = None,
    allow_unprotected: bool = False,
    ready: Callable[[str], object] = lambda url: None,
) -> None:
    """Serve a saved index until SIGINT or SIGTERM.

    No other process can change the index meanwhile.

    Parameters
    ----------
    index : path
        Directory of the index, or the address of a published one: see :func:`dpindex.connect`.
    collection : str
        Name of a published index.
    address : (str, int)
        Host and port to listen at; port 0 is any that is free.
    tokens : Tokens or None
        None lets everybody in, on this machine only.
    exact_queries : bool
        Accept vectors as queries, which the server then sees.
    holder : Holder, optional
        Answers exact similarities of candidates.
    ready : callable
        Called with the address when connections are accepted.

    Raises
    ------
    InputError
        Without fastapi and uvicorn, for an index that cannot be opened or is being written, a port
        that cannot be had, or no tokens on an address that others reach.
    """
    _check_access(address, tokens)
    with (_published if is_database_url(index) else _local)(index, collection) as served:
        opened, id_type, log, save = served
        opened.spec.refuse_unprotected(allow_unprotected, "serve it")
        with _listening(*address) as listening, Collector(opened, log, save) as collector:
            comparisons = None
            if holder is not None:
                comparisons = holder.comparisons(opened)
            app = make_app(
                collector,
                tokens,
                id_type=id_type,
                exact_queries=exact_queries,
                comparisons=comparisons,
            )
            _answer(app, listening, ready)


def collect(
    index: str | os.PathLike[str],
    shuffle: Shuffle,
    *,
    address: tuple[str, int] = ("127.0.0.1", 8000),
    tokens: Tokens | None,
    ready: Callable[[str], object] = lambda url: None,
) -> None:
    """Collect codes until SIGINT or SIGTERM, and publish them in random order if there are enough.

    Ids are refused, nothing is searched, and no time or order of arrival is kept. While there are
    fewer codes than the shuffle promises, they are kept for the next call and not published.

    Parameters
    ----------
    index : path
        Directory of an index without codes, whose codes will be those of the shuffle alone.
    shuffle : Shuffle
    address, tokens, ready
        As for :func:`serve`.

    Raises
    ------
    InputError
        As :func:`serve`, for an index with codes, for a guarantee that no shuffle amplifies, and
        for another shuffle than that which was begun here.
    """
    _check_access(address, tokens)
    path = _real(index)
    with (
        _changing(path) as opened,
        _listening(*address) as listening,
        ShuffleCollector(opened, path, shuffle) as collector,
    ):
        _answer(make_app(collector, tokens, id_type=None), listening, ready)


def _check_access(address: tuple[str, int], tokens: Tokens | None) -> None:
    """Refuse an address that others reach without tokens, and a missing package, at once."""
    import_extra("uvicorn", _NEEDED, "serve")
    if tokens is None and address[0] not in LOOPBACK:
        raise InputError(
            f"without tokens only {' and '.join(LOOPBACK)} may be served; give tokens."
        )


def _answer(app: Any, listening: socket.socket, ready: Callable[[str], object]) -> None:
    """Answer requests until a signal ends it."""
    uvicorn = import_extra("uvicorn", _NEEDED, "serve")
    config = uvicorn.Config(
        app,
        http="h11",  # whose limit on the bytes of headers is set below
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        h11_max_incomplete_event_size=_HEAD_BYTES,
    )
    host, port = listening.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    server = uvicorn.Server(config)
    with _ended_by_signals(server):
        ready(f"http://{name}:{port}")
        server.run(sockets=[listening])


_Served: TypeAlias = tuple[Searcher, type, Path, Callable[[], object]]
"""What searches, type of its ids, where the log of accepted codes lies, and what saves."""


@contextmanager
def _ended_by_signals(server: Any) -> Iterator[None]:
    """Let SIGINT and SIGTERM end a server in order, also before it has handlers of its own."""

    def end(number: int, frame: object) -> None:
        server.should_exit = True

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _real(index: str | os.PathLike[str]) -> Path:
    return Path(os.path.realpath(index))


@contextmanager
def _changing(path: Path) -> Iterator[PrivateIndex]:
    """Open an index that nobody else changes, without waiting for somebody who does."""

    def refuse() -> NoReturn:
        raise BusyError(f"{path} is being written by another process; wait for it to end.")

    with PrivateIndex.changing(path, refuse) as opened:
        yield opened


@contextmanager
def _local(index: str | os.PathLike[str], collection: str) -> Iterator[_Served]:
    path = _real(index)
    with _changing(path) as opened:
        if (path / SHUFFLE_LOG).exists() and not opened.is_shuffled:
            raise InputError(f"{path} collects codes of a shuffle; go on with dpindex collect.")
        # An index without codes takes strings: whoever submits first must not decide for others.
        id_type = int if len(opened) and opened.ids.dtype.kind == "i" else str
        yield opened, id_type, path / LOG_NAME, lambda: opened.save(path)


@contextmanager
def _published(index: str | os.PathLike[str], collection: str) -> Iterator[_Served]:
    """The log lies beside an index in files; of a server, in the user's own state here."""
    with ExitStack() as stack:
        opened = stack.enter_context(closing(connect(index, collection)))
        folder = stack.enter_context(opened.lease())
        if folder is None:
            place = os.fspath(index)
            name = hashlib.sha256(f"{place} {collection}".encode()).hexdigest()[:16]
            own_folder = state_folder() / "collectors" / name
            folder = stack.enter_context(holding_folder(own_folder, place))
        yield opened, opened.id_type, folder / LOG_NAME, opened.save


def _listening(host: str, port: int) -> socket.socket:
    if not 0 <= port < 1 << 16:
        raise InputError(f"port must be from 0 to 65535, not {port}.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        why = error.strerror or error
        raise InputError(f"{host}, port {port}, cannot be served: {why}; choose another.") from None
