"""What people try first and get wrong, and what notebooks show."""

import os
from pathlib import Path

import numpy as np
import pytest
from helpers.common import attribute_spec, filled_index, folded, refuses

import dpindex as dpi
from dpindex.base.files import writing
from dpindex.mechanism.promises import quality_warnings

SPEC = attribute_spec("dp-oporp-staircase", 8, k=8, epsilon=8.0)


@folded("spec", ["my-index", Path("my-index"), None, 7, {"method": "record-cap"}])
def test_an_index_is_made_of_a_spec(spec):
    said = r"needs a Spec or a plan, not .*; dpindex\.open\(path\) opens"
    with refuses(said):
        dpi.PrivateIndex(spec)
    with refuses(said):
        dpi.build("nowhere.npy", "my-index", spec)


@pytest.mark.parametrize("index", ["my-index", Path("my-index"), None])
def test_what_is_published_is_an_open_index(index, tmp_path):
    with refuses(r"dpindex\.publish\(dpindex\.open\(path\)"):
        dpi.publish(index, tmp_path / "x.lance")


@pytest.mark.parametrize("address", ["books.xyz", "books", "redis://localhost"])
def test_an_address_that_names_no_database_is_named_once(address):
    pytest.importorskip("pyarrow")
    index = filled_index(SPEC, np.eye(8))
    with refuses(f"^{address} names no database: give milvus://"):
        dpi.publish(index, address)


@folded(
    "beta, bounds, warned",
    [(1.0, (0, 1), False), (1.5, (0, 1), True), (2.0, (-1, 1), False), (300.0, (0, 255), True)],
)
def test_a_beta_wider_than_the_bounds_is_warned_of(beta, bounds, warned):
    spec = dpi.Spec(
        "dp-oporp-staircase", 8, k=8, epsilon=8.0, bounds=bounds, adjacency=dpi.attribute(beta)
    )
    said = " ".join(quality_warnings(spec))
    assert ("is wider than the range of an attribute" in said) is warned


def test_what_may_not_be_written_is_not_said_to_need_room(tmp_path):
    for number, remedy in ((13, "let yourself write there"), (28, "make room")):
        with (
            refuses(remedy),
            writing(tmp_path, "make room"),
        ):
            raise OSError(number, os.strerror(number))


def test_a_privatizer_and_a_ledger_say_what_they_are(tmp_path):
    privatizer = repr(dpi.Privatizer(SPEC))
    assert privatizer.startswith("<Privatizer: dp-oporp-staircase, ")
    assert "epsilon" in privatizer or "ε" in privatizer
    assert repr(dpi.Ledger(tmp_path / "ledger")) == f"<Ledger: {tmp_path / 'ledger'}>"


def test_a_wide_table_of_hits_scrolls_by_itself():
    index = filled_index(SPEC, np.eye(8), payload={"title": 8 * [60 * "long "]})
    page = index.search(np.eye(8)[:1], 3)._repr_html_()
    assert '<div style="overflow-x:auto"><table>' in page
    assert page.count("<table>") == page.count("</table></div>") == 1
