"""What the command line says when something is wrong: each sentence names the place and the remedy.

Every message here was once met by somebody whom it did not help.
"""

import errno
import io
import os
import re
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from helpers.common import (
    ROOT,
    STAIRCASE,
    attribute_spec,
    codes_of,
    fails,
    filled_index,
    needs_posix,
    refuses,
    succeeds,
    uniform,
)

import dpindex
from dpindex import InputError, PrivateIndex
from dpindex.base.errors import EXTRAS, naming
from dpindex.race import PStable, RaceSketch, SketchSpec

SPEC = attribute_spec("dp-oporp-staircase", 6, epsilon=20.0)
X = uniform(20, 6)


@pytest.fixture
def files(tmp_path, prints):
    """One thing of each kind, and vectors that are refused."""
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "far.npy", 2 * X)
    grey = np.arange(120, dtype=np.uint8)
    np.save(tmp_path / "bytes.npy", grey.reshape(20, 6))
    np.save(tmp_path / "images.npy", np.zeros((20, 2, 3)))
    names = [f"i{row}" for row in range(20)]
    (tmp_path / "ids.txt").write_text("\n".join(names))
    (tmp_path / "spec.json").write_text(SPEC.to_json())
    (tmp_path / "x.codes").write_bytes(codes_of(SPEC, X).to_bytes())
    index = filled_index(SPEC, X)
    index.save(tmp_path / "ix")
    spec = SketchSpec(6, 10, None, PStable(1.0), 1.0)
    sketch = RaceSketch(spec).partial_fit(X).release()
    sketch.save(tmp_path / "x.race")
    prints(f"build x.npy booked {STAIRCASE} --ids ids.txt --ledger book")
    return tmp_path


KINDS = {
    "ix": "ix is a dpindex index, not ",
    "x.race": "x.race is a RACE sketch, not ",
    "spec.json": "spec.json is a spec, not ",
    "x.codes": "x.codes is a file of private codes, not ",
    "book": "book is a ledger, not ",
    "x.npy": "x.npy is a file of vectors, not ",
}
REMEDIES = {
    "ix": "dpindex query",
    "x.race": "dpindex race query",
    "spec.json": "dpindex privatize --spec",
    "x.codes": "dpindex add",
    "book": "dpindex ledger",
    "x.npy": "",
}
# Commands that take one thing, {}, and what they take.
PLACES = {
    "build {} new " + STAIRCASE: "x.npy",
    "privatize {} new --spec spec.json": "x.npy",
    "privatize x.npy new --spec {}": "spec.json",
    "add {} x.npy": "ix",
    "add ix {}": "x.npy x.codes",
    "calibrate {}": "ix",
    "denoise {}": "ix",
    "query {} x.npy": "ix",
    "query ix {}": "x.npy x.codes",
    "info {}": "ix",
    "race build {} new --epsilon 1 --bandwidth 1": "x.npy",
    "race query {} x.npy": "x.race",
    "race query x.race {}": "x.npy",
    "race info {}": "x.race",
    "audit {}": "spec.json ix x.race",
    "ledger {}": "book",
}


@pytest.mark.parametrize("place", PLACES)
def test_one_thing_taken_for_another(run, files, place):
    for thing in KINDS.keys() - PLACES[place].split():
        said = run(place.format(thing))
        fails(said, f"dpindex: {KINDS[thing]}", REMEDIES[thing])


class TestFlags:
    """The library speaks of parameters, the command line of its flags."""

    def test_where_they_are_the_remedy(self, run, files):
        again = f"build x.npy new {STAIRCASE} --ids ids.txt --ledger book"
        fails(run(again), "; ", "(--allow-rerelease).")
        bare = "build x.npy new --method none-oporp --beta 1"
        fails(run(bare), "to build with it (--allow-unprotected).")
        fails(run(f"build x.npy new {STAIRCASE} --beta -1"), "not -1.0 (--beta).")
        fails(run("plan --beta 1 --n 500 --epsilon 1"), "--public")
        far = run(f"build far.npy new {STAIRCASE}")
        fails(far, "set scale or bounds", "or clip")
        fails(run(f"build x.npy new {STAIRCASE} --code-length 0"), "not 0 (--code-length)")

    def test_a_wrong_option_is_not_the_fault_of_the_query_file(self, run, files):
        np.save(files / "wide.npy", np.ones((20, 9)))
        np.save(files / "few.npy", X[:5])
        for option, words in (
            ("-k 0", "(-k)."),
            ("--filter 'year > 3'", "(--filter)."),
            ("--filter 'year >'", "(--filter)."),
            ("--candidates 15", "(--rerank)."),
            ("--rerank few.npy", "(--rerank-ids)."),
            ("--rerank wide.npy", "dpindex: wide.npy: there are 9 columns where the index"),
        ):
            said = run(f"query ix x.npy {option}")
            fails(said, words)
            assert "x.npy" not in said[2]

    def test_a_path_of_nothing(self, run, files):
        for command in ("info none", "query none x.npy", "denoise none"):
            fails(run(command), "none: there is no such index; check the path.")

    def test_the_library_names_parameters(self):
        with refuses(r"to save it \(allow_unprotected\)\.$"):
            attribute_spec("none-oporp", 6).refuse_unprotected(False, "save it")
        with refuses(r"beta must be above 0, not -1\.$"):
            dpindex.attribute(-1)

    def test_names_of_files_stay(self):
        with refuses() as refused, naming("min_norm.npy"):
            raise InputError("leave short vectors out.", field="scale")
        assert str(refused.value) == "min_norm.npy: leave short vectors out (scale)."
        assert refused.value.pointing_at("--scale").endswith("out (--scale).")

    def test_the_library_names_no_flags(self):
        for path in Path(dpindex.__file__).parent.rglob("*.py"):
            if path.parent.name != "cli":
                assert not re.search(r"\(--[a-z]", path.read_text()), path


class TestVectors:
    @pytest.mark.parametrize(
        "command",
        [
            f"build far.npy new {STAIRCASE}",
            "privatize far.npy new --spec spec.json",
            "add ix far.npy",
            "query ix far.npy",
        ],
    )
    def test_a_value_outside_the_bounds_is_in_a_file(self, run, files, command):
        error = run(command)[2]
        assert re.match(r"dpindex: far\.npy: row \d+, column \d+ lies outside", error), error

    def test_bytes(self, run, prints, files):
        said = run(f"build bytes.npy new {STAIRCASE}")
        fails(said, "bytes.npy: row 0", "scale 255 and bounds 0 1")
        scaled = "--scale 255 --bounds 0 1"
        prints(f"build bytes.npy new {STAIRCASE} {scaled}")

    def test_a_stack_of_images(self, run, files):
        said = run(f"build images.npy new {STAIRCASE}")
        fails(said, "3 dimension", "x.reshape(len(x), -1)")
        images = np.zeros((4, 2, 3))
        with refuses(r"x\.reshape\(len\(x\), -1\)"):
            PrivateIndex(SPEC).add(images)

    def test_too_little_memory(self, run, files, monkeypatch):
        size = "Unable to allocate 8.0 GiB for an array"

        def none_left(*_, **__):
            raise MemoryError(size)

        with monkeypatch.context() as patch:
            patch.setattr("numpy.load", none_left)
            said = run(f"build x.npy new {STAIRCASE}")
        fails(said, f"x.npy: not enough memory ({size})", "save it as .npy")
        monkeypatch.setattr(PrivateIndex, "search", none_left)
        said = run("query ix x.npy")
        fails(said, f"not enough memory ({size})", "--code-length")

        def no_room(*_, **__):
            raise ImportError("part.so: failed to map segment from shared object")

        monkeypatch.setattr(PrivateIndex, "search", no_room)
        fails(run("query ix x.npy"), "not enough memory (part.so: failed to map segment")


@contextmanager
def written_to(pipe, text):
    """A named pipe that another thread writes to."""
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(text,))
    writer.start()
    yield
    writer.join()


class TestIds:
    @needs_posix
    def test_from_a_named_pipe(self, prints, files):
        with written_to(files / "pipe", (files / "ids.txt").read_bytes()):
            prints(f"build x.npy new {STAIRCASE} --ids pipe")
        assert PrivateIndex.open(files / "new").ids[3] == "i3"

    @pytest.mark.slow
    def test_from_standard_input(self, files):
        words = f"build x.npy new {STAIRCASE} --ids -".split()
        given = (files / "ids.txt").read_text()
        succeeds(sys.executable, "-m", "dpindex", *words, cwd=files, given=given)
        assert PrivateIndex.open(files / "new").ids[3] == "i3"

    def test_from_standard_input_that_is_closed(self, run, files, monkeypatch):
        monkeypatch.setattr(sys, "stdin", None)
        fails(run(f"build x.npy new {STAIRCASE} --ids -"), "standard input is closed")

    @needs_posix
    @pytest.mark.parametrize("text", [b"", b"a\n\nb\n", b"\xff\n"])
    def test_what_is_wrong_in_a_pipe(self, run, files, text):
        with written_to(files / "pipe", text):
            fails(run(f"build x.npy new {STAIRCASE} --ids pipe"), "pipe: ")


@pytest.mark.parametrize(
    "name, meant",
    [
        ("staircase", "'dp-oporp-staircase'"),
        ("DP_OPORP_STAIRCASE", "'dp-oporp-staircase'"),
        ("dp-oporp-stairs", "'dp-oporp-staircase'"),
        ("oporp", "'dp-oporp'"),
    ],
)
def test_a_method_that_there_is_not(run, name, meant):
    said = run(f"spec --dim 6 --method {name} --beta 1 --epsilon 1")
    fails(said, f"no method {name!r}; did you mean ")
    assert meant in said[2].partition("?")[0]


@pytest.mark.parametrize(
    "command, words",
    [
        ("build x.npy", "missing argument"),
        ("spec --dim 6", "missing option '--method'"),
        ("buidl", "no such command 'buidl'; did you mean 'build'"),
        ("info ix --jsn", "--jsn"),
        ("query ix x.npy -k ten", "'-k'"),
        ("query ix x.npy -k 1_0", "'1_0' is not a number"),
        ("spec --dim 6 --epsilon 1_5", "'1_5' is not a number"),
        ("spec --dim 6 --bounds 0 1_0", "'0 1_0' is not a number"),
        ("query ix x.npy --query public", "'--query'"),
        ("query ix x.npy more", "unexpected extra argument"),
        ("race info", "see dpindex race info --help."),
    ],
)
def test_a_wrong_command_line_is_one_sentence(run, command, words):
    fails(run(command), words, "; see dpindex ")


@pytest.mark.parametrize(
    "options, words",
    [
        ("--public x.npy --record --epsilon 8", "x.npy has 20 vectors, and a plan is for 500"),
        (f"{STAIRCASE} --query-epsilon 0", "must be above 0, not 0.0 (--query-epsilon)"),
        ("--method dp-oporp-staircase --beta 1", "needs an epsilon (--epsilon)"),
        (f"{STAIRCASE} --header yes", "--header is for .csv and .tsv files, and none is named"),
        (f"{STAIRCASE} --columns a:b", "--columns is for .parquet and .arrow files"),
        (f"{STAIRCASE} --payload x.csv --payload-columns ,", "has an empty name; write A,B"),
    ],
)
def test_a_refusal_names_the_option_to_change(run, files, options, words):
    fails(run(f"build x.npy new {options}"), words)


@pytest.mark.parametrize(
    "name, text, words",
    [
        ("german.csv", "0,5;0,25\n0,1;0,2\n", "line 1 has commas within numbers"),
        ("csv.npy", "0.5,0.25\n", "it does not begin as a .npy file"),
        ("vectors", "0.5,0.25\n", "its name has no suffix to say what it holds; use one of .npy"),
    ],
)
def test_a_file_that_is_not_what_it_seems_is_refused_for_that(run, files, name, text, words):
    (files / name).write_text(text)
    fails(run(f"build {name} new {STAIRCASE}"), f"{name}: {words}")


@pytest.mark.parametrize("command", ["query ix x.npy", "info ix", "serve ix --open-to-all"])
def test_a_folder_has_no_collections(run, files, command):
    fails(run(f"{command} --collection other"), "ix is one index, without collections")


@pytest.mark.parametrize(
    "command, words",
    [
        ("embed ids.txt", "no table has the suffix '.txt'; use one of .parquet, "),
        ("embed few.csv --public 2", "few.csv has 2 rows; 2 public ones and 0 queries cannot be"),
    ],
)
def test_texts_that_cannot_be_embedded(run, files, command, words):
    (files / "few.csv").write_text("text\nhello\nthanks\n")
    fails(run(command), words)


class TestNotes:
    """What may not be meant is noted in one line, and done."""

    def test_more_neighbours_than_vectors(self, run, files):
        code, _, error = run("query ix x.npy -k 50")
        assert code == 0
        assert error.startswith("note: -k 50 is more than the 20 vectors of ix: all are listed.\n")
        assert "-k 20" not in run("query ix x.npy -k 20")[2]

    def test_an_index_that_was_moved_without_what_knows_its_vectors(self, run, files):
        run(f"build x.npy old {STAIRCASE}")
        np.save(files / "more.npy", X / 2)
        os.rename(files / "old", files / "moved")
        code, _, error = run("add moved more.npy")
        assert code == 0
        assert error.startswith("note: there is no moved.released beside the index: vectors that")
        assert "released" not in run("add moved x.npy")[2]

    def test_a_beta_that_is_a_small_part_of_the_range(self, run):
        """Bytes without a scale: one grey level is hidden, and nothing said so."""
        stated = f"spec --dim 6 {STAIRCASE} --bounds 0 255"
        code, _, error = run(f"{stated} --beta 1")
        assert code == 0
        assert error.startswith("note: beta = 1 is 0.392 % of the range of an attribute, 0 to 255:")
        assert "scale 255" in error
        assert error.count("\n") == 1
        assert run(f"{stated} --beta 255")[2] == ""
        scaled = f"spec --dim 6 {STAIRCASE} --bounds 0 1 --scale 255"
        assert run(f"{scaled} --beta 0.01")[2].startswith("note: beta = 2.55 is 1 % of the range")
        assert run(f"{scaled} --beta 0.1")[2] == ""

    def test_a_delta_above_one_over_the_number_of_vectors(self, run, prints, files):
        gaussian = "--method dp-oporp --beta 1 --epsilon 1"
        code, _, error = run(f"build x.npy loose {gaussian} --delta 0.5")
        assert code == 0
        assert "note: delta = 0.5 is more than one over the number of vectors, 0.05:" in error
        assert "delta = 0.5 is more than" in prints("info loose")
        code, _, error = run(f"build x.npy tight {gaussian} --delta 1e-6")
        assert "delta" not in error


def test_extras_are_those_of_the_package():
    """Messages name packages, which pip finds; an extra is known to a checkout alone."""
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    for extra, packages in EXTRAS.items():
        line = re.search(rf"^{extra} = \[(.*)\]$", project, re.MULTILINE)
        assert line
        named = [re.split("[=~]", one)[0] for one in packages.split()]
        assert re.findall(r'"([\w\[\]-]+)[>=]=', line[1]) == named


def test_a_missing_package_is_named(run, files, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "h5py", None)
    (files / "x.h5").write_bytes(b"\x89HDF")
    fails(run(f"build x.h5 new {STAIRCASE}"), "run pip install h5py pyarrow")


def test_a_finished_index_is_not_built_elsewhere(run, files):
    said = run(f"build x.npy booked {STAIRCASE}")
    remedies = ("`dpindex denoise`", "`dpindex add`")
    fails(said, "releases every vector twice", *remedies)
    assert "another directory" not in said[2]


def test_an_index_that_was_changed_since(files):
    mine = PrivateIndex.open(files / "ix")
    other = PrivateIndex.open(files / "ix")
    other.add(X / 2)
    other.save(files / "ix")
    mine.add(X / 3, ids=range(100, 120))
    with refuses("open it again and repeat the change; add_codes"):
        mine.save(files / "ix")
    again = PrivateIndex.open(files / "ix")
    mine.remove(range(20))
    again.add_codes(mine.codes, mine.ids)
    again.save(files / "ix")
    assert len(PrivateIndex.open(files / "ix")) == 60


def test_a_value_of_a_public_sample_that_is_not_finite_is_named(run, files):
    """With its file and row, before anything is planned, designed or measured."""
    sample = uniform(600, 24)
    sample[17, 3] = np.nan
    np.save(files / "bad.npy", sample)
    where = "bad.npy: row 17, column 3 is NaN"
    terms = "--epsilon 3 --beta 1"
    public = "--public bad.npy"
    fails(run(f"plan --n 1000 {terms} {public}"), where)
    fails(run(f"design bad.npy design.npz {terms}"), where)
    measured = f"evaluate x.npy q.npy --report report {public}"
    fails(run(f"{measured} --methods dp-oporp-staircase --epsilons 3 --beta 1"), where)
    assert not (files / "report").exists()


def test_the_home_folder_is_found_by_its_sign(prints, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    np.save(tmp_path / "v.npy", np.eye(3))
    (tmp_path / "i.txt").write_text("a\nb\nc\n")
    (tmp_path / "p.csv").write_text("n\n1\n2\n3\n")
    files = "--ids=~/i.txt --payload=~/p.csv --ledger=~/l.db"
    prints(f"build ~/v.npy ~/ix {STAIRCASE} {files}")
    prints("query ~/ix ~/v.npy -k 1 --rerank=~/v.npy")
    index = dpindex.open("~/ix")
    index.save("~/copy")
    assert (tmp_path / "copy" / "manifest.json").exists()
    assert len(dpindex.Ledger("~/l.db").totals()) == 1
    assert dpindex.open_dataset("~/v.npy").rows == 3


def test_a_plan_that_cannot_be_saved_is_shown(run, files, monkeypatch):
    class Made(str):
        def save(self, path):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("dpindex.study.planner.plan", lambda *_, **__: Made("what was planned"))
    result = run("plan --public x.npy --n 900 --epsilon 4 --beta 1 --save my.plan")
    assert result[1] == "what was planned\n"
    fails(result, "my.plan: No space left on device; make room there and run it again.")


def test_a_terminal_that_lacks_a_letter_gets_it_escaped(prints, monkeypatch):
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", terminal)
    prints("build --help")
    terminal.flush()
    assert b".csv, \\u2026" in terminal.buffer.getvalue()
