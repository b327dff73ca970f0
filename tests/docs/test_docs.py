"""The documents: their code runs, their commands and links exist, their numbers are right."""

import math
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import typer.testing
from helpers.common import ROOT, few_queries, folded, known_noise, vectors, write_dataset
from helpers.documents import COMMANDS, blocks, code_blocks, inline_code, paste, prose, run_python
from scipy import sparse

import dpindex as dpi
from dpindex.base.arrays import unit
from dpindex.cli import app
from dpindex.mechanism import projections as base

PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY", "CHANGELOG")),
    *sorted((ROOT / "docs").glob("*.md")),
]
TEXT = {}
for page in PAGES:
    TEXT[str(page.relative_to(ROOT))] = page.read_text(encoding="utf-8")
TUTORIAL = "docs/tutorial.md"


OTHER_TOOLS = ("curl ", "pip ", "python ", "ruff ")


def _anchors(text):
    found = set()
    for head in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        words = re.sub(r"[^\w\- ]", "", head.lower())
        found.add(words.replace(" ", "-"))
    return found


@folded("page", PAGES)
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        place = page.parent / path if path else page
        assert place.exists(), target
        assert not anchor or anchor in _anchors(place.read_text(encoding="utf-8")), target


def _python(text):
    return code_blocks(text, "python")


@pytest.mark.slow
@few_queries
def test_python_runs(tmp_path):
    """Each block by itself; the other pages have tests of their own."""
    tested = ("README.md", TUTORIAL, "docs/sketches.md")
    said = ""
    for name, text in TEXT.items():
        if name not in tested:
            for block in _python(text):
                said += run_python(block, tmp_path)
    assert "epsilon = 2 (pure DP) under attribute(beta=255)" in said
    assert "epsilon = 12, delta = 1.2e-05 (DP) under l2(radius=0.5)" in said
    assert "epsilon = 3.48368, delta = 1e-05 (DP) under l2(radius=0.5)" in said
    assert re.search(r"right on new vectors: (0\.9\d|1\.00)", said)  # .99 of 500, give or take .005
    assert re.search(r"true 0\.\d\d, stated 0\.\d\d ± 0\.\d\d", said)


@pytest.mark.slow
@few_queries
def test_the_tutorial_runs(call, tmp_path):
    """Every block in order, in one folder; what the plan recommends is built."""
    said = paste(TEXT[TUTORIAL], tmp_path, call)
    assert "1290 vectors (1290 privatized now)" in said
    assert "epsilon = 5 (pure DP) under attribute(beta=16)" in said
    assert said.count("most of ten answers show a") == 7
    assert "What is not protected" in said
    (recommended,) = re.findall("^Recommended: (.*?) with", said, re.MULTILINE)
    assert re.search(f"^Chosen: {recommended} with", said, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.usefixtures("few_queries", "known_noise")
def test_the_plan_recommends_what_the_tutorial_says(call, tmp_path):
    """Up to the plan, with noise that is known: once in some dozens luck decides for a staircase.

    What comes after it cannot run so, as the audit sees that the noise is no secret.
    """
    before_the_build, _ = TEXT[TUTORIAL].split("## 5. Build")
    said = paste(before_the_build, tmp_path, call)
    assert re.search("^Recommended: raw-square-wave", said, re.MULTILINE)


@pytest.mark.slow
@known_noise
def test_the_classifier_is_as_good_as_it_says():
    """Held-out accuracy beside that of the majority; fit warns of nothing."""
    (block,) = _python(TEXT["docs/sketches.md"])
    figures = re.search(r"# about (0\.\d+); always False: (0\.\d+)", block)
    assert figures
    said, majority = map(float, figures.groups())
    names = {}
    exec(block, names)
    held_out = names["x"][20_000:], names["y"][20_000:]
    score = names["model"].score(*held_out)
    assert score == pytest.approx(said, abs=0.015)
    share = 1 - held_out[1].mean()
    assert share == pytest.approx(majority, abs=0.015)
    assert said > majority + 0.1


@pytest.fixture
def files(tmp_path):
    """The files that the how-to pages name."""
    rng = np.random.default_rng(0)
    # A few directions explain these vectors, as they do real ones: there is something to denoise.
    causes = rng.normal(size=(3600, 3))
    directions = rng.normal(size=(3, 24))
    vectors = np.tanh(causes @ directions).astype(np.float32)
    np.save(tmp_path / "public.npy", vectors[3000:])
    counts = {"vectors": 3000, "private": 1000, "base": 300, "queries": 5, "me": 1}
    for name, count in counts.items():
        np.save(tmp_path / f"{name}.npy", vectors[:count])
    people = [f"person {row}" for row in range(3000)]
    (tmp_path / "ids.txt").write_text("\n".join(people))


def _commands(page):
    commands = []
    for block in blocks(TEXT[page]):
        commands += block.commands()
    return commands


@pytest.mark.usefixtures("files")
def test_build_and_info(call):
    build, info, booked, ledger = _commands("docs/building.md")
    assert "Chosen: " in call(build)
    said = call(info)
    assert "What is protected" in said
    assert "What is not protected" in said
    query, rerank, replaced = _commands("docs/searching.md")
    assert len(call(query).splitlines()) > 5
    assert " exact" in call(rerank)
    assert replaced.startswith("dpindex add my-index")
    call(booked)
    assert "3000 ids, 1 release each" in call(ledger)


def _tables(save, rng):
    """Readings of two columns, counts, and words: private and public of each."""
    highest = [120, 1e6]
    save("vectors", rng.uniform(size=(800, 2)) * highest)
    save("public", rng.uniform(size=(600, 2)) * highest)
    save("counts", rng.poisson(2, (800, 8)))
    save("public-counts", rng.poisson(2, (600, 8)))
    for name, rows in {"words": 800, "public-words": 600}.items():
        occurs = rng.uniform(size=(rows, 64)) < 0.2
        sparse.save_npz(f"{name}.npz", sparse.csr_matrix(occurs))


def _pictures(save, rng):
    causes = rng.normal(size=(4, 64))
    shades = np.tanh(rng.normal(size=(1400, 4)) @ causes)
    pixels = (127 * shades + 128).astype(np.uint8)
    save("vectors", pixels[:800])
    save("public", pixels[800:])


def _sentences(save, rng):
    centres = rng.normal(size=(50, 16))
    labels = rng.integers(50, size=7000)
    rows = unit(centres[labels] + rng.normal(size=(7000, 16)) / 2)
    parts = {"queries": 20, "base": 400, "public": 600, "vectors": 5500}
    first = 0
    for name, count in parts.items():
        save(name, rows[first : first + count])
        lines = (f"topic {label}\n" for label in labels[first : first + count])
        Path(f"{name}-labels.txt").write_text("".join(lines), encoding="utf-8")
        first += count


HOW_TO = {
    "docs/tables.md": (_tables, "Chosen: "),
    "docs/pictures.md": (_pictures, "Chosen: "),
    "docs/embeddings.md": (_sentences, "epsilon = 8 (pure DP) under record (any two vectors)"),
    "docs/hundred-thousand.md": (_sentences, "exact"),
    "docs/inversion.md": (_sentences, "report.html"),
    "docs/audit.md": (_sentences, "holds"),
}
"""Pages whose commands run from top to bottom: their data, and what they print."""

RUN_ELSEWHERE = ("dpindex embed", "dpindex build vectors.parquet", "dpindex query", "dpindex serve")
"""Commands of docs/embeddings.md that the README's test and those of comparisons run."""


@pytest.mark.slow
@few_queries
@pytest.mark.parametrize("name", HOW_TO)
def test_the_commands_of_a_how_to_run(name, call, tmp_path):
    made, printed = HOW_TO[name]

    def save(file, rows):
        np.save(f"{file}.npy", rows)

    made(save, np.random.default_rng(0))
    (tmp_path / "ranges.csv").write_text("column,low,high\nage,0,120\nincome,0,1000000\n")
    commands = [line for line in _commands(name) if line.startswith("dpindex ")]
    if name == "docs/embeddings.md":
        commands = [line for line in commands if not line.startswith(RUN_ELSEWHERE)]
    said = "".join(map(call, commands))
    assert printed in said


def test_a_folder_of_parquet_files(call, tmp_path):
    write_dataset(tmp_path / "vectors")
    np.save(tmp_path / "queries.npy", vectors(2))
    first_three = _commands("docs/scale.md")[:3]
    said = "".join(map(call, first_three))
    for words in ("240 vectors (240 privatized now)", "240 vectors of 12 attributes", "estimate"):
        assert words in said


@pytest.mark.slow
@pytest.mark.usefixtures("files", "few_queries")
def test_plan_and_evaluate(call, tmp_path):
    plan, evaluate = _commands("docs/measuring.md")
    assert "recommend" in call(f"{plan} --methods dp-oporp-staircase,raw-staircase").lower()
    call(f"{evaluate} --runs 1 --neighbours 20")
    for name in ("curve.csv", "report.html"):
        assert f"`{name}`" in prose(TEXT["docs/measuring.md"])
        assert (tmp_path / "report" / name).stat().st_size > 0


@pytest.mark.usefixtures("files")
def test_device_and_holder(call, tmp_path):
    (privatize,) = (line for line in _commands("docs/devices.md") if "dpindex privatize" in line)
    spec = call("dpindex spec --method dp-oporp-staircase --dim 24 --beta 1 --epsilon 3")
    (tmp_path / "spec.json").write_text(spec)
    call(privatize)
    call("dpindex build vectors.npy my-index --method dp-oporp-staircase --epsilon 3 --beta 1")
    assert call("dpindex info my-index --spec") == spec
    call("dpindex add my-index me.codes")
    call("dpindex query my-index queries.npy --query private")


def test_the_rooms_are_all_listed():
    """The table "Where things are" has every folder of the package, and no other."""
    text = TEXT["CONTRIBUTING.md"]
    section = text[text.index("## Where things are") : text.index("## The path of a release")]
    listed = set(re.findall(r"^\| `([a-z]+)` \|", section, re.MULTILINE))
    packages = (ROOT / "dpindex").glob("*/__init__.py")
    rooms = {path.parent.name for path in packages}
    assert listed == rooms


def test_files_that_contributing_names_exist():
    for code in inline_code(TEXT["CONTRIBUTING.md"]):
        if re.fullmatch(r"(?:dpindex|tests|bench|docs|examples)/[\w./]*", code):
            assert (ROOT / code).exists(), code


def test_words_stand_once_and_in_order():
    _, _, below = TEXT["CONTRIBUTING.md"].partition("## Words")
    _, *rows = re.findall(r"^\| ([^|]+) \|", below, re.MULTILINE)
    words = [row.strip().lower().replace("`", "") for row in rows]
    assert len(words) > 50
    assert words == sorted(set(words))


@cache
def _help(command):
    runner = typer.testing.CliRunner()
    return runner.invoke(app, [*command.split(), "--help"]).output


@folded("name", TEXT)
def test_methods_commands_and_options_exist(name):
    known = {row.name for row in dpi.methods()}
    helps = "".join(map(_help, COMMANDS))
    commands = [command for command in _commands(name) if command.startswith("dpindex ")]
    for command in commands:  # a promise is always stated
        if re.match("dpindex (build|plan|evaluate|spec) ", command) and "--plan" not in command:
            assert len(re.findall(r" --(?:beta|l2|record)(?= |$)", command)) == 1, command
    quoted = re.findall(r"`([^`\n]+)`", prose(TEXT[name]))
    for code in (*quoted, *commands):
        if code.startswith(OTHER_TOOLS) or "::" in code:  # the name of a test is no method's
            continue
        for method in re.findall(r"\b(?:dp|idp|row|raw)-[a-z]+(?:-[a-z]+)*\b", code):
            assert method in known or f"{method}-" in " ".join(known), method
        for option in re.findall(r"(?<!\S)--[a-z][a-z0-9-]*", code):
            assert option in helps, option
        if command := re.match(r"dpindex ([a-z]+)", code):
            assert command[1] in _help(""), code


def _stated_certainties():
    """For each number of records the cells of epsilons and of the certainties that are stated."""
    lines = TEXT["docs/epsilon.md"].splitlines()
    rows = [line.split("|")[1:-1] for line in lines if "|" in line]
    labels = [row[0].strip() for row in rows]
    of_two = labels.index("epsilon")
    of_many = labels.index("one of n records")
    yield 2, rows[of_two][1:], rows[of_two + 2][1:]
    for label, *stated in rows[of_many + 2 : of_many + 5]:
        number = label.strip().removeprefix("n = ")
        yield int(number.replace(" ", "")), rows[of_many][1:], stated


def test_the_tables_of_certainties():
    """Bounds are rounded up, to the digits that are shown."""
    for n, epsilons, stated in _stated_certainties():
        for epsilon, percent in zip(epsilons, stated, strict=True):
            odds = math.exp(float(epsilon.strip().removeprefix("ε = ")))
            most = 100 * odds / (odds + n - 1)
            shown = percent.strip().removesuffix(" %")
            digits = len(shown.partition(".")[2])
            assert most <= float(shown) < most + 10.0**-digits


def test_every_private_method_has_a_statement():
    text = TEXT["docs/guarantees.md"]
    for row in dpi.methods():
        if not row.name.startswith(("idp-", "none-")):
            assert f"`{row.name}`" in text, row.name


def test_the_limits_that_are_stated():
    from dpindex.base.checks import MAX_TEXT
    from dpindex.data import source
    from dpindex.race import sketch
    from dpindex.storage import manifest

    text = TEXT["docs/threat-model.md"]
    assert base.MAX_BYTES == 2**30
    assert "1 GB (2^30 bytes)" in text
    assert MAX_TEXT == 1 << 20
    assert manifest.MAX_MANIFEST_BYTES == 16 << 20
    assert sketch.MAX_BYTES == 2**30
    assert f"{source.MAX_RATIO} times" in text
