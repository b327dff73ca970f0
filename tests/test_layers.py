"""The layers of the package: imports point downward only, and no module depends on itself.

Every import counts, those for types and those inside functions too.
"""

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from helpers.common import attribute_spec, filled_index, python, uniform

import dpindex
from dpindex.decode.base import Decoder, ExactQueries, PrivateQueries
from dpindex.index.backends import SearchBackend
from dpindex.index.ranking import Ranking
from dpindex.mechanism.codes import FORMATS, CodeFormat
from dpindex.mechanism.noise.base import Law

LAYERS = (
    ("dpindex.__main__", "dpindex"),  # the face names what lies below, and nothing imports it
    ("dpindex.cli", "dpindex.testing"),
    ("dpindex.integrations",),
    ("dpindex.study", "dpindex.audit"),
    ("dpindex.index", "dpindex.race", "dpindex.device"),
    ("dpindex.storage",),
    ("dpindex.accounting",),
    ("dpindex.decode",),
    ("dpindex.mechanism",),
    ("dpindex.data", "dpindex.privacy"),
    ("dpindex.base", "dpindex.version"),
)
"""From the top down. Parts on one line do not import each other; a module belongs to the longest
name that begins its own."""

SECRET = "dpindex.mechanism.secret_random"
PRIVATIZER = "dpindex.mechanism.privatizer"
ENGINES = (SECRET, PRIVATIZER, "faiss")
ESTIMATORS = ("dpindex.decode",)

ROOT = Path(dpindex.__file__).parent


@cache
def modules():
    """Every module of the package by its name."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = ["dpindex", *path.relative_to(ROOT).with_suffix("").parts]
        if parts[-1] == "__init__":
            parts.pop()
        found[".".join(parts)] = path
    return found


def _nodes(text):
    """All statements and expressions of a text, to be gone through more than once."""
    return list(ast.walk(ast.parse(text)))


@cache
def nodes():
    """Those of every module, by its name."""
    return {name: _nodes(path.read_text("utf-8")) for name, path in modules().items()}


def _imported(node):
    """The modules of the package that one statement imports."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names} & modules().keys()
    assert not node.level, "relative imports hide where they point"
    module = node.module or ""
    if module not in modules():
        return set()
    names = {f"{module}.{alias.name}" for alias in node.names}
    inside = names & modules().keys()
    return inside if inside == names else inside | {module}


@cache
def arrows():
    """For every module the modules that it imports."""
    found = {}
    for name, inside in nodes().items():
        targets = set()
        for node in inside:
            if isinstance(node, ast.Import | ast.ImportFrom):
                targets |= _imported(node)
        found[name] = targets - {name}
    return found


def _layer(module):
    """Depth and part of a module."""
    parts = []
    for depth, line in enumerate(LAYERS):
        for part in line:
            below = part != "dpindex" and module.startswith(f"{part}.")
            if module == part or below:
                parts.append((len(part), depth, part))
    assert parts, f"{module} belongs to no layer"
    _, depth, part = max(parts)
    return depth, part


def test_every_module_has_a_layer_and_every_layer_a_module():
    used = {_layer(name)[1] for name in modules()}
    assert used == {part for line in LAYERS for part in line}


def test_imports_point_downward():
    for module, targets in arrows().items():
        depth, part = _layer(module)
        for target in sorted(targets):
            below, other = _layer(target)
            assert other == part or below > depth, f"{module} imports {target}, which lies above it"


def test_estimators_know_no_encoder():
    """Codes become similarities without anything that draws noise, not even for a type."""
    for module, targets in arrows().items():
        if _layer(module)[1] in ESTIMATORS:
            assert not {SECRET, PRIVATIZER} & targets, module


INTEGRATION_CONTRACTS = {
    "a release on other machines": (
        "Engine", "Shard", "Ranges", "release_in_memory",
    ),
    "an index that is searched elsewhere": (
        "Searchable", "Language", "DuckDb", "Where", "as_text", "column_types", "condition_of",
        "ids_or_mask",
        "Estimates", "Found", "FoundCodes", "Filter",
        "Candidates", "new_reranking", "with_exact", "Decoder", "decoder_of", "EXACT", "Queries",
        "Metric", "SimilarityCalibration", "tie_keys", "unlike_signs",
        "Lookup",  # as many candidates as a query needs, and a stream
    ),
    "what is published, as bytes and tables": (
        "Codes", "check_format", "Settings", "Payload", "Denoiser", "denoiser_from_bytes",
        "denoiser_to_bytes", "calibration_from_bytes", "ids_to_bytes",
        "rows_per_segment",
        "Summary",  # whoever gets a table is told what it protects
    ),
    "a build, whose address says whether it becomes a table": (
        "BuiltIndex", "Dataset", "DenoiserKind", "IndexOptions", "Outcome", "Planned", "Terms",
        "build_index", "local_path",
    ),
    "files of rows with named columns": ("TABLE_SUFFIXES", "read_tables"),
    "the parameters of a spec": (
        "VectorAdjacency", "Variant", "find_method", "quality_warnings", "Kind",
    ),
    "the version": ("__version__",),
}  # fmt: skip
"""Names that integrations may import beside what ``dpindex`` exports and ``dpindex.base``.

A new database, collector or engine needs none but these: add one here only with its reason.
"""


def test_integrations_use_the_public_face_and_listed_contracts():
    """And nothing private of an object that is not their own."""
    contracts = {name for names in INTEGRATION_CONTRACTS.values() for name in names}
    used = set()
    for module, inside in nodes().items():
        if not module.startswith("dpindex.integrations"):
            continue
        for node in inside:
            if isinstance(node, ast.ImportFrom):
                source = (node.module or "").split(".")
                if source[0] == "dpindex" and source[1:2] not in ([], ["integrations"], ["base"]):
                    used |= {alias.name for alias in node.names}
            if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
                owner = _owner(node.value)
                own = owner in ("self", "cls", "os") or node.attr.startswith("__")
                assert own, f"{module}:{node.lineno} uses {owner}.{node.attr}"
    assert used - contracts - set(dpindex.__all__) == set()


PRIVATE = re.compile(r"\b_[A-Za-z]\w*(?<!_)\b")
"""Names with one underscore; protocols of others, such as ``_repr_html_``, end with one too."""


def _owner(node):
    return node.id if isinstance(node, ast.Name) else ""


def _defined(inside):
    """Names of the functions, classes, variables and own attributes that a file defines."""
    names = set()
    for node in inside:
        stored = isinstance(getattr(node, "ctx", None), ast.Store)
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and stored:
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and stored and _owner(node.value) == "self":
            names.add(node.attr)
    return names


def _used(inside):
    """Lines and names that a file reads from objects, imports, or replaces by their names."""
    for node in inside:
        if isinstance(node, ast.Attribute) and _owner(node.value) != "os":
            yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.Call) and node.args and _owner(node.args[0]) != "os":
            # As setattr(object, "name", …), setattr("module.name", …) and the functions of plants.
            called = getattr(node.func, "attr", "attr")
            for place, part in enumerate(node.args[:2]):
                if isinstance(part, ast.Constant) and called.endswith("attr"):
                    module, _, name = str(part.value).rpartition(".")
                    if module or place:
                        yield node.lineno, name


def test_private_names_of_the_package_are_used_by_the_oracle_alone():
    """Tests use its public names, and planted weaknesses replace steps that are named as such."""
    private = set()
    for path in modules().values():
        private.update(PRIVATE.findall(path.read_text()))
    reached = []
    for folder in ("tests", "bench", "examples"):
        for path in sorted((ROOT.parent / folder).rglob("*.py")):
            text = path.read_text("utf-8")
            if path.name == "oracle.py" or private.isdisjoint(PRIVATE.findall(text)):
                continue
            inside = _nodes(text)
            foreign = private - _defined(inside)
            place = path.relative_to(ROOT.parent)
            for line, name in _used(inside):
                if name in foreign:
                    reached.append(f"{place}:{line} {name}")
    assert reached == []


def test_formats_and_methods_are_not_told_apart_by_name():
    """A comparison with such a name would have to grow with every new one: they are data."""
    places = {"dpindex.mechanism.codes", "dpindex.storage.ids"}  # keys of a file's arrays
    methods = {method.name for method in dpindex.methods()}
    comparisons = []
    for module, inside in nodes().items():
        names = methods if module in places else methods | set(FORMATS)
        for node in inside:
            if isinstance(node, ast.Compare):
                parts = [part for part in ast.walk(node) if isinstance(part, ast.Constant)]
                if names & {part.value for part in parts}:
                    comparisons.append(f"{module}:{node.lineno}")
    assert comparisons == []


KINDS = (Law, CodeFormat, Decoder, Ranking, SearchBackend, ExactQueries, PrivateQueries)
"""What differs between kinds of code."""

PARTS = ("codebook", "design")
"""Parts of a spec that some kinds have."""


FLAGS = ("symbols", "is_designed", "are_signs")
"""What a spec or a format is asked where its decoder would answer."""

COUNTING = (
    "candidates",
    "curve",
    "draws",
    "plan_result",
    "prediction",
    "remarks",
    "row",
    "sample",
    "specs",
)
"""Modules of plans, which choose how many codewords a spec has."""


def _subclasses(kind):
    yield kind
    for below in kind.__subclasses__():
        yield from _subclasses(below)


def _dispatches(inside, kinds, flags=FLAGS):
    """Lines that tell kinds of code apart by a type, or by a part of a spec that is not there."""
    for node in inside:
        tells_apart = False
        if isinstance(node, ast.Call) and _owner(node.func) in ("isinstance", "issubclass"):
            parts = ast.walk(node.args[1])
            names = {getattr(part, "attr", _owner(part)) for part in parts}
            tells_apart = not names.isdisjoint(kinds)
        elif isinstance(node, ast.Compare) and getattr(node.left, "attr", "") in PARTS:
            tells_apart = isinstance(node.ops[0], ast.Is | ast.IsNot)
        elif isinstance(node, ast.Attribute) and node.attr in flags:
            asked = getattr(node.value, "attr", _owner(node.value))
            tells_apart = asked.endswith(("spec", "format", "format_type"))
        if tells_apart:
            yield node.lineno


def test_kinds_of_code_are_told_apart_in_mechanism_and_decode_alone():
    """Elsewhere the decoder, the law and the spec are asked, so a new kind is one class."""
    for name in modules():
        import_module(name)
    kinds = {below.__name__ for kind in KINDS for below in _subclasses(kind)}
    counting = [f"dpindex.study.{one}" for one in COUNTING]
    places = []
    for module, inside in nodes().items():
        if not module.startswith(("dpindex.mechanism", "dpindex.decode")):
            flags = () if module in counting else FLAGS
            places += [f"{module}:{line}" for line in _dispatches(inside, kinds, flags)]
    assert places == []
    code = "isinstance(spec.law, noise.SignLaw | int)\nif spec.design is not None: pass"
    code += "\nif row.spec.symbols: pass"
    lines = _dispatches(_nodes(code), kinds)
    assert sorted(lines) == [1, 2, 3]


def test_there_is_no_circle():
    """Modules that import nothing are taken away, again and again: all must go."""
    left = {name: set(targets) for name, targets in arrows().items()}
    while left:
        free = {name for name, targets in left.items() if targets.isdisjoint(left)}
        assert free, f"these import each other: {left}"
        for name in free:
            del left[name]


def test_the_secret_stream_has_two_users():
    """The encoder and the release of sketches; its cipher is tested."""
    users = {name for name, targets in arrows().items() if SECRET in targets}
    drawing = {PRIVATIZER, "dpindex.race.sketch"}
    assert users == {*drawing, "dpindex.audit.outcomes"}


@pytest.mark.parametrize(
    "module",
    ["dpindex.mechanism.spec", "dpindex.mechanism.codes", "dpindex.decode.base", "dpindex"],
)
def test_reading_codes_needs_no_noise_engine(module):
    """A searcher decodes, projects and estimates without the secret stream in memory."""
    script = f"import sys, {module}; print(sorted(m for m in sys.modules if m in {ENGINES}))"
    assert python("-c", script).strip() == "[]"


SEARCH = """
import sys
import numpy as np
from dpindex import PrivateIndex

index = PrivateIndex.open(sys.argv[1])
assert index.search(np.full((2, 24), 0.1), k=3).ids.shape == (2, 3)
secret = ("dpindex.mechanism.secret_random", "dpindex.mechanism.privatizer")
print(sorted(m for m in sys.modules if m in secret))
"""


@pytest.mark.slow
def test_a_searcher_never_loads_the_secret_stream(tmp_path):
    """Opening an index and asking it with exact queries: search has no noise engine in memory."""
    spec = attribute_spec("dp-oporp-staircase", 24, k=8, epsilon=2.0)
    index = filled_index(spec, uniform(9, 24))
    index.save(tmp_path / "index")
    assert python("-c", SEARCH, tmp_path / "index").strip() == "[]"


def test_only_contracts_for_extensions_need_pytest():
    """And nothing of the package imports them."""
    pytest_imported = re.compile(r"^\s*(import|from) pytest", re.MULTILINE)
    for module, path in modules().items():
        if not module.startswith("dpindex.testing"):
            assert not pytest_imported.search(path.read_text()), module
            contracts = [name for name in arrows()[module] if name.startswith("dpindex.testing")]
            assert contracts == [], module


def test_the_face_shows_the_public_names_and_nothing_else():
    assert dir(dpindex) == sorted([*dpindex.__all__, "__version__"])
    assert all(getattr(dpindex, name) is not None for name in dpindex.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        dpindex.nothing  # noqa: B018
