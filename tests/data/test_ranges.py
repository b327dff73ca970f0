"""Public ranges of a table: scaling, refusals, and the commands that take them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from dpindex.base.errors import InputError
from dpindex.data import Ranges, as_source, one_per_person, open_dataset
from dpindex.integrations.sklearn import PrivateProjection
from dpindex.privacy import attribute

TABLE = Ranges(("age", "income", "rate"), (0, 0, -1), (120, 1e6, 1))
ROWS = np.array([[30, 50_000, 0], [120, 0, -1], [0, 1e6, 1]])
SCALED = [[0.25, 0.05, 0.5], [1, 0, 0], [0, 1, 1]]


def written(folder: Path, text: str) -> Path:
    path = folder / "ranges.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "i8"])
def test_every_range_becomes_0_to_1(dtype: str) -> None:
    scaled = TABLE.scale(ROWS.astype(dtype))
    np.testing.assert_allclose(scaled, SCALED, atol=1e-6)
    assert scaled.dtype == "f8"  # two more roundings of float32 would leave the room of the proof
    assert scaled[1:].tolist() == SCALED[1:]  # ends are ends, to the last digit


def test_low_ranges_learn_nothing_from_the_data() -> None:
    """Values beyond a range stay beyond 0 … 1, and move no other value."""
    ranges = Ranges(("a",), (0.0,), (4.0,))
    assert ranges.scale([[2.0], [12.0], [-4.0]]).tolist() == [[0.5], [3.0], [-1.0]]


def test_ends_that_floats_round_are_ends() -> None:
    ranges = Ranges(("t",), (0.1,), (0.7,))
    assert ranges.scale(np.array([[0.1], [0.7]], dtype=np.float32)).tolist() == [[0.0], [1.0]]


def test_datasets_are_scaled_part_by_part(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", ROWS)
    with open_dataset(tmp_path / "x.npy", rows_per_part=2) as dataset:
        rows = []
        for part in dataset.with_ranges(TABLE).parts:
            with part.vectors() as source:
                rows.append(source.read())
    np.testing.assert_allclose(np.concatenate(rows), SCALED)
    source = as_source(ROWS)
    assert TABLE.source(source).fingerprint() != source.fingerprint()


def test_a_file_in_the_order_of_the_columns_or_of_their_numbers(tmp_path: Path) -> None:
    text = "column,low,high\nage,0,120\nincome,0,1e6\nrate,-1,1\n"
    assert Ranges.read(written(tmp_path, text)) == TABLE
    text = "column, low, high\n2,-1,1\n0,0,120\n1,0,1e6\n"
    numbered = Ranges.read(written(tmp_path, text))
    assert (numbered.lows, numbered.highs) == (TABLE.lows, TABLE.highs)
    assert numbered.digest == TABLE.digest


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n", "first line must be column,low,high"),
        ("column,low,high\nage,0\n", "line 2 must hold a column and two numbers"),
        ("column,low,high\nage,0,many\n", "line 2 must hold a column and two numbers"),
        ("column,low,high\nage,3,3\n", "'age' is a constant, 3: it tells no rows apart"),
        ("column,low,high\nage,4,3\n", "'age' needs low < high"),
        ("column,low,high\nage,0,inf\n", "range of column 'age' must be finite"),
        ("column,low,high\nage,0,1\nage,0,2\n", "'age' has two ranges"),
        ("column,low,high\n", "ranges need a low and a high for each column"),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, text: str, words: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InputError, match=words) as caught:
        Ranges.read(path)
    assert str(caught.value).startswith(str(path))


def test_wrong_vectors_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="3 ranges for 2 columns"):
        TABLE.scale(ROWS[:, :2])
    with pytest.raises(InputError, match="sparse vectors take no ranges"):
        TABLE.scale(sparse.csr_matrix(ROWS))
    np.save(tmp_path / "x.npy", ROWS[:, :2])
    with (
        open_dataset(tmp_path / "x.npy") as dataset,
        pytest.raises(InputError, match="3 ranges for 2 columns"),
    ):
        dataset.with_ranges(TABLE)


def test_columns_that_decide_are_named() -> None:
    rng = np.random.default_rng(0)
    wide = rng.uniform(0, 120, 500)
    narrow = rng.uniform(0, 1e4, 500)
    rate = rng.uniform(-1, 1, 500)
    decided = TABLE.deciding(np.stack([wide, narrow, rate], axis=1))
    assert {name for name, _ in decided} == {"age", "rate"}
    assert sum(share for _, share in decided) == pytest.approx(1.0, abs=0.02)


def test_a_transformer_takes_ranges(tmp_path: Path) -> None:
    rows = np.tile(ROWS, (20, 1))
    path = written(tmp_path, "column,low,high\nage,0,120\nincome,0,1e6\nrate,-1,1\n")
    options: dict[str, Any] = {
        "epsilon": None,
        "adjacency": attribute(1.0),
        "bounds": (0, 1),
        "allow_unprotected": True,
    }
    codes = PrivateProjection("none-oporp", ranges=path, **options).fit_transform(rows)
    plain = PrivateProjection("none-oporp", **options).fit_transform(TABLE.scale(rows))
    np.testing.assert_array_equal(codes, plain)


@pytest.mark.slow
def test_commands_take_ranges(run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    """The lines that ``plan`` prints with ranges work, and queries are scaled alike."""
    rng = np.random.default_rng(1)
    table = rng.uniform(0, 1, (1200, 3)) * (120, 1e6, 2) - (0, 0, 1)
    np.save("public.npy", table[:550])
    np.save("vectors.npy", table[600:])
    np.save("queries.npy", table[600:610])
    written(tmp_path, "column,low,high\nage,0,120\nincome,0,1e6\nrate,-1,1\n")

    def out(command: str) -> str:
        code, output, error = run(*command.split())
        assert code == 0, error
        return output

    options = "--bounds 0 1 --clip --beta 0.1 --epsilon 60 --dim 3 --n 600"
    planned = out(f"plan {options} --public-sample public.npy --ranges ranges.csv")
    assert "Note: these columns decide which rows of the sample are near: " in planned
    lines = [line.split("dpindex ", 1)[1] for line in planned.splitlines() if "  dpindex " in line]
    assert [line.split()[0] for line in lines[-2:]] == ["build", "query"]
    assert all(line.endswith("--ranges ranges.csv") for line in lines)
    for line in lines[:-1]:
        out(line)
    hits = json.loads(out(f"{lines[-1]} --format json"))
    assert [row[0] for row in hits["ids"]] == list(range(10))
    reranked = json.loads(
        out(
            "query my-index queries.npy -k 3 --candidates 20 --rerank vectors.npy "
            "--ranges ranges.csv --format json"
        )
    )
    assert [row[0] for row in reranked["ids"]] == list(range(10))
    np.testing.assert_allclose([row[0] for row in reranked["scores"]], 1.0, atol=1e-6)
    out("add my-index queries.npy --ranges ranges.csv")
    code, _, error = run("query", "my-index", "queries.npy", "--ranges", "vectors.npy")
    assert code == 2
    assert error.startswith("dpindex: vectors.npy: ")


@pytest.mark.slow
def test_sketches_take_ranges(run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    """Records and queries are scaled alike: a count is that of rows that were scaled before."""
    rng = np.random.default_rng(1)
    table = rng.uniform(0, 1, (3000, 3)) * (120, 1e6, 2) - (0, 0, 1)
    np.save("vectors.npy", table)
    np.save("queries.npy", table[:5])
    np.save("scaled.npy", TABLE.scale(table[:5]))
    written(tmp_path, "column,low,high\nage,0,120\nincome,0,1e6\nrate,-1,1\n")

    def output(command: str) -> str:
        code, text, error = run(*command.split())
        assert code == 0, error
        return text

    output("race build vectors.npy s.race --epsilon 60 --bandwidth 0.5 --ranges ranges.csv")
    scaled = output("race query s.race queries.npy --ranges ranges.csv")
    assert scaled == output("race query s.race scaled.npy")
    assert scaled != output("race query s.race queries.npy")
    assert run("race", "query", "s.race", "queries.npy", "--ranges", "vectors.npy")[0] == 2


@pytest.mark.slow
def test_evaluate_takes_ranges(run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    """A report of a table with ranges is that of the scaled table."""
    pytest.importorskip("matplotlib")
    rng = np.random.default_rng(1)
    table = rng.uniform(0, 1, (700, 3)) * (120, 1e6, 2) - (0, 0, 1)
    rows = {"vectors": table[:400], "queries": table[400:450], "public": table[450:]}
    for name, part in rows.items():
        np.save(f"{name}.npy", part)
        np.save(f"{name}-scaled.npy", TABLE.scale(part))
    written(tmp_path, "column,low,high\nage,0,120\nincome,0,1e6\nrate,-1,1\n")
    options = "--methods none-oporp --beta 1 --bounds 0 1 --clip --examples 0"
    tables = []
    for suffix, ranges in (("", "--ranges ranges.csv"), ("-scaled", "")):
        files = f"vectors{suffix}.npy queries{suffix}.npy --public-sample public{suffix}.npy"
        code, output, error = run(
            *f"evaluate {files} --report report{suffix} {options} {ranges}".split()
        )
        assert code == 0, error
        tables.append(output.split("Report: ")[0])
    assert tables[0] == tables[1]


def test_low_ranges_that_a_float_type_cannot_hold_are_refused() -> None:
    """In float16 a range beyond 65 504 was infinite, and every vector became 0."""
    wide = Ranges(("a", "income"), (0, 0), (1, 100_000))
    half = np.array([[0.5, 50_000.0]], np.float16)
    with pytest.raises(InputError, match=r"column 'income' goes beyond float16 .*65504"):
        wide.scale(half)
    assert wide.scale(half.astype(np.float32))[0, 1] > 0.49


@pytest.mark.parametrize("persons", [["ann", "ann\0"], [2**63, 2**63 + 1, -1], [0.5, 1.5]])
def test_low_persons_that_would_become_one_are_refused(persons: list[Any]) -> None:
    """NumPy drops final NULs, and turns numbers beyond 64 bits into floats."""
    with pytest.raises(InputError, match=r"^persons: "):
        one_per_person(np.eye(len(persons)), persons)
