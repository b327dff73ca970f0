"""What float codes tell: distances with honest errors.

Variances of projections are those of ``mechanism/test_families.py``, of noise ``test_law.py``.
"""

import numpy as np
import pytest
from helpers.releases import filled_index
from helpers.specs import needed
from numpy.random import default_rng

from dpindex import Dense, Spec, methods
from dpindex.mechanism.method_table import find_method

pytestmark = pytest.mark.slow

FLOATS = [row for row in methods() if row.codes == "numbers" and row.definition == "DP"]
SHAPES = [
    *(pytest.param(row, None, id=row.name) for row in FLOATS),
    pytest.param(find_method("dp-rp-g-opt"), Dense("very-sparse", sparsity=3), id="very-sparse"),
    pytest.param(find_method("dp-rp-l"), Dense("uniform"), id="uniform"),
]


# Decoders of designs give posterior means, which are biased on purpose: test_designed.
@pytest.mark.parametrize(
    ("row", "variant"),
    [shape for shape in SHAPES if shape.values[0].family.public is None],
)
def test_distances_are_unbiased_with_honest_errors(row, variant, known_noise):
    """Squared distances of the l2 index: 10 projections × 5 queries × 60 vectors, either mode.

    The mean error is within 12 of its own standard errors of 0, taken over projections, as vectors
    of one projection err together: by chance 8e-7 (Student, 9 degrees). Squared errors are on
    average what the standard errors say, within 40 %. (Errors over their own standard errors would
    not have mean 0: the two are related.) Words are seeded, so it passes always or never.
    """
    rng = default_rng(0)
    dim = 48
    high = 1.0 if "attribute" in row.adjacencies else 0.3
    changes = {"dim": dim, "epsilon": 6.0}
    changes["k"] = dim if row.family.keeps_all else 24
    if variant is not None:
        changes["variant"] = variant
    errors = {"exact": [], "private": []}
    claimed = {"exact": [], "private": []}
    for seed in range(10):
        x = rng.uniform(0, high, (60, dim))
        q = rng.uniform(0, high, (5, dim))
        index = filled_index(Spec(**{**needed(row), **changes, "seed": seed}), x, metric="l2")
        for mode, found in errors.items():
            hits = index.search(q, k=60, query=mode)
            truth = ((q[:, None] - x[hits.ids]) ** 2).sum(axis=2)
            found.append(hits.unbiased - truth)
            claimed[mode].append(hits.unbiased_stderr)
    for mode, found in errors.items():
        means = np.array([error.mean() for error in found])
        assert abs(means.mean()) < 12 * means.std(ddof=1) / np.sqrt(len(means))
        promised = np.mean(np.square(claimed[mode]))
        assert np.mean(np.square(found)) == pytest.approx(promised, rel=0.4)
