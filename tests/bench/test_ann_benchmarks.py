"""The wrapper for ann-benchmarks obeys that harness's conventions, without the harness."""

import importlib.util
import json
import re
import sys
from itertools import product
from types import ModuleType

import numpy as np
import pytest
from helpers.common import ROOT, known_noise, record_spec
from numpy.random import default_rng

FOLDER = ROOT / "bench" / "ann_benchmarks"
CONFIG = (FOLDER / "config.yml").read_text(encoding="utf-8")
PACKAGE = "ann_benchmarks.algorithms"

pytestmark = known_noise


class BaseANN:
    """The face that the harness calls, as far as a wrapper inherits it."""

    def done(self): ...

    def get_memory_usage(self):
        return 0.0

    def get_batch_results(self):
        return self.res

    def __str__(self):
        return self.name


@pytest.fixture
def module(monkeypatch):
    """module.py as the harness loads it, beside a stub of its base class."""
    base = ModuleType(f"{PACKAGE}.base.module")
    base.BaseANN = BaseANN
    for name in ("ann_benchmarks", PACKAGE, f"{PACKAGE}.base", f"{PACKAGE}.dpindex"):
        package = ModuleType(name)
        package.__path__ = []
        monkeypatch.setitem(sys.modules, name, package)
    monkeypatch.setitem(sys.modules, base.__name__, base)
    name = f"{PACKAGE}.dpindex.module"
    spec = importlib.util.spec_from_file_location(name, FOLDER / "module.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def groups(metric):
    """The argument lists and query arguments of every run group of one metric.

    The lists are written so that YAML and JSON read them alike.
    """
    part = CONFIG.split(f"  {metric}:\n")[1].split("\n  euclidean:")[0]

    def found(pattern):
        return re.findall(pattern, part, re.MULTILINE)

    arguments = list(map(json.loads, found(r"^ +args: (.*)$")))
    asked = list(map(json.loads, found("query_args: (.*)$")))
    assert len(arguments) == len(asked) == len(found(r"^      [\w-]+:$"))
    return list(zip(arguments, asked, strict=True))


def data(n=300, dim=24):
    """float32, as the harness stores it, in the range of bytes."""
    rng = default_rng(0)
    x = rng.uniform(0, 255, (n, dim)).astype(np.float32)
    near = x[:20] + rng.normal(0, 2, (20, dim))
    return x, near.astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["angular", "euclidean"])
def test_every_definition_can_be_built(module, metric):
    """Epsilon is a parameter of each, and in its name; the method exists and takes its options."""
    assert groups(metric)
    for arguments, (modes,) in groups(metric):
        for method, epsilon, options in product(*arguments):
            algorithm = module.DPIndex(metric, method, epsilon, options)
            assert f"dpindex({method}, epsilon = {epsilon:g}" in str(algorithm)
            algorithm.denoise = None  # which takes thousands of vectors
            x, q = data(40)
            algorithm.fit(x)
            for mode in modes:
                algorithm.set_query_arguments(mode)
                assert len(algorithm.query(q[0], 10)) == 10
                assert f"query={mode}" in str(algorithm)


@pytest.mark.parametrize("metric", ["angular", "euclidean"])
def test_one_run_of_the_harness(module, metric):
    x, q = data()
    options = {}
    if metric == "euclidean":
        options = {"scale": 255.0, "bounds": [0, 1], "clip": True}
    algorithm = module.DPIndex(metric, "raw-staircase", 50.0, options)
    before = x.copy()
    algorithm.fit(x)
    assert (x == before).all()  # which the harness measures true distances with
    single = [algorithm.query(query, 10) for query in q]
    for row, found in enumerate(single):
        assert len(found) == len(set(found)) == 10
        assert all(0 <= int(place) < len(x) for place in found)
        assert found[0] == row
    assert q.dtype == np.float32
    algorithm.batch_query(q, 10)
    assert np.array_equal(algorithm.get_batch_results(), single)
    beta = 1 if metric == "angular" else 255
    promise = f"epsilon = 50 (pure DP) under attribute(beta={beta})"
    stated = {"epsilon": 50.0, "delta": 0.0, "guarantee": promise}
    assert algorithm.get_additional() == stated
    assert promise in str(algorithm)
    algorithm.set_query_arguments("private")
    first, again = (algorithm.query(q[0], 250) for _ in range(2))
    assert (first != again).any()  # fresh noise each time
    algorithm.done()


@pytest.mark.slow
def test_denoised(module):
    rng = default_rng(0)
    x = np.tanh(rng.normal(size=(3000, 3)) @ rng.normal(size=(3, 24)))
    options = {"bounds": [-1, 1], "denoise": "linear"}
    algorithm = module.DPIndex("euclidean", "raw-staircase", 2.0, options)
    algorithm.fit(x)
    assert algorithm.index.denoiser is not None
    assert "denoise=linear" in str(algorithm)


def test_epsilon_is_spent_once_for_each_vector(module):
    """Nothing of the data is in the index but codes under the spec that is stated."""
    x, _ = data(50)
    algorithm = module.DPIndex("angular", "record-cap", 8.0, {"record": True})
    algorithm.fit(x)
    assert algorithm.spec == record_spec("record-cap", 24, epsilon=8.0)
    assert len(algorithm.index) == len(algorithm.index.codes) == 50


def test_the_conventions_of_names():
    """Folder, module, image and constructor belong together."""
    for line in (
        "constructor: DPIndex",
        "docker_tag: ann-benchmarks-dpindex",
        "module: ann_benchmarks.algorithms.dpindex",
        "name: dpindex",
        "base_args: ['@metric']",
    ):
        assert CONFIG.count(line) == 2
    docker = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    assert docker.startswith("FROM ann-benchmarks\n")
    assert "RUN python -c 'import dpindex'" in docker
    yaml = pytest.importorskip("yaml")
    for metric in ("angular", "euclidean"):
        (entry,) = yaml.safe_load(CONFIG)["float"][metric]
        found = entry["run_groups"].values()
        read = [(group["args"], group["query_args"]) for group in found]
        assert read == groups(metric)
