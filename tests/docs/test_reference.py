"""Every public name has an entry in the reference: parameters, errors, an example that runs.

What is public is in the ``__all__`` of the modules that the navigation of the site lists, or is
defined there under a public name.
"""

import ast
import inspect
import re
import textwrap
from importlib import import_module

from helpers.common import ROOT, folded

import dpindex as dpi

NAVIGATION = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
MODULES = re.findall(r"reference/([\w.]+)\.md", NAVIGATION)
CLOSE = ("self", "cls")
TOO_LONG = {
    "dpindex.study.run_demo": "tests/study/test_demo.py",
    "dpindex.study.DemoResult": "tests/study/test_demo.py",
}
"""Names whose example takes a minute, and the tests that run them instead."""


def _names():
    for module in MODULES:
        loaded = import_module(module)
        own = vars(loaded)
        own_names = [name for name in own if not name.startswith("_")]
        for name in own.get("__all__", own_names):
            value = getattr(loaded, name)
            defined = getattr(value, "__module__", None) == module
            if not defined and "__all__" not in own:
                continue
            is_function = inspect.isfunction(inspect.unwrap(value))
            if inspect.isclass(value) or is_function:
                yield f"{module}.{name}", value


PUBLIC = dict(_names())


def _functions():
    """Every public function, and every public method of a public class."""
    for name, value in PUBLIC.items():
        if not inspect.isclass(value):
            yield name, value
            continue
        for member in vars(value):
            method = inspect.unwrap(getattr(value, member))
            if not member.startswith("_") and (
                inspect.isfunction(method) or inspect.ismethod(method)
            ):
                yield f"{name}.{member}", method


FUNCTIONS = dict(_functions())


def _parameters(function):
    names = inspect.signature(function).parameters
    return [name for name in names if name not in CLOSE]


def _raises(function):
    """Whether the function itself, and not only what it calls, raises InputError."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    raised = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    calls = [error for error in raised if isinstance(error, ast.Call)]
    return any(ast.unparse(call.func) == "InputError" for call in calls)


def test_the_navigation_has_what_users_import():
    for name in ("device", "audit", "data", "study", "study.planner", "race"):
        assert f"dpindex.{name}" in MODULES
    for name in ("dpindex", "dpindex.integrations.sklearn", "dpindex.integrations.dask"):
        assert name in MODULES
    assert len(PUBLIC) > 70


@folded("name", PUBLIC)
def test_every_name_has_an_example(name):
    """A doctest, which the suite runs: of a name itself, or of one of its methods."""
    if name in TOO_LONG:
        assert (ROOT / TOO_LONG[name]).exists()
        return
    value = PUBLIC[name]
    parts = [value]
    if inspect.isclass(value):
        parts += vars(value).values()
    texts = [inspect.getdoc(part) or "" for part in parts]
    assert any(">>> " in text for text in texts), name


CLASSES = [name for name, value in PUBLIC.items() if inspect.isclass(value)]
RAISING = [name for name, function in FUNCTIONS.items() if _raises(function)]


@folded("name", CLASSES)
def test_every_class_says_what_it_is_made_of(name):
    text = inspect.getdoc(PUBLIC[name]) or ""
    protocol = getattr(PUBLIC[name], "_is_protocol", False)  # which is never made
    own = None if protocol else PUBLIC[name].__dict__.get("__init__")
    for parameter in _parameters(own) if inspect.isfunction(own) else []:
        assert re.search(rf"\b{parameter}\b", text), f"{name}: {parameter}"


@folded("name", FUNCTIONS)
def test_every_parameter_is_described(name):
    """In a section of its own or in the text."""
    text = inspect.getdoc(FUNCTIONS[name]) or ""
    assert text, name
    for parameter in _parameters(FUNCTIONS[name]):
        assert re.search(rf"\b{parameter}\b", text), f"{name}: {parameter}"


@folded("name", RAISING)
def test_errors_are_described(name):
    assert "InputError" in (inspect.getdoc(FUNCTIONS[name]) or ""), name


def test_editors_complete_every_keyword():
    """No name of the face hides its keywords in ``**options``, and each has a type."""
    for name in dpi.__all__:
        value = getattr(dpi, name)
        if inspect.isclass(value) and not inspect.isfunction(value.__init__):
            continue
        for parameter in inspect.signature(value).parameters.values():
            assert parameter.kind is not parameter.VAR_KEYWORD, f"{name}: {parameter}"
            assert parameter.annotation is not parameter.empty, f"{name}: {parameter}"
