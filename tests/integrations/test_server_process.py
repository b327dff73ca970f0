"""A collector in a process of its own: it is killed while clients submit, and nothing is lost."""

import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

import numpy as np
import pytest
from helpers.common import attribute_spec, fails, filled_index, needs_posix, refuses, uniform
from helpers.documents import code_blocks, section

import dpindex as dpi
from dpindex.integrations.client import Client
from dpindex.integrations.server import serve

pytest.importorskip("starlette")
uvicorn = pytest.importorskip("uvicorn")
pytestmark = needs_posix

SPEC = attribute_spec("dp-signoporp-rr", 64, k=64, epsilon=4.0)
SUBMIT = 32 * "a"
SEARCH = 32 * "b"
CLIENTS = 8
SECONDS = 600.0
"""Against a hang only."""


def codes(rows):
    """Codes that differ from each other, as codes of vectors do with high probability."""
    bits = np.random.default_rng(0).integers(0, 2, (rows, 64))
    return dpi.BitCodes.from_signs(bits.astype(bool), SPEC.fingerprint)


@pytest.fixture
def index(tmp_path):
    dpi.PrivateIndex(SPEC).save(tmp_path / "index")
    (tmp_path / "tokens").write_text(f"submit {SUBMIT}\nsearch {SEARCH}\n")
    (tmp_path / "tokens").chmod(0o600)
    return tmp_path / "index"


@contextmanager
def served(index, program=(sys.executable, "-m", "dpindex")):
    """The process and its address; it is killed when the block ends, if it still runs."""
    options = ("--tokens", str(index.parent / "tokens"), "--port", "0")
    command = [*program, "serve", str(index), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            url = process.stdout.readline().split()[-1]
            assert url.startswith("http://127.0.0.1:")
            yield process, url
        finally:
            process.kill()


FULL_DISK = """
import os, sqlite3, sys

class Connection(sqlite3.Connection):
    def execute(self, command, *values):
        if command == "COMMIT" and os.path.exists(FULL):
            super().execute("ROLLBACK")
            raise sqlite3.OperationalError("database or disk is full")
        return super().execute(command, *values)

connect = sqlite3.connect
sqlite3.connect = lambda *args, **options: connect(*args, factory=Connection, **options)

from dpindex.__main__ import main

_, FULL, *arguments = sys.argv
sys.argv = ["dpindex", *arguments]
main()
"""
"""A collector for which the disk is full while a file exists."""


@pytest.mark.slow
def test_devices_that_insist_are_stored_once_through_kills_restarts_and_a_full_disk(index):
    """A device sends its code under its key until it is told that it is stored."""
    devices = 200
    all_codes = codes(devices)
    full = index.parent / "full"
    program = [sys.executable, "-c", FULL_DISK, str(full)]
    answers = [[] for _ in range(devices)]
    address = [""]
    is_over = threading.Event()

    def code(row):
        return all_codes.take(slice(row, row + 1)).to_bytes()

    def is_stored(row):
        return answers[row][-1:] in (["stored"], ["repeated"])

    def insist(first):
        for row in range(first, devices, CLIENTS):
            while not (is_over.is_set() or is_stored(row)):
                try:
                    client = Client(address[0], SUBMIT, timeout=SECONDS)
                    said = client.submit(code(row), [f"device {row}"], f"{row:032}")
                    answers[row].append(said)
                except dpi.InputError:  # killed, or without room
                    is_over.wait(0.01)

    def have(count):
        """Wait until so many devices were answered."""
        while sum(map(bool, answers)) < count:
            assert any(thread.is_alive() for thread in threads)
            threads[0].join(0.01)

    threads = [threading.Thread(target=insist, args=[first]) for first in range(CLIENTS)]
    ends = [signal.SIGKILL, signal.SIGTERM, signal.SIGINT]
    try:
        for round_, number in enumerate(ends, 1):
            with served(index, program) as (process, address[0]):
                if round_ == 1:
                    for thread in threads:
                        thread.start()
                have(50 * round_)
                full.touch()
                client = Client(address[0], SUBMIT)
                with refuses("nothing can be stored now"):
                    client.submit(code(0), [f"refused {round_}"])
                full.unlink()
                have(50 * round_ + 25)
                process.send_signal(number)
                ended = process.wait(SECONDS)
                assert ended == (-number if number == signal.SIGKILL else 0)
        with served(index, program) as (process, address[0]):
            for thread in threads:
                thread.join(SECONDS)
            last = Client(address[0], SUBMIT)
            for row in (0, 99, devices - 1):
                names = [f"device {row}"]
                assert last.submit(code(row), names, f"{row:032}") == "repeated"
                another = "another key of 32 characters...."
                assert last.submit(code(row), names, another) == "taken"
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS) == 0
    finally:
        is_over.set()
    assert all(given in (["stored"], ["repeated"]) for given in answers)
    saved = dpi.open(index)
    assert sorted(saved) == sorted(f"device {row}" for row in range(devices))
    for row in range(devices):
        stored = saved[f"device {row}"].stored
        assert np.array_equal(stored, all_codes.stored[row : row + 1])


@pytest.mark.slow
def test_the_example_of_the_page(index, capsys):
    spec = attribute_spec("dp-oporp-staircase", 8, k=4, epsilon=2.0)
    place = index.parent / "other"
    vectors = uniform(3, 8)
    other = filled_index(spec, vectors[2], ["berta"], query_epsilon=4.0)
    other.save(place)
    page = section("devices.md", "## Collect codes over HTTP")
    (block,) = code_blocks(page, "py")
    known = {"submit_token": SUBMIT, "search_token": SEARCH}
    known |= {"vector": vectors[0], "query": vectors[1]}
    with served(place) as (_, url):
        exec(block.replace("http://127.0.0.1:8000", url), known)
    assert "berta" in capsys.readouterr().out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_first_connection_ends_it_in_order(index, number):
    before = signal.getsignal(number)
    serve(
        index,
        address=("127.0.0.1", 0),
        tokens=None,
        ready=lambda _: signal.raise_signal(number),
    )
    assert signal.getsignal(number) is before


@pytest.mark.parametrize(
    "options, said",
    [
        ("", "give --tokens FILE, or --open-to-all"),
        ("--open-to-all --tokens tokens", "give --tokens FILE, or --open-to-all"),
        ("--open-to-all --host 0.0.0.0", "without tokens only 127.0.0.1 and localhost"),
        ("--tokens none", "none cannot be read"),
        ("--open-to-all --port 70000", "port must be from 0 to 65535"),
    ],
)
def test_wrong_commands(index, run, options, said):
    fails(run(f"serve {index} {options}"), said)


def test_what_protects_nothing_is_not_served(tmp_path, run):
    bare = dpi.PrivateIndex(attribute_spec("none-oporp", 16, k=8))
    bare.save(tmp_path / "bare", allow_unprotected=True)
    fails(run("serve bare --open-to-all --port 0"), "protects nothing")
