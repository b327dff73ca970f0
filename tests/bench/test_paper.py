"""The experiments: every script is in step with the package, and so is what was published."""

import importlib.util
import sys

import pytest
from helpers.common import ROOT

FOLDER = ROOT / "bench" / "paper"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py"))


def loaded(name, monkeypatch):
    """One script as a module, with its neighbours to import from."""
    monkeypatch.syspath_prepend(str(FOLDER))
    place = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    for other in SCRIPTS:  # names that other folders of scripts have too
        sys.modules.pop(other, None)
    return module


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_finds_what_it_imports(name, monkeypatch):
    assert loaded(name, monkeypatch).__doc__
