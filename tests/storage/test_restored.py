"""A private folder that comes back from a copy: nothing is drawn a second time."""

import os
import shutil
import subprocess

import pytest
from helpers.common import attribute_spec, build, counted, needs_posix, refuses, uniform
from helpers.release_faults import name_folder

import dpindex as dpi
from dpindex.base.files import pack, unpack
from dpindex.storage.journal import RELEASE_MARK, identity

ROWS = 24
DIM = 8
VECTORS = uniform(ROWS, DIM)
IDS = [f"person-{row}" for row in range(ROWS)]
SPEC = attribute_spec("dp-oporp-staircase", DIM, k=8, epsilon=2.0)


def stop(done, total, step):
    if step == "privatizing" and done:
        raise KeyboardInterrupt


def whole(folder, **terms):
    return build(folder / "index", SPEC, VECTORS, ids=IDS, rows=6, **terms)


def half_built(folder, **terms):
    """Stop a build when some of it is drawn; return its private folder."""
    with pytest.raises(KeyboardInterrupt):
        whole(folder, progress=stop, **terms)
    assert not (folder / "index").exists()
    return folder / "index.unpublished"


def by_cp(source, place):
    subprocess.run(["cp", "-a", source, place], check=True)


def by_tar(source, place):
    archive = place.with_name("archive.tar")
    subprocess.run(["tar", "-cpf", archive, "-C", source, "."], check=True)
    place.mkdir(mode=0o700)
    subprocess.run(["tar", "-xpf", archive, "-C", place], check=True)


def by_hand(source, place):
    """With all times that a program may set."""
    shutil.copytree(source, place)
    for path in [*source.rglob("*"), source]:
        status = path.stat()
        times = (status.st_atime_ns, status.st_mtime_ns)
        os.utime(place / path.relative_to(source), ns=times)


def give_the_same_inode(mark):
    """Let a copy have the inode of the original, as file systems give a freed one out again."""
    header, arrays = unpack(mark.read_bytes(), RELEASE_MARK)
    own = identity(mark.with_name("lock"))
    header["lock"] = [own[0], *header["lock"][1:]]
    mark.write_bytes(pack(RELEASE_MARK, header, arrays))


@needs_posix
@pytest.mark.parametrize("copy", [by_cp, by_tar, by_hand], ids=lambda copy: copy.__name__)
def test_a_copy_that_is_put_back_is_refused_whatever_its_inode(tmp_path, copy):
    """The original is gone, so its inodes are free: they alone told an original from a copy."""
    private = half_built(tmp_path)
    copy(private, tmp_path / "kept")
    whole(tmp_path)
    served = (tmp_path / "index").rename(tmp_path / "served")
    copy(tmp_path / "kept", private)
    for put_back in (lambda mark: None, give_the_same_inode):
        put_back(private / RELEASE_MARK)
        with refuses("copied, restored or moved here"):
            whole(tmp_path)
        assert not (tmp_path / "index").exists()
    assert len(dpi.open(served)) == ROWS


@pytest.mark.parametrize("lost", ["all that was drawn", "what came last"])
def test_a_ledger_knows_a_release_whose_journal_went_back_in_time(tmp_path, lost):
    """A snapshot of the disk keeps what tells a copy, and so does whoever edits the journal."""
    ledger = dpi.Ledger(tmp_path / "ledger")
    private = half_built(tmp_path, ledger=ledger)
    shutil.copytree(private, tmp_path / "kept")
    whole(tmp_path, ledger=ledger)
    (tmp_path / "index").rename(tmp_path / "served")
    (tmp_path / "kept").rename(private)
    if lost == "all that was drawn":
        for codes in private.rglob("*.codes"):
            codes.unlink()
    name_folder(private / RELEASE_MARK)
    with refuses("its codes are gone from"):
        whole(tmp_path, ledger=ledger)
    assert not (tmp_path / "index").exists()
    assert counted(ledger) == [(ROWS, 1)]
