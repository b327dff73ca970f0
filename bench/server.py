"""The collector under load: what is answered survives kill −9, and what a search over HTTP costs.

    python bench/server.py [--codes 100000] [--clients 64] [--rows 1000000] [--seconds 120]

Two parts, each on 127.0.0.1 alone, and each ended by its count or by its time:

1. Clients submit codes one at a time, each over its own connection, while two others search. When
   half of the codes have been answered with 201 the server is killed (SIGKILL), started again, and
   given the rest. Then every code that was answered must be in the index, once, bit for bit.
2. An index of many codes is searched with one private query at a time, in turn over HTTP and by a
   call in this process; printed are the median and the 99th percentile of both, and their ratios.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from dpindex import BitCodes, PrivateIndex, Spec, attribute

SPEC = Spec("dp-signoporp-rr", dim=256, k=256, epsilon=4.0, adjacency=attribute(1.0))
SUBMIT, SEARCH = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
ROUNDS = 500


def codes(rows: int) -> BitCodes:
    """Random bits: what a collector does with codes does not depend on what they say."""
    bits = np.random.default_rng(0).integers(0, 256, (rows, 32), dtype=np.uint8)
    made = BitCodes.from_signs(np.zeros((1, 256), bool), SPEC.fingerprint)
    return type(made)(made.format, bits)


@contextmanager
def served(index: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The process and its port; killed when the block ends, if it still runs."""
    tokens = index.parent / "tokens"
    tokens.write_text(f"submit {SUBMIT}\nsearch {SEARCH}\n")
    tokens.chmod(0o600)
    command = [sys.executable, "-m", "dpindex", "serve", str(index), "--port", "0"]
    command += ["--tokens", str(tokens)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r":([0-9]+)$", process.stdout.readline())
            assert found
            yield process, int(found[1])
        finally:
            process.kill()


class Connection:
    """One connection that is kept open."""

    def __init__(self, port: int, token: str) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        kind = {"Content-Type": "application/octet-stream"}
        self.headers = {"Authorization": f"Bearer {token}", **kind}

    def post(self, path: str, body: bytes, **more: str) -> int:
        headers = {**self.headers, **{k.replace("_", "-"): v for k, v in more.items()}}
        self.connection.request("POST", path, body, headers)
        with self.connection.getresponse() as answer:
            answer.read()
            return answer.status


def load(process: subprocess.Popen[str], port: int, sent: BitCodes, rows: list[int],
         clients: int, answered: set[int], kill_at: int, until: float) -> float:  # fmt: skip
    """Submit rows; kill the server once ``kill_at`` are answered. Returns the seconds it took."""
    ended = threading.Event()

    def submit(own: list[int]) -> None:
        connection = Connection(port, SUBMIT)
        try:
            for row in own:
                body = sent.take(slice(row, row + 1)).to_bytes()
                while True:
                    ids = json.dumps([f"device {row}"])
                    status = connection.post("/codes", body, Dpindex_Ids=ids)
                    if status == 201:
                        answered.add(row)
                    if status != 503 or ended.is_set() or time.monotonic() > until:
                        break
                    time.sleep(0.05)
                if ended.is_set() or time.monotonic() > until:
                    return
                if len(answered) >= kill_at:
                    process.send_signal(signal.SIGKILL)
                    return
        except (OSError, http.client.HTTPException):  # it was killed
            return

    def search() -> None:
        connection = Connection(port, SEARCH)
        try:
            while not ended.is_set():
                connection.post("/search?k=10", sent.take(slice(0, 1)).to_bytes())
        except (OSError, http.client.HTTPException):
            return

    submitters = [
        threading.Thread(target=submit, args=(rows[first::clients],)) for first in range(clients)
    ]
    searchers = [threading.Thread(target=search) for _ in range(2)]
    start = time.perf_counter()
    for thread in (*submitters, *searchers):
        thread.start()
    for thread in submitters:
        thread.join()
    taken = time.perf_counter() - start
    ended.set()
    for thread in searchers:
        thread.join()
    return taken


def durable(count: int, clients: int, seconds: float, folder: Path) -> None:
    """Part 1."""
    index, sent = folder / "collected", codes(count)
    PrivateIndex(SPEC).save(index)
    answered: set[int] = set()
    until = time.monotonic() + seconds
    with served(index) as (process, port):
        Connection(port, SUBMIT).post("/codes", codes(1).to_bytes(), Dpindex_Ids='["0"]')
        rows = list(range(count))
        taken = load(process, port, sent, rows, clients, answered, count // 2, until)
        process.kill()
        process.wait()
    before = len(answered)
    print(f"{clients} clients: {before} codes answered in {taken:.1f} s ({before / taken:.0f}/s), "
          f"then kill -9")  # fmt: skip
    with served(index) as (process, port):
        rest = [row for row in range(count) if row not in answered]
        taken = load(process, port, sent, rest, clients, answered, count + 1, until)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
    others = f"{count - len(answered)} others: stored before their answer, so 409, or out of time"
    print(f"after a new start: {len(answered) - before} more in {taken:.1f} s; {others}")
    saved = PrivateIndex.open(index)
    places = {name: place for place, name in enumerate(saved)}
    assert len(places) == len(saved), "an id is there twice"
    stored = saved.codes.stored
    lost = [row for row in answered if f"device {row}" not in places]
    assert not lost, f"{len(lost)} answered codes are lost"
    for row in answered:
        assert np.array_equal(stored[places[f"device {row}"]], sent.stored[row])
    print(f"ok: {len(answered)} answered codes are there, once, bit for bit, of {len(saved)}")


def latency(rows: int, seconds: float, folder: Path) -> None:
    """Part 2."""
    index = PrivateIndex(SPEC)
    index.add_codes(codes(rows))
    index.save(folder / "large")
    queries = [codes(ROUNDS).take(slice(row, row + 1)) for row in range(ROUNDS)]
    times: list[tuple[float, float]] = []
    with served(folder / "large") as (_, port):
        connection = Connection(port, SEARCH)
        until = time.monotonic() + seconds
        for query in queries:
            body = query.to_bytes()
            start = time.perf_counter()
            assert connection.post("/search?k=10", body) == 200
            middle = time.perf_counter()
            index.search(query, k=10)
            times.append((middle - start, time.perf_counter() - middle))
            if time.monotonic() > until:
                break
    served_times, own_times = np.array(times[10:]).T * 1000
    for percent in (50, 99):
        over, own = np.percentile(served_times, percent), np.percentile(own_times, percent)
        print(f"p{percent} of {len(served_times)} searches of {rows} codes: {over:.2f} ms over "
              f"HTTP, {own:.2f} ms in process, ratio {over / own:.2f}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--codes", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=240.0, help="longest time of each part")
    stated = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        durable(stated.codes, stated.clients, stated.seconds, Path(folder))
        latency(stated.rows, stated.seconds, Path(folder))


if __name__ == "__main__":
    main()
