"""The documents: their code runs, their commands and links exist, their numbers are right."""

import math
import re
from functools import cache

import numpy as np
import pytest
import typer.testing
from helpers.documents import COMMANDS, ROOT, blocks, inline_code, paste, prose, run_python
from helpers.specs import folded

import dpindex as dpi
from dpindex.cli import app
from dpindex.mechanism import projections as base

PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY", "CHANGELOG")),
    *sorted((ROOT / "docs").glob("*.md")),
]
TEXT = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in PAGES}
TUTORIAL = "docs/tutorial.md"
PICTURES = "docs/pictures.md"


OTHER_TOOLS = ("curl ", "pip ", "python ", "ruff ")


def _anchors(text):
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


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
    return [block.text for block in blocks(text) if block.language == "python"]


@pytest.mark.slow
def test_python_runs(tmp_path):
    """Each block by itself; the other pages have tests of their own."""
    tested = ("README.md", TUTORIAL, "docs/sketches.md")
    others = [text for name, text in TEXT.items() if name not in tested]
    said = "".join(run_python(block, tmp_path) for text in others for block in _python(text))
    assert "epsilon = 2 (pure DP) under attribute(beta=255)" in said
    assert "epsilon = 12, delta = 1.2e-05 (DP) under l2(radius=0.5)" in said
    assert "epsilon = 3.48368, delta = 1e-05 (DP) under l2(radius=0.5)" in said
    assert re.search(r"right on new vectors: (0\.9\d|1\.00)", said)  # .99 of 500, give or take .005
    assert re.search(r"true 0\.\d\d, stated 0\.\d\d ± 0\.\d\d", said)


@pytest.mark.slow
def test_the_tutorial_runs(call, tmp_path):
    """Every block in order, in one folder; the plan recommends what the tutorial says."""
    said = paste(TEXT[TUTORIAL], tmp_path, call)
    assert "1290 vectors (1290 privatized now)" in said
    assert "epsilon = 5 (pure DP) under attribute(beta=16)" in said
    assert said.count("most of ten answers show a") == 7
    assert "What is not protected" in said
    assert re.search("^Chosen: raw-square-wave", said, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.usefixtures("known_noise")
def test_the_classifier_is_as_good_as_it_says():
    """Held-out accuracy beside that of the majority; fit warns of nothing."""
    (block,) = _python(TEXT["docs/sketches.md"])
    figures = re.search(r"# about (0\.\d+); always False: (0\.\d+)", block)
    assert figures
    said, majority = map(float, figures.groups())
    names = {}
    exec(block, names)
    held_out = names["x"][20_000:], names["y"][20_000:]
    assert names["model"].score(*held_out) == pytest.approx(said, abs=0.015)
    assert 1 - held_out[1].mean() == pytest.approx(majority, abs=0.015)
    assert said > majority + 0.1


@pytest.fixture
def files(tmp_path):
    """The files that the how-to pages name."""
    rng = np.random.default_rng(0)
    # A few directions explain these vectors, as they do real ones: there is something to denoise.
    vectors = np.tanh(rng.normal(size=(3600, 3)) @ rng.normal(size=(3, 24))).astype(np.float32)
    np.save(tmp_path / "vectors.npy", vectors[:3000])
    np.save(tmp_path / "public.npy", vectors[3000:])
    np.save(tmp_path / "private.npy", vectors[:1000])
    np.save(tmp_path / "base.npy", vectors[:300])
    np.save(tmp_path / "queries.npy", vectors[:5])
    np.save(tmp_path / "me.npy", vectors[:1])
    (tmp_path / "ids.txt").write_text("".join(f"person {i}\n" for i in range(3000)))


def _commands(page):
    return [command for block in blocks(TEXT[page]) for command in block.commands()]


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


@pytest.mark.slow
@pytest.mark.usefixtures("files")
def test_denoise(call):
    build, denoise = _commands(PICTURES)[-2:]
    assert "denoise" in call(build).lower() + call("dpindex info noisy")
    assert "denoise" in call(denoise).lower() + call("dpindex info noisy")


@pytest.mark.slow
@pytest.mark.usefixtures("files")
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
    rooms = {path.parent.name for path in (ROOT / "dpindex").glob("*/__init__.py")}
    assert listed == rooms


def test_files_that_contributing_names_exist():
    for code in inline_code(TEXT["CONTRIBUTING.md"]):
        if re.fullmatch(r"(?:dpindex|tests|bench|docs|examples)/[\w./]*", code):
            assert (ROOT / code).exists(), code


def test_words_stand_once_and_in_order():
    text = TEXT["CONTRIBUTING.md"]
    rows = re.findall(r"^\| ([^|]+) \|", text[text.index("## Words") :], re.MULTILINE)
    words = [row.strip().lower().replace("`", "") for row in rows[1:]]
    assert len(words) > 50
    assert words == sorted(set(words))


@cache
def _help(command):
    return typer.testing.CliRunner().invoke(app, [*command.split(), "--help"]).output


@folded("name", TEXT)
def test_methods_commands_and_options_exist(name):
    known = {row.name for row in dpi.methods()}
    helps = "".join(map(_help, COMMANDS))
    commands = [command for command in _commands(name) if command.startswith("dpindex ")]
    for command in commands:  # a promise is always stated
        if re.match("dpindex (build|plan|evaluate|spec) ", command) and "--plan" not in command:
            assert len(re.findall(r" --(?:beta|l2|record)(?= |$)", command)) == 1, command
    for code in [*re.findall(r"`([^`\n]+)`", prose(TEXT[name])), *commands]:
        if code.startswith(OTHER_TOOLS) or "::" in code:  # the name of a test is no method's
            continue
        for method in re.findall(r"\b(?:dp|row|raw)-[a-z]+(?:-[a-z]+)*\b", code):
            assert method in known or f"{method}-" in " ".join(known), method
        for option in re.findall(r"(?<!\S)--[a-z][a-z0-9-]*", code):
            assert option in helps, option
        if command := re.match(r"dpindex ([a-z]+)", code):
            assert command[1] in _help(""), code


def test_the_table_of_certainties():
    rows = [line for line in TEXT["docs/epsilon.md"].splitlines() if line.startswith("| ")]
    epsilons = next(row for row in rows if row.startswith("| epsilon | 0.1"))
    most = next(row for row in rows if row.startswith("| at most"))
    for epsilon, percent in zip(epsilons.split("|")[2:-1], most.split("|")[2:-1], strict=True):
        sure = 100 / (1 + math.exp(-float(epsilon)))
        shown = percent.strip().removesuffix(" %")
        digits = len(shown.partition(".")[2])
        assert float(shown) == round(sure, digits)


def test_every_private_method_has_a_statement():
    text = TEXT["docs/guarantees.md"]
    for row in dpi.methods():
        assert f"`{row.name}`" in text or row.name.startswith(("idp-", "none-")), row.name


def test_the_limits_that_are_stated():
    from dpindex.base import checks
    from dpindex.data import source
    from dpindex.race import sketch
    from dpindex.storage import manifest

    text = TEXT["docs/threat-model.md"]
    assert base.MAX_BYTES == 2**30
    assert "1 GB (2^30 bytes)" in text
    assert checks.MAX_TEXT == 1 << 20
    assert manifest.MAX_MANIFEST_BYTES == 16 << 20
    assert sketch.MAX_BYTES == 2**30
    assert f"{source.MAX_RATIO} times" in text
