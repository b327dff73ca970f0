"""Public ranges of a table: scaling, refusals, and the commands that take them."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from helpers.common import (
    fails,
    few_queries,
    filled_index,
    folded,
    known_noise,
    overlap,
    picked,
    record_spec,
    refuses,
    reopened,
    top,
)
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from dpindex import PrivateIndex, Privatizer, build, codes_from_bytes, device
from dpindex.accounting import add_up
from dpindex.base.errors import QualityWarning
from dpindex.data import Ranges, one_per_person, open_dataset, open_vectors
from dpindex.integrations.sklearn import PrivateProjection
from dpindex.mechanism.codebooks import Codebook
from dpindex.mechanism.spec import Projector, Spec
from dpindex.privacy import attribute
from dpindex.race import PStable, RaceSketch, SketchSpec, kernel_sum

TABLE = Ranges(("age", "income", "rate"), (0, 0, -1), (120, 1e6, 1))
ROWS = np.array([[30, 50_000, 0], [120, 0, -1], [0, 1e6, 1]])
SCALED = [[0.25, 0.05, 0.5], [1, 0, 0], [0, 1, 1]]


RANGES = "column,low,high\nage,0,120\nincome,0,1e6\nrate,-1,1\n"


def written(folder, text=RANGES):
    path = folder / "ranges.csv"
    path.write_text(text)
    return path


def test_low_ranges_learn_nothing_from_the_data():
    """Values beyond a range stay beyond 0 … 1, and move no other value."""
    ranges = Ranges(("a",), (0.0,), (4.0,))
    scaled = ranges.scale([[2.0], [12.0], [-4.0]])
    assert scaled.tolist() == [[0.5], [3.0], [-1.0]]


def test_ends_that_floats_round_lie_inside():
    ranges = Ranges(("t", "u"), (0.1, 0.7), (0.7, 0.9))
    corners = np.array([ranges.lows, ranges.highs], dtype=np.float32)
    ends = ranges.scale(corners)
    assert_allclose(ends, [[0.0, 0.0], [1.0, 1.0]], atol=1e-6)
    assert ends.min() >= 0
    assert ends.max() <= 1


def test_a_file_in_the_order_of_the_columns_or_of_their_numbers(tmp_path):
    assert Ranges.read(written(tmp_path)) == TABLE
    text = "column, low, high\n2,-1,1\n0,0,120\n1,0,1e6\n"
    numbered = Ranges.read(written(tmp_path, text))
    assert numbered.lows == TABLE.lows
    assert numbered.highs == TABLE.highs
    assert numbered.digest == TABLE.digest


@pytest.mark.parametrize(
    "text, words",
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
def test_wrong_files_are_refused(tmp_path, text, words):
    path = written(tmp_path, text)
    with refuses(words) as caught:
        Ranges.read(path)
    assert str(caught.value).startswith(str(path))


def test_wrong_vectors_are_refused():
    with refuses("3 ranges for 2 columns"):
        TABLE.scale(ROWS[:, :2])
    with refuses("sparse vectors take no ranges"):
        TABLE.scale(sparse.csr_matrix(ROWS))
    with refuses("3 ranges for 2 columns"):
        plain_spec(dim=2, ranges=TABLE)
    with refuses("sparse vectors take no ranges"):
        Privatizer(plain_spec(ranges=TABLE)).privatize(sparse.csr_matrix(ROWS))


def test_a_column_does_not_take_the_range_of_another(tmp_path, run):
    """Names that the ranges lack are labels, and numbers are places."""
    numbers = tmp_path / "x.npy"
    np.save(numbers, ROWS)
    path = tmp_path / "x.csv"
    path.write_text("income,age,rate\n5e4,30,0\n")
    of_a_place = "'income' is column 1 of the vectors"
    with open_vectors(path) as source, refuses(f"{of_a_place} and 2 of the"):
        TABLE.source(source)
    with open_dataset(path) as dataset, refuses(f"{path}: 'income' is column 1"):
        build(dataset, tmp_path / "index", spec=plain_spec(ranges=TABLE))
    index = tmp_path / "index"
    filled_index(plain_spec(ranges=TABLE), ROWS).save(index)
    fails(run("query", index, path), f"{path}: {of_a_place}")
    reranked = run("query", index, numbers, "-k", 1, "--rerank", path)
    fails(reranked, f"{path}: 'income' is column 1")
    fails(run("add", index, path), f"{path}: {of_a_place}")
    options = ["--epsilon", 1, "--bandwidth", 1, "--ranges"]
    in_order = written(tmp_path)
    run("race", "build", numbers, tmp_path / "sketch", *options, in_order)
    fails(run("race", "query", tmp_path / "sketch", path), f"{path}: {of_a_place}")
    path.write_text("years,income,part\n30,5e4,0\n")
    numbered = Ranges(("0", "1", "2"), TABLE.lows, TABLE.highs)
    for ranges in (TABLE, numbered):
        with open_vectors(path) as source:
            assert_allclose(ranges.source(source).read(), SCALED[:1])


def test_a_column_of_a_frame_does_not_take_the_range_of_another():
    named = pd.DataFrame(ROWS, columns=list(TABLE.columns))
    frame = named[["income", "age", "rate"]]
    spec = plain_spec(ranges=TABLE)
    index = filled_index(spec, ROWS)
    sketch = SketchSpec(3, 2, None, PStable(1.0), 1.0, ranges=TABLE)
    projection = PrivateProjection("raw-staircase", adjacency=attribute(1.0), ranges=TABLE)
    uses = [
        TABLE.scale,
        Privatizer(spec).privatize,
        index.add,
        index.search,
        lambda frame: index.search(ROWS, 1, rerank=frame, candidates=2),
        RaceSketch(sketch).fit,
        projection.fit,
    ]
    for others in (frame, pa.Table.from_pandas(frame)):
        for use in uses:
            with refuses("'income' is column 1 of the vectors and 2 of the ranges"):
                use(others)
    assert len(index) == len(ROWS)
    assert_allclose(TABLE.scale(named), SCALED)
    other_names = named.set_axis(["x", "y", "z"], axis=1)
    assert_allclose(TABLE.scale(other_names), SCALED)


def test_columns_that_decide_are_named():
    rng = default_rng(0)
    wide = rng.uniform(0, 120, 500)
    narrow = rng.uniform(0, 1e4, 500)
    rate = rng.uniform(-1, 1, 500)
    columns = np.stack([wide, narrow, rate], axis=1)
    decided = dict(TABLE.deciding(columns))
    assert set(decided) == {"age", "rate"}
    assert sum(decided.values()) == pytest.approx(1.0, abs=0.02)


def test_a_transformer_takes_ranges():
    rows = np.tile(ROWS, (20, 1))
    options = {
        "epsilon": None,
        "adjacency": attribute(1.0),
        "bounds": (0, 1),
        "allow_unprotected": True,
    }
    codes = PrivateProjection("none-oporp", ranges=TABLE, **options).fit_transform(rows)
    plain = PrivateProjection("none-oporp", **options).fit_transform(TABLE.scale(rows))
    assert_array_equal(codes, plain)


@pytest.mark.slow
@few_queries
def test_commands_take_ranges(run, prints, tmp_path):
    """The lines that ``plan`` prints with ranges work, and queries are scaled alike."""
    rows = table(1200)
    np.save("public.npy", rows[:550])
    np.save("vectors.npy", rows[600:])
    np.save("queries.npy", rows[600:610])
    np.save("more.npy", rows[550:560])
    written(tmp_path)

    options = "--bounds 0 1 --clip --beta 0.1 --epsilon 60 --n 600"
    planned = prints(f"plan {options} --public public.npy --ranges ranges.csv --save my.plan")
    assert "Note: These columns decide which rows of the sample are near: " in planned
    assert "changed by at most 0.1 where the public range of each column is 1" in planned
    assert f"under attribute(beta=0.1 of ranges {TABLE.digest[:8]})" in planned
    assert "in the units of the data" not in planned
    prints("build vectors.npy my-index --plan my.plan")
    hits = json.loads(prints("query my-index queries.npy --json"))  # the index knows its ranges
    own = list(range(10))
    assert [ids[0] for ids in hits["ids"]] == own
    rerank = "-k 3 --candidates 20 --rerank vectors.npy"
    reranked = json.loads(prints(f"query my-index queries.npy {rerank} --json"))
    assert [ids[0] for ids in reranked["ids"]] == own
    first = [scores[0] for scores in reranked["scores"]]
    assert_allclose(first, 1.0, atol=1e-6)
    prints("add my-index more.npy")
    told = prints("info my-index")
    assert f"{TABLE.digest[:8]}: age 0 to 120, income 0 to 1e+06, rate -1 to 1; each is" in told
    assert "changed by at most 0.1 where the public range of each column is 1" in told
    assert '"ranges"' in prints("info my-index --spec")
    assert run("query my-index queries.npy --ranges ranges.csv")[0] == 2


@pytest.mark.slow
def test_sketches_take_ranges(prints, tmp_path):
    """Records and queries are scaled alike: a count is that of rows that were scaled before."""
    rows = table(3000)
    np.save("vectors.npy", rows)
    np.save("queries.npy", rows[:5])
    np.save("scaled.npy", TABLE.scale(rows[:5]))
    written(tmp_path)

    prints("race build vectors.npy s.race --epsilon 60 --bandwidth 0.5 --ranges ranges.csv")
    near = json.loads(prints("race query s.race queries.npy --json"))["count"]
    sketch = RaceSketch.open("s.race")
    sketch.spec = replace(sketch.spec, ranges=None)
    assert_array_equal(near, sketch.count(np.load("scaled.npy")))
    assert "income 0 to 1e+06" in prints("race info s.race")


@pytest.mark.slow
def test_evaluate_takes_ranges(prints, tmp_path):
    """A report of a table with ranges is that of the scaled table."""
    pytest.importorskip("matplotlib")
    rows = table(700)
    files = {"vectors": rows[:400], "queries": rows[400:450], "public": rows[450:]}
    for name, part in files.items():
        np.save(f"{name}.npy", part)
        np.save(f"{name}-scaled.npy", TABLE.scale(part))
    written(tmp_path)
    options = "--methods none-oporp --beta 1 --bounds 0 1 --clip --examples 0"
    tables = []
    for suffix, ranges in (("", "--ranges ranges.csv"), ("-scaled", "")):
        files = f"vectors{suffix}.npy queries{suffix}.npy --public public{suffix}.npy"
        output = prints(f"evaluate {files} --report report{suffix} {options} {ranges}")
        tables.append(output.split("Report: ")[0])
    assert tables[0] == tables[1]


def test_low_ranges_that_a_float_type_cannot_hold_are_refused():
    """In float16 a range beyond 65 504 was infinite, and every vector became 0."""
    wide = Ranges(("a", "income"), (0, 0), (1, 100_000))
    half = np.array([[0.5, 50_000.0]], np.float16)
    with refuses(r"column 'income' goes beyond float16 .*65504"):
        wide.scale(half)
    scaled = wide.scale(half.astype(np.float32))
    assert scaled[0, 1] > 0.49


@folded("persons", [["ann", "ann\0"], [2**63, 2**63 + 1, -1], [0.5, 1.5]])
def test_low_persons_that_would_become_one_are_refused(persons):
    """NumPy drops final NULs, and turns numbers beyond 64 bits into floats."""
    with refuses(r"^persons: "):
        one_per_person(np.eye(len(persons)), persons)


def plain_spec(dim=3, **fields):
    terms = {"epsilon": 60.0, "adjacency": attribute(1.0), "bounds": (0, 1)}
    return Spec("raw-staircase", dim, **{**terms, **fields})


def table(rows, seed=1):
    """Vectors between the ends of the ranges."""
    rng = default_rng(seed)
    return rng.uniform(TABLE.lows, TABLE.highs, (rows, 3))


@known_noise
def test_finding_38_2_an_index_keeps_its_ranges(tmp_path):
    """Queries without them were answered by the column with the largest numbers: .005 for .95."""
    rows = table(300)
    queries = table(20, 2)
    index = filled_index(plain_spec(ranges=TABLE), rows, metric="l2")
    opened = reopened(index, tmp_path / "index")
    assert opened.spec.ranges == TABLE
    apart = TABLE.scale(queries)[:, None] - TABLE.scale(rows)[None]
    true = np.square(apart).sum(axis=2)
    near = top(-true, 10)
    nearest = picked(true, near[:, :5])
    for where in (index, opened):
        hits = where.search(queries, k=10)
        assert overlap(hits.ids, near) > 0.8
        exact = where.search(queries, k=5, candidates=300, rerank=rows)
        assert_allclose(exact.similarity, nearest, rtol=1e-9)
        fetched = where.search(
            queries,
            k=5,
            candidates=300,
            rerank=lambda ids: rows[ids],
        )
        assert_allclose(fetched.similarity, exact.similarity, rtol=1e-9)
    opened.add(queries)
    again = opened.search(queries, k=1, query="private")
    assert np.mean(again.ids[:, 0] >= 300) > 0.9


def test_finding_38_2_devices_keep_ranges(tmp_path):
    spec = plain_spec(ranges=TABLE)
    path = tmp_path / "spec.json"
    path.write_text(spec.to_json())
    code = codes_from_bytes(device.privatize(ROWS[0], path, max_epsilon=60.0))
    assert code.fingerprint == spec.fingerprint
    assert code.fingerprint != plain_spec().fingerprint
    assert_allclose(code.to_float()[0], SCALED[0], atol=0.5)
    scaled = Projector(plain_spec()).project(TABLE.scale(ROWS))
    assert_array_equal(Projector(spec).project(ROWS), scaled)
    with refuses("another spec than this index"):
        PrivateIndex(plain_spec()).add_codes(code)


@known_noise
def test_finding_38_2_sketches_keep_ranges():
    rows = table(2000)
    terms = {"dim": 3, "rows": 50, "width": 100, "hash": PStable(0.5), "epsilon": 60.0}
    spec = SketchSpec(**terms, ranges=TABLE)
    released = RaceSketch(spec).fit(rows).release()
    sketch = RaceSketch.from_bytes(released.to_bytes())
    assert sketch.spec == spec
    scaled = TABLE.scale(rows)
    expected = kernel_sum(PStable(0.5), scaled, scaled[:5])
    assert_allclose(sketch.count(rows[:5]), expected, rtol=0.5)
    other = RaceSketch(SketchSpec(**terms)).fit(rows).release()
    with refuses("seed and ranges, nor"):
        sketch.merge(other)


def test_finding_38_2_codewords_are_scaled_like_records():
    """A codebook is given in the units of the data, and no column drowns the others in it."""
    book = Codebook(table(60, 3))
    spec = record_spec("record-codebook", 3, epsilon=12.0, codebook=book,
                subset=1, ranges=TABLE)  # fmt: skip
    index = filled_index(spec, table(200))
    hits = index.search(table(30, 2), k=3)
    assert hits.ids.shape == (30, 3)
    moved = ROWS + 1
    same = Projector(spec.without_ranges()).project(TABLE.scale(moved))
    assert_array_equal(Projector(spec).project(moved), same)
    with refuses("codewords are private vectors too"):
        PrivateIndex(spec).add(np.asarray(book.stated))
    assert Spec.from_json(spec.to_json()).with_public(book) == spec


def test_ranges_that_differ_do_not_add_up():
    """A change of a tenth of one range is not a tenth of another."""
    change = attribute(0.1)
    one = plain_spec(ranges=TABLE, adjacency=change).guarantee
    wider = Ranges(TABLE.columns, TABLE.lows, (200, 1e6, 1))
    other = plain_spec(ranges=wider, adjacency=change).guarantee
    without = plain_spec(adjacency=change).guarantee
    assert str(add_up(one, one)).endswith(f"under attribute(beta=0.1 of ranges {TABLE.digest[:8]})")
    for strange in (other, without):
        with refuses("count different changes"):
            add_up(one, strange)
        with refuses("count different changes"):
            one.at(strange.adjacency)


@folded(
    "data",
    [
        {},
        [],
        {"columns": [1]},
        {"columns": ["a"], "lows": ["x"], "highs": [1]},
        {"columns": None, "lows": [0], "highs": [1]},
        {"columns": ["a"], "lows": [[0]], "highs": [1]},
    ],
)
def test_low_wrong_ranges_of_a_spec_are_refused(data):
    stated = plain_spec(dim=1).to_dict()
    text = json.dumps({**stated, "ranges": data})
    with refuses("range"):
        Spec.from_json(text)


def test_finding_38_2_what_is_clipped_is_told(run, tmp_path):
    rows = table(400)
    np.save("inside.npy", rows)
    rows[:20, 0] = 500  # 20 of 1200 values
    np.save("vectors.npy", rows)
    written(tmp_path)
    options = "--method raw-staircase --epsilon 9 --beta 1 --bounds 0 1 --clip --ranges ranges.csv"
    code, output, error = run(f"build vectors.npy a {options}")
    assert code == 0
    assert "1.67% of the values lay outside the bounds, and were clipped to them." in output
    assert "note: 1.7% of the values lie outside the public bounds and were clipped" in error
    code, output, error = run(f"build inside.npy b {options}")
    assert code == 0
    assert "clipped" not in output + error
    assert "note: 1.7%" in run("add b vectors.npy")[2]
    with pytest.warns(QualityWarning, match="clipped"):
        PrivateIndex(plain_spec(ranges=TABLE, clip=True)).add(rows)


def test_whole_numbers_that_floats_do_not_tell_apart_are_refused():
    """A change by 2 of a range of 1024 became one by 256: 128 times what its epsilon paid for."""
    ranges = Ranges(("time",), (2.0**60,), (2.0**60 + 1024,))
    times = 2**60 + np.array([[127], [129]])
    with refuses(r"column 'time' goes beyond 2\^53"):
        ranges.scale(times)
    as_given = ranges.scale(times.astype(np.float64))
    assert as_given.tolist() == [[0.0], [0.25]]
    near_zero = Ranges(("time",), (0,), (1024,))
    first, second = near_zero.scale(times - 2**60)
    assert second - first == 2 / 1024
    with refuses("must be finite"):  # all would become 0
        Ranges(("t",), (-1e308,), (1e308,))


@folded("kind", [np.float32, np.float64, np.int32])
def test_every_column_is_scaled_by_its_own_range_in_double_precision(kind):
    """By fractions; roundings of single precision, or the range of a neighbour, would show."""
    rng = default_rng(0)
    lows = rng.integers(-50, 50, 40) / 7
    highs = lows + rng.integers(60, 500, 40) / 3
    rows = lows + (highs - lows) * rng.random((5, 40))
    rows = rows.astype(kind)
    names = tuple(f"c{i}" for i in range(40))
    scaled = Ranges(names, tuple(lows), tuple(highs)).scale(rows)
    for row, made in zip(rows.tolist(), scaled.tolist(), strict=True):
        for value, low, high, found in zip(row, lows, highs, made, strict=True):
            width = Fraction(high) - Fraction(low)
            exact = (Fraction(value) - Fraction(low)) / width
            assert abs(Fraction(found) - exact) <= Fraction(1, 2**50)


def test_ends_are_ends_to_the_last_digit():
    ends = TABLE.scale([TABLE.lows, TABLE.highs])
    assert ends.tolist() == [[0.0] * 3, [1.0] * 3]


def test_names_of_many_columns_are_compared_once():
    """A file of a stranger may name many: their square would take minutes here."""
    names = [str(column) for column in range(100_000)]
    count = len(names)
    ranges = Ranges(names, [0.0] * count, [1.0] * count)
    assert len(ranges.columns) == count
    with refuses("column '7' has two ranges"):
        Ranges([*names, "7"], [0.0] * (count + 1), [1.0] * (count + 1))
