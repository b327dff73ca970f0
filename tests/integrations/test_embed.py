"""From texts to vectors: files that the other commands read as they are."""

import json
import socket
import sys

import numpy as np
import pytest
from helpers.common import fails, normal, unit

pytest.importorskip("pyarrow", reason="needs pip install pyarrow")
pytest.importorskip("model2vec", reason="needs pip install model2vec")

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from model2vec import StaticModel
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

WORDS = ["[UNK]", "cats", "dogs", "trains", "cakes", "and", "more"]
ROWS = []
for i in range(240):
    one = WORDS[1 + i % 4]
    other = WORDS[1 + i // 4 % 5]
    ROWS.append({"id": f"n{i}", "text": f"{one} and\n{other}", "topic": "a,b"})


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refused(*_):
        raise AssertionError("no network is needed")

    monkeypatch.setattr(socket.socket, "connect", refused)


@pytest.fixture
def model(tmp_path):
    """A model of seven words in the folder ``model``."""
    numbers = {word: row for row, word in enumerate(WORDS)}
    words = Tokenizer(WordLevel(numbers, "[UNK]"))
    words.pre_tokenizer = Whitespace()
    vectors = normal(len(WORDS), 24).astype(np.float32)
    made = StaticModel(vectors, words)
    made.save_pretrained(tmp_path / "model")
    return made


def write(folder, kind):
    """Write the rows as texts, in two files where a folder is meant."""
    table = pa.Table.from_pylist(ROWS)
    if kind == "csv":
        pyarrow.csv.write_csv(table, folder / "texts")
        (folder / "texts").rename(folder / "texts.csv")
    elif kind == "jsonl":
        lines = [json.dumps(row) + "\n" for row in ROWS]
        (folder / "texts.jsonl").write_text("".join(lines))
    else:
        (folder / "texts" / "train").mkdir(parents=True)
        (folder / "texts" / "dataset_info.json").write_text("{}")
        for number, part in enumerate((table[:100], table[100:])):
            file = folder / "texts" / "train" / f"data-{number:05d}-of-00002.{kind}"
            if kind == "parquet":
                pq.write_table(part, file)
            else:
                with pa.ipc.new_stream(file, part.schema) as stream:
                    stream.write_table(part)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "arrow"])
def test_texts_are_searched_by_the_lines_of_the_readme(kind, model, tmp_path, call):
    write(tmp_path, kind)
    texts = f"texts.{kind}" if (tmp_path / f"texts.{kind}").exists() else "texts"
    said = call(f"dpindex embed {texts} --model model --public 60 --queries 20 --to made")
    assert "made/vectors.parquet: 160 vectors" in said.replace("\\", "/")
    names = ("vectors", "public", "queries")
    parts = [pq.read_table(tmp_path / "made" / f"{name}.parquet") for name in names]
    assert [len(part) for part in parts] == [160, 60, 20]
    assert parts[0].schema.names == ["id", "topic", "vector"]
    rows = [row for part in parts for row in part.to_pylist()]
    together = {row["id"]: row["vector"] for row in rows}
    assert len(together) == len(ROWS)
    vectors = unit(model.encode([row["text"] for row in ROWS]))
    found = [together[row["id"]] for row in ROWS]
    np.testing.assert_allclose(found, vectors, atol=1e-6)
    call("dpindex codebook made/public.parquet codebook.npy --size 10 --centroids")
    call(
        "dpindex build made/vectors.parquet my-index --method record-codebook --epsilon 8 --record"
        " --codebook codebook.npy --subset 1 --id-column id --payload-columns topic"
        " --skip-leak-check"
    )
    found = call("dpindex query my-index made/queries.parquet -k 3 --show topic")
    assert "n" in found
    assert "a,b" in found


def test_without_a_model_no_network_and_no_other_package_is_needed(
    tmp_path, run, call, monkeypatch
):
    for gone in ("model2vec", "tokenizers", "safetensors"):
        monkeypatch.setitem(sys.modules, gone, None)
    texts = ["how do I say thank you", "what is thank you in French", "my bicycle is broken"]
    (tmp_path / "texts.csv").write_text("text\n" + "\n".join(texts) + "\n")
    call("dpindex embed texts.csv")
    made = pq.read_table(tmp_path / "vectors.parquet").to_pydict()
    assert made["id"] == [0, 1, 2]
    vectors = np.array(made["vector"])
    same, other = vectors[1:] @ vectors[0]
    assert same > other + 0.2
    fails(run("embed texts.csv --model named --to b"), "run pip install model2vec")


def test_what_cannot_be_embedded_is_said(run, prints, model, tmp_path):
    write(tmp_path, "csv")
    embed = "embed texts.csv --model model"
    fails(
        run(f"{embed} --column body"),
        "no column 'body' among its 3 columns; name another (--column).",
    )
    fails(run(f"{embed} --public -1"), "240 rows; -1 public ones")
    fails(run("embed none.csv --model model"), "none.csv: No such file or directory")
    said = run("embed texts.csv --model nowhere")
    fails(said, "dpindex: nowhere cannot be loaded by model2vec")
    assert not said[2].endswith("..\n")
    (tmp_path / "twice.csv").write_text("vector,text\n1,cats\n")
    fails(run("embed twice.csv --model model"), "has a column 'vector'")
    (tmp_path / "bad.csv").write_text("id,text\n1\n")
    fails(
        run("embed bad.csv --model model"),
        "bad.csv: line 2 has 1 cells where line 1 has 2",
    )
    (tmp_path / "empty.csv").write_text('id,text\n1,""\n')
    fails(run("embed empty.csv --model model"), "row 0 has no word")
    prints(embed)
    fails(run(embed), "vectors.parquet already exists; choose another folder (--to).")


def embedded(run, text, folder, name="t.csv", to="made"):
    (folder / name).write_text(text)
    said = run(f"embed {name} --model model --to {to}")
    assert said[0] == 0, said[2]
    return pq.read_table(folder / to / "vectors.parquet").to_pydict()


def test_numbers_in_json_are_exact_or_refused(run, model, tmp_path):
    line = '{"id": %s, "text": "cats"}\n'
    made = embedded(
        run,
        line % '"2024-01-10 00:00:00"' + line % '"b"',
        tmp_path,
        "t.jsonl",
    )
    assert made["id"] == ["2024-01-10 00:00:00", "b"]
    (tmp_path / "t.jsonl").write_text(line % "12345678901234567890123")
    fails(run("embed t.jsonl --model model --to new"), "column 'id'")


def test_what_is_no_table_of_texts_is_refused_with_its_place(run, model, tmp_path):
    """What is wrong with any table is in tests/data/test_text_tables.py."""
    for text, match in {
        "id,text\n1,cats\n2,dogs\n1,cakes\n": "rows 0 and 2 have the same id",
        "id,text\na,cats\n,dogs\n": "row 1 has an empty id",
        "1,cats\n2,dogs\n": "line 1, column 2 is not a number and column 1 is one",
    }.items():
        (tmp_path / "wrong.csv").write_text(text)
        fails(run("embed wrong.csv --model model"), "wrong.csv", match)
    binary = pa.table({"text": [b"cats"]})
    pq.write_table(binary, tmp_path / "b.parquet")
    fails(run("embed b.parquet --model model"), "column 'text' holds binary")


def test_no_text_is_repeated_in_an_error(run, model, tmp_path):
    secret = "Zq7cats"
    for name, text in {
        "late.csv": f"n,text\n1,{secret}\n2,{secret},3\n",
        "late.jsonl": f'{{"text": "{secret}", "n": 1}}\n{{"text": "{secret}", "n": "{secret}"}}\n',
        "cut.jsonl": f'{{"text": "{secret}\n',
        "twice.jsonl": f'{{"text": "a"}}\n{{"text": "{secret}", "text": "b"}}\n',
        "open.csv": f'id,text\n1,"{secret}\n',
        "unknown.csv": f"id,text\n1,{secret}\n",
    }.items():
        (tmp_path / name).write_text(text)
        said = run(f"embed {name} --model model --to to-{name}")
        fails(said, name)
        assert secret not in "".join(said[1:])


def test_people_are_counted_once_by_either_way_of_naming_them(run, prints, model, tmp_path):
    ids = [f"{i:03}" for i in range(10)]
    (tmp_path / "ids.txt").write_text("\n".join(ids) + "\n")
    lines = [f"{one},cats\n" for one in ids]
    embedded(run, "id,text\n" + "".join(lines), tmp_path)
    build = "--method dp-oporp-staircase --beta 1 --epsilon 2 --ledger l.db"
    files = "build made/vectors.parquet"
    prints(f"{files} one {build} --ids ids.txt")
    fails(run(f"{files} two {build} --id-column id"), "allow-rerelease")
    prints(f"{files} two {build} --id-column id --allow-rerelease")
    said = prints("ledger l.db")
    assert "10 ids" in said, said


def test_texts_are_left_out_whatever_their_column_is_called(model, tmp_path, call):
    """And other columns are kept, one that is called ``text`` too."""
    rows = [{"body": row["text"], "text": "kept", "key": row["id"]} for row in ROWS]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "texts.parquet")
    call("dpindex embed texts.parquet --model model --column body --public 20 --to made")
    for name in ("vectors", "public"):
        file = tmp_path / "made" / f"{name}.parquet"
        table = pq.read_table(file)
        assert sorted(table.column_names) == ["id", "key", "text", "vector"]
        assert set(table["text"].to_pylist()) == {"kept"}
        assert b"cats" not in file.read_bytes()


def test_a_question_is_asked_as_text_and_answered_with_texts(run, prints, model, tmp_path):
    """The texts are those of the holder's file; the index has ids alone."""
    write(tmp_path, "csv")
    embed = "embed texts.csv --model model --to made"
    prints(embed)
    terms = "--method record-cap --record --epsilon 8 --id-column id"
    prints(f"build made/vectors.parquet my-index {terms}")
    rerank = "--rerank made/vectors.parquet --rerank-ids made/vectors.parquet:id"
    asked = f"query my-index --text 'cats and cats' --model model {rerank}"
    code, said, error = run(f"{asked} --candidates 240 --show-from texts.csv:text -k 3")
    assert code == 0, error
    hits = [line for line in said.splitlines() if line.split()[1:2] == ["1"]]
    (best,) = hits
    assert "1.000 exact" in best
    assert "cats and" in best
    assert "no text" not in error
    (tmp_path / "others.csv").write_text("id,text\nx,cats\n")
    code, _, error = run(f"{asked} --show-from others.csv:text -k 3")
    assert code == 0
    assert "3 of 3 hits have no text in others.csv:text" in error
    hits = json.loads(prints(f"{asked} --show-from texts.csv:text -k 1 --json"))
    ((best,),) = hits["ids"]
    ((text,),) = hits["payload_text"]
    assert text == next(row["text"] for row in ROWS if row["id"] == best)
    both = "query my-index made/vectors.parquet --text cats"
    (tmp_path / "twice.csv").write_text("id,text\na,cats\nb,dogs\na,owls\n")
    for line, words in (
        (both, "QUERIES, or one question with --text"),
        ("query my-index", "QUERIES, or one question with --text"),
        ("query my-index made/vectors.parquet --model model", "--model is for"),
        ("query my-index --text zzz --model model", "no word"),
        # The model of the package makes 256 numbers.
        ("query my-index --text cats", "makes 256 numbers, and vectors of the index have"),
        (f"{asked} --show-from texts.csv:body", "no column 'body'"),
        (f"{asked} --show-from twice.csv:text", "twice.csv: rows 0 and 2 have the same id"),
    ):
        fails(run(line), words)
