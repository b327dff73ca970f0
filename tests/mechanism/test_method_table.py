"""The table of mechanisms: every row keeps the promises that its columns make."""

import re
from dataclasses import replace

import pytest
from helpers.common import example, folded, needed, refuses

from dpindex import Codebook, Spec, attribute, methods
from dpindex.mechanism.method_table import TABLE, find_method


def test_names_are_unique_and_found():
    names = [row.name for row in methods()]
    assert len(set(names)) == len(names)
    assert [find_method(name) for name in names] == list(methods())


@folded("row", methods())
def test_a_row_says_what_it_is(row):
    assert row.codes in ("signs", "numbers", "symbols")
    assert row.summary
    assert row.source
    # The prefix is what people read: it must tell the definition.
    assert (row.definition == "iDP") == row.name.startswith("idp-")
    assert (row.definition == "none") == row.name.startswith("none-")
    assert not (row.definition == "none" and row.needs_delta)
    pure = row.private and not row.needs_delta
    assert row.kind.startswith("pure") == pure
    assert ("delta" in row.needs) == row.needs_delta
    assert row.private == (row.definition != "none")
    assert row.adjacencies
    assert set(row.adjacencies) <= {"attribute", "l2", "record"}
    assert re.search(r"(19|20)\d\d|Tu,", row.source), "no paper is named"
    assert not row.summary.endswith(".")


@folded("row", methods())
def test_what_a_row_needs_is_all_it_needs(row):
    """With what ``needs`` names there is a spec; without any of it there is none."""
    arguments = {**needed(row), "dim": 24}
    Spec(**arguments)
    kind = "record" if "record" in row.adjacencies else "l2"
    words = {"delta": "delta", "adjacency": kind, "bounds": "bounds", "codebook": "codebook"}
    words["design"] = "design"
    for name, word in {**words, "epsilon": ""}.items():
        required = row.private if name == "epsilon" else word in row.needs
        if required:
            rest = {key: value for key, value in arguments.items() if key != name}
            rest.setdefault("adjacency", attribute(1.0))
            with refuses(re.escape(row.name)):
                Spec(**rest)


@folded("row", methods())
@folded("dim", [1, 2, 5, 24, 784])
def test_the_default_k_is_allowed(row, dim):
    spec = example(row, dim, k=None)
    assert spec.code_length == spec.k
    length = 50 if row.family.public is Codebook else spec.k
    assert spec.projection.k == length
    assert spec.projection.dim == dim
    if row.family.keeps_all:
        assert spec.k == dim


@pytest.mark.parametrize("name", ["record-cap", "record-codebook"])
def test_no_row_calibrates_noise_to_a_record_encoder(name, monkeypatch):
    """Such maps state no sensitivity, so a false row is an error and not a smaller noise."""
    row = find_method(name)
    for true in ("raw-laplace", "dp-signoporp-rr", "dp-oporp"):
        wrong = replace(find_method(true), name="wrong", family=row.family)
        monkeypatch.setitem(TABLE, "wrong", wrong)
        k = None if name == "record-codebook" else 64
        spec = example(wrong, adjacency=attribute(1.0), k=k)
        assert not hasattr(row.family.make(spec), "sensitivity")
        with pytest.raises(TypeError, match="is no Projection"):
            _ = spec.law
