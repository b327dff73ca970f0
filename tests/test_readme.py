"""What the README says is what happens: its code runs, its commands work, its names exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpindex as dpi
from dpindex.cli import main

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
PROSE = re.sub(r"^```.*?^```$", "", TEXT, flags=re.MULTILINE | re.DOTALL)
INLINE = re.findall(r"`([^`\n]+(?:\n[^`\n]+)?)`", PROSE)

Call = Callable[[str], str]


def commands(name: str) -> list[str]:
    """Every ``dpindex name …`` that stands in a shell block."""
    lines = [
        line
        for language, block in BLOCKS
        if language == "sh"
        for line in block.replace("\\\n", " ").splitlines()
    ]
    return [line for line in lines if line.startswith(f"dpindex {name} ")]


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    """Run a command line in ``tmp_path``, where the vectors of the README lie; must succeed."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    # A few directions explain these vectors, as they do real ones: there is something to denoise.
    vectors = np.tanh(rng.normal(size=(3600, 3)) @ rng.normal(size=(3, 24))).astype(np.float32)
    np.save(tmp_path / "vectors.npy", vectors[:3000])
    np.save(tmp_path / "public.npy", vectors[3000:])
    np.save(tmp_path / "base.npy", vectors[:300])
    np.save(tmp_path / "queries.npy", vectors[:5])
    np.save(tmp_path / "me.npy", vectors[:1])
    (tmp_path / "ids.txt").write_text("".join(f"person {i}\n" for i in range(3000)))

    def run(line: str) -> str:
        monkeypatch.setattr(sys, "argv", shlex.split(line))
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        output = capsys.readouterr()
        assert not stop.value.code, f"{line}: {output.err}"
        return output.out

    return run


@pytest.mark.slow
def test_the_python_blocks_run(tmp_path: Path) -> None:
    blocks = [block for language, block in BLOCKS if language == "python"]
    said = ""
    for block in blocks:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", block],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        said += done.stdout
    assert "epsilon = 3 (pure DP) under attribute(beta=1)" in said
    assert len(dpi.PrivateIndex.open(tmp_path / "vectors-index")) == 2000


@pytest.mark.usefixtures("known_noise")
def test_the_classifier_is_as_good_as_it_says() -> None:
    """Held-out accuracy beside that of the majority; fit warns of nothing."""
    (block,) = [block for _, block in BLOCKS if "RaceClassifier" in block]
    found = re.search(r"# about (0\.\d+); always False: (0\.\d+)", block)
    assert found
    said, majority = map(float, found.groups())
    names: dict[str, Any] = {}
    exec(block, names)
    held_out = names["x"][20_000:], names["y"][20_000:]
    assert names["model"].score(*held_out) == pytest.approx(said, abs=0.015)
    assert 1 - held_out[1].mean() == pytest.approx(majority, abs=0.015)
    assert said > majority + 0.1


def test_build_query_and_info(call: Call) -> None:
    build, *_ = commands("build")
    assert "3000 vectors" in call(build)
    (query,) = commands("query")
    assert len(call(query).splitlines()) > 5
    (info,) = commands("info")
    said = call(info)
    assert "What is protected" in said
    assert "What is not protected" in said


@pytest.mark.slow
def test_denoise_plan_and_ledger(call: Call) -> None:
    _, denoise, book = commands("build")
    (plan,) = commands("plan")
    (ledger,) = commands("ledger")
    assert "denoise" in call(denoise) + call("dpindex info denoised")
    assert "recommend" in call(f"{plan} --methods dp-oporp-staircase,raw-staircase").lower()
    call(book)
    assert "3000 ids, 1 release each" in call(ledger)


@pytest.mark.slow
def test_evaluate_writes_what_is_said(call: Call, tmp_path: Path) -> None:
    (evaluate,) = commands("evaluate")
    call(f"{evaluate} --runs 1 --neighbours 20")
    for name in ("curve.csv", "curve.png", "report.html"):
        assert f"`{name}`" in PROSE
        assert (tmp_path / "report" / name).stat().st_size > 0


def test_device_and_holder(call: Call, tmp_path: Path) -> None:
    """The commands of the table of three people."""
    (privatize,) = [code for code in INLINE if code.startswith("dpindex privatize ")]
    spec = call("dpindex spec --method dp-oporp-staircase --dim 24 --epsilon 3")
    (tmp_path / "spec.json").write_text(spec)
    call(privatize)
    call("dpindex build vectors.npy my-index --method dp-oporp-staircase --epsilon 3")
    assert call("dpindex info my-index --spec") == spec
    call("dpindex add my-index me.codes")
    call("dpindex query my-index queries.npy --query private")


def test_every_command_and_option_named_exists(call: Call) -> None:
    code = "\n".join([*INLINE, *(block for language, block in BLOCKS if language == "sh")])
    names = set(re.findall(r"\bdpindex ([a-z]+)\b", code))
    assert {"build", "query", "info", "privatize", "evaluate", "demo"} <= names
    helps = {name: call(f"dpindex {name} --help") for name in names}
    for code_ in INLINE + code.replace("\\\n", " ").splitlines():
        for option in re.findall(r"(?<!\S)--[a-z][a-z0-9-]*", code_):
            if "pip" in code_:
                continue
            named = re.search(r"\bdpindex ([a-z]+)\b", code_)
            where = [helps[named[1]]] if named else list(helps.values())
            assert any(option in text for text in where), f"{option} in {code_!r}"


def test_every_method_named_exists() -> None:
    names = {method.name for method in dpi.methods()}
    code = "\n".join([*INLINE, *(block for _, block in BLOCKS)])
    named = set(re.findall(r"\b(?:dp|idp|raw|none)-(?:[a-z]+-?)+\b", code))
    for name in named - {"dp-accounting"}:
        assert name in names, name


def test_every_file_named_exists() -> None:
    """Paths of the repository, and the layers listed under "Where things are"."""
    made = ("dpindex-demo/", "build/site")  # by the commands above
    for code in INLINE:
        if re.fullmatch(r"[\w.-]+/[\w./-]*|[\w-]+\.(?:py|toml|md)", code):
            assert code.startswith(made) or (ROOT / code).exists(), code
    for target in re.findall(r"\]\(([^)#:]+)\)", PROSE):
        assert (ROOT / target).exists(), target
    where = PROSE[PROSE.index("## Where things are") :]
    layers = re.findall(r"`([a-z]+)`", where)
    assert len(layers) > 5
    for layer in layers:
        paths = (ROOT / "dpindex" / layer, ROOT / "dpindex" / f"{layer}.py")
        assert any(path.exists() for path in paths), layer
    assert (ROOT / "LICENSE").exists()
    assert "Apache" in (ROOT / "LICENSE").read_text(encoding="utf-8")
