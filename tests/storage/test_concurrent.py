"""Changes of one index by several processes, and changes that die half-way."""

import json
import subprocess
import sys

import numpy as np
import pytest
from helpers.common import attribute_spec, counted, fails, interrupt, low_rank, uniform

from dpindex import Ledger, PrivateIndex
from dpindex.index import private_index
from dpindex.storage import targets
from dpindex.storage.directory import IndexDirectory

COMMAND = (sys.executable, "-c", "from dpindex.cli import main; main()")
SPEC = attribute_spec("dp-oporp-staircase", 8, epsilon=20.0)
X = uniform(10, 8)


@pytest.fixture
def index(tmp_path):
    """An index without rows; ``x.npy`` and four files of ten ids lie beside it."""
    np.save(tmp_path / "x.npy", X)
    for part in range(4):
        names = (f"{part}-{row}\n" for row in range(10))
        (tmp_path / f"ids{part}.txt").write_text("".join(names))
    PrivateIndex(SPEC).save(tmp_path / "ix")
    return tmp_path / "ix"


def started(folder, line):
    return subprocess.Popen(
        [*COMMAND, *line.split()],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_processes_add_at_once(index, tmp_path):
    """All are under way, and wait, before the first may write."""
    with IndexDirectory(index).held():
        lines = (f"add ix x.npy --ids ids{part}.txt --ledger ledger" for part in range(4))
        adding = [started(tmp_path, line) for line in lines]
        for process in adding:
            assert process.stderr.readline() == "waiting for another process that writes ix …\n"
    for process in adding:
        out, err = process.communicate()
        assert (process.returncode, err) == (0, ""), out
    ids = PrivateIndex.open(index).ids.tolist()
    expected = [f"{part}-{row}" for part in range(4) for row in range(10)]
    assert sorted(ids) == expected
    assert counted(Ledger(tmp_path / "ledger")) == [(40, 1)]
    assert not list(tmp_path.glob("*.unpublished"))


@pytest.mark.slow
def test_of_two_that_add_the_same_at_once_one_is_refused(index, tmp_path):
    with IndexDirectory(index).held():
        adding = [started(tmp_path, "add ix x.npy") for _ in range(2)]
        for process in adding:
            assert process.stderr.readline() == "waiting for another process that writes ix …\n"
    errors = [process.communicate()[1] for process in adding]
    assert sorted(process.returncode for process in adding) == [0, 2]
    assert "10 of these 10 vectors were released into this index before" in "".join(errors)
    assert len(PrivateIndex.open(index)) == 10


ADD = "add ix x.npy --ids ids0.txt --ledger ledger"


def codes_in(folder):
    """What is in its files of codes, by their names."""
    return {path.name: path.read_bytes() for path in folder.rglob("*.codes")}


def test_what_was_added_and_removed_is_booked_again(
    index,
    tmp_path,
    run,
    prints,
):
    """Only work of which nothing was seen may be done again for nothing."""
    prints(ADD)
    opened = PrivateIndex.open(index)
    opened.remove(opened.ids)
    opened.save(index)
    fails(run(ADD), "was released before")
    prints(f"{ADD} --allow-rerelease")
    assert counted(Ledger(tmp_path / "ledger")) == [(10, 2)]


class TestDenoise:
    """``build --denoise`` that stops while it denoises; ``dpindex denoise``."""

    @pytest.fixture
    def build(self, tmp_path, monkeypatch):
        np.save(tmp_path / "x.npy", low_rank(600))
        np.save(tmp_path / "other.npy", low_rank(600, seed=5))
        names = [f"i{row}\n" for row in range(600)]
        (tmp_path / "ids.txt").write_text("".join(names))
        return "build x.npy ix --method dp-oporp-staircase --beta 1 --epsilon 5 --bounds 0 1"

    @pytest.fixture
    def stop(self, run, monkeypatch):
        def stop(command):
            with monkeypatch.context() as patch:
                for module in (private_index, targets):
                    patch.setattr(module, "fit_denoiser", interrupt)
                assert run(command)[0] == 130

        return stop

    @pytest.mark.parametrize("book", ["", "--ids ids.txt --ledger ledger"])
    def test_the_same_build_goes_on(self, run, build, stop, tmp_path, book):
        build = f"{build} --denoise linear {book}"
        stop(build)
        staged = codes_in(tmp_path)
        stop(build)
        assert not (tmp_path / "ix").exists()
        fails(run(build.replace("x.npy", "other.npy")), "unfinished build of other input")
        code, out, err = run(build)
        assert code == 0
        assert err == ""
        assert "600 vectors (0 privatized now)" in out
        assert "Denoised: linear, learned from 600 codes" in out
        assert PrivateIndex.open(tmp_path / "ix").denoiser is not None
        assert codes_in(tmp_path) == staged
        assert not list(tmp_path.glob("*.unpublished"))
        if book:
            assert counted(Ledger(tmp_path / "ledger")) == [(600, 1)]
        fails(run(build), "finished index", "`dpindex denoise`")

    def test_the_command(self, run, prints, build, stop, tmp_path):
        prints(build)
        stop("denoise ix")
        code, out, err = run("denoise ix --kind linear")
        assert code == 0
        assert err == ""
        assert out == "Denoised: linear, learned from 600 codes.\n"
        assert not list(tmp_path.glob("*.unpublished"))
        assert json.loads(prints("info ix --json"))["denoiser"]["kind"] == "linear"
        fails(run("denoise x.npy"))
        fails(run("denoise nowhere"))
        assert not (tmp_path / "nowhere").exists()

    def test_an_index_that_was_added_to_is_denoised_by_command_only(self, run, prints, build):
        prints(build)
        prints("add ix other.npy")
        fails(run(build), "finished index")
        assert "learned from 1200 codes" in prints("denoise ix --kind linear")
