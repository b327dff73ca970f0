"""The experiments: every script is in step with the package, and so is what was published."""

import importlib.util
import math
import sys
from pathlib import Path

import mpmath
import pytest
from helpers.specs import attribute_spec

import dpindex as dpi
from dpindex.mechanism.papers.signs import change_probability, quantile_count

FOLDER = Path(__file__).parents[2] / "bench" / "paper"
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


@pytest.mark.parametrize("k", [1, 8, 512])
@pytest.mark.parametrize("chance", [0.001, 0.2, 0.7, 1.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 0.1])
def test_the_chernoff_count_is_its_formula(k, chance, delta, monkeypatch):
    """Li & Li 2023, Prop. 4.5; the exact quantile, which the package takes, is never larger."""
    count = loaded("published", monkeypatch).chernoff_count(k, chance, delta)
    with mpmath.workdps(60):
        log = mpmath.log(1 / mpmath.mpf(delta))
        mean = k * mpmath.mpf(chance)
        bound = mpmath.ceil(mean + (log + mpmath.sqrt(log**2 + 8 * mean * log)) / 2)
    assert count == max(1, min(k, int(bound)))
    assert quantile_count(k, chance, delta) <= count


def test_published_flips_share_epsilon_over_the_chernoff_count(
    monkeypatch,
):
    published = loaded("published", monkeypatch)
    spec = attribute_spec(
        "dp-signrp-rr",
        100,
        k=256,
        epsilon=3.0,
        delta=1e-6,
        variant=dpi.Dense("gaussian", min_norm=8.0),
    )
    flip = published.published_flips(spec).thresholds[0] / 2.0**64
    count = published.chernoff_count(256, change_probability(100, 1 / 8), 1e-6)
    assert math.log(1 / flip - 1) == pytest.approx(3.0 / count)
    assert flip > spec.law.thresholds[0] / 2.0**64
