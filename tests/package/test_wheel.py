"""What is published: a wheel that anyone can build again, and that works without the checkout."""

import re
import shutil
import tarfile
import zipfile
from email import message_from_bytes
from html.parser import HTMLParser

import pytest
from helpers.common import ROOT, python

pytest.importorskip("hatchling", reason="needs pip install hatchling")
pytest.importorskip("hatch_fancy_pypi_readme", reason="needs pip install hatch-fancy-pypi-readme")

BUILT_FROM = ("dpindex", "pyproject.toml", "README.md", "LICENSE")


def _wheel(folder):
    """A wheel that is built from a copy of the checkout in ``folder``."""
    for name in BUILT_FROM:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, folder / name, ignore=ignored)
        else:
            shutil.copy(source, folder / name)
    build = ("-m", "hatchling", "build", "--target", "wheel")
    python(*build, cwd=folder, SOURCE_DATE_EPOCH="1767225600")
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return _wheel(tmp_path_factory.mktemp("wheel"))


@pytest.mark.slow
@pytest.mark.extra
def test_two_wheels_are_equal(wheel, tmp_path):
    """Built in another folder, at another time, from files of other dates."""
    other = tmp_path / "elsewhere"
    other.mkdir()
    assert _wheel(other).read_bytes() == wheel.read_bytes()


@pytest.mark.slow
@pytest.mark.extra
def test_a_wheel_holds_the_package_and_its_licenses(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for source in (ROOT / "dpindex").rglob("*"):
        if source.is_file() and source.suffix != ".pyc":
            assert source.relative_to(ROOT).as_posix() in names
    licenses = [name for name in names if re.search("dist-info.*LICENSE$", name)]
    assert len(licenses) == 3


@pytest.mark.slow
@pytest.mark.extra
def test_a_wheel_works_without_the_checkout(wheel, tmp_path):
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
    build = "-m dpindex build vectors.npy index --method dp-oporp-staircase --epsilon 3 --beta 1"
    query = "-m dpindex query index vectors.npy -k 1"
    audit = "-m dpindex audit --self-test"
    for arguments in (("-c", program), build.split(), query.split(), audit.split()):
        python(*arguments, cwd=tmp_path, PYTHONPATH=str(site))


class Addresses(HTMLParser):
    """Where the links and pictures of a page are."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.found += [given[name] or "" for name in ("href", "src") if name in given]


@pytest.mark.slow
@pytest.mark.extra
def test_the_page_on_the_registry_has_no_relative_link(wheel):
    markdown = pytest.importorskip("readme_renderer.markdown")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        metadata = message_from_bytes(archive.read(name))
    page = Addresses()
    text = metadata.get_payload(decode=True).decode()
    page.feed(markdown.render(text))
    own = ("https://", "#user-content-")
    assert [address for address in page.found if not address.startswith(own)] == []
    ours = re.compile(rf"https://[\w./]+/(?:blob/)?v{metadata['Version']}/([^#]+)")
    named = [match[1] for match in map(ours.match, page.found) if match]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)\s]+)\)", readme)
    relative = [link for link in links if not link.startswith(("https://", "#"))]
    assert len(named) == len(relative) > 20
    for path in named:
        assert (ROOT / path).exists(), path


@pytest.mark.slow
@pytest.mark.extra
def test_the_registry_accepts_what_is_built_and_tests_run_from_the_sdist(wheel, tmp_path):
    """What git ignores is left out, and whatever tests read is there."""
    pytest.importorskip("twine")
    build = ("-m", "hatchling", "build", "--target", "sdist")
    python(*build, "--directory", tmp_path, cwd=ROOT)
    (sdist,) = tmp_path.glob("*.tar.gz")
    python("-m", "twine", "check", "--strict", sdist, wheel)
    with tarfile.open(sdist) as archive:
        paths = archive.getnames()
    names = {path.partition("/")[2] for path in paths}
    assert {"README.md", "mkdocs.yml", "requirements/ci.in", ".ci/run", "CITATION.cff"} <= names
    for folder in ("bench", "docs", "examples", "tests"):
        for source in (ROOT / folder).rglob("*"):
            if source.is_file() and "__pycache__" not in source.parts:
                assert source.relative_to(ROOT).as_posix() in names
