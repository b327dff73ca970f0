"""Codes that are collected for a shuffle: no id, time or order is kept, and none is lost."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import numpy as np
import pytest
import shuffle_collector
from helpers.common import (
    attribute_spec,
    flipped,
    free_port,
    needs_posix,
    normal,
    record_spec,
    refuses,
)
from shuffle_collector import LOG_NAME, Shuffle, ShuffleCollector, ShuffledFile, make_app

import dpindex as dpi
from dpindex.accounting import shuffled
from dpindex.base.errors import DamagedError, InputError
from dpindex.integrations.client import Client
from dpindex.integrations.requests import RefusedError, Tokens
from dpindex.storage.statement import summarize

DIM = 16
CAP = record_spec("record-cap", DIM, k=64, epsilon=1.0)
BOOK = dpi.Codebook(normal(200, DIM))
SYMBOLS = record_spec("record-codebook", DIM, epsilon=8.0, codebook=BOOK)
SHUFFLE = Shuffle(30, 1e-6)
TOKEN = 32 * "a"


def codes(rows, spec=CAP):
    """Codes that differ from each other, as far as there are so many."""
    if spec is SYMBOLS:
        stored = np.arange(rows, dtype=np.uint16)[:, None] % 200
    else:
        stored = np.random.default_rng(1).integers(0, 256, (rows, 8), np.uint8)
    return spec.format.codes(stored)


def file_at(path):
    return ShuffledFile(path, CAP.format, SHUFFLE)


def rows_of(codes):
    """In an order of their own, for codes have none."""
    return sorted(row.tobytes() for row in codes.stored)


def fail(*_):
    raise OSError("cut off")


def tokens_in(folder):
    """A file of tokens for a command, and the options that name it."""
    tokens = folder / "tokens"
    tokens.write_text(f"submit {TOKEN}")
    tokens.chmod(0o600)
    return "--tokens", str(tokens)


@pytest.fixture
def index(tmp_path):
    dpi.PrivateIndex(CAP).save(tmp_path / "index")
    return tmp_path / "index"


@contextmanager
def collecting(path, shuffle=SHUFFLE):
    with (
        dpi.PrivateIndex.changing(path) as opened,
        ShuffleCollector(opened, path, shuffle) as collector,
    ):
        yield collector


def sent(collector, one, receipt=None):
    return "stored" if collector.submit(one, receipt) else "repeated"


@pytest.mark.parametrize("spec", [CAP, SYMBOLS])
def test_a_file_keeps_every_code_and_not_the_order_of_arrival(spec, tmp_path):
    """Of 2000 codes in an order of their own, 10 stay in their places less than once in 10^6."""
    given = codes(2000, spec)
    file = ShuffledFile(tmp_path / "file", spec.format, SHUFFLE)
    for start in range(0, 2000, 100):
        file.append(given.take(slice(start, start + 100)))
        if start == 1000:
            file.close()
            file = ShuffledFile(tmp_path / "file", spec.format, SHUFFLE)
    assert len(file) == 2000
    kept = file.codes()
    file.close()
    assert kept.format == given.format
    assert rows_of(kept) == rows_of(given)
    if spec is CAP:
        in_place = (kept.stored == given.stored).all(axis=1)
        assert in_place.sum() < 10
    if os.name == "posix":
        assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def test_codes_are_on_the_disk_when_they_are_answered(tmp_path, monkeypatch):
    file = file_at(tmp_path / "file")
    calls = []
    for name in ("pwrite", "fsync"):
        real = getattr(os, name)

        def call(*arguments, name=name, real=real):
            calls.append(name)
            return real(*arguments)

        monkeypatch.setattr(os, name, call)
    file.append(codes(3))
    assert calls == [*(4 * ["pwrite"]), "fsync"]
    file.close()


def test_what_is_damaged_or_of_another_shuffle_is_refused(tmp_path):
    path = tmp_path / "file"
    file = file_at(path)
    file.append(codes(20))
    file.append(codes(5))
    file.close()
    with refuses(r"was begun for at least 30 codes and delta = 1e-06"):
        ShuffledFile(path, CAP.format, Shuffle(29, 1e-6))
    with refuses("which its senders were told"):
        ShuffledFile(path, CAP.format, Shuffle(30, 1e-5))
    whole = bytearray(path.read_bytes())
    slots = np.frombuffer(whole, np.uint8, offset=64).reshape(-1, 12)
    full = np.flatnonzero(slots.any(axis=1))
    assert len(full) == 25
    slots[full[:5], 7] ^= 1  # a power failure may cut off those that nobody was told of
    path.write_bytes(whole)
    cut = file_at(path)
    assert len(cut) == 20
    cut.close()
    slots[full[5], 7] ^= 1
    path.write_bytes(whole)
    with pytest.raises(DamagedError, match="it holds 19 of 20 codes; restore it from a copy"):
        file_at(path)
    for wrong in (whole[:70], flipped(bytes(whole), 0), b""):
        path.write_bytes(wrong)
        with pytest.raises(DamagedError, match="is damaged"):
            file_at(path)


def test_enough_codes_are_published_in_another_order(index):
    given = codes(40)
    with collecting(index) as collector:
        for row in range(40):
            one = given.take(slice(row, row + 1))
            assert sent(collector, one) == "stored"
    assert not (index / LOG_NAME).exists()
    saved = dpi.open(index)
    assert rows_of(saved.codes) == rows_of(given)
    assert (saved.codes.stored != given.stored).any()  # equal with chance 1 / 40!
    assert saved.ids.tolist() == list(range(40))
    # The promise of the shuffle rests on the collector: an index states that of a code alone.
    assert summarize(index).settings.spec.guarantee == CAP.guarantee
    (found,) = saved.search(np.eye(DIM)[:1], k=3).ids
    assert len(found) == 3


def test_a_shuffled_promise_is_one_for_real_numbers():
    """Its epsilon is computed in floats, and no exact audit repeats it."""
    assert CAP.guarantee.exact
    assert not shuffled(CAP.guarantee, 1000, 1e-6).exact


def test_too_few_codes_wait_for_the_next_start(index):
    given = codes(35)
    for start, stop in ((0, 10), (10, 29), (29, 35)):
        assert len(dpi.open(index)) == 0
        with collecting(index) as collector:
            assert sent(collector, given.take(slice(start, stop))) == "stored"
    assert rows_of(dpi.open(index).codes) == rows_of(given)


def test_a_retry_is_counted_once_and_leaves_no_receipt(index):
    """A receipt is in memory alone: after a restart the same submission counts again."""
    receipt = bytes(range(32))
    with collecting(index) as collector:
        for outcome in ("stored", "repeated", "repeated"):
            assert sent(collector, codes(3), receipt) == outcome
        assert receipt not in (index / LOG_NAME).read_bytes()
        assert len(file_at(index / LOG_NAME)) == 3
    with collecting(index) as collector:
        assert sent(collector, codes(3), receipt) == "stored"


def test_a_submission_that_could_not_be_written_is_no_repetition(index, monkeypatch):
    with collecting(index) as collector:
        with monkeypatch.context() as patched:
            patched.setattr(ShuffledFile, "append", fail)
            with pytest.raises(OSError, match="cut off"):
                sent(collector, codes(1), bytes(32))
        assert sent(collector, codes(1), bytes(32)) == "stored"


def test_f6_a_retry_is_known_until_the_collector_ends(index, monkeypatch):
    """However many submissions come between: a forgotten key would inflate the crowd."""

    class Counted:
        """In place of the file: nothing is written."""

        rows = 0

        def append(self, codes):
            self.rows += len(codes)

        def __len__(self):
            return 0

        def close(self):
            """Nothing."""

    file = Counted()
    monkeypatch.setattr(shuffle_collector, "ShuffledFile", lambda *_: file)
    many = (1 << 17) + 10  # as many as were remembered once
    with collecting(index) as collector:
        one = codes(1)

        def number_sent(number):
            return sent(collector, one, number.to_bytes(32, "big"))

        for number in range(many):
            assert number_sent(number) == "stored"
        for number in (0, 1, many - 1):
            assert number_sent(number) == "repeated"
        assert file.rows == many
        monkeypatch.setattr(shuffle_collector, "MAX_KEYS", many)
        with pytest.raises(RefusedError, match="can remember no more"):
            number_sent(many)
        assert number_sent(0) == "repeated"
        assert file.rows == many


def test_low_a_short_write_is_gone_on_with(tmp_path, monkeypatch):
    real = os.pwrite
    file = file_at(tmp_path / "file")

    def short(fd, data, place):
        return real(fd, data[:5], place)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", short)
        file.append(codes(20))
    file.close()
    again = file_at(tmp_path / "file")
    assert rows_of(again.codes()) == rows_of(codes(20))
    again.close()


def test_a_publication_that_was_cut_off_is_not_repeated(index, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(ShuffledFile, "remove", fail)
        with pytest.raises(OSError, match="cut off"), collecting(index) as collector:
            sent(collector, codes(30))
    assert (index / LOG_NAME).exists()
    with refuses("holds 30 codes: a shuffle is published once"):
        collecting(index).__enter__()
    assert (index / LOG_NAME).exists()
    assert len(dpi.open(index)) == 30


@pytest.mark.parametrize(
    "spec",
    [
        attribute_spec("dp-oporp-staircase", DIM, k=8, epsilon=2.0),
        attribute_spec("none-oporp", DIM, k=8),
    ],
)
def test_a_guarantee_that_no_shuffle_amplifies_is_refused(spec, tmp_path):
    dpi.PrivateIndex(spec).save(tmp_path / "index", allow_unprotected=True)
    with refuses("use a method for whole records"):
        collecting(tmp_path / "index").__enter__()


def test_requests_with_ids_and_without_a_token_are_refused(index):
    testclient = pytest.importorskip("starlette.testclient")
    kind = {"content-type": "application/octet-stream"}
    headers = kind | {"authorization": f"Bearer {TOKEN}"}
    body = codes(2).to_bytes()
    with collecting(index) as collector:
        other = 32 * "b"
        tokens = Tokens(f"submit {TOKEN}\nsearch {other}")
        client = testclient.TestClient(make_app(collector, tokens))

        def post(content=body, path="/codes", **more):
            return client.post(path, content=content, headers=headers | more)

        assert post(authorization=f"Bearer {other}").status_code == 401
        key = {"idempotency-key": "0123456789abcdef"}
        assert post(**key).status_code == 201
        assert post(**key).status_code == 200
        named = post(**{"dpindex-ids": '["a", "b"]'})
        assert named.status_code == 422
        assert "ids are refused" in named.text
        assert post(b"xyzzy").status_code == 422
        assert post(bytes(1 << 23)).status_code == 413
        assert client.post("/codes", content=body).status_code == 401
        assert post(path="/search").status_code == 404
        stated = client.get("/guarantee").json()
        assert stated["guarantee"]["epsilon"] == 1.0
        promised = SHUFFLE.guarantee(CAP)
        assert stated["shuffled"]["guarantee"]["epsilon"] == promised.epsilon
        assert len(file_at(index / LOG_NAME)) == 2


@contextmanager
def command(index):
    """The example as a process, once it answers."""
    port = free_port()
    options = ("--fewest", "30", "--delta", "0.01", "--port", str(port))
    program = [sys.executable, str(shuffle_collector.__file__), str(index)]
    line = [*program, *options, *tokens_in(index.parent)]
    client = Client(f"http://127.0.0.1:{port}", TOKEN)
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        try:
            for _ in range(600):
                try:
                    assert client.spec() == CAP
                    break
                except InputError:
                    time.sleep(0.1)
            yield process, client
        finally:
            process.kill()


@pytest.mark.slow
@needs_posix
def test_the_command_publishes_what_survived_kill_9(index, prints):
    pytest.importorskip("uvicorn")
    given = codes(40)
    with command(index) as (process, client):
        for row in range(20):
            one = given.take(slice(row, row + 1)).to_bytes()
            assert client.submit(one, None) == "stored"
        process.send_signal(signal.SIGKILL)
    with command(index) as (process, client):
        others = given.take(slice(20, 40)).to_bytes()
        assert client.submit(others, None) == "stored"
        process.send_signal(signal.SIGTERM)
        assert process.wait(600) == 0
        said = process.stdout.read()
    assert "a code alone has epsilon = 1 " in said
    assert f"in the shuffle it has {Shuffle(30, 0.01).guarantee(CAP)}" in said
    assert "40 codes published" in said
    assert rows_of(dpi.open(index).codes) == rows_of(given)
    assert str(CAP.guarantee) in prints(f"info {index}")


def test_a_shuffle_that_gains_nothing_is_refused(tmp_path, capsys, monkeypatch):
    spec = CAP.with_epsilon(8.0)
    dpi.PrivateIndex(spec).save(tmp_path / "index")
    place = str(tmp_path / "index")
    line = ["collect", place, "--fewest", "5000", *tokens_in(tmp_path)]
    monkeypatch.setattr(sys, "argv", line)
    with pytest.raises(SystemExit) as ended:
        shuffle_collector.main()
    assert ended.value.code == 2
    assert "a shuffle of 5000 codes gains nothing" in capsys.readouterr().err
    many = Shuffle(1_000_000)
    many.refuse_without_gain(spec)
    with refuses("amplifies pure DP"):
        many.refuse_without_gain(attribute_spec("dp-oporp-staircase", DIM, k=8, epsilon=1.0))
