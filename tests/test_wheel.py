"""What is published: a wheel that anyone can build again, and that works without the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="needs pip install hatchling")

ROOT = Path(__file__).parent.parent
BUILT_FROM = ("dpindex", "pyproject.toml", "README.md", "LICENSE")


def _wheel(folder: Path) -> Path:
    """A wheel that is built from a copy of the checkout in ``folder``."""
    for name in BUILT_FROM:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel"],
        cwd=folder,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1767225600"},
        check=True,
        capture_output=True,
    )
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _wheel(tmp_path_factory.mktemp("wheel"))


@pytest.mark.slow
@pytest.mark.extra
def test_two_wheels_are_equal(wheel: Path, tmp_path: Path) -> None:
    """Built in another folder, at another time, from files of other dates."""
    other = tmp_path / "elsewhere"
    other.mkdir()
    assert _wheel(other).read_bytes() == wheel.read_bytes()


@pytest.mark.slow
@pytest.mark.extra
def test_a_wheel_holds_the_package_and_its_licenses(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for source in (ROOT / "dpindex").rglob("*"):
        if source.is_file() and source.suffix != ".pyc":
            assert source.relative_to(ROOT).as_posix() in names
    licenses = [name for name in names if name.endswith("LICENSE") and "dist-info" in name]
    assert len(licenses) == 2


@pytest.mark.slow
@pytest.mark.extra
def test_a_wheel_works_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    """From a search for two vectors to the proof of one method, where no checkout is."""
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    program = """
import pathlib, dpindex as dpi, numpy as np
assert pathlib.Path(dpi.__file__).is_relative_to(pathlib.Path("site").resolve())
vectors = np.random.default_rng(0).uniform(-1, 1, (50, 16))
np.save("vectors.npy", vectors)
"""
    path = {**os.environ, "PYTHONPATH": str(site)}
    for arguments in (
        ["-c", program],
        ["-m", "dpindex", "build", "vectors.npy", "index", "--method", "dp-oporp-staircase",
         "--epsilon", "3", "--beta", "1"],
        ["-m", "dpindex", "query", "index", "vectors.npy", "-k", "1"],
        ["-m", "dpindex", "audit", "--self-test"],
    ):  # fmt: skip
        done = subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env=path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
