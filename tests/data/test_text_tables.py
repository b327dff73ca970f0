"""Tables of text as people save them: a vector is never lost, and no cell changes or is shown."""

import numpy as np
import pytest
from helpers.common import STAIRCASE, fails, folded, refuses

from dpindex.data import open_vectors, read_ids, read_payload, read_tables

ROWS = "0.5,0.25\n-0.5,0.75\n0.125,-1\n"
VECTORS = [[0.5, 0.25], [-0.5, 0.75], [0.125, -1.0]]


def _read(path):
    with open_vectors(path) as source:
        return source.read().tolist()


@folded(
    "first, match",
    [
        *[
            (f"{mark},0.5", "line 1, column 1")
            for mark in (
                "NA",
                "null",
                "None",
                "N/A",
                "-",
                "\\N",
                "#N/A",
                "<NA>",
                "?",
                "",
                "na",
                ".",
            )
        ],
        ("0.5,NA", "line 1, column 2"),
        ("x,NULL", "line 1, column 2"),
        ("0,1", "run of whole numbers"),
        ("1,2", "run of whole numbers"),
        ('"7","8"', "run of whole numbers"),
        ("x,0.5", "line 1, column 1 is not a number and column 2 is one"),
        ("0.5,x", "line 1, column 2 is not a number and column 1 is one"),
        (",d0", "row index"),
        ('"",d0', "row index"),
    ],
)
def test_a_first_line_that_may_be_either_is_refused(first, match, tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "x.csv"
    path.write_text(f"{first}\n{ROWS}")
    with refuses(match):
        open_vectors(path)


@folded(
    "first, vectors",
    [
        ("d0,d1\n", VECTORS),
        ("a b,c\n", VECTORS),
        ("1.0,2.0\n", [[1.0, 2.0], *VECTORS]),
        ("2,1\n", [[2.0, 1.0], *VECTORS]),
        ("1e-1,-0.5\n", [[0.1, -0.5], *VECTORS]),
        ("", VECTORS),
    ],
)
def test_names_and_vectors_are_told_apart(first, vectors, tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    text = first + ROWS
    (folder / "x.csv").write_text(text)
    (folder / "x.tsv").write_text(text.replace(",", "\t"))
    for name in ("x.csv", "x.tsv"):
        assert _read(folder / name) == vectors


def test_header_says_what_an_unclear_first_line_is(run, prints, tmp_path):
    (tmp_path / "x.csv").write_text(f"0,1\n{ROWS}")
    build = f"build x.csv ix {STAIRCASE}"
    fails(
        run(build),
        "x.csv: line 1 is a run of whole numbers",
        "--header yes",
        "--header no",
    )
    assert "4 vectors" in prints(f"{build} --header no")
    assert "3 vectors" in prints(f"build x.csv iy {STAIRCASE} --header yes")
    assert len(_read(f"{tmp_path / 'x.csv'}:header=no")) == 4
    assert _read(f"{tmp_path / 'x.csv'}:header=yes") == VECTORS
    np.save(tmp_path / "x.npy", np.array(VECTORS))
    fails(run(f"build x.npy iz {STAIRCASE} --header no"), "--header is for .csv and .tsv files")


@pytest.mark.parametrize("head", ["index,d0,d1\n", ""])
def test_a_column_that_counts_the_rows_is_no_coordinate(head, tmp_path):
    lines = [f"{row},{line}" for row, line in enumerate(ROWS.splitlines())]
    (tmp_path / "x.csv").write_text(head + "\n".join(lines) + "\n")
    with refuses("counts the rows from 0: it is the row index"):
        open_vectors(tmp_path / "x.csv")


@pytest.mark.parametrize("head", ["id,d0,d1", "d0,ID,d1"])
def test_a_column_of_ids_is_no_coordinate(head, tmp_path):
    (tmp_path / "x.csv").write_text(f"{head}\n1,.5,0\n0,.25,1\n")
    for key in ("", ":header=yes"):
        with refuses(r"x\.csv.*names rows and is not a coordinate"):
            open_vectors(f"{tmp_path}/x.csv{key}")


CELLS = {
    "zip": (["00001", "10001"], ["00001", "10001"]),
    "long": (["12345678901234567890", "1"], ["12345678901234567890", "1"]),
    "exponent": (["3e2", "300"], ["3e2", "300"]),
    "day": (["2024-01-10", "2024-02-01"], ["2024-01-10", "2024-02-01"]),
    "space": (["a ", " a"], ["a ", " a"]),
    "country": (["NA", "DE"], ["NA", "DE"]),
    "year": (["1999", "-3"], [1999, -3]),
    "gap": (["1999", ""], [1999, None]),
    "marked": (["NA", "2.5"], [None, 2.5]),
    "price": (["1.50", "1e-05"], [1.5, 1e-05]),
    "seen": (["true", "False"], [True, False]),
    "huge": (["9223372036854775807", "0"], [9223372036854775807, 0]),
    "id": (["7", "12"], [7, 12]),
}


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_cells_of_a_payload_keep_what_they_say(suffix, tmp_path):
    pytest.importorskip("pyarrow")
    delimiter = {"csv": ",", "tsv": "\t"}[suffix]
    columns = [cells for cells, _ in CELLS.values()]
    rows = [list(CELLS), *zip(*columns, strict=True)]
    path = tmp_path / f"p.{suffix}"
    lines = [delimiter.join(row) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    expected = {name: read for name, (_, read) in CELLS.items()}
    assert read_payload(path).to_pydict() == expected
    kept = read_tables([path], texts=["year"])
    assert kept["year"].to_pylist() == ["1999", "-3"]


def test_another_encoding_is_named_with_its_line(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "x.csv").write_bytes(b"a,b\nx,1\n\xe9,2\n")
    for read in (read_payload, _read):
        with refuses(r"line 3 cannot be read as UTF-8 \(it is Latin-1"):
            read(tmp_path / "x.csv")
    (tmp_path / "ids.txt").write_bytes("a\né\n".encode("latin-1"))
    with refuses("line 2 cannot be read as UTF-8"):
        read_ids(tmp_path / "ids.txt")


def test_blank_lines_alone_are_no_table(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "x.csv").write_text("\n\n")
    for read in (read_payload, _read):
        with refuses("line 1 is blank"):
            read(tmp_path / "x.csv")


def test_another_separator_is_named(tmp_path):
    pytest.importorskip("pyarrow")
    texts = {"x.csv": "1.5;2\n3;4\n", "y.csv": "a\tb\n1\t2\n", "x.tsv": "1,2\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        for read in (open_vectors, read_payload):
            with refuses(r"line 1 has '.+' and no '.+'; separate cells by"):
                read(tmp_path / name)


def test_a_ragged_line_of_a_payload_is_named_as_an_editor_counts(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "x.csv").write_text('id,city\n1,"Os\nlo"\n\n2\n')
    with refuses("line 5 has 1 cells where line 1 has 2"):
        read_payload(tmp_path / "x.csv")


def test_a_name_of_a_column_may_hold_another_separator(tmp_path):
    (tmp_path / "x.csv").write_text("lag 1|2,lag 2;3\n" + ROWS)
    assert _read(tmp_path / "x.csv") == VECTORS
