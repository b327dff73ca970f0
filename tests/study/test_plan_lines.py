"""What a plan prints: lines that build what was planned, and notes that apply.

The noise is known: these tests are about predictions, not about privacy.
"""

import numpy as np
import pytest
from helpers.common import normal, topics
from numpy.random import default_rng

import dpindex as dpi

pytestmark = [
    pytest.mark.usefixtures("known_noise", "few_queries"),
    pytest.mark.filterwarnings("ignore:.*outside the public bounds:dpindex.QualityWarning"),
]
COLUMNS = 10


def table(rows, seed, outliers=0.0):
    """Columns that vary together, most values in 0 … 1 and some far outside."""
    maps = normal(3, COLUMNS)
    rng = default_rng(seed)
    causes = rng.normal(size=(rows, 3)) @ maps
    values = 1.0 / (1.0 + np.exp(-causes))
    far = rng.random(values.shape) < 0.01
    values[far] += outliers * rng.normal(size=far.sum())
    return values.astype(np.float32)


def embeddings(rows, seed):
    return topics(rows, COLUMNS, seed, 20, 0.3).astype(np.float32)


def plan(public, **changes):
    terms = {"n": 4000, "epsilon": 4.0, "adjacency": dpi.attribute(1.0)}
    return dpi.plan(public, **{**terms, **changes})


@pytest.mark.slow
@pytest.mark.parametrize("method", ["dp-designed-laplace", "codebook-softmax"])
def test_public_parts_are_made_of_the_sample_as_it_is_clipped(method):
    """A few cells of 80 ranges would decide all of a design, and any codeword that has one."""
    far = table(600, 1, 80.0)
    terms = {"methods": [method], "bounds": (0.0, 1.0), "clip": True}
    inside = plan(far.clip(0, 1), **terms)
    assert plan(far, **terms).best.spec == inside.best.spec


@pytest.mark.parametrize("query", ["exact", "private"])
def test_rows_of_a_table_differ(query):
    """Windows differ in rows that have all else alike."""
    made = plan(embeddings(600, 1), methods=["codebook-softmax"], query=query)
    rows = [(row.size, row.denoiser) for row in made.rows]
    assert len(rows) > 1
    assert len(set(rows)) == len(rows)
    assert f"{made.rows[0].size} " in str(made)
    assert "u: --window" in str(made)


def test_embeddings_are_built_with_their_norm():
    """Without narrow bounds, within which vectors have other norms."""
    terms = {"methods": ["raw-staircase"], "epsilon": 20.0}

    def norm(public, **bounds):
        return plan(public, **terms, **bounds).best.spec.norm

    assert norm(embeddings(600, 1)) == 1.0
    assert norm(2.0 * embeddings(600, 1), bounds=(-2.0, 2.0)) is None
    assert norm(table(600, 1)) is None


def test_embeddings_may_stand_twice_in_a_sample():
    """A vector made from a query towards its copy had another norm, and the plan was refused."""
    twice = np.repeat(embeddings(300, 1), 2, axis=0)
    made = plan(twice, methods=["dp-signoporp-rr"])
    assert made.best.spec.norm == 1.0


def test_notes_stand_where_they_apply():
    secret = "One coordinate of an embedding is nobody's secret"
    lengths = "which ignores lengths"

    def notes(public, **bounds):
        return " ".join(plan(public, methods=["raw-staircase"], **bounds).remarks)

    of_embeddings = notes(embeddings(600, 1))
    assert secret in of_embeddings
    assert lengths not in of_embeddings
    of_table = notes(table(600, 1), bounds=(0.0, 1.0))
    assert secret not in of_table
    assert lengths in of_table
    wide = np.tile(table(600, 1), 8)
    of_pictures = notes(wide, bounds=(0.0, 1.0))
    assert secret not in of_pictures
    assert lengths not in of_pictures
