"""The command line as a user meets it: each command, each kind of bad input, exit codes."""

import json
import re
import shlex
import shutil
import signal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from helpers.common import (
    STAIRCASE,
    attribute_spec,
    fails,
    filled_index,
    flipped,
    low_rank,
    needed,
    normal,
    picked,
    top,
    uniform,
    unit,
    write_dataset,
)
from helpers.documents import COMMANDS
from numpy.random import default_rng

import dpindex as dpi
from dpindex.cli import commands
from dpindex.mechanism.variants import parse_variant
from dpindex.storage.journal import PrivateFolder

INTERRUPTED = "dpindex: interrupted; what was committed is kept. Run it again.\n"
QUICK = ("raw-staircase", "dp-rp-g-opt", "dp-sjlt-laplace", "dp-signoporp-geometric", "none-oporp")


def names_of(rows):
    return [f"doc-{row}" for row in rows]


@pytest.fixture
def files(tmp_path):
    """Vectors, queries, ids and faulty vectors as files."""
    x = uniform(300, 24).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "q.npy", x[:5])
    np.savez(tmp_path / "two.npz", base=x, queries=x[:5])
    scipy.sparse.save_npz(tmp_path / "sparse.npz", scipy.sparse.csr_matrix(x))
    (tmp_path / "ids.txt").write_text("\n".join(names_of(range(300))))
    for name, value in {"nan": np.nan, "far": 1.5}.items():
        bad = x.copy()
        bad[299, 3] = value
        np.save(tmp_path / f"{name}.npy", bad)
    return tmp_path


@pytest.fixture
def told(prints):
    """What a command says as JSON."""
    return lambda line: json.loads(prints(f"{line} --json"))


def test_build_query_info(prints, told, files):
    out = prints(f"build x.npy ix {STAIRCASE} --code-length 24 --ids ids.txt")
    assert "300 vectors (300 privatized now)" in out
    assert "epsilon = 20 (pure DP) under attribute(beta=1)" in out
    hits = told("query ix q.npy -k 3")
    assert [row[0] for row in hits["ids"]] == names_of(range(5))
    assert all(similarity[0] > 0.9 for similarity in hits["similarity"])
    out = prints("query ix q.npy --query private")
    assert "doc-0" in out
    out = prints("info ix")
    for words in ("What is protected", "What is not protected", "ids", "group privacy", "m × 20",
                  "a 50:50 guess becomes", "may find its code", "among 300",
                  "nobody's secret"):  # fmt: skip
        assert words in out


def test_what_a_variant_states_is_stated_once(run, prints):
    spec = "spec --method dp-signoporp-rr --dim 24 --beta 1 --epsilon 8"
    assert json.loads(prints(f"{spec} --variant repetitions=2"))["repetitions"] == 2
    fails(run(f"{spec} --variant repetitions=2,repetitions=3"), "repetitions is stated twice")
    fails(
        run(f"{spec} --variant repetitions=2,"),
        "a variant is NAME=VALUE",
        "(--variant)",
    )


def test_names_are_printed_on_one_line_and_quoted_for_a_shell(prints, files):
    """What is said last can be pasted; a name cannot forge a line."""
    out = prints(f"build x.npy 'my index' {STAIRCASE}")
    assert out.splitlines()[-1].endswith(": dpindex info 'my index'")
    out = prints(f"build x.npy 'two\nlines' {STAIRCASE}")
    assert r"two\nlines: 300 vectors" in out
    assert "\nlines" not in out


def test_query_formats(run, prints, told, files):
    run(f"build x.npy ix {STAIRCASE}")
    hits = told("query ix q.npy")
    estimates = ("similarity", "stderr", "unbiased", "unbiased_stderr")
    assert hits.keys() == {"ids", "scores", *estimates}
    assert {np.shape(column) for column in hits.values()} == {(5, 10)}
    out = prints("query ix x.npy -k 1")
    assert "290 more queries" in out


@pytest.mark.slow
def test_query_reranks(run, prints, told, files):
    run(f"build x.npy ix {STAIRCASE} --ids ids.txt")
    asked = "query ix q.npy -k 3 --candidates 300"
    stored = np.load(files / "x.npy")
    np.save(files / "back.npy", stored[::-1])
    (files / "back.txt").write_text("\n".join(names_of(range(299, -1, -1))))
    vectors = unit(stored.astype(float))
    truth = vectors[:5] @ vectors.T
    best = top(truth, 3)
    for options in ("x.npy", "back.npy --rerank-ids back.txt", "two.npz:base"):
        hits = told(f"{asked} --rerank {options}")
        assert hits["ids"] == [names_of(row) for row in best]
        np.testing.assert_allclose(hits["similarity"], picked(truth, best))
        assert hits["stderr"] == [[0.0] * 3] * 5
        assert hits["exact"] == [[True] * 3] * 5
    assert "1.000 exact" in prints("query ix q.npy --query private --rerank x.npy")
    np.save(files / "few.npy", stored[:2])
    (files / "few.txt").write_text("doc-0\ndoc-1\n")
    few = "few.npy --rerank-ids few.txt"
    code, out, error = run(f"query ix q.npy --candidates 300 --rerank {few}")
    assert code == 0
    assert "note: 40 hits have no vector in few.npy" in error
    assert "±" in out
    fails(run(f"{asked} --rerank few.npy"), "for its 300 rows")
    fails(run(f"{asked} --rerank few.npy --rerank-ids ids.txt"), "300 ids for 2 vectors")
    fails(run(f"{asked} --rerank-ids ids.txt"), "--rerank-ids names the rows of --rerank")
    fails(run(f"{asked} --rerank none.npy"), "none.npy: No such file")


@pytest.mark.slow
def test_the_three_people(run, prints, files):
    """Holder makes a spec, devices privatize, holder adds, searcher asks with codes."""
    (files / "spec.json").write_text(prints(f"spec --dim 24 --code-length 24 {STAIRCASE}"))
    prints("privatize q.npy q.codes --spec spec.json")
    run(f"build x.npy ix --code-length 24 {STAIRCASE}")
    assert "5 added, 305 in all" in prints("add ix q.codes")
    assert "5 added, 310 in all" in prints("add ix two.npz:queries")
    out = prints("query ix q.codes -k 1 --json")
    assert prints("query ix q.codes --query private -k 1 --json") == out
    run(f"build x.npy other --code-length 24 {STAIRCASE} --seed 9")
    fails(run("add other q.codes"), "another spec")
    whole = (files / "q.codes").read_bytes()
    (files / "bad.codes").write_bytes(flipped(whole, -1))
    fails(run("add ix bad.codes"), "bad.codes", "checksum")


@pytest.mark.parametrize(
    "files_and_options, parts",
    [
        ("nan.npy", "row 299, column 3, NaN"),
        ("far.npy", "row 299, column 3, bounds [-1, 1]"),
        ("missing.npy", "missing.npy"),
        ("two.npz", "base, queries"),
        ("two.npz:none", "none"),
        ("ids.txt", "ids.txt"),
        ("x.npy --code-length 25", "25"),
        ("x.npy --delta 1e-6", "takes no delta, --delta"),
        ("x.npy --metric dot", "metric"),
        ("x.npy --ids missing.txt", "missing.txt"),
        ("x.npy --ids two.npz:queries", "two.npz"),
    ],
)
def test_bad_builds_say_what_and_write_nothing(run, files, files_and_options, parts):
    vectors, _, options = files_and_options.partition(" ")
    fails(run(f"build {vectors} new {STAIRCASE} {options}"), *parts.split(", "))
    assert not (files / "new").exists()


def test_finding_8_the_unprotected_need_the_flag_everywhere(run, prints, files):
    build = "build x.npy ix --method none-oporp --beta 1"
    fails(run(build), "protects nothing")
    assert "not private" in prints(f"{build} --allow-unprotected")
    assert "Nothing is protected" in prints("info ix")
    (files / "none.json").write_text(prints("info ix --spec"))
    for command in (
        "privatize q.npy q.codes --spec none.json",
        "query ix q.npy --query private",
        "add ix q.npy",
    ):
        before = sorted(files.iterdir())
        fails(run(command), "protects nothing", "--allow-unprotected")
        assert sorted(files.iterdir()) == before
        prints(f"{command} --allow-unprotected")


def test_finding_8_a_device_limits_epsilon_and_add_says_what_it_spends(run, prints, files):
    (files / "spec.json").write_text(prints(f"spec --dim 24 {STAIRCASE}"))
    options = "--spec spec.json --ids ids.txt --ledger ledger"
    above = run(f"privatize x.npy x.codes {options} --max-epsilon 19")
    fails(above, "epsilon = 20", "at most epsilon = 19 of DP is accepted")
    assert not (files / "x.codes").exists()
    assert not (files / "ledger").exists()
    prints(f"privatize x.npy x.codes {options} --max-epsilon 20")
    prints(f"build x.npy ix {STAIRCASE}")
    _, out, _ = run("add ix q.npy")
    assert "Each added id spent epsilon = 20 (pure DP)" in out
    assert "one attribute (coordinate) of one vector, changed by at most 1" in out
    prints("privatize q.npy q.codes --spec spec.json")
    assert "Nothing was spent here" in prints("add ix q.codes")


def test_finding_9_a_link_under_the_name_of_an_output(run, prints, files):
    """Refused before anything is spent, also where it leads nowhere."""
    (files / "spec.json").write_text(prints(f"spec --dim 24 {STAIRCASE}"))
    (files / "x.codes").symlink_to(files / "elsewhere")
    options = "--spec spec.json --ids ids.txt --ledger ledger"
    fails(run(f"privatize x.npy x.codes {options}"), "x.codes already exists")
    assert not (files / "elsewhere").exists()
    assert not (files / "ledger").exists()


def test_the_size_is_said_first(prints, files):
    options = "--method raw-staircase --beta 1 --epsilon 20"
    out = prints(f"build x.npy ix {options}")
    assert out.startswith("300 codes of 24 numbers, at most 96 B each: at most 28.8 KB.\n")
    assert (files / "ix").is_dir()


def test_wide_vectors_are_refused_by_raw_methods_with_the_way_out(run, files):
    columns = [5, 1 << 23]
    wide = scipy.sparse.csr_matrix(([1.0, 1.0], ([0, 1], columns)), shape=(2, 1 << 24))
    scipy.sparse.save_npz(files / "wide.npz", wide)
    for method in ("raw-staircase", "raw-square-wave"):
        stated = f"--method {method} --beta 1 --epsilon 2 --bounds 0 1"
        fails(
            run(f"build wide.npz ix {stated}"),
            "16777216",
            "use dp-oporp-staircase",
        )
    assert not (files / "ix").exists()


def test_info_reads_no_codes(run, prints, files, monkeypatch):
    run(f"build x.npy ix {STAIRCASE} --index-type SQ4")
    before = prints("info ix")
    said = prints("info ix --index-recall")
    assert "SQ4 finds" in said
    assert "SQ4 finds" not in before
    place = files / "ix" / "segments" / "000000.codes"
    place.write_bytes(bytes(place.stat().st_size))
    assert prints("info ix") == before
    fails(run("info ix --index-recall"), "000000.codes")
    place.unlink()
    fails(run("info ix"), "000000.codes is missing")


def test_info_and_methods_for_programs(run, prints, told, files):
    run(f"build x.npy ix {STAIRCASE}")
    facts = told("info ix")
    assert facts["count"] == 300
    assert facts["max_linkage_rate"] is None  # an epsilon for one attribute bounds no linkage
    assert facts["guarantee"]["adjacency"] == {"kind": "attribute", "beta": 1.0}
    names = [row["name"] for row in told("methods")]
    assert names == [method.name for method in dpi.methods()]
    few = prints("methods")
    every = prints("methods --all")
    assert few.startswith("record-codebook  (symbols")
    assert few.count("Choose it for: ") == every.count("Choose it for: ") == 10
    assert "Li & Li 2023 Alg. 8" in every
    assert "Li & Li 2023 Alg. 8" not in few


@pytest.mark.slow
def test_evaluate_writes_a_report(run, prints, files):
    out = prints(
        "evaluate x.npy q.npy --report report --beta 1 --epsilons 2,20 --methods "
        "dp-oporp-staircase,none-oporp --runs 1 --neighbours 20"
    )
    assert "dp-oporp-staircase" in out
    assert max(map(len, out.splitlines())) <= 80
    for words in (
        "recall@10 of the true 10",
        "precision@10 of the true 20",
        "reconstructed vectors",
        "exact queries: recall@10",
        "R=100\ndp-oporp-staircase, k = 24",
    ):
        assert words in out
    for name in ("curve.csv", "report.html"):
        assert (files / "report" / name).stat().st_size > 0
    again = "evaluate x.npy q.npy --report report --neighbours 20 --runs 1"
    fails(run(f"{again} --beta 1 --epsilons 5"), "another evaluation", "--replace")
    for options, parts in (
        ("--beta 1 --epsilons two", ("--epsilons", "two")),
        ("--beta 1 --epsilons 1,,2", ("--epsilons must be a list such as 1,2,5", "1,,2")),
        ("--beta 1 --epsilons 1_5", ("--epsilons must be a list such as 1,2,5", "1_5")),
        ("--beta 1 --epsilons 1,٣", ("--epsilons must be a list such as 1,2,5", "٣")),
        ("--beta 1 --methods ,", ("--methods must be a list such as A,B",)),
        ("--beta 1 --examples -1", ("from 0 to", "(--examples)")),
        ("--beta 0", ("beta",)),
        ("--beta 1 --max-queries 0", ("--max-queries",)),
        ("--beta 1 --image-shape 5x5", ("--image-shape", "24 numbers")),
    ):
        fails(run(f"evaluate x.npy q.npy --report r {options}"), *parts)


@pytest.mark.slow
def test_denoised_and_compact_indexes(run, prints, told, files):
    """Build with a denoiser, add under it, fit again; info says what there is and how good."""
    base = low_rank(1200)
    np.save(files / "base.npy", base[:1000])
    np.save(files / "more.npy", base[1000:])
    public = "--method raw-staircase --beta 1 --epsilon 4 --bounds 0 1"
    out = prints(f"build base.npy ix {public} --denoise auto --index-type SQ8")
    assert "learned from 1000 codes" in out
    before = told("info ix --index-recall")
    assert before["denoiser"]["rows"] == 1000
    assert 0.8 < before["index_recall"] <= 1
    prints("add ix more.npy")
    after = told("info ix")
    assert after["count"] == 1200
    assert after["denoiser"] == before["denoiser"]
    assert after["guarantee"] == before["guarantee"]
    out = prints("info ix --index-recall")
    assert "learned from 1000 codes; error of a coordinate predicted from the others alone: " in out
    assert "of the ten nearest that a flat search finds" in out
    prints("query ix more.npy --query private")
    np.save(files / "last.npy", base[:1])
    out = prints("add ix last.npy --denoise linear")
    assert "Denoised: linear, learned from 1201 codes." in out
    assert told("info ix")["denoiser"]["kind"] == "linear"


def test_idp_is_said_to_promise_less(run, files):
    terms = "--epsilon 2 --beta 1"
    for method, said in (("idp-signrp-rr", True), ("dp-signoporp-rr", False)):
        _, _, error = run(f"build x.npy {method} --method {method} {terms}")
        assert ("vectors can be reconstructed from these codes" in error) == said


def test_a_squared_distance_of_the_best_is_not_stated(run, told, files):
    terms = "--method raw-staircase --epsilon 1 --beta 2 --metric l2"
    run(f"build x.npy ix {terms}")
    _, out, error = run("query ix q.npy -k 3")
    assert "  squared distance (estimate ± error)" in out
    assert "not stated" in out
    assert "this index ranks by l2" in error
    scores = told("query ix q.npy -k 3")
    assert scores["similarity"][0] == [None] * 3
    assert np.min(scores["unbiased"]) < 0  # the unbiased estimates stay as they are


def test_similarities_are_learned_again_on_demand(run, told, files):
    """Also of symbols, which have no denoiser."""
    vectors = normal(300, 8)
    codebook = dpi.Codebook(normal(20, 8, 1))
    terms = {"epsilon": 8.0, "adjacency": dpi.record(), "codebook": codebook}
    index = filled_index(dpi.Spec("record-codebook", 8, **terms), vectors)
    assert index.calibration is not None
    index.add(vectors[:100])
    index.save(files / "bare")
    assert told("info bare")["calibrated_rows"] == 300
    assert run("calibrate bare")[:2] == (0, "Calibrated: learned from 400 codes.\n")
    assert told("info bare")["calibrated_rows"] == 400
    few = filled_index(index.spec, vectors[:99])
    few.save(files / "few")
    code, _, error = run("calibrate few")
    assert code == 2
    assert "99 codes are too few" in error


def test_a_denoiser_that_cannot_be_learned_is_no_failure(run, told, files):
    """The budget is spent and the index is good: it says so and goes on."""
    code, out, err = run(f"build x.npy ix {STAIRCASE} --denoise score")
    assert code == 0
    assert "not denoised: 300 codes are too few to learn a denoiser from" in err
    assert "300 vectors" in out
    facts = told("info ix")
    assert facts["denoiser"] is None
    assert told("info ix --index-recall")["index_recall"] is None
    fails(run("denoise ix"), "too few")
    assert run(f"build x.npy other {STAIRCASE} --denoise best")[0] == 2


def marks_of(row):
    return () if row.name in QUICK else pytest.mark.slow


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=row.name, marks=marks_of(row)) for row in dpi.methods()],
)
def test_every_method_builds_and_answers(run, prints, told, files, row):
    """What a spec states, the command line states: both give the same spec, and hits."""
    x = default_rng(1).uniform(0.5, 1, (40, 24))
    x = x.astype(np.float32)
    np.save(files / "v.npy", x)
    options = f"--method {row.name}"
    stated = {**needed(row), "dim": 24}
    if "record" not in row.adjacencies:  # there any vectors will do
        stated["bounds"] = (0.0, 1.0)
        options += " --bounds 0 1"
    for name in ("epsilon", "delta"):
        if stated.get(name) is not None:
            options += f" --{name} {stated[name]}"
    kind, *size = stated["adjacency"].to_dict().values()
    flag = kind.replace("attribute", "beta")
    options += " ".join([f" --{flag}", *map(str, size)])
    if row.family.public is dpi.Codebook:
        np.save(files / "book.npy", stated["codebook"].stated)
        options += " --codebook book.npy"
    if row.family.public is dpi.Design:
        stated["design"].save(files / "made.design")
        options += " --design made.design"
    texts = {dpi.Dense: "entries=very-sparse,sparsity=2", dpi.Blocks: "sparsity=2"}
    if text := texts.get(type(row.family.variant)):
        stated["variant"] = parse_variant(text)
        options += f" --variant {text}"
    spec = dpi.Spec.from_json(prints(f"spec --dim 24 {options}"))
    assert spec == dpi.Spec(**stated)
    if row.family.public is not None:  # of which a spec holds the name alone
        (files / "spec.json").write_text(spec.to_json())
        made = run("privatize v.npy v.codes --spec spec.json --allow-unprotected")
        fails(made, "is not here", f"(--{spec.public.kind})")
    prints(f"build v.npy ix {options} --allow-unprotected")
    for mode in ("exact", "private"):
        hits = told(f"query ix v.npy -k 3 --query {mode} --allow-unprotected")
        assert len(hits["ids"]) == 40
    assert told("info ix")["count"] == 40


@pytest.mark.parametrize(
    "options, sentence",
    [
        ("dp-signrp-rr --beta 1 --delta 1e-6", "every vector (--variant)."),
        (
            "dp-signrp-rr --beta 1 --delta 1e-6 --variant min_norm=0.5",
            "needs a min_norm above beta",
        ),
        (
            "dp-signrp-rr --beta 1 --delta 1e-6 --variant entries=rademacher,min_norm=3",
            "needs gaussian entries",
        ),
        ("dp-rp-l --beta 1 --variant entries=normal", "must be one of gaussian"),
        ("dp-oporp-staircase", "give one of --beta, --l2 and --record"),
        ("dp-oporp-staircase --record --l2 2", "--beta, --l2 and --record"),
    ],
)
def test_wrong_combinations_get_one_sentence(run, options, sentence):
    fails(run(f"spec --dim 24 --epsilon 1 --method {options}"), sentence)


def test_ctrl_c_keeps_what_was_committed(run, prints, files, monkeypatch):
    """A signal after the first of four segments: one sentence; the same command finishes."""
    folder = write_dataset(files / "data")
    build = f"build {folder} ix --id-column id {STAIRCASE}"
    create = PrivateFolder.create

    def create_and_interrupt(self, name, data, **mode):
        created = create(self, name, data, **mode)
        if name.endswith("segments/000000.codes"):
            signal.raise_signal(signal.SIGINT)
        return created

    with monkeypatch.context() as interrupted:
        interrupted.setattr(PrivateFolder, "create", create_and_interrupt)
        code, _, error = run(build)
    assert code == 130
    assert error == INTERRUPTED
    assert not Path("ix").exists()
    assert "240 vectors (180 privatized now)" in prints(build)


def test_ctrl_c_while_a_module_is_imported(run, monkeypatch):
    """Found by bench/faults.py: in a class body Python < 3.12 turns it into a RuntimeError."""

    def interrupted(**_):
        raise RuntimeError("Error calling __set_name__") from KeyboardInterrupt()

    monkeypatch.setattr("dpindex.cli.commands", lambda: interrupted)
    code, _, error = run("methods")
    assert code == 130
    assert error == INTERRUPTED


def test_the_version(run):
    code, out, err = run("--version")
    assert code == 0
    assert err == ""
    assert out.startswith(f"dpindex {dpi.__version__}\nPython 3.")
    for word in (f"numpy {np.__version__}", "faiss-cpu ", "cryptography ", "OpenSSL "):
        assert f"\n{word}" in out


def test_help_is_short_for_h(run):
    for command in ("", "build", "race build"):
        assert run(f"{command} -h") == run(f"{command} --help")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_a_help_text(prints, command):
    output = prints(f"{command} --help")
    assert "--no-" not in output
    listed, _, example = output.partition("\nExample:\n")
    for option in re.findall(r"^  -.*(?:\n {5,}.*)*", listed, re.MULTILINE):
        assert re.search(r"(?: {2}|\n {5,})[A-Za-z0-9*]", option[2:]), option
    typed = example.replace("\\\n", " ").partition(">")[0]
    program, *words = shlex.split(typed)
    assert program == "dpindex"
    names = command.split()
    options = words[len(names) :]
    assert words[: len(names)] == names
    group = commands()
    for name in names[:-1]:
        group = group.get_command(None, name)
    found = group.get_command(None, names[-1])
    found.make_context(names[-1], options)  # all its options exist


def test_help_of_build_fits_two_screens(prints, monkeypatch):
    """What it cannot do without comes first."""
    monkeypatch.setenv("COLUMNS", "80")
    lines = prints("build --help").splitlines()
    assert len(lines) <= 66
    assert max(map(len, lines)) <= 80
    first = lines[lines.index("Needed first:") + 1 :]
    first = first[: first.index("")]
    options = [line.split()[0] for line in first if line[2] == "-"]
    named = "--public --plan --method --epsilon --beta --l2 --record"
    assert options == named.split()


def test_help_of_serve_begins_with_who_may_ask(prints):
    _, _, below = prints("serve --help").partition("Needed first:\n")
    needed = below.partition("\n\n")[0]
    options = re.findall(r"^  (--[a-z-]+)", needed, re.MULTILINE)
    assert options == ["--tokens", "--open-to-all"]


def test_help_is_not_cut_off(prints):
    """Each command's first sentence fits on its line."""
    for command in ("--help", "race --help"):
        lines = prints(command).splitlines()
        assert not [line for line in lines if re.match(r"  [a-z]+ .*\.\.\.", line)]


def test_codes_that_are_added_again_are_noticed(run, prints, files):
    spec = attribute_spec("raw-staircase", 24, epsilon=4.0)
    (files / "again.json").write_text(spec.to_json())
    prints("build x.npy again --method raw-staircase --beta 1 --epsilon 4")
    prints("privatize q.npy q.codes --spec again.json")
    for words in ("", "note: 5 of the 5 codes of q.codes are in the index already"):
        code, _, error = run("add again q.codes")
        assert code == 0
        assert error.startswith(words)
        assert ("already" in error) == bool(words)


@pytest.mark.slow
def test_add_replaces_ids(run, prints, told, files):
    """Of vectors a second release, which must be allowed; of codes what their makers paid for."""
    (files / "few.txt").write_text("doc-1\ndoc-2\nnew\n")
    few = np.eye(3, 24, dtype=np.float32)
    np.save(files / "few.npy", few)
    build = f"build x.npy ix {STAIRCASE} --ids ids.txt --ledger ledger"
    prints(build)
    replace = "add ix few.npy --upsert"
    fails(run(replace), "give every vector an id (--ids)")
    replace = f"{replace} --ids few.txt"
    fails(run(replace), "2 of these 3 ids are in the index", "--allow-rerelease")
    out = prints(f"{replace} --allow-rerelease --ledger ledger")
    assert "3 added (2 replaced), 301 in all" in out
    assert "2 ids, 2 releases each: epsilon = 40 (pure DP)" in out
    hits = told("query ix few.npy -k 1")
    assert hits["ids"] == [["doc-1"], ["doc-2"], ["new"]]
    assert "3 added (3 replaced), 301 in all" in prints(f"{replace} --allow-rerelease")
    (files / "spec.json").write_text(prints("info ix --spec"))
    run("privatize few.npy few.codes --spec spec.json")
    out = prints("add ix few.codes --ids few.txt --upsert")
    assert "3 added (3 replaced), 301 in all" in out


@pytest.mark.slow
def test_payload_filter_and_show(run, prints, told, files):
    """Columns published beside the codes filter a search and stand beside its hits."""
    lines = ["year,lang"]
    for row in range(300):
        language = "de" if row % 2 else "en"
        lines.append(f"{1900 + row},{language}")
    (files / "facts.csv").write_text("\n".join(lines))
    assert "not protected" in prints(f"build x.npy ix {STAIRCASE} --payload facts.csv")
    query = "query ix q.npy -k 3"
    kept = """--filter "year >= 1903 and lang == 'de'" --show lang,year"""
    hits = told(f"{query} {kept}")
    assert {language for row in hits["payload_lang"] for language in row} == {"de"}
    assert hits["ids"][3][0] == 3
    years = np.array(hits["payload_year"])
    assert (years - 1900).tolist() == hits["ids"]
    out = prints(f"{query} {kept}")
    assert "lang" in out
    assert "1903" in out
    fails(run(f"{query} --filter 'yeer > 3'"), "yeer", "year")
    fails(run(f"{query} --show title"), "no payload column 'title'", "year, lang")
    fails(run(f"build x.npy b {STAIRCASE} --payload x.npy"), "x.npy")
    # What looks like a column of a table would publish all of them.
    people = pd.DataFrame({"year": range(300), "name": "Ann"})
    people.to_parquet(files / "facts.parquet")
    out = run(f"build x.npy b {STAIRCASE} --payload facts.parquet:year")
    fails(out, "facts.parquet:year", "--payload-columns")
    (files / "x.tsv").write_text("a\tb\n" + "0.5\t0.25\n" * 300)
    out = run(f"build x.tsv b {STAIRCASE} --payload x.tsv --payload-columns a")
    fails(out, "holds the vectors")
    fails(run(f"build x.tsv b {STAIRCASE} --payload x.tsv:header=yes"), "holds the vectors")


def test_an_attribute_is_neither_payload_nor_id(run, files):
    frame = pd.DataFrame(np.eye(4, dtype=int), columns=["c0", "c1", "c2", "year"])
    frame["year"] = range(4)
    frame.to_parquet("t.parquet")
    build = f"build t.parquet ix --columns c0:c2 {STAIRCASE}"
    table = "--payload t.parquet --payload-columns"
    for published in (
        "--payload-columns year,c1",
        f"{table} year,c1",
        "--id-column c1",
        "--ids t.parquet:c1",
    ):
        said = run(f"{build} {published}")
        fails(said, "column 'c1' is an attribute", "leave it out")
    assert run(f"{build} --ids t.parquet:year")[0] == 0
    for published in (f"{table} c1", "--ids t.parquet:c1"):
        said = run(f"add ix t.parquet --columns c0:c2 {published}")
        fails(said, "column 'c1' is an attribute")


def test_a_folder_of_files_brings_its_payload(run, prints, files):
    folder = write_dataset(files / "data")
    build = f"build {folder} ix --id-column id {STAIRCASE}"
    pd.DataFrame({"row": range(240)}).to_parquet("rows.parquet")
    assert "not protected" in prints(f"{build} --payload rows.parquet")
    index = dpi.open(files / "ix")
    assert index.payload["row"].to_pylist() == list(range(240))
    shutil.rmtree(files / "ix")
    assert "not protected" in prints(f"{build} --payload-columns row")
    index = dpi.open(files / "ix")
    rows = index.payload["row"].to_pylist()
    assert index.ids.tolist() == [f"n{row}" for row in rows]
    fails(run(f"{build} --payload-columns row,row"), "names a column twice")
