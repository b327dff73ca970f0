"""What the owner alone may read: made with these permissions, and refused with others."""

import os
import stat

import numpy as np
import pytest
from helpers.common import attribute_spec, needs_posix

from dpindex import PrivateIndex
from dpindex.accounting.ledger import Ledger
from dpindex.base.errors import DamagedError, StorageError
from dpindex.base.files import machine_secret, private_folder
from dpindex.data import open_dataset
from dpindex.storage.journal import RELEASE_MARK
from dpindex.storage.targets import IndexOptions, build_index

pytestmark = needs_posix

SPEC = attribute_spec("dp-oporp-staircase", 8, k=8, epsilon=2.0)
ROWS = np.random.default_rng(0).random((20, 8))


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def _open_umask():
    """Whatever is private must be so by itself."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_low_the_key_beside_a_ledger_is_private(tmp_path):
    ledger = Ledger(tmp_path / "ledger")
    names = [f"id{row}" for row in range(len(ROWS))]
    index = PrivateIndex(SPEC)
    index.save(tmp_path / "index")
    index.add(ROWS, names, ledger=ledger)
    assert mode(ledger.path) == mode(ledger.key_path) == 0o600
    ledger.key_path.chmod(0o640)
    with pytest.raises(StorageError, match=rf"{ledger.key_path} can be read .* chmod 600"):
        ledger.check(["new"])


def test_low_the_mark_of_an_unfinished_build_is_private(tmp_path):
    np.save(tmp_path / "x.npy", ROWS)
    target = tmp_path / "index"
    private = tmp_path / "private"
    options = IndexOptions(private=private)

    def interrupt(done, total, stage):
        if stage == "privatizing":
            raise KeyboardInterrupt

    with open_dataset(tmp_path / "x.npy") as dataset:
        with pytest.raises(KeyboardInterrupt):
            build_index(dataset, target, SPEC, options, progress=interrupt)
        mark = private / RELEASE_MARK
        assert mode(private) == 0o700
        assert mode(private / "lock") == 0o600
        assert mode(mark) == 0o600
        for path, command in {mark: "chmod 600", private: "chmod 700"}.items():
            before = mode(path)
            path.chmod(before | 0o040)
            with pytest.raises(StorageError, match=rf"{path} can be read by others; run {command}"):
                build_index(dataset, target, SPEC, options)
            path.chmod(before)
        build_index(dataset, target, SPEC, options)


def test_low_a_private_folder_that_others_enter_is_named(tmp_path):
    folder = tmp_path / "private"
    folder.mkdir()
    with pytest.raises(StorageError, match=rf"{folder} can be read by others; run chmod 700"):
        private_folder(folder)
    folder.chmod(0o700)
    private_folder(folder)


def test_low_the_secret_of_a_machine_is_private(tmp_path, monkeypatch):
    folder = tmp_path / "state"
    monkeypatch.setenv("DPINDEX_STATE", str(folder))
    secret = machine_secret()
    assert len(secret) == 32
    assert machine_secret() == secret
    assert mode(folder) == 0o700
    assert mode(folder / "secret") == 0o600
    (folder / "secret").chmod(0o604)
    with pytest.raises(StorageError, match=r"secret can be read by others; run chmod 600"):
        machine_secret()
    (folder / "secret").chmod(0o600)
    (folder / "secret").write_bytes(secret[:31])
    with pytest.raises(DamagedError, match="is not the secret"):
        machine_secret()
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("DPINDEX_STATE", str(tmp_path / "file"))
    with pytest.raises(StorageError, match="name another folder in DPINDEX_STATE"):
        machine_secret()
