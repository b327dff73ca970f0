"""What float codes tell: the variances of Li & Li's theorems, and distances with honest errors."""

import numpy as np
import pytest
from helpers.specs import needed
from helpers.streams import Seeded

import dpindex as dpi
import dpindex.mechanism.privatizer
from dpindex.index.private_index import PrivateIndex
from dpindex.mechanism.method_table import find_method
from dpindex.mechanism.noise.gaussian import optimal_sigma

pytestmark = pytest.mark.slow

DRAWS = 20_000
FLOATS = [row for row in dpi.methods() if row.codes == "numbers" and row.definition == "DP"]
SHAPES = [
    *(pytest.param(row, None, id=row.name) for row in FLOATS),
    pytest.param(
        find_method("dp-rp-g-opt"), dpi.Dense("very-sparse", sparsity=3), id="very-sparse"
    ),
    pytest.param(find_method("dp-rp-l"), dpi.Dense("uniform"), id="uniform"),
]


@pytest.mark.parametrize("name", ["raw-gaussian", "dp-rp-g-opt-b", "dp-oporp"])
def test_inner_product_variance_of_theorems_3_8_to_3_10(name):
    """20 000 draws of projection and noise, both sides private: mean, and variance within 5 %.

    Its standard error is 1.2 % or so; seeds and words are fixed, so it passes always or never.
    """
    dim = 16
    k = 16 if name == "raw-gaussian" else 8
    rng = np.random.default_rng(1)
    u, v = rng.uniform(-1, 1, (2, dim))
    v = 0.7 * u + 0.3 * v
    common = {
        "adjacency": dpi.attribute(1.0),
        "dim": dim,
        "k": k,
        "epsilon": 8.0,
        "delta": 1e-6,
    }
    spec = dpi.Spec(name, **common)
    law = spec.law
    step = spec.step
    rows = spec.grid.round(np.stack([u, v]))
    draws = 1 if name == "raw-gaussian" else DRAWS
    exact = np.stack(
        [spec.method_row.family.make(_seeded(spec, s)).apply(rows) for s in range(draws)]
    )
    exact = np.broadcast_to(exact, (DRAWS, 2, k)).copy()
    codes = spec.law.perturb(exact.reshape(-1, k), Seeded(7)).reshape(DRAWS, 2, k)
    decoded = (codes + law.offset) * law.scale * step
    products = (decoded[:, 0] * decoded[:, 1]).sum(axis=1)
    sigma = optimal_sigma(8.0, 1e-6)
    # After the scale 1/√k of the dense map the sensitivity is β, and σ the same for all three.
    uu = u @ u
    vv = v @ v
    uv = u @ v
    both = float((u**2 * v**2).sum())
    variance = sigma**2 * (uu + vv) + k * sigma**4
    if name != "raw-gaussian":
        variance += (
            (uu * vv + uv**2 - 2 * both) / k * ((dim - k) / (dim - 1) if name == "dp-oporp" else 1)
        )
    assert abs(products.mean() - uv) < 5 * np.sqrt(variance / DRAWS)
    assert products.var() == pytest.approx(variance, rel=0.05)


def _seeded(spec, seed):
    """The same spec with another seed, without checking everything again."""
    copy = object.__new__(dpi.Spec)
    copy.__dict__.update(spec.__dict__, seed=seed)
    return copy


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
    rng = np.random.default_rng(0)
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
        index = PrivateIndex(dpi.Spec(**{**needed(row), **changes, "seed": seed}), metric="l2")
        index.add(x)
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


@pytest.mark.parametrize(("name", "delta"), [("dp-sjlt-laplace", 0.0), ("dp-sjlt-gaussian", 1e-6)])
def test_private_sparse_jl_distance_variance(name, delta):
    """Stausholm's estimator ``‖x̃−ỹ‖² − 2kσ²``: 20 000 draws against its variance, within 5 %.

    With independent symmetric noise of variance σ² and fourth moment m₄ on either side, e the
    difference of the two, and z the difference of the vectors:
    ``Var = Var‖Sz‖² + 8σ²‖z‖² + k(2m₄ + 2σ⁴)``, ``Var‖Sz‖² = (2/k)(‖z‖⁴ − Σz_i⁴)``.
    """
    dim = 16
    k = 8
    s = 2
    rng = np.random.default_rng(4)
    u, v = rng.uniform(-1, 1, (2, dim))
    spec = dpi.Spec(
        name,
        dim,
        k=k,
        epsilon=6.0,
        delta=delta,
        variant=dpi.Blocks(s),
        adjacency=dpi.attribute(1.0),
    )
    law = spec.law
    step = spec.step
    rows = spec.grid.round(np.stack([u, v]))
    exact = np.stack(
        [spec.method_row.family.make(_seeded(spec, i)).apply(rows) for i in range(DRAWS)]
    )
    codes = spec.law.perturb(exact.reshape(-1, k), Seeded(3)).reshape(DRAWS, 2, k)
    decoded = (codes + law.offset) * law.scale * step
    sigma2 = 2 * s / 6.0**2 if delta == 0 else optimal_sigma(6.0, delta) ** 2
    fourth = (6 if delta == 0 else 3) * sigma2**2
    found = ((decoded[:, 0] - decoded[:, 1]) ** 2).sum(axis=1) - 2 * k * sigma2
    z = u - v
    variance = 2 / k * ((z @ z) ** 2 - (z**4).sum()) + 8 * sigma2 * (z @ z)
    variance += k * (2 * fourth + 2 * sigma2**2)
    assert abs(found.mean() - z @ z) < 5 * np.sqrt(variance / DRAWS) + 0.002 * k * sigma2
    assert found.var() == pytest.approx(variance, rel=0.05)
